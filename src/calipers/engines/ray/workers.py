"""The workers of a cluster, one on each machine, and what is under way at each of them.

::

    call(item) ──► the worker with the most room ──► given in batches ──► collected in batches ──► result
                     └── lost: its machine died, its process died, or it stopped answering
                           └──► asked again elsewhere; for the third time alone, on a worker of its own
                                  └──► lost again: this item ends workers, and is named

Machines that join are used; machines that leave are forgotten. EngineError when the cluster itself is gone.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from calipers.engines.ray.cluster import lost, nodes
from calipers.engines.ray.worker import RemoteWorker

TRIES: Final = 3  # workers that one item may be lost with
LOOK: Final = 1.0  # seconds between two looks at the machines
PATIENCE: Final = float(os.environ.get("CALIPERS_RAY_PATIENCE", "60"))  # seconds without a word from a worker
STARTING: Final = 60.0  # seconds that a worker may need to begin
CLUSTER_PATIENCE: Final = 15.0  # seconds without a word from the cluster


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
    places: int = 0
    ready: bool = False
    calls: dict[int, _Call] = field(default_factory=dict)  # under way
    outbox: list[_Call] = field(default_factory=list)  # of these, those not given yet
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def load(self) -> float:
        """How full it is."""
        return len(self.calls) / max(self.places, 1)


class RemoteWorkers:
    """All workers; used within one event loop."""

    def __init__(self, ray: Any, maker: str, setup: Any, *, places: int, environment: Mapping[str, str]) -> None:
        self._ray, self._maker, self._setup = ray, maker, pickle.dumps(setup, protocol=5)
        self._places, self._environment = places, dict(environment)
        self._hired: dict[str, _Hired] = {}  # node -> its worker
        self._numbers = 0
        self._changed = asyncio.Condition()
        self._failed: BaseException | None = None
        self._watching: asyncio.Task[None] | None = None
        self._alone = asyncio.Lock()
        self._flushing = False
        self.asked_again: Counter[str] = Counter()  # why a worker was lost -> items that were asked again
        self.notes: list[str] = []

    async def call(self, item: Any) -> tuple[Any, int]:
        """The result of an item, and how many workers were lost with it; `Lost` when there is none."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        call = _Call(self._numbers, item, asyncio.get_running_loop().create_future())
        self._numbers += 1
        await self._place(call)
        try:
            result = await call.result
        except _LostOnce:
            async with self._alone:
                result = await self._apart(call)
        if isinstance(result, BaseException):
            raise result
        return result, call.lost

    async def close(self) -> None:
        """End every worker; their notes stay."""
        if self._watching is not None:
            self._watching.cancel()
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

    async def _place(self, call: _Call) -> None:
        """Put a call into the outbox of the worker with the most room; wait while there is none."""
        while True:
            if self._failed is not None:
                raise self._failed
            ready = [worker for worker in self._hired.values() if worker.ready]
            if ready:
                self._assign(call, min(ready, key=lambda worker: worker.load))
                return
            async with self._changed:
                await self._changed.wait()

    def _assign(self, call: _Call, worker: _Hired) -> None:
        worker.calls[call.number] = call
        worker.outbox.append(call)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Give what has gathered: answers come in batches, so what follows them does, too."""
        self._flushing = False
        for worker in self._hired.values():
            if worker.outbox:
                batch, worker.outbox = worker.outbox, []
                self._give(worker, batch)

    def _give(self, worker: _Hired, batch: list[_Call]) -> None:
        data = pickle.dumps([(call.number, call.item) for call in batch], protocol=5)
        with suppress(Exception):  # a worker that is gone is found out by who collects
            worker.actor.give.remote(data, worker.places)

    async def _collect(self, worker: _Hired) -> None:
        """Take results from a worker until it is lost."""
        try:
            while True:
                results = await asyncio.wait_for(_answer(worker.actor.collect.remote()), PATIENCE)
                for number, result in pickle.loads(results):
                    call = worker.calls.pop(number, None)
                    if call is not None and not call.result.done():
                        call.result.set_result(result)
        except TimeoutError:
            await self._dismiss(worker, f"a worker that did not answer for {PATIENCE:g} s")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # of Ray, which has many
            await self._dismiss(worker, _why(error))

    async def _dismiss(self, worker: _Hired, reason: str) -> None:
        """Forget a worker, and ask for all that it had once more."""
        if self._hired.get(worker.node) is worker:
            del self._hired[worker.node]
        calls, worker.calls, worker.ready = list(worker.calls.values()), {}, False
        self._end(worker)
        await self._share()
        for call in calls:
            if call.result.done():
                continue
            call.lost += 1
            self.asked_again[reason] += 1
            if call.lost >= TRIES - 1:
                call.result.set_exception(_LostOnce())
            else:
                await self._place(call)

    async def _apart(self, call: _Call) -> Any:
        """The result of an item that two workers were lost with, from a worker that has nothing else to do."""
        while True:
            names = await self._nodes()
            if names:
                break
            await asyncio.sleep(LOOK)
        node = max(names, key=lambda name: names[name])
        worker = _Hired(node, self._actor(node, names[node]), places=1)
        try:
            if (wrong := await asyncio.wait_for(_answer(worker.actor.hello.remote()), STARTING)) is not None:
                raise wrong
            self._give(worker, [call])
            while True:
                for _, result in pickle.loads(await asyncio.wait_for(_answer(worker.actor.collect.remote()), PATIENCE)):
                    return result
        except (TimeoutError, self._ray.exceptions.RayError) as error:
            if self._failed is not None:
                raise self._failed from None
            call.lost += 1
            why = f"no answer for {PATIENCE:g} s" if isinstance(error, TimeoutError) else _why(error)
            raise Lost(why) from None
        finally:
            self._end(worker)

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
            await self._fail(error)

    async def _nodes(self) -> dict[str, int]:
        """The machines; EngineError when nobody says which there are.

        Asked in a thread that nobody waits for in the end: without a head node it hangs.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[str, int]] = loop.create_future()

        def ask() -> None:
            try:
                found, error = nodes(self._ray), None
            except BaseException as wrong:
                found, error = {}, wrong
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, answer, found, error)

        threading.Thread(target=ask, name="ray-nodes", daemon=True).start()
        try:
            return await asyncio.wait_for(answer, CLUSTER_PATIENCE)
        except TimeoutError:
            raise lost("its head node does not answer") from None

    async def _begin(self, worker: _Hired) -> None:
        """Wait until a worker is ready, then collect from it."""
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
            await self._fail(wrong)
            return
        worker.ready = True
        await self._share()
        worker.tasks.append(asyncio.create_task(self._collect(worker)))

    async def _share(self) -> None:
        """Divide the calls in flight among the workers that there are."""
        ready = [worker for worker in self._hired.values() if worker.ready]
        for number, worker in enumerate(ready):
            places = max((self._places + number) // len(ready), 1)
            if places != worker.places:
                worker.places = places
                self._give(worker, [])
        async with self._changed:
            self._changed.notify_all()

    async def _fail(self, error: BaseException) -> None:
        """End all that is under way with an error."""
        self._failed = self._failed or error
        for worker in self._hired.values():
            for call in worker.calls.values():
                if not call.result.done():
                    call.result.set_exception(error)
        async with self._changed:
            self._changed.notify_all()

    def _actor(self, node: str, cores: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        settings = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 1000}
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._ray.remote(RemoteWorker).options(scheduling_strategy=where, **settings)
        return actor.remote(self._maker, self._setup, os.getcwd(), self._environment, cores)

    def _end(self, worker: _Hired) -> None:
        with suppress(Exception):  # of Ray: it has ended already, or the cluster is gone
            self._ray.kill(worker.actor)


class _LostOnce(Exception):
    """An item that a worker of its own shall try."""


def _settle(answer: asyncio.Future[dict[str, int]], found: dict[str, int], error: BaseException | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(found)


async def _answer(reference: Any) -> Any:
    """What a call of an actor returns."""
    return await reference


def _why(error: BaseException) -> str:
    """How a worker was lost, in words that do not differ from worker to worker."""
    name = type(error).__name__
    if "node" in str(error).lower() and "died" in str(error).lower():
        return "a machine that died"
    return "a worker process that died" if "Actor" in name else f"{name}"
