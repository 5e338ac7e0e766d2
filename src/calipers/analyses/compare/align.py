"""Which runs are compared: matched by agent, model and dataset; then the tasks that two runs share.

::

    sources ──► runs: agent, model, source ──► contests: runs on one dataset ──► Common: two of them, task by task
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.analyses.compare import Alignment, OneSide
from calipers.errors import InputError, UnknownName
from calipers.rollouts.column import Bools, Ints
from calipers.rollouts.labels import clusters, has, slices
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts

Who = tuple[str | None, str | None]  # agent, model
NAMED = 20  # tasks of one side that are named
NOT_RUN = CODE["not_run"]


@dataclass(frozen=True, slots=True)
class ReadRun:
    """What one agent and model did, as one source has it; in a contest on one dataset, under a name of its own."""

    source: int  # the index of the source
    path: str  # of the source; "" for a table
    who: Who
    parts: Mapping[str | None, Rollouts]  # by dataset
    name: str = ""  # no other run of the contest has it

    @property
    def rollouts(self) -> Rollouts:
        """Those on its only dataset."""
        (part,) = self.parts.values()
        return part

    @property
    def key(self) -> tuple[str | None, ...]:
        """Agent, model and dataset, as its records say them."""
        return tuple(self.rollouts.keys[0])


def runs_of(source: int, path: str, rollouts: Rollouts) -> list[ReadRun]:
    """The runs in one source: a run is what one agent and model did."""
    by_who: dict[Who, dict[str | None, Rollouts]] = {}
    for part in rollouts.groups():
        agent, model, dataset = part.keys[0]
        by_who.setdefault((agent, model), {})[dataset] = part
    return [ReadRun(source, path, who, parts) for who, parts in by_who.items()]


def contests_of(sources: Sequence[Sequence[ReadRun]]) -> tuple[list[Sequence[ReadRun]], list[str]]:
    """Which runs are compared with which, and notes on runs that are excluded; InputError where that is not clear.

    With one source its runs are compared with each other. With several, runs of the same name are compared: the same
    agent and model, else the same agent where each source has one model, or the same model where each has one agent.
    A source with a single run is compared with every run of the others. Runs of one dataset each are compared on each
    dataset, where every dataset has several of them; otherwise the datasets may be one under other names.
    """
    matched = _matched(sources)
    there = {id(run) for runs in matched for run in runs}
    alone = [run for runs in sources for run in runs if id(run) not in there]
    notes = [f"{_titled(run)} is only in {_called(run)} and is excluded" for run in alone]
    contests: list[Sequence[ReadRun]] = []
    for runs in matched:
        by_dataset, more = _by_dataset(_named(runs))
        contests += by_dataset
        notes += more
    return contests, notes


def dataset_of(contest: Sequence[ReadRun]) -> str | None:
    """The name of the dataset; None where the runs have different names for it, or none."""
    names = _dataset_names(contest)
    return names[0] if len(names) == 1 else None


def _dataset_names(contest: Sequence[ReadRun]) -> list[str]:
    return list(dict.fromkeys(dataset for run in contest for dataset in run.parts if dataset is not None))


def _matched(sources: Sequence[Sequence[ReadRun]]) -> list[list[ReadRun]]:
    if len(sources) == 1:
        if len(sources[0]) < 2:
            wrong = "has only one run"
            raise InputError.at(_called(sources[0][0]), wrong, "give a second run to compare it with")
        return [list(sources[0])]
    if all(len(runs) == 1 for runs in sources):
        return [[runs[0] for runs in sources]]
    for part in (slice(0, 2), slice(0, 1), slice(1, 2)):  # agent and model, agent, model
        keyed = [{run.who[part]: run for run in runs} for runs in sources]
        distinct = all(len(keys) == len(runs) for keys, runs in zip(keyed, sources, strict=True))
        shared = [key for key in keyed[0] if all(key in keys for keys in keyed[1:])]
        if distinct and shared:
            return [[keys[key] for keys in keyed] for key in shared]
    if sum(len(runs) > 1 for runs in sources) == 1 or len(sources[0]) == 1:
        return [[run for runs in sources for run in runs]]
    listed = "; ".join(f"{_called(runs[0])} has {', '.join(map(_titled, runs))}" for runs in sources)
    raise InputError(f"it is not clear which runs to compare: {listed}; expected one run in each, or the same names")


def _by_dataset(runs: Sequence[ReadRun]) -> tuple[list[Sequence[ReadRun]], list[str]]:
    if all(len(run.parts) == 1 for run in runs):
        names = _dataset_names(runs)
        contests = [[run for run in runs if name in run.parts] for name in names]
        if len(names) > 1 and sum(map(len, contests)) == len(runs) and all(len(some) > 1 for some in contests):
            return [_named(some) for some in contests], []
        notes = [f"the datasets have different names: {', '.join(map(repr, names))}"] if len(names) > 1 else []
        return [runs], notes
    every = list(dict.fromkeys(dataset for run in runs for dataset in run.parts))
    there = {dataset: [run for run in runs if dataset in run.parts] for dataset in every}
    shared = {dataset: some for dataset, some in there.items() if len(some) > 1}
    if not shared:
        listed = "; ".join(f"{run.name} has {_listed(run.parts)}" for run in runs)
        raise InputError(f"the runs have no dataset in common: {listed}; expected the same datasets")
    alone = [dataset for dataset in every if dataset not in shared]
    notes = [f"excluded, because only one run has them: {_listed(alone)}"] if alone else []
    return [
        [replace(run, parts={dataset: run.parts[dataset]}) for run in some] for dataset, some in shared.items()
    ], notes


def _named(runs: Sequence[ReadRun]) -> list[ReadRun]:
    return [replace(run, name=name) for run, name in zip(runs, names_of(runs), strict=True)]


def names_of(runs: Sequence[ReadRun]) -> list[str]:
    """Names that distinguish the runs: model, agent, both, path, or all of them."""
    paths = _tails([_called(run) for run in runs])
    ways: list[list[str | None]] = [
        [run.who[1] for run in runs],
        [run.who[0] for run in runs],
        [" · ".join(filter(None, reversed(run.who))) or None for run in runs],
        [*paths],
        [" · ".join([path, *filter(None, reversed(run.who))]) for path, run in zip(paths, runs, strict=True)],
    ]
    for names in ways:
        given = [name for name in names if name]
        if len(set(given)) == len(runs):
            return given
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]  # one file, given twice


def _tails(paths: Sequence[str]) -> list[str]:
    """The shortest ends of the paths that distinguish them."""
    split = [path.rstrip(os.sep).split(os.sep) for path in paths]
    for count in range(1, max(map(len, split)) + 1):
        tails = [os.sep.join(parts[-count:]) for parts in split]
        if len(set(tails)) == len(set(paths)):
            return tails
    return list(paths)


def chosen_pairs(contest: Sequence[ReadRun], baseline: str | None) -> list[tuple[int, int]]:
    """The pairs to compare, (first, second): all of them, or each run against the baseline."""
    count = len(contest)
    if baseline is None:
        return [(first, second) for first in range(count) for second in range(first + 1, count)]
    known = [{run.name, run.path, run.path.rstrip(os.sep), *filter(None, run.who)} for run in contest]
    matches = [index for index, words in enumerate(known) if baseline in words]
    if not matches:
        raise UnknownName.of("run", baseline, [run.name for run in contest])
    if len(matches) > 1:
        called = ", ".join(contest[index].name for index in matches)
        raise InputError.at(
            "--baseline", f"{baseline!r} is the name of several runs ({called})", "expected one of them"
        )
    return [(matches[0], index) for index in range(count) if index != matches[0]]


def _called(run: ReadRun) -> str:
    return run.path or f"run {run.source + 1}"


def _titled(run: ReadRun) -> str:
    return repr(" · ".join(filter(None, reversed(run.who))) or "(unnamed)")


def _listed(datasets: Mapping[str | None, object] | Sequence[str | None]) -> str:
    return ", ".join("(unnamed)" if dataset is None else repr(dataset) for dataset in datasets)


@dataclass(frozen=True, slots=True)
class Common:
    """Two runs on the tasks they share: task t of one is task t of the other, by the first run's ids."""

    first: Rollouts
    second: Rollouts
    alignment: Alignment
    own_ids: Sequence[str]  # [T] what the second run calls them

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """The rollouts of the first run and of the second."""
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
        for side in self.sides:
            waiting[side.task[side.outcome == NOT_RUN]] = True
        order, settled = self.order, np.zeros(len(waiting), dtype=bool)
        settled[order] = ~np.logical_or.accumulate(waiting[order])
        return settled


