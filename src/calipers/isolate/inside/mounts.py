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
    for kind, source, target in view:
        _show(kind, source, f"/new{target}")
    os.chdir("/new")
    _call("pivot_root", LIBC.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."))  # the old root lies above the new
    _call("umount", LIBC.umount2(b".", DETACH))
    os.chdir("/")
    _restrict("/", ATTR_RDONLY, 0)


def _show(kind: str, source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
    if kind == "link":
        os.symlink(source, target)
    elif kind == "scratch":
        os.mkdir(target)
        _mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"mode=1777,size={source},nr_inodes=65536")
    elif kind == "proc":
        os.mkdir(target)
        _mount("proc", target, "proc", NOSUID | NODEV)
    else:
        source = f"/old{source}"
        if os.path.isdir(source):
            os.makedirs(target, 0o755, exist_ok=True)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        _mount(source, target, None, BIND | REC)
        if kind == "bind":
            _restrict(target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, AT_RECURSIVE)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = LIBC.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _call(f"mount {target}", done)


def _restrict(target: str, attributes: int, flags: int) -> None:
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    done = LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, ctypes.byref(wanted), ctypes.sizeof(wanted))
    _call(f"mount_setattr {target}", done)


def _call(what: str, result: Any) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
