"""Watch a training run: its curves, alarms with a bounded chance of false alarms, and its best checkpoint."""
