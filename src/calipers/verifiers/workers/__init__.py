"""Sandboxed processes for verifiers, which wait for them on a pool of threads.

`sandboxed` runs a process once. A worker process (`WorkerPool`) answers questions, one line of JSON each way. It is
started in the sandbox when first needed and kept, because loading its libraries takes a second; if it does not answer a
question in time, it is ended. If there is no sandbox, it is an ordinary process with limits of time and memory, which
is acceptable because it works on data, and runs no data as a program.
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

MOST: Final = 8  # worker processes of one kind; each holds about 100 MB
MEMORY_MB: Final = 1024  # limit of each
LIFE: Final = 3600.0  # seconds; an older process is replaced before its next question
STARTING: Final = 60.0  # seconds for its libraries to load on a busy machine
GLANCE: Final = 0.1  # seconds between two checks whether it is still alive
LARGEST_REPLY: Final = 8 << 20  # bytes

# The pipes are named pipes among the inputs, because a sandbox reads its standard streams to their end.
SERVE: Final = """
import json, sys
pipes, source = sys.argv[1:3]
sys.path[:0] = sys.argv[3:]
worker = {"__name__": "worker"}
exec(compile(source, "<worker>", "exec"), worker)
worker["prepare"]()
with open(pipes + "/replies", "w") as replies, open(pipes + "/questions") as questions:
    print(json.dumps("ready"), file=replies, flush=True)
    for line in questions:
        print(json.dumps(worker["answer"](json.loads(line))), file=replies, flush=True)
