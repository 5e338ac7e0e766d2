"""Simulations of intervals, tests and verdicts: how often each keeps its promise. Start at `run.py`."""
