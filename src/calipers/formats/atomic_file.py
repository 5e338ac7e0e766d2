"""Files that appear whole: what was there before stays until all of the new content is on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

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
