"""Verifiers: the reward of an answer, or the reason why it has none."""
