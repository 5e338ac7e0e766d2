"""Resource limits of untrusted programs: how the kernel enforces them, and how usage is measured.

This file uses only the standard library, because it is also loaded by Harbor's interpreter, beside `container`.

**A sandbox** has one cgroup if possible, so that the kernel itself counts its memory and enforces the limit. The cgroup
is made below our own group (version 1, or a root), or else beside it (version 2, where a group cannot have both
processes and groups with limits). It is made beside our own only if that is ours to do: the group above belongs to our
user or was delegated by systemd (``Delegate=``), and our own group has no limit that would be escaped. Nothing else is
changed, and the cgroup is removed with the sandbox. In addition, and if there is no cgroup, `Meter` sums the memory of
all processes ten times a second.

**A container** has cgroups for processes, CPU time and memory if the machine allows us to make them, mostly as root. If
not, its processes are limited by process numbers (Linux 6.14 and newer, or without root), each process has its own
memory limit, and if the machine runs out of memory, the processes of containers are killed first.
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
LIMIT = "limit_in_bytes"  # the name in version 1
CHARGED_AHEAD = 4 << 20  # bytes that processors reserve in advance, so that the peak may stay below the limit
REMOVAL_SECONDS = 1.0  # seconds for the kernel to remove killed processes
SANDBOX, CONTAINER = "calipers-sandbox-", "calipers-room-"  # prefixes of our names, before the number of our process
PROCESSES = 1024  # processes of a container
LARGEST_MB = 8192  # the most memory of a container, on machines with at least four times as much
FILES_MB = 4096  # the most memory for a container's files, on machines with at least eight times as much
INODES = 500_000
CONTROLLERS = ("cpu", "memory", "pids")
JOIN = 'echo 0 > "$0"'
SHARES = ("cpu.shares", "cpu.weight")  # in one group, all processes of a container share the CPU time of one process


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sandbox, for all its processes together unless stated otherwise."""

    seconds: float = 10.0  # wall-clock time, and also the CPU time of each process
    memory_mb: int = 512  # address space of each process, and memory of all of them together
    processes: int = 32  # alive at once, including threads
    output_bytes: int = 1 << 20  # kept of stdout, and as much of stderr
    disk_mb: int = 64  # in each directory that it may write to, and of the largest file


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """A directory in which cgroups can be made, and the version of cgroups that it belongs to."""

    path: Path
    version: int


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of one sandbox. Process 1 of the sandbox joins it by writing to ``door``, before anything else."""

    path: Path
    version: int
    door: int  # a descriptor

    def exceeded(self) -> bool:
        """Whether the kernel killed a process because of this limit, and not because the machine ran out of memory."""
        with suppress(OSError):
            if self.version == 2:
                facts = _numbers_in(self.path / "memory.events")
                return bool(facts.get("oom_kill") and facts.get("oom"))
            killed = _numbers_in(self.path / "memory.oom_control").get("oom_kill")
            peak, limit = (int((self.path / f"memory.{name}").read_text()) for name in ("max_usage_in_bytes", LIMIT))
            return bool(killed and peak + CHARGED_AHEAD >= limit)
        return False

    def close(self) -> None:
        """Remove the cgroup, whose processes are dead."""
        os.close(self.door)
        _remove_all([self.path])


def group(most: int) -> Cgroup | None:
    """A new cgroup with a memory limit in bytes; None if none can be created."""
    parent = _parent()
    path = parent and _new_cgroup(parent.path, SANDBOX)
    if not (parent and path):
        return None
    try:
        return Cgroup(path, parent.version, _set_limit(path, parent.version, most))
    except OSError:
        _try_remove(path)
        return None


def sandbox_parents(membership: str, mounts: str) -> Iterator[CgroupParent]:
    """Directories in which cgroups with a memory limit might be made.

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
    """Each controller ("" for all of version 2), its mount point, and our own group relative to that.

    ``membership`` and ``mounts`` are the texts of ``/proc/self/cgroup`` and ``/proc/self/mountinfo``. A group that is
    not visible below a mount point is left out.
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


def _proc_texts() -> tuple[str, str]:
    """The arguments of `_hierarchies`: the texts of two files of /proc."""
    return Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()


@cache
def _parent() -> CgroupParent | None:
    """The first directory in which a cgroup can be made, found by making one; cached for the life of the process."""
    try:
        candidates = [*sandbox_parents(*_proc_texts())]
    except (OSError, ValueError):
        return None
    for parent in candidates:
        beside = parent.version == 2 and parent.path != candidates[0].path
        if beside and (_is_limited(candidates[0].path) or not _is_ours(parent.path)):
            continue
        tidy(parent.path, SANDBOX)
        if (path := _new_cgroup(parent.path, SANDBOX)) is None:
            continue
        try:
            os.close(_set_limit(path, parent.version, 1 << 30))
        except OSError:
            continue
        finally:
            _try_remove(path)
        return parent
    return None


def _new_cgroup(parent: Path, prefix: str) -> Path | None:
    """A new cgroup with a unique name, or None if it cannot be made."""
    path = parent / f"{prefix}{os.getpid()}-{token_hex(4)}"
    try:
        path.mkdir()
    except OSError:
        return None
    return path


def _set_limit(path: Path, version: int, most: int) -> int:
    """Set the memory limit of a new cgroup; returns the descriptor with which it is joined."""
    if version == 2:
        _write(path / "memory.max", most)
        with suppress(OSError):  # a kernel without swap
            _write(path / "memory.swap.max", 0)
        with suppress(OSError):
            _write(path / "memory.oom.group", 1)  # if one process is killed, all are
    else:
        _write(path / f"memory.{LIMIT}", most)
        with suppress(OSError):  # a kernel that does not count swap
            _write(path / "memory.memsw.limit_in_bytes", most)
    return os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)


def _write(path: Path, number: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # without O_CREAT, as a missing file means a missing limit
    try:
        os.write(file, b"%d" % number)
    finally:
        os.close(file)


def _numbers_in(path: Path) -> dict[str, int]:
    """The numbers in the lines ``name number`` of a file."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2}


