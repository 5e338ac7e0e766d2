"""Files into rollouts."""
