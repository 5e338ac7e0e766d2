"""The world answers: clients, verifiers, the loop between them and the log it writes.

The only room that waits. Nothing here imports numpy, and nothing here knows a metric.
"""
