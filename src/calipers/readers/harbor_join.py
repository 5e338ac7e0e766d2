"""Jobs given together are one set: the trials of a task are numbered over all of them, by when they started.

Harbor numbers no attempts: trials of one task differ by a random name, and are exchangeable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from calipers.errors import InputError
from calipers.readers.harbor_part import HarborPart
from calipers.rollouts.column import Floats
from calipers.rollouts.part import Part
from calipers.rollouts.record import GROUP

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
    found = [
        replace(part, sample=own, planned_from=whence, turn=turn)
        for part, own, turn in zip(ours, samples, turns, strict=True)
    ]
    found[-1] = replace(found[-1], notes=[*found[-1].notes, *_changed(ours)])
    done = iter(found)
    return [next(done) if isinstance(part, HarborPart) else part for part in parts]


def _ranks(started: Floats) -> Floats:
    """The place of each row among all of them by when it was started, [R]."""
    found = np.empty(len(started))
    found[np.argsort(started, kind="stable")] = np.arange(len(started))
    return found


Key = tuple[tuple[str, ...], tuple[float, str, str], int, int]


def _keys(parts: Iterable[HarborPart]) -> Iterator[Key]:
    """(group and task, trial, part, row) of every row; a trial is when it started, its directory and its job."""
    for number, part in enumerate(parts):
        columns = []
        for name in GROUP:
            held = part.labels[name]
            columns.append([held.values[code] if code >= 0 else "" for code in held.code.tolist()])
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
            before, place = first.setdefault(number, (part, row))
            if before is not part or place != row:
                wrong = f"the trial stands twice, first in {before.places.of(place)}"
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
            "two datasets of one name, or tasks that changed, are one group here, as in Harbor"
        )
