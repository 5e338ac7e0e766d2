"""Runs of lm-evaluation-harness' tasks, from a name to its own numbers."""
