"""Which tasks two runs share, and both runs cut down to those, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.analyses.compare.result import Alignment, OneSide
from calipers.rollouts.column import Bools, Ints
from calipers.rollouts.labels import clusters, has, slices
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts

NAMED = 20  # tasks of one side that are named
NOT_RUN = CODE["not_run"]


@dataclass(frozen=True, slots=True)
class Common:
    """Two runs on the tasks they share: task t of one is task t of the other, by the first run's ids."""

    first: Rollouts
    second: Rollouts
    alignment: Alignment
    own_ids: Sequence[str]  # [T] what the second run calls them

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """Both runs."""
        return self.first, self.second

    @property
    def order(self) -> Ints:
        """The tasks in the order in which the second run began them, [T]."""
        turn = self.second.turn
        return np.arange(len(self.own_ids)) if turn is None else np.argsort(turn, kind="stable")

    @property
    def settled(self) -> Bools:
        """The tasks before the first, in that order, of which either run still owes a rollout, [T].

        Tasks that finish early are easier, or harder, than the others: those beyond have to wait.
        """
        waiting = np.zeros(len(self.own_ids), dtype=bool)
        for side in (self.first, self.second):
            waiting[side.task[side.outcome == NOT_RUN]] = True
        order, found = self.order, np.zeros(len(waiting), dtype=bool)
        found[order] = ~np.logical_or.accumulate(waiting[order])
        return found


def by_id(first: Rollouts, second: Rollouts, apart: frozenset[str] = frozenset()) -> Common:
    """The tasks of the same id; those ``apart`` are not the same task in spite of it."""
    number = {task: place for place, task in enumerate(second.tasks)}
    pairs = [(one, number[task]) for one, task in enumerate(first.tasks) if task in number and task not in apart]
    return _common(first, second, pairs, "id", apart)


def by_content(first: Rollouts, second: Rollouts, one: Mapping[str, bytes], two: Mapping[str, bytes]) -> Common:
    """The tasks of the same content, by the hash of each task's; content that stands twice in a run is left out."""
    number = _once([(two[task], place) for place, task in enumerate(second.tasks) if task in two])
    held = _once([(one[task], place) for place, task in enumerate(first.tasks) if task in one])
    pairs = [(place, number[content]) for content, place in held.items() if content in number]
    return _common(first, second, sorted(pairs), "content")


def _once(held: Sequence[tuple[bytes, int]]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    twice = set[bytes]()
    for content, place in held:
        if content in found:
            twice.add(content)
        found[content] = place
    return {content: place for content, place in found.items() if content not in twice}


def _common(
    first: Rollouts,
    second: Rollouts,
    pairs: Sequence[tuple[int, int]],
    how: str,
    apart: frozenset[str] = frozenset(),
) -> Common:
    places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    names = [first.tasks[place] for place in places[:, 0].tolist()]
    own = [second.tasks[place] for place in places[:, 1].tolist()]
    alignment = Alignment(how, len(pairs), _left(first, places[:, 0], apart), _left(second, places[:, 1], apart))
    return Common(_of(first, places[:, 0], names), _of(second, places[:, 1], names), alignment, own)


def _left(part: Rollouts, taken: Ints, apart: frozenset[str]) -> OneSide:
    rest = np.setdiff1d(np.arange(len(part.tasks)), taken).tolist()
    names = [part.tasks[place] for place in rest if part.tasks[place] not in apart]
    return OneSide(len(names), names[:NAMED])


def _of(part: Rollouts, tasks: Ints, names: Sequence[str]) -> Rollouts:
    """The rollouts of some tasks, in the order of ``tasks``, under these names."""
    if len(tasks) == len(part.tasks) and bool((tasks == np.arange(len(tasks))).all()):
        return replace(part, tasks=names, left=None)
    starts = part.by_task.starts
    counts = np.diff(starts)[tasks]
    rows = np.repeat(starts[:-1][tasks] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    return replace(
        part,
        tasks=names,
        owner=np.zeros(len(tasks), dtype=np.int64),
        task=np.repeat(np.arange(len(tasks)), counts),
        sample=part.sample[rows],
        outcome=part.outcome[rows],
        rewards={name: column.take(rows) for name, column in part.rewards.items()},
        columns={name: column.take(rows) for name, column in part.columns.items()},
        labels={name: values.take(rows) for name, values in part.labels.items()},
        tries=None if part.tries is None else part.tries[rows],
        turn=None if part.turn is None else part.turn[tasks],
        left=None,
    )


def cut(common: Common, key: str, label: Callable[[Any], str]) -> dict[str, Common]:
    """Both runs by the value of a key, slices sorted by name.

    A run that does not know the key takes each task's value from the other.
    """
    sides = (common.first, common.second)
    known = [has(side, key) for side in sides]
    found = [slices(side, key, label) for side in sides]
    for place in (0, 1):
        if not known[place] and known[1 - place]:
            code, names = found[1 - place]
            of_task = np.full(len(common.first.tasks), -1, dtype=np.int64)
            of_task[sides[1 - place].task[::-1]] = code[::-1]  # the first sample's
            found[place] = of_task[sides[place].task], names
    parts: dict[str, Common] = {}
    for name in sorted({*found[0][1], *found[1][1]}):
        some = [
            side.where(code == (names.index(name) if name in names else -2))
            for side, (code, names) in zip(sides, found, strict=True)
        ]
        shared = by_id(some[0], some[1])
        if shared.alignment.common:
            parts[name] = shared
    return parts


def units(common: Common, key: str) -> tuple[Ints, str | None]:
    """The cluster of each common task, [T], and what must be said where the runs do not agree on them."""
    known = [side for side in (common.first, common.second) if has(side, key)]
    found = [clusters(side, key) for side in known or [common.first]]
    if len(found) == 2:
        both = len(np.unique(np.stack(found, axis=1), axis=0))
        if not both == len(np.unique(found[0])) == len(np.unique(found[1])):
            return found[0], f"the runs do not agree on {key!r}: the clusters are those of the first"
    return found[0], None
