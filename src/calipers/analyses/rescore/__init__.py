"""Verify a finished run again, without a model.

::

    log ──► batches ──► filters ──► verifiers ──► the same lines with one more reward ──► table ──► changes
                 └── or imported rewards, by task and sample

The log is only read. The result is a new file, which is written atomically.

Each record of the new file has one more reward, and its older rewards keep their values. A reward called NAME adds
``rewards.NAME``, ``NAME_answer``, ``NAME_outcome`` if it is not `scored`, and any other fields of the verdict as
``NAME_...``. A record has one outcome for all its rewards. The outcome must change if it would hide the new reward or
turn a gap into a number. It is then `scored`, each reward is either given or absent, and the old rewards still
contribute what they did before.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, Self

import msgspec
import numpy as np
from msgspec import UNSET

from calipers.analyses.rescore.judging import (
    Batch,
    BatchJudge,
    Judged,
    LoggedSchema,
    Stored,
    batches,
    open_stored,
)
from calipers.clients.secrets import Secrets
from calipers.errors import Incomplete, InputError, LogError, display
from calipers.formats import Named, options_of
from calipers.formats.jsonl import errors_before_answer
from calipers.formats.read import run_or_path, uncollected
from calipers.formats.rows import PartBuilder
from calipers.formats.run_folder import (
    LOG,
    PLAN,
    RESULT,
    STOPPED,
    PlanCoverage,
    RunPlan,
    RunStop,
    is_run,
    read_plan,
    read_settings,
    read_stop,
)
from calipers.formats.source import STDIN, Source, line_blocks
from calipers.metrics import PASS_THRESHOLD, passed
from calipers.names import BENCHES, TASK_LIBRARY_NAME, engine_of, is_remote, load
from calipers.pipeline import read, score_rollouts
from calipers.remarks import Remark
from calipers.reports.document import Blank, Block, Document, Name, Row, Sentence, Table, TableColumn, Text, Title
from calipers.reports.figures import counted, decimals, ends, figure
from calipers.reports.page import Page
from calipers.reports.remark_texts import documents_of, text_of
from calipers.reports.result import Result, Slice
from calipers.reports.result_page import named, title
from calipers.reports.untrusted_text import clean
from calipers.request import Plan, make_plan
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, GROUP, MISSING, NOTHING_CAME, OUTCOMES, SCORED
from calipers.rollouts.table import BadRow, Labels, Part, Places, Rollouts, assemble
from calipers.running import NATIVE, Job, provenance
from calipers.running.library import recorded_questions, suite_of
from calipers.running.log import scrubbed, sync_directory
from calipers.running.rollout import REASONING_CHARS, Bench, Blame
from calipers.stats.estimate import Estimate
from calipers.stores import atomic_file, local, uploaded
from calipers.tasks import Suite, Task
from calipers.tasks.jsonl import NotThere
from calipers.tasks.questions import Questions
from calipers.text.filters import find_filter
from calipers.text.reasoning import has_marker
from calipers.typed import complete
from calipers.verifiers import KEEP, REASONING, SPLIT

GAPS: Final = frozenset(word for word, code in CODE.items() if code >= FIRST_GAP)
_encode = msgspec.json.Encoder().encode
_RECORD: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def judged_lines(name: str, batch: Batch, judged: Judged, contributions: Sequence[float | None]) -> bytes:
    """The records of a batch with a new reward called ``name``; ``contributions`` are its values, None for a gap.

    Most records only get new keys. They are not decoded: the keys are inserted before the last brace.
    """
    outcome_key, answer_key = f"{name}_outcome", f"{name}_answer"
    pieces: list[bytes] = []
    data, start, special = batch.data, 0, judged.extra_keys.keys() | judged.extra_rewards.keys()
    columns = zip(batch.rows, batch.ends, contributions, judged.outcomes, judged.answers, strict=True)
    for row, (stored, end, contribution, outcome, answer) in enumerate(columns):
        if (
            stored.rewards is not UNSET
            or stored.before is not None
            or row in special
            or _outcome_must_change(stored, contribution)
        ):
            record = _rewrite_record(_RECORD.decode(data[start:end]), name, row, stored, judged, contribution)
            pieces += (_encode(record), b"\n")
        else:
            new: dict[str, Any] = {} if contribution is None else {"rewards": {name: contribution}}
            if outcome != "scored":
                new[outcome_key] = outcome
            if answer is not None:
                new[answer_key] = answer
            pieces += (data[start : end - 1], b"," if new else b"", _encode(new)[1:], b"\n")
        start = end + 1
    return b"".join(pieces)


def _rewrite_record(
    decoded: Mapping[str, Any], name: str, row: int, stored: Any, judged: Judged, contribution: float | None
) -> dict[str, Any]:
    """A record with the new reward instead of an earlier one of that name, and an outcome that hides no reward."""
    prefix = f"{name}_"
    record = {key: value for key, value in decoded.items() if not key.startswith(prefix)}
    new = {name: contribution, **{prefix + key: value for key, value in judged.extra_rewards.get(row, {}).items()}}
    rewards = {key: value for key, value in (stored.rewards or {}).items() if key not in new}
    if _outcome_must_change(stored, contribution):
        record["outcome"] = "scored"
        if stored.outcome in GAPS:
            rewards = {}
            if stored.reward is not None:
                del record["reward"]  # the old outcome was a gap, so the reward did not count
        elif stored.reward is None and not rewards:
            record["reward"] = 0.0  # the contribution of the old outcome
    rewards |= {key: value for key, value in new.items() if value is not None}
    record.pop("rewards", None)
    if rewards:
        record["rewards"] = rewards
    outcome = judged.outcomes[row]
    verdict = {"outcome": None if outcome == "scored" else outcome, "answer": judged.answers[row]}
    verdict |= judged.extra_keys.get(row, {})
    return record | {prefix + key: value for key, value in verdict.items() if value is not None}


def _outcome_must_change(stored: Stored, contribution: float | None) -> bool:
    """Whether the record's outcome would hide the new reward or turn a gap into a number."""
    if stored.outcome in (None, "scored"):
        return False
    code = CODE[stored.outcome]
    return (code >= FIRST_GAP) != (contribution is None) or (bool(contribution) and FIRST_NIL <= code < FIRST_GAP)


