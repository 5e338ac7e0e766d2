"""Live runs: the loop that calls clients and verifiers, and the log it writes.

The only room that waits. Nothing here imports numpy, and nothing here knows a metric.
"""
