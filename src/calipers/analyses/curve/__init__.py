"""What k samples are worth, for every k."""
