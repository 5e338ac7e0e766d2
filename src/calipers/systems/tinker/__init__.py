"""tinker-cookbook's evaluations and rollout summaries."""
