"""promptfoo's results."""