def _is_ours(path: Path) -> bool:
    """Whether a cgroup was delegated: to our user if not root, else by systemd, which marks it or a group above."""
    if os.geteuid() != 0:
        return path.stat().st_uid == os.geteuid()
    return any(_mark(folder) == b"1" for folder in (path, *path.parents))


def _mark(path: Path) -> bytes:
    for name in ("trusted.delegate", "user.delegate"):
        with suppress(OSError):
            return os.getxattr(path, name)
    return b""


def _is_limited(path: Path) -> bool:
    """Whether a cgroup has a memory limit, which a cgroup beside it would escape."""
    try:
        return (path / "memory.max").read_text().strip() != "max"
    except OSError:
        return False  # the memory controller is not enabled for it


def tidy(parent: Path, prefix: str) -> None:
    """Remove the empty folders and cgroups that killed processes left; a cgroup with processes cannot be removed."""
    with suppress(OSError):
        for path in parent.glob(f"{prefix}*"):
            owner = path.name.removeprefix(prefix).split("-")[0]
            if owner.isdecimal() and not Path("/proc", owner).exists():
                _try_remove(path)


def _remove_all(paths: list[Path]) -> None:
    """Remove cgroups, as soon as the kernel has removed the killed processes in them."""
    until = time.monotonic() + REMOVAL_SECONDS
    while paths and time.monotonic() < until:
        paths = [path for path in paths if not _try_remove(path)]
        if paths:
            time.sleep(0.005)


def _try_remove(path: Path) -> bool:
    """Remove a cgroup or folder; returns False if that is not possible yet."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@dataclass(slots=True)
class Meter:
    """Measures the memory of one sandbox: ``pid`` is its outer process, ``scratch`` the directories it may write to."""

    pid: int
    most: int  # bytes
    scratch: Sequence[str]
    group: Cgroup | None = None

    def over(self, ready: bool) -> bool:
        """Whether the sandbox exceeds its memory; its directories are counted once it is ``ready``, and has its own."""
        if self.group is not None and self.group.exceeded():
            return True
        files = written(self.pid, self.scratch) if ready else 0
        processes = [*below(self.pid)]
        if files + sum(map(most_memory, processes)) <= self.most:  # a quick upper bound
            return False
        return files + sum(map(memory_share, processes)) > self.most


def below(pid: int) -> Iterator[int]:
    """A process and all its descendants."""
    waiting = [pid]
    while waiting:
        yield (process := waiting.pop())
        waiting += children(process)


def children(pid: int) -> list[int]:
    """The child processes of all threads of a process; none if it is gone."""
    started = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                started += [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return started


def most_memory(pid: int) -> int:
    """An upper bound of the memory of a process in bytes, with shared memory counted in full; fast."""
    return _sum(f"/proc/{pid}/status", ("VmRSS:", "VmSwap:")) or 0


def memory_share(pid: int) -> int:
    """The memory of a process in bytes, with its share of shared memory, without files in memory (`written`); slow."""
    names = ("Pss_Anon:", "Pss_File:", "SwapPss:")
    share = _sum(f"/proc/{pid}/smaps_rollup", names)
    return most_memory(pid) if share is None else share


def written(pid: int, scratch: Sequence[str]) -> int:
    """The size in bytes of the files in a sandbox's directories, which are in memory; includes deleted open files."""
    for first in children(pid):
        with suppress(OSError):
            statuses = [os.statvfs(f"/proc/{first}/root{folder}") for folder in scratch]
            return sum((status.f_blocks - status.f_bfree) * status.f_frsize for status in statuses)
    return 0


