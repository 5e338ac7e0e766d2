"""Where work is done beside this process: a Ray cluster, how to connect to it, and its workers, one on each machine.

::

    call(item) ──► queue ──► the worker with the most room ──► exchanged in batches ──► result
                    ▲           └── lost: its machine died, its process died, or it stopped answering
                    └── asked again ──┘
                          └──► for the third time alone, on a worker of its own
                                 └──► lost again: this item ends workers, and is named

The places of all workers together are as many as items may be in work at once. A worker that joins gets those that the
others have let go, so that there are never more. Machines that join are used; machines that leave are forgotten.
EngineError when the cluster itself is gone.

A worker is an actor on one machine, which does what it is given and keeps the results for collection::

    exchange(batch, terms) ──► at most so many at once ──► finished ──► the answer to this or the next exchange
                                                           └── kept until somebody asks: a slow log slows the worker

What a worker does is named, as ``module:object``: an object that is made of a setup, with ``handle(item)``.
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

LOOPBACK: Final = ("127.0.0.1", "localhost")
CONNECTING: Final = 10.0  # seconds
LEAVING: Final = 5.0  # seconds
GONE: Final = 10  # seconds for which nobody listens at the address of the head node: it may be started again meanwhile
SILENCE: Final = 60.0  # seconds in which the head node says nothing: it may be busy
RESUME: Final = "what was finished is kept: run the same command again to resume"


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address; "" is that of RAY_ADDRESS, else a new one on this machine.

    InputError when there is no such cluster, or Ray is not installed.
    """
    # a driver that is cut off from its cluster would be ended by Ray itself; we end it, with an exit code of ours
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    place = address or os.environ.get("RAY_ADDRESS", "")
    if place.rpartition(":")[0] in LOOPBACK:
        # Ray takes 127.0.0.1 for another address of this machine, where such a cluster does not listen
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError.at("--engine", f"ray is not installed ({error.name})", "install calipers[ray]") from None
    settings: dict[str, Any] = {"address": place or "local", "log_to_driver": False, "logging_level": logging.CRITICAL}
    if not place:
        settings["include_dashboard"] = False
    if ray.is_initialized():  # by who called us
        yield ray
        return
    try:
        if (head := re.fullmatch(r"([^/:]+):(\d+)", place)) is not None:  # Ray itself would try for minutes
            socket.create_connection((head[1], int(head[2])), CONNECTING).close()
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        wrong = f"there is no Ray cluster at {place}" if place else "no Ray cluster can be started"
        raise InputError.at("--engine", f"{wrong} ({reason})", "expected the address of a head node") from None
    with suppress(Exception):  # what Ray prints of its own logs, unless it has changed how
        from ray._private import ray_logging

        ray_logging.global_worker_stdstream_dispatcher.emit = lambda data: None
    try:
        yield ray
    except EngineError:
        atexit.unregister(ray.shutdown)  # a cluster that is gone cannot be left
        raise
    except BaseException:
        _leave(ray)
        raise
    _leave(ray)


