"""One sandbox from start to end, seen from outside: its input, output, usage and cleanup."""

from __future__ import annotations

import marshal
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from threading import Event
from typing import IO, Any, Literal, cast

from calipers.errors import SandboxError
from calipers.isolate.limits import Cause, Limits, Meter, children, group
from calipers.isolate.namespaces import ENVIRONMENT, NAMES, Entry, Mechanism, Name, find, interpreter, view
from calipers.isolate.seccomp import call_filter

CHUNK = 1 << 16
MEASURE_EVERY = 0.1  # seconds
END_SECONDS = 5.0  # seconds for the kernel to clear away what was killed


@dataclass(slots=True)
class PipeOutput:
    """What was read from a pipe, and whether there was more."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    cut: bool = False


@dataclass(slots=True)
class PipeInput:
    """What is still to be written to a pipe; ``keep`` leaves it open after the last byte."""

    data: memoryview
    keep: bool


class Pipes:
    """All pipes of one sandbox, served until its outer process is gone."""

    def __init__(self, outer: subprocess.Popen[bytes]) -> None:
        self._outer = outer
        self._pipes: list[tuple[IO[bytes], PipeOutput | PipeInput]] = []

    def read_from(self, pipe: IO[bytes] | None, most: int) -> PipeOutput:
        """Read a pipe to its end, and keep the first ``most`` bytes."""
        heard = PipeOutput(most)
        self._add(pipe, heard)
        return heard

    def write_to(self, pipe: IO[bytes] | None, data: bytes, *, keep: bool = False) -> None:
        """Write to a pipe, as fast as it is read."""
        self._add(pipe, PipeInput(memoryview(data), keep))

    def until(self, deadline: float, too_much: Callable[[], bool], stop: Event | None = None) -> Cause:
        """Serve all pipes until the sandbox ends; returns why it was killed from here, or ''.

        ``too_much`` says, each time it is asked, whether the sandbox holds more memory than it may.
        """
        cause: Cause = ""
        gone = os.pidfd_open(self._outer.pid)
        with selectors.DefaultSelector() as selector, os.fdopen(gone) as ended:
            selector.register(ended, selectors.EVENT_READ)
            for pipe, role in self._pipes:
                selector.register(pipe, _event(role), role)
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
        pipe, role = cast(IO[bytes], key.fileobj), key.data  # we register pipes only, never numbers
        done = _write(key.fd, role) if isinstance(role, PipeInput) else _read(key.fd, role)
        if done:
            selector.unregister(pipe)
            if isinstance(role, PipeOutput) or not role.keep:
                pipe.close()


def end(outer: subprocess.Popen[bytes]) -> None:
    """Kill all of a sandbox and wait until it is gone.

    It is process 1 that is killed: the kernel then ends every other process in there before anybody hears of it.
    """
    if outer.poll() is None:
        for first in children(outer.pid):
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        try:
            outer.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            outer.kill()  # which process 1 does not survive either
    outer.wait()


def _event(role: PipeOutput | PipeInput) -> int:
    return selectors.EVENT_WRITE if isinstance(role, PipeInput) else selectors.EVENT_READ


def _write(pipe: int, text: PipeInput) -> bool:
    try:
        text.data = text.data[os.write(pipe, text.data[:CHUNK]) :]
    except BlockingIOError:
        return False
    except BrokenPipeError:
        return True
    return not text.data


def _read(pipe: int, heard: PipeOutput) -> bool:
    try:
        got = os.read(pipe, CHUNK)
    except BlockingIOError:
        return False
    room = heard.most - len(heard.data)
    heard.data += got[:room]
    heard.cut = heard.cut or len(got) > room
    return not got


Work = Literal["program", "calls"]
"""The file of `inside` that does the job."""

GRACE = 10.0  # seconds beyond its own deadline before process 1 is killed from outside
READY = b"ready\n"
REPORT_BYTES = 64 << 20
BEGIN = """
import marshal, os, sys, types
control, report, proc, *door = map(int, sys.argv[1:])
for group in door:
    try:
        os.write(group, b"0")
    except OSError:
        pass
    os.close(group)
files, job = marshal.load(open(control, "rb", closefd=False))
for name in ("calipers", "calipers.isolate", "calipers.isolate.inside"):
    sys.modules[name] = types.ModuleType(name)
for name, code in files:
    sys.modules[name] = types.ModuleType(name)
    exec(code, sys.modules[name].__dict__)
