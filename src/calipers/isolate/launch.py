"""One sandbox from start to end, seen from outside: fed, listened to, measured, and never outlived."""

from __future__ import annotations

import marshal
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import IO, Any, Literal

from calipers.errors import SandboxError
from calipers.isolate.cgroups import group
from calipers.isolate.limits import Cause, Limits
from calipers.isolate.mechanism import Mechanism
from calipers.isolate.memory import Meter
from calipers.isolate.pipes import Talk, end
from calipers.isolate.seccomp import call_filter
from calipers.isolate.view import ENVIRONMENT, Entry, interpreter

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
    """What came out of a sandbox."""

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
    """Do a job in a sandbox and wait until nothing of it is left; `SandboxError` when there was no sandbox.

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
        talk = Talk(outer)
        talk.say(order, marshal.dumps((_files(work), whole)), keep=True)  # process 1 ends when this pipe does
        talk.say(outer.stdin, stdin)
        streams = [talk.hear(outer.stdout, limits.output_bytes), talk.hear(outer.stderr, limits.output_bytes)]
        reported = talk.hear(heard, REPORT_BYTES)
        scratch = [target for kind, _, target in entries if kind == "scratch"] if mechanism.apart else []
        meter = Meter(outer.pid, most, scratch, fenced)
        stopped = talk.until(began + seconds + GRACE, lambda: meter.over(reported.data.startswith(READY)), stop)
        if not stopped and fenced is not None and fenced.exceeded():
            stopped = "memory"  # and all was over before anybody looked
    stdout, stderr = streams
    if not reported.data.startswith(READY) and stopped != "caller":
        why = bytes(reported.data or stderr.data).decode(errors="replace").strip() or f"exit status {outer.returncode}"
        raise SandboxError(f"{mechanism.name} made no sandbox: {why.splitlines()[-1]}")
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
    names = ["attend", "program", "mounts", "privileges", "first", work]
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
