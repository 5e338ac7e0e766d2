"""Process 1 of a sandbox: it isolates itself, reports that, and does its job: one program, or many calls.

It makes a new root directory in which only what was listed exists, what bwrap does by itself and unshare does not. Then
it gives up every right it has: nobody, in a user namespace of its own, without a way back. It starts and supervises
children until they end or are killed, and runs none of their code.

Nothing is imported here that takes long to load (typing, signal, contextlib): every sandbox would pay for it.
"""

from __future__ import annotations

import os
import resource
import select
import stat
import sys
import time
from fcntl import F_DUPFD, fcntl

from calipers.isolate.inside.libc import Address, Long, Unsigned, check, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

# -- its isolation

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


def main(job: dict[str, Any], control: int, report: int, proc: int) -> None:
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
    work = {"program": program, "calls": calls}[job["work"]]
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


# -- its children

MB = 1 << 20
OPEN_FILES = 256
SIGINT, SIGPIPE, SIGXFSZ = 2, 13, 25
REAP_EVERY = 0.1  # seconds; orphans count as processes until then
CLOSE_RANGE = 436  # the same number on every architecture, as for all calls of its age

c_signal = function("signal")


class Keeper:
    """The pipes of process 1: ``control``, at whose end it ends too, and ``report``, which no child ever holds."""

    def __init__(self, control: int, report: int, apart: bool) -> None:
        self.control, self.report, self.apart = control, report, apart
        c_signal(SIGINT, None)  # Python would end of it; process 1 without a handler hears nothing from inside

    def start(self, limits: Mapping[str, Any], child: Callable[[], object], streams: Sequence[int] = (0, 1, 2)) -> int:
        """Fork a child that holds these streams, as 0, 1, 2 and on, and nothing else; it ends where ``child`` does."""
        pid = os.fork()
        if pid:
            return pid
        try:
            for number in (SIGPIPE, SIGXFSZ):  # which Python ignores
                c_signal(number, None)
            for descriptor, copy in enumerate([fcntl(stream, F_DUPFD, len(streams)) for stream in streams]):
                os.dup2(copy, descriptor)
            close_from(len(streams))
            os.setsid()
            restrict(limits, self.apart)
            child()
        finally:
            os._exit(127)

    def attend(
        self,
        pid: int,
        until: float,
        reads: Mapping[int, bytearray] | None = None,
        most: int = 0,
        write: int = -1,
        data: bytes = b"",
    ) -> tuple[int | None, bool]:
        """Feed and read a child to its end, then kill whatever it left; its exit code and whether it said too much.

        The code is None for one that was still there at ``until``. A child that said too much is killed.
        """
        reads = reads or {}
        ended = os.pidfd_open(pid)
        poll = select.poll()
        for end in (ended, self.control, *reads):
            poll.register(end, select.POLLIN)
        if write >= 0:
            os.set_blocking(write, False)
            poll.register(write, select.POLLOUT)
        status: int | None = None
        left, cut, rest = set(reads), False, memoryview(data)
        while status is None and not cut and (remaining := until - time.monotonic()) > 0:
            for end, _ in poll.poll(min(remaining, REAP_EVERY) * 1000):
                if end == self.control:
                    if not os.read(end, 1):
                        os._exit(1)  # whoever started this is gone, and with process 1 goes everything
                elif end == write:
                    rest = rest[_feed(end, rest) :]
                    if not rest:
                        poll.unregister(end)
                        os.close(end)
                        write = -1
                elif end in reads:
                    if not _take(end, reads[end], most):
                        poll.unregister(end)
                        left.discard(end)
                    cut = cut or len(reads[end]) > most
            status = reap(pid)
        sweep(-1 if self.apart else -pid)
        for end in left:  # what was said before the end, and not read yet
            while not cut and _take(end, reads[end], most):
                cut = len(reads[end]) > most
        for end in (ended, write):
            if end >= 0:
                os.close(end)
        return status, cut


