"""NeMo-RL's training and validation data."""
