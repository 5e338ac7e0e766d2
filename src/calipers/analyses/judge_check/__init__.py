"""How well a judge agrees with people, and how that changes a score."""
