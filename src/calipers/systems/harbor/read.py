"""Reads Harbor's jobs: one rollout per trial, whether it finished, is in progress, or never started.

A trial has an outcome, rewards and a cost. Sample numbers are assigned over all jobs that are read together, because
Harbor does not number the trials of a task: they differ only by a random name, and are exchangeable.

Also reads the texts of trials: instructions, answers, and trajectories in the form that EvSys uses.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, Columns, Extras, Format, Progress, Text, no_file
from calipers.formats.jsonl import placed
from calipers.formats.lines import MOST_COLUMNS
from calipers.formats.own_numbers import inside
from calipers.formats.repeated_keys import refuse_repeated_key
from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn
from calipers.formats.rows import PartBuilder
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Floats
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, GROUP, shown
from calipers.rollouts.table import Part, Places
from calipers.systems.harbor.metrics import evals_key, metric, pass_ladder
from calipers.systems.harbor.wire import (
    ADHOC,
    CONFIG,
    EXCEPTION,
    LOCK,
    RESULT,
    RETRIES,
    UNFINISHED,
    UNIQUE_KEYS,
    VERIFIED,
    WRITTEN,
    AgentRef,
    JobConfig,
    JobFile,
    JobFolder,
    JobLock,
    LooseStep,
    LooseTrajectory,
    Phase,
    PlannedTrial,
    Rewards,
    TaskRef,
    Trial,
    TrialResult,
    UnreadableFile,
    added,
    contents,
    deciding_exception,
    decode_blame,
    decode_lenient,
    decode_of_job,
    decode_result,
    decode_trial,
    failure_cause,
    finite,
    is_job_by_its_files,
    jobs_in,
    kind_of,
    odd_rewards,
    reward_valid,
    rewards,
    seconds,
    totals,
)
from calipers.typed import complete

OUTCOME_OF: Final[Mapping[str | None, str]] = {  # cause of the exception -> outcome; others are client_failed
    "agent_exhausted_budget": "timed_out",
    "agent_refused_task": "refused",
    "verifier_failed": "verifier_failed",
    "cancelled": "cancelled",
}
AGENT_OUTCOMES: Final = ("broke_verifier", "tampered")
COUNTS: Final = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")  # in the order of Totals
TIMES: Final = ("latency_s", "environment_setup_s", "agent_setup_s", "verifier_s", "trial_s")
NOTHING: Final[Mapping[str, Any]] = {}


class GroupAndTask(NamedTuple):
    """The group (agent, model, dataset) and the task of a trial."""

    agent: str | None
    model: str | None
    dataset: str
    task: str


class TrialRow(NamedTuple):
    """One trial, or one attempt at it, ready for the table."""

    who: GroupAndTask
    trial: str  # its name; "" for a trial that never started
    directory: str  # within the job
    outcome: str
    unit: str = ""  # the directory of the trial that this is an attempt at, if not ``directory``
    rewards: Mapping[str, float] = NOTHING
    counts: Sequence[float | None] = (None,) * len(COUNTS)
    times: Sequence[float | None] = (None,) * len(TIMES)
    exception: str | None = None  # the exception that decides the outcome, of the trial or of one of its steps
    raised: str | None = None  # the exception that ended the trial itself
    verified: str = UNFINISHED  # the value of the label VERIFIED
    provider: str | None = None
    source: str | None = None
    attempt: int = 1
    started: float = math.inf  # seconds since 1970; a trial without a start time comes last
    id: str | None = None
    odd: Mapping[str, Any] = NOTHING  # rewards that are not finite numbers
    invalid_reward: bool = False  # whether it has rewards that are not valid
    given: Rewards | None = None  # its rewards as the file writes them, 1 or 1.0
    started_text: str | None = None  # its start as the file writes it


def row_of(trial: Trial, directory: str, trial_id: str | None = None) -> TrialRow:
    """A finished trial in a directory of its job, as a row."""
    exception = deciding_exception(trial)
    given, odd = rewards(trial), odd_rewards(trial)
    numbers = {name: float(value) for name, value in (given or {}).items()}
    blamed = trial.calipers.outcome if trial.calipers is not None else None
    if blamed in AGENT_OUTCOMES:
        outcome = str(blamed)
    elif exception is not None:
        outcome = OUTCOME_OF.get(failure_cause(exception), "client_failed")
    elif numbers:
        outcome = "scored"
    else:
        outcome = "verifier_failed" if odd else "not_run"
    model = trial.agent_info.model_info
    return TrialRow(
        who=GroupAndTask(trial.agent_info.name, model.name if model else None, trial.source or ADHOC, trial.task_name),
        trial=trial.trial_name,
        directory=directory,
        outcome=outcome,
        rewards=numbers,
        counts=tuple(map(_finite, totals(trial))),
        times=_times(trial),
        exception=exception,
        raised=trial.exception_info.exception_type if trial.exception_info else None,
        verified="nothing" if given is None else "rewards" if given else "empty",
        provider=model.provider if model else None,
        source=trial.source,
        started=_timestamp(trial.started_at),
        id=trial_id,
        odd=odd,
        invalid_reward=bool(numbers)
        and exception is not None
        and blamed not in AGENT_OUTCOMES
        and not reward_valid(trial),
        given=given,
        started_text=trial.started_at,
    )


def _written(row: TrialRow) -> str | None:
    """The label WRITTEN: the rewards as the file writes them, after the start and the name; None without rewards."""
    texts = {name: str(value) for name, value in (row.given or NOTHING).items()}
    return json.dumps([row.started_text or "~", row.trial, texts]) if texts else None


def _finite(value: float | None) -> float | None:
    """A number as a float; None if it is missing, not finite, or too large for a float."""
    return float(value) if value is not None and finite(value) else None


def _times(trial: Trial) -> tuple[float | None, ...]:
    """The seconds of each of TIMES; for agent and verifier, a multi-step trial has the sum over its steps."""
    steps = trial.step_results or ()
    return (
        _sum(_duration(step.agent_execution) for step in steps) if steps else _duration(trial.agent_execution),
        _duration(trial.environment_setup),
        _duration(trial.agent_setup),
        _sum(_duration(step.verifier) for step in steps) if steps else _duration(trial.verifier),
        _duration(trial),
    )


def _duration(phase: Trial | Phase | None) -> float | None:
    """The seconds that a phase took; None if it did not end, or if the clock ran backwards."""
    duration = seconds(phase)
    return None if duration is None or duration < 0 else duration


def _sum(durations: Iterable[float | None]) -> float | None:
    known = [duration for duration in durations if duration is not None]
    return math.fsum(known) if known else None


def _timestamp(text: str | None) -> float:
    """A time as seconds since 1970, in UTC if it has no time zone; infinity if it is missing or not a time."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