@contextmanager
def _open_target(path: str) -> Iterator[Callable[[bytes], None]]:
    """A writer for a file that appears only when it is complete; InputError or LogError if it cannot be written."""
    real = os.path.realpath(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(atomic_file(real))
        except OSError as error:
            raise InputError.at(path, f"cannot be written ({error.strerror})", "choose another --out") from None

        def write(data: bytes) -> None:
            with _log_errors(path):
                file.write(data)

        yield write
        with _log_errors(path):
            stack.close()
            sync_directory(Path(real).parent)


@contextmanager
def _log_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogError.of(path, error) from None


# internal columns, with names that no file can have: whether a row was judged, its old and new outcome, its new answer
_JUDGED, _BEFORE, _AFTER, _ANSWER = "\0judged", "\0before", "\0after", "\0answer"


@dataclass(frozen=True, slots=True)
class Rejudged:
    """The rollouts of a run with the old and with the new answers; both tables have the same R rows and rewards."""

    old: Rollouts
    new: Rollouts  # with the new answers
    judged: int  # rows that could be judged
    before: Ints  # [R] codes of the old outcomes
    after: Ints  # [R] codes of the new outcomes


class OldAndNewRewards:
    """Builds the table of rollouts with their old and new rewards; a reward that contributes nothing is a gap."""

    def __init__(self, path: str, name: str, schema: LoggedSchema, labels: Collection[str]) -> None:
        self._places, self._name, self._schema, self._labels = Places(path), name, schema, labels
        self._builder = PartBuilder()
        self._judged: list[bool] = []
        self._before: list[int] = []  # codes of outcomes
        self._after: list[int] = []
        self._reads_answers = "answer" in labels  # for metrics of majority votes

    def add(self, batch: Batch, judged: Judged, contributions: Sequence[float | None]) -> None:
        """Add a batch and its verdicts; InputError for a scored record without a reward."""
        builder, rows = self._builder, batch.rows
        first, last = batch.numbers[0], batch.numbers[-1]
        for number, row in zip(batch.numbers, rows, strict=True):
            has_reward = row.reward is not None or any(each is not None for each in (row.rewards or {}).values())
            if row.outcome == "scored" and not has_reward:
                expected = "expected a number in reward or rewards, or another outcome"
                location = f"{self._places.path}:{number}"
                raise InputError.at(location, "outcome is 'scored' but there is no reward", expected)
        self._places.add(builder.rows, first if last - first + 1 == len(rows) else np.array(batch.numbers))
        builder.tasks([row.task for row in rows])
        builder.whole("sample", [row.sample for row in rows])
        builder.whole("attempt", [row.attempt for row in rows])
        builder.numbers("reward", "reward", [row.reward for row in rows])
        for key in {key for row in rows if row.rewards for key in row.rewards} - {self._name}:
            builder.numbers("reward", key, [(row.rewards or {}).get(key) for row in rows])
        builder.numbers("reward", self._name, contributions)
        for key in GROUP:
            names = [getattr(row, key) for row in rows]
            if set(names) != {None}:
                builder.labels(key, names)
        for label, raws in self._schema.labels(rows):
            builder.labels(label, raws)
        flags = errors_before_answer(self._schema.errors(rows))
        if flags is not None:
            builder.before_answer(flags)
        if self._reads_answers:
            answers = [None if answer is None else msgspec.json.encode(answer) for answer in judged.answers]
            builder.labels(f"raw:{_ANSWER}", answers)
        self._judged += judged.judgeable
        self._before += map(_old_code, rows)
        self._after += map(CODE.__getitem__, judged.outcomes)
        builder.rows += len(rows)

    @property
    def judged(self) -> int:
        """The number of rows that could be judged."""
        return sum(self._judged)

    def finish(self) -> Part:
        """The table of all added batches."""
        try:
            part = self._builder.finish(self._places, [*self._labels, *([_ANSWER] if self._reads_answers else [])])
        except BadRow as error:
            row, problem, expected = error.args
            raise InputError.at(self._places.of(row), problem, expected) from None
        before, after = np.array(self._before, dtype=np.int64), np.array(self._after, dtype=np.int64)
        counted_as_zero = (before < FIRST_GAP) & (before != SCORED)
        rewards = {}
        for key, column in part.rewards.items():
            given = column.given & ((before < FIRST_GAP) | (key == self._name))
            zero = counted_as_zero & ~given if key == "reward" else np.zeros(len(before), dtype=bool)
            rewards[key] = Column(np.where(given, column.values, 0.0), given | zero)
        any_given = np.logical_or.reduce([column.given for column in rewards.values()])
        outcome = np.where(any_given, SCORED, np.where(before < FIRST_GAP, MISSING, before)).astype(np.uint8)
        labels = {**part.labels, _BEFORE: Labels(before, OUTCOMES), _AFTER: Labels(after, OUTCOMES)}
        return replace(
            part, rewards=rewards, outcome=outcome, labels=labels, columns={_JUDGED: Column.of(self._judged)}
        )


def rejudged(part: Part) -> Rejudged:
    """The rollouts with the old and with the new answers, and their old and new outcomes."""
    table = assemble([part])
    judged = int(table.columns.pop(_JUDGED).values.sum())
    before, after, answer = table.labels.pop(_BEFORE), table.labels.pop(_AFTER), table.labels.pop(_ANSWER, None)
    new = table if answer is None else replace(table, labels={**table.labels, "answer": answer})
    return Rejudged(table, new, judged, before.code, after.code)


def _old_code(row: Any) -> int:
    """The code of a record's outcome, which is derived from its rewards if the record has none."""
    if row.outcome is not None:
        return CODE[row.outcome]
    return MISSING if row.reward is None and not row.rewards else SCORED


NAMED = 1000  # rollouts of a kind of change that are listed
SAME: Final = "the same"  # the kind of change of rollouts whose reward did not change
TO_GAP, FROM_GAP = "number to gap", "gap to number"  # the kinds of rollouts with one of the two rewards


def flips(table: Rollouts, old: str | None, new: str) -> list[Flip]:
    """The kind of change of every rollout from the old to the new reward. The counts add up to all rollouts."""
    before = contributed(table, old) if old else Column.gaps(len(table))
    after = contributed(table, new)
    passed_before, passed_after = passed(before, PASS_THRESHOLD), passed(after, PASS_THRESHOLD)
    numbered = before.given & after.given
    same = (numbered & (before.values == after.values)) | ~(before.given | after.given)
    kinds: dict[str, Bools] = {
        "pass to fail": numbered & passed_before & ~passed_after,
        "fail to pass": numbered & ~passed_before & passed_after,
        "other reward": numbered & (passed_before == passed_after) & ~same,
        TO_GAP: before.given & ~after.given,
        FROM_GAP: ~before.given & after.given,
    }
    changes = []
    for kind, rows in kinds.items():
        which = [(table.tasks[int(table.task[row])], int(table.sample[row])) for row in np.flatnonzero(rows)[:NAMED]]
        changes.append(Flip(kind, int(rows.sum()), which))
    return [*changes, Flip(SAME, int(same.sum()), ())]


def outcome_counts(before: Ints, after: Ints) -> Mapping[str, tuple[int, int]]:
    """The number of rollouts with each outcome before and after, from the codes of outcomes, [R] each."""
    counts = [np.bincount(codes, minlength=len(OUTCOMES)).tolist() for codes in (before, after)]
    return {word: (old, new) for word, old, new in zip(OUTCOMES, *counts, strict=True) if old or new}


Rewards = str | Any
"""Imported rewards: a file or a table in memory, as `calipers.pipeline.read` accepts them."""


def scores_name(scores: Rewards) -> str:
    """The name of imported rewards in messages: their file, or ``scores``."""
    return os.fspath(scores) if isinstance(scores, (str, os.PathLike)) else "scores"


class ImportedRewards:
    """Imported rewards by (task, sample). A rollout without one becomes `missing`."""

    def __init__(self, path: str, rewards: Mapping[tuple[str, int], float]) -> None:
        self._path, self._rewards = path, rewards
        self._used: set[tuple[str, int]] = set()
        self._empty: set[tuple[str, int]] = set()  # keys of rewards whose rollouts have no completion
        self._without = 0  # rollouts without a reward

    @classmethod
    def read(cls, scores: Rewards, columns: Mapping[str, str]) -> ImportedRewards:
        """Read the rewards of a file or table; ``columns`` maps keys to the names that it uses."""
        path = scores_name(scores)
        table = read(scores, columns=columns)
        if len(table.keys) > 1:
            raise InputError.at(path, f"has {len(table.keys)} groups (agent, model, dataset)", "expected one")
        if "reward" not in table.rewards and len(table.rewards) != 1:
            known = ", ".join(table.rewards) or "none"
            raise InputError.at(path, f"has no key reward (its rewards: {known})", "name it: --columns reward=KEY")
        column = table.rewards.get("reward") or next(iter(table.rewards.values()))
        not_finite = np.flatnonzero(column.given & ~np.isfinite(column.values))
        if len(not_finite):
            task = table.tasks[int(table.task[not_finite[0]])]
            problem = f"the reward of task {task!r} is not a finite number"
            raise InputError.at(path, problem, "expected a finite number, or none")
        keys = zip((table.tasks[task] for task in table.task.tolist()), table.sample.tolist(), strict=True)
        rows = zip(keys, column.values.tolist(), column.given.tolist(), strict=True)
        return cls(path, {key: value for key, value, given in rows if given})

    def __call__(self, rows: Sequence[Stored]) -> Judged:
        """The imported rewards of stored rollouts."""
        judged = Judged.of(rows, [False] * len(rows))
        for index, row in enumerate(rows):
            key = str(row.task), row.sample
            reward = self._rewards.get(key)
            if row.outcome in NOTHING_CAME:
                if reward is not None:
                    self._empty.add(key)
                continue
            if reward is None:
                self._without += 1
                judged.outcomes[index] = "missing"
                continue
            self._used.add(key)
            judged.rewards[index], judged.outcomes[index], judged.judgeable[index] = reward, "scored", True
        return judged

    def remarks(self) -> Sequence[Remark]:
        """None: nothing was verified."""
        return ()

    def notes(self) -> list[str]:
        """Notes on scores and rollouts without a match."""
        unused = len(self._rewards.keys() - self._used - self._empty)
        notes = []
        if self._without:
            notes.append(f"{counted(self._without, 'rollout')} without a score in it: the new reward is missing")
        if unused:
            notes.append(f"{counted(unused, 'score')} not used: the run has no such rollout")
        if self._empty:
            notes.append(f"{counted(len(self._empty), 'score')} not used: the rollout has no completion")
        return [f"{self._path}: {note}" for note in notes]


NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True, slots=True)
class Rescoring:
    """The settings of a rescore."""

    run: str  # the folder of a run, or a file of rollouts
    verifier: str | None = None  # None: the verifier of each task
    params: Mapping[str, Any] = field(default_factory=dict)
    filters: Sequence[str] = ()  # NAME or NAME=SETTING, in order
    benchmark: str | None = None  # None: the benchmark that the run recorded
    scores: Rewards | None = None  # imported rewards, instead of a verifier
    columns: Mapping[str, str] = field(default_factory=dict)  # key -> its name in the imported rewards
    name: str | None = None  # the new reward's name
    reward: str | None = None  # the old reward to compare it with
    metrics: Sequence[str] = ()
    by: tuple[str, ...] = ()
    out: str | None = None
    concurrency: int = 32
    engine: str | None = None  # where completions are verified: "ray" or "ray=ADDRESS"; None: in this process
    reasoning: str | None = None  # split or keep; None: as the run, or split if it does not say

    def __post_init__(self) -> None:
        if self.reasoning not in (None, SPLIT, KEEP):
            raise InputError.at("--reasoning", f"is {self.reasoning!r:.60}", "expected split or keep")
        if self.concurrency < 1:
            raise InputError.at("--concurrency", f"is {self.concurrency}", "expected an integer >= 1")
        if self.scores is not None:
            judging = (self.verifier, self.params, self.filters, self.benchmark, self.reasoning)
            names = ("--verifier", "--param", "--filter", "--benchmark", "--reasoning")
            for option, given in zip(names, judging, strict=True):
                if given:
                    raise InputError.at("--scores", f"does not go with {option}", "give one or the other")
        elif self.columns:
            option = options_of(self.columns)[0]
            raise InputError.at(option, "there is no file of scores", "expected --scores FILE with it")
        if not NAME.fullmatch(self.new_reward) or self.new_reward in ("reward", "__missing__"):
            expected = "expected letters, digits, '_', '-' and '.', and not 'reward'"
            raise InputError.at("--name", f"{self.new_reward!r} cannot be the name of a reward", expected)

    @property
    def new_reward(self) -> str:
        """The name of the new reward."""
        if self.name is not None:
            return self.name
        if self.scores is not None:
            return Path(scores_name(self.scores)).name.partition(".")[0]
        judge = (self.verifier or "again").rpartition(":")[2]  # the object of FILE.py:OBJECT
        return "-".join([*(text.partition("=")[0] for text in self.filters), judge])

    @property
    def target(self) -> str:
        """The file to write."""
        if self.out is not None:
            return self.out
        if is_run(self.run):
            return os.path.join(self.run, f"rescored-{self.new_reward}.jsonl")
        stem, _ = os.path.splitext(self.run)
        return f"{stem}.rescored-{self.new_reward}.jsonl"


