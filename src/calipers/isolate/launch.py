"""One sandbox from start to end, seen from outside: its input, output, usage and cleanup.

A sandbox is made by bubblewrap or by util-linux' unshare; `view` lists the machine's files that are visible inside.

Namespaces already confine a program. The seccomp filter also reduces the attack surface of the kernel, and blocks what
no namespace covers: sockets to the machine's own host, memory that belongs to no process and so escapes every limit,
and changes to the limits and priorities of other processes. Process 1 has the same user as the program, so only the
filter protects process 1 from the program.
"""

from __future__ import annotations

import errno
import marshal
import os
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryDirectory
from threading import Event
from typing import IO, Any, ClassVar, Literal, cast

from calipers.errors import InputError, SandboxError
from calipers.isolate.inside import LOAD_FILES, compiled
from calipers.isolate.limits import Cause, Limits, Meter, children, group

Entry = tuple[str, str, str]
"""(kind, source, target); the kinds are those of `inside.first.build`."""

LIBRARIES = ("lib", "lib32", "lib64", "libx32")
PROGRAMS = ("bin", "sbin")
DEVICES = {name: name for name in ("full", "null", "random", "urandom")}
DEVICES["zero"] = "full"  # reads the same but cannot be mapped, which would give shared memory that is not counted
STREAMS = (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"))

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}


def interpreter() -> str:
    """The path of the running Python interpreter, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def view(
    disk_mb: int, *, programs: bool = False, scratch: Iterable[str] = (), inputs: str | None = None
) -> list[Entry]:
    """The whole file system of one sandbox, read-only except for /tmp and ``scratch``.

    ``programs`` adds the system's commands and a /proc that shows only this sandbox. Each entry of the
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
    """The entry that shows a path of the host at the same path: a link as a link; no entry if it does not exist."""
    if os.path.islink(path):
        return [("link", os.readlink(path), path)]
    return [("bind", path, path)] if os.path.exists(path) else []


Name = Literal["bwrap", "unshare", "none"]
NOBODY = "65534"
NAMES: tuple[Name, ...] = ("bwrap", "unshare")  # in order of preference; "none" is used only on request

