"""One file for each contestant: a `PEER`, the call to time, and the numbers that it returns."""
