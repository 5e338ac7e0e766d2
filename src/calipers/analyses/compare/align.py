"""Which runs are compared with each other, and which tasks two runs share.

Runs are matched by agent, model and dataset.

::

    sources ──► runs: agent, model, source ──► contests: runs on one dataset ──► Common: two of them, task by task
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.analyses.compare import Alignment, UnmatchedTasks
from calipers.errors import InputError, UnknownName
from calipers.rollouts.column import Bools, Ints
from calipers.rollouts.labels import clusters, has, slices
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts

Identity = tuple[str | None, str | None]  # agent, model
NAMED = 20  # tasks of one side that are named
NOT_RUN = CODE["not_run"]


@dataclass(frozen=True, slots=True)
class ReadRun:
    """The rollouts of one agent and model in one source. In a contest it has one dataset and a unique name."""

    source: int  # the index of the source
    path: str  # of the source; "" for a table
    identity: Identity
    parts: Mapping[str | None, Rollouts]  # by dataset
    name: str = ""  # unique within the contest

    @property
    def rollouts(self) -> Rollouts:
        """The rollouts on its only dataset."""
        (part,) = self.parts.values()
        return part

    @property
    def key(self) -> tuple[str | None, ...]:
        """Agent, model and dataset, as its records name them."""
        return tuple(self.rollouts.keys[0])


def runs_of(source: int, path: str, rollouts: Rollouts) -> list[ReadRun]:
    """The runs of one source, one for each pair of agent and model."""
    by_identity: dict[Identity, dict[str | None, Rollouts]] = {}
    for part in rollouts.groups():
        agent, model, dataset = part.keys[0]
        by_identity.setdefault((agent, model), {})[dataset] = part
    return [ReadRun(source, path, identity, parts) for identity, parts in by_identity.items()]


def contests_of(sources: Sequence[Sequence[ReadRun]]) -> tuple[list[Sequence[ReadRun]], list[str]]:
    """Group the runs that are compared with each other, with notes on excluded runs; InputError if that is ambiguous.

    The runs of a single source are compared with each other. With several sources, runs with the same agent and model
    are compared, else with the same agent or else with the same model, if that distinguishes the runs of every source.
    Without such a match, all runs are compared if the first source has one run or only one source has several.
    Runs with one dataset each form a contest per dataset if every dataset has at least two runs; otherwise they form
    one contest, because the same dataset may have several names.
    """
    matched = _match_runs(sources)
    matched_ids = {id(run) for runs in matched for run in runs}
    unmatched = [run for runs in sources for run in runs if id(run) not in matched_ids]
    sources_of: dict[str, list[str]] = {}  # by the name of a run that not every source has
    for run in unmatched:
        sources_of.setdefault(_quoted_name(run), []).append(_source_name(run))
    notes = [f"{name} is only in {' and '.join(paths)} and is excluded" for name, paths in sources_of.items()]
    contests: list[Sequence[ReadRun]] = []
    for runs in matched:
        by_dataset, dataset_notes = _split_by_dataset(_with_names(runs))
        contests += by_dataset
        notes += dataset_notes
    return contests, notes


def dataset_of(contest: Sequence[ReadRun]) -> str | None:
    """The name of the contest's dataset; None if the runs have different names for it or no name."""
    names = _dataset_names(contest)
    return names[0] if len(names) == 1 else None


def _dataset_names(contest: Sequence[ReadRun]) -> list[str]:
    return list(dict.fromkeys(dataset for run in contest for dataset in run.parts if dataset is not None))


def _match_runs(sources: Sequence[Sequence[ReadRun]]) -> list[list[ReadRun]]:
    if len(sources) == 1:
        if len(sources[0]) < 2:
            problem = "has only one run"
            raise InputError.at(_source_name(sources[0][0]), problem, "give a second run to compare it with")
        return [list(sources[0])]
    if all(len(runs) == 1 for runs in sources):
        return [[runs[0] for runs in sources]]
    for part in (slice(0, 2), slice(0, 1), slice(1, 2)):  # agent and model, agent, model
        keyed = [{run.identity[part]: run for run in runs} for runs in sources]
        distinct = all(len(keys) == len(runs) for keys, runs in zip(keyed, sources, strict=True))
        shared = [key for key in keyed[0] if all(key in keys for keys in keyed[1:])]
        if distinct and shared:
            return [[keys[key] for keys in keyed] for key in shared]
    if sum(len(runs) > 1 for runs in sources) == 1 or len(sources[0]) == 1:
        return [[run for runs in sources for run in runs]]
    listed = "; ".join(f"{_source_name(runs[0])} has {', '.join(map(_quoted_name, runs))}" for runs in sources)
    raise InputError(f"it is not clear which runs to compare: {listed}; expected one run in each, or the same names")