def _sum(path: str, names: Sequence[str]) -> int | None:
    """The sum in bytes of the lines with these names in a file of /proc; None if it cannot be read."""
    try:
        lines = [line.split() for line in Path(path).read_text(errors="replace").splitlines()]
    except OSError:
        return None
    return sum(int(line[1]) * 1024 for line in lines if line and line[0] in names)


def memory_mb(wanted: int | None = None) -> int:
    """The memory of a container in MB: as requested, else a quarter of the machine's, at most LARGEST_MB."""
    return wanted or min(LARGEST_MB, _machine_mb() // 4)


def files_mb(wanted: int | None = None) -> int:
    """The size of a container's files in MB, which are in memory: as requested, at most an eighth of the machine's."""
    most = min(FILES_MB, _machine_mb() // 8)
    return min(wanted, most) if wanted else most


def own_numbers() -> bool:
    """Whether a container can limit its own process numbers; before Linux 6.14 the limit is the whole machine's."""
    return _kernel() >= (6, 14)


def process_limits(memory: int) -> list[tuple[int, int]]:
    """The limits of each process, as arguments of setrlimit(2); without root, also the number of processes."""
    counted = [(resource.RLIMIT_NPROC, PROCESSES)] if os.geteuid() and _kernel() >= (5, 14) else []
    return [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory * MB), *counted]


class ContainerCgroups:
    """The cgroups of one container with this memory in MB: those that the machine allows us to make, perhaps none."""

    def __init__(self, memory: int) -> None:
        self._paths = [
            path for parent in container_parents(*_proc_texts()) if (path := _limited_cgroup(parent, memory))
        ]

    @property
    def doors(self) -> list[str]:
        """The files to which a process writes 0 to join these cgroups."""
        return [f"{path}/cgroup.procs" for path in self._paths]

    def remove(self) -> None:
        """Remove the cgroups, whose processes have been killed."""
        _remove_all(self._paths)


def container_parents(membership: str, mounts: str) -> dict[Path, None]:
    """The directories in which cgroups of a container could be made.

    In version 2 it is the parent of our own group, because a group with processes cannot have groups with limits.
    """
    known = _hierarchies(membership, mounts)
    return {mounted / (inside if controller else inside.parent): None for controller, mounted, inside in known}


def _limited_cgroup(parent: Path, memory: int) -> Path | None:
    """A new cgroup with the limits that its parent enables; None if it enables none, or processes cannot join."""
    tidy(parent, CONTAINER)
    amounts = {"pids.max": PROCESSES, "memory.max": memory * MB, f"memory.{LIMIT}": memory * MB}
    path = _new_cgroup(parent, CONTAINER)
    if path is None:
        return None
    try:
        limited = [file for file in (*amounts, *SHARES) if (path / file).exists()]
        for file in limited:
            if file in amounts:
                _write(path / file, amounts[file])
        if limited and _can_join(parent):
            return path
    except OSError:
        pass
    _try_remove(path)
    return None


@cache
def _can_join(parent: Path) -> bool:
    """Whether our processes may join a cgroup below this one; tried once in the life of the process."""
    path = _new_cgroup(parent, CONTAINER)
    if path is None:
        return False
    joined = subprocess.run(["sh", "-c", JOIN, f"{path}/cgroup.procs"], capture_output=True)
    _remove_all([path])
    return joined.returncode == 0


def _machine_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