BLOCK_ROWS: Final = 1024  # rows that are objects at the same time
LABEL_OF: Final[Mapping[str, Callable[[TrialRow, str], str | None]]] = {  # label -> (trial, name of its job) -> value
    "exception": lambda row, job: row.exception,
    "failure_cause": lambda row, job: failure_cause(row.exception),
    "trial_name": lambda row, job: row.trial or None,
    "job_name": lambda row, job: job,
    "source": lambda row, job: row.source,
    "provider": lambda row, job: row.provider,
    VERIFIED: lambda row, job: row.verified,
    EXCEPTION: lambda row, job: row.raised,
    WRITTEN: lambda row, job: _written(row),
}
LABELS: Final = tuple(LABEL_OF)


@dataclass(frozen=True, slots=True)
class TrialPlaces(Places):
    """The locations of trials: their directories; a trial without a directory has the file that planned it."""

    root: str = ""
    folders: Sequence[str] = ()  # [R]

    def of(self, row: int) -> str:
        """The directory of a row's trial."""
        return f"{self.root}/{self.folders[row]}" if self.folders[row] else self.path


@dataclass(frozen=True, slots=True)
class HarborPart(Part):
    """Trials of one job, not yet numbered within their tasks."""

    job: str = ""  # its path
    units: Sequence[str] = ()  # [R] directories, the same for all attempts at a trial; "" for a trial never started
    ids: Sequence[str | None] = ()  # [R]
    started: Floats = field(default_factory=lambda: np.zeros(0))  # [R]
    changed: frozenset[tuple[str, str]] = frozenset()  # (dataset, task) with more than one checksum


class TrialRows:
    """Collects rows and turns them into the columns of a `HarborPart`, one block at a time."""

    def __init__(self, path: str, folder: JobFolder, labels: Collection[str]) -> None:
        self._path, self._folder = path, folder
        self._labels = [name for name in LABEL_OF if name in labels]
        self._builder, self._block = PartBuilder(), list[TrialRow]()
        self._reward_names: set[str] = set()
        self._kept: list[tuple[str, str, str | None, float]] = []  # (unit, directory, id, start) of each row

    def add(self, row: TrialRow) -> None:
        """Add a row. InputError for too many reward names, which then are ids rather than names."""
        self._block.append(row)
        self._reward_names.update(row.rewards)
        if len(self._reward_names) > MOST_COLUMNS:
            message = f"its trials have more than {MOST_COLUMNS} kinds of reward"
            raise InputError.at(self._path, message, "expected the same few names in all trials")
        if len(self._block) == BLOCK_ROWS:
            self._flush()

    def finish(self, **more: Any) -> HarborPart:
        """The part with all rows that were added."""
        self._flush()
        units, directories, ids, started = zip(*self._kept, strict=True) if self._kept else ((), (), (), ())
        part = self._builder.finish(TrialPlaces(self._path, root=self._folder.root, folders=directories))
        inherited = {field.name: getattr(part, field.name) for field in fields(Part)} | more
        starts = np.array(started, dtype=np.float64)
        return HarborPart(**inherited, job=self._folder.path, units=units, ids=ids, started=starts)

    def _flush(self) -> None:
        block, builder = self._block, self._builder
        if not block:
            return
        builder.tasks([row.who.task for row in block])
        for number, name in enumerate(("agent", "model", "dataset")):
            builder.labels(name, [row.who[number] for row in block])
        builder.whole("attempt", [row.attempt for row in block])
        builder.whole("outcome", [CODE[row.outcome] for row in block])
        for key in sorted(set().union(*(row.rewards for row in block))):
            builder.numbers("reward", key, [row.rewards.get(key) for row in block])
        for names, columns in ((COUNTS, "counts"), (TIMES, "times")):
            for name, column in zip(names, zip(*(getattr(row, columns) for row in block), strict=True), strict=True):
                builder.numbers("column", name, column)
        builder.labels(ERROR_KIND, [row.exception for row in block])
        for name in self._labels:
            builder.labels(name, [LABEL_OF[name](row, self._folder.name) for row in block])
        self._kept += [(row.unit or row.directory, row.directory, row.id, row.started) for row in block]
        builder.rows += len(block)
        block.clear()


