"""Process 1 of a sandbox, which isolates itself, reports that, and does its job: one program, or many calls.

It makes a new root directory with only the listed entries (with bwrap, that has been done already). Then it drops all
privileges: it becomes nobody, in a user namespace of its own, irrevocably. It starts and supervises children until they
end or are killed, and never runs their code itself.

Modules that take long to load (typing, signal, contextlib) are not imported here, because that would slow down every
sandbox.
"""

from __future__ import annotations

import os
import resource
import select
import stat
import sys
import time
from fcntl import F_DUPFD, fcntl

from calipers.isolate.inside.libc import BytesAddress, Long, Unsigned, check, function

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
MOUNT_SETATTR = 442  # newer system calls have the same number on every architecture
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
    """Enter the sandbox: leave the host's file system, and drop all privileges; ``proc`` is the host's /proc."""
    if os.getpid() != 1:
        raise OSError("the started process is not process 1 of a namespace")  # else it would kill and mount outside
    if job["view"] is not None:
        build(job["view"])
    give_up(proc, job["root"], job["filter"])


def main(job: dict[str, Any], control: int, report: int, proc: int) -> None:
    """Enter the sandbox and do the job; the report begins with ``ready``, or is the reason why there is no sandbox."""
    try:
        if job["apart"]:
            enter(job, proc)
        os.close(proc)
    except (OSError, KeyError) as error:
        send(report, f"{error}\n".encode())
        os._exit(1)
    for pipe in (control, report):
        # children close them first of all; and programs that they execute would not inherit them
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
    """Replace the file system by these entries, in their order.

    An entry is (kind, source, target): ``bind`` and ``device`` show a file or directory of the host, ``link`` is a
    symbolic link, ``scratch`` an empty directory of ``source`` bytes, ``proc`` the /proc of this namespace.
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
    check("pivot_root", c_syscall(PIVOT_ROOT[os.uname().machine], b".", b"."))  # mounts the old root over the new
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
    result = c_mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        Long(flags),
        options.encode() or None,
    )
    check(f"mount {target}", result)


def _restrict(target: str, attributes: int, flags: int) -> None:
    mount_attr = attributes.to_bytes(8, sys.byteorder) + bytes(24)
    result = c_syscall(MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, mount_attr, len(mount_attr))
    check(f"mount_setattr {target}", result)


def give_up(proc: int, root: bool, filter: bytes) -> None:
    """Become nobody, without capabilities, without new namespaces, and with the seccomp filter.

    ``proc`` is the host's /proc. The host's ``root`` changes its user first, because no limit on the number of
    processes would apply to it.
    """
    _write(proc, "self/oom_score_adj", "1000")  # the first to be killed when the machine runs out of memory
    if root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _prctl(DUMPABLE, 1)  # else the files of the id maps below would belong to root
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
            break  # beyond the last capability of this kernel
    header, none = CAPABILITY_VERSION.to_bytes(4, sys.byteorder) + bytes(4), bytes(24)
    check("capset", c_capset(header, none))
    _prctl(NO_NEW_PRIVS, 1)
    _prctl(PDEATHSIG, SIGKILL)  # set again, because the change of user cleared it
    steps = BytesAddress(filter)
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
REAP_EVERY = 0.1  # seconds; until then, dead orphans count as processes
CLOSE_RANGE = 436  # newer system calls have the same number on every architecture

c_signal = function("signal")


class Keeper:
    """Starts and supervises the children of process 1.

    Process 1 ends when the pipe ``control`` is closed; ``report`` is its pipe for reports, which no child ever holds.
    """

    def __init__(self, control: int, report: int, apart: bool) -> None:
        self.control, self.report, self.apart = control, report, apart
        c_signal(SIGINT, None)  # without Python's handler, process 1 ignores interrupts from inside

    def start(self, limits: Mapping[str, Any], child: Callable[[], object], streams: Sequence[int] = (0, 1, 2)) -> int:
        """Fork a child that runs ``child`` with only these streams, as descriptors 0, 1, 2, ...; returns its pid."""
        pid = os.fork()
        if pid:
            return pid
        try:
            for number in (SIGPIPE, SIGXFSZ):  # Python ignores these signals; programs expect the default
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
        """Write to and read from a child until it ends, then kill all processes that it left.

        Returns its exit code, None if it was still running at ``until``; and whether it wrote more than ``most`` bytes
        to one of ``reads``, for which it is killed.
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
        unfinished, cut, unsent = set(reads), False, memoryview(data)
        while status is None and not cut and (remaining := until - time.monotonic()) > 0:
            for end, _ in poll.poll(min(remaining, REAP_EVERY) * 1000):
                if end == self.control:
                    if not os.read(end, 1):
                        os._exit(1)  # the process outside is gone; all processes here end with process 1
                elif end == write:
                    unsent = unsent[_feed(end, unsent) :]
                    if not unsent:
                        poll.unregister(end)
                        os.close(end)
                        write = -1
                elif end in reads:
                    if not _take(end, reads[end], most):
                        poll.unregister(end)
                        unfinished.discard(end)
                    cut = cut or len(reads[end]) > most
            status = reap(pid)
        sweep(-1 if self.apart else -pid)
        for end in unfinished:  # output that was written before the end, and not read yet
            while not cut and _take(end, reads[end], most):
                cut = len(reads[end]) > most
        for end in (ended, write):
            if end >= 0:
                os.close(end)
        return status, cut


