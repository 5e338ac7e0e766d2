"""The loop of a live run: workers take outstanding rollouts, call the model, verify the answer, and log it.

::

    outstanding ──► worker ──► client (pace, retries) ──► verifier ──► log ──► those who watch
                      └── as many as calls may be in flight; each takes the next when it is done

The first call goes out alone: a wrong address, key or model ends the run before a second is sent. `finish` calls async
code from synchronous code, also in a notebook that already runs an event loop.

Runs side by side have a thread for each model, in which its benchmarks follow each other::

    model a: benchmark 1 ──► benchmark 2 ──► ...     each run with its own event loop,
    model b: benchmark 1 ──► benchmark 2 ──► ...     its own concurrency and its own rate limits

Signals reach the main thread only, which waits: it passes them on to the loops.
"""

from __future__ import annotations

import asyncio
import queue
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol, TypeVar

from calipers.clients import Callers, Client, Completion, Request
from calipers.clients.pace import Pace, Shut, retry_wait
from calipers.errors import ClientError, VerifierError
from calipers.running import Job
from calipers.running.log import Log
from calipers.running.rollout import Blame, Made, Outstanding, close_all, kept
from calipers.verifiers import Verifier, ready

REFUSALS = 16  # hopeless calls in a row after which nothing more is asked
MOST_ERRORS = 100  # different ones that are remembered
GLANCE = 0.25  # seconds between two looks of those who watch


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run may use."""

    concurrency: int = 32
    retries: int = 8
    cost: float | None = None  # dollars
    seconds: float | None = None


@dataclass(slots=True)
class Status:
    """The progress of a run."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # (outcome, message), the first few of them
    spent: float | None = None
    began: float = field(default_factory=monotonic)
    pace: Pace = field(default_factory=lambda: Pace(1))
    waiting: int = 0  # calls that failed and wait for their next try
    trouble: str = ""  # the kind of the latest such failure
    retries: int = 0  # of failed calls, since this start
    stopped: str = ""  # why no more rollouts are begun; "" while they are

    @property
    def done(self) -> int:
        """The number of finished rollouts."""
        return sum(self.outcomes.values())

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return monotonic() - self.began


