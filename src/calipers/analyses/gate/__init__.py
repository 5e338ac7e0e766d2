"""Whether results are good enough: requirements, policies, and their answers."""