OPTIONS = {"bind": "--ro-bind", "device": "--dev-bind", "link": "--symlink"}  # of bwrap


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A command that starts another one in namespaces of its own."""

    name: Name
    path: str

    @property
    def apart(self) -> bool:
        """Whether there is a sandbox."""
        return self.name != "none"

    @property
    def shows(self) -> bool:
        """Whether the mechanism builds the view, so that process 1 need not build it."""
        return self.name != "unshare"

    def command(self, entries: Sequence[Entry], argv: Sequence[str]) -> list[str]:
        """The command that starts ``argv`` as process 1 of new namespaces.

        Root needs no user namespace to create the others, and must not use one, because it would stay the host's root
        inside. Other users get a user namespace. In both cases, process 1 then becomes nobody in one more of its own.
        """
        if not self.apart:
            return list(argv)
        root = os.geteuid() == 0
        if self.name == "bwrap":
            user = [] if root else ["--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
            apart = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
            above = dict.fromkeys(str(up) for *_, target in entries for up in reversed(PurePath(target).parents[:-1]))
            folders = [word for up in above for word in ("--perms", "0755", "--dir", up)]  # else only root could enter
            shown = [word for entry in entries for word in _option(*entry)]
            ends = ["--as-pid-1", "--die-with-parent", "--remount-ro", "/", "--chdir", "/tmp", "--"]
            return [self.path, *user, *apart, *folders, *shown, *ends, *argv]
        user = [] if root else ["--user", "--map-root-user"]
        kinds = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup"]
        return [self.path, *user, *kinds, "--fork", "--kill-child=KILL", "--", *argv]  # killed if its parent ends


def _option(kind: str, source: str, target: str) -> list[str]:
    if kind == "scratch":
        return ["--perms", "1777", "--size", source, "--tmpfs", target]
    if kind == "proc":
        return ["--proc", target]
    return [OPTIONS[kind], source, target]


ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # index of the numbers below, AUDIT_ARCH

REFUSED = {  # system call: its numbers on x86_64 and aarch64
    # inspecting, or writing to, other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # memory that no limit counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    # other namespaces, other roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # parts of the kernel with a history of exploits
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    # the machine itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
}
CLONE3 = (435, 435)
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6, which are confined by the network namespace; AF_VSOCK is not
FOREIGN_ABI = 0x40000000  # the first number of the x32 ABI, on x86_64
ALL = 0xFFFFFFFF
MYSELF = ((0, ALL, (0,)),)  # the first argument, a process number of 32 bits, is 0

# System call: its numbers, conditions (argument, mask, allowed values of argument & mask), and the error otherwise.
BOUNDED: dict[str, tuple[tuple[int, int], tuple[tuple[int, int, tuple[int, ...]], ...], int]] = {
    "clone": ((56, 220), ((0, NEW_NAMESPACES, (0,)),), errno.EPERM),
    "socket": ((41, 198), ((0, ALL, FAMILIES),), errno.EAFNOSUPPORT),
    # a process may set only its own limits and priorities, not those of process 1
    "prlimit64": ((302, 261), MYSELF, errno.EPERM),
    "sched_setparam": ((142, 118), MYSELF, errno.EPERM),
    "sched_setscheduler": ((144, 119), MYSELF, errno.EPERM),
    "sched_setaffinity": ((203, 122), MYSELF, errno.EPERM),
    "sched_setattr": ((314, 274), MYSELF, errno.EPERM),
    "setpriority": ((141, 140), ((0, ALL, (0,)), (1, ALL, (0,))), errno.EPERM),  # PRIO_PROCESS
    "ioprio_set": ((251, 30), ((0, ALL, (1,)), (1, ALL, (0,))), errno.EPERM),  # IOPRIO_WHO_PROCESS
    # shared memory without a file may exist outside every address space, where only a cgroup would count it
    "mmap": ((9, 222), ((3, 0x21, (0, 0x01, 0x20)),), errno.ENOMEM),  # MAP_SHARED 1, MAP_ANONYMOUS 0x20
}

LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # classic BPF
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; little-endian on both
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000

Step = tuple[int, int, int, int]
"""One BPF instruction: code, jump offset if true, jump offset if false, and operand."""
CHUNK = 1 << 16
MEASURE_EVERY = 0.1  # seconds
END_SECONDS = 5.0  # seconds for the kernel to remove killed processes
USUAL = Limits()
TAKEN = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tmp", "usr"}


@cache
def call_filter() -> bytes:
    """The seccomp filter for this machine's architecture, as prctl(2) needs it."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        known = " and ".join(sorted(ARCHITECTURES))
        raise SandboxError(f"the sandbox supports only {known}, but this machine is {machine}")
    column, architecture = ARCHITECTURES[machine]
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, FOREIGN_ABI),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
        (JUMP_EQUAL, 0, 1, CLONE3[column]),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),  # a filter cannot read its flags; libc then falls back to clone
    ]
    for numbers in REFUSED.values():
        steps += [(JUMP_EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, FAIL | errno.EPERM)]
    for numbers, conditions, error in BOUNDED.values():
        steps += _bounded_call(numbers[column], conditions, error)
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _bounded_call(number: int, conditions: tuple[tuple[int, int, tuple[int, ...]], ...], error: int) -> list[Step]:
    """The steps for a system call that is allowed only with some arguments; other calls skip these steps."""
    steps: list[Step] = [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | error)]
    for argument, mask, values in reversed(conditions):
        last = len(values) - 1
        tests = [(JUMP_EQUAL, last - position, 0, value) for position, value in enumerate(values[:-1])]
        tests.append((JUMP_EQUAL, 0, len(steps) - 1, values[-1]))  # if false, jump to the error, the last step
        steps = [(LOAD, 0, 0, FIRST_ARGUMENT + 8 * argument), (AND, 0, 0, mask), *tests, *steps]
    return [(JUMP_EQUAL, 0, len(steps), number), *steps]


