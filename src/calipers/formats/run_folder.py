"""The folder of a run: its plan, its stop, its log, and a row for every planned rollout that is not in the log.

::

    runs/arith-openai_m-1f0a4c2e/
      plan.json         the planned tasks and samples, and the settings
      rollouts.jsonl    the log: a record for each finished rollout
      stopped.json      the rule and how far the run came; written when the rule is reached, before the last calls end

Folders of earlier versions have no stopped.json; there, a sentence under ``stopped`` in result.json describes the stop.

A run of a task of lm-evaluation-harness also has documents.jsonl: the values of each document for the numbers of its
table::

    {"schema": "calipers.documents/1", "log_bytes": 48213, "metrics": [
        {"metric": "bleu", "pipeline": "none", "aggregation": "bleu", "higher_is_better": true}]}
    {"document": "0", "hash": "5f1c...", "values": {"bleu,none": ["the reference", "the completion"]}}

A value is an input of the metric's aggregation: a number, a pair of texts or of classes, or a log-likelihood and its
size. Null stands for NaN, and an absent key for a gap. With these values, every number can be computed again over any
set of documents, without the task's files and code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, ROW, Columns, Extras, Format, Progress, Settings, Text, flat, jsonl, no_file
from calipers.formats.jsonl import JsonLines, of_row
from calipers.formats.source import BLOCK, Source, blocks_of
from calipers.formats.source_facts import FACTS
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.rollouts.record import Stop
from calipers.rollouts.table import Part
from calipers.typed import complete

PLAN, LOG = "plan.json", "rollouts.jsonl"
IDENTITY = "identity.json"  # in the folder of a run of agents, whose jobs have their own plans
DOCUMENTS = "documents.jsonl"  # the values of each document for numbers that are computed over all documents
PLAN_SCHEMA = "calipers.plan/1"
DOCUMENTS_SCHEMA: Final = "calipers.documents/1"
TORN = f"{LOG}: the last line was cut off by a crash and is dropped; its rollout will run again"

D = TypeVar("D", bound=msgspec.Struct)
_Samples = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class PlannedTask(msgspec.Struct, gc=False):
    """A task of a plan. ``samples`` is given only if it differs from the plan's number."""

    task: str
    metadata: msgspec.Raw = msgspec.Raw(b"null")  # an object or null
    samples: _Samples | None = None
    target: str = ""  # the hash of its target; "" without one, and in plans of earlier versions


class RunPlan(msgspec.Struct, kw_only=True):
    """The fields of a run's plan that readers need."""

    schema: str
    identity: dict[str, Any] = msgspec.field(default_factory=dict)
    dataset: str | None = None
    model: str | None = None
    agent: str | None = None
    samples: _Samples
    tasks: list[PlannedTask]  # in the order of the run
    created_at: str | None = None

    def of(self, task: PlannedTask) -> int:
        """The number of planned samples of a task."""
        return self.samples if task.samples is None else task.samples


class PlannedSetting(msgspec.Struct):
    """A setting of a run in its plan."""

    value: Any = None


class _PlannedSettings(msgspec.Struct):
    settings: dict[str, PlannedSetting] = {}


class _Schema(msgspec.Struct):
    schema: str = ""


def is_run(path: str) -> bool:
    """Whether a path is the directory of a run, which is one with a plan."""
    return os.path.isfile(os.path.join(path, PLAN))


def run_of_log(path: str) -> str | None:
    """The run's directory if a path is the log in it, also by a symbolic link; None for any other path.

    A copy of a log elsewhere is a plain file.
    """
    if not os.path.isfile(path):
        return None
    for log in (path, os.path.realpath(path)):
        folder, name = os.path.split(log)
        if name == LOG and is_run(folder or "."):
            return folder or "."
    return None


