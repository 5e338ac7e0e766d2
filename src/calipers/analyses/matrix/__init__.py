"""Many models on many benchmarks: one matrix."""
