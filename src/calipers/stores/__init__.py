"""Where files are, on this machine or in an object store, and how one is written whole.

::

    s3://bucket/run.jsonl ──► fetched once ──► a private copy, read like any file ──► removed at the end
                                               └── errors, notes and results show the address, without its keys

`local` gives the copy of an input, `uploaded` a file to write whose content becomes an object; a path of this machine
stays what it is. Nothing heavy is loaded before the first address (`objects` holds what talks to stores).
`atomic_file` writes a file of this machine that appears whole: what was there before stays until all of the new content
is on disk.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from calipers.errors import InputError, show_as
from calipers.names import is_remote

SCHEMES: Final = ("s3", "gs", "hf", "https", "http")
WRITABLE: Final = ("s3", "gs", "hf")
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_ADDRESS = re.compile(rf"(?:{'|'.join(SCHEMES)})://")


def local(source: Any) -> Any:
    """A source with the local copy of each address in its place: a path, or a list of what may be paths.

    A copy is fetched once. Of a Parquet object only what is asked for is read (`objects.fetched`). An address that ends
    with a slash is a folder. InputError for an address that cannot be read.
    """
    if isinstance(source, (list, tuple)):
        return type(source)(map(local, source)) if any(map(is_remote, source)) else source
    if not is_remote(source):
        return source
    checked(source)
    from calipers.stores import objects

    return objects.fetched(source)


@contextmanager
def uploaded(target: str, *, force: bool = True) -> Iterator[str]:
    """The path of a file to write: the target, or for an address a file that becomes an object at the end."""
    if not is_remote(target):
        yield target
        return
    check_target(target)
    from calipers.stores import objects

    with objects.written(target, force=force) as path:
        yield path


def check_target(target: str) -> None:
    """InputError for an address to which nothing can be written."""
    checked(target)
    scheme = urlsplit(target).scheme
    if scheme not in WRITABLE:
        right = "expected a local file, or an address of s3://, gs:// or hf://"
        raise InputError.at(shown(target), f"{scheme}:// can only be read", right)
    if target.endswith("/"):
        raise InputError.at(shown(target), "is a folder", "expected the address of a file")


def not_local(address: object) -> InputError:
    """The error for an address where the log of a run must be on this machine."""
    right = "copy it to the store when it is complete"
    return InputError.at(shown(str(address)), "the log of a run needs a local folder", right)


def checked(address: str) -> None:
    """InputError for an address of no store that we know, or one whose content anybody on the way could read."""
    if not _ADDRESS.match(address):
        scheme = address.partition("://")[0]
        known = ", ".join(f"{name}://" for name in SCHEMES[:-1])
        raise InputError.at(shown(address), f"there is no store {scheme}://", f"expected {known} or a local path")
    shown(address)
    try:
        parts = urlsplit(address)
    except ValueError as error:  # half of the brackets of an IPv6 address
        raise InputError.at(shown(address), f"is no address ({error})", "expected https://HOST/PATH") from None
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise InputError.at(shown(address), "http:// is not encrypted", "expected https://")
    if parts.scheme in WRITABLE and not parts.netloc:
        raise InputError.at(shown(address), "names no bucket", f"expected {parts.scheme}://BUCKET/PATH")


def shown(address: str) -> str:
    """An address for people: without a user, a password, or a query, which may hold a signature.

    >>> shown("https://me:word@host/a.jsonl?X-Amz-Signature=12")
    'https://host/a.jsonl'
    """
    scheme, _, rest = address.partition("://")
    place, slash, path = rest.partition("/")
    plain = f"{scheme}://{place.rpartition('@')[2]}{slash}{re.split('[?#]', path)[0] if scheme[:4] == 'http' else path}"
    if plain != address:
        show_as(address, plain)
    return plain


LONGEST = 100  # characters of a name that the temporary one repeats: a name has 255 bytes at most


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """The path of a file to write, which takes the place of ``path`` at the end; a failure changes nothing."""
    folder, name = os.path.split(os.fspath(path))
    beside = os.path.join(folder, f".{name[:LONGEST]}.{os.urandom(4).hex()}.part")
    try:
        yield beside
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


@contextmanager
def atomic_file(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """As `atomic_path`, open to be written, and on disk before it takes its place.

    OSError where it cannot be written. A file that is replaced hands its permissions on; ``mode`` is for a new one. A
    link is replaced, not followed: give its `os.path.realpath` to write what it points to.
    """
    with (
        atomic_path(path) as beside,
        open(beside, "xb", opener=lambda new, flags: os.open(new, flags, mode)) as file,
    ):
        with suppress(FileNotFoundError):
            before = os.lstat(path)
            if stat.S_ISREG(before.st_mode):
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())