def rescore(
    run: str | os.PathLike[str],
    *,
    verifier: str | None = None,
    params: Mapping[str, Any] | None = None,
    filters: str | Sequence[str] = (),
    benchmark: str | os.PathLike[str] | None = None,
    scores: Rewards | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    name: str | None = None,
    reward: str | None = None,
    metrics: str | Sequence[str] = (),
    by: str | Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    concurrency: int = 32,
    engine: str | None = None,
    reasoning: Literal["split", "keep"] | None = None,
) -> Rescored:
    """Verify the stored completions of a run again, by another verifier. No new completion is generated.

    ``run`` is a run folder, or JSON Lines with one rollout per line. Without a ``verifier`` each task's own is used.
    ``filters``, such as ``"last_number"``, are applied before it, and ``reasoning`` says whether reasoning is split off
    before both, ``"split"`` by default. Instead, ``scores`` imports rewards by task and
    sample from a file or a table, with its ``columns`` and ``truth``. The new reward, called ``name``, is written
    beside the old ones to a new file, ``out``; the run itself is not changed.
    """
    if out is None and is_remote(run):
        raise InputError.at("--out", "the run is in an object store", "expected the file to write")
    request = Rescoring(
        run_or_path(local(os.fspath(run))),
        verifier,
        params or {},
        [filters] if isinstance(filters, str) else filters,
        None if benchmark is None else os.fspath(benchmark),
        local(scores),
        Named(columns or {}, truth, input_format or ""),
        name,
        reward,
        [metrics] if isinstance(metrics, str) else metrics,
        (by,) if isinstance(by, str) else tuple(by),
        None if out is None else os.fspath(out),
        concurrency,
        engine,
        reasoning,
    )
    with uploaded(request.target) as target:
        rescored = rejudge(replace(request, out=target))
    return replace(rescored, path=display(target))


