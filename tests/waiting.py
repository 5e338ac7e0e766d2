"""How a test waits: for a state, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 600.0  # seconds; what has not come by then never will, however busy the machine is


def until(holds: Callable[[], Any], what: str = "what the test waits for", patience: float = PATIENCE) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.01)
    return found


def until_lines(path: Path, count: int) -> None:
    """Wait until a file has so many whole lines."""
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count, f"line {count} of {path}")
