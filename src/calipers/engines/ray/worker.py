"""A worker: an actor on one machine of the cluster, which does what it is given and keeps the results for collection.

::

    give(batch, places) ──► at most so many at once ──► finished ──► collect() ──► the one who gave it
                                                        └── kept until somebody asks: a slow log slows the worker

What a worker does is named, as ``module:object``: an object that is made of a setup, with ``handle(item)``.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import traceback
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from calipers.errors import CalipersError
from calipers.names import load

POLL: Final = 1.0  # seconds after which an empty answer says that the worker lives
LINGER: Final = 0.02  # seconds in which more results come for the same message: a message costs a millisecond or two
CORES: Final = "CALIPERS_CORES"  # how many processors the verifiers of a process may use


class Handler(Protocol):
    """What a worker does."""

    notes: list[str]

    async def handle(self, item: Any) -> Any:
        """The result of an item; it raises only what ends all work."""

    async def close(self) -> None:
        """Let go of connections."""


class RemoteWorker:
    """The actor; `workers.Workers` makes one for each machine."""

    def __init__(self, maker: str, setup: bytes, folder: str, environment: Mapping[str, str], cores: int) -> None:
        os.environ[CORES] = str(cores)
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._maker, self._setup, self._folder = maker, setup, folder
        self._handler: Handler | None = None
        self._waiting: deque[tuple[int, Any]] = deque()
        self._finished: list[tuple[int, Any]] = []
        self._ready = asyncio.Event()
        self._places = 0  # how many items may be in work at once
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

    async def give(self, batch: bytes, places: int) -> None:
        """Take some numbered items; ``places`` of them may be in work at once."""
        self._places = places
        self._waiting.extend(pickle.loads(batch))
        self._start()

    async def collect(self) -> bytes:
        """Results that nobody has collected yet, as (number, result); after a while also none."""
        if not self._finished:
            self._ready.clear()
            try:
                await asyncio.wait_for(self._ready.wait(), POLL)
                await asyncio.sleep(LINGER)
            except TimeoutError:
                pass
        results, self._finished = self._finished, []
        return pickle.dumps(results, protocol=5)

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

    def _start(self) -> None:
        """Begin as many waiting items as there are places."""
        while self._waiting and len(self._working) < self._places:
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
        self._ready.set()
