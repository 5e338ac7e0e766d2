"""A training run as it goes on: its curves, alarms with a stated rate of false ones, and its best checkpoint."""