def read_plan(folder: str) -> RunPlan:
    """The plan in a run's directory; InputError if it cannot be read."""
    path = os.path.join(folder, PLAN)
    data = _content(path)
    _check_schema(path, _decoded(path, data, _Schema, "the plan").schema, PLAN_SCHEMA)
    plan = _decoded(path, data, RunPlan, "the plan")
    seen = set[str]()
    for task in plan.tasks:
        if task.task in seen:
            raise InputError.at(path, f"task {task.task!r} appears twice", "expected each task once")
        if bytes(memoryview(task.metadata)[:1]) not in (b"{", b"n"):
            raise InputError.at(
                path, f"the metadata of task {task.task!r} is not an object", "expected an object or null"
            )
        seen.add(task.task)
    return plan


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def _decoded(path: str, data: bytes, kind: type[D], name: str) -> D:
    try:
        return msgspec.json.decode(data, type=complete(kind))
    except BAD as error:
        expected = "expected the file as calipers wrote it"
        raise InputError.at(path, f"is not {name} of a run ({error})", expected) from None


def _check_schema(path: str, schema: str, known: str) -> None:
    if schema != known:
        expected = f"expected {known!r}; was it written by another version?"
        raise InputError.at(path, f"schema is {schema[:60]!r}", expected)


def read_settings(folder: str) -> dict[str, Any]:
    """The settings of a run's latest start, from the plan in its directory; InputError if it cannot be read."""
    path = os.path.join(folder, PLAN)
    try:
        with open(path, "rb") as file:
            settings = msgspec.json.decode(file.read(), type=complete(_PlannedSettings)).settings
    except (OSError, *BAD) as error:
        raise InputError.at(path, f"is not the plan of a run ({error})") from None
    return {name: setting.value for name, setting in settings.items()}


def whole(path: str, size: int | None = None) -> int:
    """The size in bytes of the whole lines among a log's first ``size`` bytes, without a last line cut off by a crash.

    A last line is cut off if it has no newline, or is not JSON: after a power failure a file may
    have its full size but not all of its bytes.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END) if size is None else size
        start = _line_start(file, size)
        if start < size:
            return start
        start = _line_start(file, size - 1)
        file.seek(start)
        return size if _is_json(file.read(size - start)) else start


def _line_start(file: IO[bytes], end: int) -> int:
    """The start of the line that ends at ``end``."""
    while end > 0:
        step = min(BLOCK, end)
        file.seek(end - step)
        newline = file.read(step).rfind(b"\n")
        if newline >= 0:
            return end - step + newline + 1
        end -= step
    return 0


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line or b"{}", type=msgspec.Raw)
    except BAD:
        return not line.strip()  # a blank line is not the result of a crash
    return True


STOPPED, RESULT = "stopped.json", "result.json"
STOP_SCHEMA: Final = "calipers.stopped/1"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_SENTENCE: Final = re.compile(r"--until (['\"])(.*)\1 stopped the run after ([\d,]+) of ([\d,]+) tasks", re.DOTALL)
_RULE: Final = re.compile(r"\s*(width|lower|upper)\s*\((.+)\)\s*[<>]=?\s*\S+\s*", re.DOTALL)


class RunStop(msgspec.Struct, kw_only=True, frozen=True):
    """The record of a run's stop, in stopped.json."""

    schema: str = STOP_SCHEMA
    rule: str
    metric: str
    side: str  # width, lower or upper
    tasks: _Count  # tasks finished at the stop
    planned_tasks: _Count
    rollouts: _Count | None = None  # rollouts in the log at the stop; None in files of earlier versions
    planned_rollouts: _Count | None = None  # of the whole plan, to tell whether a later start has the same plan
    stopped_at: str | None = None
    finished: bool = True  # the calls that were in flight at the stop have ended
    continued: bool = False  # a later start resumed the run, and was not stopped by a rule
    completed: bool = False  # a later start completed the plan, so that the run is a fixed sample again

    def of_plan(self, planned: int, outstanding: int) -> Stop | None:
        """The stop for a reader of the run; ``outstanding`` of the ``planned`` rollouts are not in the log.

        None for a fixed sample, which is a run that completed the plan in which it was stopped. A run that was
        continued to any other point is not a fixed sample, because how far it went depends on its results.
        """
        if self.completed or (not outstanding and self.planned_rollouts in (None, planned)):
            return None
        return Stop(self.rule, self.metric, self.side, self.tasks, self.planned_tasks, self.continued)


