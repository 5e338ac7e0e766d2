"""EvSys: its Benchmark, its prediction rows, its names, and its modules, lent while they are absent."""
