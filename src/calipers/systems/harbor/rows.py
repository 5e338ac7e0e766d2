"""Harbor's trials as rollouts: what became of each, its rewards, its cost; numbered over all jobs given together.

Harbor numbers no attempts: trials of one task differ by a random name, and are exchangeable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np

from calipers.errors import InputError
from calipers.formats.lines import MOST_COLUMNS
from calipers.formats.rows import Gather
from calipers.rollouts.column import Floats
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, GROUP
from calipers.rollouts.table import Part, Places
from calipers.systems.harbor.folder import JobFolder
from calipers.systems.harbor.wire import (
    ADHOC,
    EXCEPTION,
    UNFINISHED,
    VERIFIED,
    WRITTEN,
    Phase,
    Rewards,
    Totals,
    Trial,
    deciding_exception,
    failure_cause,
    odd_rewards,
    reward_valid,
    rewards,
    seconds,
    totals,
)

OUTCOME_OF: Final[Mapping[str | None, str]] = {  # by cause; all others are client_failed
    "agent_exhausted_budget": "timed_out",
    "agent_refused_task": "refused",
    "verifier_failed": "verifier_failed",
    "cancelled": "cancelled",
}
AGENT_OUTCOMES: Final = ("broke_verifier", "tampered")
COUNTS: Final = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")  # in the order of Totals
TIMES: Final = ("latency_s", "environment_setup_s", "agent_setup_s", "verifier_s", "trial_s")


NOTHING: Final[Mapping[str, Any]] = {}


class Who(NamedTuple):
    """The group and the task of a trial."""

    agent: str | None
    model: str | None
    dataset: str
    task: str


class TrialRow(NamedTuple):
    """One trial, or one attempt at it, ready for the table."""

    who: Who
    trial: str  # its name; "" for one that was never started
    directory: str  # within the job
    outcome: str
    unit: str = ""  # the directory of the trial that this is an attempt at; "" for its own
    rewards: Mapping[str, float] = NOTHING
    counts: Sequence[float | None] = (None,) * len(COUNTS)
    times: Sequence[float | None] = (None,) * len(TIMES)
    exception: str | None = None  # what decides the outcome, of a trial or of one of its steps
    raised: str | None = None  # what ended the trial itself
    verified: str = UNFINISHED  # what the verifier left
    provider: str | None = None
    source: str | None = None
    attempt: int = 1
    started: float = math.inf  # seconds since 1970; after all others when nobody knows
    id: str | None = None
    odd: Mapping[str, Any] = NOTHING  # rewards that are no finite number
    disowned: bool = False  # it has a reward that is not valid
    given: Rewards | None = None  # its rewards as the file writes them, 1 or 1.0
    begun: str | None = None  # when it was started, as the file writes it


def row_of(trial: Trial, directory: str, number: str | None = None) -> TrialRow:
    """A finished trial, in a directory of its job, as a row."""
    exception = deciding_exception(trial)
    verified, odd = rewards(trial), odd_rewards(trial)
    given = {name: float(value) for name, value in (verified or {}).items()}
    blamed = trial.calipers.outcome if trial.calipers is not None else None
    if blamed in AGENT_OUTCOMES:
        outcome = str(blamed)
    elif exception is not None:
        outcome = OUTCOME_OF.get(failure_cause(exception), "client_failed")
    elif given:
        outcome = "scored"
    else:
        outcome = "verifier_failed" if odd else "not_run"
    model = trial.agent_info.model_info
    return TrialRow(
        who=Who(trial.agent_info.name, model.name if model else None, trial.source or ADHOC, trial.task_name),
        trial=trial.trial_name,
        directory=directory,
        outcome=outcome,
        rewards=given,
        counts=tuple(map(_finite, totals(trial))),
        times=_times(trial),
        exception=exception,
        raised=trial.exception_info.exception_type if trial.exception_info else None,
        verified="nothing" if verified is None else "rewards" if verified else "empty",
        provider=model.provider if model else None,
        source=trial.source,
        started=_moment(trial.started_at),
        id=number,
        odd=odd,
        disowned=bool(given) and exception is not None and blamed not in AGENT_OUTCOMES and not reward_valid(trial),
        given=verified,
        begun=trial.started_at,
    )


def _written(row: TrialRow) -> str | None:
    """The rewards as the file writes them, with what says which trial came first; None where there are none."""
    texts = {name: str(value) for name, value in (row.given or NOTHING).items()}
    return json.dumps([row.begun or "~", row.trial, texts]) if texts else None


def spent_with(row: TrialRow, earlier: Sequence[TrialRow]) -> Sequence[float | None]:
    """What a trial used up, its earlier attempts included; None where nobody reported any."""
    columns = zip(*(attempt.counts for attempt in (*earlier, row)), strict=True)
    known = [[value for value in column if value is not None] for column in columns]
    return Totals(*(sum(column) if column else None for column in known))


def _finite(value: float | None) -> float | None:
    """A number as a float; None where it is none, or fits into none."""
    try:
        return None if value is None or not math.isfinite(value) else float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None


def _times(trial: Trial) -> tuple[float | None, ...]:
    """Seconds of each of TIMES; of a trial in steps, the sum over its steps."""
    steps = trial.step_results or ()
    return (
        _sum(_lasted(step.agent_execution) for step in steps) if steps else _lasted(trial.agent_execution),
        _lasted(trial.environment_setup),
        _lasted(trial.agent_setup),
        _sum(_lasted(step.verifier) for step in steps) if steps else _lasted(trial.verifier),
        _lasted(trial),
    )


def _lasted(phase: Trial | Phase | None) -> float | None:
    """How long a phase took; None when it did not end. A clock that ran backwards says nothing."""
    lasted = seconds(phase)
    return None if lasted is None or lasted < 0 else lasted


def _sum(times: Iterable[float | None]) -> float | None:
    known = [lasted for lasted in times if lasted is not None]
    return math.fsum(known) if known else None


def _moment(text: str | None) -> float:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


AT_ONCE: Final = 1024  # rows held as objects
LABELS: Final = (
    *("exception", "failure_cause", "trial_name", "job_name", "source", "provider"),
    *(VERIFIED, EXCEPTION, WRITTEN),
)


@dataclass(frozen=True, slots=True)
class TrialPlaces(Places):
    """The directories of trials; a row that has none stands in the file that planned it."""

    root: str = ""
    folders: Sequence[str] = ()  # [R]

    def of(self, row: int) -> str:
        """The directory of a row's trial."""
        return f"{self.root}/{self.folders[row]}" if self.folders[row] else self.path