def numbered(parts: Sequence[Part]) -> list[Part]:
    """The parts with a sample number for each of Harbor's trials; parts of other formats are unchanged.

    InputError for a trial that appears twice.
    """
    harbor_parts = [part for part in parts if isinstance(part, HarborPart)]
    if not harbor_parts:
        return list(parts)
    _refuse_duplicates(harbor_parts)
    samples = [np.zeros(len(part), dtype=np.int64) for part in harbor_parts]
    last: tuple[object, ...] = ()
    sample = 0
    for who, trial, part_number, row in sorted(_sort_keys(harbor_parts)):
        if last[:1] != (who,):
            sample = 0
        elif not trial[1] or last[1:] != (trial,):  # attempts at one trial are one sample; "" was never started
            sample += 1
        samples[part_number][row] = sample
        last = (who, trial)
    planned_from = " and ".join(dict.fromkeys(part.planned_from for part in harbor_parts))
    ranks = _ranks(np.concatenate([part.started for part in harbor_parts]))
    turns = np.split(ranks, np.cumsum([*map(len, harbor_parts)])[:-1])
    numbered_parts = [
        replace(part, sample=sample_numbers, planned_from=planned_from, turn=turn)
        for part, sample_numbers, turn in zip(harbor_parts, samples, turns, strict=True)
    ]
    numbered_parts[-1] = replace(numbered_parts[-1], notes=[*numbered_parts[-1].notes, *_changed(harbor_parts)])
    in_order = iter(numbered_parts)
    return [next(in_order) if isinstance(part, HarborPart) else part for part in parts]


def _ranks(started: Floats) -> Floats:
    """The rank of each row by its start, [R]."""
    ranks = np.empty(len(started))
    ranks[np.argsort(started, kind="stable")] = np.arange(len(started))
    return ranks


SortKey = tuple[tuple[str, ...], tuple[float, str, str], int, int]


def _sort_keys(parts: Iterable[HarborPart]) -> Iterator[SortKey]:
    """(group and task, trial, part, row) of every row, where a trial is its start, its directory and its job."""
    for number, part in enumerate(parts):
        labels = [part.labels[name] for name in GROUP]
        columns = [[label.values[code] if code >= 0 else "" for code in label.code.tolist()] for label in labels]
        who = zip(*columns, [part.tasks[code] for code in part.task.tolist()], strict=True)
        trials = [(started, unit, part.job) for started, unit in zip(part.started.tolist(), part.units, strict=True)]
        for row, (group_and_task, trial) in enumerate(zip(who, trials, strict=True)):
            yield group_and_task, trial, number, row


def _refuse_duplicates(parts: Iterable[HarborPart]) -> None:
    """InputError for two trials with the same id."""
    first: dict[str, tuple[HarborPart, int]] = {}
    for part in parts:
        for row, trial_id in enumerate(part.ids):
            if trial_id is None:
                continue
            first_part, first_row = first.setdefault(trial_id, (part, row))
            if first_part is not part or first_row != row:
                message = f"the trial appears twice, first in {first_part.places.of(first_row)}"
                raise InputError.at(part.places.of(row), message, "expected each trial once")


def _changed(parts: Iterable[HarborPart]) -> Iterator[str]:
    """A note for each dataset that has different tasks under one name."""
    first: dict[tuple[str, str], str] = {}
    changed = set[tuple[str, str]]()
    for part in parts:
        changed |= part.changed
        changed |= {key for key, checksum in part.digests.items() if first.setdefault(key, checksum) != checksum}
    for dataset in sorted({dataset for dataset, _ in changed}):
        tasks = [task for other, task in changed if other == dataset]
        yield (
            f"dataset {dataset!r}: task_checksum differs between trials of {_few(tasks)} ({len(tasks)} in all): "
            "datasets with the same name, or tasks that changed, form one group here, as in Harbor"
        )