@dataclass(slots=True)
class PipeOutput:
    """The first ``most`` bytes read from a pipe, and whether there were more."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    cut: bool = False
    event: ClassVar = selectors.EVENT_READ
    keep: ClassVar = False

    def serve(self, pipe: int) -> bool:
        """Read once; returns whether the pipe has ended."""
        try:
            chunk = os.read(pipe, CHUNK)
        except BlockingIOError:
            return False
        capacity = self.most - len(self.data)
        self.data += chunk[:capacity]
        self.cut = self.cut or len(chunk) > capacity
        return not chunk


@dataclass(slots=True)
class PipeInput:
    """The data still to be written to a pipe; ``keep`` leaves the pipe open after the last byte."""

    data: memoryview
    keep: bool
    event: ClassVar = selectors.EVENT_WRITE

    def serve(self, pipe: int) -> bool:
        """Write once; returns whether all data is written, or nobody reads it."""
        try:
            self.data = self.data[os.write(pipe, self.data[:CHUNK]) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        return not self.data


class Pipes:
    """The pipes of one sandbox, which are served until its outer process has ended."""

    def __init__(self, outer: subprocess.Popen[bytes]) -> None:
        self._outer = outer
        self._pipes: list[tuple[IO[bytes], PipeOutput | PipeInput]] = []

    def read_from(self, pipe: IO[bytes] | None, most: int) -> PipeOutput:
        """Read a pipe to its end, and keep the first ``most`` bytes."""
        output = PipeOutput(most)
        self._add(pipe, output)
        return output

    def write_to(self, pipe: IO[bytes] | None, data: bytes, *, keep: bool = False) -> None:
        """Write data to a pipe, as fast as it is read."""
        self._add(pipe, PipeInput(memoryview(data), keep))

    def until(self, deadline: float, too_much: Callable[[], bool], stop: Event | None = None) -> Cause:
        """Serve all pipes until the sandbox ends; returns why this method killed it, or ''.

        ``too_much`` returns whether the sandbox currently exceeds its memory.
        """
        cause: Cause = ""
        gone = os.pidfd_open(self._outer.pid)
        with selectors.DefaultSelector() as selector, os.fdopen(gone) as ended:
            selector.register(ended, selectors.EVENT_READ)
            for pipe, role in self._pipes:
                selector.register(pipe, role.event, role)
            measure_at = time.monotonic() + MEASURE_EVERY
            over = False
            while True:
                wait = 0 if over else max(0.0, min(deadline, measure_at) - time.monotonic())
                ready = [key for key, _ in selector.select(wait) if key.fileobj is not ended]
                for key in ready:
                    self._serve(selector, key)
                if over and not any(isinstance(key.data, PipeOutput) for key in ready):
                    return cause
                over = over or self._outer.poll() is not None
                if over or (now := time.monotonic()) < measure_at:
                    continue
                measure_at = now + MEASURE_EVERY
                if stop is not None and stop.is_set():
                    cause = "caller"
                elif now >= deadline:
                    cause = "time"
                elif too_much():
                    cause = "memory"
                if cause:
                    end(self._outer)

    def _add(self, pipe: IO[bytes] | None, role: PipeOutput | PipeInput) -> None:
        if pipe is None:
            raise ValueError("a stream of the sandbox is not a pipe")
        os.set_blocking(pipe.fileno(), False)
        self._pipes.append((pipe, role))

    def _serve(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        pipe, role = cast(IO[bytes], key.fileobj), key.data  # only pipes are registered here, never descriptors
        if role.serve(key.fd):
            selector.unregister(pipe)
            if not role.keep:
                pipe.close()


def end(outer: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a sandbox and wait until they are gone.

    Only process 1 is killed; the kernel then kills every other process of the namespace before its end is reported.
    """
    if outer.poll() is None:
        for first in children(outer.pid):
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        try:
            outer.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            outer.kill()  # process 1 dies with its parent
    outer.wait()


Work = Literal["program", "calls"]
"""The function of `inside.first` that does the job."""

