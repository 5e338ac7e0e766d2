"""How a number moves from checkpoint to checkpoint."""
