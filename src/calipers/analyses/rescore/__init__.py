"""Recorded answers before other verifiers."""
