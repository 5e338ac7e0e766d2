"""Two runs or more, side by side: which tasks they share, how far apart they are, and what that amounts to."""
