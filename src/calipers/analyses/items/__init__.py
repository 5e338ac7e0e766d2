"""Which tasks tell runs apart."""
