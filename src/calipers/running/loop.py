"""The loop of a live run: workers take outstanding rollouts, call the model, verify the answer, and log it.

::

    outstanding ──► worker ──► client (pace, retries) ──► verifier ──► log ──► observer
                      └── as many workers as calls may be in flight; each takes the next rollout when it is free

The first request is sent alone, so that a wrong address, key or model ends the run before a second one. `finish` calls
async code from synchronous code, also in a notebook that already runs an event loop.

Concurrent runs have a thread for each model, in which its benchmarks run one after the other::

    model a: benchmark 1 ──► benchmark 2 ──► ...     each run has its own event loop,
    model b: benchmark 1 ──► benchmark 2 ──► ...     its own concurrency and its own rate limits

Only the main thread receives signals; it waits for the runs and passes signals on to their event loops.
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
from typing import Any, NamedTuple, Protocol, TypeVar

from calipers.clients import Callers, Client, Completion, Request, is_local
from calipers.clients.pace import Pace, Shut, retry_wait
from calipers.errors import ClientError, VerifierError
from calipers.running import Job
from calipers.running.log import Log
from calipers.running.rollout import Blame, Finished, Outstanding, as_logged, close_all
from calipers.verifiers import Verifier, ready
from calipers.verifiers.reasoning import split_of

REFUSALS = 16  # hopeless calls in a row after which the run stops
MOST_ERRORS = 100  # maximum number of different errors that are counted
GLANCE = 0.25  # seconds between two calls of the observer
PATIENCE = 75.0  # seconds since an answer in which rejected requests are retried: a limit per minute, and a pause


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run."""

    concurrency: int = 32
    retries: int = 8
    cost: float | None = None  # dollars
    seconds: float | None = None


