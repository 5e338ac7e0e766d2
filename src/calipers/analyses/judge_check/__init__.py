"""How far a judge agrees with people, and what that does to a number."""