def restrict(limits: Mapping[str, Any], apart: bool) -> None:
    """Set what this process and its children may use; outside a namespace all processes of the user would count."""
    seconds = int(limits["seconds"]) + 1
    wanted = (
        (resource.RLIMIT_AS, limits["memory_mb"] * MB),
        (resource.RLIMIT_FSIZE, limits["disk_mb"] * MB),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    )
    if apart:
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + 1,) * 2)  # process 1 is counted
    for what, most in wanted:
        resource.setrlimit(what, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def close_from(first: int) -> None:
    """Close this descriptor and every one above it, whatever their numbers: ours are as high as the run is wide."""
    if c_syscall(CLOSE_RANGE, first, Unsigned(0xFFFFFFFF), 0) < 0:  # a kernel too old for a sandbox
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        os.closerange(first, 1 << 20 if most == resource.RLIM_INFINITY else most)


def sweep(whom: int) -> None:
    """Kill every other process of the namespace (-1) or of a group (minus its number), and wait until none is left."""
    try:
        os.kill(whom, SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return  # nobody was left, or is


def reap(pid: int) -> int | None:
    """Collect the dead; the exit code of this one if it is among them, minus a signal's number."""
    exit_code = None
    try:
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            if dead[0] == pid:
                exit_code = os.waitstatus_to_exitcode(dead[1])
    except ChildProcessError:
        pass
    return exit_code


def _take(end: int, into: bytearray, most: int) -> bool:
    """Read once, no further than one byte past the most; False at the end."""
    got = os.read(end, min(1 << 16, most + 1 - len(into)))
    into += got
    return bool(got)


def _feed(end: int, data: memoryview) -> int:
    """Write what fits; how much is done with, which is all of it when nobody listens."""
    try:
        return os.write(end, data[: 1 << 16])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


# -- one program


def program(job: dict[str, Any], keeper: Keeper) -> None:
    """Run the job's program and report ``EXIT\\n``, then ``SIZE\\n`` and the bytes of each file asked for.

    EXIT is ``-`` for a program that was stopped, SIZE for a file that is not there.
    """

    def child() -> None:
        try:
            os.execvpe(job["argv"][0], job["argv"], job["environment"])
        except OSError as error:
            os.write(2, f"{job['argv'][0]}: {error.strerror}\n".encode(errors="replace"))

    for folder in job["folders"]:
        os.makedirs(folder, exist_ok=True)
    os.chdir(job["folder"])
    pid = keeper.start(job["limits"], child)
    status, _ = keeper.attend(pid, time.monotonic() + job["limits"]["seconds"])
    send(keeper.report, b"-\n" if status is None else b"%d\n" % status)
    for path in job["collect"]:  # nobody is left to change them
        data = content(path, job["limits"]["output_bytes"])
        send(keeper.report, b"-\n" if data is None else b"%d\n%s" % (len(data), data))


def content(path: str, most: int) -> bytes | None:
    """The content of an ordinary file; None for anything else, or if it is too long."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        return os.read(file, most) if stat.S_ISREG(facts.st_mode) and facts.st_size <= most else None
    finally:
        os.close(file)


def send(report: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(report, data) :]


# -- many calls

# What candidates import most.
WARM = (
    "bisect collections copy dataclasses datetime functools heapq itertools json math operator random re string typing"
)
ANSWER = 3  # the descriptor on which a call answers


def calls(job: dict[str, Any], keeper: Keeper) -> None:
    """Run a piece of Python once for each test, and report ``EXIT CUT SIZE\\n`` and what it answered, in their order.

    Each runs in a fork that holds no other test's channel. Nothing here knows what would be right: whatever a
    candidate reads or writes, it is only answering.
    """
    code, called = job["code"], job["entry_point"] is not None
    for name in WARM.split():
        if f"import {name}" in code or f"from {name}" in code or (called and name == "json"):
            __import__(name)  # once, here, and not in every fork
    nothing = os.open(os.devnull, os.O_RDWR)
    ends, room = time.monotonic() + job["total_seconds"], job["report_bytes"]
    for test in job["tests"]:
        until = min(ends, time.monotonic() + job["limits"]["seconds"])
        exit_code, cut, answer = ask(job, test, keeper, nothing, until, min(room, job["limits"]["output_bytes"]))
        room -= len(answer)
        ended = b"-" if exit_code is None else b"%d" % exit_code
        send(keeper.report, b"%s %d %d\n%s" % (ended, cut, len(answer), answer))


def ask(
    job: dict[str, Any], test: dict[str, Any], keeper: Keeper, nothing: int, until: float, most: int
) -> tuple[int | None, bool, bytes]:
    """One test in a fork: what it printed, or for a call the JSON of what it returned."""
    listen, answer = os.pipe()
    if job["entry_point"] is None:
        given, feed = os.pipe()
        pid = keeper.start(job["limits"], lambda: run_program(job["code"]), (given, answer, nothing))
        os.close(given)
    else:
        feed = -1
        streams = (nothing, nothing, nothing, answer)
        pid = keeper.start(job["limits"], lambda: run_call(job["code"], job["entry_point"], test), streams)
    os.close(answer)
    output = bytearray()
    exit_code, cut = keeper.attend(
        pid, until, {listen: output}, most, feed, test.get("input", "").encode(errors="replace")
    )
    os.close(listen)
    return exit_code, cut, bytes(output[:most])


def run_program(code: str) -> None:
    """Run the candidate as a script of its own, with the standard streams it was given."""
    module = _module("__main__")
    try:
        exec(compile(code, "<candidate>", "exec"), module.__dict__)
        exit_code = 0
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        exit_code = 1
    _finish(exit_code)


def run_call(code: str, entry_point: str, test: dict[str, Any]) -> None:
    """Load the candidate as a module, call ``function`` or ``Class.method`` of it, and answer in JSON."""
    import json

    module = _module("candidate")
    exec(compile(code, "<candidate>", "exec"), module.__dict__)
    first, *rest = entry_point.split(".")
    function = module.__dict__[first]
    for name in rest:
        function = getattr(function() if isinstance(function, type) else function, name)
    returned = json.dumps(function(*test.get("args", ()), **test.get("kwargs", {})))
    send(ANSWER, returned.encode())
    os._exit(0)


def _module(name: str) -> ModuleType:
    module = sys.modules[name] = type(sys)(name)
    sys.argv = ["candidate.py"]
    return module


def _finish(exit_code: int) -> None:
    """End as a script does: its threads are waited for, its exit functions called, its output written."""
    import atexit

    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        exit_code = exit_code or 1
    os._exit(exit_code & 0xFF)
