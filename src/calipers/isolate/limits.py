"""What a program in the sandbox may use, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Cause = Literal["", "time", "memory", "caller"]
"""Why all of a sandbox was killed: a limit, or whoever started it changed their mind."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one sandbox may use, all its processes together unless it says otherwise."""

    seconds: float = 10.0  # by the clock; each process may also compute no longer than that
    memory_mb: int = 512  # address space of each process, and what all of them hold at once
    processes: int = 32  # alive at once, threads counted
    output_bytes: int = 1 << 20  # kept of stdout, and as much of stderr
    disk_mb: int = 64  # in each directory it may write to, and the largest file


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program."""

    exit_code: int | None  # minus the signal's number for one that was killed; None when it was stopped
    stdout: bytes
    stderr: bytes
    stopped: Cause = ""
    cut: bool = False  # it printed more than was kept
    seconds: float = 0.0  # from start to end, the sandbox's own share included
    files: Mapping[str, bytes] = field(default_factory=dict)  # those of `collect` that it left behind

    @property
    def timed_out(self) -> bool:
        """Whether the clock ended it."""
        return self.stopped == "time"
