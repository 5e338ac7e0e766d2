"""Compare two runs or more: their common tasks, the differences, and the verdicts."""
