"""The same tasks in lm-evaluation-harness and in Calipers, with made-up documents and one mock model."""
