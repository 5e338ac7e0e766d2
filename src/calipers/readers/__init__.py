"""What others wrote: files of every kind, turned into `Part`s of one table."""
