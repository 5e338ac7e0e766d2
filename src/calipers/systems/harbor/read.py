"""Harbor's jobs: what each set out to do, and a rollout for each trial, finished, in progress or outstanding.

A trial has an outcome, its rewards and its cost, and is numbered over all jobs given together: Harbor numbers no
attempts, as trials of one task differ by a random name, and are exchangeable.

Also what the trials of a job say: instructions, answers, and trajectories as EvSys harvests them.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, Columns, Extras, Format, Progress, Text, no_file
from calipers.formats.jsonl import placed
from calipers.formats.lines import MOST_COLUMNS
from calipers.formats.repeated_keys import refuse_twice
from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn
from calipers.formats.rows import Gather
from calipers.rollouts.column import Floats
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, GROUP, shown
from calipers.rollouts.table import Part, Places
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
    decode_of_job,
    decode_result,
    decode_trial,
    failure_cause,
    is_job_by_its_files,
    jobs_in,
    kind_of,
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
LABEL_OF: Final[Mapping[str, Callable[[TrialRow, str], str | None]]] = {  # of a trial, and the name of its job
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
        self._labels = [name for name in LABEL_OF if name in labels]
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
            gather.labels(name, [LABEL_OF[name](row, self._folder.name) for row in block])
        self._units += [row.unit or row.directory for row in block]
        self._directories += [row.directory for row in block]
        self._ids += [row.id for row in block]
        self._started += [row.started for row in block]
        gather.rows += len(block)
        block.clear()


NAMED_TASKS: Final = 5  # tasks that a note names


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
        names = ", ".join(tasks[:NAMED_TASKS]) + (", ..." if len(tasks) > NAMED else "")
        yield (
            f"dataset {dataset!r}: task_checksum differs between trials of {names} ({len(tasks)} in all): "
            "datasets with the same name, or tasks that changed, form one group here, as in Harbor"
        )


MOST_PLANNED: Final = 10_000_000  # trials; more is a slip of the pen
NEVER_STARTED: Final = "(never started {})"
PROVIDERS: Final = frozenset(  # prefixes that Harbor takes off a model's name, of those in common use
    {
        *("anthropic", "azure", "bedrock", "cohere", "deepseek", "fireworks_ai", "gemini", "groq", "hosted_vllm"),
        *("mistral", "ollama", "openai", "openrouter", "sagemaker", "together_ai", "vertex_ai", "vllm", "xai"),
    }
)


T = TypeVar("T")
COMPLETION: Final = "agent/completion.txt"


class KnownTrials:
    """The names that finished trials give to what was asked for."""

    def __init__(self) -> None:
        self._agents: dict[tuple[str, str | None], tuple[str, str | None]] = {}
        self._tasks: dict[tuple[str | None, str | None], str] = {}

    def learn(self, trial: Trial) -> None:
        """What a finished trial was asked for, and what it is called."""
        if isinstance(trial, TrialResult) and trial.config is not None:
            model = trial.agent_info.model_info
            name = model.name if model else None
            self._agents.setdefault(trial.config.agent.key, (trial.agent_info.name, name))
            self._tasks.setdefault(trial.config.task.key, trial.task_name)

    def who(self, wanted: PlannedTrial) -> Who:
        """The group and the task of a trial that nobody finished."""
        task, key = wanted.task, wanted.agent.key
        agent, model = self._agents.get(key) or (key[0], _model(key[1]))
        named = self._tasks.get(task.key) or task.name or (task.path or "").rstrip("/").rpartition("/")[2]
        return Who(agent, model, task.source or ADHOC, named or "(unnamed)")


class JobPlan:
    """What a job's own three files say."""

    def __init__(self, folder: JobFolder) -> None:
        self.notes: list[str] = []
        lock = self._read(folder, LOCK, JobLock) if folder.is_job else None
        self.job = (
            self._job(folder, "" if lock else ", so the planned trials are unknown") if folder.is_job else JobFile()
        )
        self._config = self._read(folder, CONFIG, JobConfig) or JobConfig() if folder.is_job else JobConfig()
        self._locked = None if lock is None else Counter(lock.trials)
        self._total = self.job.n_total_trials
        if (self._total or 0) > MOST_PLANNED:
            path = f"{folder.path}/{RESULT}"
            raise InputError.at(path, f"{self._total} trials are planned", f"expected at most {MOST_PLANNED}")
        fallback = "trial directories" if self._total is None else RESULT
        self.planned_from = fallback if lock is None else LOCK

    def outstanding(self, present: Counter[Who], known: KnownTrials) -> Iterator[Who]:
        """A trial for each that was planned and has no directory."""
        if self._locked is not None:
            planned = Counter[Who]()
            for trial, count in self._locked.items():
                planned[known.who(trial)] += count
            yield from (planned - present).elements()
        elif self._total is not None:
            yield from self._unnamed(present, self._total - present.total(), known)

    def _unnamed(self, present: Counter[Who], left: int, known: KnownTrials) -> Iterator[Who]:
        """Of trials that are merely counted: what known tasks lack of their attempts, then tasks without a name."""
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
            yield Who(agent, model, dataset, NEVER_STARTED.format(task + 1))

    def _job(self, folder: JobFolder, effect: str) -> JobFile:
        path = f"{folder.path}/{RESULT}"
        try:
            raw = contents(path)
            return JobFile() if raw is None else decode_of_job(raw, JobFile, path)
        except (UnreadableFile, InputError):
            self.notes.append(f"{path}: cannot be read as a job's result{effect}")
            return JobFile()

    def _read(self, folder: JobFolder, name: str, kind: type[T]) -> T | None:
        """One of the job's files; None, and a note, when it cannot be read."""
        path = f"{folder.path}/{name}"
        try:
            raw = contents(path)
            return None if raw is None else msgspec.json.decode(raw, type=kind)
        except (UnreadableFile, *BAD) as error:
            self.notes.append(f"{path}: cannot be read ({error})")
            return None


