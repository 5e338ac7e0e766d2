"""Stored completions judged again, a batch at a time: filters first, then verifiers.

Text verifiers take a whole batch at once (`quick`); all others are asked one completion at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from calipers.answers.find import Filter, filtered
from calipers.errors import InputError, VerifierError
from calipers.jobs.quick import QUICK
from calipers.jobs.stored import Stored
from calipers.regexes import RegexTimeout
from calipers.run.again import Bench
from calipers.run.client import Completion
from calipers.run.verifier import Verdict
from calipers.run.verifiers.find import NamedVerifier, verifier
from calipers.tasks.task import Task

ENDED: Final = frozenset({"refused", "truncated", "timed_out"})  # the completion's own doing, whatever it is worth


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of R rows. A row whose reward is None contributes what its outcome says."""

    rewards: list[float | None]  # [R]
    outcomes: list[str]  # [R]
    answers: list[Any]  # [R]
    seen: list[bool]  # [R] whether there was anything to judge
    more: dict[int, dict[str, Any]] = field(default_factory=dict)  # row -> further keys for its record
    many: dict[int, Mapping[str, float]] = field(default_factory=dict)  # row -> rewards beside the one


class Judge:
    """Verifiers for the tasks of a benchmark: their own, or one for all."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        chain: Sequence[Filter],
        bench: Bench,
        instead: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._tasks, self._chain, self._bench = tasks, chain, bench
        self._instead, self._params = instead, params or {}
        self._ready: dict[str, tuple[Task, NamedVerifier]] = {}
        self._judges: dict[str, NamedVerifier] = {}
        if instead is not None:
            self._judge(instead)

    def __call__(self, rows: Sequence[Stored]) -> Judged:
        """The verdicts on some stored rollouts; InputError for a task that is unknown, or can never be judged."""
        texts = [row.text for row in rows]
        found = Judged(
            [None] * len(rows),
            [row.outcome or "missing" for row in rows],
            [None] * len(rows),
            [text is not None for text in texts],
        )
        there = [row for row, seen in enumerate(found.seen) if seen]
        for row, text in enumerate(texts):
            if text is None and found.outcomes[row] == "scored":
                found.outcomes[row] = "missing"  # a number, and nothing left that could be judged
        said: Sequence[Any] = [texts[row] for row in there]
        answers = filtered(self._chain, said) if self._chain else said
        asked: defaultdict[str, list[tuple[int, Task, str]]] = defaultdict(list)
        for row, answer in zip(there, answers, strict=True):
            stored = rows[row]
            if isinstance(answer, RegexTimeout):
                _fail(found, row, VerifierError(str(answer), outcome="filter_timeout"))
            elif answer is None:
                found.outcomes[row] = _ended(stored) or "unparsed"
            else:
                task, judge = self._of(stored.task)
                asked[judge.name].append((row, task, answer))
        for name, cases in asked.items():
            quick = QUICK.get(id(self._judges[name]))
            tasks, given = [task for _, task, _ in cases], [text for _, _, text in cases]
            if quick:
                rewards, answers = quick(tasks, given)
                for (row, _, _), reward, answer in zip(cases, rewards, answers, strict=True):
                    if isinstance(reward, VerifierError):
                        _fail(found, row, reward)
                    else:
                        found.rewards[row], found.answers[row] = reward, answer
                        found.outcomes[row] = _ended(rows[row]) or "scored"
            else:
                self._ask(name, rows, cases, found)
        return found

    def notes(self) -> list[str]:
        """Nothing: what could not be judged says so itself."""
        return []

    def _ask(self, name: str, rows: Sequence[Stored], cases: Sequence[tuple[int, Task, str]], found: Judged) -> None:
        judge = self._judges[name]
        verdicts = self._bench.judge([(judge, task, Completion(text)) for _, task, text in cases])
        for (row, _, _), verdict in zip(cases, verdicts, strict=True):
            if isinstance(verdict, VerifierError):
                _fail(found, row, verdict)
                continue
            found.rewards[row], found.answers[row] = verdict.reward, verdict.answer
            found.outcomes[row] = _ended(rows[row]) or _word(verdict)
            if more := {**verdict.fields, **{f"judge_{key}": value for key, value in verdict.usage.items()}}:
                found.more[row] = more
            if verdict.rewards:
                found.many[row] = verdict.rewards

    def _of(self, task_id: str | int) -> tuple[Task, NamedVerifier]:
        """A task as it is to be judged, and its judge."""
        ready = self._ready.get(task_id) if isinstance(task_id, str) else None
        return ready or self._readied(str(task_id))

    def _readied(self, task_id: str) -> tuple[Task, NamedVerifier]:
        task = self._tasks.get(task_id)
        if task is None:
            right = "give the one that was run: --benchmark DIR"
            raise InputError.at(f"task {task_id!r}", "is not in the benchmark", right)
        name = self._instead or task.verifier
        if name is None:
            raise InputError.at(f"task {task_id!r}", "no verifier judges it", "name one: --verifier NAME")
        own = task.params if name == task.verifier else {}
        task = replace(task, verifier=name, params={**own, **self._params})
        judge = self._judge(name)
        judge.check(task)
        self._ready[task_id] = task, judge
        return task, judge

    def _judge(self, name: str) -> NamedVerifier:
        if name not in self._judges:
            judge = verifier(name)
            if not judge.rerunnable:
                wrong = "its verdict depends on more than the completion, which is all that was stored"
                raise InputError.at(f"verifier {name!r}", wrong, "run the benchmark again instead")
            self._judges[judge.name] = self._judges[name] = judge
        return self._judges[name]


def _word(verdict: Verdict) -> str:
    given = verdict.reward is not None or verdict.rewards
    return verdict.outcome or ("scored" if given else "missing")


def _ended(stored: Stored) -> str:
    """The outcome that a completion has by itself; "" when it is for its judge to say."""
    if stored.outcome in ENDED:
        return stored.outcome or ""
    return "" if (stored.text or "").strip() else "empty"


def _fail(found: Judged, row: int, error: VerifierError) -> None:
    found.outcomes[row] = error.outcome
    found.more[row] = {"error": str(error)}
