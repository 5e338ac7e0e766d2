"""TRL's tables of completions."""
