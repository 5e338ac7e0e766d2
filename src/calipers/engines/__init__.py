"""Where work is done: in this process, or on the machines of a Ray cluster."""
