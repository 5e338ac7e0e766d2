"""Task files of lm-evaluation-harness, the documents of tasks, and the requests that tasks make of a model."""
