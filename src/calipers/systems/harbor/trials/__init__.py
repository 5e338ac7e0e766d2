"""Trials in rooms of our own or through Harbor: an agent, the task's tests after it, and Harbor's own files."""
