"""Files on this machine and in object stores, and atomic writes.

::

    s3://bucket/run.jsonl ──► fetched once ──► a private copy, read like any file ──► removed at the end
                                               └── errors, notes and results show the address, without its keys

`local` returns the local copy of an input, `uploaded` a file to write whose content becomes an object; local paths are
returned unchanged. The libraries for stores (in `objects`) are imported only for the first address. `atomic_file`
writes a local file atomically: the previous content stays until all of the new content is on disk.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final

from calipers.errors import InputError, show_as
from calipers.names import is_remote

SCHEMES: Final = ("s3", "gs", "hf", "https", "http")
WRITABLE: Final = ("s3", "gs", "hf")
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_ADDRESS = re.compile(rf"(?:{'|'.join(SCHEMES)})://")


def local(source: Any) -> Any:
    """A source (a path, or a list of them) with each address replaced by the path of its local copy.

    An object is fetched once. Only the needed ranges of a Parquet object are read (`objects.fetched`). An address that
    ends with a slash is a folder. InputError for an address that cannot be read.
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
    """The path of a file to write: the target itself, or for an address a local file that is uploaded at the end."""
    if not is_remote(target):
        yield target
        return
    check_target(target)
    from calipers.stores import objects

    with objects.written(target, force=force) as path:
        yield path


def check_target(target: str) -> None:
    """InputError for an address that cannot be written to."""
    scheme = checked(target)
    if scheme not in WRITABLE:
        expected = "expected a local file, or an address of s3://, gs:// or hf://"
        raise InputError.at(shown(target), f"{scheme}:// can only be read", expected)
    if target.endswith("/"):
        raise InputError.at(shown(target), "is a folder", "expected the address of a file")


def not_local(
    address: object,
    problem: str = "the log of a run needs a local folder",
    expected: str = "copy it to the store when it is complete",
) -> InputError:
    """The error for an address of something that must be on this machine; by default, of a run's log."""
    return InputError.at(shown(str(address)), problem, expected)


def checked(address: str) -> str:
    """The scheme of an address; InputError for an invalid one, one of an unknown store, or one without encryption."""
    from urllib.parse import urlsplit  # the commands that import this module are used without addresses, too

    if not _ADDRESS.match(address):
        scheme = address.partition("://")[0]
        known = ", ".join(f"{name}://" for name in SCHEMES[:-1])
        raise InputError.at(shown(address), f"there is no store {scheme}://", f"expected {known} or a local path")
    shown(address)
    try:
        parts = urlsplit(address)
    except ValueError as error:  # an IPv6 address with only one of its brackets
        raise InputError.at(shown(address), f"is no address ({error})", "expected https://HOST/PATH") from None
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise InputError.at(shown(address), "http:// is not encrypted", "expected https://")
    if parts.scheme in WRITABLE and not parts.netloc:
        raise InputError.at(shown(address), "names no bucket", f"expected {parts.scheme}://BUCKET/PATH")
    return parts.scheme


def shown(address: str) -> str:
    """An address as it is shown: without user and password, and for web servers without the query, which may be signed.

    >>> shown("https://me:word@host/a.jsonl?X-Amz-Signature=12")
    'https://host/a.jsonl'
    """
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    plain = f"{scheme}://{host.rpartition('@')[2]}{slash}{re.split('[?#]', path)[0] if scheme[:4] == 'http' else path}"
    if plain != address:
        show_as(address, plain)
    return plain


LONGEST = 100  # characters of a name that its temporary name repeats, as a name has at most 255 bytes


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """The path of a temporary file to write, which replaces ``path`` at the end; a failure changes nothing."""
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name[:LONGEST]}.{os.urandom(4).hex()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def atomic_file(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """As `atomic_path`, with the temporary file open for writing, and synced to disk before it replaces ``path``.

    OSError if it cannot be written. The new file has the permissions of the one it replaces, else ``mode``. A
    link is replaced, not followed; pass its `os.path.realpath` to write the file that it points to.
    """
    with (
        atomic_path(path) as temporary,
        open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file,
    ):
        with suppress(FileNotFoundError):
            old = os.lstat(path)
            if stat.S_ISREG(old.st_mode):
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())
