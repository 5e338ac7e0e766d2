"""The checkpoint of the model that was closed last, kept for the next: a command with many tasks loads it once."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from calipers.run.clients.hf_checkpoint import Checkpoint, load

Stamp = tuple[str, tuple[tuple[str, int, int], ...]]

_lock = Lock()
_idle: list[tuple[Stamp, Checkpoint]] = []  # one at most


def take(path: str) -> tuple[Stamp, Checkpoint]:
    """The idle checkpoint, when it is the one that lies at that path as it is now; else that one, loaded.

    Whoever takes it has it alone. An idle one of another path makes room before another is loaded.
    """
    stamp = _stamp(path)
    with _lock:  # over the loading too: while transformers loads, it changes settings of the whole process
        found = _idle.pop() if _idle else None
        if found is not None and found[0] == stamp:
            return found
        del found
        return stamp, load(path)


def leave(taken: tuple[Stamp, Checkpoint]) -> None:
    """Leave a checkpoint that nobody uses any more."""
    with _lock:
        _idle[:] = [taken]


def _stamp(path: str) -> Stamp:
    """What tells one checkpoint from another, and from itself after a file of it was changed."""
    folder = Path(path)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    states = [(file.name, file.stat()) for file in files if file.is_file()]
    return path, tuple((name, state.st_mtime_ns, state.st_size) for name, state in states)
