"""What happened: one table of rollouts, and the ledger that accounts for every one of them."""
