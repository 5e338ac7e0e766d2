"""Compares all numbers of two runs' lm-evaluation-harness tables, from the values of their documents."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from calipers.analyses.compare import Question
from calipers.analyses.compare.align import Common
from calipers.analyses.compare.measure import METHOD, Measured, MetricPair, measure, resampled_difference
from calipers.analyses.compare.source import DocumentTable, TableDifferences, TableReader, is_task_library_run, stored
from calipers.errors import CalipersError
from calipers.formats.read import Input
from calipers.formats.run_folder import Summed, read_plan
from calipers.formats.source import Source
from calipers.metrics import Opaque
from calipers.metrics.rewards import MEAN_REWARD
from calipers.reports.figures import counted
from calipers.request import RequestedMetric
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.record import SCORED
from calipers.rollouts.table import Rollouts
from calipers.stats.anytime import BETTING, NO_MEAN
from calipers.stats.paired import (
    DRAWS,
    FEWEST_DRAWS,
    NO_COMMON,
    UNDEFINED,
    Difference,
    Resampled,
    paired_bootstrap,
    paired_bootstrap_of_values,
)
from calipers.systems.lm_eval import read
from calipers.systems.lm_eval.aggregations import NAMES, aggregate, distances, numbers, spread, sums, upper_median
from calipers.systems.lm_eval.entries import KNOWN

NOT_COMPARED: Final = ("mean", "bypass")  # a mean is compared as a reward of rollouts; bypass is not a number


def table_of(inputs: Sequence[Input], key: tuple[str | None, ...]) -> DocumentTable:
    """The table of a group (agent, model, dataset) of a source; empty if none of its files belongs to the group."""
    for source in inputs:
        folder = os.path.dirname(source.path)
        if source.format == "run" and is_task_library_run(folder):
            plan = read_plan(folder)
            if (plan.model, plan.dataset) == key[1:]:
                return stored(folder)
    return of_samples(inputs, key[2], key[0] or read.UNNAMED)


def of_samples(inputs: Sequence[Input], task: str | None, pipeline: str) -> DocumentTable:
    """The numbers of one task and pipeline that are not means of documents, from the samples files of a source."""
    ways: dict[str, Summed] = {}
    values: dict[str, dict[str, Any]] = {}
    hashes: dict[str, str] = {}
    for path in _sample_paths(inputs):
        if read.task_of(path) != task:
            continue
        _, results = read.results_beside(path)
        with Source(path) as source:
            for row in read.rows_of(source):
                if row.get("filter", read.UNNAMED) != pipeline:
                    continue
                document = str(row["doc_id"])
                hashes[document] = str(row.get("doc_hash") or "")
                for name, value in row.items():
                    if name in read.NOT_METRICS or value is None:
                        continue
                    if name not in ways:
                        ways[name] = _way(name, pipeline, results, task or "")
                    own_number = isinstance(value, (int, float)) and ways[name].aggregation is None
                    if ways[name].aggregation not in NOT_COMPARED and not own_number:
                        values.setdefault(name, {})[document] = value
    ways_by_key = {way.key: way for name, way in ways.items() if name in values}
    values_by_key = {ways[name].key: by_document for name, by_document in values.items()}
    return DocumentTable(ways_by_key, values_by_key, hashes, whole=False)


def _way(name: str, pipeline: str, results: Mapping[str, Any], task: str) -> Summed:
    """How a metric is aggregated: as the task's configuration says, else by the metric's name.

    The aggregation is None for a function of the task's own.
    """
    known = KNOWN.get(name)
    how = read.listed_aggregation(read.inner(results, "configs", task), name) or (known and known.aggregation)
    direction = read.inner(results, "higher_is_better", task).get(name, known and known.higher_is_better)
    return Summed(name, pipeline, how if how in NAMES else None, direction if isinstance(direction, bool) else None)


def _sample_paths(inputs: Sequence[Input]) -> Iterator[str]:
    for source in inputs:
        if source.format == "lm_eval_results":
            yield from read.samples_beside(source.path)
        elif source.format == "lm_eval_samples":
            yield source.path


Items = tuple[list[Any], list[Any]]
"""The values of the same documents in both runs."""
MEANS: Final = {"mean": numbers, "brier_score": distances}
"""Aggregations that average one number per document, with the function from the documents' values to these numbers."""
MAX_SUMMED: Final = 2_000_000_000
"""The most statistics that all bootstrap draws together add up; it limits the number of draws."""
NO_SAME_DOCUMENT: Final = "no document is the same in both runs, though they share ids"


