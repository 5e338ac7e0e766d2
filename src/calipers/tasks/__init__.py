"""Tasks, the files they are read from, and the store they are published to."""
