"""The folder of a run: its plan, how it stopped, its log, and a row for every planned rollout that is not in it.

::

    runs/arith-openai_m-1f0a4c2e/
      stopped.json      the rule and how far the run came; written when the rule is reached, before the last calls end

Folders of earlier versions have no such file: there the sentence under ``stopped`` in result.json says it.

A run of a task of lm-evaluation-harness has documents.jsonl, too: the values of each document for the numbers of its
table::

    {"schema": "calipers.documents/1", "log_bytes": 48213, "metrics": [
        {"metric": "bleu", "pipeline": "none", "aggregation": "bleu", "higher_is_better": true}]}
    {"document": "0", "hash": "5f1c...", "values": {"bleu,none": ["the right text", "what was said"]}}

A value is what the metric's aggregation takes: a number, a pair of texts or of classes, a log-likelihood and its
size; null is not a number, and a key that is not there is a gap. So every number can be worked out again over any
documents, without the task's files and without its code.
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
from calipers.formats import BAD, Columns, Extras, Format, Progress, Raw, Settings, Text, flat, jsonl, no_file
from calipers.formats.carried import CARRIED
from calipers.formats.jsonl import JsonLines, of_row
from calipers.formats.source import BLOCK, Source, blocks_of
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.rollouts.record import Stop
from calipers.rollouts.table import Part

PLAN, LOG = "plan.json", "rollouts.jsonl"
IDENTITY = "identity.json"  # of a run of agents, whose jobs have their own plans
DOCUMENTS = "documents.jsonl"  # what each document of a task keeps for numbers of all of them together
PLAN_SCHEMA = "calipers.plan/1"
DOCUMENTS_SCHEMA: Final = "calipers.documents/1"
TORN = f"{LOG}: the last line was cut off by a crash and is dropped; its rollout will run again"

D = TypeVar("D", bound=msgspec.Struct)
_Samples = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class PlannedTask(msgspec.Struct, gc=False):
    """A task of a plan. ``samples`` stands there only where it is not the plan's own number."""

    task: str
    metadata: msgspec.Raw = msgspec.Raw(b"null")  # an object or null
    samples: _Samples | None = None
    target: str = ""  # the hash of its target; "" without one, and in plans of earlier versions


class RunPlan(msgspec.Struct, kw_only=True):
    """What a run set out to do, as far as others ask."""

    schema: str
    identity: dict[str, Any] = msgspec.field(default_factory=dict)
    dataset: str | None = None
    model: str | None = None
    agent: str | None = None
    samples: _Samples
    tasks: list[PlannedTask]  # in the order of the run
    created_at: str | None = None

    def of(self, task: PlannedTask) -> int:
        """How many samples of a task are planned."""
        return self.samples if task.samples is None else task.samples


class PlannedSetting(msgspec.Struct):
    """A setting of a run, as its plan keeps it."""

    value: Any = None


class _PlannedSettings(msgspec.Struct):
    settings: dict[str, PlannedSetting] = {}


class _Schema(msgspec.Struct):
    schema: str = ""


def is_run(path: str) -> bool:
    """Whether a path is the directory of a run: one with a plan."""
    return os.path.isfile(os.path.join(path, PLAN))


def read_plan(folder: str) -> RunPlan:
    """The plan in a run's directory; InputError when it is none that we can read."""
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


def _decoded(path: str, data: bytes, kind: type[D], what: str) -> D:
    try:
        return msgspec.json.decode(data, type=kind)
    except BAD as error:
        right = "expected the file as calipers wrote it"
        raise InputError.at(path, f"is not {what} of a run ({error})", right) from None


def _check_schema(path: str, schema: str, known: str) -> None:
    if schema != known:
        right = f"expected {known!r}; was it written by another version?"
        raise InputError.at(path, f"schema is {schema[:60]!r}", right)


def read_settings(folder: str) -> dict[str, Any]:
    """The settings of a run's latest start, from the plan in its directory; InputError when it is none."""
    path = os.path.join(folder, PLAN)
    try:
        with open(path, "rb") as file:
            settings = msgspec.json.decode(file.read(), type=_PlannedSettings).settings
    except (OSError, *BAD) as error:
        raise InputError.at(path, f"is not the plan of a run ({error})") from None
    return {name: setting.value for name, setting in settings.items()}