@dataclass(slots=True)
class Status:
    """The progress of a run."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (outcome, message), at most MOST_ERRORS
    spent: float | None = None  # dollars
    began: float = field(default_factory=monotonic)
    pace: Pace = field(default_factory=lambda: Pace(1))
    waiting: int = 0  # failed calls that wait for a retry
    trouble: str = ""  # the kind of the latest such failure
    retries: int = 0  # retries since this start
    completions: int = 0
    splits: Counter[str] = field(default_factory=Counter)  # completions with reasoning split off, by its marker
    stopped: str = ""  # the reason why no more rollouts are begun; "" if they are

    @property
    def done(self) -> int:
        """The number of finished rollouts."""
        return sum(self.outcomes.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return monotonic() - self.began


class Failure(NamedTuple):
    """The error of the last try of a request."""

    error: ClientError
    before_answer: bool  # no try was accepted, so that no answer can be the cause


class Observer(Protocol):
    """An observer of the run, which may stop it."""

    def settled(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Called for each finished rollout."""

    def look(self, status: Status) -> str:
        """Called a few times a second; returns a reason to start no more tasks, or ""."""


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
        self._random, self._clock = dice or random.Random(), clock
        self._workers = min(limits.concurrency, max(status.planned, 1))
        local = endpoint is not None and endpoint.startswith(
            "sha256:"
        )  # a ramp would split the batches of a local model
        self._pace = status.pace = Pace(limits.concurrency, clock, self._random, ramp=not local)
        self._blame = Blame()
        self._outstanding: Iterator[Outstanding] = iter(())
        self._begun, self._last = -1, sys.maxsize  # positions of tasks: the latest begun, the last that may begin
        self._refusals = 0
        self._sent = self._answered = 0  # numbers of requests: the last one sent, the latest of those answered
        self._patient_until = clock() + PATIENCE
        self._callers = callers or Callers()  # gets the number of workers
        self._opened = asyncio.Event()  # set when the first call has ended in any way
        self._stopping = asyncio.Event()

    @property
    def begun(self) -> int:
        """The number of tasks in the planned order up to the last one that was begun."""
        return self._begun + 1

    async def run(self, outstanding: Iterator[Outstanding]) -> None:
        """Run every outstanding rollout, or as many as the limits, the observer and the user allow.

        SandboxError, before the first call, if a verifier needs a sandbox and there is none; ClientError if the
        first request shows that no other can succeed; LogError if the log cannot be written.
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
        """Start no more tasks; every sample of a started task is still run.

        So the tasks that are complete at the end depend only on the plan, not on their speed.
        """
        self._status.stopped = self._status.stopped or reason
        self._last = min(self._last, self._begun)

    def _next(self) -> Outstanding | None:
        """The next rollout to run; None if there is none, or if no more tasks may begin."""
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
                self._open()  # also if the run was stopped before its call, because the other workers wait for this
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
            return  # the run ended while this rollout waited: it stays outstanding
        if isinstance(completion, Failure):
            lost, error = completion.before_answer, completion.error
            finished = Finished(rollout, request, started, error=error, retries=retries, before_answer=lost)
        else:
            verdict = failure = split = None
            if rollout.task.verifier is not None:
                split = split_of(rollout.task, completion.text)
                try:
                    verdict = await self._blame.judged(self._verifiers[rollout.task.verifier], rollout.task, completion)
                except VerifierError as failed:
                    failure = failed
            finished = Finished(rollout, request, started, completion, verdict, failure, retries, split=split)
        finished, line = as_logged(finished, self._dataset, self._model, datetime.now(UTC), self._endpoint)
        if self._log.behind:
            await self._log.append(line)
        else:
            self._log.put(line)  # without waiting, and without the cost of a coroutine
        self._settle(finished)

    async def _complete(self, request: Request) -> tuple[Completion | Failure, int]:
        """The completion, or the error of the last try; and the number of failed tries before it.

        A limit per minute may reject all requests for a minute. So a rejection because of too many requests does not
        use up a try if the server has answered no request since, and it has answered one within `PATIENCE`.
        """
        tried = used = last = 0  # failed tries, those of them that count, and the number of the last one's request
        accepted = False  # whether a failed try may have been accepted, so that its answer may be the cause
        turn = self._pace.turn()
        while True:
            try:
                if not self._pace.entered():
                    await self._enter(turn, retrying=tried > 0)
                number = self._sent = self._sent + 1
                try:
                    completion = await self._client.complete(request)
                except asyncio.CancelledError:
                    if (worker := asyncio.current_task()) is None or worker.cancelling():
                        raise
                    # The client's code was cancelled, not this worker: without an error, the worker would end silently.
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
                accepted = accepted or not error.before_answer
                counts = not error.slow_down or self._answered > (last or number)
                at_limit = tried and not counts and self._clock() < self._patient_until
                if not error.retry or (not at_limit and (used if counts else tried) >= self._limits.retries):
                    self._count_refusal(error)
                    return Failure(error, before_answer=not accepted), tried
                if not error.slow_down:  # after "slow down", all calls are paused, and this one has its turn first
                    await self._wait(error, tried)
                tried, used, last = tried + 1, used + counts, number
                self._status.retries += 1
            else:
                self._open()
                self._refusals, self._answered = 0, max(self._answered, number)
                self._patient_until = self._clock() + PATIENCE
                self._pace.succeeded()
                return completion, tried

    async def _enter(self, turn: int, retrying: bool) -> None:
        """Wait for a slot; a retry is counted in the status as waiting."""
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
                raise Shut  # the run has ended: this rollout stays outstanding
        finally:
            self._status.waiting -= 1

    def _settle(self, finished: Finished) -> None:
        status, cost, outcome = self._status, finished.cost, finished.outcome
        status.outcomes[outcome] += 1
        if finished.completion is not None:
            status.completions += 1
        if finished.split is not None:
            status.splits[finished.split.marker] += 1
        if finished.error is not None:
            error = outcome, str(finished.error)
            if len(status.errors) < MOST_ERRORS or error in status.errors:
                status.errors[error] += 1
        if cost is not None:
            status.spent = (status.spent or 0.0) + cost
        self._observer.settled(finished.outstanding.position, finished.outstanding.sample, outcome, finished.reward)
        if self._limits.cost is not None:
            if cost is None and finished.completion is not None:
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
    """The first error in a group, which ended the workers; the errors of the other workers are its consequences."""
    first = errors.exceptions[0]
    return root_of(first) if isinstance(first, BaseExceptionGroup) else first


T = TypeVar("T")

INTERRUPTED = "interrupted"  # the reason of a run that was stopped by a signal
UNHEARD = 3  # unhandled signals after which the event loop is assumed to be blocked


def conduct(
    loop: Loop, client: Client, log: Log, outstanding: Iterator[Outstanding], verifiers: Iterable[Verifier] = ()
) -> None:
    """Run the loop to its end, from synchronous code; after Ctrl-C, rollouts in flight are finished."""

    async def run_and_close() -> None:
        with interrupts(lambda: loop.stop(INTERRUPTED)):
            try:
                await loop.run(outstanding)
            except asyncio.CancelledError:
                loop.stop(INTERRUPTED)  # the second signal: rollouts in flight stay outstanding
            finally:
                with suppress(asyncio.CancelledError):  # the fourth signal: only the log is closed
                    await client.close()
                    await close_all(verifiers)
                await log.close()

    finish(run_and_close)


def finish(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; in a new thread if this thread already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            return runner.run(work())
    thread = ThreadPoolExecutor(1, thread_name_prefix="calipers-run")
    try:
        outcome = thread.submit(lambda: finish(work))
        while True:
            try:
                return outcome.result()
            except KeyboardInterrupt:
                if outcome.done() or not _IN_THREADS:
                    raise
                interrupt_threads()  # and keep waiting, because rollouts in flight are finished after Ctrl-C
    finally:
        thread.shutdown(wait=False)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop, which is a quarter faster, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return loop


_IN_THREADS: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
"""The event loops in threads other than the main thread, each with its function to call when interrupted."""

_INTERRUPTED = threading.Event()
"""Set by a signal until all concurrent runs have ended: a run that begins after the signal ends at once."""


def interrupt_threads() -> None:
    """Interrupt every event loop in another thread, as Ctrl-C does in the main thread."""
    for loop, interrupted in (*_IN_THREADS,):  # a copy, because the list may change meanwhile
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(interrupted)


@contextmanager
def interrupts(first: Callable[[], None]) -> Iterator[None]:
    """A context in which the first SIGINT or SIGTERM calls ``first``, and the second cancels the current task.

    A third signal may come together with these two, so only the fourth cancels the task's cleanup.
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

    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        entry = (loop, interrupted)
        _IN_THREADS.append(entry)
        if _INTERRUPTED.is_set():
            interrupted()
        try:
            yield
        finally:
            _IN_THREADS.remove(entry)
        return
    received = 0

    def break_blocked_loop(number: int, frame: object) -> None:
        """Python calls this at once, wherever the code is; the event loop handles a signal only at its next turn."""
        nonlocal received
        received += 1
        if received - seen >= UNHEARD:
            raise asyncio.CancelledError  # in the code that blocks the loop: it fails, and the loop continues

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, interrupted)
        signal.signal(number, break_blocked_loop)  # additionally: the loop gets the signal as a byte in a pipe
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)  # this sets Python's default handler
            signal.signal(number, handler)


