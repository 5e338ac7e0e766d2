"""Do a benchmark's verifiers work: right answers pass, wrong ones fail."""