MOST_PLANNED: Final = 10_000_000  # trials; a larger number is a typing error
NEVER_STARTED: Final = "(never started {})"
PROVIDERS: Final = frozenset(  # the common ones of the prefixes that Harbor removes from a model's name
    {
        *("anthropic", "azure", "bedrock", "cohere", "deepseek", "fireworks_ai", "gemini", "groq", "hosted_vllm"),
        *("mistral", "ollama", "openai", "openrouter", "sagemaker", "together_ai", "vertex_ai", "vllm", "xai"),
    }
)
T = TypeVar("T")
COMPLETION: Final = "agent/completion.txt"
USAGE_NAMES: Final = {  # key in a trial's agent_result -> key in a trajectory
    "cost_usd": "cost_usd",
    "n_input_tokens": "prompt_tokens",
    "n_output_tokens": "completion_tokens",
    "n_cache_tokens": "cached_tokens",
}


class KnownNames:
    """The names of requested agents, models and tasks, as finished trials report them."""

    def __init__(self) -> None:
        self._agents: dict[tuple[str, str | None], tuple[str, str | None]] = {}
        self._tasks: dict[tuple[str | None, str | None], str] = {}

    def learn(self, trial: Trial) -> None:
        """Record the names that a finished trial reports for its requested agent, model and task."""
        if isinstance(trial, TrialResult) and trial.config is not None:
            model = trial.agent_info.model_info
            name = model.name if model else None
            self._agents.setdefault(trial.config.agent.key, (trial.agent_info.name, name))
            self._tasks.setdefault(trial.config.task.key, trial.task_name)

    def who(self, planned: PlannedTrial) -> GroupAndTask:
        """The group and task of a trial that did not finish."""
        task, key = planned.task, planned.agent.key
        agent, model = self._agents.get(key) or (key[0], _without_provider(key[1]))
        name = self._tasks.get(task.key) or task.name or (task.path or "").rstrip("/").rpartition("/")[2]
        return GroupAndTask(agent, model, task.source or ADHOC, name or "(unnamed)")


