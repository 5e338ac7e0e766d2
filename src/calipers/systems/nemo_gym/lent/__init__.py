"""NeMo Gym's modules, as far as they are lent: what a resources server needs for its metrics."""
