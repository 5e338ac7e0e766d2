"""What a room may use at most, so that no task takes the machine with it: processes, time, memory, and files.

Control groups hold all of it where the machine lets us make them, which is mostly as root. Where it does not, the
numbers of processes run out (Linux 6.14 and newer, or without root), each process has its own limit of memory, and
when the machine itself has none left the processes of rooms are the first to end.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

PROCESSES = 1024
LARGEST_MB = 8192  # of memory, on a machine that has four times as much
FILES_MB = 4096  # of files, on a machine that has eight times as much memory
INODES = 500_000
SHARES = ("cpu.shares", "cpu.weight")  # by being in one group, a room's processes have together the time of one
PREFIX = "calipers-room"
MB = 1 << 20
JOIN = r"""
while [ "$1" != -- ]; do echo 0 > "$1" || exit 125; shift; done
shift
{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null
exec "$@"
"""

_numbers = count(1)


def memory_mb(wanted: int | None = None) -> int:
    """Megabytes of memory of a room: what its task asks for, else a quarter of the machine's or less."""
    return wanted or min(LARGEST_MB, _machine_mb() // 4)


def files_mb(wanted: int | None = None) -> int:
    """Megabytes of files of a room, which lie in memory: as wanted, but no more than an eighth of the machine's."""
    most = min(FILES_MB, _machine_mb() // 8)
    return min(wanted, most) if wanted else most


def own_numbers() -> bool:
    """Whether a room counts process numbers for itself: before Linux 6.14 their limit is the whole machine's."""
    return _kernel() >= (6, 14)


def process_limits(memory: int) -> list[str]:
    """A command's beginning that limits each process by itself; the number of a user's is one only without root."""
    counted = [f"--nproc={PROCESSES}"] if os.geteuid() and _kernel() >= (5, 14) else []
    return ["prlimit", "--core=0", f"--data={memory * MB}", *counted, "--"]


class Bounds:
    """The control groups of one room: those that this machine lets us make, perhaps none."""

    def __init__(self, memory: int) -> None:
        name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._places = [path for parent in _parents() if (path := _made(parent, name, memory))]

    @property
    def entrance(self) -> list[str]:
        """A command's beginning that has the rest of it happen within these bounds."""
        return ["sh", "-c", JOIN, "join", *(f"{path}/cgroup.procs" for path in self._places), "--"]

    def remove(self) -> None:
        """Take them down; whoever is still inside is ended already."""
        for path in self._places:
            with suppress(OSError):
                os.rmdir(path)


def _made(parent: str, name: str, memory: int) -> str | None:
    """A group below a parent with the limits that it passes on; None where it passes on none, or lets nobody in."""
    clear(parent)
    path = os.path.join(parent, name)
    amounts = {"pids.max": PROCESSES, "memory.max": memory * MB, "memory.limit_in_bytes": memory * MB}
    try:
        os.mkdir(path)
        limited = [file for file in (*amounts, *SHARES) if os.path.exists(os.path.join(path, file))]
        for file in limited:
            if file in amounts:
                _write(os.path.join(path, file), amounts[file])
        tried = subprocess.run(["sh", "-c", JOIN, "join", f"{path}/cgroup.procs", "--", "true"], capture_output=True)
        if limited and tried.returncode == 0:
            return path
    except OSError:
        pass
    with suppress(OSError):
        os.rmdir(path)
    return None


def _parents() -> Iterator[str]:
    """The folders where groups of ours could be made.

    In the second version of control groups it is the one beside our own, since a group with processes in it passes
    no limits on.
    """
    mounts = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(maxsplit=2)
            root, point = before.split()[3:5]
            for word in ("",) if kind == "cgroup2" else options.strip().split(",") if kind == "cgroup" else ():
                mounts[word] = (root, point)
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, words, path = line.rstrip("\n").split(":", 2)
            for word in words.split(","):
                if word in ("", "pids", "memory", "cpu") and word in mounts:
                    root, point = mounts[word]
                    inner = path if word else os.path.dirname(path)
                    yield os.path.normpath(point + "/" + inner.removeprefix(root.rstrip("/")))


def clear(parent: str) -> None:
    """Remove the empty folders that a process which was killed left of its rooms."""
    with suppress(OSError):
        for name in os.listdir(parent):
            match = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", name)
            if match and not os.path.exists(f"/proc/{match[1]}"):
                with suppress(OSError):
                    os.rmdir(os.path.join(parent, name))


def _write(path: str, amount: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(amount))


def _machine_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