def whole(path: str, size: int | None = None) -> int:
    """How many of a log's first ``size`` bytes are whole lines: all, unless a crash cut off the last one.

    A last line is cut off when it has no newline, or is no JSON: after a power failure a file may
    have its size and not all of its bytes.
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
    """Where the line starts that reaches up to ``end``."""
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
        return not line.strip()  # a blank line is none that a crash left
    return True


STOPPED, RESULT = "stopped.json", "result.json"
STOP_SCHEMA: Final = "calipers.stopped/1"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_SENTENCE: Final = re.compile(r"--until (['\"])(.*)\1 stopped the run after ([\d,]+) of ([\d,]+) tasks", re.DOTALL)
_RULE: Final = re.compile(r"\s*(width|lower|upper)\s*\((.+)\)\s*[<>]=?\s*\S+\s*", re.DOTALL)


class RunStop(msgspec.Struct, kw_only=True, frozen=True):
    """What a folder says of the stop of its run."""

    schema: str = STOP_SCHEMA
    rule: str
    metric: str
    side: str  # width, lower or upper
    tasks: _Count  # settled at the stop
    planned_tasks: _Count
    rollouts: _Count | None = None  # in the log at the stop; None where an earlier version did not say
    planned_rollouts: _Count | None = None  # of the whole plan, by which a later start is held against it
    stopped_at: str | None = None
    finished: bool = True  # the calls that were in flight at the stop have ended
    continued: bool = False  # a later start went on, and was not stopped by a rule
    completed: bool = False  # a later start came to the end of the plan: a fixed sample again

    def of_plan(self, planned: int, owed: int) -> Stop | None:
        """The stop as it concerns whoever reads so many planned rollouts, some still owed; None for a fixed sample.

        A run that came to the end of the very plan that it was stopped in is a fixed sample again. One that
        was continued to anything else is none: how far it went depends on what it showed.
        """
        if self.completed or (not owed and self.planned_rollouts in (None, planned)):
            return None
        return Stop(self.rule, self.metric, self.side, self.tasks, self.planned_tasks, self.continued)


class _Result(msgspec.Struct):
    stopped: str | None = None


def read_stop(folder: str) -> RunStop | None:
    """What a run's folder says of its stop; None where no rule stopped it. InputError for what cannot be read."""
    path = os.path.join(folder, STOPPED)
    if os.path.lexists(path):
        stop = _decoded(path, _content(path), RunStop, "the stop file")
        _check_schema(path, stop.schema, STOP_SCHEMA)
        return stop
    sentence = None  # a run of an earlier version has one in its result
    with suppress(OSError, *BAD), open(os.path.join(folder, RESULT), "rb") as file:
        sentence = msgspec.json.decode(file.read(), type=_Result).stopped
    return stop_said(sentence) if sentence else None


def stop_said(sentence: str) -> RunStop:
    """The stop that the sentence under ``stopped`` of a result is about; without a rule where it names none."""
    match = _SENTENCE.search(sentence)
    rule = match[2] if match else ""
    tasks, planned = [int(number.replace(",", "")) for number in match.group(3, 4)] if match else (0, 0)
    parts = _RULE.fullmatch(rule)
    side, metric = (parts[1], parts[2].strip()) if parts else ("", "")
    return RunStop(rule=rule, metric=metric, side=side, tasks=tasks, planned_tasks=planned)


AT_ONCE = 4096  # owed rows made at a time
MOST_PLANNED = 100_000_000  # rollouts; more is a slip of the pen
WHO = ("model", "endpoint")
"""The parts of a run's identity that name the model."""


