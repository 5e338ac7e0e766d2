"""The start of process 1: it isolates itself, reports that, and runs its job.

It makes a new root directory in which only what was listed exists, what bwrap does by itself and unshare does not. Then
it gives up every right it has: nobody, in a user namespace of its own, without a way back.
"""

from __future__ import annotations

import os
import sys

from calipers.isolate.inside.attend import Keeper
from calipers.isolate.inside.libc import Address, Long, check, function
from calipers.isolate.inside.program import send

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOSUID, NODEV, BIND, REC, PRIVATE = 2, 4, 4096, 16384, 1 << 18  # mount(2)
DETACH = 2  # umount2(2)
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4  # mount_setattr(2)
AT_RECURSIVE, AT_FDCWD = 0x8000, -100
MOUNT_SETATTR = 442  # the same number on every architecture, as for all calls of its age
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
NOBODY = 65534
NEWUSER = 0x10000000  # unshare(2)
PDEATHSIG, DUMPABLE, CAPBSET_DROP, SECCOMP, NO_NEW_PRIVS, CAP_AMBIENT = 1, 4, 24, 22, 38, 47  # prctl(2)
AMBIENT_CLEAR_ALL, MODE_FILTER = 4, 2
CAPABILITY_VERSION = 0x20080522
SIGKILL = 9

c_mount, c_umount, c_unshare, c_prctl, c_capset, c_syscall = map(
    function, ("mount", "umount2", "unshare", "prctl", "capset", "syscall")
)


def enter(job: dict[str, Any], proc: int) -> None:
    """Leave the host's file system."""
    if os.getpid() != 1:
        raise OSError("the started process is not process 1 of a namespace")  # it would kill and mount outside
    if job["view"] is not None:
        build(job["view"])
    give_up(proc, job["root"], job["filter"])


def main(
    job: dict[str, Any], work: Callable[[dict[str, Any], Keeper], None], control: int, report: int, proc: int
) -> None:
    """Enter the sandbox and do the job; the report begins with ``ready`` or with why there is no sandbox."""
    try:
        if job["apart"]:
            enter(job, proc)
        os.close(proc)
    except (OSError, KeyError) as error:
        send(report, f"{error}\n".encode())
        os._exit(1)
    for pipe in (control, report):
        # children close them before all else; what they start would not get them either
        os.set_inheritable(pipe, False)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.umask(0o022)
    os.chdir("/tmp")
    send(report, b"ready\n")
    work(job, Keeper(control, report, job["apart"]))
    os._exit(0)


def build(view: list[tuple[str, str, str]]) -> None:
    """Make these entries, in their order, the whole file system.

    An entry is (kind, source, target): ``bind`` and ``device`` show a file or directory of the host,
    ``link`` is a symbolic link, ``scratch`` an empty directory of so many bytes, ``proc`` this namespace's own.
    """
    _mount("none", "/", None, REC | PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    os.mkdir("/tmp/new")
    os.mkdir("/tmp/old")
    check("pivot_root", c_syscall(PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old"))
    _mount("tmpfs", "/new", "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    for kind, source, target in view:
        _show(kind, source, f"/new{target}")
    os.chdir("/new")
    check("pivot_root", c_syscall(PIVOT_ROOT[os.uname().machine], b".", b"."))  # the old root lies above the new
    check("umount", c_umount(b".", DETACH))
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
    done = c_mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        Long(flags),
        options.encode() or None,
    )
    check(f"mount {target}", done)


def _restrict(target: str, attributes: int, flags: int) -> None:
    wanted = attributes.to_bytes(8, sys.byteorder) + bytes(24)
    done = c_syscall(MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, wanted, len(wanted))
    check(f"mount_setattr {target}", done)


def give_up(proc: int, root: bool, filter: bytes) -> None:
    """Become nobody, who can get no rights, make no namespaces and call little; ``proc`` is the host's /proc.

    ``root``, the host's own, becomes another user first: it would be beyond every limit on processes.
    """
    _write(proc, "self/oom_score_adj", "1000")  # when memory runs out, the kernel takes this first
    if root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _prctl(DUMPABLE, 1)  # else the maps below belong to root
    user, group = os.geteuid(), os.getegid()
    check("unshare", c_unshare(NEWUSER))
    _write(proc, "self/setgroups", "deny")
    _write(proc, "self/uid_map", f"{NOBODY} {user} 1")
    _write(proc, "self/gid_map", f"{NOBODY} {group} 1")
    _write(proc, "sys/user/max_user_namespaces", "0")
    _prctl(DUMPABLE, 0)  # so that the program can neither trace process 1 nor open its pipes
    _prctl(CAP_AMBIENT, AMBIENT_CLEAR_ALL)
    for capability in range(64):
        if c_prctl(CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    header, none = CAPABILITY_VERSION.to_bytes(4, sys.byteorder) + bytes(4), bytes(24)
    check("capset", c_capset(header, none))
    _prctl(NO_NEW_PRIVS, 1)
    _prctl(PDEATHSIG, SIGKILL)  # a change of user has cleared it
    steps = Address(filter)
    program = (len(filter) // 8).to_bytes(2, sys.byteorder) + bytes(6) + bytes(memoryview(steps))  # sock_fprog
    check("prctl seccomp", c_prctl(SECCOMP, MODE_FILTER, program, 0, 0))


def _write(proc: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY, dir_fd=proc)
    try:
        os.write(file, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{name}: {error.strerror}") from error
    finally:
        os.close(file)


def _prctl(option: int, value: int) -> None:
    check(f"prctl {option}", c_prctl(option, value, 0, 0, 0))
