"""Read runs, align their tasks, measure each task, and split the variance of each run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from calipers.analyses.compare.align import ReadRun, names_of, runs_of
from calipers.analyses.compare.source import read_source
from calipers.analyses.curve.curve import counted_rewards, rewards_of
from calipers.analyses.items.document import (
    CONTRADICTS,
    EVERYONE,
    MIXED,
    NOBODY,
    Item,
    ItemReport,
    ItemRun,
    ItemTable,
    ordered,
)
from calipers.errors import InputError
from calipers.formats.format import Named
from calipers.metrics.metric import PASS_THRESHOLD, pass_counts, passed, task_mean
from calipers.pipeline import Progress, Source, quietly
from calipers.reports.plain_words import plain_why
from calipers.request import make_plan
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.labels import clusters, over_steps
from calipers.rollouts.ledger import Missing
from calipers.rollouts.record import not_said
from calipers.rollouts.table import Rollouts
from calipers.stats.items import LEVEL
from calipers.stats.items import items as look_at
from calipers.stats.variance import Split, split

GOLD = "gold"  # the probe of a selftest that must pass
NamedRun = tuple[str, str, Rollouts]  # name, source, rollouts of one dataset


@dataclass(frozen=True, slots=True)
class _ItemSettings:
    reward: str | None
    missing: str
    threshold: float
    cluster: str | None
    sort: str


def items(
    *sources: Source,
    sort: str = "difficulty",
    threshold: float = PASS_THRESHOLD,
    cluster: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    progress: Progress | None = None,
) -> ItemReport:
    """The tasks of some runs: difficulty, discrimination, tasks that all runs or no run solve, and contradictions.

    A source is anything that `score` reads; each agent and model in it is a run. Tasks are matched by id within a
    dataset. Discrimination needs three runs or more, information five.

    >>> [(item.task, item.kind) for item in items([[1, 1], [0, 0], [1, 0]]).tables[0].items]
    [('1', 'nobody'), ('2', 'mixed'), ('0', 'everyone')]
    """
    plan = make_plan(["mean_reward"], cluster=cluster, missing=missing, reward=reward)
    if not sources:
        raise InputError("no runs; expected at least one")
    if not math.isfinite(threshold):
        raise InputError(f"--threshold is {threshold}; expected a number that a reward can reach")
    ordered((), sort)  # an unknown order is told before anything is read
    _check_distinct(sources)
    sides = [
        read_source(source, Named(columns or {}, truth, input_format or ""), plan.labels, progress)
        for source in sources
    ]
    runs = [runner for number, side in enumerate(sides) for runner in runs_of(number, side.path, side.rollouts)]
    settings = _ItemSettings(reward, plan.missing, threshold, cluster, sort)
    tables = []
    with quietly():
        for dataset, those, notes in _datasets(runs):
            all_notes = [*notes, *_stopped(those)]
            tables += [_table(dataset, those, key, all_notes, settings) for key in _rewards(those, reward)]
    return ItemReport(
        threshold,
        plan.missing,
        sort,
        [file for side in sides for file in side.hashed()],
        tables,
        [note for side in sides for note in _unsaid(side.rollouts)],
    )


def _stopped(those: Sequence[NamedRun]) -> list[str]:
    """Notes on runs that a stopping rule stopped: only their tasks before the stop count."""
    return [f"{name}: {part.stop.fact}; only those tasks are counted" for name, _, part in those if part.stop]


def _unsaid(rollouts: Rollouts) -> list[str]:
    """The notes of a source but for its stops, which the tables say."""
    notes = [*rollouts.notes, *over_steps(rollouts)]
    return not_said(notes, [note for stop in rollouts.stops.values() for note in stop.notes])


def _check_distinct(sources: Sequence[Source]) -> None:
    paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    real = [os.path.realpath(path) for path in paths]
    for number, path in enumerate(real):
        if path in real[:number]:
            raise InputError.at(paths[number], "is given twice", "expected different runs")


def _datasets(runs: Sequence[ReadRun]) -> list[tuple[str | None, list[NamedRun], list[str]]]:
    """The runs of each dataset; runs that have one dataset each are compared even if its name differs."""
    names = names_of(runs)
    every = list(dict.fromkeys(dataset for runner in runs for dataset in runner.parts))
    if all(len(runner.parts) == 1 for runner in runs) and len(runs) > 1 and len(every) > 1 and _overlap(runs):
        those = [(name, run.path, part) for name, run in zip(names, runs, strict=True) for part in run.parts.values()]
        listed = ", ".join(repr(dataset) for dataset in every if dataset is not None)
        named = [dataset for dataset in every if dataset is not None]
        notes = [f"the datasets have different names: {listed}"] if len(named) > 1 else []
        return [(named[0] if len(named) == 1 else None, those, notes)]
    return [
        (
            dataset,
            [
                (name, run.path, run.parts[dataset])
                for name, run in zip(names, runs, strict=True)
                if dataset in run.parts
            ],
            [],
        )
        for dataset in every
    ]


def _overlap(runs: Sequence[ReadRun]) -> bool:
    """Whether every run shares a task with the first."""
    tasks = [set(part.tasks) for runner in runs for part in runner.parts.values()]
    return all(tasks[0] & other for other in tasks[1:])


def _rewards(those: Sequence[NamedRun], chosen: str | None) -> list[str]:
    """The rewards that all runs have, in order; InputError where they have none in common."""
    keys = [rewards_of(part, chosen) for _, _, part in those]
    common = [key for key in keys[0] if all(key in other for other in keys[1:])]
    if not common:
        rewards = "; ".join(
            f"{name} has {', '.join(keys_of_run)}" for (name, _, _), keys_of_run in zip(those, keys, strict=True)
        )
        raise InputError(f"the runs have no reward in common: {rewards}; choose one with --reward KEY")
    return common


def _table(
    dataset: str | None, those: Sequence[NamedRun], key: str, notes: Sequence[str], settings: _ItemSettings
) -> ItemTable:
    columns = [counted_rewards(part, key, settings.missing) for _, _, part in those]
    for (name, _, _), column in zip(those, columns, strict=True):
        if not bool(np.isfinite(column.kept()).all()):
            raise InputError(f"{name}: reward {key!r} has values that are not finite numbers; expected finite numbers")
    unit = all(bool(((column.kept() >= 0) & (column.kept() <= 1)).all()) for column in columns)
    shown = columns if unit else [_passes(column, settings.threshold) for column in columns]
    tasks = _tasks([part for _, _, part in those])
    index = {task: number for number, task in enumerate(tasks)}
    values, given, passes, samples = _matrices(those, columns, shown, index, settings.threshold)
    if not samples.any():
        raise InputError("no rollout has a reward; expected a number in reward")
    results = look_at(values, passes, samples)
    contradicts = results.contradicts
    rows = []
    for number, task in enumerate(tasks):
        there = results.samples[number] > 0
        kind = EVERYONE if results.everyone[number] else NOBODY if results.nobody[number] else MIXED if there else ""
        rows.append(
            Item(
                task,
                _at(results.difficulty, number),
                _at(results.discrimination, number),
                _at(results.contradiction, number),
                CONTRADICTS if contradicts[number] else kind,
                int(results.runs[number]),
                int(results.samples[number]),
                int(passes[:, number].sum()),
                [float(value) if g else None for value, g in zip(values[:, number], given[:, number], strict=True)],
                _at(results.information, number),
            )
        )
    return ItemTable(
        dataset,
        key,
        "reward" if unit else "passes",
        [_run(run, column, settings) for run, column in zip(those, columns, strict=True)],
        ordered(rows, settings.sort),
        results.why,
        [*notes, *_said(rows, unit, int(results.discrimination.given.sum()))],
        results.why_information,
    )


def _tasks(parts: Sequence[Rollouts]) -> list[str]:
    """The tasks of all runs: in the order of the first run, then what others have beside."""
    return list(dict.fromkeys(task for part in parts for task in part.tasks))


def _passes(column: Column, threshold: float) -> Column:
    return Column(passed(column, threshold).astype(np.float64), column.given)


def _matrices(
    those: Sequence[NamedRun],
    columns: Sequence[Column],
    shown: Sequence[Column],
    index: Mapping[str, int],
    threshold: float,
) -> tuple[Floats, Floats, Ints, Ints]:
    """Mean value, whether there is one, passes and samples of each run and task, [M, T] each."""
    size = len(those), len(index)
    values, given = np.zeros(size), np.zeros(size, dtype=bool)
    passes, samples = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for row, ((_, _, part), column, view) in enumerate(zip(those, columns, shown, strict=True)):
        at = np.array([index[task] for task in part.tasks], dtype=np.int64)
        means = task_mean(view, part.by_task)
        values[row, at], given[row, at] = means.values, means.given
        samples[row, at], passes[row, at] = pass_counts(column, part.by_task, threshold)
    return values, given, passes, samples


def _run(run: NamedRun, column: Column, settings: _ItemSettings) -> ItemRun:
    name, source, part = run
    agent, model, _ = part.keys[0]
    means = task_mean(column, part.by_task).kept()
    divided = split(column, part.by_task, clusters(part, settings.cluster) if settings.cluster else None)
    return ItemRun(
        name,
        source,
        agent,
        model,
        len(part.tasks),
        int(column.given.sum()),
        float(means.mean()) if len(means) else None,
        divided if isinstance(divided, Split) else None,
        divided.advice if isinstance(divided, Split) else f"the variance cannot be split: {plain_why(divided.why)}",
    )


def _said(rows: Sequence[Item], unit: bool, measured: int) -> list[str]:
    notes = []
    if not unit:
        notes.append(
            "some rewards are outside [0, 1]: difficulty, discrimination and information are computed from passes"
        )
    flagged = sum(item.kind == CONTRADICTS for item in rows)
    if flagged:
        chance = LEVEL * measured
        advice = "is: check this task and its target" if flagged == 1 else "are: check these tasks and their targets"
        notes.append(
            f"of {measured:,} tasks with a discrimination, up to {chance:.3g} would be flagged as contradicting by "
            f"chance alone; {flagged:,} {advice} first"
        )
    return notes


def _at(column: Column, number: int) -> float | None:
    return float(column.values[number]) if column.given[number] else None


class _FlaggedItem(msgspec.Struct):
    task: str
    kind: str = ""


class _FlaggedTable(msgspec.Struct):
    items: list[_FlaggedItem]
    dataset: str | None = None


class _FlaggedProbe(msgspec.Struct):
    wrong: list[str] = []
    what: str = ""
    failed: list[tuple[str, str]] = []


class _FlaggedTest(msgspec.Struct):
    probes: list[_FlaggedProbe]


class _FlagDocument(msgspec.Struct):
    """What flags tasks in a document of `calipers items`, or of `calipers check --selftest`."""

    tables: list[_FlaggedTable] | None = None
    selftest: _FlaggedTest | None = None


@dataclass(frozen=True, slots=True)
class Flags:
    """Tasks that somebody finds suspicious, by dataset; under None those of any dataset."""

    path: str  # the file that says so
    tasks: Mapping[str | None, Sequence[str]]

    def of(self, dataset: str | None, tasks: Sequence[str]) -> list[str]:
        """The flagged ones among these tasks of a dataset, in their order."""
        flagged = {*self.tasks.get(None, ()), *self.tasks.get(dataset, ())}
        return [task for task in tasks if task in flagged]


def read_flags(path: str | os.PathLike[str]) -> Flags:
    """The tasks that a file flags; InputError where it can flag none.

    Of the JSON of `calipers items` the tasks that contradict the rest, of that of `calipers check --selftest` those
    with a wrong verdict; of any other text every line is the id of a task. A hard task is not flagged for that.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            content = file.read()
    except OSError as error:
        raise InputError.at(name, f"cannot be read ({error.strerror})", "expected ids of tasks, one a line") from None
    tasks = _flags_of_document(content) if content.lstrip().startswith(b"{") else None
    if tasks is None:
        try:
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InputError.at(name, "is not UTF-8", "expected ids of tasks, one a line") from None
        tasks = {None: list(dict.fromkeys(line.strip() for line in lines if line.strip()))}
        if not tasks[None]:
            right = "expected ids of tasks, one a line, or the JSON of calipers items"
            raise InputError.at(name, "flags no task", right)
    return Flags(name, tasks)


def _flags_of_document(content: bytes) -> dict[str | None, list[str]] | None:
    """The flagged tasks of one of our documents; None for another text."""
    try:
        document = msgspec.json.decode(content, type=_FlagDocument)
    except msgspec.DecodeError:
        return None
    tasks: dict[str | None, list[str]] = {}
    for table in document.tables or ():
        tasks.setdefault(table.dataset, []).extend(item.task for item in table.items if item.kind == CONTRADICTS)
    for probe in document.selftest.probes if document.selftest else ():
        failed = [task for task, _ in probe.failed] if probe.what == GOLD else []
        tasks.setdefault(None, []).extend([*probe.wrong, *failed])
    return None if document.tables is None and document.selftest is None else tasks