class RunLog(Source):
    """A run's log up to the end of its last whole line. It may be growing: what comes later is not seen."""

    format = "run"

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, LOG)
        there = os.path.exists(path)
        super().__init__(path if there else os.devnull)  # an absent log is an empty one
        self.folder, self.path = folder, path
        end = whole(path, self.size) if there else 0
        self.torn = end < self.size
        self.size = self._left = end
        self._hashed = 0  # bytes

    def readinto(self, room: memoryview) -> int:
        """Fill the room with more of the whole lines."""
        size = super().readinto(room[: self._left])
        self._left -= size
        return size

    def sha256(self) -> str:
        """The hash of what was read; the log may have grown since, but not shrunk."""
        if self._hashing is None:
            self.start_hashing()
        if self._hashing is not None:
            self._hashing()
            if self._hashed < self.size:
                raise InputError.at(self.path, "changed while it was read", "expected a log that only grows")
        return self._hash.hexdigest()

    def _hash_file(self) -> None:
        room = memoryview(bytearray(min(max(self.size, 1 << 12), 1 << 20)))
        with suppress(OSError), open(self.path, "rb", buffering=0) as file:  # gone: `sha256` sees it too
            while size := file.readinto(room[: self.size - self._hashed]):
                self._hash.update(room[:size])
                self._hashed += size


