"""Hugging Face model cards: files of evaluation results."""
