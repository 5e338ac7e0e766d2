"""Verify stored rollouts again, one batch of lines at a time: first filters, then verifiers.

Text verifiers judge a whole batch in one call (`verify_many`); all others judge one completion at a time.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.formats import Raw
from calipers.formats.lines import NOTHING
from calipers.formats.read import format_of
from calipers.formats.run_folder import LOG, RunLog, is_run
from calipers.formats.source import BOM, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.remarks import Remark
from calipers.rollouts.column import Ints
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, SCORED, Outcome, completion_text, fault
from calipers.running.rollout import BROKE, Bench, Blame, column, whole_characters
from calipers.tasks import Task
from calipers.text.filters import Answer, Filter, filtered
from calipers.text.patterns import RegexTimeout
from calipers.text.reasoning import split
from calipers.typed import complete
from calipers.verifiers import NamedVerifier, Verdict, ready
from calipers.verifiers.reasoning import keeping, split_remarks, splits
from calipers.verifiers.reasoning import unfinished as unfinished_verdict
from calipers.verifiers.text import FilterOnly
from calipers.verifiers.user_code import find_verifier, named_verifier

BATCH_BYTES = 1 << 18  # bytes of a batch
BLANKS = b" \t\r"
_EXPECTED = "expected a run folder, or JSON Lines with one rollout per line"
MOST_REASONS: Final = 3  # reasons for missing verdicts that are shown
MOST_ERRORS: Final = 100  # different reasons that are counted
ENDED: Final = frozenset({"refused", "truncated", "timed_out"})  # outcomes of the completion itself, for any reward


class Stored(msgspec.Struct, gc=False):
    """The keys of a record that a rescore reads; all others are skipped."""

    task: str | int
    sample: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 0
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**53)] = 1
    outcome: Outcome | None = None
    reward: float | bool | None = None
    rewards: dict[str, float | bool | None] | msgspec.UnsetType | None = msgspec.UNSET
    completion: str | list[Any] | dict[str, Any] | None = None
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None

    @property
    def text(self) -> str | None:
        """The text of the completion, or of its last turn; None if there is no completion."""
        return completion_text(self.completion, self.outcome)


@dataclass(frozen=True, slots=True)
class Batch:
    """R consecutive lines without blank ones."""

    data: bytes  # the lines, each with its newline
    ends: list[int]  # [R] positions of the newlines
    rows: list[Any]  # [R] structs that `LoggedSchema` decodes, with more fields than `Stored`
    numbers: Sequence[int]  # [R] line numbers in the file


class LoggedSchema:
    """The struct that is decoded from a record: `Stored`, the earlier outcome of this reward, and labels for ``--by``.

    A label is a key of the record or a path into its metadata. Only the records determine which one it is, so both are
    read, as raw JSON.
    """

    def __init__(self, name: str, labels: Collection[str] = ()) -> None:
        for label in labels:
            if re.search(r'["\\\x00-\x1f]', label):
                problem = f"the key {label!r:.60} has a quote, a backslash or a control character in it"
                raise InputError.at("--by", problem, "expected a key of the records without one")
        keys = [label for label in sorted(labels) if label not in Stored.__struct_fields__]
        steps = sorted({label.split(".")[0] for label in labels})
        inner = [(f"f{i}", Raw, NOTHING) for i in range(len(steps))]
        metadata = msgspec.defstruct(
            "Metadata", inner, rename={f"f{i}": step for i, step in enumerate(steps)}, gc=False
        )
        fields = [
            ("before", str | None, None),
            *([] if "error" in keys else [("stored_error", Raw, NOTHING)]),
            *([("metadata", metadata | None, None)] if steps else []),
            *((f"f{i}", Raw, NOTHING) for i in range(len(keys))),
        ]
        rename = {"before": f"{name}_outcome", "stored_error": "error", **{f"f{i}": key for i, key in enumerate(keys)}}
        row = msgspec.defstruct("Row", fields, bases=(Stored,), rename=rename, gc=False)
        self.decoder = msgspec.json.Decoder(complete(row))
        self._keys, self._steps = keys, steps

    def errors(self, rows: Sequence[Any]) -> list[Raw]:
        """The raw error of each row, empty for a row without one."""
        field = f"f{self._keys.index('error')}" if "error" in self._keys else "stored_error"
        return [getattr(row, field) for row in rows]

    def labels(self, rows: Sequence[Any]) -> Iterator[tuple[str, list[bytes | None]]]:
        """The labels of rows, with the names that `PartBuilder` expects."""
        for i, key in enumerate(self._keys):
            yield f"raw:{key}", [bytes(getattr(row, f"f{i}")) or None for row in rows]
        for i, step in enumerate(self._steps):
            values = [bytes(getattr(row.metadata, f"f{i}", b"")) or None for row in rows]
            yield f"raw:metadata.{step}", values


_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def open_stored(path: str) -> Source:
    """Open the rollouts of a run folder or file; InputError if there are none."""
    if os.path.isdir(path) and not is_run(path):
        raise InputError.at(path, "is not a run folder: it has no plan.json", _EXPECTED)
    source = RunLog(path) if is_run(path) else Source(path)
    if isinstance(source, RunLog):
        if not source.size:
            source.close()
            raise InputError.at(os.path.join(path, LOG), "no rollouts", "run the benchmark first")
        return source
    kind = format_of(source).name
    if kind not in ("native", "run"):
        source.close()
        raise InputError.at(path, f"is {kind}", _EXPECTED)
    return source


def batches(source: Source, schema: LoggedSchema) -> Iterator[Batch]:
    """The lines of a source in batches of `BATCH_BYTES`; InputError names the first line that is not a record."""
    before = 0  # lines in earlier batches
    pieces = _pieces(source)
    while data := _next_lines(pieces, source.path, before + 1):
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
        numbers = range(before + 1, before + len(ends) + 1)
        before += len(ends)
        rows = _decoded(data, ends, schema)
        if rows is not None:
            yield Batch(data, ends.tolist(), rows, numbers)
            continue
        numbered = zip(numbers, data.split(b"\n"), strict=False)  # not strict: after the last newline is an empty item
        lines = [(number, line.strip(BLANKS)) for number, line in numbered if line.strip(BLANKS)]
        if lines:
            rows = [_record(source.path, number, line, schema) for number, line in lines]
            ends = np.cumsum([len(line) + 1 for _, line in lines]) - 1
            data = b"".join(line + b"\n" for _, line in lines)
            yield Batch(data, ends.tolist(), rows, [number for number, _ in lines])


def _next_lines(pieces: Iterator[bytes], path: str, line: int) -> bytes:
    try:
        return next(pieces, b"")
    except LongLine:
        problem = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{path}:{line}", problem, "expected one rollout per line") from None


def _pieces(source: Source) -> Iterator[bytes]:
    """The bytes of a source in pieces of complete lines. The last line gets a newline if it has none."""
    source.head = source.head.removeprefix(BOM)
    blocks: list[bytes] = []
    too_long = None
    try:
        for view in line_blocks(source.readinto):
            blocks.append(bytes(view))
            if sum(map(len, blocks)) >= BATCH_BYTES:
                yield b"".join(blocks)
                blocks = []
    except LongLine as error:
        too_long = error
    if rest := b"".join(blocks):
        yield rest if rest.endswith(b"\n") else rest + b"\n"
    if too_long:
        raise too_long


def _decoded(data: bytes, ends: Ints, schema: LoggedSchema) -> list[Any] | None:
    """The records of the lines; None unless each line is exactly one record from its first to its last byte."""
    octets = np.frombuffer(data, dtype=np.uint8)
    # JSON has no newline between } and { inside an object, so each newline here separates two records
    complete = octets[0] == ord("{") and (octets[ends - 1] == ord("}")).all()
    if not (complete and (octets[ends[:-1] + 1] == ord("{")).all()):
        return None
    try:
        records: list[Any] = schema.decoder.decode_lines(data)
    except _BAD:
        return None
    return records if len(records) == len(ends) else None


def _record(path: str, number: int, line: bytes, schema: LoggedSchema) -> Any:
    """Decode one line; InputError that describes its first fault."""
    try:
        line.decode()
        return schema.decoder.decode(line)
    except _BAD as error:
        problem, expected = f"is not a rollout ({error})", "expected one JSON object per line"
        with suppress(ValueError, RecursionError):
            problem, expected = fault(json.loads(line), {}) or (problem, expected)
        if problem.startswith("no key"):  # its advice to name the key does not apply to a rescore
            expected = "expected one rollout per line, as in a run's rollouts.jsonl"
        raise InputError.at(f"{path}:{number}", problem, expected) from None


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts on R rows. A row without a reward contributes what its outcome determines."""

    rewards: list[float | None]  # [R]
    outcomes: list[str]  # [R]
    answers: list[Any]  # [R]
    judgeable: list[bool]  # [R] whether the row has something to judge
    extra_keys: dict[int, dict[str, Any]] = field(default_factory=dict)  # row -> further keys of its record
    extra_rewards: dict[int, Mapping[str, float]] = field(default_factory=dict)  # row -> its other rewards

    @classmethod
    def of(cls, rows: Sequence[Stored], judgeable: list[bool]) -> Judged:
        """The verdicts on rows before any of them is judged: no reward, and the stored outcome."""
        size = len(rows)
        return cls([None] * size, [row.outcome or "missing" for row in rows], [None] * size, judgeable)

    def contributions(self) -> list[float | None]:
        """The number that each row contributes, by the rules of the ledger; None for a gap, [R]."""
        pairs = zip(self.outcomes, self.rewards, strict=True)
        return [reward if outcome == "scored" else contribution(outcome, reward) for outcome, reward in pairs]


