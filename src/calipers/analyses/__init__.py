"""Questions one asks of results, a folder each: the question, what it finds, and how that is shown."""
