"""What a sceptic looks for in a run."""
