"""Ray clusters: the connection, and workers that process items, one worker on each machine.

::

    call(item) ──► queue ──► the least loaded worker ──► exchanged in batches ──► result
                    ▲           └── lost: its machine died, its process died, or it stopped answering
                    └── repeated ─────┘
                          └──► the third time alone, on a worker of its own
                                 └──► lost again: this item ends workers, and the error names it

The number of items in work at once is limited to a number of places, which are shared among all workers. A worker that
joins gets only places that other workers have given up, so that the limit always holds. Machines that join the cluster
are used; machines that leave are forgotten. EngineError if the cluster itself is lost.

A worker is an actor on one machine, which processes items and keeps the results until they are collected::

    exchange(batch, terms) ──► at most ``places`` at once ──► finished ──► the answer to this or the next exchange
                                                              └── kept until collected, so a slow log slows the worker

The work itself is a handler, given as ``module:object``: a callable that makes, from a setup, an object with
``handle(item)``.
"""

from __future__ import annotations

import asyncio
import atexit
import heapq
import logging
import os
import pickle
import queue
import re
import socket
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

from calipers.clients.python import CallThread
from calipers.errors import CalipersError, EngineError, InputError
from calipers.names import load
from calipers.reports.figures import counted

LOOPBACK: Final = ("127.0.0.1", "localhost")
CONNECTING: Final = 10.0  # seconds
LEAVING: Final = 5.0  # seconds
GONE: Final = 10  # seconds for which the head node may refuse connections, as it may be restarting
SILENCE: Final = 60.0  # seconds for which the head node may not answer, as it may be busy
RESUME: Final = "what was finished is kept: run the same command again to resume"


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address; "" is the address in RAY_ADDRESS, else a new cluster here.

    InputError if there is no such cluster, or Ray is not installed.
    """
    # Ray itself would exit a driver that lost its cluster; a long timeout lets us exit, with our own exit code
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    head_address = address or os.environ.get("RAY_ADDRESS", "")
    if head_address.rpartition(":")[0] in LOOPBACK:
        # else Ray replaces 127.0.0.1 by another address of this machine, on which such a cluster does not listen
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError.at("--engine", f"ray is not installed ({error.name})", "install calipers[ray]") from None
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    settings |= {"address": head_address} if head_address else {"address": "local", "include_dashboard": False}
    if ray.is_initialized():  # by our caller
        yield ray
        return
    try:
        if (head := re.fullmatch(r"([^/:]+):(\d+)", head_address)) is not None:  # Ray itself would try for minutes
            socket.create_connection((head[1], int(head[2])), CONNECTING).close()
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"there is no Ray cluster at {head_address}" if head_address else "no Ray cluster can be started"
        raise InputError.at("--engine", f"{problem} ({reason})", "expected the address of a head node") from None
    with suppress(Exception):  # silences Ray's own logs; it is a private interface, which may change
        from ray._private import ray_logging

        ray_logging.global_worker_stdstream_dispatcher.emit = lambda data: None
    try:
        yield ray
    except EngineError:
        atexit.unregister(ray.shutdown)  # would wait for a cluster that is gone
        raise
    except BaseException:
        _leave(ray)
        raise
    _leave(ray)


def nodes(ray: Any) -> dict[str, int]:
    """The machines that take work, with their numbers of processors; EngineError if the cluster does not answer.

    Without a head node, the call to Ray would block forever, so it is made in a thread that may be abandoned.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(ray.nodes())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="ray-nodes", daemon=True).start()
    refused, began = 0, monotonic()
    while True:
        try:
            listed = answers.get(timeout=1.0)
            break
        except queue.Empty:
            refused = refused + 1 if _refuses(ray) else 0
        if refused >= GONE or monotonic() - began >= SILENCE:
            raise lost("its head node does not answer")
    if isinstance(listed, Exception):
        raise lost(listed) from None
    alive = {node["NodeID"]: node["Resources"] for node in listed if node["Alive"]}
    return {name: int(resources["CPU"]) for name, resources in alive.items() if resources.get("CPU", 0) >= 1}


def _refuses(ray: Any) -> bool:
    """Whether connections to the head node are refused."""
    try:
        host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
        socket.create_connection((host, int(port)), CONNECTING).close()
    except ConnectionRefusedError:
        return True
    except Exception:  # any error of Ray, or no answer, which proves nothing
        return False
    return False


