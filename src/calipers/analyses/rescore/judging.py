"""Stored rollouts verified again, a batch of lines at a time: first filters, then verifiers.

Text verifiers take a whole batch at once (`verify_many`); all others are asked one completion at a time.
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
from calipers.formats.read import found_format
from calipers.formats.run_folder import LOG, RunLog, is_run
from calipers.formats.source import BOM, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.rollouts.column import Ints
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, SCORED, Outcome, fault, said_text
from calipers.running.rollout import BROKE, Bench, column, whole_characters
from calipers.tasks import Task
from calipers.text.filters import Answer, Filter, filtered
from calipers.verifiers import NamedVerifier, Verdict, ready
from calipers.verifiers.user_code import find_verifier, named_verifier

AT_ONCE = 1 << 18  # bytes of a batch
BLANKS = b" \t\r"
_RIGHT = "expected a run folder, or JSON Lines with one rollout per line"
MOST_REASONS: Final = 3  # that are told
MOST_ERRORS: Final = 100  # different ones that are counted
ENDED: Final = frozenset({"refused", "truncated", "timed_out"})  # the completion's own doing, whatever it is worth


class Stored(msgspec.Struct, gc=False):
    """The keys of a record that judging it again asks for; all others are passed over."""

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
        """What the model said, of several turns the last; None when nothing came."""
        return said_text(self.completion, self.outcome)


@dataclass(frozen=True, slots=True)
class Batch:
    """R lines that follow each other, blank ones left out."""

    data: bytes  # the lines, each with its newline
    ends: list[int]  # [R] where their newlines stand
    rows: list[Any]  # [R] what `Wanted` reads of them: more than `Stored`
    numbers: Sequence[int]  # [R] of the lines in their file


class Wanted:
    """What is read of a record: `Stored`, whether it had this reward before, and labels for ``--by``.

    A label is a key of the record or a path into its metadata; which it is, the records say, so that
    both are kept, as raw JSON.
    """

    def __init__(self, name: str, labels: Collection[str] = ()) -> None:
        for label in labels:
            if re.search(r'["\\\x00-\x1f]', label):
                wrong = f"the key {label!r:.60} has a quote, a backslash or a control character in it"
                raise InputError.at("--by", wrong, "expected a key of the records without one")
        keys = [label for label in sorted(labels) if label not in Stored.__struct_fields__]
        steps = sorted({label.split(".")[0] for label in labels})
        inner = [(f"f{i}", Raw, NOTHING) for i in range(len(steps))]
        metadata = msgspec.defstruct(
            "Metadata", inner, rename={f"f{i}": step for i, step in enumerate(steps)}, gc=False
        )
        fields = [
            ("before", str | None, None),
            *([("metadata", metadata | None, None)] if steps else []),
            *((f"f{i}", Raw, NOTHING) for i in range(len(keys))),
        ]
        rename = {"before": f"{name}_outcome", **{f"f{i}": key for i, key in enumerate(keys)}}
        row = msgspec.defstruct("Row", fields, bases=(Stored,), rename=rename, gc=False)
        self.decoder = msgspec.json.Decoder(row)
        self._keys, self._steps = keys, steps

    def labels(self, rows: Sequence[Any]) -> Iterator[tuple[str, list[bytes | None]]]:
        """The labels of some rows, named as `Gather` wants them."""
        for i, key in enumerate(self._keys):
            yield f"raw:{key}", [bytes(getattr(row, f"f{i}")) or None for row in rows]
        for i, step in enumerate(self._steps):
            values = [bytes(getattr(row.metadata, f"f{i}", b"")) or None for row in rows]
            yield f"raw:metadata.{step}", values


_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def open_stored(path: str) -> Source:
    """The rollouts at a path, to be read; InputError when there are none."""
    if os.path.isdir(path) and not is_run(path):
        raise InputError.at(path, "is not a run folder: it has no plan.json", _RIGHT)
    source = RunLog(path) if is_run(path) else Source(path)
    if isinstance(source, RunLog):
        if not source.size:
            source.close()
            raise InputError.at(os.path.join(path, LOG), "no rollouts", "run the benchmark first")
        return source
    kind = found_format(source).name
    if kind not in ("native", "run"):
        source.close()
        raise InputError.at(path, f"is {kind}", _RIGHT)
    return source


def batches(source: Source, wanted: Wanted) -> Iterator[Batch]:
    """The lines of a source, about a thousand at a time; InputError names the first that is no record."""
    before = 0
    pieces = _pieces(source)
    while data := _next(pieces, source.path, before + 1):
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
        numbers = range(before + 1, before + len(ends) + 1)
        before += len(ends)
        rows = _decoded(data, ends, wanted)
        if rows is not None:
            yield Batch(data, ends.tolist(), rows, numbers)
            continue
        split = zip(numbers, data.split(b"\n"), strict=False)  # the last is what follows the last newline: nothing
        filled = [(number, line.strip(BLANKS)) for number, line in split if line.strip(BLANKS)]
        if filled:
            rows = [_record(source.path, number, line, wanted) for number, line in filled]
            ends = np.cumsum([len(line) + 1 for _, line in filled]) - 1
            data = b"".join(line + b"\n" for _, line in filled)
            yield Batch(data, ends.tolist(), rows, [number for number, _ in filled])


def _next(pieces: Iterator[bytes], path: str, line: int) -> bytes:
    try:
        return next(pieces, b"")
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{path}:{line}", wrong, "expected one rollout per line") from None


def _pieces(source: Source) -> Iterator[bytes]:
    """The bytes of a source, some whole lines at a time; the last of them ends with a newline, too."""
    source.head = source.head.removeprefix(BOM)
    blocks: list[bytes] = []
    too_long = None
    try:
        for view in line_blocks(source.readinto):
            blocks.append(bytes(view))
            if sum(map(len, blocks)) >= AT_ONCE:
                yield b"".join(blocks)
                blocks = []
    except LongLine as error:
        too_long = error
    if rest := b"".join(blocks):
        yield rest if rest.endswith(b"\n") else rest + b"\n"
    if too_long:
        raise too_long


def _decoded(data: bytes, ends: Ints, wanted: Wanted) -> list[Any] | None:
    """The records of some lines; None unless each line is exactly one, from its first byte to its last."""
    octets = np.frombuffer(data, dtype=np.uint8)
    # inside an object no newline stands between } and {, so that here each one parts two of them
    whole = octets[0] == ord("{") and (octets[ends - 1] == ord("}")).all()
    if not (whole and (octets[ends[:-1] + 1] == ord("{")).all()):
        return None
    try:
        records: list[Any] = wanted.decoder.decode_lines(data)
    except _BAD:
        return None
    return records if len(records) == len(ends) else None


def _record(path: str, number: int, line: bytes, wanted: Wanted) -> Any:
    try:
        line.decode()
        return wanted.decoder.decode(line)
    except _BAD as error:
        wrong, right = f"is not a rollout ({error})", "expected one JSON object per line"
        with suppress(ValueError, RecursionError):
            wrong, right = fault(json.loads(line), {}) or (wrong, right)
        if wrong.startswith("no key"):  # whose advice is for a file that is scored: here no key can be named
            right = "expected one rollout per line, as in a run's rollouts.jsonl"
        raise InputError.at(f"{path}:{number}", wrong, right) from None


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
            judge = named_verifier(name) if name == self._instead else find_verifier(name)
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
