"""inspect's logs."""
