"""Completions that are there already, judged: some at once, in one event loop for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from calipers.errors import VerifierError
from calipers.run.client import Completion
from calipers.run.rollout import checked
from calipers.run.verifier import Verdict, Verifier
from calipers.tasks.task import Task

Case = tuple[Verifier, Task, Completion]
"""What is to be judged, and by whom."""


class Bench:
    """Judges at work, at most so many at once. Their event loop stays, as connections they hold belong to it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runner = asyncio.Runner()
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Bench:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench")  # a notebook runs a loop in this one
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._thread is None:
            self._runner.close()
        else:
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()

    def judge(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        """A verdict on each case, in their order, or why there is none."""
        if self._thread is None:
            return self._run(self._judged(cases))
        return self._thread.submit(self._run, self._judged(cases)).result()

    def _run(self, work: Coroutine[Any, Any, list[Verdict | VerifierError]]) -> list[Verdict | VerifierError]:
        try:
            return self._runner.run(work)
        except BaseExceptionGroup as errors:  # a bug in one; those of the others only follow from it
            raise errors.exceptions[0] from None

    async def _judged(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        found: dict[int, Verdict | VerifierError] = {}
        owed = iter(enumerate(cases))

        async def worker() -> None:
            for place, (verifier, task, completion) in owed:
                try:
                    found[place] = checked(await verifier.verify(task, completion))
                except VerifierError as error:
                    found[place] = error

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._most, len(cases))):
                workers.create_task(worker())
        return [found[place] for place in range(len(cases))]