def read(log: RunLog, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a run: what its log holds, and a row for each planned one that is not there.

    Such a row is `not_run`, or `stopped_early` where a stopping rule ended the run before its turn.
    """
    parts = jsonl.read(log, names, labels, progress)
    return with_plan(log.folder, parts, labels, [TORN] if log.torn else [])


def with_plan(folder: str, parts: Sequence[Part], labels: Collection[str], notes: Sequence[str] = ()) -> list[Part]:
    """The rollouts of a run's log, and a row for each planned one that is not among them; with notes on both."""
    plan, plan_path = read_plan(folder), os.path.join(folder, PLAN)
    planned = sum(map(plan.of, plan.tasks))
    if planned > MOST_PLANNED:
        raise InputError.at(plan_path, f"{planned} rollouts are planned", f"expected at most {MOST_PLANNED}")
    reader = JsonLines(plan_path, {}, labels)
    coverage = PlanCoverage.of(plan, parts)
    stopped = read_stop(folder)
    stop = stopped.of_plan(planned, coverage.owed) if stopped else None
    owed = _owed(plan, coverage, stopped if stop else None, bool(labels))
    while block := b"".join(islice(owed, AT_ONCE)):
        reader.read(block)
    filled = [part for part in (*parts, reader.finish()) if len(part)]
    turns = _turns([task.task for task in plan.tasks], filled)
    every = [replace(part, planned_from="plan", stop=stop, turn=turn) for part, turn in zip(filled, turns, strict=True)]
    notes = [*notes, *(stop.notes if stop else ())]
    if every and notes:
        every[0] = replace(every[0], notes=[f"{folder}: {note}" for note in notes])
    return every


def _turns(tasks: Sequence[str], parts: Sequence[Part]) -> Iterator[Floats]:
    """The place of each row's task in the plan, [R] of each part: in a log, what was quick comes first.

    Spread over as many places as there are rows, so that those of another source may follow.
    """
    number = {task: index for index, task in enumerate(tasks)}
    share = sum(map(len, parts)) / (len(tasks) + 1)
    for part in parts:
        places = np.array([number.get(name, len(tasks)) for name in part.tasks], dtype=np.float64)
        yield places[part.task] * share


@dataclass(frozen=True, slots=True)
class PlanCoverage:
    """Which of its T planned tasks' rollouts a run has, task by task."""

    counts: Ints  # [T] planned samples
    starts: Ints  # [T] where a task's samples begin in `there`
    there: Bools  # [the sum of counts]

    @classmethod
    def of(cls, plan: RunPlan, parts: Sequence[Part]) -> PlanCoverage:
        """What the parts of a log hold of a plan."""
        counts = np.array([plan.of(task) for task in plan.tasks], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        there = np.zeros(int(counts.sum()), dtype=bool)
        number = {task.task: index for index, task in enumerate(plan.tasks)}
        for part in parts:
            task = np.array([number.get(name, -1) for name in part.tasks], dtype=np.int64)[part.task]
            planned = part.sample < np.append(counts, 0)[task]  # the last for -1, which is no task of the plan
            there[starts[task[planned]] + part.sample[planned]] = True
        return cls(counts, starts, there)

    @property
    def owed(self) -> int:
        """How many planned rollouts are not in the log."""
        return int(np.count_nonzero(~self.there))

    def lacking(self, plan: RunPlan, stop: RunStop | None) -> Iterator[tuple[PlannedTask, list[int], bool]]:
        """Each task with missing samples, these samples, and whether a stopping rule is the reason."""
        columns = (self.starts.tolist(), self.counts.tolist(), self.spared(stop).tolist())
        for task, start, count, spared in zip(plan.tasks, *columns, strict=True):
            samples = np.flatnonzero(~self.there[start : start + count]).tolist()
            if samples:
                yield task, samples, spared

    def spared(self, stop: RunStop | None) -> Bools:
        """The tasks with rollouts that were not run because of a stopping rule, [T]; other tasks are still to be run.

        Where the calls that were in flight at the stop were lost, the tasks up to the last one that was
        begun are among the others.
        """
        tasks = len(self.counts)
        if stop is None or stop.continued:
            return np.zeros(tasks, dtype=bool)
        if stop.finished:
            return np.ones(tasks, dtype=bool)
        last = np.zeros(tasks, dtype=bool)  # whether a task's last sample is there
        some = self.counts > 0
        last[some] = self.there[(self.starts + self.counts - 1)[some]]
        return np.arange(tasks) > int(np.flatnonzero(last).max(initial=-1))


def _owed(plan: RunPlan, coverage: PlanCoverage, stop: RunStop | None, labelled: bool) -> Iterator[bytes]:
    """A line for each planned rollout that is not there, as the log would hold it."""
    group = msgspec.json.encode({"agent": plan.agent, "model": plan.model, "dataset": plan.dataset})[1:]
    for task, samples, spared in coverage.lacking(plan, stop):
        word = b"stopped_early" if spared else b"not_run"
        head = b'{"task":%s,"outcome":"%s",' % (msgspec.json.encode(task.task), word)
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
    """What a run's plan says of how it was made, but for who answered."""
    identity = read_plan(os.path.dirname(path)).identity
    yield from flat({key: value for key, value in identity.items() if key not in WHO}, "")


_ROW = msgspec.json.Decoder(dict[str, Raw])


def _extras(part: Part, names: Columns) -> Extras:
    """Those of a run's log; of a planned rollout that is not in it, the metadata of its task."""
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
            row = _ROW.decode(line)
            name = msgspec.json.decode(row[names.get("task", "task")])
            yield {**of_row(row, names), **_with_target(tasks.get(str(name)))}


def _with_target(task: PlannedTask | None) -> dict[str, dict[str, str]]:
    """What a row carries of its task: the hash of the target, which stands in the plan alone."""
    return {CARRIED: {"target": task.target}} if task and task.target else {}


RUN = Format("run", read, no_file, _texts, _identity, extras=_extras)


DocumentValues = tuple[str, str, dict[str, Any]]
"""Its number, the hash of what it says, and its values by ``metric,pipeline``."""


class Summed(msgspec.Struct, frozen=True):
    """How the values of documents become a number of the table."""

    metric: str
    pipeline: str
    aggregation: str | None  # None: the task's own function, which only the task has
    higher_is_better: bool | None = None

    @property
    def key(self) -> str:
        """What the table calls it."""
        return f"{self.metric},{self.pipeline}"


class DocumentsHead(msgspec.Struct):
    """The first line of documents.jsonl."""

    schema: str
    log_bytes: int
    metrics: list[Summed]


class DocumentLine(msgspec.Struct):
    """What one document keeps."""

    document: str
    hash: str
    values: dict[str, Any]


def document_lines(ways: Mapping[str, Summed], log_bytes: int, documents: Iterable[DocumentValues]) -> Iterator[bytes]:
    """The lines of documents.jsonl; by the size of the log a reader sees whether they are of all that is in it."""
    kept = {key for key, way in ways.items() if way.aggregation is not None}
    yield msgspec.json.encode(DocumentsHead(DOCUMENTS_SCHEMA, log_bytes, [*ways.values()])) + b"\n"
    for document, digest, values in documents:
        line = DocumentLine(document, digest, {key: value for key, value in values.items() if key in kept})
        try:
            yield msgspec.json.encode(line, enc_hook=_plain) + b"\n"
        except UnicodeEncodeError:  # half a character, which no file in UTF-8 can hold
            line.values = {key: _sound(value) for key, value in line.values.items()}
            yield msgspec.json.encode(line, enc_hook=_plain) + b"\n"


def _plain(value: Any) -> Any:
    """What JSON has no word for: an array's number as a number, anything else as its text."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else str(value)


def _sound(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_sound(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