def nodes(ray: Any) -> dict[str, int]:
    """The machines that take work, and how many processors each lends; EngineError when the cluster does not answer.

    Without a head node Ray itself would wait, and wait. So it is asked in a thread that nobody waits for in the end.
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
    return {name: int(lent["CPU"]) for name, lent in alive.items() if lent.get("CPU", 0) >= 1}


def _refuses(ray: Any) -> bool:
    """Whether nobody listens at the address of the head node."""
    try:
        host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
        socket.create_connection((host, int(port)), CONNECTING).close()
    except ConnectionRefusedError:
        return True
    except Exception:  # of Ray, which has many; or no answer, which says nothing
        return False
    return False


def _leave(ray: Any) -> None:
    """Leave a cluster; one that is gone cannot be left, and nobody waits for that."""

    def leave() -> None:
        with suppress(Exception):
            ray.shutdown()

    leaving = threading.Thread(target=leave, name="ray-shutdown", daemon=True)
    leaving.start()
    leaving.join(LEAVING)
    if leaving.is_alive():
        atexit.unregister(ray.shutdown)  # it would wait for the same answer at the end of the process


def lost(error: BaseException | str) -> EngineError:
    """The error for a cluster that is gone."""
    return EngineError(f"--engine: the Ray cluster was lost ({' '.join(str(error).split())[:200]}); {RESUME}")


POLL: Final = 1.0  # seconds after which an empty answer says that the worker lives
# A message costs a millisecond or two on both sides. So results gather: for a moment, and while enough waits here.
MOMENT: Final = 0.01  # seconds
LONGEST: Final = 0.1  # seconds
CORES: Final = "CALIPERS_CORES"  # how many processors the verifiers of a process may use
TRIES: Final = 3  # workers that one item may be lost with
AHEAD: Final = 2  # for each item in work so many wait at a worker for their turn, so that none waits for us
LOOK: Final = 1.0  # seconds between two looks at the machines
PATIENCE: Final = float(os.environ.get("CALIPERS_RAY_PATIENCE", "60"))  # seconds without a word from a worker
STARTING: Final = 300.0  # seconds that a worker may need to begin: it loads a few hundred files, perhaps over a network


class Terms(NamedTuple):
    """How much a worker may do. Later terms have a higher number."""

    number: int
    places: int  # items in work at once
    room: int  # items in all; what is beyond it, and not in work yet, is handed back


class Answer(NamedTuple):
    """What comes back from a worker."""

    results: list[tuple[int, Any]]  # number of an item, its result
    returned: list[int]  # items that were not begun
    terms: int  # the number of the terms that it keeps to
    in_use: int  # places that it has taken, or may take at any time


class Handler(Protocol):
    """What a worker does."""

    notes: list[str]

    async def handle(self, item: Any) -> Any:
        """The result of an item; it raises only what ends all work."""

    async def close(self) -> None:
        """Let go of connections."""


class RemoteWorker:
    """The actor; `workers.RemoteWorkers` makes one for each machine."""

    def __init__(self, maker: str, setup: bytes, folder: str, environment: Mapping[str, str], cores: int) -> None:
        os.environ[CORES] = str(cores)
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._maker, self._setup, self._folder = maker, setup, folder
        self._handler: Handler | None = None
        self._waiting: deque[tuple[int, Any]] = deque()
        self._finished: list[tuple[int, Any]] = []
        self._returned: list[int] = []
        self._news = asyncio.Event()  # there is something to answer
        self._terms = Terms(-1, 0, 0)
        self._working: set[asyncio.Task[None]] = set()

    async def hello(self) -> BaseException | None:
        """Make the handler; what went wrong, or None."""
        try:
            if os.path.isdir(self._folder):
                os.chdir(self._folder)  # relative paths mean what they mean to the user
            self._handler = load(self._maker)(pickle.loads(self._setup))
        except CalipersError as error:
            return error
        except Exception:
            return CalipersError(f"a worker cannot begin: {traceback.format_exc(limit=-1).strip().splitlines()[-1]}")
        return None

    async def give(self, batch: bytes, terms: Terms) -> None:
        """Take some numbered items, and terms."""
        self._waiting.extend(pickle.loads(batch))
        if terms.number > self._terms.number:
            self._terms = terms
            self._news.set()
        self._start()
        while self._waiting and len(self._waiting) + len(self._working) > self._terms.room:
            self._returned.append(self._waiting.pop()[0])
            self._news.set()

    async def exchange(self, batch: bytes, terms: Terms) -> bytes:
        """Take items, and answer with what nobody has collected yet; after a while also with nothing."""
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
        """End the work; the notes of whoever did it."""
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
        """Begin as many waiting items as there are places."""
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
    """An item that ended as many workers as it may."""


@dataclass(slots=True, eq=False)
class _Call:
    """An item under way."""

    number: int
    item: Any
    result: asyncio.Future[Any]
    lost: int = 0  # workers


@dataclass(slots=True, eq=False)
class _Hired:
    """A worker, as seen from here."""

    node: str
    actor: Any
    terms: Terms = NOTHING
    held: int = 0  # places that it may have taken: more than its terms say until it has finished what it had begun
    ready: bool = False
    exchanging: bool = False
    calls: dict[int, _Call] = field(default_factory=dict)  # under way
    outbox: list[_Call] = field(default_factory=list)  # of these, those not given yet
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def load(self) -> float:
        """How full it is."""
        return len(self.calls) / self.terms.room if self.terms.room else 1.0

    @property
    def message(self) -> tuple[bytes, Terms]:
        """What it is to be told: what has gathered for it, and its terms."""
        batch, self.outbox = self.outbox, []
        return pickle.dumps([(call.number, call.item) for call in batch], protocol=5), self.terms


class RemoteWorkers:
    """All workers; used within one event loop."""

    def __init__(self, ray: Any, maker: str, setup: Any, *, places: int, environment: Mapping[str, str]) -> None:
        self._ray, self._maker, self._setup = ray, maker, pickle.dumps(setup, protocol=5)
        self._places, self._environment = places, dict(environment)
        self._hired: dict[str, _Hired] = {}  # node -> its worker, the oldest first
        self._calls: dict[int, _Call] = {}  # all
        self._queue: deque[_Call] = deque()  # of these, those that no worker has
        self._numbers = 0
        self._failed: BaseException | None = None
        self._asking = CallThread("ray-nodes")
        self._watching: asyncio.Task[None] | None = None
        self._dealing = False
        self._freed = asyncio.Event()  # a place, perhaps
        self._suspects: deque[_Call] = deque()  # calls that are to be tried alone
        self._trying: asyncio.Task[None] | None = None
        self._reserved = 0  # places of the worker that tries them
        self.asked_again: Counter[str] = Counter()  # why a worker was lost -> items that were asked again
        self.notes: list[str] = []

    async def call(self, item: Any) -> tuple[Any, int]:
        """The result of an item, and how many workers were lost with it; `Lost` when there is none."""
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
        """End every worker; their notes stay."""
        for task in (self._watching, self._trying):
            if task is not None:
                task.cancel()
        self._asking.close()
        for worker in self._hired.values():
            for task in worker.tasks:
                task.cancel()
        ready = [worker for worker in self._hired.values() if worker.ready]
        if self._failed is None:
            asked = [asyncio.wait_for(_answer(worker.actor.close.remote()), 10) for worker in ready]
            for notes in await asyncio.gather(*asked, return_exceptions=True):
                if not isinstance(notes, BaseException):
                    self.notes += [note for note in notes if note not in self.notes]
        for worker in self._hired.values():
            self._end(worker)
        self._hired.clear()
        if total := self.asked_again.total():
            why = "; ".join(f"{count} by {reason}" for reason, count in self.asked_again.most_common(3))
            self.notes.append(f"{total} rollouts were given to another worker because theirs was lost ({why})")

    def _deal_soon(self) -> None:
        if not self._dealing:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        """Hand the queue to the workers that have room, the emptiest first."""
        self._dealing = False
        if not self._queue:
            return
        room = [
            (worker.load, place, worker)
            for place, worker in enumerate(self._hired.values())
            if worker.ready and len(worker.calls) < worker.terms.room
        ]
        heapq.heapify(room)
        dealt: set[_Hired] = set()
        while self._queue and room:
            _, place, worker = heapq.heappop(room)
            call = self._queue.popleft()
            if call.result.done():  # whoever asked has gone
                heapq.heappush(room, (worker.load, place, worker))
                continue
            worker.calls[call.number] = call
            worker.outbox.append(call)
            dealt.add(worker)
            if len(worker.calls) < worker.terms.room:
                heapq.heappush(room, (worker.load, place, worker))
        for worker in dealt:
            # one that is busy takes them with the next exchange, which comes soon
            if worker.exchanging and len(worker.calls) - len(worker.outbox) < worker.terms.places:
                self._give(worker)

    def _give(self, worker: _Hired) -> None:
        with suppress(Exception):  # a worker that is gone is found out by who exchanges
            worker.actor.give.remote(*worker.message)

    async def _exchange(self, worker: _Hired) -> None:
        """Give items to a worker and take results from it until it is lost."""
        try:
            while True:
                worker.exchanging = True
                reply = await asyncio.wait_for(_answer(worker.actor.exchange.remote(*worker.message)), PATIENCE)
                worker.exchanging = False
                self._take(worker, Answer(*pickle.loads(reply)))
                await asyncio.sleep(0)  # whoever was answered asks for more, which the next message takes along
                self._deal()
        except TimeoutError:
            self._dismiss(worker, f"a worker that did not answer for {PATIENCE:g} s")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # of Ray, which has many
            self._dismiss(worker, _why(error))

    def _take(self, worker: _Hired, answer: Answer) -> None:
        """Hand out results; what a worker gave back, and the places that it let go, are for others."""
        for number, result in answer.results:
            if (call := worker.calls.pop(number, None)) is not None and not call.result.done():
                call.result.set_result(result)
        back = [call for number in answer.returned if (call := worker.calls.pop(number, None)) is not None]
        self._queue.extendleft(sorted(back, key=lambda call: call.number, reverse=True))
        if answer.terms == worker.terms.number and answer.in_use != worker.held:
            worker.held = answer.in_use
            self._share()

    def _dismiss(self, worker: _Hired, reason: str) -> None:
        """Forget a worker, and ask for all that it had once more."""
        if self._hired.get(worker.node) is worker:
            del self._hired[worker.node]
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
        """Try items that two workers were lost with, one after the other, on a worker that has nothing else to do."""
        worker: _Hired | None = None
        self._reserved = 1
        self._share()
        try:
            while sum(each.held for each in self._hired.values()) > max(self._places - 1, 0):
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
                    why = f"no answer for {PATIENCE:g} s" if isinstance(error, TimeoutError) else _why(error)
                    result = Lost(why)
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

    async def _alone(self) -> _Hired:
        """A worker of its own."""
        while not (names := await self._nodes()):
            await asyncio.sleep(LOOK)
        node = max(names, key=lambda name: names[name])
        worker = _Hired(node, self._actor(node, names[node]), Terms(0, 1, 1))
        if (wrong := await asyncio.wait_for(_answer(worker.actor.hello.remote()), STARTING)) is not None:
            raise wrong
        return worker

    async def _alone_with(self, worker: _Hired, call: _Call) -> Any:
        worker.outbox.append(call)
        while True:
            reply = await asyncio.wait_for(_answer(worker.actor.exchange.remote(*worker.message)), PATIENCE)
            for number, result in Answer(*pickle.loads(reply)).results:
                if number == call.number:
                    return result

    async def _watch(self) -> None:
        """Look at the machines: a worker for each that has none. Without a word from the cluster, all work ends."""
        try:
            while True:
                for node, cores in (await self._nodes()).items():
                    if node not in self._hired:
                        self._hired[node] = worker = _Hired(node, self._actor(node, cores))
                        worker.tasks.append(asyncio.create_task(self._begin(worker)))
                await asyncio.sleep(LOOK)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    async def _nodes(self) -> dict[str, int]:
        """The machines; EngineError when nobody says which there are."""
        machines: dict[str, int] | BaseException = await self._asking.call(lambda: nodes(self._ray))
        if isinstance(machines, BaseException):
            raise machines
        return machines

    async def _begin(self, worker: _Hired) -> None:
        """Wait until a worker is ready, then exchange with it."""
        try:
            wrong = await asyncio.wait_for(_answer(worker.actor.hello.remote()), STARTING)
        except asyncio.CancelledError:
            raise
        except Exception:  # it never came to be: its machine is gone, or will be tried again
            if self._hired.get(worker.node) is worker:
                del self._hired[worker.node]
            self._end(worker)
            return
        if wrong is not None:
            self._fail(wrong)
            return
        worker.ready = True
        self._share()
        worker.tasks.append(asyncio.create_task(self._exchange(worker)))

    def _share(self) -> None:
        """Divide the places among the workers that there are: first who has too many, then who has too few.

        The oldest come first. So a worker that has a place keeps one, whoever joins.
        """
        ready = [worker for worker in self._hired.values() if worker.ready]
        all_places = max(self._places - self._reserved, 0)
        shares = [(all_places + number) // len(ready) for number in reversed(range(len(ready)))]
        free = all_places - sum(worker.held for worker in ready)
        for worker, share in zip(ready, shares, strict=True):
            if share < worker.terms.places:
                self._agree(worker, share)
        for worker, share in zip(ready, shares, strict=True):
            places = min(share, worker.held + max(free, 0))
            if places > worker.terms.places:
                free -= max(places - worker.held, 0)
                worker.held = max(places, worker.held)
                self._agree(worker, places)
        self._freed.set()
        self._deal_soon()

    def _agree(self, worker: _Hired, places: int) -> None:
        worker.terms = Terms(worker.terms.number + 1, places, places * (1 + AHEAD))
        if worker.exchanging:
            self._give(worker)

    def _fail(self, error: BaseException) -> None:
        """End all that is under way with an error."""
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
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._ray.remote(RemoteWorker).options(scheduling_strategy=where, **settings)
        return actor.remote(self._maker, self._setup, os.getcwd(), self._environment, cores)

    def _end(self, worker: _Hired) -> None:
        with suppress(Exception):  # of Ray: it has ended already, or the cluster is gone
            self._ray.kill(worker.actor)


async def _answer(reference: Any) -> Any:
    """What a call of an actor returns."""
    return await reference


def _why(error: BaseException) -> str:
    """How a worker was lost, in words that do not differ from worker to worker."""
    name = type(error).__name__
    if "node" in str(error).lower() and "died" in str(error).lower():
        return "a machine that died"
    return "a worker process that died" if "Actor" in name else f"{name}"