def changed_verdicts(run: str) -> tuple[Rescored, list[Flip]]:
    """Rescore a run as it was verified, and return the kinds of changes that occur. No file is kept."""
    with TemporaryDirectory(prefix="calipers-") as folder:
        reasoning: Literal["split", "keep"] = SPLIT if _was_split(run) else KEEP
        rescored = rescore(run, out=os.path.join(folder, "again.jsonl"), name="again", reasoning=reasoning)
    return rescored, [flip for flip in rescored.flips if flip.what != SAME and flip.count]


def _was_split(run: str) -> bool:
    """Whether reasoning was split off before a run was verified: by its plan, else by the keys of its rows."""
    if is_run(run):
        return bool(read_plan(run).identity.get(REASONING) == SPLIT)
    path = local(run)
    if not os.path.isfile(path):
        return True
    with Source(path) as source:
        return any(f'"{REASONING_CHARS}"'.encode() in bytes(block) for block in line_blocks(source.readinto))


def rejudge(request: Rescoring) -> Rescored:
    """Verify the stored completions of a run again, and write a new file with the old and the new rewards.

    InputError if the settings are invalid; then nothing is written. If a completion cannot be verified, its new reward
    is missing, and the rescore continues.
    """
    _check_target(request)
    recorded = _read_recorded(request.run)
    plan = _make_plan(request, recorded)
    with open_stored(request.run) as source, _open_bench(request) as bench, _open_target(request.target) as write:
        judge, notes = _judge_for(request, recorded, bench)
        bench.secrets.add_environment()
        with uncollected():
            runs = _rewrite(source, judge, request, plan.labels, partial(_write_scrubbed, write, bench.secrets))
        table = runs.old
        if request.new_reward not in table.rewards:
            raise _nothing_judged_error(request, judge, bench.secrets)
        old = _old_reward(table, request)
        return Rescored(
            path=request.target,
            old=old,
            new=request.new_reward,
            rollouts=len(table),
            judged=runs.judged,
            flips=flips(table, old, request.new_reward),
            outcomes=outcome_counts(runs.before, runs.after),
            before=score_rollouts(table, replace(plan, reward=old)) if old else None,
            after=score_rollouts(runs.new, replace(plan, reward=request.new_reward)),
            notes=[*notes, *(table.stop.notes if table.stop else ()), *map(bench.secrets.scrub, judge.notes())],
            remarks=[*judge.remarks()],
        )