def restrict(limits: Mapping[str, Any], apart: bool) -> None:
    """Set the resource limits of this process and its children.

    The number of processes is limited only in a sandbox, because outside all processes of the user would count.
    """
    seconds = int(limits["seconds"]) + 1
    most_of = (
        (resource.RLIMIT_AS, limits["memory_mb"] * MB),
        (resource.RLIMIT_FSIZE, limits["disk_mb"] * MB),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    )
    if apart:
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + 1,) * 2)  # and process 1
    for kind, most in most_of:
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def close_from(first: int) -> None:
    """Close this descriptor and all above it, however high; a wide run has many open descriptors."""
    if c_syscall(CLOSE_RANGE, first, Unsigned(0xFFFFFFFF), 0) < 0:  # an older kernel, on which there is no sandbox
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        os.closerange(first, 1 << 20 if most == resource.RLIM_INFINITY else most)


def sweep(target: int) -> None:
    """Kill every other process of the namespace (-1) or of a group (minus its number), and wait until none is left."""
    try:
        os.kill(target, SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return  # there was none, or none is left


def reap(pid: int) -> int | None:
    """Reap dead children; returns the exit code of ``pid`` if it is among them, negative if a signal killed it."""
    exit_code = None
    try:
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            if dead[0] == pid:
                exit_code = os.waitstatus_to_exitcode(dead[1])
    except ChildProcessError:
        pass
    return exit_code


def _take(end: int, into: bytearray, most: int) -> bool:
    """Read once, up to one byte more than ``most`` in all; returns False at the end of the stream."""
    chunk = os.read(end, min(1 << 16, most + 1 - len(into)))
    into += chunk
    return bool(chunk)


def _feed(end: int, data: memoryview) -> int:
    """Write what fits into a pipe; returns the number of bytes that are done, which is all if its reader has gone."""
    try:
        return os.write(end, data[: 1 << 16])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


# -- one program


def program(job: dict[str, Any], keeper: Keeper) -> None:
    """Run the job's program and report ``EXIT\\n``, then ``SIZE\\n`` and the bytes of each requested file.

    EXIT is ``-`` for a program that was stopped, and SIZE is ``-`` for a file that does not exist or is too large.
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
    for path in job["collect"]:  # all processes are dead, so the files do not change any more
        data = content(path, job["limits"]["output_bytes"])
        send(keeper.report, b"-\n" if data is None else b"%d\n%s" % (len(data), data))


def content(path: str, most: int) -> bytes | None:
    """The content of a regular file; None for anything else, or if it is too large."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        return os.read(file, most) if stat.S_ISREG(status.st_mode) and status.st_size <= most else None
    finally:
        os.close(file)


def send(report: int, data: bytes) -> None:
    """Write all data to a pipe."""
    while data:
        data = data[os.write(report, data) :]


# -- many calls

# modules that candidates import most often
WARM = (
    "bisect collections copy dataclasses datetime functools heapq itertools json math operator random re string typing"
)
ANSWER = 3  # the descriptor to which a call writes its answer


def calls(job: dict[str, Any], keeper: Keeper) -> None:
    """Run a piece of Python once for each test, and report ``EXIT CUT SIZE\\n`` and its answer for each, in order.

    Each test runs in a fork without the pipes of other tests. No process here has the expected answers, so a candidate
    cannot read them, and anything that it writes is only an answer.
    """
    code, called = job["code"], job["entry_point"] is not None
    for name in WARM.split():
        if f"import {name}" in code or f"from {name}" in code or (called and name == "json"):
            __import__(name)  # once here, instead of in every fork
    nothing = os.open(os.devnull, os.O_RDWR)
    deadline, remaining_bytes = time.monotonic() + job["total_seconds"], job["report_bytes"]
    for test in job["tests"]:
        until = min(deadline, time.monotonic() + job["limits"]["seconds"])
        most = min(remaining_bytes, job["limits"]["output_bytes"])
        exit_code, cut, answer = ask(job, test, keeper, nothing, until, most)
        remaining_bytes -= len(answer)
        ended = b"-" if exit_code is None else b"%d" % exit_code
        send(keeper.report, b"%s %d %d\n%s" % (ended, cut, len(answer), answer))


def ask(
    job: dict[str, Any], test: dict[str, Any], keeper: Keeper, nothing: int, until: float, most: int
) -> tuple[int | None, bool, bytes]:
    """Run one test in a fork; returns the exit code, whether the output was cut, and the output.

    The output is what a script printed, or the JSON of what a call returned. ``nothing`` is a descriptor of /dev/null.
    """
    output_read, output_write = os.pipe()
    if job["entry_point"] is None:
        input_read, input_write = os.pipe()
        pid = keeper.start(job["limits"], lambda: run_program(job["code"]), (input_read, output_write, nothing))
        os.close(input_read)
    else:
        input_write = -1
        streams = (nothing, nothing, nothing, output_write)
        pid = keeper.start(job["limits"], lambda: run_call(job["code"], job["entry_point"], test), streams)
    os.close(output_write)
    output = bytearray()
    data = test.get("input", "").encode(errors="replace")
    exit_code, cut = keeper.attend(pid, until, {output_read: output}, most, input_write, data)
    os.close(output_read)
    return exit_code, cut, bytes(output[:most])


def run_program(code: str) -> None:
    """Run the candidate as a script with the standard streams of this process."""
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
    """Load the candidate as a module, call its ``function`` or ``Class.method``, and answer with the result in JSON."""
    import json

    module = _module("candidate")
    exec(compile(code, "<candidate>", "exec"), module.__dict__)
    first, *attributes = entry_point.split(".")
    function = module.__dict__[first]
    for name in attributes:
        function = getattr(function() if isinstance(function, type) else function, name)
    returned = json.dumps(function(*test.get("args", ()), **test.get("kwargs", {})))
    send(ANSWER, returned.encode())
    os._exit(0)


def _module(name: str) -> ModuleType:
    module = sys.modules[name] = type(sys)(name)
    sys.argv = ["candidate.py"]
    return module


def _finish(exit_code: int) -> None:
    """End as a script does: wait for its threads, call its exit functions, and flush its output."""
    import atexit

    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        exit_code = exit_code or 1
    os._exit(exit_code & 0xFF)
