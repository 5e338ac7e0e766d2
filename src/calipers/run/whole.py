"""Files that are whole or not there, and logs cut back to their last whole line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from calipers.errors import LogError
from calipers.readers.run_plan import whole
from calipers.run.log import sync_directory


def put(path: Path, pieces: Iterable[bytes | memoryview], mode: int = 0o666) -> None:
    """Write a file whole or not at all, whatever happens meanwhile; LogError when it cannot be."""
    new = path.with_name(f".{path.name}.new")
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise LogError.of(path, error) from None


def repaired(log: Path) -> bool:
    """Cut off what a crash left of a last line; whether there was anything."""
    try:
        end = whole(str(log))
        if end == log.stat().st_size:
            return False
        with open(log, "r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    except OSError as error:
        raise LogError.of(log, error) from None
    return True
