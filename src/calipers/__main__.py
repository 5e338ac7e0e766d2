"""``python -m calipers`` is the command ``calipers``."""

from calipers.cli import main

main()
