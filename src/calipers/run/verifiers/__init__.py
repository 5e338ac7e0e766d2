"""One file per family of verifiers."""
