"""open-instruct's rollouts."""