def _open_bench(request: Rescoring) -> AbstractContextManager[Bench]:
    """Where completions are verified: in this process, or by the workers of an engine."""
    engine = engine_of("--engine", request.engine)
    if engine is None:
        return Bench(request.concurrency, Blame())
    bench: AbstractContextManager[Bench] = load(BENCHES[engine[0]])(engine[1], request.concurrency, request.verifier)
    return bench


def _make_plan(request: Rescoring, recorded: _Recorded) -> Plan:
    """The plan by which both rewards are scored; InputError for a requested metric that reads no reward."""
    plan = make_plan(request.metrics or recorded.metrics or None, by=request.by, dialect=recorded.dialect)
    of_rewards = [metric for metric in plan.requests if set(metric.metric.reads) <= {"reward", "answer"}]
    others = [metric.text for metric in plan.requests if metric not in of_rewards]
    if others and request.metrics:
        problem = f"{others[0]} does not read a reward, so a rescore cannot change it"
        raise InputError.at("--metric", problem, "expected a metric of rewards")
    return replace(plan, requests=of_rewards)


def _rewrite(
    source: Source,
    judge: BatchJudge | ImportedRewards,
    request: Rescoring,
    labels: Collection[str],
    write: Callable[[bytes], None],
) -> Rejudged:
    """Write every record with its new reward, and return the rollouts with the old and the new rewards.

    Planned rollouts that are not in the log are written, too.
    """
    schema = LoggedSchema(request.new_reward, labels)
    rewards = OldAndNewRewards(source.path, request.new_reward, schema, labels)
    for batch in batches(source, schema):
        judged = judge(batch.rows)
        contributions = judged.contributions()
        write(judged_lines(request.new_reward, batch, judged, contributions))
        rewards.add(batch, judged, contributions)
    if not rewards.judged:
        if request.scores is not None:
            expected = "expected the tasks and samples of the run"
            raise InputError.at(scores_name(request.scores), "has no score for any rollout of the run", expected)
        expected = "expected a log with completions in it; --scores FILE needs none"
        raise InputError.at(source.path, "no rollout has a completion", expected)
    part = rewards.finish()
    if is_run(request.run):
        plan = read_plan(request.run)
        outstanding, stopped = PlanCoverage.of(plan, [part]), read_stop(request.run)
        stop = stopped.of_plan(len(outstanding.there), outstanding.outstanding) if stopped else None
        for line in _outstanding_lines(plan, outstanding, stopped if stop else None):
            write(line)
        part = replace(part, stop=stop)
    return rejudged(part)


