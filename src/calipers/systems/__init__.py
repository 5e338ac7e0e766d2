"""Other systems, a file or a folder each; everything about one is behind the values that `names.py` lists."""
