"""What is known of a task's tests: whether they come to a verdict on a reference, found out once for each task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path


class References:
    """Which steps of tasks are judged on a reference, None for a task without any; each task is asked once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._found: dict[Path, frozenset[str | None]] = {}

    def of(self, task: Path, judged: Callable[[], frozenset[str | None]]) -> frozenset[str | None]:
        """What is known of a task, or is found out now."""
        with self._lock:
            own = self._locks.setdefault(task, threading.Lock())
        with own:
            if task not in self._found:
                self._found[task] = judged()
            return self._found[task]
