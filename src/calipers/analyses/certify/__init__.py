"""A number that a stranger can check: certificates, their proofs, and plans that were certified before a run."""
