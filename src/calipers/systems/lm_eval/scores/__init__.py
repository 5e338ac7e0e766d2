"""Scores of answers: answers and references in, a number for each out."""