def asked_for(folder: JobFolder, trial: str) -> PlannedTrial | None:
    """What a trial without a result was asked for, by its lock or its configuration."""
    for name in (LOCK, CONFIG):
        try:
            raw = contents(folder.path_in(trial, name))
            if raw is not None:
                return msgspec.json.decode(raw, type=PlannedTrial)
        except (UnreadableFile, *BAD):
            continue
    return None


def _model(name: str | None) -> str | None:
    """What Harbor would call a model: without the provider, where it knows that."""
    provider, slash, rest = (name or "").partition("/")
    return rest if slash and provider in PROVIDERS else name


NAMED: Final = 10  # kinds of exceptions, or rewards, that a note names
FEW: Final = 5  # trials that a note names, of many that are wrong alike
TOLD_EVERY: Final = 64  # trials
BLAME_FILE: Final = "calipers.json"  # what our room says of a trial that Harbor ran in it
LARGEST_BLAME: Final = 1 << 12  # bytes


def read(folder: JobFolder, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The trials of a job: those that ended, and `not_run` for those in progress or never started."""
    if len(names):
        raise InputError.at("--columns", "a Harbor job has its own field names", "remove this option")
    return _JobReading(folder, labels).parts(progress)


class _JobReading:
    """One job while it is read."""

    def __init__(self, folder: JobFolder, labels: Collection[str]) -> None:
        self._folder = folder
        self._known = KnownTrials()
        self._plan = JobPlan(folder)
        self._ended = TrialRows(folder.path, folder, labels)
        self._outstanding = TrialRows(folder.path_in("", LOCK), folder, labels)
        self._earlier: dict[str, list[TrialRow]] = defaultdict(list)  # replaced attempts, by trial
        self._replaced = 0
        self._present = Counter[Who]()
        self._unread: list[tuple[str, str]] = []  # (directory, what is wrong)
        self._odd: list[tuple[str, str]] = []
        self._disowned, self._bare = Counter[str](), 0
        self._keys: dict[frozenset[str], list[str]] = {}  # the rewards' names -> trials that have these
        self._checksums: dict[tuple[str, str], str] = {}
        self._changed: set[tuple[str, str]] = set()

    def parts(self, progress: Progress) -> list[Part]:
        """Everything, in two parts: what ended, and what did not."""
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
        for trial in list(self._earlier):  # the last attempt's own directory is gone
            self._add(self._ended, self._earlier[trial].pop())
        for who in self._plan.outstanding(self._present, self._known):
            self._outstanding.add(TrialRow(who, "", "", "not_run"))
        checksums = {"digests": self._checksums, "changed": frozenset(self._changed)}
        parts = [part for part in (self._ended.finish(**checksums), self._outstanding.finish()) if len(part)]
        notes = [*self._notes(lost)]
        return [
            replace(part, planned_from=self._plan.planned_from, notes=[] if number else notes)
            for number, part in enumerate(parts)
        ]

    def _finished(self, progress: Progress) -> None:
        size, done = self._folder.size, 0
        share = size // max(len(self._folder.finished), 1)
        for number, directory in enumerate(self._folder.finished, 1):
            if (row := self._row(directory)) is not None:
                self._add(self._ended, row)
                self._watch(row)
            if number % TOLD_EVERY == 0:
                progress(share * number - done)
                done = share * number
        progress(size - done)

    def _row(self, directory: str) -> TrialRow | None:
        """A trial's result; None when it cannot be read."""
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
        refuse_twice(raw or b"", path, UNIQUE_KEYS)
        self._known.learn(trial)
        if trial.calipers is None and trial.exception_info is not None:
            trial.calipers = decode_blame(self._folder.file_in(directory, BLAME_FILE, LARGEST_BLAME))
        row = row_of(trial, directory, trial.id if isinstance(trial, TrialResult) else None)
        if trial.task_checksum:
            task = (row.who.dataset, row.who.task)
            if self._checksums.setdefault(task, trial.task_checksum) != trial.task_checksum:
                self._changed.add(task)
        return row

    def _watch(self, row: TrialRow) -> None:
        """Remember what the user must be told of a trial."""
        if row.odd:
            name, value = next(iter(row.odd.items()))
            path = self._folder.path_in(row.directory, RESULT)
            note = f"{path}: reward {name!r} is {shown(value)}; expected a finite number"
            self._odd.append((row.directory, note))
        if row.disowned and row.exception:
            self._disowned[row.exception] += 1
        self._bare += row.outcome == "not_run"
        if row.outcome == "scored":
            self._keys.setdefault(frozenset(row.rewards), []).append(row.directory)

    def _add(self, rows: TrialRows, row: TrialRow) -> None:
        """A trial, after the attempts at it that were replaced: what they cost, it cost."""
        self._present[row.who] += 1
        if earlier := self._earlier.pop(row.trial, None):
            same: dict[str, Any] = {"who": row.who, "unit": row.directory, "started": row.started}  # as of one trial
            for number, attempt in enumerate(earlier, 1):
                self._ended.add(attempt._replace(**same, attempt=number, id=None))
            counts = added(attempt.counts for attempt in (*earlier, row))
            row = row._replace(attempt=len(earlier) + 1, counts=counts)
        rows.add(row)

    def _unfinished(self, directory: str, outcome: str) -> TrialRow:
        """A trial without a result that can be read, by what it was asked for."""
        named = TaskRef(name=directory.rpartition("__")[0] or directory)
        wanted = asked_for(self._folder, directory) or PlannedTrial(named)
        who = self._known.who(wanted)
        return TrialRow(who, directory, directory, outcome, source=wanted.task.source)

    def _notes(self, lost: list[tuple[str, str]]) -> Iterator[str]:
        """What the ledger cannot say; ``lost`` are replaced attempts that cannot be read."""
        path, job = self._folder.path, self._plan.job
        yield from self._plan.notes
        if job.started_at and not job.finished_at:
            yield f"{path}: the job is not finished: it is still running, or it was interrupted"
        links = [(name, f"{path}/{name}: a link") for name in self._folder.links]
        yield from self._listed(links, "it is not followed", "links")
        yield from self._listed(self._unread, "the trial counts as missing", "results cannot be read")
        yield from self._listed(lost, "the attempt is not counted", "earlier attempts cannot be read")
        yield from self._listed(self._odd, "it counts as missing", "trials have a reward that is not a finite number")
        yield from self._uneven()
        if self._disowned:
            types = ", ".join(f"{name} {count}" for name, count in self._disowned.most_common(NAMED))
            yield (
                f"{path}: the native dialect excludes the reward of {_trials(self._disowned.total())}, because an "
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
        if (gone := job.stats.n_retries - self._replaced - len(lost)) > 0:
            before = "1 earlier attempt is" if gone == 1 else f"{gone} earlier attempts are"
            yield f"{path}: {before} not there, because Harbor deletes retried attempts: tokens and cost exclude them"

    def _uneven(self) -> Iterator[str]:
        """Which trials lack a reward that others have."""
        everything = sorted(set[str]().union(*self._keys))
        total = sum(map(len, self._keys.values()))
        lacking = {
            key: [trial for keys, some in self._keys.items() if key not in keys for trial in some] for key in everything
        }
        parts = [
            f"{key!r} is missing in {len(trials)} of {total} ({_few(trials)})"
            for key, trials in lacking.items()
            if trials
        ]
        if parts:
            yield f"{self._folder.path}: scored trials have different rewards: {'; '.join(parts[:NAMED])}"

    def _listed(self, items: list[tuple[str, str]], then: str, more: str) -> Iterator[str]:
        """One note for all items of a kind: the first in full, the number and some names of the others."""
        if items:
            (_, note), *others = items
            rest = f"; {len(others)} more {more} ({_few([name for name, _ in others])})" if others else ""
            yield f"{note}; {then}{rest}"


def _few(names: Sequence[str]) -> str:
    """Some names of several."""
    return ", ".join(sorted(names)[:FEW]) + (", ..." if len(names) > FEW else "")


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count:,} trials"


def read_groups(job: str | os.PathLike[str], tasks: Sequence[str]) -> list[TrajectoryGroup]:
    """One group for each task, by its name in the job, in the order given; trials in the order they began."""
    folder = JobFolder(os.fspath(job))
    by_task: dict[str, list[tuple[str, str, Trajectory]]] = {name: [] for name in tasks}
    for directory in folder.finished:
        try:
            trial = decode_trial(folder.result(directory) or b"", folder.path_in(directory, "result.json"))
        except (UnreadableFile, InputError):
            continue  # it did not survive either
        given = rewards(trial)
        if trial.exception_info is not None or given is None or trial.task_name not in by_task:
            continue
        trajectory = Trajectory(_turns(folder, directory), float(given.get("reward", 0.0)), {"usage": _usage(trial)})
        by_task[trial.task_name].append((trial.started_at or "", trial.trial_name, trajectory))
    groups = [sorted(ended, key=lambda trial: trial[:2]) for ended in by_task.values()]
    return [TrajectoryGroup([trajectory for *_, trajectory in group]) for group in groups]


def _turns(folder: JobFolder, directory: str) -> list[Turn]:
    text = folder.file_in(directory, COMPLETION)
    return [] if text is None else [Turn([], [], [], text.decode(errors="replace"))]


def _usage(trial: Trial) -> Mapping[str, Any]:
    spent = totals(trial)
    return {
        "cost_usd": spent.cost_usd,
        "prompt_tokens": spent.n_input_tokens,
        "completion_tokens": spent.n_output_tokens,
        "cached_tokens": spent.n_cache_tokens,
        "latency_s": seconds(trial.agent_execution) or seconds(trial),
    }


INSTRUCTION: Final = "agent/instruction.md"
TRAJECTORY: Final = "agent/trajectory.json"
LARGEST_TEXT: Final = 64 << 20  # bytes of one of these files
MOST_PIECES: Final = 64  # files that one trajectory may go on in


def texts(path: str, wanted: Collection[str]) -> Iterator[Text]:
    """The first trial of each task that knows its instruction, and all of the wanted tasks, as they began."""
    folder = _folder_at(path)
    read = ((directory, _result_in(folder, directory)) for directory in folder.finished)
    trials = [(row_of(trial, directory), _steps(trial)) for directory, trial in read if trial is not None]
    known = set[Who]()
    for row, steps in sorted(trials, key=lambda item: (item[0].started, item[0].directory)):
        files = [_AgentFiles(folder, row.directory, step) for step in steps]
        prompt = files[0].instruction() if row.who not in known else None
        if prompt is not None:
            known.add(row.who)
        answer = _answer(files) if row.who.task in wanted else None
        if prompt is not None or answer is not None:
            yield Text(*row.who, row.started, prompt=prompt, answer=answer)


def extras(part: Part, columns: Columns) -> Extras:
    """What each trial of a job says: the instruction and the answer; of one without a result, nothing."""
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
    """A job, or a trial alone."""
    return JobFolder(path, "trial" if kind_of(path) == "trial" else "job")


def _result_in(folder: JobFolder, directory: str) -> Trial | None:
    """A trial's result; None where it cannot be read."""
    try:
        return decode_result(folder.result(directory) or b"", directory)
    except (UnreadableFile, InputError):
        return None


def _answer(files: Sequence[_AgentFiles]) -> Any:
    """What the agent said last in any of its steps; None where it said nothing."""
    answers = (step.answer() for step in reversed(files))
    return next((answer for answer in answers if answer is not None), None)


def _steps(trial: Trial) -> list[str]:
    """The steps of a trial, but for a name that is no name of a folder in it; [""] for a trial without any."""
    names = [step.step_name for step in trial.step_results or ()]
    return [name for name in names if name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)] or [""]


