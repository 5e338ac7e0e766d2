"""Resource limits of untrusted programs: how the kernel enforces them, and how usage is measured.

Of the standard library alone: Harbor's interpreter is lent this file beside `container`.

**A sandbox** has one cgroup, where one can be had: the kernel then counts and keeps the limit of its memory itself. It
is made below the group that we are in ourselves (version 1, or a root), or else beside it (version 2, which lets no
group hold both processes and groups with limits). Beside it only where that is ours to do: the group above belongs to
our user, or was handed over by systemd (``Delegate=``), and our own has no limit that would be escaped. Nothing else is
touched, and it is removed with the sandbox. `Meter` works everywhere, and beside it: a look at all processes ten times
a second.

**A container** has control groups for processes, time and memory where the machine lets us make them, which is mostly
as root. Where it does not, the numbers of processes run out (Linux 6.14 and newer, or without root), each process has
its own limit of memory, and when the machine itself has none left the processes of containers are the first to end.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Literal

Cause = Literal["", "time", "memory", "caller"]
"""Why a sandbox was killed: a limit, or its caller."""

MB = 1 << 20
LIMIT = "limit_in_bytes"  # version 1's
CHARGED_AHEAD = 4 << 20  # bytes; each processor takes some in advance, so the peak may stay a little below the limit
REMOVAL_SECONDS = 1.0  # seconds until the kernel has cleared away the dead
SANDBOX, CONTAINER = "calipers-sandbox-", "calipers-room-"  # how names of ours begin; the number of a process follows
PROCESSES = 1024  # of a container
LARGEST_MB = 8192  # of a container's memory, on a machine that has four times as much
FILES_MB = 4096  # of a container's files, on a machine that has eight times as much memory
INODES = 500_000
CONTROLLERS = ("cpu", "memory", "pids")
JOIN = 'echo 0 > "$0"'
SHARES = ("cpu.shares", "cpu.weight")  # by being in one group, a container's processes have together the time of one


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sandbox, for all its processes together unless stated otherwise."""

    seconds: float = 10.0  # by the clock; each process may also compute no longer than that
    memory_mb: int = 512  # address space of each process, and what all of them hold at once
    processes: int = 32  # alive at once, threads counted
    output_bytes: int = 1 << 20  # kept of stdout, and as much of stderr
    disk_mb: int = 64  # in each directory it may write to, and the largest file


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """Where groups can be made: a directory, and the version of cgroups it belongs to."""

    path: Path
    version: int


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One group. Process 1 of the sandbox joins it by writing to ``door``, before anything else."""

    path: Path
    version: int
    door: int  # a descriptor

    def exceeded(self) -> bool:
        """Whether the kernel had to kill a process because of this limit, and not because the machine was full."""
        with suppress(OSError):
            if self.version == 2:
                facts = _facts(self.path / "memory.events")
                return bool(facts.get("oom_kill") and facts.get("oom"))
            killed = _facts(self.path / "memory.oom_control").get("oom_kill")
            peak, limit = (int((self.path / f"memory.{name}").read_text()) for name in ("max_usage_in_bytes", LIMIT))
            return bool(killed and peak + CHARGED_AHEAD >= limit)
        return False

    def close(self) -> None:
        """Remove it; its processes are dead."""
        os.close(self.door)
        _remove_all([self.path])


def group(most: int) -> Cgroup | None:
    """A new group with a memory limit in bytes; None if none can be created."""
    parent = _parent()
    path = parent and _made(parent.path, SANDBOX)
    if not (parent and path):
        return None
    try:
        return Cgroup(path, parent.version, _limited(path, parent.version, most))
    except OSError:
        _removed(path)
        return None


def sandbox_parents(membership: str, mounts: str) -> Iterator[CgroupParent]:
    """Directories below which groups with a limit of memory might be made.

    >>> v1 = "36 24 0:31 /a /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
    >>> [str(parent.path) for parent in sandbox_parents("4:memory:/a/b\\n0::/", v1)]
    ['/sys/fs/cgroup/memory/b']
    >>> v2 = "36 24 0:31 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
    >>> [str(parent.path) for parent in sandbox_parents("0::/user.slice/one.scope", v2)]
    ['/sys/fs/cgroup/user.slice/one.scope', '/sys/fs/cgroup/user.slice']
    """
    for controller, mounted, inside in _hierarchies(membership, mounts):
        if controller in ("", "memory"):
            yield CgroupParent(mounted / inside, 1 if controller else 2)
            if not controller and inside.parts:
                yield CgroupParent(mounted / inside.parent, 2)


def _hierarchies(membership: str, mounts: str) -> Iterator[tuple[str, Path, PurePosixPath]]:
    """Each controller, "" for all of version 2, where it is mounted, and our own group below that.

    By the texts of ``/proc/self/cgroup`` and ``/proc/self/mountinfo``; what a mount does not show is left out.
    """
    ours = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        ours.update(dict.fromkeys(controllers.split(","), path))
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, mounted = left.split()[3:5]
        kind, _, options = right.split(maxsplit=2)
        known = {"cgroup": CONTROLLERS, "cgroup2": ("",)}.get(kind, ())
        for controller in known:
            own_group = PurePosixPath(ours.get(controller, "/"))
            shown = ".." not in own_group.parts and own_group.is_relative_to(root)
            if shown and (not controller or controller in options.strip().split(",")):
                yield controller, Path(mounted), own_group.relative_to(root)


def _texts() -> tuple[str, str]:
    """What `_hierarchies` is told by."""
    return Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()


@cache
def _parent() -> CgroupParent | None:
    """The first place where a group can really be made, found out by making one; once in the life of a process."""
    try:
        candidates = [*sandbox_parents(*_texts())]
    except (OSError, ValueError):
        return None
    for parent in candidates:
        beside = parent.version == 2 and parent.path != candidates[0].path
        if beside and (_is_limited(candidates[0].path) or not _is_ours(parent.path)):
            continue
        tidy(parent.path, SANDBOX)
        if (path := _made(parent.path, SANDBOX)) is None:
            continue
        try:
            os.close(_limited(path, parent.version, 1 << 30))
        except OSError:
            continue
        finally:
            _removed(path)
        return parent
    return None


def _made(parent: Path, prefix: str) -> Path | None:
    """A new group that nobody else has, or None."""
    path = parent / f"{prefix}{os.getpid()}-{token_hex(4)}"
    try:
        path.mkdir()
    except OSError:
        return None
    return path


def _limited(path: Path, version: int, most: int) -> int:
    """Give a new group its limit; the descriptor by which it is joined."""
    if version == 2:
        _write(path / "memory.max", most)
        with suppress(OSError):  # a kernel without swap
            _write(path / "memory.swap.max", 0)
        with suppress(OSError):
            _write(path / "memory.oom.group", 1)  # one that is killed takes the others with it
    else:
        _write(path / f"memory.{LIMIT}", most)
        with suppress(OSError):  # a kernel that does not count swap
            _write(path / "memory.memsw.limit_in_bytes", most)
    return os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)


def _write(path: Path, number: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never made: where there is no such file there is no such limit
    try:
        os.write(file, b"%d" % number)
    finally:
        os.close(file)


def _facts(path: Path) -> dict[str, int]:
    """The lines ``name number`` of a file."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2}


