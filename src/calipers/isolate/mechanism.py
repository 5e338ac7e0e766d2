"""The two ways into a sandbox, as command lines: bubblewrap, and util-linux' unshare."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from calipers.isolate.view import Entry

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
        user = [] if root else ["--user", "--map-root-user"]
        apart = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child=KILL"]
        return [self.path, *user, *apart, "--", *argv]


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