class JobPlan:
    """The trials that a job planned, according to its lock, its result and its configuration."""

    def __init__(self, folder: JobFolder) -> None:
        self.notes: list[str] = []
        self.job, self._config, lock = JobFile(), JobConfig(), None
        if folder.is_job:
            lock = self._read(folder, LOCK, JobLock)
            self.job = self._job(folder, "" if lock else ", so the planned trials are unknown")
            self._config = self._read(folder, CONFIG, JobConfig) or JobConfig()
        self._locked = None if lock is None else Counter(lock.trials)
        self._total = self.job.n_total_trials
        if (self._total or 0) > MOST_PLANNED:
            path = f"{folder.path}/{RESULT}"
            raise InputError.at(path, f"{self._total} trials are planned", f"expected at most {MOST_PLANNED}")
        fallback = "trial directories" if self._total is None else RESULT
        self.planned_from = fallback if lock is None else LOCK

    def outstanding(self, present: Counter[GroupAndTask], known: KnownNames) -> Iterator[GroupAndTask]:
        """The group and task of each planned trial that has no directory."""
        if self._locked is not None:
            planned = Counter[GroupAndTask]()
            for trial, count in self._locked.items():
                planned[known.who(trial)] += count
            yield from (planned - present).elements()
        elif self._total is not None:
            yield from self._unnamed(present, self._total - present.total(), known)

    def _unnamed(self, present: Counter[GroupAndTask], left: int, known: KnownNames) -> Iterator[GroupAndTask]:
        """``left`` outstanding trials when only their number is known.

        First the missing attempts at known tasks, then tasks without a name.
        """
        attempts = max(self._config.n_attempts, 1)
        for who, count in sorted(present.items(), key=lambda item: tuple(part or "" for part in item[0])):
            for _ in range(min(attempts - count, left)):
                left -= 1
                yield who
        groups = sorted({who[:3] for who in present}, key=lambda group: tuple(part or "" for part in group))
        if not groups:
            agents: Sequence[AgentRef] = self._config.agents or [AgentRef()]
            groups = [known.who(PlannedTrial(TaskRef(), agent))[:3] for agent in agents]
        for number in range(left):
            task, turn = divmod(number, attempts * len(groups))
            agent, model, dataset = groups[turn // attempts]
            yield GroupAndTask(agent, model, dataset, NEVER_STARTED.format(task + 1))

    def _job(self, folder: JobFolder, effect: str) -> JobFile:
        path = f"{folder.path}/{RESULT}"
        try:
            raw = contents(path)
            return JobFile() if raw is None else decode_of_job(raw, JobFile, path)
        except (UnreadableFile, InputError):
            self.notes.append(f"{path}: cannot be read as a job's result{effect}")
            return JobFile()

    def _read(self, folder: JobFolder, name: str, kind: type[T]) -> T | None:
        """One of the job's files; None if it is missing, or cannot be read, which adds a note."""
        path = f"{folder.path}/{name}"
        try:
            raw = contents(path)
            return None if raw is None else msgspec.json.decode(raw, type=complete(kind))
        except (UnreadableFile, *BAD) as error:
            self.notes.append(f"{path}: cannot be read ({error})")
            return None


def planned_trial(folder: JobFolder, trial: str) -> PlannedTrial | None:
    """The plan of a trial without a result, from its lock or else its configuration; None if neither can be read."""
    for name in (LOCK, CONFIG):
        try:
            raw = contents(folder.path_in(trial, name))
            if raw is not None:
                return msgspec.json.decode(raw, type=complete(PlannedTrial))
        except (UnreadableFile, *BAD):
            continue
    return None


def _without_provider(model: str | None) -> str | None:
    """A model's name as Harbor reports it: without a provider that it knows."""
    provider, slash, name = (model or "").partition("/")
    return name if slash and provider in PROVIDERS else model


SYSTEM: Final = "harbor"
MEAN: Final = "mean"  # the metric of a job that requests none
NAMED: Final = 10  # exceptions or rewards that a note names
FEW: Final = 5  # trials or tasks that a note names, of many
NOT_FINITE: Final = "a reward that is not a finite number"
PROGRESS_EVERY: Final = 64  # trials
BLAME_FILE: Final = "calipers.json"  # our container's finding about a trial that Harbor ran in it
LARGEST_BLAME: Final = 1 << 12  # bytes


def read(folder: JobFolder, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The trials of a job; trials that are in progress or never started are `not_run`."""
    if len(names):
        raise InputError.at("--columns", "a Harbor job has its own field names", "remove this option")
    return _JobReading(folder, labels).parts(progress)


class EvalTrials:
    """What Harbor's numbers of one eval depend on."""

    def __init__(self) -> None:
        self.errors = 0  # trials with an exception
        self.rewards: dict[str, list[Rewards | None]] = {}  # task -> the rewards of its trials that ended

    def add(self, row: TrialRow) -> None:
        """Count a trial that has a result."""
        self.errors += row.raised is not None
        self.rewards.setdefault(row.who.task, []).append(row.given)

    def mean(self) -> float | None:
        """The mean over all trials, with 0 for a missing reward; None if there are several rewards."""
        trials = list(chain.from_iterable(self.rewards.values()))
        means = metric(MEAN, trials)
        return float(means[MEAN]) if MEAN in means else None


def own_checks(job: JobFile, evals: Mapping[str, EvalTrials]) -> list[Check]:
    """The numbers of each eval in the result of a finished job, and ours by Harbor's definitions."""
    if not job.finished_at or not isinstance(job.stats.evals, dict):
        return []
    pairs: list[tuple[str, Any, float | None]] = []
    for key, own in job.stats.evals.items():
        trials = evals.get(key)
        if trials is None:
            continue
        with_rewards = sum(given is not None for given in chain.from_iterable(trials.rewards.values()))
        pairs.append((f"{key} n_trials", inside(own, "n_trials"), with_rewards))
        pairs.append((f"{key} n_errors", inside(own, "n_errors"), trials.errors))
        metrics = inside(own, "metrics")
        lists = metrics if isinstance(metrics, list) else []
        pairs += [(f"{key} {MEAN}", inside(values, MEAN), trials.mean()) for values in lists]
        ladder = pass_ladder(trials.rewards.values())
        own_ladder = inside(own, "pass_at_k")
        for k, theirs in own_ladder.items() if isinstance(own_ladder, dict) else ():
            pairs.append((f"{key} pass@{k}", theirs, ladder.get(int(k)) if k.isdecimal() else None))
    return compared(SYSTEM, pairs)


class _JobReading:
    """The state while one job is read."""

    def __init__(self, folder: JobFolder, labels: Collection[str]) -> None:
        self._folder = folder
        self._known = KnownNames()
        self._plan = JobPlan(folder)
        self._ended = TrialRows(folder.path, folder, labels)
        self._outstanding = TrialRows(folder.path_in("", LOCK), folder, labels)
        self._earlier: dict[str, list[TrialRow]] = defaultdict(list)  # replaced attempts, by trial
        self._replaced = 0
        self._present = Counter[GroupAndTask]()
        self._unread: list[tuple[str, str]] = []  # (directory, error)
        self._odd: list[tuple[str, str]] = []  # (directory, note)
        self._invalid = Counter[str]()  # exception -> trials whose reward it makes invalid
        self._bare = 0  # trials with neither a reward nor an exception
        self._reward_names: dict[frozenset[str], list[str]] = {}  # reward names -> directories of scored trials
        self._checksums: dict[tuple[str, str], str] = {}  # (dataset, task) -> checksum
        self._changed: set[tuple[str, str]] = set()  # (dataset, task) with more than one checksum
        self._evals: dict[str, EvalTrials] = {}

    def parts(self, progress: Progress) -> list[Part]:
        """The job's trials in two parts: those that ended, and those that did not; an empty part is left out."""
        folder = self._folder
        for directory in folder.retries():
            if (row := self._row(directory)) is not None:
                self._earlier[row.trial].append(row)
                self._replaced += 1
        lost, self._unread = self._unread, []
        self._finished(progress)
        for directory, _ in self._unread:
            self._add(self._ended, self._unfinished(directory, "missing"))
        for directory in folder.unfinished:
            self._add(self._outstanding, self._unfinished(directory, "not_run"))
        for trial in list(self._earlier):  # the directory of the last attempt no longer exists
            self._add(self._ended, self._earlier[trial].pop())
        for who in self._plan.outstanding(self._present, self._known):
            self._outstanding.add(TrialRow(who, "", "", "not_run"))
        checksums = {"digests": self._checksums, "changed": frozenset(self._changed)}
        parts = [part for part in (self._ended.finish(**checksums), self._outstanding.finish()) if len(part)]
        notes = [*self._notes(lost)]
        checks = own_checks(self._plan.job, self._evals)
        with_plan: list[Part] = [replace(part, planned_from=self._plan.planned_from) for part in parts]
        return [replace(part, notes=notes, checks=checks) for part in with_plan[:1]] + with_plan[1:]

    def _finished(self, progress: Progress) -> None:
        """Add the trials that have a result."""
        size, done = self._folder.size, 0
        share = size // max(len(self._folder.finished), 1)
        for number, directory in enumerate(self._folder.finished, 1):
            if (row := self._row(directory)) is not None:
                self._add(self._ended, row)
                self._note(row)
                self._evals.setdefault(evals_key(row.who.agent, row.who.model, row.who.dataset), EvalTrials()).add(row)
            if number % PROGRESS_EVERY == 0:
                progress(share * number - done)
                done = share * number
        progress(size - done)

    def _row(self, directory: str) -> TrialRow | None:
        """The row of a trial with a result; None if the result cannot be read."""
        path = self._folder.path_in(directory, RESULT)
        try:
            raw = self._folder.result(directory)
            trial = decode_result(raw or b"", path)
        except UnreadableFile as error:
            self._unread.append((directory, f"{path}: {error}"))
            return None
        except InputError as error:
            self._unread.append((directory, str(error)))
            return None
        refuse_repeated_key(raw or b"", path, UNIQUE_KEYS)
        self._known.learn(trial)
        if trial.calipers is None and trial.exception_info is not None:
            trial.calipers = decode_blame(self._folder.file_in(directory, BLAME_FILE, LARGEST_BLAME))
        row = row_of(trial, directory, trial.id if isinstance(trial, TrialResult) else None)
        if trial.task_checksum:
            task = (row.who.dataset, row.who.task)
            if self._checksums.setdefault(task, trial.task_checksum) != trial.task_checksum:
                self._changed.add(task)
        return row

    def _note(self, row: TrialRow) -> None:
        """Record the facts about a trial that the notes report."""
        if row.odd:
            name, value = next(iter(row.odd.items()))
            path = self._folder.path_in(row.directory, RESULT)
            note = f"{path}: reward {name!r} is {shown(value)}; expected a finite number"
            self._odd.append((row.directory, note))
        if row.invalid_reward and row.exception:
            self._invalid[row.exception] += 1
        self._bare += row.outcome == "not_run"
        if row.outcome == "scored":
            self._reward_names.setdefault(frozenset(row.rewards), []).append(row.directory)

    def _add(self, rows: TrialRows, row: TrialRow) -> None:
        """Add a trial after its replaced attempts, whose tokens and cost are added to its own."""
        self._present[row.who] += 1
        if earlier := self._earlier.pop(row.trial, None):
            shared: dict[str, Any] = {"who": row.who, "unit": row.directory, "started": row.started}
            for number, attempt in enumerate(earlier, 1):
                self._ended.add(attempt._replace(**shared, attempt=number, id=None))
            counts = added(attempt.counts for attempt in (*earlier, row))
            row = row._replace(attempt=len(earlier) + 1, counts=counts)
        rows.add(row)

    def _unfinished(self, directory: str, outcome: str) -> TrialRow:
        """The row of a trial without a readable result, from its plan or else from the name of its directory."""
        planned = planned_trial(self._folder, directory)
        if planned is None:
            planned = PlannedTrial(TaskRef(name=directory.rpartition("__")[0] or directory))
        return TrialRow(self._known.who(planned), directory, directory, outcome, source=planned.task.source)

    def _notes(self, lost: list[tuple[str, str]]) -> Iterator[str]:
        """Notes on what the ledger does not show; ``lost`` are replaced attempts that cannot be read."""
        path, job = self._folder.path, self._plan.job
        yield from self._plan.notes
        if job.started_at and not job.finished_at:
            yield f"{path}: the job is not finished: it is still running, or it was interrupted"
        links = [(name, f"{path}/{name}: a link") for name in self._folder.links]
        yield from _listed(links, "it is not followed", "link", "links")
        yield from _listed(self._unread, "the trial counts as missing", "result", "results", "cannot be read")
        yield from _listed(lost, "the attempt is not counted", "earlier attempt", "earlier attempts", "cannot be read")
        yield from _listed(self._odd, "it counts as missing", "trial has", "trials have", NOT_FINITE)
        yield from self._uneven()
        if self._invalid:
            types = ", ".join(f"{name} {count}" for name, count in self._invalid.most_common(NAMED))
            yield (
                f"{path}: the native dialect excludes the reward of {_trials(self._invalid.total())}, because an "
                f"exception in the same trial was not caused by the agent ({types}); Harbor calls such a reward "
                "invalid, but counts it"
            )
        if self._bare:
            yield (
                f"{path}: {_trials(self._bare)} ended with neither a reward nor an exception, as when verification "
                "is disabled: not_run"
            )
        if self._replaced:
            yield f"{path}: tokens and cost include those of earlier attempts ({self._replaced} in {RETRIES})"
        if (deleted := job.stats.n_retries - self._replaced - len(lost)) > 0:
            attempts = "1 earlier attempt is" if deleted == 1 else f"{deleted} earlier attempts are"
            yield f"{path}: {attempts} not there, because Harbor deletes retried attempts: tokens and cost exclude them"

    def _uneven(self) -> Iterator[str]:
        """A note on the scored trials that lack a reward that other trials have."""
        total = sum(map(len, self._reward_names.values()))
        parts = []
        for name in sorted(set[str]().union(*self._reward_names)):
            lacking = [trial for names, trials in self._reward_names.items() if name not in names for trial in trials]
            if lacking:
                parts.append(f"{name!r} is missing in {len(lacking)} of {total} ({_few(lacking)})")
        if parts:
            yield f"{self._folder.path}: scored trials have different rewards: {'; '.join(parts[:NAMED])}"


def _listed(items: list[tuple[str, str]], effect: str, one: str, several: str, what: str = "") -> Iterator[str]:
    """One note for all items of a kind, each (name, note): the first in full, the others by number and name.

    The others are named by ``one`` or ``several``, which depends on their number, and then ``what``.
    """
    if items:
        (_, note), *others = items
        words = " ".join(filter(None, (one if len(others) == 1 else several, what)))
        more = f"; {len(others)} more {words} ({_few([name for name, _ in others])})" if others else ""
        yield f"{note}; {effect}{more}"


def _few(names: Sequence[str]) -> str:
    """The first few names, sorted."""
    return ", ".join(sorted(names)[:FEW]) + (", ..." if len(names) > FEW else "")


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count:,} trials"


def read_groups(job: str | os.PathLike[str], tasks: Sequence[str]) -> list[TrajectoryGroup]:
    """One group of trajectories per task, in the order of ``tasks``; trials in the order of their start."""
    folder = JobFolder(os.fspath(job))
    by_task: dict[str, list[tuple[str, str, Trajectory]]] = {name: [] for name in tasks}
    for directory in folder.finished:
        try:
            trial = decode_trial(folder.result(directory) or b"", folder.path_in(directory, "result.json"))
        except (UnreadableFile, InputError):
            continue  # EvSys excludes it as well
        by_name = rewards(trial)
        if trial.exception_info is not None or by_name is None or trial.task_name not in by_task:
            continue
        reward = float(by_name.get("reward", 0.0))
        trajectory = Trajectory(_turns(folder, directory), reward, {"usage": _usage(trial)})
        by_task[trial.task_name].append((trial.started_at or "", trial.trial_name, trajectory))
    groups = [sorted(trials, key=lambda trial: trial[:2]) for trials in by_task.values()]
    return [TrajectoryGroup([trajectory for *_, trajectory in group]) for group in groups]


def _turns(folder: JobFolder, directory: str) -> list[Turn]:
    text = folder.file_in(directory, COMPLETION)
    return [] if text is None else [Turn([], [], [], text.decode(errors="replace"))]


def _usage(trial: Trial) -> Mapping[str, Any]:
    used = totals(trial)._asdict()
    return {
        **{name: used[key] for key, name in USAGE_NAMES.items()},
        "latency_s": seconds(trial.agent_execution) or seconds(trial),
    }


INSTRUCTION: Final = "agent/instruction.md"
TRAJECTORY: Final = "agent/trajectory.json"
LARGEST_TEXT: Final = 64 << 20  # bytes per file
MOST_PIECES: Final = 64  # files that one trajectory may be split into


def texts(path: str, wanted: Collection[str]) -> Iterator[Text]:
    """The prompt of each task, from its first trial that has one, and the answers of all trials of wanted tasks.

    In the order in which the trials started.
    """
    folder = _folder_at(path)
    results = ((directory, _result_in(folder, directory)) for directory in folder.finished)
    trials = [(row_of(trial, directory), _steps(trial)) for directory, trial in results if trial is not None]
    known = set[GroupAndTask]()
    for row, steps in sorted(trials, key=lambda item: (item[0].started, item[0].directory)):
        files = [_AgentFiles(folder, row.directory, step) for step in steps]
        prompt = files[0].instruction() if row.who not in known else None
        if prompt is not None:
            known.add(row.who)
        answer = _answer(files) if row.who.task in wanted else None
        if prompt is not None or answer is not None:
            yield Text(*row.who, row.started, prompt=prompt, answer=answer)


def extras(part: Part, columns: Columns) -> Extras:
    """The instruction, the answer and the error of each trial of a job; empty for a trial without a result."""
    if not isinstance(part, HarborPart) or not isinstance(part.places, TrialPlaces):
        return
    folder = _folder_at(part.job)
    for directory in part.places.folders:
        trial = _result_in(folder, directory) if directory else None
        if trial is None:
            yield {}
            continue
        files = [_AgentFiles(folder, directory, step) for step in _steps(trial)]
        raised = trial.exception_info
        error = None if raised is None else {"kind": raised.exception_type, "message": raised.exception_message}
        yield placed({"prompt": files[0].instruction(), "completion": _answer(files), "error": error}, {})


def _folder_at(path: str) -> JobFolder:
    """The job or the single trial at a path."""
    return JobFolder(path, "trial" if kind_of(path) == "trial" else "job")


def _result_in(folder: JobFolder, directory: str) -> Trial | None:
    """A trial's result; None if it cannot be read."""
    try:
        return decode_result(folder.result(directory) or b"", directory)
    except (UnreadableFile, InputError):
        return None


def _answer(files: Sequence[_AgentFiles]) -> Any:
    """The answer of the last step that has an answer; None if no step has one."""
    answers = (step.answer() for step in reversed(files))
    return next((answer for answer in answers if answer is not None), None)


def _steps(trial: Trial) -> list[str]:
    """The names of a trial's steps, without names that cannot be folders in it; [""] if there are none."""
    names = [step.step_name for step in trial.step_results or ()]
    return [name for name in names if name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)] or [""]