@dataclass(frozen=True, slots=True)
class Cases:
    """The input of one verifier: the rows, their tasks, and their texts after the filters."""

    rows: list[int] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class BatchJudge:
    """The verifiers of a benchmark's tasks, or one verifier for all tasks."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        chain: Sequence[Filter],
        bench: Bench,
        verifier: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        split: bool = True,
    ) -> None:
        self._tasks, self._chain, self._bench, self._split = tasks, chain, bench, split
        self._split_tasks: set[str] = set()  # ids of the tasks whose completions are split
        self._splits: Counter[str] = Counter()  # completions whose reasoning was split off, by its marker
        self._completions = 0
        self._verifier, self._params = verifier, params or {}
        self._checked: dict[str, tuple[Task, NamedVerifier]] = {}  # task id -> task and verifier, which can judge it
        self._judges: dict[str, NamedVerifier] = {}
        self._errors: Counter[str] = Counter()  # reasons for missing verdicts
        if verifier is not None:
            self._judge(verifier)

    def __call__(self, rows: Sequence[Stored]) -> Judged:
        """The verdicts on stored rollouts; InputError for a task that is unknown or cannot be judged."""
        texts = [
            row.completion if row.outcome == "scored" and type(row.completion) is str else row.text for row in rows
        ]
        judged = Judged.of(rows, [text is not None for text in texts])
        unfinished = self._without_reasoning(rows, texts)
        answers = self._answers(texts)
        checked, cases_of, outcomes = self._checked, dict[str, Cases](), judged.outcomes
        for row, (stored, text, answer) in enumerate(zip(rows, texts, answers, strict=True)):
            if text is None:
                if stored.outcome == "scored":
                    outcomes[row] = "missing"  # it had a reward, but has no completion that could be judged
            elif row in unfinished:
                _, judge = self._checked[str(stored.task)]
                verdict = unfinished_verdict(judge)
                judged.rewards[row] = verdict.reward
                outcomes[row] = stored.outcome if stored.outcome in ENDED else verdict.outcome
            elif type(answer) is str:
                task, judge = checked.get(str(stored.task)) or self._task_and_judge(str(stored.task))
                if (cases := cases_of.get(judge.name)) is None:
                    cases = cases_of[judge.name] = Cases()
                cases.rows.append(row)
                cases.tasks.append(task)
                cases.texts.append(answer)
                outcomes[row] = _own_outcome(stored.outcome, text)
            elif answer is None:
                outcomes[row] = _own_outcome(stored.outcome, text) or "unparsed"
            elif isinstance(answer, RegexTimeout):
                task, _ = checked.get(str(stored.task)) or self._task_and_judge(str(stored.task))
                _record_error(judged, row, self._blamed(task, text, answer))
        for name, cases in cases_of.items():
            verify_many = getattr(self._judges[name], "verify_many", None)
            if verify_many is not None:
                unsure = _record_many(judged, cases, *verify_many(cases.tasks, cases.texts))
                self._judge_each(name, unsure, judged)  # a pattern ran out of time: is it the answer's doing?
            else:
                self._judge_each(name, cases, judged)
        for row, keys in judged.extra_keys.items():
            reason = f"{outcomes[row]}: {keys.get('error')}"
            is_error = CODE[outcomes[row]] >= FIRST_GAP or outcomes[row] == BROKE
            if is_error and (len(self._errors) < MOST_ERRORS or reason in self._errors):
                self._errors[reason] += 1
        return judged

    def _without_reasoning(self, rows: Sequence[Stored], texts: list[str | None]) -> set[int]:
        """Replace each text by its answer, and return the rows whose reasoning never ends."""
        unfinished = set[int]()
        for row, text in enumerate(texts):
            if text is None:
                continue
            self._completions += 1
            found = split(text) if self._split else None
            if found is None:
                continue
            name = str(rows[row].task)
            if name not in self._checked:
                self._task_and_judge(name)
            if name in self._split_tasks:
                self._splits[found.marker] += 1
                texts[row] = found.answer
                if not found.closed:
                    unfinished.add(row)
        return unfinished

    def remarks(self) -> Iterator[Remark]:
        """What to say of the completions whose reasoning was split off."""
        return split_remarks(self._splits, self._completions)

    def _answers(self, texts: Sequence[str | None]) -> Sequence[Answer]:
        """The answers that the filters extract from the texts."""
        if not self._chain:
            return texts
        answers = iter(filtered(self._chain, [text for text in texts if text is not None]))
        return [None if text is None else next(answers) for text in texts]

    def _blamed(self, task: Task, text: str, error: RegexTimeout) -> VerifierError:
        """The error of a filter whose pattern ran out of time, by the rule for verifiers (`Blame`)."""
        with Bench(1, Blame()) as bench:  # in this process, as all filters
            [verdict] = bench.judge([(FilterOnly(self._chain), task, Completion(text))])
        if isinstance(verdict, VerifierError):
            return verdict
        return VerifierError(str(error), outcome="filter_timeout")  # it ended this time

    def notes(self) -> list[str]:
        """The notes of the verifiers, and the reasons for missing verdicts."""
        return [*self._bench.notes, *self.reasons()]

    def reasons(self) -> list[str]:
        """The most frequent reasons for missing verdicts, with counts: ``12 judge_failed: ...``."""
        return [f"{count} {reason}" for reason, count in self._errors.most_common(MOST_REASONS)]

    def _judge_each(self, name: str, cases: Cases, judged: Judged) -> None:
        judge = self._judges[name]
        pairs = zip(cases.tasks, cases.texts, strict=True)
        verdicts = self._bench.judge([(judge, task, Completion(text)) for task, text in pairs])
        for row, verdict in zip(cases.rows, verdicts, strict=True):
            if isinstance(verdict, VerifierError):
                _record_error(judged, row, verdict)
                continue
            judged.rewards[row] = verdict.reward
            judged.answers[row] = None if verdict.answer == "" else whole_characters(verdict.answer)
            judged.outcomes[row] = judged.outcomes[row] or _outcome_of(verdict)
            if extra_keys := {
                **{column(key): value for key, value in verdict.fields.items()},
                **{f"judge_{key}": value for key, value in verdict.usage.items()},
            }:
                judged.extra_keys[row] = extra_keys
            if verdict.rewards:
                judged.extra_rewards[row] = verdict.rewards

    def _task_and_judge(self, task_id: str) -> tuple[Task, NamedVerifier]:
        """The task with its verifier, which is checked once; InputError if the verifier cannot judge it."""
        task = self._tasks.get(task_id)
        if task is None:
            advice = "give the benchmark of the run: calipers rescore RUN --benchmark DIR"
            raise InputError.at(f"task {task_id!r}", "is not in the benchmark", advice)
        name = self._verifier or task.verifier
        if name is None:
            raise InputError.at(f"task {task_id!r}", "has no verifier", "name it: calipers rescore RUN --verifier NAME")
        params = task.params if name == task.verifier else {}
        task = replace(task, verifier=name, params={**params, **self._params})
        judge = self._judge(name)
        judge.check(task)
        if self._split and splits(task):
            self._split_tasks.add(task_id)
        self._checked[task_id] = keeping(task), judge  # what it gets is the answer, if reasoning is split off
        return self._checked[task_id]

    def _judge(self, name: str) -> NamedVerifier:
        """The verifier of a name, which is made once; InputError if it cannot judge stored completions."""
        if name not in self._judges:
            judge = named_verifier(name) if name == self._verifier else find_verifier(name)
            if not judge.rerunnable:
                problem = "its verdict depends on more than the completion, and only the completion is stored"
                raise InputError.at(f"verifier {name!r}", problem, "run the benchmark again instead")
            ready([judge])
            self._judges[judge.name] = self._judges[name] = judge
        return self._judges[name]


def contribution(outcome: str, reward: float | None) -> float | None:
    """The number that a rollout contributes by the rules of the ledger; None for a gap."""
    code = CODE[outcome]
    if code >= FIRST_GAP:
        return None
    return 0.0 if code >= FIRST_NIL else reward if reward is not None or code == SCORED else 0.0


def _outcome_of(verdict: Verdict) -> str:
    """The outcome of a verdict; if it states none, it is scored if it has a reward, else missing."""
    has_reward = verdict.reward is not None or verdict.rewards
    return verdict.outcome or ("scored" if has_reward else "missing")


def _own_outcome(outcome: str | None, text: str) -> str:
    """The outcome that a completion has independent of its judge; "" if the judge determines the outcome."""
    if outcome in ENDED:
        return outcome or ""
    return "empty" if not text or text.isspace() else ""


def _record_many(
    judged: Judged, cases: Cases, rewards: Sequence[float | VerifierError], answers: Sequence[Any]
) -> Cases:
    """Record the verdicts of one verifier on its cases, and return those whose failure the answer may have caused."""
    unsure = Cases()
    verdicts = zip(cases.rows, cases.tasks, cases.texts, rewards, answers, strict=True)
    for row, task, text, reward, answer in verdicts:
        if type(reward) is float:
            judged.rewards[row], judged.answers[row] = reward, answer
            judged.outcomes[row] = judged.outcomes[row] or "scored"
        elif isinstance(reward, VerifierError) and reward.suspect:
            unsure.rows.append(row)
            unsure.tasks.append(task)
            unsure.texts.append(text)
        elif isinstance(reward, VerifierError):
            _record_error(judged, row, reward)
    return unsure


def _record_error(judged: Judged, row: int, error: VerifierError) -> None:
    """Record that a row could not be judged."""
    judged.outcomes[row] = error.outcome
    usage: Mapping[str, float] = getattr(error, "usage", {})
    judged.extra_keys[row] = {
        "error": whole_characters(str(error)),
        **({"blame": error.tried["blame"]} if "blame" in error.tried else {}),
        **{f"judge_{key}": value for key, value in usage.items()},
    }
