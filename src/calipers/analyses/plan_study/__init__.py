"""How many tasks and samples a comparison needs."""