class _AgentFiles:
    """The files that an agent left in a trial or in one of its steps."""

    def __init__(self, folder: JobFolder, trial: str, step: str) -> None:
        self._folder, self._trial = folder, trial
        self._step = f"steps/{step}/" if step else ""

    def instruction(self) -> Any:
        """The instruction from its file, else the user's first message in the trajectory; None if neither exists."""
        text = self._text(INSTRUCTION)
        if text is not None:
            return text
        steps = self._trajectory(TRAJECTORY).steps
        return next((step.message for step in steps if step.source == "user" and step.message), None)

    def answer(self) -> Any:
        """The completion from its file, else the agent's last message in the trajectory; None if neither exists."""
        completion = self._text(COMPLETION)
        if completion is not None:
            return completion
        last: Any = None
        pieces, name = set[str](), TRAJECTORY
        while name not in pieces and len(pieces) < MOST_PIECES:
            pieces.add(name)
            piece = self._trajectory(name)
            last = next((step.message for step in reversed(piece.steps) if _has_answer(step)), last)
            next_piece = piece.continued_trajectory_ref
            if isinstance(next_piece, str) and next_piece and os.path.basename(next_piece) == next_piece:
                name = f"agent/{next_piece}"
        return last

    def _text(self, name: str) -> str | None:
        """The content of a text file; None if it is missing or blank."""
        text = (self._folder.file_in(self._trial, self._step + name, LARGEST_TEXT) or b"").decode(errors="replace")
        return text if text.strip() else None

    def _trajectory(self, name: str) -> LooseTrajectory:
        raw = self._folder.file_in(self._trial, self._step + name, LARGEST_TEXT) or b"{}"
        try:
            return decode_lenient(raw, LooseTrajectory)
        except (ValueError, RecursionError, msgspec.ValidationError):
            return LooseTrajectory()


def _has_answer(step: LooseStep) -> bool:
    """Whether a step is the agent's and has a message that is not blank."""
    message = step.message
    return step.source == "agent" and bool(message.strip() if isinstance(message, str) else message)


JOB = Format(
    SYSTEM,
    read,
    recognise=no_file,  # a job is a directory
    texts=lambda path, columns, wanted: texts(path, wanted),
    folder=lambda path: (jobs_in(path), ()),
    whole=is_job_by_its_files,
    join=numbered,
    extras=extras,
    labels=LABELS,
)
