"""The traces of verifiers and prime-rl, and the results of older verifiers."""
