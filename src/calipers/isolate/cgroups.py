"""A cgroup for one sandbox, where one can be had: the kernel then counts and keeps the limit of its memory itself.

It is made below the group that we are in ourselves (version 1, or a root), or else beside it (version 2, which lets
no group hold both processes and groups with limits). Beside it only where that is ours to do: the group above belongs
to our user, or was handed over by systemd (``Delegate=``), and our own has no limit that would be escaped. Nothing else
is touched, and it is removed with the sandbox.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from secrets import token_hex

PREFIX = "calipers-sandbox-"
LIMIT = "limit_in_bytes"  # version 1's
CHARGED_AHEAD = 4 << 20  # bytes; each processor takes some in advance, so the peak may stay a little below the limit
LAST_WORDS = 1.0  # seconds until the kernel has cleared away the dead


@dataclass(frozen=True, slots=True)
class CgroupPlace:
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
        until = time.monotonic() + LAST_WORDS
        while not _removed(self.path) and time.monotonic() < until:
            time.sleep(0.005)


def group(most: int) -> Cgroup | None:
    """A new group that may hold so many bytes; None where none can be had."""
    parent = _place()
    if parent is None:
        return None
    path = _made(parent)
    if path is None:
        return None
    try:
        return Cgroup(path, parent.version, _limited(path, parent.version, most))
    except OSError:
        _removed(path)
        return None


def places(membership: str, mounts: str) -> Iterator[CgroupPlace]:
    """Directories below which groups with a limit might be made, by ``/proc/self/cgroup`` and ``/proc/self/mountinfo``.

    >>> v1 = "36 24 0:31 /a /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
    >>> [str(place.path) for place in places("4:memory:/a/b\\n0::/", v1)]
    ['/sys/fs/cgroup/memory/b']
    >>> v2 = "36 24 0:31 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
    >>> [str(place.path) for place in places("0::/user.slice/one.scope", v2)]
    ['/sys/fs/cgroup/user.slice/one.scope', '/sys/fs/cgroup/user.slice']
    """
    ours = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        ours.update(dict.fromkeys(controllers.split(","), path))
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, mounted = left.split()[3:5]
        kind, _, options = right.split(maxsplit=2)
        version = {"cgroup": 1, "cgroup2": 2}.get(kind, 0)
        if not version or (version == 1 and "memory" not in options.split(",")):
            continue
        group = PurePosixPath(ours.get("memory" if version == 1 else "", "/"))
        if ".." in group.parts or not group.is_relative_to(root):
            continue  # this mount does not show our own group
        inside = group.relative_to(root)
        yield CgroupPlace(Path(mounted, inside), version)
        if version == 2 and inside.parts:
            yield CgroupPlace(Path(mounted, inside.parent), 2)


@cache
def _place() -> CgroupPlace | None:
    """The first place where a group can really be made, found out by making one; once in the life of a process."""
    try:
        candidates = [*places(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())]
    except (OSError, ValueError):
        return None
    for parent in candidates:
        beside = parent.version == 2 and parent.path != candidates[0].path
        if beside and (_is_limited(candidates[0].path) or not _is_ours(parent.path)):
            continue
        _tidy(parent.path)
        if (path := _made(parent)) is None:
            continue
        try:
            os.close(_limited(path, parent.version, 1 << 30))
        except OSError:
            continue
        finally:
            _removed(path)
        return parent
    return None


def _made(parent: CgroupPlace) -> Path | None:
    """A new group that nobody else has, or None."""
    path = parent.path / f"{PREFIX}{os.getpid()}-{token_hex(4)}"
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


def _tidy(parent: Path) -> None:
    """Remove what a process left that was killed; a group with processes in it cannot be removed."""
    with suppress(OSError):
        for path in parent.glob(f"{PREFIX}*"):
            owner = path.name.removeprefix(PREFIX).split("-")[0]
            if not Path("/proc", owner).exists():
                _removed(path)


def _removed(path: Path) -> bool:
    """Remove a group; False while somebody is still in it."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
