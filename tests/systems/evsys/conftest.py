"""Every test here starts without borrowed code, and leaves none behind."""

from compat.clean import _nothing_borrowed

__all__ = ["_nothing_borrowed"]