def _is_ours(path: Path) -> bool:
    """Whether a group was handed over: to our user, who is not root, or by systemd, which marks it or one above it."""
    if os.geteuid() != 0:
        return path.stat().st_uid == os.geteuid()
    return any(_mark(folder) == b"1" for folder in (path, *path.parents))


def _mark(path: Path) -> bytes:
    for name in ("trusted.delegate", "user.delegate"):
        with suppress(OSError):
            return os.getxattr(path, name)
    return b""


def _is_limited(path: Path) -> bool:
    """Whether a group has a limit of its own, beyond which one beside it would be."""
    try:
        return (path / "memory.max").read_text().strip() != "max"
    except OSError:
        return False  # it has no memory of its own to limit


def tidy(parent: Path, prefix: str) -> None:
    """Remove the empty folders that a process which was killed left; a group with processes in it is not empty."""
    with suppress(OSError):
        for path in parent.glob(f"{prefix}*"):
            owner = path.name.removeprefix(prefix).split("-")[0]
            if owner.isdecimal() and not Path("/proc", owner).exists():
                _removed(path)


def _remove_all(paths: list[Path]) -> None:
    """Remove groups as soon as the kernel has cleared away the dead in them."""
    until = time.monotonic() + REMOVAL_SECONDS
    while paths and time.monotonic() < until:
        paths = [path for path in paths if not _removed(path)]
        if paths:
            time.sleep(0.005)


