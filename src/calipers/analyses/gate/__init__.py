"""Check results against requirements and policies."""
