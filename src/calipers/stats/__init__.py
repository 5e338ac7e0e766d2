"""Statistics: standard errors, intervals and tests for every number."""