class _AgentFiles:
    """What an agent left in a trial, or in a step of it."""

    def __init__(self, folder: JobFolder, trial: str, step: str) -> None:
        self._folder, self._trial = folder, trial
        self._step = f"steps/{step}/" if step else ""

    def instruction(self) -> Any:
        """What the agent was told; None where nobody wrote it down."""
        text = self._text(INSTRUCTION)
        if text is not None:
            return text
        first = self._trajectory(TRAJECTORY)
        return next((step.message for step in first.steps if step.source == "user" and step.message), None)

    def answer(self) -> Any:
        """What the agent said in the end; None where it said nothing, or nobody wrote it down."""
        written = self._text(COMPLETION)
        if written is not None:
            return written
        last: Any = None
        pieces, name = set[str](), TRAJECTORY
        while name not in pieces and len(pieces) < MOST_PIECES:
            pieces.add(name)
            piece = self._trajectory(name)
            last = next((step.message for step in reversed(piece.steps) if _says(step)), last)
            more = piece.continued_trajectory_ref
            if isinstance(more, str) and more and os.path.basename(more) == more:
                name = f"agent/{more}"
        return last

    def _text(self, name: str) -> str | None:
        """A text file; None where it is not there or blank."""
        text = (self._folder.file_in(self._trial, self._step + name, LARGEST_TEXT) or b"").decode(errors="replace")
        return text if text.strip() else None

    def _trajectory(self, name: str) -> LooseTrajectory:
        raw = self._folder.file_in(self._trial, self._step + name, LARGEST_TEXT) or b"{}"
        try:
            return msgspec.json.decode(raw, type=LooseTrajectory)
        except BAD:
            try:  # NaN and infinities, as Python writes them
                return msgspec.convert(json.loads(raw), LooseTrajectory)
            except (ValueError, RecursionError, msgspec.ValidationError):
                return LooseTrajectory()


def _says(step: LooseStep) -> bool:
    """Whether the agent says something in a step beside what it does."""
    message = step.message
    return step.source == "agent" and bool(message.strip() if isinstance(message, str) else message)


JOB = Format(
    "harbor",
    read,
    recognise=no_file,  # a job is a directory
    texts=lambda path, columns, wanted: texts(path, wanted),
    folder=lambda path: (jobs_in(path), ()),
    whole=is_job_by_its_files,
    join=numbered,
    extras=extras,
    labels=LABELS,
)
