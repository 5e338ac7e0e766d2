"""The directory of a run: its log, and a row for every rollout that its plan still owes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.readers import divide, native
from calipers.readers.files import Source
from calipers.readers.jsonl import JsonLines
from calipers.readers.run_plan import LOG, PLAN, TORN, RunPlan, read_plan, whole
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.rollouts.part import Part

AT_ONCE = 4096  # owed rows made at a time
MOST_PLANNED = 100_000_000  # rollouts; more is a slip of the pen


class RunLog(Source):
    """A run's log up to the end of its last whole line. It may be growing: what comes later is not seen."""

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


def read(log: RunLog, names: Mapping[str, str], labels: Collection[str], progress: divide.Progress) -> list[Part]:
    """The rollouts of a run: what its log holds, and `not_run` for what was planned and is not there."""
    plan, place = read_plan(log.folder), os.path.join(log.folder, PLAN)
    planned = sum(map(plan.of, plan.tasks))
    if planned > MOST_PLANNED:
        raise InputError.at(place, f"{planned} rollouts are planned", f"expected at most {MOST_PLANNED}")
    parts = native.read(log, names, labels, progress)
    reader = JsonLines(place, {}, labels)
    owed = _owed(plan, parts, bool(labels))
    while block := b"".join(islice(owed, AT_ONCE)):
        reader.read(block)
    found = [part for part in (*parts, reader.finish()) if len(part)]
    turns = _turns([task.task for task in plan.tasks], found)
    parts = [replace(part, planned_from="plan", turn=turn) for part, turn in zip(found, turns, strict=True)]
    if parts and log.torn:
        parts[0] = replace(parts[0], notes=[f"{log.folder}: {TORN}"])
    return parts


def _turns(tasks: Sequence[str], parts: Sequence[Part]) -> Iterator[Floats]:
    """The place of each row's task in the plan, [R] of each part: in a log, what was quick comes first.

    Spread over as many places as there are rows, so that those of another source may follow.
    """
    number = {task: place for place, task in enumerate(tasks)}
    share = sum(map(len, parts)) / (len(tasks) + 1)
    for part in parts:
        places = np.array([number.get(name, len(tasks)) for name in part.tasks], dtype=np.float64)
        yield places[part.task] * share


def _owed(plan: RunPlan, parts: Sequence[Part], labelled: bool) -> Iterator[bytes]:
    """A line for each planned rollout that stands in no part, as the log would hold it."""
    counts = np.array([plan.of(task) for task in plan.tasks], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    there = _there([task.task for task in plan.tasks], counts, starts, parts)
    group = msgspec.json.encode({"agent": plan.agent, "model": plan.model, "dataset": plan.dataset})[1:]
    for task, start, count in zip(plan.tasks, starts.tolist(), counts.tolist(), strict=True):
        samples = np.flatnonzero(~there[start : start + count]).tolist()
        if samples:
            head = b'{"task":%s,"outcome":"not_run",' % msgspec.json.encode(task.task)
            if labelled:
                head += b'"metadata":%s,' % msgspec.json.encode(task.metadata)
            for sample in samples:
                yield b'%s"sample":%d,%s\n' % (head, sample, group)


def _there(tasks: Sequence[str], counts: Ints, starts: Ints, parts: Sequence[Part]) -> Bools:
    """Which planned rollouts stand in the parts, task by task, [the sum of counts]."""
    there = np.zeros(int(counts.sum()), dtype=bool)
    number = {task: place for place, task in enumerate(tasks)}
    for part in parts:
        task = np.array([number.get(name, -1) for name in part.tasks], dtype=np.int64)[part.task]
        planned = part.sample < np.append(counts, 0)[task]  # the last for -1, which is no task of the plan
        there[starts[task[planned]] + part.sample[planned]] = True
    return there
