"""Functions of the C library: `ctypes` would take half as long to load as the interpreter, `_ctypes` takes no time."""

from __future__ import annotations

import _ctypes
import os

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from typing import Any

    Value = _ctypes._SimpleCData[Any]
else:
    Value = _ctypes._SimpleCData  # which takes no parameter when it runs


class Int(Value):
    """What a function returns; a Python number is given to it as one."""

    _type_ = "i"


class Unsigned(Value):
    """A number of as many bits that is never below 0."""

    _type_ = "I"


class Long(Value):
    """A number as wide as an address."""

    _type_ = "L"


class Address(Value):
    """Where the bytes are that it was made of, as long as they are kept."""

    _type_ = "z"


class Function(_ctypes.CFuncPtr):
    """A function that takes numbers, None, and bytes, of which it is given the address."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = Int


LIBRARY = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None, which the stubs lack, is this program itself


def function(name: str) -> Function:
    """The function with this name."""
    return Function(_ctypes.dlsym(LIBRARY, name))


def check(what: str, result: Any) -> None:
    """OSError for a call that failed, which says what it was to do."""
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
