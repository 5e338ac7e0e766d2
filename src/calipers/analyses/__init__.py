"""Analyses of results, a folder each: the question, its result, and its page."""