class _Result(msgspec.Struct):
    stopped: str | None = None


def read_stop(folder: str) -> RunStop | None:
    """The stop recorded in a run's folder; None if no rule stopped the run. InputError if it cannot be read."""
    path = os.path.join(folder, STOPPED)
    if os.path.lexists(path):
        stop = _decoded(path, _content(path), RunStop, "the stop file")
        _check_schema(path, stop.schema, STOP_SCHEMA)
        return stop
    sentence = None  # a run of an earlier version has a sentence in its result
    with suppress(OSError, *BAD), open(os.path.join(folder, RESULT), "rb") as file:
        sentence = msgspec.json.decode(file.read(), type=complete(_Result)).stopped
    return stop_of_sentence(sentence) if sentence else None


def stop_of_sentence(sentence: str) -> RunStop:
    """The stop described by the sentence under ``stopped`` in a result; with rule "" if the sentence has none."""
    match = _SENTENCE.search(sentence)
    rule = match[2] if match else ""
    tasks, planned = [int(number.replace(",", "")) for number in match.group(3, 4)] if match else (0, 0)
    parts = _RULE.fullmatch(rule)
    side, metric = (parts[1], parts[2].strip()) if parts else ("", "")
    return RunStop(rule=rule, metric=metric, side=side, tasks=tasks, planned_tasks=planned)


AT_ONCE = 4096  # rows of missing rollouts made at a time
MOST_PLANNED = 100_000_000  # rollouts; a larger plan is a mistake
WHO = ("model", "endpoint")
"""The parts of a run's identity that name the model."""


class RunLog(Source):
    """A run's log up to the end of its last whole line at the time of opening; later lines are not read."""

    format = "run"

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, LOG)
        exists = os.path.exists(path)
        super().__init__(path if exists else os.devnull)  # an absent log is read as an empty one
        self.folder, self.path = folder, path
        end = whole(path, self.size) if exists else 0
        self.torn = end < self.size
        self.size = self._left = self._end = end

    def sha256(self) -> str:
        """The hash of the whole lines; InputError if the log has shrunk since it was opened."""
        if self._hashing is None:
            self.start_hashing()
        if self._hashing is not None:
            self._hashing()
            if self._hashed < self.size:
                raise InputError.at(self.path, "changed while it was read", "expected a log that only grows")
        return self._hash.hexdigest()


