"""The value of k samples, for every k."""
