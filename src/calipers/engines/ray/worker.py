"""A worker: an actor on one machine of the cluster, which does what it is given and keeps the results for collection.

::

    exchange(batch, terms) ──► at most so many at once ──► finished ──► the answer to this or the next exchange
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
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

from calipers.errors import CalipersError
from calipers.names import load

POLL: Final = 1.0  # seconds after which an empty answer says that the worker lives
# A message costs a millisecond or two on both sides. So results gather: for a moment, and while enough waits here.
MOMENT: Final = 0.01  # seconds
LONGEST: Final = 0.1  # seconds
CORES: Final = "CALIPERS_CORES"  # how many processors the verifiers of a process may use


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
