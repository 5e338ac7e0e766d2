"""lm-evaluation-harness: its files, tasks, rules and numbers."""