"""


@dataclass
class WorkerProcess:
    """One worker process. ``source`` is the text of a module with ``prepare()`` and ``answer(question)``."""

    source: str
    packages: Sequence[str]  # directories of the packages that it imports
    began: float = field(default_factory=time.monotonic)
    broken: str = ""  # the reason why it ended

    def __post_init__(self) -> None:
        self._stop = Event()
        self._folder = TemporaryDirectory(prefix="calipers-")
        pipes = Path(self._folder.name, "pipes")
        pipes.mkdir()
        pipes.chmod(0o755)
        for name in ("questions", "replies"):
            os.mkfifo(pipes / name)
            (pipes / name).chmod(0o666)  # for the user nobody, too; only we can enter the folder above
        flags = os.O_RDWR | os.O_NONBLOCK  # so that opening does not wait for the other end
        self._questions, self._replies = (os.open(pipes / name, flags) for name in ("questions", "replies"))
        self._received = bytearray()
        self._thread = Thread(target=self._run, name="worker-process", daemon=True)
        self._thread.start()

    def ask(self, question: Any, seconds: float, stop: Event) -> Any:
        """The answer to a question; TimeoutError if it does not come in time, VerifierError if the process ended."""
        end = time.monotonic() + seconds
        unsent = memoryview(json.dumps(question).encode() + b"\n")
        while unsent:
            if self._ready(self._questions, select.POLLOUT, end, stop):
                unsent = unsent[os.write(self._questions, unsent[:4096]) :]  # a ready pipe takes 4096 bytes at once
        return self.receive(end, stop)

    def receive(self, end: float, stop: Event) -> Any:
        """The value of the next line that the process writes."""
        while (cut := self._received.find(b"\n")) < 0:
            if self._ready(self._replies, select.POLLIN, end, stop):
                self._received += os.read(self._replies, 1 << 16)
            if len(self._received) > LARGEST_REPLY:
                raise VerifierError("the verifier process wrote too much output")
        line = bytes(self._received[:cut])
        del self._received[: cut + 1]
        return json.loads(line)

    def close(self) -> None:
        """End the process, and remove its files."""
        self._stop.set()
        self._thread.join()
        for pipe in (self._questions, self._replies):
            os.close(pipe)
        self._folder.cleanup()

    def _ready(self, pipe: int, event: int, end: float, stop: Event) -> bool:
        """Wait a moment for a pipe; returns whether it is ready."""
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
            sandbox = mechanism()
            inputs = self._folder.name
            # bound to paths of their own, because an environment may be below /tmp, which is empty in the sandbox
            paths = [f"/packages/{number}" for number in range(len(self.packages))]
            entries = [*view(16, inputs=inputs), *zip(("bind",) * len(paths), self.packages, paths, strict=True)]
            pipes, packages = ("/pipes", paths) if sandbox.apart else (f"{inputs}/pipes", self.packages)
            argv = [interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c", SERVE, pipes, self.source, *packages]
            job = {"argv": argv, "folders": [], "folder": "/tmp", "collect": []}
            limits = Limits(seconds=2 * LIFE, memory_mb=MEMORY_MB, disk_mb=16)
            launched = launch(sandbox, "program", job, entries, limits, seconds=2 * LIFE, stop=self._stop)
            last_line = (launched.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
            self.broken = f"it reached its {launched.stopped} limit" if launched.stopped else last_line[:200]
        except (SandboxError, OSError) as error:
            self.broken = str(error)


def cores() -> int:
    """The number of processors that verifiers may use: those of the machine, or as set by CALIPERS_CORES."""
    assigned = os.environ.get("CALIPERS_CORES", "")
    return max(int(assigned), 1) if assigned.isdecimal() else os.cpu_count() or 1


class WorkerPool:
    """A pool of worker processes of one kind. ``worker`` is the file whose text they run."""

    def __init__(self, worker: Path, packages: Sequence[str]) -> None:
        self._worker, self._packages = worker, packages
        self._idle: list[WorkerProcess] = []
        self._lock, self._places = Lock(), BoundedSemaphore(min(MOST, cores()))
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def missing(self) -> str:
        """The first package that is not installed; "" if all are."""
        return next((name for name in self._packages if importlib.util.find_spec(name) is None), "")

    def ask(self, question: Any, seconds: float, stop: Event | None = None) -> Any:
        """The answer of a process; VerifierError if its work takes longer than ``seconds`` (without waiting for it)."""
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
        """As `ask`, from an event loop."""
        return await _in_thread(lambda stop: self.ask(question, seconds, stop))

    def close(self) -> None:
        """End all idle processes."""
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
        process = WorkerProcess(self._worker.read_text(), directories(self._packages))
        try:
            process.receive(time.monotonic() + STARTING, stop)
        except BaseException as error:
            process.close()
            if isinstance(error, TimeoutError):
                raise VerifierError("the verifier process does not start") from None
            raise
        return process

    def _forget(self) -> None:
        """Reset the pool after a fork, because the processes belong to the parent."""
        self._idle, self._lock = [], Lock()
        self._places = BoundedSemaphore(min(MOST, cores()))


def mechanism() -> Mechanism:
    """The sandbox that works here, or `NONE`."""
    with suppress(SandboxError):
        return probe()
    return NONE


def directories(packages: Sequence[str]) -> list[str]:
    """The distinct directories in which packages are installed."""
    specs = [spec for name in packages if (spec := importlib.util.find_spec(name)) is not None and spec.origin]
    return list(dict.fromkeys(_above(spec) for spec in specs))


def _above(spec: Any) -> str:
    """The directory from which a package is imported."""
    path = Path(spec.origin)
    return str((path.parent if spec.submodule_search_locations else path).parent)


Result = TypeVar("Result")


async def sandboxed(work: Callable[[Event], Result]) -> Result:
    """The result of ``work``, which runs a process in the sandbox, on a thread; VerifierError if it cannot run."""
    try:
        return await _in_thread(work)
    except (SandboxError, OSError) as error:
        raise VerifierError(str(error)) from error


async def _in_thread(work: Callable[[Event], Result]) -> Result:
    """The result of blocking work on a thread; its event is set once the caller has stopped waiting."""
    stop = Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(), work, stop)
    finally:
        stop.set()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="sandbox")