def _split_by_dataset(runs: Sequence[ReadRun]) -> tuple[list[Sequence[ReadRun]], list[str]]:
    if all(len(run.parts) == 1 for run in runs):
        names = _dataset_names(runs)
        contests = [[run for run in runs if name in run.parts] for name in names]
        if len(names) > 1 and sum(map(len, contests)) == len(runs) and all(len(contest) > 1 for contest in contests):
            return [_with_names(contest) for contest in contests], []
        notes = [f"the datasets have different names: {', '.join(map(repr, names))}"] if len(names) > 1 else []
        return [runs], notes
    datasets = list(dict.fromkeys(dataset for run in runs for dataset in run.parts))
    by_dataset = {dataset: [run for run in runs if dataset in run.parts] for dataset in datasets}
    shared = {dataset: contest for dataset, contest in by_dataset.items() if len(contest) > 1}
    if not shared:
        listed = "; ".join(f"{run.name} has {_list_datasets(run.parts)}" for run in runs)
        raise InputError(f"the runs have no dataset in common: {listed}; expected the same datasets")
    unshared = [dataset for dataset in datasets if dataset not in shared]
    notes = [f"excluded, because only one run has them: {_list_datasets(unshared)}"] if unshared else []
    return [
        [replace(run, parts={dataset: run.parts[dataset]}) for run in contest] for dataset, contest in shared.items()
    ], notes


def _with_names(runs: Sequence[ReadRun]) -> list[ReadRun]:
    return [replace(run, name=name) for run, name in zip(runs, names_of(runs), strict=True)]


def names_of(runs: Sequence[ReadRun]) -> list[str]:
    """The shortest names that distinguish the runs: model, agent, both, path, or all of them."""
    paths = _distinct_tails([_source_name(run) for run in runs])
    candidates: list[list[str | None]] = [
        [run.identity[1] for run in runs],
        [run.identity[0] for run in runs],
        [" · ".join(filter(None, reversed(run.identity))) or None for run in runs],
        [*paths],
        [" · ".join([path, *filter(None, reversed(run.identity))]) for path, run in zip(paths, runs, strict=True)],
    ]
    for names in candidates:
        given = [name for name in names if name]
        if len(set(given)) == len(runs):
            return given
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]  # the same file, given twice


def _distinct_tails(paths: Sequence[str]) -> list[str]:
    """The shortest tails of the paths that distinguish them."""
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
    names_of_runs = [{run.name, run.path, run.path.rstrip(os.sep), *filter(None, run.identity)} for run in contest]
    matches = [index for index, names in enumerate(names_of_runs) if baseline in names]
    if not matches:
        raise UnknownName.of("run", baseline, [run.name for run in contest])
    if len(matches) > 1:
        names = ", ".join(contest[index].name for index in matches)
        raise InputError.at("--baseline", f"{baseline!r} is the name of several runs ({names})", "expected one of them")
    return [(matches[0], index) for index in range(count) if index != matches[0]]


def _source_name(run: ReadRun) -> str:
    return run.path or f"run {run.source + 1}"


def _quoted_name(run: ReadRun) -> str:
    return repr(" · ".join(filter(None, reversed(run.identity))) or "(unnamed)")


def _list_datasets(datasets: Mapping[str | None, object] | Sequence[str | None]) -> str:
    return ", ".join("(unnamed)" if dataset is None else repr(dataset) for dataset in datasets)


@dataclass(frozen=True, slots=True)
class Common:
    """Two runs on the tasks they share. Both number their tasks alike and use the first run's ids."""

    first: Rollouts
    second: Rollouts
    alignment: Alignment
    second_ids: Sequence[str]  # [T] the ids of the tasks in the second run

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """The rollouts of the first run and of the second."""
        return self.first, self.second

    @property
    def order(self) -> Ints:
        """The indices of the tasks in the order in which the second run started them, [T]."""
        turn = self.second.turn
        return np.arange(len(self.second_ids)) if turn is None else np.argsort(turn, kind="stable")

    @property
    def settled(self) -> Bools:
        """Whether each task comes, in `order`, before the first task that has an outstanding rollout, [T].

        Later tasks are not compared yet, because tasks that finish early may be easier or harder than the others.
        """
        outstanding = np.zeros(len(self.second_ids), dtype=bool)
        for side in self.sides:
            outstanding[side.task[side.outcome == NOT_RUN]] = True
        order, settled = self.order, np.zeros(len(outstanding), dtype=bool)
        settled[order] = ~np.logical_or.accumulate(outstanding[order])
        return settled


def no_common(first: ReadRun, second: ReadRun) -> str:
    """The message for two runs without a common task, with the first tasks of each."""
    runs = (f"{run.name} ({', '.join(map(repr, run.rollouts.tasks[:2]))}, ...)" for run in (first, second))
    return f"{' and '.join(runs)} have no task in common"