@dataclass(frozen=True, slots=True)
class HarborPart(Part):
    """Trials of one job, not yet numbered within their tasks."""

    job: str = ""  # its path
    units: Sequence[str] = ()  # [R] directories, one for all attempts at a trial; "" for what was never started
    ids: Sequence[str | None] = ()  # [R]
    started: Floats = field(default_factory=lambda: np.zeros(0))  # [R]
    changed: frozenset[tuple[str, str]] = frozenset()  # those of which another was seen


class TrialRows:
    """Rows on their way into columns, a block at a time; `HarborPart` at the end."""

    def __init__(self, path: str, folder: JobFolder, labels: Collection[str]) -> None:
        self._path, self._folder = path, folder
        self._labels = [name for name in LABELS if name in labels]
        self._gather, self._block = Gather(), list[TrialRow]()
        self._keys: set[str] = set()
        self._units: list[str] = []
        self._directories: list[str] = []
        self._ids: list[str | None] = []
        self._started: list[float] = []

    def add(self, row: TrialRow) -> None:
        """One more row; InputError when names of rewards are no names but ids."""
        self._block.append(row)
        self._keys.update(row.rewards)
        if len(self._keys) > MOST_COLUMNS:
            wrong = f"its trials have more than {MOST_COLUMNS} kinds of reward"
            raise InputError.at(self._path, wrong, "expected the same few names in all trials")
        if len(self._block) == AT_ONCE:
            self._flush()

    def finish(self, **more: Any) -> HarborPart:
        """Everything added."""
        self._flush()
        part = self._gather.finish(TrialPlaces(self._path, root=self._folder.root, folders=self._directories))
        inherited = {field.name: getattr(part, field.name) for field in fields(Part)}
        added = {"job": self._folder.path, "units": self._units, "ids": self._ids}
        return HarborPart(**{**inherited, **added, "started": np.array(self._started, dtype=np.float64), **more})

    def _flush(self) -> None:
        block, gather = self._block, self._gather
        if not block:
            return
        gather.tasks([row.who.task for row in block])
        for number, name in enumerate(("agent", "model", "dataset")):
            gather.labels(name, [row.who[number] for row in block])
        gather.whole("attempt", [row.attempt for row in block])
        gather.whole("outcome", [CODE[row.outcome] for row in block])
        for key in sorted(set().union(*(row.rewards for row in block))):
            gather.numbers("reward", key, [row.rewards.get(key) for row in block])
        for names, columns in ((COUNTS, "counts"), (TIMES, "times")):
            for name, column in zip(names, zip(*(getattr(row, columns) for row in block), strict=True), strict=True):
                gather.numbers("column", name, column)
        gather.labels(ERROR_KIND, [row.exception for row in block])
        for name in self._labels:
            gather.labels(name, [self._label(name, row) for row in block])
        self._units += [row.unit or row.directory for row in block]
        self._directories += [row.directory for row in block]
        self._ids += [row.id for row in block]
        self._started += [row.started for row in block]
        gather.rows += len(block)
        block.clear()

    def _label(self, name: str, row: TrialRow) -> str | None:
        values = {
            "exception": row.exception,
            "failure_cause": failure_cause(row.exception),
            "trial_name": row.trial or None,
            "job_name": self._folder.name,
            "source": row.source,
            "provider": row.provider,
            VERIFIED: row.verified,
            EXCEPTION: row.raised,
            WRITTEN: _written(row) if name == WRITTEN else None,
        }
        return values[name]


