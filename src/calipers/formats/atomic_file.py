"""Files that appear whole: what was there before stays until all of the new content is on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

LONGEST = 100  # characters of a name that the temporary one repeats: a name has 255 bytes at most


@contextmanager
def atomic_file(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end; after a failure nothing has changed.

    OSError where it cannot be written. A file that is replaced hands its permissions on; ``mode`` is for a new one. A
    link is replaced, not followed: give its `os.path.realpath` to write what it points to.
    """
    folder, name = os.path.split(os.fspath(path))
    beside = os.path.join(folder, f".{name[:LONGEST]}.{os.urandom(4).hex()}.part")
    try:
        with open(beside, "xb", opener=lambda new, flags: os.open(new, flags, mode)) as file:
            with suppress(FileNotFoundError):
                before = os.lstat(path)
                if stat.S_ISREG(before.st_mode):
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