def _removed(path: Path) -> bool:
    """Remove a group; False while somebody is still in it."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


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
    return sum(int(line[1]) * 1024 for line in lines if line and line[0] in names)


def memory_mb(wanted: int | None = None) -> int:
    """Megabytes of memory of a container: what its task asks for, else a quarter of the machine's or less."""
    return wanted or min(LARGEST_MB, _machine_mb() // 4)


def files_mb(wanted: int | None = None) -> int:
    """Megabytes of files of a container, which lie in memory: as wanted, but at most an eighth of the machine's."""
    most = min(FILES_MB, _machine_mb() // 8)
    return min(wanted, most) if wanted else most


def own_numbers() -> bool:
    """Whether a container counts process numbers for itself: before Linux 6.14 their limit is the whole machine's."""
    return _kernel() >= (6, 14)


def process_limits(memory: int) -> list[tuple[int, int]]:
    """The limits of each process by itself, as setrlimit(2) takes them; a user's processes count only without root."""
    counted = [(resource.RLIMIT_NPROC, PROCESSES)] if os.geteuid() and _kernel() >= (5, 14) else []
    return [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory * MB), *counted]


class ContainerCgroups:
    """The control groups of one container, for so many megabytes: those this machine lets us make, perhaps none."""

    def __init__(self, memory: int) -> None:
        self._paths = [path for parent in container_parents(*_texts()) if (path := _bounded(parent, memory))]

    @property
    def doors(self) -> list[str]:
        """The files that a process writes 0 to in order to join these groups."""
        return [f"{path}/cgroup.procs" for path in self._paths]

    def remove(self) -> None:
        """Take them down; whoever is still inside is ended already."""
        _remove_all(self._paths)


def container_parents(membership: str, mounts: str) -> dict[Path, None]:
    """The folders where groups of a container could be made.

    In the second version of control groups it is the one beside our own, since a group with processes in it passes
    no limits on.
    """
    known = _hierarchies(membership, mounts)
    return {mounted / (inside if controller else inside.parent): None for controller, mounted, inside in known}


def _bounded(parent: Path, memory: int) -> Path | None:
    """A group below a parent with the limits that it passes on; None where it passes on none, or lets nobody in."""
    tidy(parent, CONTAINER)
    amounts = {"pids.max": PROCESSES, "memory.max": memory * MB, f"memory.{LIMIT}": memory * MB}
    path = _made(parent, CONTAINER)
    if path is None:
        return None
    try:
        limited = [file for file in (*amounts, *SHARES) if (path / file).exists()]
        for file in limited:
            if file in amounts:
                _write(path / file, amounts[file])
        if limited and _lets_in(parent):
            return path
    except OSError:
        pass
    _removed(path)
    return None


@cache
def _lets_in(parent: Path) -> bool:
    """Whether a process of ours may join a group below this one; found out once in the life of a process."""
    path = _made(parent, CONTAINER)
    if path is None:
        return False
    joined = subprocess.run(["sh", "-c", JOIN, f"{path}/cgroup.procs"], capture_output=True)
    _remove_all([path])
    return joined.returncode == 0


def _machine_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
