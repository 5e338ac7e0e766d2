"""How sure we are: standard errors and intervals around every number."""
