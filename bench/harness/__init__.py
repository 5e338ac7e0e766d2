"""Calipers beside lm-evaluation-harness: one checkpoint, the same task files. Start at `run.py`."""
