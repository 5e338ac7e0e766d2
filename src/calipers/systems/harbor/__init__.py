"""Harbor: its jobs, tasks, datasets, agents and metric scripts."""
