"""Task files of lm-evaluation-harness: what they say, their documents, and the requests they make of a model."""
