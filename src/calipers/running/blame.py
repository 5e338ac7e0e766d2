"""Who caused a verifier failure: the verifier itself, or the answer it verified.

::

    verdict ──► none ──► plainly the machine's (a server, an expression of the user's) ──► missing
                 └────► a neutral answer, once for each task ──► none either ──► missing
                              └────► this answer once more ──► a verdict, or `broke_verifier`, which counts 0

An answer that could make its own rollout missing would be better off than one that is wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from calipers.clients.client import Completion
from calipers.clients.secrets import Secrets
from calipers.errors import VerifierError
from calipers.tasks.task import Task
from calipers.verifiers.verifier import Verdict, Verifier, judged

NEUTRAL: Final = "# no answer\n"
"""An answer that says nothing: a text, and in many languages a program, that does nothing."""

BROKE: Final = "broke_verifier"
STOPPED: Final = "filter_timeout"  # an expression of the user's, which an answer does not choose


class Blame:
    """Judges answers, and finds out whose failure it is when that fails. It lasts as long as a run.

    Of each task it remembers whether its verifier came to a verdict on a neutral answer. At most two more judgements
    follow on a failure: that of the neutral answer, once for a task, and that of the same answer once more.
    """

    def __init__(self) -> None:
        self._works: dict[tuple[int, str], bool] = {}
        self._asking: dict[tuple[int, str], asyncio.Lock] = {}

    async def judged(self, verifier: Verifier, task: Task, completion: Completion) -> Verdict:
        """The verdict; VerifierError with `broke_verifier` where none can be reached, and the answer is why.

        What the further judgements used is part of the verdict's usage, or of the error's.
        """
        try:
            return await judged(verifier, task, completion)
        except VerifierError as error:
            if spared(error):
                raise
            first = error
        works, probed, spent = await self._known(verifier, task)
        tried: dict[str, Any] = {"neutral": "judged" if works else "failed", "neutral_calls": int(probed)}
        used = added(first.usage, spent)
        if not works:
            raise VerifierError(str(first), outcome=first.outcome, usage=used, tried={"tries": 1, **tried}) from first
        try:
            verdict = await judged(verifier, task, completion)
        except VerifierError as second:
            word = second.outcome if spared(second) else BROKE
            used, tried = added(used, second.usage), {"tries": 2, **tried, "failed_as": first.outcome}
            raise VerifierError(str(second), outcome=word, usage=used, tried=tried) from first
        fields = {**verdict.fields, "verifier_tries": 2.0}
        return msgspec.structs.replace(verdict, fields=fields, usage=added(used, verdict.usage))

    async def _known(self, verifier: Verifier, task: Task) -> tuple[bool, bool, Mapping[str, float]]:
        """Whether the task's verifier judges a neutral answer; whether it was asked just now, and what that used."""
        key = (id(verifier), task.id)
        async with self._asking.setdefault(key, asyncio.Lock()):
            if key in self._works:
                return self._works[key], False, {}
            try:
                used = (await judged(verifier, task, Completion(neutral(verifier, task)))).usage
                self._works[key] = True
            except VerifierError as error:
                used = error.usage
                self._works[key] = False
            return self._works[key], True, used


def spared(error: VerifierError) -> bool:
    """Whether a failure is plainly not the answer's."""
    return error.blameless or error.outcome == STOPPED


def neutral(verifier: Any, task: Task) -> str:
    """An answer that no verifier should fail on: one that must pass where one is known, else one that says nothing."""
    try:
        return gold(verifier, task) or NEUTRAL
    except Exception:  # of somebody else's code, or of an expression that takes too long
        return NEUTRAL


def gold(judge: Any, task: Task) -> str | None:
    """An answer that must pass: the verifier's own, else the target, if it is a text or a number."""
    known = getattr(judge, "gold", None) or getattr(getattr(judge, "judge", None), "gold", None)
    if known is not None:
        answer: str | None = known(task)
        return answer
    plain = isinstance(task.target, (str, int, float)) and not isinstance(task.target, bool)
    return str(task.target) if plain else None


def added(*used: Mapping[str, float]) -> dict[str, float]:
    """The sum of what several judgements used."""
    total: Counter[str] = Counter()
    for usage in used:
        total.update(usage)
    return dict(total)


T = TypeVar("T")

Case = tuple[Verifier, Task, Completion]
"""What is to be judged, and by whom."""


class Bench:
    """Judges at work, at most so many at once. Their event loop stays, as connections they hold belong to it."""

    def __init__(self, most: int, blame: Blame | None = None) -> None:
        self.secrets = Secrets()  # the keys that judges use
        self._most, self._blame = most, blame  # who finds out whose failure it is; None: nobody
        self._opened: dict[int, Any] = {}  # verifier -> itself for the length of the job, where it asks for that
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
        return [note for opened in self._opened.values() for note in getattr(opened, "notes", ())]

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

    def _open(self, verifier: Verifier) -> Verifier:
        use = getattr(verifier, "use", None)
        if use is None:
            return verifier
        if id(verifier) not in self._opened:
            self._opened[id(verifier)] = use(self.secrets)
        opened: Verifier = self._opened[id(verifier)]
        return opened

    async def _dismissed(self) -> None:
        for opened in self._opened.values():
            await opened.close()

    async def _judged(self, cases: Sequence[Case]) -> list[Verdict | VerifierError]:
        results: dict[int, Verdict | VerifierError] = {}
        waiting = iter(enumerate(cases))

        async def worker() -> None:
            for index, (verifier, task, completion) in waiting:
                try:
                    judge = self._blame.judged if self._blame else judged
                    results[index] = await judge(self._open(verifier), task, completion)
                except VerifierError as error:
                    results[index] = error

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._most, len(cases))):
                workers.create_task(worker())
        return [results[index] for index in range(len(cases))]
