"""What a program in the sandbox can see of the machine: system libraries, the interpreter, its inputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

Entry = tuple[str, str, str]
"""(kind, source, place); the kinds are those of `inside.mounts.build`."""

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