def lanes(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs grouped into lanes: lanes run concurrently, and the jobs of a lane one after the other.

    Local models, which share this process and its devices, are one lane. If a job has a task of a library, all jobs are
    one lane, because loading the task sets the seeds of the process.
    """
    if any(job.from_library for job in jobs):
        return [list(jobs)]
    by_model: dict[str, list[Job]] = {}
    for job in jobs:
        by_model.setdefault("" if is_local(job.model) else job.model, []).append(job)
    return list(by_model.values())


def side_by_side(jobs: Sequence[Job], work: Callable[[Job], T]) -> Iterator[tuple[Job, T | BaseException]]:
    """Do the work of all jobs, with lanes running concurrently; yield each job with its result when it ends.

    After SIGINT or SIGTERM, rollouts in flight are finished and no more are begun; a second signal drops those in
    flight. If a job raises an exception, that is its result, and the other jobs continue.
    """
    results: queue.SimpleQueue[tuple[Job, T | BaseException] | None] = queue.SimpleQueue()

    def run_lane(lane: Sequence[Job]) -> None:
        try:
            for job in lane:
                if _INTERRUPTED.is_set():
                    break
                try:
                    results.put((job, work(job)))
                except BaseException as error:  # the consumer of the results handles it
                    results.put((job, error))
        finally:
            results.put(None)

    threads = [threading.Thread(target=run_lane, args=(lane,), name="calipers-lane") for lane in lanes(jobs)]
    with _signals():
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            result = results.get()
            if result is None:
                running -= 1
            else:
                yield result
        for thread in threads:
            thread.join()


@contextmanager
def _signals() -> Iterator[None]:
    """In the main thread, a context that passes SIGINT and SIGTERM on to the event loops in other threads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, frame: object) -> None:
        _INTERRUPTED.set()
        interrupt_threads()

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        _INTERRUPTED.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
