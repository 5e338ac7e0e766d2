"""NeMo Gym: its rollouts, metrics, servers and collections."""
