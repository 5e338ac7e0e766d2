"""Filters, which extract the answer from a response."""
