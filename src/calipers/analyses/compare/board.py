"""One metric of several runs on one dataset: their values, each on its own tasks, and the ranks that these support.

::

    runs ──► BoardValues: [M, T], as observed and with missing rollouts at both ends ─┐
       └──► the decision on every pair, as compare makes it ──────────────────────────┴─► RankedRuns

A leaderboard of more than two runs may leave open what compare decides, because it asks about all pairs at once. It
never orders a pair that compare leaves undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, Final, cast

import numpy as np

from calipers.analyses.compare import Question, Ranks, RunRank
from calipers.analyses.compare.align import ReadRun, by_id, units
from calipers.analyses.compare.evidence import (
    ALL_SAMPLES,
    NO_FIRST,
    Background,
    comparable_on,
    examine,
    first_of_run,
    followed,
    followed_run,
    rows_to_fill,
    why_unfillable,
)
from calipers.analyses.compare.measure import (
    MetricPair,
    columns_of,
    failures_named,
    metrics_of,
    task_values,
    value_limits,
)
from calipers.errors import InputError
from calipers.metrics import Metric
from calipers.request import Plan, RequestedMetric
from calipers.rollouts.column import Bools, Column, Floats, Ints, total
from calipers.rollouts.filling import Ends, ends_of, filled
from calipers.rollouts.labels import has, named_clusters
from calipers.rollouts.ledger import RANDOM
from calipers.rollouts.table import Rollouts
from calipers.stats.claims import Decision, decide
from calipers.stats.counts import Follows
from calipers.stats.estimate import HUGE, TOO_LARGE
from calipers.stats.intervals import ONE_CLUSTER, least_p
from calipers.stats.paired import apart
from calipers.stats.ranks import Ranking, RankSets, Winner, own_critical, rank_sets, ranking, winner

FEW: Final = "fewer than two tasks have a value in two runs"
ALL_ONE_WAY: Final = "by chance all may point one way"


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One metric of one run on the samples that can be compared, with its task values, [T] or [T, 2] each."""

    request: RequestedMetric
    rollouts: Rollouts
    observed: Column
    low: Column  # with every missing rollout at the low end of the range; the same as observed if there is none
    high: Column


@dataclass(frozen=True, slots=True)
class BoardValues:
    """One metric of M runs on the T tasks that any of them has."""

    metric: str
    tasks: Sequence[str]  # [T] ids
    columns: Sequence[RunColumn]  # [M]
    values: Floats  # [M, T] as observed; 0 where a run has no value
    low: Floats  # [M, T] with the missing rollouts at the low end
    high: Floats  # [M, T]
    seen: Bools  # [M, T] has an observed value
    known: Bools  # [M, T] has a value with its missing rollouts filled
    weights: Floats | None  # [T]
    units: Ints | None  # [T] the cluster of each task
    limits: Ends | None  # the range of a value, if it is known
    higher_is_better: bool
    follows: Sequence[Follows | None]  # [M] whether the number of samples follows the results
    compared_on: str = ALL_SAMPLES
    why: str | None = None  # why the runs cannot be ranked

    @property
    def complete(self) -> Bools:
        """The tasks that have an observed value in every run, [T]."""
        return np.asarray(self.seen.all(axis=0))

    @property
    def own(self) -> Floats:
        """The value of each run over its own tasks, [M]; 0 without tasks."""
        return np.array([_own_value(column.observed) for column in self.columns])


def _own_value(column: Column) -> float:
    """The mean of task values, or the rate of the samples of all tasks."""
    kept = column.values[column.given]
    if not len(kept):
        return 0.0
    if kept.ndim > 1:
        return float(total(kept[:, 0])) / float(total(kept[:, 1]))
    return float(total(kept)) / len(kept)


@dataclass(frozen=True, slots=True)
class RankedRuns:
    """The ranks of M runs by one metric, in order."""

    order: Sequence[int]  # [M] index of each run, the best first; equal values by name
    sets: RankSets  # in that order, as are the others
    decisions: Mapping[tuple[int, int], Decision]  # (place, later place) -> compare's verdict on the first of the two
    backgrounds: Mapping[tuple[int, int], Background]
    best: Winner | None  # None if no run has values in two tasks or clusters
    bootstrap: Ranking | None  # of the tasks that all runs have; None if these are fewer than two

    def difference(self, first: int, second: int) -> float:
        """The observed difference of the runs at two places, on the tasks that both have; first less second."""
        background = self.backgrounds[min(first, second), max(first, second)]
        value = background.evidence.compared.value or 0.0
        return value if first < second else -value

    def word(self, first: int, second: int) -> str:
        """The verdict on the run at a place against the run at another one."""
        if self.sets.better[first, second]:
            return "better"
        return "worse" if self.sets.better[second, first] else "undecided"

    def undecided_by(self, first: int, second: int) -> str | None:
        """Why a pair is not ordered: compare's reason, or ``family`` if compare decides the pair alone."""
        if self.word(first, second) != "undecided":
            return None
        decision = self.decisions.get((min(first, second), max(first, second)))
        return "data" if decision is None else decision.undecided_by or "family"