def _nothing_judged_error(request: Rescoring, judge: BatchJudge | ImportedRewards, secrets: Secrets) -> Incomplete:
    why = "; ".join(map(secrets.scrub, judge.reasons() if isinstance(judge, BatchJudge) else judge.notes()))
    return Incomplete(
        f"{request.run}: no completion could be verified, and nothing is written: {why or 'no reason given'}"
    )


def _write_scrubbed(write: Callable[[bytes], None], secrets: Secrets, lines: bytes) -> None:
    """Write lines without the API keys that the judges used."""
    if secrets.scrub_bytes(lines) != lines:
        lines = b"".join(scrubbed(line, secrets.scrub_bytes) + b"\n" for line in lines.removesuffix(b"\n").split(b"\n"))
    write(lines)


def _old_reward(table: Rollouts, request: Rescoring) -> str | None:
    """The reward with which the new one is compared: the requested one, else `reward`, else the only one."""
    keys = [key for key in table.rewards if key != request.new_reward and not key.startswith(f"{request.new_reward}_")]
    if request.reward is not None:
        if request.reward not in keys:
            raise InputError.at("--reward", f"no rollout has a reward {request.reward!r}", f"known: {', '.join(keys)}")
        return request.reward
    if len(keys) > 1 and "reward" not in keys:
        raise InputError.at("--reward", f"there are several rewards: {', '.join(keys)}", "name the one to compare with")
    return "reward" if "reward" in keys else next(iter(keys), None)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The settings of a run that its plan records; empty for a file without a plan."""

    benchmark: str | None = None
    tasks: str | None = None  # the hash of the tasks' content
    metrics: Sequence[Any] = ()
    dialect: str | None = None
    reasoning: str | None = None  # what the user chose: split or keep
    lm_eval: str | None = None  # the run's task of lm-evaluation-harness
    questions: Questions = field(default_factory=Questions)  # the columns of its questions, if they are in a table


def _read_recorded(run: str) -> _Recorded:
    if not is_run(run):
        return _Recorded()
    plan, values = read_plan(run), read_settings(run)
    tasks = plan.identity.get("tasks")
    # a plan is untrusted data: it must not choose code to run
    metrics = [metric for metric in values.get("metrics") or () if ".py:" not in str(metric)]
    of_library, questions = values.get(TASK_LIBRARY_NAME), recorded_questions(values)
    dialect, reasoning = values.get("dialect"), values.get(REASONING)
    return _Recorded(values.get("benchmark"), tasks, metrics, dialect, reasoning, of_library, questions)


def _judge_for(request: Rescoring, recorded: _Recorded, bench: Bench) -> tuple[BatchJudge | ImportedRewards, list[str]]:
    if request.scores is not None:
        return ImportedRewards.read(request.scores, request.columns), []
    chain = [find_filter(text) for text in request.filters]
    suite, notes = _open_suite(request, recorded)
    tasks: dict[str, Task] = {task.id: task for task in suite.tasks}
    split = _splits(request, recorded)
    return BatchJudge(tasks, chain, bench, request.verifier, request.params, split=split), notes


def _splits(request: Rescoring, recorded: _Recorded) -> bool:
    """Whether reasoning is split off: as requested, else as the run, else unless it has another system's dialect.

    A filter that looks for a marker of reasoning needs the whole completion, unless the request says otherwise.
    """
    if request.reasoning is not None:
        return request.reasoning == SPLIT
    settings = [text.partition("=")[2] for text in request.filters]
    tags = [f"<{text.removeprefix('tag=')}>" for text in request.filters if text.startswith("tag=")]
    if recorded.reasoning == KEEP or has_marker([*settings, *tags]):
        return False
    return recorded.reasoning == SPLIT or recorded.dialect in (None, NATIVE)


def _open_suite(request: Rescoring, recorded: _Recorded) -> tuple[Suite, list[str]]:
    """The benchmark of the run; InputError if its tasks differ from the recorded ones, unless it was requested."""
    if request.benchmark is None and recorded.lm_eval is not None:
        command = f"calipers run {recorded.benchmark} --model replay/{request.run}/rollouts.jsonl"
        advice = f"{command} scores it with the current task"
        raise InputError.at(request.run, "is a run of a task of lm-evaluation-harness", advice)
    if request.benchmark is None and recorded.benchmark is None:
        raise InputError.at(request.run, "does not name its benchmark", f"name it: {_command(request)} --benchmark DIR")
    try:
        suite = suite_of(request.benchmark or recorded.benchmark or "", recorded.questions)
    except NotThere as error:
        if request.benchmark is not None:
            raise
        problem = f"its benchmark cannot be found ({error})"
        raise InputError.at(request.run, problem, f"name it: {_command(request)} --benchmark DIR") from None
    if recorded.tasks is None or provenance.identity(Job(suite.name, "none"), suite)["tasks"] == recorded.tasks:
        return suite, []
    benchmark = request.benchmark or recorded.benchmark
    problem = f"{benchmark} has other tasks than the run"
    if request.benchmark is None:
        advice = f"{_command(request)} --benchmark {shlex.quote(str(benchmark))} uses them anyway"
        raise InputError.at(request.run, problem, advice)
    return suite, [f"{problem}; they were used anyway"]


def _command(request: Rescoring) -> str:
    """The beginning of a command in advice, because `audit` and `verify` rescore too, and have fewer options."""
    return f"calipers rescore {shlex.quote(request.run)}"


def _check_target(request: Rescoring) -> None:
    """Raise InputError if the target cannot be written, is the input, or is a file of a run."""
    target = os.path.realpath(request.target)
    if request.run == STDIN:
        raise InputError.at("-", "a run cannot be read from standard input", "expected a folder or a file")
    if not os.path.isdir(os.path.dirname(target)):
        problem = f"there is no folder {os.path.dirname(request.target)!r}"
        raise InputError.at(request.target, problem, "create it first")
    if os.path.isdir(target):
        raise InputError.at(request.target, "is a directory", "expected a file, such as rescored.jsonl")
    if os.path.basename(target) in (LOG, PLAN, STOPPED, RESULT) and is_run(os.path.dirname(target)):
        raise InputError.at(request.target, "is a file of a run and is never changed", "choose another --out")
    scores = [request.scores] if isinstance(request.scores, (str, os.PathLike)) else []
    for path in (request.run, *scores):
        if os.path.realpath(path) == target:
            raise InputError.at(request.target, "is the input file", "choose another --out")


def _outstanding_lines(plan: RunPlan, outstanding: PlanCoverage, stop: RunStop | None) -> Iterator[bytes]:
    """A line for each planned rollout that is not in the log, so that the new file has the planned number."""
    group = {"agent": plan.agent, "model": plan.model, "dataset": plan.dataset}
    names = {key: name for key, name in group.items() if name}
    for task, samples, stopped_early in outstanding.lacking(plan, stop):
        outcome = "stopped_early" if stopped_early else "not_run"
        for sample in samples:
            record = {"task": task.task, "sample": sample, "outcome": outcome, "metadata": task.metadata}
            yield msgspec.json.encode(record | names) + b"\n"


SHOWN = 8  # rollouts of a kind of change that are listed in the table
_TITLES = {
    "other reward": "reward changed",
    TO_GAP: "reward to missing",
    FROM_GAP: "missing to reward",
}


@dataclass(frozen=True, slots=True)
class Flip:
    """The rollouts with one kind of change; ``which`` lists the first of them as (task, sample)."""

    what: str  # the kind of change, such as "pass to fail"
    count: int
    which: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True, repr=False)
class Rescored(Page):
    """The result of a rescore: the rollouts with the old and with the new reward."""

    path: str  # the file with both rewards
    old: str | None  # the old reward; None if there was none
    new: str  # the new reward
    rollouts: int
    judged: int  # rollouts with a new verdict
    flips: Sequence[Flip]
    outcomes: Mapping[str, tuple[int, int]]  # outcome -> rollouts before and after
    before: Result | None
    after: Result
    notes: Sequence[str] = ()
    remarks: Sequence[Remark] = ()  # shown on the page

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The rescore in a JSON document; InputError if it is damaged or of another version."""
        try:
            return cls(
                **{name: document[name] for name in ("path", "old", "new", "rollouts", "judged")},
                flips=msgspec.convert(document["flips"], complete(list[Flip])),
                outcomes={word: (counts["before"], counts["after"]) for word, counts in document["outcomes"].items()},
                before=None if document["before"] is None else Result.from_dict(document["before"]),
                after=Result.from_dict(document["after"]),
                remarks=[Remark(**each) for each in map(_without_text, document.get("remarks", ()))],
            )
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise InputError(f"not a rescoring of this version: {type(error).__name__}: {error}") from None

    def page(self) -> Document:
        """The document that renderers show."""
        return document(self)

    def headline(self) -> str:
        """The answer in one line."""
        changed = sum(flip.count for flip in self.flips if flip.what != SAME)
        return f"{self.judged} of {self.rollouts} rollouts judged again, {changed} changed"

    def to_dict(self) -> dict[str, Any]:
        """The rescore, ready for strict JSON."""
        return {
            "schema": "calipers.rescored/1",
            "path": self.path,
            "old": self.old,
            "new": self.new,
            "rollouts": self.rollouts,
            "judged": self.judged,
            "flips": [asdict(flip) for flip in self.flips],
            "outcomes": {word: {"before": before, "after": after} for word, (before, after) in self.outcomes.items()},
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
            "remarks": documents_of(self.remarks),
        }


