"""Calls that arrive one by one, answered together: a model in this process is fastest with many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")
Work = Callable[[Sequence[Asked]], Sequence[Given | Exception]]
"""Answers to some calls, in their order; an exception among them is raised to its caller."""

LINGER = 0.005  # seconds without another arrival after which a batch is taken to be whole


class Gathering(Generic[Asked, Given]):
    """A queue before one thread. What arrives while the thread is busy goes in together when it is free.

    Workers that were answered together come back together, but not in the same instant: each has its
    answer judged and logged first. So a batch waits as long as there are still some arriving.
    """

    def __init__(self, thread: Executor, work: Work[Asked, Given]) -> None:
        self._thread, self._work = thread, work
        self._waiting: list[tuple[Asked, asyncio.Future[Given]]] = []
        self._draining: asyncio.Task[None] | None = None

    async def ask(self, one: Asked) -> Given:
        """The answer to one call."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Given] = loop.create_future()
        self._waiting.append((one, answer))
        if self._draining is None:
            self._draining = loop.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._arrivals()
                batch, self._waiting = self._waiting, []
                await self._answer([(one, answer) for one, answer in batch if not answer.done()])
        finally:
            self._draining = None

    async def _arrivals(self) -> None:
        """Wait until nobody has come for a while."""
        seen = 0
        while len(self._waiting) > seen:
            seen = len(self._waiting)
            await asyncio.sleep(LINGER)

    async def _answer(self, batch: Sequence[tuple[Asked, asyncio.Future[Given]]]) -> None:
        asked = [one for one, _ in batch]
        ends: Sequence[Given | Exception]
        try:
            ends = await asyncio.get_running_loop().run_in_executor(self._thread, self._work, asked)
        except Exception as error:  # a bug of ours: every caller shall see it, none shall wait for ever
            ends = [error] * len(batch)
        for end, (_, answer) in zip(ends, batch, strict=True):
            if answer.done():
                continue  # its caller has gone
            if isinstance(end, Exception):
                answer.set_exception(end)
            else:
                answer.set_result(end)
