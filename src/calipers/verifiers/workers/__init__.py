"""Sandboxed processes behind a pool of threads: how every verifier that needs one waits for it.

`sandboxed` waits for a process that runs once. A worker process (`WorkerPool`) answers questions, one line of JSON each
way. It is started in the sandbox when first needed and kept, since the libraries it loads take a second; a question
that it does not answer in time is its last. Where there can be no sandbox it is a process of its own with limits
of time and memory: what it works on is data, and nothing in it runs data as a program.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import os
import select
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any, Final, TypeVar

from calipers.errors import VerifierError
from calipers.isolate import Limits, Mechanism, SandboxError
from calipers.isolate.launch import NONE, interpreter, launch, probe, view

MOST: Final = 8  # worker processes of one kind: each holds about 100 MB
LIFE: Final = 3600.0  # seconds; an older one is replaced before its next question
STARTING: Final = 60.0  # seconds for its libraries to load, on a machine that is busy
GLANCE: Final = 0.1  # seconds between two looks at whether it is still there
LARGEST_REPLY: Final = 8 << 20

# The pipes are files that lie among the inputs: a sandbox's own streams are read to their end and then closed.
SERVE: Final = """
import json, sys
pipes, source = sys.argv[1:3]
sys.path[:0] = sys.argv[3:]
there = {"__name__": "worker"}
exec(compile(source, "<worker>", "exec"), there)
there["prepare"]()
with open(pipes + "/replies", "w") as replies, open(pipes + "/questions") as questions:
    print(json.dumps("ready"), file=replies, flush=True)
    for line in questions:
        print(json.dumps(there["answer"](json.loads(line))), file=replies, flush=True)