sys.modules["calipers.isolate.inside.first"].main(job, sys.modules[name].work, control, report, proc)
"""


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a sandbox."""

    report: bytes  # of process 1, without its first line
    stdout: bytes
    stderr: bytes
    cut: bool  # there was more on stdout or stderr than was kept
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

    ``seconds`` is when process 1 should be done by itself, all its work included. ``stop``, once set, ends it at once.
    """
    began = time.monotonic()
    whole = {
        "limits": asdict(limits),
        "environment": ENVIRONMENT,
        "root": os.geteuid() == 0,
        "filter": call_filter() if mechanism.apart else b"",
        "apart": mechanism.apart,
        "view": None if mechanism.shows else entries,
        **job,
    }
    with ExitStack() as stack:
        control, order = _pipe(stack)
        heard, report = _pipe(stack)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, proc)
        most = limits.memory_mb << 20
        fenced = group(most) if mechanism.apart else None
        door = () if fenced is None else (fenced.door,)
        if fenced is not None:
            stack.callback(fenced.close)  # when nobody is left in it
        inherited = (control.fileno(), report.fileno(), proc, *door)
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
        control.close()
        report.close()
        pipes = Pipes(outer)
        pipes.write_to(order, marshal.dumps((_files(work), whole)), keep=True)  # process 1 ends when this pipe does
        pipes.write_to(outer.stdin, stdin)
        streams = [
            pipes.read_from(outer.stdout, limits.output_bytes),
            pipes.read_from(outer.stderr, limits.output_bytes),
        ]
        reported = pipes.read_from(heard, REPORT_BYTES)
        scratch = [target for kind, _, target in entries if kind == "scratch"] if mechanism.apart else []
        meter = Meter(outer.pid, most, scratch, fenced)
        stopped = pipes.until(began + seconds + GRACE, lambda: meter.over(reported.data.startswith(READY)), stop)
        if not stopped and fenced is not None and fenced.exceeded():
            stopped = "memory"  # and all was over before anybody looked
    stdout, stderr = streams
    if not reported.data.startswith(READY) and stopped != "caller":
        why = bytes(reported.data or stderr.data).decode(errors="replace").strip() or f"exit status {outer.returncode}"
        raise SandboxError(f"{mechanism.name} could not create a sandbox: {why.splitlines()[-1]}")
    seconds = time.monotonic() - began
    return Launched(
        bytes(reported.data.removeprefix(READY)),
        bytes(stdout.data),
        bytes(stderr.data),
        stdout.cut or stderr.cut,
        stopped,
        seconds,
    )


@cache
def _files(work: Work) -> list[tuple[str, Any]]:
    """The files of `inside` that a job needs, compiled, in an order in which each finds what it imports."""
    here = Path(__file__).with_name("inside")
    names = ["attend", "program", "first", work]
    return [
        (
            f"calipers.isolate.inside.{name}",
            compile((here / f"{name}.py").read_bytes(), f"<{name}>", "exec", dont_inherit=True),
        )
        for name in names
    ]


def _pipe(stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return stack.enter_context(os.fdopen(read, "rb", 0)), stack.enter_context(os.fdopen(write, "wb", 0))


NONE = Mechanism("none", "")
_forgone: list[Mechanism] = []


def forgo(sandbox: bool = True) -> None:
    """Run without a sandbox from now on if none works here, as ``--unsafe-no-sandbox`` requests.

    Limits of time, of memory per process and of output still hold; nothing else does. False takes it back.
    """
    _forgone[:] = [NONE] if sandbox else []


def probe() -> Mechanism:
    """The best mechanism that works here; `SandboxError` with the reason against each when none does."""
    reasons = []
    for name in NAMES:
        mechanism = attempt(name)
        if isinstance(mechanism, Mechanism):
            return mechanism
        reasons.append(mechanism)
    if _forgone:
        return _forgone[0]
    raise SandboxError(
        f"no sandbox works on this machine ({'; '.join(reasons)}); install bubblewrap, or allow user namespaces,"
        " or use --unsafe-no-sandbox to run model-written code without protection"
    )


@cache
def attempt(name: Name) -> Mechanism | str:
    """A mechanism that works, or why this one does not; tried once per process."""
    mechanism = find(name)
    if mechanism is None:
        return f"{name} is not installed"
    job = {"argv": [interpreter(), "-I", "-S", "-c", ""], "folders": [], "folder": "/tmp", "collect": []}
    limits = Limits()
    try:
        done = launch(mechanism, "program", job, view(limits.disk_mb), limits, seconds=limits.seconds)
    except (SandboxError, OSError) as error:
        return str(error)
    return mechanism if done.report == b"0\n" else f"{name}: Python does not start inside it"