def by_id(first: Rollouts, second: Rollouts, excluded: frozenset[str] = frozenset()) -> Common:
    """Pair the tasks that have the same id, except ``excluded`` ids, which mean another task in each run."""
    index_of = {task: index for index, task in enumerate(second.tasks)}
    pairs = [
        (index, index_of[task]) for index, task in enumerate(first.tasks) if task in index_of and task not in excluded
    ]
    return _common(first, second, pairs, "id", excluded)


def by_content(
    first: Rollouts, second: Rollouts, first_contents: Mapping[str, bytes], second_contents: Mapping[str, bytes]
) -> Common:
    """Pair the tasks with the same hash of their content; content that appears twice in a run is left out."""
    indices = [
        _unique([(contents[task], index) for index, task in enumerate(part.tasks) if task in contents])
        for part, contents in ((first, first_contents), (second, second_contents))
    ]
    pairs = [(index, indices[1][content]) for content, index in indices[0].items() if content in indices[1]]
    return _common(first, second, sorted(pairs), "content")


def _unique(contents: Sequence[tuple[bytes, int]]) -> dict[bytes, int]:
    """The index of each content that appears only once."""
    counts = Counter(content for content, _ in contents)
    return {content: index for content, index in contents if counts[content] == 1}


def _common(
    first: Rollouts, second: Rollouts, pairs: Sequence[tuple[int, int]], by: str, excluded: frozenset[str] = frozenset()
) -> Common:
    indices = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    ids = [first.tasks[index] for index in indices[:, 0].tolist()]
    second_ids = [second.tasks[index] for index in indices[:, 1].tolist()]
    only_first, only_second = (
        _unmatched(side, indices[:, column], excluded) for column, side in enumerate((first, second))
    )
    return Common(
        _select_tasks(first, indices[:, 0], ids),
        _select_tasks(second, indices[:, 1], ids),
        Alignment(by, len(pairs), only_first, only_second),
        second_ids,
    )


def _unmatched(part: Rollouts, paired: Ints, excluded: frozenset[str]) -> UnmatchedTasks:
    unpaired = np.setdiff1d(np.arange(len(part.tasks)), paired).tolist()
    ids = [part.tasks[index] for index in unpaired if part.tasks[index] not in excluded]
    return UnmatchedTasks(len(ids), ids[:NAMED])


def _select_tasks(part: Rollouts, tasks: Ints, ids: Sequence[str]) -> Rollouts:
    """The rollouts of the tasks with these indices, in this order and under the given ids."""
    if len(tasks) == len(part.tasks) and bool((tasks == np.arange(len(tasks))).all()):
        return replace(part, tasks=ids, left=None)
    starts = part.by_task.starts
    counts = np.diff(starts)[tasks]
    rows = np.repeat(starts[:-1][tasks] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    return replace(
        part,
        tasks=ids,
        owner=np.zeros(len(tasks), dtype=np.int64),
        task=np.repeat(np.arange(len(tasks)), counts),
        sample=part.sample[rows],
        outcome=part.outcome[rows],
        rewards={name: column.take(rows) for name, column in part.rewards.items()},
        columns={name: column.take(rows) for name, column in part.columns.items()},
        labels={name: values.take(rows) for name, values in part.labels.items()},
        tries=None if part.tries is None else part.tries[rows],
        before_answer=None if part.before_answer is None else part.before_answer[rows],
        turn=None if part.turn is None else part.turn[tasks],
        left=None,
    )


def cut(common: Common, key: str, label: Callable[[Any], str]) -> dict[str, Common]:
    """Split both runs by the value of a key, with the slices sorted by name.

    A run without the key takes each task's value from the other run.
    """
    sides = common.sides
    known = [has(side, key) for side in sides]
    sliced = [slices(side, key, label) for side in sides]
    for run in (0, 1):
        if not known[run] and known[1 - run]:
            code, names = sliced[1 - run]
            of_task = np.full(len(common.first.tasks), -1, dtype=np.int64)
            of_task[sides[1 - run].task[::-1]] = code[::-1]  # reversed, so that the first sample of a task counts
            sliced[run] = of_task[sides[run].task], names
    parts: dict[str, Common] = {}
    for name in sorted({*sliced[0][1], *sliced[1][1]}):
        first, second = (
            side.where(code == (names.index(name) if name in names else -2))  # -2 is no code of a slice
            for side, (code, names) in zip(sides, sliced, strict=True)
        )
        shared = by_id(first, second)
        if shared.alignment.common:
            parts[name] = shared
    return parts


def units(common: Common, key: str) -> tuple[Ints, str | None]:
    """The cluster of each common task, [T], and a note if the runs disagree on the clusters."""
    known = [side for side in common.sides if has(side, key)]
    codes = [clusters(side, key) for side in known or [common.first]]
    if len(codes) == 2:
        pairs = len(np.unique(np.stack(codes, axis=1), axis=0))
        if not pairs == len(np.unique(codes[0])) == len(np.unique(codes[1])):
            return codes[0], f"the runs do not agree on {key!r}: the clusters of the first run are used"
    return codes[0], None