def _leave(ray: Any) -> None:
    """Leave a cluster, without waiting for one that is gone."""

    def leave() -> None:
        with suppress(Exception):
            ray.shutdown()

    leaving = threading.Thread(target=leave, name="ray-shutdown", daemon=True)
    leaving.start()
    leaving.join(LEAVING)
    if leaving.is_alive():
        atexit.unregister(ray.shutdown)  # it would block again at the end of the process


def lost(error: BaseException | str) -> EngineError:
    """The error for a cluster that is gone."""
    return EngineError(f"--engine: the Ray cluster was lost ({' '.join(str(error).split())[:200]}); {RESUME}")


POLL: Final = 1.0  # seconds after which a worker sends an empty answer, to show that it is alive
# A message costs a millisecond or two on both sides. So a worker collects results before it answers: for MOMENT, and up
# to LONGEST while it has enough items waiting.
MOMENT: Final = 0.01  # seconds
LONGEST: Final = 0.1  # seconds
CORES: Final = "CALIPERS_CORES"  # the number of processors that the verifiers of a process may use
TRIES: Final = 3  # workers that may be lost with one item
AHEAD: Final = 2  # items that wait at a worker for each item in work, so that the worker never waits for us
LOOK: Final = 1.0  # seconds between two queries for the machines
PATIENCE: Final = float(os.environ.get("CALIPERS_RAY_PATIENCE", "60"))  # seconds that a worker may take to answer
STARTING: Final = 300.0  # seconds for a worker to start, as it loads a few hundred files, perhaps over a network


class Terms(NamedTuple):
    """The amount of work that a worker may hold. Later terms have a higher number."""

    number: int
    places: int  # items in work at once
    capacity: int  # all items; those beyond it that are not begun yet are returned


class WorkerReply(NamedTuple):
    """A worker's answer to an exchange."""

    results: list[tuple[int, Any]]  # (number of an item, its result)
    returned: list[int]  # numbers of items that were not begun
    terms: int  # the number of the terms in effect
    in_use: int  # places that are taken, or may be taken at any time


class Handler(Protocol):
    """The work of a worker."""

    notes: list[str]

    async def handle(self, item: Any) -> Any:
        """The result of an item; raises only errors that end all work."""

    async def close(self) -> None:
        """Close connections."""


class RemoteWorker:
    """The actor on a machine; `RemoteWorkers` makes one for each machine."""

    def __init__(self, maker: str, setup: bytes, folder: str, environment: Mapping[str, str], cores: int) -> None:
        os.environ[CORES] = str(cores)
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._maker, self._setup, self._folder = maker, setup, folder
        self._handler: Handler | None = None
        self._waiting: deque[tuple[int, Any]] = deque()
        self._finished: list[tuple[int, Any]] = []
        self._returned: list[int] = []
        self._news = asyncio.Event()  # set when there is something to answer
        self._terms = Terms(-1, 0, 0)
        self._working: set[asyncio.Task[None]] = set()

    async def hello(self) -> BaseException | None:
        """Make the handler; returns the error, or None."""
        try:
            if os.path.isdir(self._folder):
                os.chdir(self._folder)  # so that relative paths mean the same as for the user
            self._handler = load(self._maker)(pickle.loads(self._setup))
        except CalipersError as error:
            return error
        except Exception:
            return CalipersError(f"a worker cannot begin: {traceback.format_exc(limit=-1).strip().splitlines()[-1]}")
        return None

    async def give(self, batch: bytes, terms: Terms) -> None:
        """Accept numbered items, and new terms."""
        self._waiting.extend(pickle.loads(batch))
        if terms.number > self._terms.number:
            self._terms = terms
            self._news.set()
        self._start()
        while self._waiting and len(self._waiting) + len(self._working) > self._terms.capacity:
            self._returned.append(self._waiting.pop()[0])
            self._news.set()

    async def exchange(self, batch: bytes, terms: Terms) -> bytes:
        """Accept items, and answer with the results not collected yet; after POLL, also with an empty answer."""
        await self.give(batch, terms)
        try:
            await asyncio.wait_for(self._news.wait(), POLL)
        except TimeoutError:
            return self._answer()
        until = monotonic() + LONGEST
        await asyncio.sleep(MOMENT)
        while 2 * len(self._waiting) > self._terms.places and monotonic() < until:
            await asyncio.sleep(MOMENT)
        return self._answer()

    async def close(self) -> list[str]:
        """End the work; returns the notes of the handler."""
        self._waiting.clear()
        for task in self._working:
            task.cancel()
        if self._handler is None:
            return []
        notes = list(self._handler.notes)
        await self._handler.close()
        return notes

    def _answer(self) -> bytes:
        self._news.clear()
        results, self._finished = self._finished, []
        returned, self._returned = self._returned, []
        in_use = max(self._terms.places, len(self._working))
        return pickle.dumps((results, returned, self._terms.number, in_use), protocol=5)

    def _start(self) -> None:
        """Start waiting items while there are free places."""
        while self._waiting and len(self._working) < self._terms.places:
            task = asyncio.create_task(self._work(*self._waiting.popleft()))
            self._working.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._start()

    async def _work(self, number: int, item: Any) -> None:
        try:
            if self._handler is None:
                raise RuntimeError("a worker was given work before it was ready")
            result = await self._handler.handle(item)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            result = error
        self._finished.append((number, result))
        self._news.set()


