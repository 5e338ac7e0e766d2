"""Completions that are there already, judged: some at once, in one event loop for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from calipers.errors import VerifierError
from calipers.run.blame import Blame
from calipers.run.client import Completion
from calipers.run.judged import judged
from calipers.run.secrets import Secrets
from calipers.run.verifier import Verdict, Verifier
from calipers.tasks.task import Task

T = TypeVar("T")

Case = tuple[Verifier, Task, Completion]
"""What is to be judged, and by whom."""


class Bench:
    """Judges at work, at most so many at once. Their event loop stays, as connections they hold belong to it."""

    def __init__(self, most: int, blame: Blame | None = None) -> None:
        self.secrets = Secrets()  # the keys that judges use
        self._most, self._blame = most, blame  # who finds out whose failure it is; None: nobody
        self._seated: dict[int, Any] = {}  # verifier -> itself for the length of the job, where it asks for that
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
        try:
            self._run(self._dismissed())
        finally:
            if self._thread is None:
                self._runner.close()
            else:
                self._thread.submit(self._runner.close).result()
                self._thread.shutdown()

    @property
    def notes(self) -> list[str]:
        """What the judges have to say."""
        return [note for seated in self._seated.values() for note in getattr(seated, "notes", ())]

    def judge(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        """A verdict on each case, in their order, or why there is none."""
        return self._run(self._judged(cases))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return (
                self._runner.run(work) if self._thread is None else self._thread.submit(self._runner.run, work).result()
            )
        except BaseExceptionGroup as errors:  # one was stopped; the errors of the others only follow from it
            raise errors.exceptions[0] from None

    def _seat(self, verifier: Verifier) -> Verifier:
        use = getattr(verifier, "use", None)
        if use is None:
            return verifier
        if id(verifier) not in self._seated:
            self._seated[id(verifier)] = use(self.secrets)
        seated: Verifier = self._seated[id(verifier)]
        return seated

    async def _dismissed(self) -> None:
        for seated in self._seated.values():
            await seated.close()

    async def _judged(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        found: dict[int, Verdict | VerifierError] = {}
        owed = iter(enumerate(cases))

        async def worker() -> None:
            for place, (verifier, task, completion) in owed:
                try:
                    judge = self._blame.judged if self._blame else judged
                    found[place] = await judge(self._seat(verifier), task, completion)
                except VerifierError as error:
                    found[place] = error

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._most, len(cases))):
                workers.create_task(worker())
        return [found[place] for place in range(len(cases))]