def no_common(first: ReadRun, second: ReadRun) -> str:
    """The refusal of two runs without a common task, with the first tasks of each."""
    runs = (f"{run.name} ({', '.join(map(repr, run.rollouts.tasks[:2]))}, ...)" for run in (first, second))
    return f"{' and '.join(runs)} have no task in common"


def by_id(first: Rollouts, second: Rollouts, apart: frozenset[str] = frozenset()) -> Common:
    """The tasks of the same id; those ``apart`` are not the same task in spite of it."""
    number = {task: index for index, task in enumerate(second.tasks)}
    pairs = [(index, number[task]) for index, task in enumerate(first.tasks) if task in number and task not in apart]
    return _common(first, second, pairs, "id", apart)


def by_content(
    first: Rollouts, second: Rollouts, first_contents: Mapping[str, bytes], second_contents: Mapping[str, bytes]
) -> Common:
    """The tasks of the same content, by the hash of each task's; content that appears twice in a run is left out."""
    indices = [
        _once([(contents[task], index) for index, task in enumerate(part.tasks) if task in contents])
        for part, contents in ((first, first_contents), (second, second_contents))
    ]
    pairs = [(index, indices[1][content]) for content, index in indices[0].items() if content in indices[1]]
    return _common(first, second, sorted(pairs), "content")


