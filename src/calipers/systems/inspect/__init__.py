"""The reader and the writer of inspect's logs."""