def board_values(contest: Sequence[ReadRun], question: Question) -> list[BoardValues]:
    """The values of every metric that is a mean over tasks, each run on its own tasks."""
    return [_board_values_of(metrics, contest, question) for metrics in _shared_metrics(contest, question)]


def _shared_metrics(contest: Sequence[ReadRun], question: Question) -> list[list[RequestedMetric]]:
    """The metrics that all runs have and that can be ranked, each as it is requested of each run.

    A metric can be ranked if it is a mean over tasks and has a better direction.
    """
    head, plan = contest[0], question.plan
    by_name: dict[str, list[RequestedMetric]] = {}
    for run in contest[1:]:
        try:
            pairs = metrics_of(plan.requests, (head.rollouts, run.rollouts), (head.name, run.name), plan.reward)[0]
        except InputError:  # with a baseline this pair was not compared before; no metric is common to all runs
            return []
        for first, second in pairs:
            by_name.setdefault(first.text, [first]).append(second)
    return [metrics for metrics in by_name.values() if len(metrics) == len(contest) and _can_be_ranked(metrics[0])]


def _can_be_ranked(request: RequestedMetric) -> bool:
    metric = request.metric
    return isinstance(metric, Metric) and metric.is_mean and metric.higher_is_better is not None


def _board_values_of(metrics: Sequence[RequestedMetric], contest: Sequence[ReadRun], question: Question) -> BoardValues:
    """One metric of all runs of a contest, on the union of their tasks."""
    plan = question.plan
    follows = [
        followed_run(run.rollouts, metric.params.get("reward")) for metric, run in zip(metrics, contest, strict=True)
    ]
    compared_on = comparable_on(metrics[0]) if any(follows) else ALL_SAMPLES
    first = compared_on not in (ALL_SAMPLES, NO_FIRST)
    with failures_named(metrics[0]):
        columns = _run_columns(metrics, contest, plan, first=first)
    tasks = list(dict.fromkeys(chain.from_iterable(column.rollouts.tasks for column in columns)))
    place = {task: index for index, task in enumerate(tasks)}
    rows = []
    for column in columns:
        places = [place[task] for task in column.rollouts.tasks]
        rows.append(np.array(places, dtype=np.int64))
    values, seen = _on_tasks([column.observed for column in columns], rows, len(tasks))
    low, known = _on_tasks([column.low for column in columns], rows, len(tasks))
    high, _ = _on_tasks([column.high for column in columns], rows, len(tasks))
    weights = _weights([column.low for column in columns], rows, len(tasks))
    metric = cast(Metric, metrics[0].metric)  # `_shared_metrics` keeps no other
    observed = [
        columns_of(request, run.rollouts, run.name, zero=False) for request, run in zip(metrics, contest, strict=True)
    ]
    found = BoardValues(
        metric=metrics[0].text,
        tasks=tasks,
        columns=columns,
        values=_without_rounding(values),
        low=_without_rounding(low),
        high=_without_rounding(high),
        seen=seen,
        known=known,
        weights=weights,
        units=None if plan.cluster is None else _units(contest, plan.cluster, tasks),
        limits=value_limits(metric, [column[0] for column in observed], plan.range),
        higher_is_better=metric.higher_is_better is not False,
        follows=follows,
        compared_on=compared_on,
    )
    why = NO_FIRST if compared_on == NO_FIRST else _why_unranked(found, plan)
    return replace(found, why=why)


def _run_columns(
    metrics: Sequence[RequestedMetric], contest: Sequence[ReadRun], plan: Plan, *, first: bool
) -> list[RunColumn]:
    """The task values of every run, as observed and with its missing rollouts at both ends of the range."""
    runs = []
    for metric, run in zip(metrics, contest, strict=True):
        columns = columns_of(metric, run.rollouts, run.name, zero=plan.missing == "zero")
        part: tuple[RequestedMetric, Rollouts, list[Column]] = (metric, run.rollouts, columns)
        runs.append(first_of_run(*part) if first else part)
    assumed = plan.missing in ("zero", RANDOM) or why_unfillable(metrics[0]) is not None
    declared = plan.range if "reward" in metrics[0].metric.reads else None
    ends = None if assumed else ends_of([columns[0] for _, _, columns in runs], declared)
    found = []
    for request, rollouts, columns in runs:
        observed = low = high = task_values(request, rollouts, columns)
        missing = None if ends is None else rows_to_fill(request, rollouts, columns)
        if ends is not None and missing is not None and missing.any():
            low = task_values(request, rollouts, [filled(columns[0], missing, ends[0])])
            high = task_values(request, rollouts, [filled(columns[0], missing, ends[1])])
        found.append(RunColumn(request, rollouts, observed, low, high))
    return found