@dataclass(frozen=True, slots=True)
class TablePair:
    """The tables of two runs, and the tasks that they have in common."""

    sides: tuple[DocumentTable, DocumentTable]
    names: tuple[str, str]
    common: Common
    clusters: Ints | None  # [T]
    question: Question

    def pairs(self) -> list[tuple[str, str]]:
        """The id of every common task in each run."""
        return list(zip(self.common.first.tasks, self.common.second_ids, strict=True))

    def same(self) -> Bools:
        """Whether each common task is the same document in both runs, [T]; true if a hash is unknown."""
        old, new = self.sides
        hashes = [(old.hashes.get(first), new.hashes.get(second)) for first, second in self.pairs()]
        return np.array([not first or not second or first == second for first, second in hashes], dtype=bool)


def compare_tables(
    sides: tuple[DocumentTable, DocumentTable],
    names: tuple[str, str],
    common: Common,
    clusters: Ints | None,
    question: Question,
) -> TableDifferences:
    """The differences of all numbers that both tables have, or of those that are requested by name."""
    tables, requested = TablePair(sides, names, common, clusters, question), question.tables
    differences = TableDifferences()
    reasons = [side.why for side in tables.sides if side.why]
    if reasons:
        cures = dict.fromkeys(side.cure for side in tables.sides if side.why)
        sentence = f"lm-evaluation-harness' numbers cannot be compared: {' and '.join(reasons)}; {'; '.join(cures)}"
        differences.notes += [sentence] if requested is None else []
        differences.refused |= dict.fromkeys(requested or (), sentence)
        return differences
    compared = list(_shared_numbers(tables, requested))
    same = tables.same() if compared else np.ones(0, dtype=bool)
    if different := int((~same).sum()):
        excluded = f"{counted(different, 'task')} excluded from the numbers over documents"
        differences.notes.append(f"same id but different document: {excluded}")
    for name, key in compared:
        outcome = _only_in_one(tables, name, key) or _compared(tables, same, name, key)
        if isinstance(outcome, Measured):
            differences.measured.append(outcome)
        elif requested is None:
            differences.notes.append(f"{outcome}: excluded")
        else:
            differences.refused[name] = outcome
    if requested is None:
        differences.notes += _unshared(tables)
    return differences