def read(log: RunLog, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts in a run's log, and a row for each planned rollout that is not in the log.

    Such a row is `not_run`, or `stopped_early` if a stopping rule ended the run before its turn.
    """
    parts = jsonl.read(log, names, labels, progress)
    return with_plan(log.folder, parts, labels, [TORN] if log.torn else [])


def with_plan(folder: str, parts: Sequence[Part], labels: Collection[str], notes: Sequence[str] = ()) -> list[Part]:
    """The rollouts of a run's log, and a row for each planned rollout that is not among them; with notes on both."""
    plan, plan_path = read_plan(folder), os.path.join(folder, PLAN)
    planned = sum(map(plan.of, plan.tasks))
    if planned > MOST_PLANNED:
        raise InputError.at(plan_path, f"{planned} rollouts are planned", f"expected at most {MOST_PLANNED}")
    reader = JsonLines(plan_path, {}, labels)
    coverage = PlanCoverage.of(plan, parts)
    stopped = read_stop(folder)
    stop = stopped.of_plan(planned, coverage.outstanding) if stopped else None
    missing = _missing_lines(plan, coverage, stopped if stop else None, bool(labels))
    while block := b"".join(islice(missing, AT_ONCE)):
        reader.read(block)
    filled = [part for part in (*parts, reader.finish()) if len(part)]
    turns = _turns([task.task for task in plan.tasks], filled)
    every = [replace(part, planned_from="plan", stop=stop, turn=turn) for part, turn in zip(filled, turns, strict=True)]
    notes = [*notes, *(stop.notes if stop else ())]
    if every and notes:
        every[0] = replace(every[0], notes=[f"{folder}: {note}" for note in notes])
    return every


def _turns(tasks: Sequence[str], parts: Sequence[Part]) -> Iterator[Floats]:
    """The turn of each row, [R] for each part: the position of its task in the plan, as a log has fast tasks first.

    Positions are scaled to the number of rows, so that the turns of another source can follow after them.
    """
    number = {task: index for index, task in enumerate(tasks)}
    share = sum(map(len, parts)) / (len(tasks) + 1)
    for part in parts:
        positions = np.array([number.get(name, len(tasks)) for name in part.tasks], dtype=np.float64)
        yield positions[part.task] * share


@dataclass(frozen=True, slots=True)
class PlanCoverage:
    """Which rollouts of its T planned tasks a run has, task by task."""

    counts: Ints  # [T] planned samples
    starts: Ints  # [T] the index in `there` of each task's first sample
    there: Bools  # [the sum of counts] whether the log has the rollout

    @classmethod
    def of(cls, plan: RunPlan, parts: Sequence[Part]) -> PlanCoverage:
        """The coverage of a plan by the parts of a log."""
        counts = np.array([plan.of(task) for task in plan.tasks], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        there = np.zeros(int(counts.sum()), dtype=bool)
        number = {task.task: index for index, task in enumerate(plan.tasks)}
        for part in parts:
            task = np.array([number.get(name, -1) for name in part.tasks], dtype=np.int64)[part.task]
            planned = part.sample < np.append(counts, 0)[task]  # the appended 0 is for -1, a task not in the plan
            there[starts[task[planned]] + part.sample[planned]] = True
        return cls(counts, starts, there)

    @property
    def outstanding(self) -> int:
        """The number of planned rollouts that are not in the log."""
        return int(np.count_nonzero(~self.there))

    def lacking(self, plan: RunPlan, stop: RunStop | None) -> Iterator[tuple[PlannedTask, list[int], bool]]:
        """Each task with missing samples, the samples, and whether they are missing because of a stopping rule."""
        columns = (self.starts.tolist(), self.counts.tolist(), self.stopped_early(stop).tolist())
        for task, start, count, stopped in zip(plan.tasks, *columns, strict=True):
            samples = np.flatnonzero(~self.there[start : start + count]).tolist()
            if samples:
                yield task, samples, stopped

    def stopped_early(self, stop: RunStop | None) -> Bools:
        """Whether the missing samples of each task were not run because of a stopping rule, [T]; others are `not_run`.

        If the calls that were in flight at the stop were lost, this is false for the tasks up to the last whose
        last sample is in the log.
        """
        tasks = len(self.counts)
        if stop is None or stop.continued:
            return np.zeros(tasks, dtype=bool)
        if stop.finished:
            return np.ones(tasks, dtype=bool)
        has_last = np.zeros(tasks, dtype=bool)  # whether a task's last sample is in the log
        sampled = self.counts > 0
        has_last[sampled] = self.there[(self.starts + self.counts - 1)[sampled]]
        return np.arange(tasks) > int(np.flatnonzero(has_last).max(initial=-1))


def _missing_lines(plan: RunPlan, coverage: PlanCoverage, stop: RunStop | None, labelled: bool) -> Iterator[bytes]:
    """A record for each planned rollout that is not in the log, as a line of JSON."""
    group = msgspec.json.encode({"agent": plan.agent, "model": plan.model, "dataset": plan.dataset})[1:]
    for task, samples, stopped in coverage.lacking(plan, stop):
        outcome = b"stopped_early" if stopped else b"not_run"
        head = b'{"task":%s,"outcome":"%s",' % (msgspec.json.encode(task.task), outcome)
        if labelled:
            head += b'"metadata":%s,' % msgspec.json.encode(task.metadata)
        for sample in samples:
            yield b'%s"sample":%d,%s\n' % (head, sample, group)


def _texts(path: str, names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    folder = os.path.dirname(path)
    targets = {task.task: task.target for task in read_plan(folder).tasks}
    for text in jsonl.texts(blocks_of(RunLog(folder)), names, wanted):
        yield text._replace(target=targets.get(text.task) or text.target)


def _identity(path: str, dataset: str | None) -> Settings:
    """The settings in the identity of a run's plan, without those that name the model."""
    identity = read_plan(os.path.dirname(path)).identity
    yield from flat({key: value for key, value in identity.items() if key not in WHO}, "")


def _extras(part: Part, names: Columns) -> Extras:
    """The non-numeric values of rows in the log; for a missing rollout, the metadata of its task."""
    folder, file = os.path.split(part.places.path)
    tasks = {task.task: task for task in read_plan(folder).tasks}
    if file == PLAN:
        for code in part.task.tolist():
            task = tasks[part.tasks[code]]
            metadata = {} if bytes(task.metadata) == b"null" else {"metadata": task.metadata}
            yield {**metadata, **_with_target(task)}
        return
    for block in blocks_of(RunLog(folder)):
        for line in filter(bytes.strip, bytes(block).split(b"\n")):
            row = ROW.decode(line)
            name = msgspec.json.decode(row[names.get("task", "task")])
            yield {**of_row(row, names), **_with_target(tasks.get(str(name)))}


def _with_target(task: PlannedTask | None) -> dict[str, dict[str, str]]:
    """The `SourceFacts` object of a row with the hash of its task's target, which only the plan has; {} without one."""
    return {FACTS: {"target": task.target}} if task and task.target else {}


RUN = Format("run", read, no_file, _texts, _identity, extras=_extras)


DocumentValues = tuple[str, str, dict[str, Any]]
"""A document's number, the hash of its content, and its values by ``metric,pipeline``."""


class Summed(msgspec.Struct, frozen=True):
    """A number of the table, and the aggregation that computes it from the values of documents."""

    metric: str
    pipeline: str
    aggregation: str | None  # None for a function of the task's own code
    higher_is_better: bool | None = None

    @property
    def key(self) -> str:
        """Its key in the table."""
        return f"{self.metric},{self.pipeline}"


class DocumentsHead(msgspec.Struct):
    """The first line of documents.jsonl."""

    schema: str
    log_bytes: int
    metrics: list[Summed]


class DocumentLine(msgspec.Struct):
    """A line of documents.jsonl: one document and its values."""

    document: str
    hash: str
    values: dict[str, Any]


def document_lines(ways: Mapping[str, Summed], log_bytes: int, documents: Iterable[DocumentValues]) -> Iterator[bytes]:
    """The lines of documents.jsonl. The size of the log shows a reader whether they cover all of it."""
    kept = {key for key, way in ways.items() if way.aggregation is not None}
    yield msgspec.json.encode(DocumentsHead(DOCUMENTS_SCHEMA, log_bytes, [*ways.values()])) + b"\n"
    for document, digest, values in documents:
        line = DocumentLine(document, digest, {key: value for key, value in values.items() if key in kept})
        try:
            yield msgspec.json.encode(line, enc_hook=_plain) + b"\n"
        except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot encode
            line.values = {key: _without_surrogates(value) for key, value in line.values.items()}
            yield msgspec.json.encode(line, enc_hook=_plain) + b"\n"


def _plain(value: Any) -> Any:
    """A value that JSON does not have: a NumPy scalar as a number, anything else as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else str(value)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