def _on_tasks(columns: Sequence[Column], rows: Sequence[Ints], tasks: int) -> tuple[Floats, Bools]:
    """Task values of all runs on the union of their tasks, [M, T], and whether each exists; a rate is divided out."""
    values, given = np.zeros((len(columns), tasks)), np.zeros((len(columns), tasks), dtype=bool)
    for run, (column, places) in enumerate(zip(columns, rows, strict=True)):
        of_run = column.values
        if of_run.ndim > 1:
            of_run = of_run[:, 0] / np.maximum(of_run[:, 1], 1.0)
        values[run, places] = np.where(column.given, of_run, 0.0)
        given[run, places] = column.given
    return values, given


def _weights(columns: Sequence[Column], rows: Sequence[Ints], tasks: int) -> Floats | None:
    """The samples of each task in all runs, [T], which are its weight in a pooled rate; None for a mean over tasks."""
    if columns[0].values.ndim < 2:
        return None
    weights = np.zeros(tasks)
    for column, places in zip(columns, rows, strict=True):
        weights[places] += np.where(column.given, column.values[:, 1], 0.0)
    return weights


def _why_unranked(found: BoardValues, plan: Plan) -> str | None:
    """Why the runs cannot be ranked; None if they can."""
    shared = found.known.sum(axis=0) > 1
    count = int(shared.sum())
    if count < 2 or not np.isfinite(found.low).all() or not np.isfinite(found.high).all():
        return FEW
    if max(np.abs(found.low).max(), np.abs(found.high).max()) > HUGE:
        return TOO_LARGE
    if found.units is not None:
        count = len(np.unique(found.units[shared]))
        if count < 2:
            return ONE_CLUSTER
    return f"{count} are too few to draw ranks from: {ALL_ONE_WAY}" if least_p(count) > 1 - plan.confidence else None


def _units(contest: Sequence[ReadRun], key: str, tasks: Sequence[str]) -> Ints:
    """The cluster of each task, [T], by the first run that has the key and the task."""
    clusters: dict[str, str] = {}
    for run in contest:
        if has(run.rollouts, key):
            codes, names = named_clusters(run.rollouts, key)
            for task, code in zip(run.rollouts.tasks, codes.tolist(), strict=True):
                clusters.setdefault(task, names[code])
    number: dict[str | None, int] = {}
    return np.array([number.setdefault(clusters.get(task), len(number)) for task in tasks], dtype=np.int64)


def _without_rounding(values: Floats) -> Floats:
    """The values of M runs, [M, T], with values that differ only by rounding made equal."""
    values = values.copy()
    for first, second in combinations(range(len(values)), 2):
        values[second] = np.where(apart(values[first], values[second]) == 0, values[first], values[second])
    return values


def ranked_runs(known: BoardValues, contest: Sequence[ReadRun], question: Question) -> RankedRuns:
    """The rank sets of runs, compare's decision on each pair, the best run, and ranks in bootstrap draws.

    The runs are sorted before any random numbers are drawn, so that the order of the arguments changes no rank.
    """
    names = [run.name for run in contest]
    sign = -1.0 if known.higher_is_better else 1.0
    # 12 digits, so that means that differ only by rounding are equal
    order = sorted(range(len(names)), key=lambda run: (float(f"{sign * known.own[run]:.12g}"), names[run]))
    found = _ranked(known, contest, question, order)
    better_first = _better_first(found.sets.better)
    if better_first != list(range(len(order))):  # a mean over other tasks may be higher and the run shown to be worse
        found = _ranked(known, contest, question, [order[place] for place in better_first])
    return found


def _better_first(better: Bools) -> list[int]:
    """The places in an order in which no run comes before one that is shown to be better, else as they are."""
    left, places = list(range(len(better))), []
    while left:
        free = [place for place in left if not better[left, place].any()]
        places.append((free or left)[0])
        left.remove(places[-1])
    return places


