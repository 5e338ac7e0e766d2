"""Who is ahead of whom, for many models on the same tasks."""
