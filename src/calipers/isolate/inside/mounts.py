"""A new root directory in which only what was listed exists; what bwrap does by itself, and unshare does not."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from typing import Any

NOSUID, NODEV, BIND, REC, PRIVATE = 2, 4, 4096, 16384, 1 << 18  # mount(2)
DETACH = 2  # umount2(2)
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4  # mount_setattr(2)
AT_RECURSIVE, AT_FDCWD = 0x8000, -100
MOUNT_SETATTR = 442  # the same number on every architecture, as for all calls of its age
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

LIBC = ctypes.CDLL(None, use_errno=True)


def build(view: list[tuple[str, str, str]]) -> None:
    """Make these entries, in their order, the whole file system.

    An entry is (kind, source, place): ``bind`` and ``device`` show a file or directory of the host,
    ``link`` is a symbolic link, ``scratch`` an empty directory of so many bytes, ``proc`` this namespace's own.
    """
    _mount("none", "/", None, REC | PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    os.mkdir("/tmp/new")
    os.mkdir("/tmp/old")
    _call("pivot_root", LIBC.syscall(PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old"))
    _mount("tmpfs", "/new", "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    for kind, source, place in view:
        _show(kind, source, f"/new{place}")
    os.chdir("/new")
    _call("pivot_root", LIBC.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."))  # the old root lies above the new
    _call("umount", LIBC.umount2(b".", DETACH))
    os.chdir("/")
    _restrict("/", ATTR_RDONLY, 0)


def _show(kind: str, source: str, place: str) -> None:
    os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
    if kind == "link":
        os.symlink(source, place)
    elif kind == "scratch":
        os.mkdir(place)
        _mount("tmpfs", place, "tmpfs", NOSUID | NODEV, f"mode=1777,size={source},nr_inodes=65536")
    elif kind == "proc":
        os.mkdir(place)
        _mount("proc", place, "proc", NOSUID | NODEV)
    else:
        source = f"/old{source}"
        if os.path.isdir(source):
            os.makedirs(place, 0o755, exist_ok=True)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o444))
        _mount(source, place, None, BIND | REC)
        if kind == "bind":
            _restrict(place, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, AT_RECURSIVE)


def _mount(source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
    done = LIBC.mount(
        source.encode(),
        place.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _call(f"mount {place}", done)


def _restrict(place: str, attributes: int, flags: int) -> None:
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    done = LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, place.encode(), flags, ctypes.byref(wanted), ctypes.sizeof(wanted))
    _call(f"mount_setattr {place}", done)


def _call(what: str, result: Any) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
