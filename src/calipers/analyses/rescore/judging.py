"""Stored completions verified again, a batch at a time: first filters, then verifiers.

Text verifiers take a whole batch at once (`verify_many`); all others are asked one completion at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from calipers.analyses.rescore.stored import Stored
from calipers.clients.client import Completion
from calipers.errors import InputError, VerifierError
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, SCORED
from calipers.running.rollout import BROKE, Bench, column, whole_characters
from calipers.tasks.task import Task
from calipers.text.filters import Answer, Filter, filtered
from calipers.verifiers.find import NamedVerifier, named_verifier, verifier
from calipers.verifiers.verifier import Verdict, ready

MOST_REASONS: Final = 3  # that are told
MOST_ERRORS: Final = 100  # different ones that are counted
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

    def worths(self) -> list[float | None]:
        """The number that each row contributes, by the rules of the ledger; None for a gap, [R]."""
        pairs = zip(self.outcomes, self.rewards, strict=True)
        return [reward if word == "scored" else contribution(word, reward) for word, reward in pairs]


@dataclass(frozen=True, slots=True)
class Cases:
    """What one verifier is to judge: of each its row, its task, and the text that the filters left."""

    rows: list[int] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class BatchJudge:
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
        self._errors: Counter[str] = Counter()  # why there was no verdict
        if instead is not None:
            self._judge(instead)

    def __call__(self, rows: Sequence[Stored]) -> Judged:
        """The verdicts on some stored rollouts; InputError for a task that is unknown, or can never be judged."""
        texts = [
            row.completion if row.outcome == "scored" and type(row.completion) is str else row.text for row in rows
        ]
        found = Judged(
            [None] * len(rows),
            [row.outcome or "missing" for row in rows],
            [None] * len(rows),
            [text is not None for text in texts],
        )
        answers = self._answers(texts)
        ready, asked, outcomes = self._ready, dict[str, Cases](), found.outcomes
        for row, (stored, text, answer) in enumerate(zip(rows, texts, answers, strict=True)):
            if text is None:
                if stored.outcome == "scored":
                    outcomes[row] = "missing"  # a number, and nothing left that could be judged
            elif type(answer) is str:
                task, judge = ready.get(str(stored.task)) or self._readied(str(stored.task))
                if (cases := asked.get(judge.name)) is None:
                    cases = asked[judge.name] = Cases()
                cases.rows.append(row)
                cases.tasks.append(task)
                cases.texts.append(answer)
                outcomes[row] = _ended(stored.outcome, text)
            elif answer is None:
                outcomes[row] = _ended(stored.outcome, text) or "unparsed"
            else:
                _fail(found, row, VerifierError(str(answer), outcome="filter_timeout"))
        for name, cases in asked.items():
            verify_many = getattr(self._judges[name], "verify_many", None)
            if verify_many is not None:
                _take(found, cases, *verify_many(cases.tasks, cases.texts))
            else:
                self._ask(name, cases, found)
        for row, more in found.more.items():
            reason = f"{outcomes[row]}: {more.get('error')}"
            worth_telling = CODE[outcomes[row]] >= FIRST_GAP or outcomes[row] == BROKE
            if worth_telling and (len(self._errors) < MOST_ERRORS or reason in self._errors):
                self._errors[reason] += 1
        return found

    def _answers(self, texts: Sequence[str | None]) -> Sequence[Answer]:
        """The answers that the filters extract from the texts."""
        if not self._chain:
            return texts
        there = [text for text in texts if text is not None]
        answers = filtered(self._chain, there)
        if len(there) == len(texts):
            return answers
        each = iter(answers)
        return [None if text is None else next(each) for text in texts]

    def notes(self) -> list[str]:
        """The notes of the verifiers, and why some verdicts are missing."""
        return [*self._bench.notes, *self.reasons()]

    def reasons(self) -> list[str]:
        """The most frequent reasons for missing verdicts, with counts: ``12 judge_failed: ...``."""
        return [f"{count} {reason}" for reason, count in self._errors.most_common(MOST_REASONS)]

    def _ask(self, name: str, cases: Cases, judged: Judged) -> None:
        judge = self._judges[name]
        pairs = zip(cases.tasks, cases.texts, strict=True)
        verdicts = self._bench.judge([(judge, task, Completion(text)) for task, text in pairs])
        for row, verdict in zip(cases.rows, verdicts, strict=True):
            if isinstance(verdict, VerifierError):
                _fail(judged, row, verdict)
                continue
            judged.rewards[row] = verdict.reward
            judged.answers[row] = None if verdict.answer == "" else whole_characters(verdict.answer)
            judged.outcomes[row] = judged.outcomes[row] or _word(verdict)
            if more := {
                **{column(key): value for key, value in verdict.fields.items()},
                **{f"judge_{key}": value for key, value in verdict.usage.items()},
            }:
                judged.more[row] = more
            if verdict.rewards:
                judged.many[row] = verdict.rewards

    def _readied(self, task_id: str) -> tuple[Task, NamedVerifier]:
        if task_id in self._ready:  # the log has it as a number
            return self._ready[task_id]
        task = self._tasks.get(task_id)
        if task is None:
            right = "give the benchmark of the run: --benchmark DIR"
            raise InputError.at(f"task {task_id!r}", "is not in the benchmark", right)
        name = self._instead or task.verifier
        if name is None:
            raise InputError.at(f"task {task_id!r}", "has no verifier", "give one: --verifier NAME")
        params = task.params if name == task.verifier else {}
        task = replace(task, verifier=name, params={**params, **self._params})
        judge = self._judge(name)
        judge.check(task)
        self._ready[task_id] = task, judge
        return task, judge

    def _judge(self, name: str) -> NamedVerifier:
        if name not in self._judges:
            judge = named_verifier(name) if name == self._instead else verifier(name)
            if not judge.rerunnable:
                wrong = "its verdict depends on more than the completion, and only the completion is stored"
                raise InputError.at(f"verifier {name!r}", wrong, "run the benchmark again instead")
            ready([judge])
            self._judges[judge.name] = self._judges[name] = judge
        return self._judges[name]


def contribution(outcome: str, reward: float | None) -> float | None:
    """The number that one rollout contributes; None for a gap."""
    code = CODE[outcome]
    if code >= FIRST_GAP:
        return None
    return 0.0 if code >= FIRST_NIL else reward if reward is not None or code == SCORED else 0.0


def _word(verdict: Verdict) -> str:
    given = verdict.reward is not None or verdict.rewards
    return verdict.outcome or ("scored" if given else "missing")


def _ended(outcome: str | None, text: str) -> str:
    """The outcome that a completion has by itself; "" when it is for its judge to say."""
    if outcome in ENDED:
        return outcome or ""
    return "empty" if not text or text.isspace() else ""


def _take(judged: Judged, cases: Cases, rewards: Sequence[float | VerifierError], answers: Sequence[Any]) -> None:
    kept, outcomes, kept_answers = judged.rewards, judged.outcomes, judged.answers
    for row, reward, answer in zip(cases.rows, rewards, answers, strict=True):
        if type(reward) is float:
            kept[row], kept_answers[row] = reward, answer
            outcomes[row] = outcomes[row] or "scored"
        elif isinstance(reward, VerifierError):
            _fail(judged, row, reward)


def _fail(judged: Judged, row: int, error: VerifierError) -> None:
    judged.outcomes[row] = error.outcome
    spent: Mapping[str, float] = getattr(error, "usage", {})
    judged.more[row] = {
        "error": whole_characters(str(error)),
        **{f"judge_{key}": value for key, value in spent.items()},
    }
