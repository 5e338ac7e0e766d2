"""verl's generation files."""