def _without_text(remark: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a remark in a document; its text follows from them."""
    return {name: value for name, value in remark.items() if name != "text"}


def document(rescored: Rescored) -> Document:
    """The page of a rescore: the rollouts that changed, then each metric with both rewards."""
    return Document(partial(_blocks, rescored), rescored.to_dict)


def _blocks(rescored: Rescored) -> Iterator[Block]:
    compared = f", compared with reward {clean(rescored.old)!r}" if rescored.old else ""
    judged = f"{counted(rescored.rollouts, 'rollout')}, {rescored.judged:,} rescored"
    yield Sentence(f"{judged}: reward {clean(rescored.new)!r}{compared}", whole=True)
    yield Sentence(Name(rescored.path, None), whole=True)
    yield Blank()
    rows = []
    for flip in rescored.flips:
        names = [f"{clean(task)}/{sample}" for task, sample in flip.which[:SHOWN]]
        more = ["…"] if names and flip.count > len(names) else []
        rows.append(Row([_TITLES.get(flip.what, flip.what), f"{flip.count:,}", ", ".join([*names, *more])]))
    yield Table([TableColumn(), TableColumn(align="right"), TableColumn()], rows, ruled=False, fits=True)
    changed = [
        f"{word} {before:,} to {after:,}" for word, (before, after) in rescored.outcomes.items() if before != after
    ]
    for remark in rescored.remarks:
        yield Sentence(text_of(remark), whole=True)
    if changed:
        yield Sentence(f"outcomes: {', '.join(changed)}", whole=True)
    for number, group in enumerate(rescored.after.groups):
        yield Blank()
        if name := title(group, rescored.after):
            yield Title(Name(name, None))
        yield from _metric_table(rescored, number)
    one_reward = sum(flip.count for flip in rescored.flips if flip.what in (TO_GAP, FROM_GAP))
    if rescored.before is not None and one_reward and rescored.after.missing != "zero":
        yield Sentence("not every rollout has both rewards, so a difference is partly between different rollouts")


def _metric_table(rescored: Rescored, number: int) -> Iterator[Block]:
    """A table of the metrics of a group and its slices, with the old and the new reward."""
    after = rescored.after.groups[number]
    before = rescored.before.groups[number] if rescored.before is not None else None
    pairs: list[tuple[Text, Estimate | None, Estimate]] = []
    pairs += [(named(name, new), _estimate_of(before, name), new) for name, new in after.metrics.items()]
    for key, slices in after.breakdowns.items():
        for value, part in slices.items():
            old_part = before.breakdowns[key].get(value) if before else None
            heading = f"{clean(key)}={clean(value)} "
            pairs += [
                ((heading, *named(name, new)), _estimate_of(old_part, name), new) for name, new in part.metrics.items()
            ]
    rewards = [clean(rescored.old or "", 24)] if any(old for _, old, _ in pairs) else []
    columns = [TableColumn("metric")]
    for reward in [*rewards, clean(rescored.new, 24)] if pairs else []:
        columns += [TableColumn(reward, "point"), TableColumn("interval")]
    columns += [TableColumn("difference", "point")] if before else []
    rows = []
    for name, old, new in pairs:
        places = max(decimals(estimate) for estimate in (old, new) if estimate)
        cells = [name, *(_cells(old, places) if rewards else []), *_cells(new, places)]
        rows.append(Row([*cells, _difference(old, new, places)] if before else cells))
    yield Table(columns, rows, ruled=False)


def _estimate_of(part: Slice | None, name: str) -> Estimate | None:
    return None if part is None else part.metrics.get(name)


def _cells(estimate: Estimate | None, places: int) -> tuple[str, str]:
    return (figure(estimate.value, places), ends(estimate.interval, places)) if estimate else ("", "")


def _difference(old: Estimate | None, new: Estimate, places: int) -> str:
    if old is None or old.value is None or new.value is None:
        return "–"
    change = new.value - old.value
    return f"{'+' if change > 0 else ''}{figure(change, places)}"