def _once(contents: Sequence[tuple[bytes, int]]) -> dict[bytes, int]:
    indices: dict[bytes, int] = {}
    twice = set[bytes]()
    for content, index in contents:
        if content in indices:
            twice.add(content)
        indices[content] = index
    return {content: index for content, index in indices.items() if content not in twice}


def _common(
    first: Rollouts, second: Rollouts, pairs: Sequence[tuple[int, int]], how: str, apart: frozenset[str] = frozenset()
) -> Common:
    indices = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    names = [first.tasks[index] for index in indices[:, 0].tolist()]
    own_ids = [second.tasks[index] for index in indices[:, 1].tolist()]
    alignment = Alignment(how, len(pairs), _left(first, indices[:, 0], apart), _left(second, indices[:, 1], apart))
    return Common(_of(first, indices[:, 0], names), _of(second, indices[:, 1], names), alignment, own_ids)


def _left(part: Rollouts, taken: Ints, apart: frozenset[str]) -> OneSide:
    rest = np.setdiff1d(np.arange(len(part.tasks)), taken).tolist()
    names = [part.tasks[index] for index in rest if part.tasks[index] not in apart]
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
    sides = common.sides
    known = [has(side, key) for side in sides]
    sliced = [slices(side, key, label) for side in sides]
    for run in (0, 1):
        if not known[run] and known[1 - run]:
            code, names = sliced[1 - run]
            of_task = np.full(len(common.first.tasks), -1, dtype=np.int64)
            of_task[sides[1 - run].task[::-1]] = code[::-1]  # the first sample's
            sliced[run] = of_task[sides[run].task], names
    parts: dict[str, Common] = {}
    for name in sorted({*sliced[0][1], *sliced[1][1]}):
        some = [
            side.where(code == (names.index(name) if name in names else -2))
            for side, (code, names) in zip(sides, sliced, strict=True)
        ]
        shared = by_id(some[0], some[1])
        if shared.alignment.common:
            parts[name] = shared
    return parts


def units(common: Common, key: str) -> tuple[Ints, str | None]:
    """The cluster of each common task, [T], and a note where the runs do not agree on them."""
    known = [side for side in common.sides if has(side, key)]
    codes = [clusters(side, key) for side in known or [common.first]]
    if len(codes) == 2:
        pairs = len(np.unique(np.stack(codes, axis=1), axis=0))
        if not pairs == len(np.unique(codes[0])) == len(np.unique(codes[1])):
            return codes[0], f"the runs do not agree on {key!r}: the clusters of the first run are used"
    return codes[0], None
