"""Work on the machines of a Ray cluster: rollouts, verdicts and partial scores come back to the one who asked."""