GRACE = 10.0  # seconds beyond its own deadline before process 1 is killed from outside
READY = b"ready\n"
REPORT_BYTES = 64 << 20
BEGIN = f"""
import marshal, os, sys
control, report, proc, *door = map(int, sys.argv[1:])
for group in door:
    try:
        os.write(group, b"0")
    except OSError:
        pass
    os.close(group)
files, job = marshal.load(open(control, "rb", closefd=False))
{LOAD_FILES}
sys.modules[name].main(job, control, report, proc)
"""


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a sandbox."""

    report: bytes  # the report of process 1, without its first line
    stdout: bytes
    stderr: bytes
    cut: bool  # whether stdout or stderr was longer than what was kept
    stopped: Cause
    seconds: float


def launch(
    mechanism: Mechanism,
    work: Work,
    job: Mapping[str, Any],
    entries: list[Entry],
    limits: Limits,
    *,
    seconds: float,
    stdin: bytes = b"",
    stop: Event | None = None,
) -> Launched:
    """Run a job in a sandbox and wait until all its processes are gone; `SandboxError` if there is no sandbox.

    Process 1 should end by itself within ``seconds``; it is killed GRACE seconds later. ``stop``, once set, ends it at
    once.
    """
    began = time.monotonic()
    full_job = {
        "work": work,
        "limits": asdict(limits),
        "environment": ENVIRONMENT,
        "root": os.geteuid() == 0,
        "filter": call_filter() if mechanism.apart else b"",
        "apart": mechanism.apart,
        "view": None if mechanism.shows else entries,
        **job,
    }
    with ExitStack() as stack:
        control_read, control_write = _pipe(stack)
        report_read, report_write = _pipe(stack)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, proc)
        most = limits.memory_mb << 20
        cgroup = group(most) if mechanism.apart else None
        door = () if cgroup is None else (cgroup.door,)
        if cgroup is not None:
            stack.callback(cgroup.close)  # runs after all its processes have ended
        inherited = (control_read.fileno(), report_write.fileno(), proc, *door)
        outer = subprocess.Popen(
            mechanism.command(entries, [interpreter(), "-I", "-S", "-X", "utf8", "-c", BEGIN, *map(str, inherited)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            pass_fds=inherited,
            start_new_session=True,
            bufsize=0,
        )
        stack.enter_context(outer)
        stack.callback(end, outer)
        control_read.close()
        report_write.close()
        pipes = Pipes(outer)
        files = compiled("libc", "first")
        pipes.write_to(control_write, marshal.dumps((files, full_job)), keep=True)  # process 1 ends when it is closed
        pipes.write_to(outer.stdin, stdin)
        streams = [
            pipes.read_from(outer.stdout, limits.output_bytes),
            pipes.read_from(outer.stderr, limits.output_bytes),
        ]
        report = pipes.read_from(report_read, REPORT_BYTES)
        scratch = [target for kind, _, target in entries if kind == "scratch"] if mechanism.apart else []
        meter = Meter(outer.pid, most, scratch, cgroup)
        stopped = pipes.until(began + seconds + GRACE, lambda: meter.over(report.data.startswith(READY)), stop)
        if not stopped and cgroup is not None and cgroup.exceeded():
            stopped = "memory"  # the kernel killed it between two measurements
    stdout, stderr = streams
    if not report.data.startswith(READY) and stopped != "caller":
        reason = bytes(report.data or stderr.data).decode(errors="replace").strip()
        reason = reason or f"exit status {outer.returncode}"
        raise SandboxError(f"{mechanism.name} could not create a sandbox: {reason.splitlines()[-1]}")
    seconds = time.monotonic() - began
    return Launched(
        bytes(report.data.removeprefix(READY)),
        bytes(stdout.data),
        bytes(stderr.data),
        stdout.cut or stderr.cut,
        stopped,
        seconds,
    )


def _pipe(stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return stack.enter_context(os.fdopen(read, "rb", 0)), stack.enter_context(os.fdopen(write, "wb", 0))


NONE = Mechanism("none", "")
_forgone: list[Mechanism] = []


def forgo(sandbox: bool = True) -> None:
    """Run without a sandbox from now on if none works here, as ``--unsafe-no-sandbox`` requests.

    Limits of time, of memory per process and of output still hold; nothing else does. ``forgo(False)`` undoes it.
    """
    _forgone[:] = [NONE] if sandbox else []


def probe() -> Mechanism:
    """The best mechanism that works here, or `NONE` after `forgo`; else `SandboxError` with the reason against each."""
    best = working()
    if isinstance(best, Mechanism):
        return best
    if _forgone:
        return _forgone[0]
    raise SandboxError(
        f"no sandbox works on this machine ({best}); install bubblewrap, or allow user namespaces,"
        " or use --unsafe-no-sandbox to run model-written code without protection"
    )


def working() -> Mechanism | str:
    """The best mechanism that works here, or the reasons why none does; not affected by `forgo`."""
    reasons = []
    for name in NAMES:
        mechanism = attempt(name)
        if isinstance(mechanism, Mechanism):
            return mechanism
        reasons.append(mechanism)
    return "; ".join(reasons)


@cache
def attempt(name: Name) -> Mechanism | str:
    """The mechanism with this name, or the reason why it does not work; tried once per process."""
    path = shutil.which(name)
    if path is None:
        return f"{name} is not installed"
    mechanism = Mechanism(name, path)
    job = {"argv": [interpreter(), "-I", "-S", "-c", ""], "folders": [], "folder": "/tmp", "collect": []}
    try:
        launched = launch(mechanism, "program", job, view(USUAL.disk_mb), USUAL, seconds=USUAL.seconds)
    except (SandboxError, OSError) as error:
        return str(error)
    return mechanism if launched.report == b"0\n" else f"{name}: Python does not start inside it"


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a program."""

    exit_code: int | None  # minus the signal's number if it was killed by a signal; None if it was stopped
    stdout: bytes
    stderr: bytes
    stopped: Cause = ""
    cut: bool = False  # whether it printed more than was kept
    seconds: float = 0.0  # from start to end, including the sandbox's own time
    files: Mapping[str, bytes] = field(default_factory=dict)  # the files of `collect` that exist at the end

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.stopped == "time"


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    files: Mapping[str, bytes] | None = None,
    folders: Sequence[str] = (),
    collect: Sequence[str] = (),
    limits: Limits = USUAL,
    mechanism: Mechanism | None = None,
    stop: Event | None = None,
) -> Ran:
    """Run a command in the sandbox, and wait until all its processes are gone.

    ``files`` are its inputs, by a path such as ``tests/test.sh``, which is read-only at ``/tests/test.sh`` inside.
    ``folders`` are absolute paths that it may write to, beside its home and working directory ``/tmp``. ``collect`` are
    absolute paths of files to return, which are read after every process is dead. `SandboxError` if an input changed.
    """
    sandbox = apart_here(mechanism)
    tops = sorted({f"/{Path(folder).parts[1]}" for folder in folders} - {"/tmp"})
    job = {"argv": list(argv), "folders": list(folders), "folder": "/tmp", "collect": list(collect)}
    for name in files or {}:
        check_input_path(name, folders)
    with _placed(files or {}) as inputs:
        entries = view(limits.disk_mb, programs=True, scratch=tops, inputs=inputs)
        launched = launch(sandbox, "program", job, entries, limits, seconds=limits.seconds, stdin=stdin, stop=stop)
    if not launched.report and not launched.stopped:
        raise SandboxError("the sandbox ended before the program ended")
    exit_code, collected = read_report(launched.report, collect)
    stopped: Cause = launched.stopped or ("time" if exit_code is None else "")
    return Ran(
        exit_code=None if stopped else exit_code,
        stdout=launched.stdout,
        stderr=launched.stderr,
        stopped=stopped,
        cut=launched.cut,
        seconds=launched.seconds,
        files=collected,
    )