"""


@dataclass
class WorkerProcess:
    """One process. ``source`` is the text of a module with ``prepare()`` and ``answer(question)``."""

    source: str
    packages: Sequence[str]  # directories that hold what it imports
    memory_mb: int
    began: float = field(default_factory=time.monotonic)
    broken: str = ""  # why it is no more

    def __post_init__(self) -> None:
        self._stop = Event()
        self._folder = TemporaryDirectory(prefix="calipers-")
        pipes = Path(self._folder.name, "pipes")
        pipes.mkdir()
        pipes.chmod(0o755)
        for name in ("questions", "replies"):
            os.mkfifo(pipes / name)
            (pipes / name).chmod(0o666)  # nobody's user too; the folder above is ours alone
        flags = os.O_RDWR | os.O_NONBLOCK  # so that opening waits for nobody
        self._questions, self._replies = (os.open(pipes / name, flags) for name in ("questions", "replies"))
        self._heard = bytearray()
        self._thread = Thread(target=self._run, name="worker-process", daemon=True)
        self._thread.start()

    def ask(self, question: Any, seconds: float, stop: Event) -> Any:
        """The answer; TimeoutError when there is none in time, VerifierError when there will be none."""
        end = time.monotonic() + seconds
        left = memoryview(json.dumps(question).encode() + b"\n")
        while left:
            if self._ready(self._questions, select.POLLOUT, end, stop):
                left = left[os.write(self._questions, left[:4096]) :]  # as much as a pipe that is ready takes
        return self.hear(end, stop)

    def hear(self, end: float, stop: Event) -> Any:
        """The next line it writes."""
        while (cut := self._heard.find(b"\n")) < 0:
            if self._ready(self._replies, select.POLLIN, end, stop):
                self._heard += os.read(self._replies, 1 << 16)
            if len(self._heard) > LARGEST_REPLY:
                raise VerifierError("the verifier process wrote too much output")
        line = bytes(self._heard[:cut])
        del self._heard[: cut + 1]
        return json.loads(line)

    def close(self) -> None:
        """End the process, and leave nothing behind."""
        self._stop.set()
        self._thread.join()
        for pipe in (self._questions, self._replies):
            os.close(pipe)
        self._folder.cleanup()

    def _ready(self, pipe: int, event: int, end: float, stop: Event) -> bool:
        """Wait a little for a pipe; whether it is ready."""
        waiting = select.poll()
        waiting.register(pipe, event)
        if waiting.poll(GLANCE * 1000):
            return True
        if not self._thread.is_alive():
            raise VerifierError(f"the verifier process ended: {self.broken}")
        if stop.is_set() or time.monotonic() > end:
            raise TimeoutError
        return False

    def _run(self) -> None:
        try:
            how = mechanism()
            inputs = self._folder.name
            # at places of their own: an environment may lie below /tmp, which is empty in there
            places = [f"/packages/{number}" for number in range(len(self.packages))]
            entries = [*view(16, inputs=inputs), *zip(("bind",) * len(places), self.packages, places, strict=True)]
            pipes, packages = ("/pipes", places) if how.apart else (f"{inputs}/pipes", self.packages)
            argv = [interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c", SERVE, pipes, self.source, *packages]
            job = {"argv": argv, "folders": [], "folder": "/tmp", "collect": []}
            limits = Limits(seconds=2 * LIFE, memory_mb=self.memory_mb, disk_mb=16)
            done = launch(how, "program", job, entries, limits, seconds=2 * LIFE, stop=self._stop)
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
            self.broken = f"it reached its {done.stopped} limit" if done.stopped else last[:200]
        except (SandboxError, OSError) as error:
            self.broken = str(error)


def cores() -> int:
    """How many processors verifiers may use: those of the machine, or as many as an engine says (CALIPERS_CORES)."""
    lent = os.environ.get("CALIPERS_CORES", "")
    return max(int(lent), 1) if lent.isdecimal() else os.cpu_count() or 1


class WorkerPool:
    """A few processes of one kind, each asked one thing at a time. ``worker`` is the file whose text they run."""

    def __init__(self, worker: Path, packages: Sequence[str], memory_mb: int = 1024) -> None:
        self._worker, self._packages, self._memory_mb = worker, packages, memory_mb
        self._idle: list[WorkerProcess] = []
        self._lock, self._places = Lock(), BoundedSemaphore(min(MOST, cores()))
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def missing(self) -> str:
        """The first package that is not installed, "" when all are."""
        return next((name for name in self._packages if importlib.util.find_spec(name) is None), "")

    def ask(self, question: Any, seconds: float, stop: Event | None = None) -> Any:
        """The answer of a process; VerifierError when there is none within the seconds, which are of its work alone."""
        stop = stop or Event()
        with self._places:
            process = self._take(stop)
            try:
                answer = process.ask(question, seconds, stop)
            except BaseException as error:
                process.close()
                if isinstance(error, TimeoutError):
                    raise VerifierError(f"no verdict within {seconds:g} s") from None
                raise
            with self._lock:
                self._idle.append(process)
            return answer

    async def answer(self, question: Any, seconds: float) -> Any:
        """`ask`, for those who wait in an event loop."""
        return await _in_thread(lambda stop: self.ask(question, seconds, stop))

    def close(self) -> None:
        """End every process that is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def _take(self, stop: Event) -> WorkerProcess:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.broken and time.monotonic() < process.began + LIFE:
            return process
        if process is not None:
            process.close()
        process = WorkerProcess(self._worker.read_text(), directories(self._packages), self._memory_mb)
        try:
            process.hear(time.monotonic() + STARTING, stop)
        except BaseException as error:
            process.close()
            if isinstance(error, TimeoutError):
                raise VerifierError("the verifier process does not start") from None
            raise
        return process

    def _forget(self) -> None:
        """After a fork: the processes are another one's."""
        self._idle, self._lock = [], Lock()
        self._places = BoundedSemaphore(min(MOST, cores()))


def mechanism() -> Mechanism:
    """The sandbox that can be had here, or none at all."""
    with suppress(SandboxError):
        return probe()
    return NONE


def directories(packages: Sequence[str]) -> list[str]:
    """The directories in which packages are installed, each once."""
    specs = [spec for name in packages if (spec := importlib.util.find_spec(name)) is not None and spec.origin]
    return list(dict.fromkeys(_above(spec) for spec in specs))


def _above(spec: Any) -> str:
    """The directory to import a package from."""
    path = Path(spec.origin)
    return str((path.parent if spec.submodule_search_locations else path).parent)


Result = TypeVar("Result")


async def sandboxed(work: Callable[[Event], Result]) -> Result:
    """What came of a process in the sandbox that ``work`` starts and waits for; VerifierError where it cannot be."""
    try:
        return await _in_thread(work)
    except (SandboxError, OSError) as error:
        raise VerifierError(str(error)) from error


async def _in_thread(work: Callable[[Event], Result]) -> Result:
    """Do blocking work on a thread; its event is set when nobody waits for the result any more."""
    stop = Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(), work, stop)
    finally:
        stop.set()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="sandbox")
