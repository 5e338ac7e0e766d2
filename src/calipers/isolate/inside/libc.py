"""Functions of the C library, by `_ctypes`, as importing `ctypes` takes half as long as starting the interpreter."""

from __future__ import annotations

import _ctypes
import os

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from typing import Any

    Value = _ctypes._SimpleCData[Any]
else:
    Value = _ctypes._SimpleCData  # takes no type parameter at runtime


class Int(Value):
    """A C int, the result of functions."""

    _type_ = "i"


class Unsigned(Value):
    """A C unsigned int."""

    _type_ = "I"


class Long(Value):
    """A C unsigned long, as wide as an address."""

    _type_ = "L"


class BytesAddress(Value):
    """The address of the bytes that it was made from, which must be kept alive."""

    _type_ = "z"


class CFunction(_ctypes.CFuncPtr):
    """A C function that takes numbers, None, and bytes (passed by address)."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = Int


LIBRARY = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is this program itself; the stubs lack it


def function(name: str) -> CFunction:
    """The function with this name."""
    return CFunction(_ctypes.dlsym(LIBRARY, name))


def check(action: str, result: Any) -> None:
    """OSError, with the name of the action, if a call failed."""
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")