def _ranked(known: BoardValues, contest: Sequence[ReadRun], question: Question, order: Sequence[int]) -> RankedRuns:
    plan = question.plan
    options: dict[str, Any] = {
        "higher_is_better": known.higher_is_better,
        "confidence": plan.confidence,
        "seed": plan.seed,
    }
    decisions: dict[tuple[int, int], Decision] = {}
    backgrounds: dict[tuple[int, int], Background] = {}
    size = len(order)
    barred, scores = np.zeros((size, size), dtype=bool), np.full((size, size), np.nan)
    for first, second in combinations(range(size), 2):
        background = _background(contest[order[second]], contest[order[first]], known, question)
        decision = decide(background.evidence, higher_is_better=known.higher_is_better, confidence=plan.confidence)
        decisions[first, second], backgrounds[first, second] = decision, background
        barred[first, second] = decision.word != "better"
        barred[second, first] = decision.word != "worse"
        unseen = background.evidence.unseen
        if unseen is not None:
            scores[first, second] = scores[second, first] = unseen.score
    rows = list(order)
    sets = rank_sets(
        known.low[rows],
        known.weights,
        known.units,
        high=known.high[rows],
        known=known.known[rows],
        own=own_critical(known.known[rows], plan.confidence),
        scores=scores,
        barred=barred,
        **options,
    )
    if size == 2:  # the only pair has the verdict of compare
        sets = _as_compared(sets, decisions[0, 1])
    best = bootstrap = None
    if any(_units_of(known, seen) > 1 for seen in known.seen):
        worst = known.low[rows], known.high[rows], known.known[rows]
        best = winner(
            known.values[rows],
            known.weights,
            known.units,
            known=known.seen[rows],
            worst=worst,
            limits=known.limits,
            **options,
        )
    complete = known.complete
    if _units_of(known, complete) > 1:
        weights = None if known.weights is None else known.weights[complete]
        codes = None if known.units is None else known.units[complete]
        bootstrap = ranking(known.values[rows][:, complete], weights, codes, **options)
    return RankedRuns(order, sets, decisions, backgrounds, best, bootstrap)


def _units_of(known: BoardValues, tasks: Bools) -> int:
    """The number of tasks, or of their clusters, among these, [T]."""
    return int(tasks.sum()) if known.units is None else len(np.unique(known.units[tasks]))


def _as_compared(sets: RankSets, decision: Decision) -> RankSets:
    """The rank sets of two runs, ordered as compare decides their only pair."""
    better = np.zeros((2, 2), dtype=bool)
    better[0, 1], better[1, 0] = decision.word == "better", decision.word == "worse"
    low, high = 1 + better.sum(axis=0), 2 - better.sum(axis=1)
    return replace(sets, better=better, low=low, high=high)


def _background(first: ReadRun, second: ReadRun, known: BoardValues, question: Question) -> Background:
    """The evidence on the difference of two runs, second less first, as compare has it."""
    common = by_id(first.rollouts, second.rollouts)
    names, plan = (first.name, second.name), question.plan
    pairs, _ = metrics_of(plan.requests, common.sides, names, plan.reward)
    metric = next(pair for pair in pairs if pair[0].text == known.metric)
    codes = units(common, plan.cluster)[0] if plan.cluster else None

    def of_pair(*, zero: bool) -> MetricPair:
        old, new = (
            columns_of(request, side, name, zero=zero)
            for request, side, name in zip(metric, common.sides, names, strict=True)
        )
        return MetricPair(metric, common, (old, new), codes, question)

    keys = metric[0].params.get("reward"), metric[1].params.get("reward")
    zero = of_pair(zero=True) if plan.missing == "zero" else None
    background = examine(of_pair(zero=False), followed(common, keys), zero).background
    if background is None:
        raise ValueError(f"{known.metric} of {names} was measured without its evidence")
    return background


def ranking_of(known: BoardValues, contest: Sequence[ReadRun], question: Question) -> Ranks:
    """The ranks of the runs of a contest, the best first; without places if they cannot be ranked."""
    count = int(known.complete.sum())
    if known.why:
        return Ranks(known.metric, count, [], None, None, known.why)
    ranked = ranked_runs(known, contest, question)
    bootstrap, sets, own = ranked.bootstrap, ranked.sets, known.own
    places = []
    for place, run in enumerate(ranked.order):
        rank_set = int(sets.low[place]), int(sets.high[place])
        if bootstrap is None:
            places.append(RunRank(run, float(own[run]), float(place + 1), rank_set, None, rank_set))
            continue
        drawn = float(bootstrap.low[place]), float(bootstrap.high[place])
        rank, chance = float(bootstrap.ranks[place]), float(bootstrap.chance_best[place])
        places.append(RunRank(run, float(own[run]), rank, drawn, chance, rank_set))
    best = None if ranked.best is None else replace(ranked.best, run=ranked.order[ranked.best.run])
    if bootstrap is None:
        return Ranks(known.metric, count, places, None, None, winner=best)
    return Ranks(known.metric, count, places, bootstrap.optimism, bootstrap.corrected, winner=best)
