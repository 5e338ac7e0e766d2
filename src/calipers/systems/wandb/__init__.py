"""Weights & Biases: a run for each group of a result."""