NOTHING: Final = Terms(0, 0, 0)


class Lost(Exception):
    """An item with which TRIES workers were lost."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call whose result is outstanding."""

    number: int
    item: Any
    result: asyncio.Future[Any]
    lost: int = 0  # workers that were lost with the item


@dataclass(slots=True, eq=False)
class _WorkerState:
    """The state of a worker, as known to the driver."""

    node: str
    actor: Any
    terms: Terms = NOTHING
    in_use: int = 0  # places that it may have taken; more than its terms allow until it finishes items begun before
    ready: bool = False
    exchanging: bool = False
    calls: dict[int, _Call] = field(default_factory=dict)  # all calls assigned to it
    outbox: list[_Call] = field(default_factory=list)  # the calls not sent to it yet
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def load(self) -> float:
        """The share of its room that is used."""
        return len(self.calls) / self.terms.capacity if self.terms.capacity else 1.0

    def take_message(self) -> tuple[bytes, Terms]:
        """The next message to the worker: the items in the outbox, which is emptied, and the terms."""
        batch, self.outbox = self.outbox, []
        return pickle.dumps([(call.number, call.item) for call in batch], protocol=5), self.terms


class RemoteWorkers:
    """All workers of a cluster; used within one event loop."""

    def __init__(self, ray: Any, maker: str, setup: Any, *, places: int, environment: Mapping[str, str]) -> None:
        self._ray, self._maker, self._setup = ray, maker, pickle.dumps(setup, protocol=5)
        self._places, self._environment = places, dict(environment)
        self._states: dict[str, _WorkerState] = {}  # node -> its worker, the oldest first
        self._calls: dict[int, _Call] = {}  # all calls
        self._queue: deque[_Call] = deque()  # the calls that are not assigned to a worker
        self._numbers = 0
        self._failed: BaseException | None = None
        self._asking = CallThread("ray-nodes")
        self._watching: asyncio.Task[None] | None = None
        self._dealing = False
        self._freed = asyncio.Event()  # set when a place may have become free
        self._suspects: deque[_Call] = deque()  # calls to be tried alone
        self._trying: asyncio.Task[None] | None = None
        self._reserved = 0  # places of the worker that tries them
        self.asked_again: Counter[str] = Counter()  # reason for the loss of a worker -> items that were repeated
        self.notes: list[str] = []

    async def call(self, item: Any) -> tuple[Any, int]:
        """The result of an item, and the number of workers lost with it; `Lost` if there is no result."""
        if self._failed is not None:
            raise self._failed
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        call = _Call(self._numbers, item, asyncio.get_running_loop().create_future())
        self._numbers += 1
        self._calls[call.number] = call
        self._queue.append(call)
        self._deal_soon()
        try:
            result = await call.result
        finally:
            del self._calls[call.number]
        if isinstance(result, BaseException):
            raise result
        return result, call.lost

    async def close(self) -> None:
        """End all workers, and collect their notes."""
        for task in (self._watching, self._trying):
            if task is not None:
                task.cancel()
        self._asking.close()
        for worker in self._states.values():
            for task in worker.tasks:
                task.cancel()
        ready = [worker for worker in self._states.values() if worker.ready]
        if self._failed is None:
            closing = [asyncio.wait_for(_answer(worker.actor.close.remote()), 10) for worker in ready]
            for notes in await asyncio.gather(*closing, return_exceptions=True):
                if not isinstance(notes, BaseException):
                    self.notes += [note for note in notes if note not in self.notes]
        for worker in self._states.values():
            self._end(worker)
        self._states.clear()
        if total := self.asked_again.total():
            reasons = "; ".join(f"{count} by {reason}" for reason, count in self.asked_again.most_common(3))
            self.notes.append(
                f"{counted(total, 'rollout')} given to another worker because theirs was lost ({reasons})"
            )

    def _deal_soon(self) -> None:
        if not self._dealing:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        """Assign the queue to the workers that have room, the least loaded first."""
        self._dealing = False
        if not self._queue:
            return
        with_capacity = [
            (worker.load, index, worker)
            for index, worker in enumerate(self._states.values())
            if worker.ready and len(worker.calls) < worker.terms.capacity
        ]
        heapq.heapify(with_capacity)
        assigned: set[_WorkerState] = set()
        while self._queue and with_capacity:
            _, index, worker = heapq.heappop(with_capacity)
            call = self._queue.popleft()
            if call.result.done():  # the caller has stopped waiting
                heapq.heappush(with_capacity, (worker.load, index, worker))
                continue
            worker.calls[call.number] = call
            worker.outbox.append(call)
            assigned.add(worker)
            if len(worker.calls) < worker.terms.capacity:
                heapq.heappush(with_capacity, (worker.load, index, worker))
        for worker in assigned:
            # a busy worker gets them with its next exchange, which comes soon
            if worker.exchanging and len(worker.calls) - len(worker.outbox) < worker.terms.places:
                self._give(worker)

    def _give(self, worker: _WorkerState) -> None:
        with suppress(Exception):  # `_exchange` notices a worker that is lost
            worker.actor.give.remote(*worker.take_message())

    async def _exchange(self, worker: _WorkerState) -> None:
        """Send items to a worker and receive results from it until it is lost."""
        try:
            while True:
                worker.exchanging = True
                reply = await asyncio.wait_for(_answer(worker.actor.exchange.remote(*worker.take_message())), PATIENCE)
                worker.exchanging = False
                self._take(worker, WorkerReply(*pickle.loads(reply)))
                await asyncio.sleep(0)  # lets callers that got results make new calls, for the next message
                self._deal()
        except TimeoutError:
            self._dismiss(worker, f"a worker that did not answer for {PATIENCE:g} s")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # any error of Ray
            self._dismiss(worker, _reason(error))

    def _take(self, worker: _WorkerState, answer: WorkerReply) -> None:
        """Set the results of calls, queue returned items again, and share the places that the worker gave up."""
        for number, result in answer.results:
            if (call := worker.calls.pop(number, None)) is not None and not call.result.done():
                call.result.set_result(result)
        returned = [call for number in answer.returned if (call := worker.calls.pop(number, None)) is not None]
        self._queue.extendleft(sorted(returned, key=lambda call: call.number, reverse=True))
        if answer.terms == worker.terms.number and answer.in_use != worker.in_use:
            worker.in_use = answer.in_use
            self._share()

    def _dismiss(self, worker: _WorkerState, reason: str) -> None:
        """Forget a worker that is lost, and repeat all of its calls."""
        if self._states.get(worker.node) is worker:
            del self._states[worker.node]
        calls = [call for call in worker.calls.values() if not call.result.done()]
        worker.calls, worker.ready = {}, False
        self._end(worker)
        if self._failed is not None:
            return
        for call in reversed(calls):
            call.lost += 1
            self.asked_again[reason] += 1
            if call.lost < TRIES - 1:
                self._queue.appendleft(call)
            else:
                self._suspects.append(call)
        if self._suspects and (self._trying is None or self._trying.done()):
            self._trying = asyncio.create_task(self._try_alone())
        self._share()
        self._deal_soon()

    async def _try_alone(self) -> None:
        """Try items with which two workers were lost, one after the other, on a worker without other items."""
        worker: _WorkerState | None = None
        self._reserved = 1
        self._share()
        try:
            while sum(each.in_use for each in self._states.values()) > max(self._places - 1, 0):
                self._freed.clear()
                await self._freed.wait()
            while self._suspects:
                call = self._suspects.popleft()
                if call.result.done():
                    continue
                worker = worker or await self._alone()
                try:
                    result = await self._alone_with(worker, call)
                except (TimeoutError, self._ray.exceptions.RayError) as error:
                    self._end(worker)
                    worker = None
                    call.lost += 1
                    timed_out = isinstance(error, TimeoutError)
                    result = Lost(f"no answer for {PATIENCE:g} s" if timed_out else _reason(error))
                if not call.result.done():
                    call.result.set_result(result)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)
        finally:
            if worker is not None:
                self._end(worker)
            self._reserved = 0
            self._share()

    async def _alone(self) -> _WorkerState:
        """A new worker, on the machine with the most processors, for items that are tried alone."""
        while not (names := await self._nodes()):
            await asyncio.sleep(LOOK)
        node = max(names, key=lambda name: names[name])
        worker = _WorkerState(node, self._actor(node, names[node]), Terms(0, 1, 1))
        if (error := await asyncio.wait_for(_answer(worker.actor.hello.remote()), STARTING)) is not None:
            raise error
        return worker

    async def _alone_with(self, worker: _WorkerState, call: _Call) -> Any:
        worker.outbox.append(call)
        while True:
            reply = await asyncio.wait_for(_answer(worker.actor.exchange.remote(*worker.take_message())), PATIENCE)
            for number, result in WorkerReply(*pickle.loads(reply)).results:
                if number == call.number:
                    return result

    async def _watch(self) -> None:
        """Start a worker on each machine that has none, now and later; all work ends if the cluster is lost."""
        try:
            while True:
                for node, cores in (await self._nodes()).items():
                    if node not in self._states:
                        self._states[node] = worker = _WorkerState(node, self._actor(node, cores))
                        worker.tasks.append(asyncio.create_task(self._begin(worker)))
                await asyncio.sleep(LOOK)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    async def _nodes(self) -> dict[str, int]:
        """The machines; EngineError if the cluster does not answer."""
        machines: dict[str, int] | BaseException = await self._asking.call(lambda: nodes(self._ray))
        if isinstance(machines, BaseException):
            raise machines
        return machines

    async def _begin(self, worker: _WorkerState) -> None:
        """Wait until a worker is ready, then exchange with it."""
        try:
            failed = await asyncio.wait_for(_answer(worker.actor.hello.remote()), STARTING)
        except asyncio.CancelledError:
            raise
        except Exception:  # it did not start: its machine is gone, or `_watch` tries again
            if self._states.get(worker.node) is worker:
                del self._states[worker.node]
            self._end(worker)
            return
        if failed is not None:
            self._fail(failed)
            return
        worker.ready = True
        self._share()
        worker.tasks.append(asyncio.create_task(self._exchange(worker)))

    def _share(self) -> None:
        """Divide the places among the ready workers: first lower those with too many, then raise those with too few.

        The oldest workers come first, so a worker that has a place keeps one when others join.
        """
        ready = [worker for worker in self._states.values() if worker.ready]
        all_places = max(self._places - self._reserved, 0)
        shares = [(all_places + number) // len(ready) for number in reversed(range(len(ready)))]
        free = all_places - sum(worker.in_use for worker in ready)
        for worker, share in zip(ready, shares, strict=True):
            if share < worker.terms.places:
                self._agree(worker, share)
        for worker, share in zip(ready, shares, strict=True):
            places = min(share, worker.in_use + max(free, 0))
            if places > worker.terms.places:
                free -= max(places - worker.in_use, 0)
                worker.in_use = max(places, worker.in_use)
                self._agree(worker, places)
        self._freed.set()
        self._deal_soon()

    def _agree(self, worker: _WorkerState, places: int) -> None:
        worker.terms = Terms(worker.terms.number + 1, places, places * (1 + AHEAD))
        if worker.exchanging:
            self._give(worker)

    def _fail(self, error: BaseException) -> None:
        """End all outstanding calls with an error."""
        self._failed = self._failed or error
        for call in self._calls.values():
            if not call.result.done():
                call.result.set_exception(self._failed)
        self._queue.clear()
        self._suspects.clear()
        self._freed.set()

    def _actor(self, node: str, cores: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        settings = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 1000}
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._ray.remote(RemoteWorker).options(scheduling_strategy=strategy, **settings)
        return actor.remote(self._maker, self._setup, os.getcwd(), self._environment, cores)

    def _end(self, worker: _WorkerState) -> None:
        with suppress(Exception):  # any error of Ray: the actor has ended already, or the cluster is gone
            self._ray.kill(worker.actor)


async def _answer(reference: Any) -> Any:
    """The result of an actor's method, as a coroutine."""
    return await reference


def _reason(error: BaseException) -> str:
    """The reason for the loss of a worker, in words that are the same for every worker."""
    name = type(error).__name__
    if "node" in str(error).lower() and "died" in str(error).lower():
        return "a machine that died"
    return "a worker process that died" if "Actor" in name else f"{name}"
