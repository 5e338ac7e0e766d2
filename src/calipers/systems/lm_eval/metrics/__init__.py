"""lm-evaluation-harness' metrics of all documents together."""