def apart_here(mechanism: Mechanism | None = None) -> Mechanism:
    """The mechanism for a program other than Python; SandboxError without a sandbox, even with --unsafe-no-sandbox."""
    usable = mechanism or probe()
    if not usable.apart:
        raise SandboxError("a program other than Python needs a sandbox, even with --unsafe-no-sandbox")
    return usable


def read_report(report: bytes, collect: Sequence[str]) -> tuple[int | None, dict[str, bytes]]:
    """The exit code and the files in a report of `inside.first`; SandboxError for an invalid report."""
    stream = BytesIO(report)
    status = stream.readline().strip() or b"-"  # empty if process 1 was killed
    try:
        exit_code, files = None if status == b"-" else int(status), {}
        for path in collect:
            size = stream.readline().strip() or b"-"
            if size != b"-":
                files[path] = stream.read(length := int(size))
                if len(files[path]) != length:
                    raise ValueError("it ends in the middle of a file")
    except ValueError:
        raise SandboxError("the sandbox's report cannot be read") from None
    return exit_code, files


def check_input_path(name: str, folders: Sequence[str] = ()) -> None:
    """Reject an input path that leads outside, or would hide a directory that the sandbox shows or can write to."""
    parts = PurePosixPath(name).parts
    taken = TAKEN | {Path(folder).parts[1] for folder in folders}
    if not parts or ".." in parts or parts[0] == "/" or parts[0] in taken or "\0" in name:
        raise InputError.at(
            f"file {name!r}", "cannot be copied into the sandbox", "expected a path such as tests/test.sh"
        )


@contextmanager
def _placed(files: Mapping[str, bytes]) -> Iterator[str | None]:
    """A directory with the inputs, or None without any; `SandboxError` if they have changed at the end."""
    if not files:
        yield None
        return
    with TemporaryDirectory(prefix="calipers-") as inputs:
        for name, data in files.items():
            _put(Path(inputs), name, data)
        yield inputs
        for name, data in files.items():
            if Path(inputs, name).read_bytes() != data:
                raise SandboxError(f"{name} was changed while the program ran")


def _put(root: Path, name: str, data: bytes) -> None:
    """Write an input that all users can read but not change, and its directories."""
    path, parts = root, PurePosixPath(name).parts
    for part in parts[:-1]:
        path /= part
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    path /= parts[-1]
    path.write_bytes(data)
    path.chmod(0o555)
