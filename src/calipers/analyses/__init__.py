"""Analyses of results, a folder or a file each: the question, its result, and its page."""