NAMED: Final = 5  # tasks that a note names


def numbered(parts: Sequence[Part]) -> list[Part]:
    """The parts with a sample number for each of Harbor's trials; others as they are.

    InputError for a trial that stands in two places.
    """
    ours = [part for part in parts if isinstance(part, HarborPart)]
    if not ours:
        return list(parts)
    _check_twice(ours)
    samples = [np.zeros(len(part), dtype=np.int64) for part in ours]
    last: tuple[object, ...] = ()
    sample = 0
    for who, trial, part, row in sorted(_keys(ours)):
        if last[:1] != (who,):
            sample = 0
        elif not trial[1] or last[1:] != (trial,):  # attempts at one trial are one sample; "" was never started
            sample += 1
        samples[part][row] = sample
        last = (who, trial)
    whence = " and ".join(dict.fromkeys(part.planned_from for part in ours))
    turns = np.split(_ranks(np.concatenate([part.started for part in ours])), np.cumsum([*map(len, ours)])[:-1])
    done_parts = [
        replace(part, sample=sample_numbers, planned_from=whence, turn=turn)
        for part, sample_numbers, turn in zip(ours, samples, turns, strict=True)
    ]
    done_parts[-1] = replace(done_parts[-1], notes=[*done_parts[-1].notes, *_changed(ours)])
    done = iter(done_parts)
    return [next(done) if isinstance(part, HarborPart) else part for part in parts]


def _ranks(started: Floats) -> Floats:
    """The place of each row among all of them by when it was started, [R]."""
    ranks = np.empty(len(started))
    ranks[np.argsort(started, kind="stable")] = np.arange(len(started))
    return ranks


Key = tuple[tuple[str, ...], tuple[float, str, str], int, int]


def _keys(parts: Iterable[HarborPart]) -> Iterator[Key]:
    """(group and task, trial, part, row) of every row; a trial is when it started, its directory and its job."""
    for number, part in enumerate(parts):
        columns = []
        for name in GROUP:
            labels = part.labels[name]
            columns.append([labels.values[code] if code >= 0 else "" for code in labels.code.tolist()])
        tasks = [part.tasks[code] for code in part.task.tolist()]
        trials = zip(part.started.tolist(), part.units, strict=True)
        for row, (agent, model, dataset, task, (started, trial)) in enumerate(
            zip(*columns, tasks, trials, strict=True)
        ):
            yield (agent, model, dataset, task), (started, trial, part.job), number, row


def _check_twice(parts: Iterable[HarborPart]) -> None:
    first: dict[str, tuple[HarborPart, int]] = {}
    for part in parts:
        for row, number in enumerate(part.ids):
            if number is None:
                continue
            before, first_row = first.setdefault(number, (part, row))
            if before is not part or first_row != row:
                wrong = f"the trial appears twice, first in {before.places.of(first_row)}"
                raise InputError.at(part.places.of(row), wrong, "expected each trial once")


def _changed(parts: Iterable[HarborPart]) -> Iterator[str]:
    """A note for each dataset with tasks of which there were several under one name."""
    first: dict[tuple[str, str], str] = {}
    changed = set[tuple[str, str]]()
    for part in parts:
        changed |= part.changed
        changed |= {key for key, checksum in part.digests.items() if first.setdefault(key, checksum) != checksum}
    for dataset in sorted({dataset for dataset, _ in changed}):
        tasks = sorted(task for other, task in changed if other == dataset)
        names = ", ".join(tasks[:NAMED]) + (", ..." if len(tasks) > NAMED else "")
        yield (
            f"dataset {dataset!r}: task_checksum differs between trials of {names} ({len(tasks)} in all): "
            "datasets with the same name, or tasks that changed, form one group here, as in Harbor"
        )
