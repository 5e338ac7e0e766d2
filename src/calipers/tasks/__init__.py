"""What is asked: tasks, the files they stand in, and the store they are published to."""
