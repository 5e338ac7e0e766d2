"""How many tasks and samples a study needs."""
