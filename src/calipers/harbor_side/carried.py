"""What comes out of a room: text and files, no more than can be kept, and nothing that leads elsewhere."""

from __future__ import annotations

import os
import tarfile
import threading
from pathlib import Path
from typing import IO

MOST_HEARD = 16 << 20  # bytes kept of what a command prints
MOST_TAKEN = 1 << 30  # bytes of files at once: one file may say that it has more than any disk


class Heard:
    """What a process prints, up to a limit; a child that outlives it may hold the pipe open for ever."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._found = stream, bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._found += block[: MOST_HEARD - len(self._found)]

    def so_far(self) -> bytes:
        """All of it, or what came until a moment after the end."""
        self._thread.join(0.2)
        return bytes(self._found)


def stored(stream: IO[bytes], target: Path) -> bool:
    """Whether all that a stream gave was little enough to be kept; then it is in the file."""
    left = MOST_TAKEN
    with target.open("wb") as file:
        while block := stream.read(1 << 20):
            left -= len(block)
            if left < 0:
                return False
            file.write(block)
    return True


def unpack(archive: Path, target: Path) -> None:
    """Unpack into a new folder what stays in it; links, .. and devices that lead out of it are left out."""
    target.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter=_harmless)


def _harmless(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo | None:
    try:
        return tarfile.data_filter(member, target)
    except tarfile.FilterError:
        return None
