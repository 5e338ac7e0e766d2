"""Reports: the result, and its output formats for people and for programs."""
