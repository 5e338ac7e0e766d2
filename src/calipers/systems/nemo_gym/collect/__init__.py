"""The collection of rollouts from NeMo Gym's agent servers, and its four files."""
