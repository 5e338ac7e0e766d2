"""One file per contestant: a `PEER`, what to time, and the numbers it came to."""
