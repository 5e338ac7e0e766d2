"""Every test here begins and ends without registered stand-ins."""

from compat.clean import _nothing_borrowed

__all__ = ["_nothing_borrowed"]