def _shared_numbers(tables: TablePair, requested: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """The (name in the findings, key) of each number to compare; a requested one may be in only one of the tables."""
    if requested is None:
        short = not any(side.whole for side in tables.sides)  # from samples files, where the pipeline is the agent
        common = [key for key in tables.sides[0].ways if key in tables.sides[1].ways]
        yield from ((key.rpartition(",")[0] if short else key, key) for key in common)
        return
    for name in requested:
        keys = list(dict.fromkeys(key for side in tables.sides for key in side.named(name)))
        yield from ((name if len(keys) == 1 else key, key) for key in keys)


def _unshared(tables: TablePair) -> Iterator[str]:
    """Notes on the numbers that only one table has, except means that the other run has as rewards."""
    for index, name in enumerate(tables.names):
        table, other = tables.sides[index], tables.sides[1 - index]
        ways = [(key, way) for key, way in table.ways.items() if key not in other.ways]
        keys = [key for key, way in ways if other.whole or way.aggregation not in MEANS]
        if keys:
            yield f"only {name} has {', '.join(keys)}: excluded"


def _only_in_one(tables: TablePair, name: str, key: str) -> str | None:
    for side, whose, other in zip(tables.sides, tables.names, tables.names[::-1], strict=True):
        if key not in side.ways:
            return f"only {other} has {name}, but {whose} has {', '.join(side.ways) or 'no such table'}"
    return None


def _compared(tables: TablePair, same: Bools, name: str, key: str) -> Measured | str:
    """The difference of one number, or the reason why there is none."""
    first, second = (side.ways[key] for side in tables.sides)
    if None in (first.aggregation, second.aggregation):
        return f"{name} is computed by the task's own function, and only the result is stored"
    if first.aggregation != second.aggregation:
        hows = f"{first.aggregation} in {tables.names[0]}, {second.aggregation} in {tables.names[1]}"
        return f"{name} aggregates documents in two different ways: {hows}"
    same_direction = first.higher_is_better == second.higher_is_better
    way = first if same_direction else Summed(first.metric, first.pipeline, first.aggregation)
    values = [side.values.get(key, {}) for side in tables.sides]
    pairs = tables.pairs()
    used = same & np.array([old in values[0] and new in values[1] for old, new in pairs], dtype=bool)
    if tables.question.anytime:
        used &= tables.common.settled
    used_pairs = [pair for pair, is_used in zip(pairs, used.tolist(), strict=True) if is_used]
    items = [values[0][old] for old, _ in used_pairs], [values[1][new] for _, new in used_pairs]
    try:
        if not used_pairs:
            why = NO_COMMON if same.any() else NO_SAME_DOCUMENT
            difference = Difference(None, None, None, None, METHOD, 0, why=why)
            return Measured(_metric_pair(tables, name, way), way.higher_is_better, difference, None, None, used, (0, 0))
        return (_of_means if way.aggregation in MEANS else _of_all_documents)(tables, name, way, items, used)
    except CalipersError as error:  # such as brier_score's probabilities, which samples files hold as rounded text
        return f"{name} cannot be recomputed ({error})"


def _of_all_documents(tables: TablePair, name: str, way: Summed, items: Items, used: Bools) -> Measured:
    """The difference of a number that is not a mean, with a bootstrap interval."""
    how = str(way.aggregation)
    old, new = (float(aggregate(how, side)) for side in items)
    units = None if tables.clusters is None else tables.clusters[used]
    if not (math.isfinite(old) and math.isfinite(new)):
        difference = Difference(None, None, None, None, METHOD, len(items[0]), why=UNDEFINED)
    elif tables.question.anytime:
        difference = Difference(new - old, None, None, None, BETTING, len(items[0]), why=NO_MEAN)
    else:
        difference = resampled_difference(_bootstrap(how, items, units, tables.question))
    counts = len(items[0]), len(items[1])
    shown = tuple(value if math.isfinite(value) else None for value in (old, new))
    metric_pair = _metric_pair(tables, name, way)
    return Measured(metric_pair, way.higher_is_better, difference, shown[0], shown[1], used, counts)


def _bootstrap(how: str, items: Items, units: Ints | None, question: Question) -> Resampled:
    count, plan = len(items[0]), question.plan
    summed = sums(how, [*items[0], *items[1]])
    if summed is None:
        old, new = numbers(items[0]), numbers(items[1])
        return paired_bootstrap_of_values(new, old, upper_median, units, confidence=plan.confidence, seed=plan.seed)
    first, second = summed.statistics[:count], summed.statistics[count:]
    draws = min(DRAWS, max(FEWEST_DRAWS, MAX_SUMMED // (2 * summed.statistics.shape[1] * count)))
    return paired_bootstrap(
        second, first, summed.combine, units, confidence=plan.confidence, seed=plan.seed, draws=draws
    )


def _of_means(tables: TablePair, name: str, way: Summed, items: Items, used: Bools) -> Measured:
    """The difference of a mean over documents, as a metric of tasks with one rollout and one reward each."""
    count = len(items[0])
    both = MEANS[str(way.aggregation)]([*items[0], *items[1]])
    columns = []
    for values in (both[:count], both[count:]):
        rewards = np.zeros(len(used))
        rewards[used] = values
        columns.append(Column(rewards, used))
    common = tables.common
    common = replace(common, first=_rollouts(common.first, columns[0]), second=_rollouts(common.second, columns[1]))
    metric_pair = _metric_pair(tables, name, way)
    return measure(replace(metric_pair, common=common, columns=([columns[0]], [columns[1]])))


def _rollouts(side: Rollouts, values: Column) -> Rollouts:
    """A table with one rollout per task, whose rewards are ``values``."""
    index = np.arange(len(side.tasks))
    outcome = np.full(len(index), SCORED, dtype=np.uint8)
    return Rollouts(
        side.keys,
        side.tasks,
        np.zeros_like(index),
        index,
        np.zeros_like(index),
        outcome,
        {"reward": values},
        {},
        {},
        turn=side.turn,
        checks=side.checks,
    )


def _metric_pair(tables: TablePair, name: str, way: Summed) -> MetricPair:
    metric: Any = Opaque(way.metric, lambda tasks: math.nan)
    if way.aggregation in MEANS:
        metric = replace(MEAN_REWARD, name=way.metric, higher_is_better=way.higher_is_better)
    request = RequestedMetric(name, metric, {"aggregation": way.aggregation, "pipeline": way.pipeline})
    return MetricPair((request, request), tables.common, ([], []), tables.clusters, tables.question)


TABLES = TableReader(
    read=table_of,
    compare=compare_tables,
    value=lambda aggregation, values: float(aggregate(aggregation, values)),
    spread=spread,
)
