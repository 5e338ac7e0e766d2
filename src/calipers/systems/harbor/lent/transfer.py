"""What comes out of a room: text and files, no more than can be kept, and nothing that leads elsewhere."""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from pathlib import Path
from typing import IO

MOST_HEARD = 16 << 20  # bytes kept of what a command prints
MOST_TAKEN = 1 << 30  # bytes of files at once: one file may say that it has more than any disk


class Heard:
    """What a process prints, up to a limit; a child that outlives it may hold the pipe open for ever."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._data = stream, bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._data += block[: MOST_HEARD - len(self._data)]

    def so_far(self) -> bytes:
        """All of it, or what came until a moment after the end."""
        self._thread.join(0.2)
        return bytes(self._data)


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
    """Unpack the folders and plain files of an archive into a new folder; links and devices are left out.

    By hand, as the filters of `tarfile` are younger than the oldest Python that may run this.
    """
    target.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            steps = [step for step in member.name.split("/") if step not in ("", ".")]
            path = target.joinpath(*steps)
            if ".." in steps:
                continue
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isfile() and (content := tar.extractfile(member)):
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("wb") as file:
                    shutil.copyfileobj(content, file)
                path.chmod(0o644 | member.mode & 0o111)
