"""How much memory a sandbox holds: every process in it, whoever started it, and the files it keeps in memory.

A cgroup (`groups`) lets the kernel itself keep the limit where one can be had. What is here works everywhere, and
beside it: a look at all processes ten times a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from calipers.isolate.cgroups import Cgroup

KB = 1 << 10


@dataclass(slots=True)
class Meter:
    """The memory of one sandbox: ``pid`` is its outer process, ``scratch`` the directories it may write to."""

    pid: int
    most: int  # bytes
    scratch: Sequence[str]
    group: Cgroup | None = None

    def over(self, ready: bool) -> bool:
        """Whether it holds more than it may; its directories are looked at once it is ``ready``, and has its own."""
        if self.group is not None and self.group.exceeded():
            return True
        files = written(self.pid, self.scratch) if ready else 0
        every = [*below(self.pid)]
        return files + sum(map(most_held, every)) > self.most and files + sum(map(share_held, every)) > self.most


def below(pid: int) -> Iterator[int]:
    """A process and all below it."""
    waiting = [pid]
    while waiting:
        yield (process := waiting.pop())
        waiting += children(process)


def children(pid: int) -> list[int]:
    """The processes that a process started, in whichever of its threads; none when it is gone."""
    started = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                started += [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return started


def most_held(pid: int) -> int:
    """Bytes that a process holds at most: what it shares with others counts in full. Quick."""
    return _sum(f"/proc/{pid}/status", ("VmRSS:", "VmSwap:")) or 0


def share_held(pid: int) -> int:
    """Bytes that a process holds, of what several share its part; files in memory are left to `written`. Slow."""
    names = ("Pss_Anon:", "Pss_File:", "SwapPss:")
    share = _sum(f"/proc/{pid}/smaps_rollup", names)
    return most_held(pid) if share is None else share


def written(pid: int, scratch: Sequence[str]) -> int:
    """Bytes in the directories of a sandbox, which are memory too, also those of files that have no name any more."""
    for first in children(pid):
        with suppress(OSError):
            every = [os.statvfs(f"/proc/{first}/root{folder}") for folder in scratch]
            return sum((status.f_blocks - status.f_bfree) * status.f_frsize for status in every)
    return 0


def _sum(path: str, names: Sequence[str]) -> int | None:
    """The sum of some lines of a file of /proc; None when it cannot be read."""
    try:
        lines = [line.split() for line in Path(path).read_text(errors="replace").splitlines()]
    except OSError:
        return None
    return sum(int(line[1]) * KB for line in lines if line and line[0] in names)
