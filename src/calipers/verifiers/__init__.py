"""Who judges: a reward for an answer, or a reason why there is none."""
