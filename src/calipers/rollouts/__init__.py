"""Rollouts: one table of rollouts, and the ledger of their outcomes."""
