"""How others say it: their names, their defaults, and what their gaps become."""
