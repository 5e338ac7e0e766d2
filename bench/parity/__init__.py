"""The same tasks through lm-evaluation-harness and Calipers, on made-up documents and one mock model."""