class Observer(Protocol):
    """An observer of the run, which may stop it."""

    def settled(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Called for each finished rollout."""
        ...

    def look(self, status: Status) -> str:
        """Called a few times a second; returns a reason to start no more tasks, or ""."""
        ...


class Loop:
    """One run of a client over the outstanding rollouts."""

    def __init__(
        self,
        client: Client,
        verifiers: Mapping[str, Verifier],
        ask: Callable[[Outstanding], Request],
        log: Log,
        *,
        dataset: str,
        model: str,
        status: Status,
        observer: Observer,
        limits: RunLimits,
        endpoint: str | None = None,
        callers: Callers | None = None,
        clock: Callable[[], float] = monotonic,
        dice: random.Random | None = None,
    ) -> None:
        self._client, self._verifiers, self._ask, self._log = client, verifiers, ask, log
        self._dataset, self._model, self._endpoint = dataset, model, endpoint
        self._status, self._observer, self._limits = status, observer, limits
        self._random = dice or random.Random()
        self._workers = min(limits.concurrency, max(status.planned, 1))
        local = endpoint is not None and endpoint.startswith("sha256:")  # and its batches are not to be torn
        self._pace = status.pace = Pace(limits.concurrency, clock, self._random, ramp=not local)
        self._blame = Blame()
        self._outstanding: Iterator[Outstanding] = iter(())
        self._begun, self._last = -1, sys.maxsize  # places in the order: the latest begun, the last to begin
        self._refusals = 0
        self._callers = callers or Callers()  # told how many workers there are
        self._opened = asyncio.Event()  # the first call was answered, well or badly
        self._stopping = asyncio.Event()

    @property
    def begun(self) -> int:
        """How many tasks of the planned order were begun, up to the last one of this start."""
        return self._begun + 1

    async def run(self, outstanding: Iterator[Outstanding]) -> None:
        """Run every outstanding rollout, or as many as the limits, the observer and the user allow.

        SandboxError, before the first call, when a verifier needs a sandbox and there is none; ClientError when the
        very first request shows that no other can succeed; LogError when the log cannot be written.
        """
        self._outstanding = outstanding
        if self._stopping.is_set() or (first := self._next()) is None:
            return
        ready(self._verifiers.values())
        self._callers.begin(1)  # the first call goes out alone
        looking = asyncio.create_task(self._look())
        try:
            async with asyncio.TaskGroup() as workers:
                workers.create_task(self._worker(first))
                for _ in range(self._workers - 1):
                    workers.create_task(self._worker())
        except BaseExceptionGroup as errors:
            raise root_of(errors) from None
        finally:
            looking.cancel()
            await self._log.flush()

    def stop(self, reason: str) -> None:
        """Start no more rollouts; those in flight finish, and those that wait for a retry stay outstanding."""
        self._status.stopped = self._status.stopped or reason
        self._outstanding = iter(())
        self._stopping.set()
        self._pace.shut()

    def stop_between_tasks(self, reason: str) -> None:
        """Start no more tasks; every sample of a started task is run.

        So which tasks are complete at the end depends only on the plan, not on their speed.
        """
        self._status.stopped = self._status.stopped or reason
        self._last = min(self._last, self._begun)

    def _next(self) -> Outstanding | None:
        """The next rollout to make; None when there is none, or it belongs to a task that shall not begin."""
        rollout = next(self._outstanding, None)
        if rollout is None or rollout.position > self._last:
            self._outstanding = iter(())
            return None
        self._begun = rollout.position
        return rollout

    async def _worker(self, first: Outstanding | None = None) -> None:
        try:
            if first is not None:
                await self._rollout(first)
                self._open()  # also where no call was made of it, as the run was stopped: the others wait for this
            else:
                await self._opened.wait()
            while (rollout := self._next()) is not None:
                await self._rollout(rollout)
        finally:
            self._callers.leave()

    def _open(self) -> None:
        """Let the other workers begin."""
        if not self._opened.is_set():
            self._opened.set()
            self._callers.begin(self._workers)

    async def _rollout(self, rollout: Outstanding) -> None:
        request = self._ask(rollout)
        started = datetime.now(UTC)
        try:
            completion, retries = await self._complete(request)
        except Shut:
            return  # the run ended while this one waited: it stays outstanding
        if isinstance(completion, ClientError):
            made = Made(rollout, request, started, error=completion, retries=retries)
        else:
            verdict = error = None
            if rollout.task.verifier is not None:
                try:
                    verdict = await self._blame.judged(self._verifiers[rollout.task.verifier], rollout.task, completion)
                except VerifierError as failed:
                    error = failed
            made = Made(rollout, request, started, completion, verdict, error, retries)
        made, line = kept(made, self._dataset, self._model, datetime.now(UTC), self._endpoint)
        await self._log.append(line)
        self._settle(made)

    async def _complete(self, request: Request) -> tuple[Completion | ClientError, int]:
        """The completion, or the error of the last attempt, and the number of failed attempts before it."""
        tried, turn = 0, self._pace.turn()
        while True:
            try:
                if not self._pace.entered():
                    await self._enter(turn, retrying=tried > 0)
                try:
                    completion = await self._client.complete(request)
                except asyncio.CancelledError:
                    if (worker := asyncio.current_task()) is None or worker.cancelling():
                        raise
                    # Not this worker but something in the client: it may not end the worker, in silence.
                    raise ClientError("the client cancelled the request itself", kind="cancelled") from None
                finally:
                    self._pace.leave()
            except ClientError as error:
                if error.hopeless and not self._opened.is_set():
                    raise
                self._open()
                if error.slow_down:
                    self._pace.too_many(error.wait)
                    self._status.trouble = error.kind
                if not error.retry or tried == self._limits.retries:
                    self._count_refusal(error)
                    return error, tried
                if not error.slow_down:  # else all calls are held back, and this one has its turn before later ones
                    await self._wait(error, tried)
                tried += 1
                self._status.retries += 1
            else:
                self._open()
                self._refusals = 0
                self._pace.succeeded()
                return completion, tried

    async def _enter(self, turn: int, retrying: bool) -> None:
        """Wait for a place, counted among those who wait for another try where it is one."""
        self._status.waiting += retrying
        try:
            await self._pace.enter(turn)
        finally:
            self._status.waiting -= retrying

    def _count_refusal(self, error: ClientError) -> None:
        """Stop when the server refuses every request: the remaining rollouts can run later."""
        self._refusals += error.hopeless
        if self._refusals >= REFUSALS:
            self.stop(f"{self._refusals} requests in a row were refused; the last error: {error}")

    async def _wait(self, error: ClientError, tried: int) -> None:
        """Wait before the next try."""
        self._status.waiting, self._status.trouble = self._status.waiting + 1, error.kind
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), retry_wait(error, tried, self._random))
                raise Shut  # the run ends: this rollout stays outstanding
        finally:
            self._status.waiting -= 1

    def _settle(self, made: Made) -> None:
        status, cost, outcome = self._status, made.cost, made.outcome
        status.outcomes[outcome] += 1
        if made.error is not None and (len(status.errors) < MOST_ERRORS or (outcome, str(made.error)) in status.errors):
            status.errors[outcome, str(made.error)] += 1
        if cost is not None:
            status.spent = (status.spent or 0.0) + cost
        self._observer.settled(made.outstanding.position, made.outstanding.sample, outcome, made.reward)
        if self._limits.cost is not None:
            if cost is None and made.completion is not None:
                self.stop("the cost of a request is unknown, so the cost limit cannot be enforced; give --price")
            elif (status.spent or 0.0) >= self._limits.cost:
                self.stop(f"the cost limit of ${self._limits.cost:g} per start was reached")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(GLANCE)
            if reason := self._observer.look(self._status):
                self.stop_between_tasks(reason)
            if self._limits.seconds is not None and self._status.elapsed >= self._limits.seconds:
                self.stop(f"the time limit of {self._limits.seconds:g} s was reached")


def root_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the workers; the errors of the other workers only follow from it."""
    first = errors.exceptions[0]
    return root_of(first) if isinstance(first, BaseExceptionGroup) else first


T = TypeVar("T")

INTERRUPTED = "interrupted"  # why a run stopped
UNHEARD = 3  # signals that the loop has not heard of: something holds it up that will not end by itself


def conduct(
    loop: Loop, client: Client, log: Log, outstanding: Iterator[Outstanding], verifiers: Iterable[Verifier] = ()
) -> None:
    """Run the loop to its end, whoever calls; Ctrl-C lets it finish what is in flight."""

    async def run_and_close() -> None:
        with interrupts(lambda: loop.stop(INTERRUPTED)):
            try:
                await loop.run(outstanding)
            except asyncio.CancelledError:
                loop.stop(INTERRUPTED)  # twice: what was in flight stays outstanding
            finally:
                with suppress(asyncio.CancelledError):  # a fourth: it waits for nobody but the log
                    await client.close()
                    await close_all(verifiers)
                await log.close()

    finish(run_and_close)


def finish(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; in a thread of its own where this one already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            return runner.run(work())
    thread = ThreadPoolExecutor(1, thread_name_prefix="calipers-run")  # where no loop runs
    try:
        outcome = thread.submit(lambda: finish(work))
        while True:
            try:
                return outcome.result()
            except KeyboardInterrupt:
                if outcome.done() or not _IN_THREADS:
                    raise
                interrupt_threads()  # and wait on: what is in flight may finish, as with Ctrl-C anywhere else
    finally:
        thread.shutdown(wait=False)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, a quarter faster, where somebody has installed it."""
    try:
        import uvloop
    except ImportError:
        return None
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return loop


_IN_THREADS: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
"""The loops that run in other threads than the main one, each with what it does when it is interrupted."""

_INTERRUPTED = threading.Event()
"""Set by a signal until all runs side by side have ended: a loop that begins after the signal ends at once."""


def interrupt_threads() -> None:
    """Tell every loop in another thread what Ctrl-C tells the loop in the main thread."""
    for loop, interrupted in (*_IN_THREADS,):  # which change meanwhile
        with suppress(RuntimeError):  # it has ended meanwhile
            loop.call_soon_threadsafe(interrupted)


@contextmanager
def interrupts(first: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, or a request to terminate, calls ``first``; a second one cancels the task we are in.

    A third may come together with these two, so only a fourth cancels what the task does to end in good order.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    seen = 0

    def interrupted() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            first()
        elif task is not None and (seen == 2 or seen > UNHEARD):
            task.cancel()

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's to handle
        here = (loop, interrupted)
        _IN_THREADS.append(here)
        if _INTERRUPTED.is_set():
            interrupted()
        try:
            yield
        finally:
            _IN_THREADS.remove(here)
        return
    came = 0

    def unheard(number: int, frame: object) -> None:
        """Called at once, wherever we are; the loop hears of a signal only when it has its turn again."""
        nonlocal came
        came += 1
        if came - seen >= UNHEARD:
            raise asyncio.CancelledError  # into the code that holds the loop up: it fails, and the loop goes on

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, interrupted)
        signal.signal(number, unheard)  # beside it: the loop is told by a byte in a pipe, not by this
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)  # which sets Python's own
            signal.signal(number, handler)


IN_THIS_PROCESS = "hf/"
"""Models that share the memory of this process and its devices: one after the other."""


def lanes(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs that run one after the other, for each lane of those that run at the same time.

    A task of a library is loaded with the seeds of the whole process, so that such jobs are one lane.
    """
    if any(job.from_library for job in jobs):
        return [list(jobs)]
    by_model: dict[str, list[Job]] = {}
    for job in jobs:
        lane = IN_THIS_PROCESS if job.model.startswith(IN_THIS_PROCESS) else job.model
        by_model.setdefault(lane, []).append(job)
    return list(by_model.values())


def side_by_side(jobs: Sequence[Job], work: Callable[[Job], T]) -> Iterator[tuple[Job, T | BaseException]]:
    """Do the work of each job, lane by lane at the same time; what each comes to, as it ends.

    Ctrl-C, or a request to terminate, lets all that is in flight finish, and begins nothing more; a second one drops
    what is in flight. What a job raises is its outcome here, and the others go on.
    """
    ended: queue.SimpleQueue[tuple[Job, T | BaseException] | None] = queue.SimpleQueue()

    def run_lane(some: Sequence[Job]) -> None:
        try:
            for job in some:
                if _INTERRUPTED.is_set():
                    break
                try:
                    ended.put((job, work(job)))
                except BaseException as error:  # told to whoever waits, as from a call
                    ended.put((job, error))
        finally:
            ended.put(None)

    threads = [threading.Thread(target=run_lane, args=(some,), name="calipers-lane") for some in lanes(jobs)]
    with _signals():
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            outcome = ended.get()
            if outcome is None:
                left -= 1
            else:
                yield outcome
        for thread in threads:
            thread.join()


@contextmanager
def _signals() -> Iterator[None]:
    """SIGINT and SIGTERM go to the loops in the threads, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def passed_on(number: int, frame: object) -> None:
        _INTERRUPTED.set()
        interrupt_threads()

    before = {number: signal.signal(number, passed_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        _INTERRUPTED.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
