"""The two sandbox mechanisms, bubblewrap and util-linux' unshare, and what a program sees of the machine inside."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

Entry = tuple[str, str, str]
"""(kind, source, target); the kinds are those of `inside.first.build`."""

LIBRARIES = ("lib", "lib32", "lib64", "libx32")
PROGRAMS = ("bin", "sbin")
DEVICES = {name: name for name in ("full", "null", "random", "urandom")}
DEVICES["zero"] = "full"  # reads the same, and cannot be mapped: memory that is shared and has no file is not counted
STREAMS = (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"))

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}


def interpreter() -> str:
    """The Python that runs this, as a file outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def view(
    disk_mb: int, *, programs: bool = False, scratch: Iterable[str] = (), inputs: str | None = None
) -> list[Entry]:
    """The whole file system of one sandbox, all of it read-only but /tmp and ``scratch``.

    ``programs`` adds the system's commands and a /proc that shows this sandbox alone. Each directory in the
    directory ``inputs`` appears under its own name at the root.
    """
    names = (*LIBRARIES, *PROGRAMS) if programs else LIBRARIES
    entries = [entry for top in ("/usr", "") for name in names for entry in _as_it_is(f"{top}/{name}")]
    if programs:
        extras = ("/usr/libexec", "/usr/share", "/etc/alternatives")
        entries += [("proc", "", "/proc"), *(entry for path in extras for entry in _as_it_is(path))]
        entries += [("link", f"/proc/self/{target}", f"/dev/{name}") for name, target in STREAMS]
    prefix = os.path.realpath(sys.base_prefix)
    for path in (*(f"{prefix}/{name}" for name in LIBRARIES), interpreter()):
        if not any(path == shown or path.startswith(f"{shown}/") for kind, _, shown in entries if kind == "bind"):
            entries += _as_it_is(path)
    entries += _as_it_is("/etc/ld.so.cache")
    entries.append(("bind", str(Path(__file__).with_name("passwd")), "/etc/passwd"))
    entries += [("device", f"/dev/{device}", f"/dev/{name}") for name, device in DEVICES.items()]
    entries.append(("link", "/tmp", "/dev/shm"))
    entries += [("scratch", str(disk_mb << 20), folder) for folder in ("/tmp", *scratch)]
    if inputs is not None:
        entries += [("bind", f"{inputs}/{name}", f"/{name}") for name in sorted(os.listdir(inputs))]
    return entries


def _as_it_is(path: str) -> list[Entry]:
    """A path of the host at the same place: a link as a link, and nothing where there is nothing."""
    if os.path.islink(path):
        return [("link", os.readlink(path), path)]
    return [("bind", path, path)] if os.path.exists(path) else []


Name = Literal["bwrap", "unshare", "none"]
NOBODY = "65534"
NAMES: tuple[Name, ...] = ("bwrap", "unshare")  # in order of preference; none is nobody's

OPTIONS = {"bind": "--ro-bind", "device": "--dev-bind", "link": "--symlink"}  # of bwrap


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A command that starts another one in namespaces of its own."""

    name: Name
    path: str

    @property
    def apart(self) -> bool:
        """Whether there is a sandbox at all."""
        return self.name != "none"

    @property
    def shows(self) -> bool:
        """Whether process 1 finds the view built, and need not build it."""
        return self.name != "unshare"

    def command(self, entries: Sequence[Entry], argv: Sequence[str]) -> list[str]:
        """The words that start ``argv`` as process 1 of its own world.

        Root needs no user namespace to set that up, and must not use one: it would stay the host's root
        inside. Others get one to set it up in. Process 1 goes on from there to be nobody, in one more.
        """
        if not self.apart:
            return list(argv)
        root = os.geteuid() == 0
        if self.name == "bwrap":
            user = [] if root else ["--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
            apart = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
            above = dict.fromkeys(str(up) for *_, target in entries for up in reversed(PurePath(target).parents[:-1]))
            folders = [word for up in above for word in ("--perms", "0755", "--dir", up)]  # else only root's to enter
            shown = [word for entry in entries for word in _option(*entry)]
            ends = ["--as-pid-1", "--die-with-parent", "--remount-ro", "/", "--chdir", "/tmp", "--"]
            return [self.path, *user, *apart, *folders, *shown, *ends, *argv]
        return [self.path, *unshare_options("mount", "pid", "net", "ipc", "uts", "cgroup"), *argv]


def unshare_options(*kinds: str) -> list[str]:
    """What follows ``unshare`` so that a command is process 1 of new namespaces, and ends with whoever started it.

    Root needs no user namespace to make the others.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [*user, *(f"--{kind}" for kind in kinds), "--fork", "--kill-child=KILL", "--"]


def find(name: Name) -> Mechanism | None:
    """The mechanism by its name, where its command is installed."""
    path = shutil.which(name)
    return Mechanism(name, path) if path else None


def _option(kind: str, source: str, target: str) -> list[str]:
    if kind == "scratch":
        return ["--perms", "1777", "--size", source, "--tmpfs", target]
    if kind == "proc":
        return ["--proc", target]
    return [OPTIONS[kind], source, target]
