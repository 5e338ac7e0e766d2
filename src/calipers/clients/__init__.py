"""Models: on servers, on this machine, or replayed from a log."""
