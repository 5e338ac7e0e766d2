"""The folder of a run: its log, and a row for every planned rollout that is not in it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import jsonl
from calipers.formats.carried import CARRIED
from calipers.formats.extras import of_row
from calipers.formats.format import Columns, Extras, Format, Progress, Raw, Settings, Text, flat
from calipers.formats.jsonl import JsonLines
from calipers.formats.run_plan import LOG, PLAN, TORN, PlannedTask, RunPlan, RunStop, read_plan, read_stop, whole
from calipers.formats.source import Source, blocks_of
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.rollouts.part import Part

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
            self._hashing.join()
            if self._hashed < self.size:
                raise InputError.at(self.path, "changed while it was read", "expected a log that only grows")
        return self._hash.hexdigest()

    def _hash_file(self) -> None:
        room = memoryview(bytearray(1 << 20))
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
        return cls(counts, starts, _there([task.task for task in plan.tasks], counts, starts, parts))

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


def _there(tasks: Sequence[str], counts: Ints, starts: Ints, parts: Sequence[Part]) -> Bools:
    """Which planned rollouts stand in the parts, task by task, [the sum of counts]."""
    there = np.zeros(int(counts.sum()), dtype=bool)
    number = {task: index for index, task in enumerate(tasks)}
    for part in parts:
        task = np.array([number.get(name, -1) for name in part.tasks], dtype=np.int64)[part.task]
        planned = part.sample < np.append(counts, 0)[task]  # the last for -1, which is no task of the plan
        there[starts[task[planned]] + part.sample[planned]] = True
    return there


def _texts(path: str, names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    folder = os.path.dirname(path)
    targets = {task.task: task.target for task in read_plan(folder).tasks}
    for text in jsonl.texts(RunLog(folder), names, wanted):
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


RUN = Format("run", read, lambda start: False, _texts, _identity, extras=_extras)
