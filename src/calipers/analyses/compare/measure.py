"""One metric of two runs on their common tasks: the difference, its interval and its test.

What `stats.paired` calls the first run is our second: delta is second less first. What no value per task carries
(percentiles over rollouts, somebody's own function) is drawn again: tasks, or whole clusters, with all their samples,
the same for both runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

import numpy as np

from calipers.analyses.compare.metric_pair import Measured, MetricPair
from calipers.errors import InputError, PluginError
from calipers.metrics.columns import COST_PER_SOLVED
from calipers.metrics.metric import Metric, Opaque
from calipers.metrics.reduce import largest, mean, passed, smallest, task_mean
from calipers.metrics.rewards import passes
from calipers.pipeline import demand_range
from calipers.request import RequestedMetric
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.groups import Groups, total
from calipers.stats.anytime import BETTING, NO_MEAN, UNEVEN, anytime
from calipers.stats.intervals import ONE_CLUSTER, ONE_TASK
from calipers.stats.paired import (
    FLOORED_T,
    NO_COMMON,
    STRICT,
    Difference,
    apart,
    flips,
    judged,
    rate_units,
    sign_flip,
    units_of,
)
from calipers.stats.paired_bootstrap import (
    UNDEFINED,
    Resampled,
    by_draws,
    paired_bootstrap,
    paired_bootstrap_of_values,
    ratio,
)
from calipers.stats.power import PairVariance, pair_variance

METHOD = "paired_bootstrap"
DRAWS = 1_000  # a call of Python each
FEWEST_DRAWS = 200
MOST_VALUES = 20_000_000

Compute = Callable[[Sequence[Any]], float]
"""A metric from what each task holds."""


def drawn(matter: MetricPair) -> Measured:
    """The difference of a metric that only all samples together have."""
    held = [_by_task(columns[0], side.by_task) for side, columns in zip(matter.sides, matter.columns, strict=True)]
    there = np.array([bool(len(one)) and bool(len(two)) for one, two in zip(*held, strict=True)], dtype=bool)
    there &= matter.counted
    first, second = ([task for task, filled in zip(side, there.tolist(), strict=True) if filled] for side in held)
    computes = _compute(matter.both.first), _compute(matter.both.second)
    samples = matter.samples(there)
    if not first:
        none = Difference(None, None, None, None, METHOD, 0, why=NO_COMMON)
        return Measured(matter.both, matter.higher_is_better, none, None, None, there, samples)
    ends = computes[0](first), computes[1](second)
    units = None if matter.clusters is None else matter.clusters[there]
    code = np.arange(len(first)) if units is None else np.unique(units, return_inverse=True)[1]

    def draw(tasks: Sequence[int]) -> float:
        one, two = computes[0]([first[task] for task in tasks]), computes[1]([second[task] for task in tasks])
        return _apart(two, one)

    difference = _judged(_apart(ends[1], ends[0]), draw, code, sum(samples), matter)
    shown = [end if math.isfinite(end) else None for end in ends]
    return Measured(matter.both, matter.higher_is_better, difference, shown[0], shown[1], there, samples)


def _judged(
    value: float, draw: Callable[[Sequence[int]], float], code: Ints, size: int, matter: MetricPair
) -> Difference:
    """A difference by its draws; ``code`` is the unit of each task, [T], and ``size`` how much a draw handles."""
    units = int(code.max()) + 1
    if not math.isfinite(value):
        return Difference(None, None, None, None, METHOD, units, why=UNDEFINED)
    if matter.question.anytime:
        return Difference(value, None, None, None, BETTING, units, why=NO_MEAN)
    if units < 2:
        why = ONE_TASK if len(code) < 2 else ONE_CLUSTER
        return Difference(value, None, None, None, METHOD, units, why=why)
    draws = min(DRAWS, MOST_VALUES // max(size, 1))
    if draws < FEWEST_DRAWS:
        why = f"{size:,} samples are too many to draw them {FEWEST_DRAWS} times"
        return Difference(value, None, None, None, METHOD, units, why=why)
    members = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    rng = np.random.Generator(np.random.PCG64(matter.seed))
    found = np.array([draw(np.concatenate([members[u] for u in _units(rng, units)]).tolist()) for _ in range(draws)])
    return resampled_difference(by_draws(value, found, matter.confidence, units))


def resampled_difference(found: Resampled) -> Difference:
    """What the bootstrap found; for what is asked beyond that, the normal distribution with its spread."""
    return Difference(
        found.value, found.stderr, found.interval, found.p, METHOD, found.units, float(found.units),
        why=found.why, draws=found.found,
    )  # fmt: skip


def _units(rng: np.random.Generator, units: int) -> list[int]:
    """Units drawn with replacement, from raw bits: numpy may change how it makes numbers of them."""
    bits: Any = rng.bit_generator
    raw = bits.random_raw(units) >> np.uint64(32)
    return [int(number) for number in (raw * np.uint64(units)) >> np.uint64(32)]


def _apart(first: float, second: float) -> float:
    """First less second, rounding left out."""
    return float(apart(np.asarray(first), np.asarray(second)))


def _by_task(column: Column, by: Groups) -> list[Floats]:
    """What each task holds, [T] arrays of its given values."""
    return np.split(column.kept(), np.cumsum(by.count(column.given))[:-1]) if by.size else []


def _compute(asked: RequestedMetric) -> Compute:
    metric = asked.metric
    if isinstance(metric, Metric):
        settled = {key: asked.params[key] for key in metric.aggregated}
        return lambda tasks: float(metric.aggregate(np.concatenate(tasks), **settled))
    return lambda tasks: float(metric.compute([task.tolist() for task in tasks]))


_MEANS = ("mean", "posterior", "pooled")  # kinds of intervals whose difference is a mean of task differences


class _DrawSettings(TypedDict):
    confidence: float
    seed: int


def measure(matter: MetricPair) -> Measured:
    """Compare two runs by one metric."""
    try:
        return _measure(matter)
    except Exception as error:
        if not matter.both.first.foreign or isinstance(error, InputError):
            raise
        raise PluginError(f"metric {matter.both.text!r} failed: {type(error).__name__}: {error}") from error


def _measure(matter: MetricPair) -> Measured:
    metric = matter.both.first.metric
    if not isinstance(metric, Metric) or metric.rows:
        return _untested(drawn(matter), metric)
    reduced = rounded_alike(*(reduced_of(matter, place, matter.columns[place]) for place in (0, 1)))
    there = reduced[0].given & reduced[1].given & matter.counted
    pair = (reduced[0].values[there], reduced[1].values[there])
    counts = pair[0].ndim > 1
    outright = _outright(reduced, there)
    difference = _tested(metric, matter, pair, there, outright)
    counted = matter.clusters is None and difference.p is not None  # clusters are no tasks of their own
    first, second = (_value(metric, matter, side) for side in pair)
    variance, repeats = _parts(metric, matter, there) if counted else (None, None)
    found = Measured(
        both=matter.both,
        higher_is_better=matter.higher_is_better,
        difference=difference,
        first=first,
        second=second,
        there=there,
        samples=matter.samples(there),
        values=_task_values(metric, reduced),
        weights=(reduced[0].values[:, 1], reduced[1].values[:, 1]) if counts else None,
        # whose p holds for one look only
        mcnemar=flips(outright[0][there], outright[1][there])
        if outright and counted and not matter.question.anytime
        else None,
        pair=variance,
        repeats=repeats,
    )
    return _untested(found, metric)


def _untested(found: Measured, metric: Metric | Opaque) -> Measured:
    """The same without a test, where drawing again says nothing: of an extreme, or of a sum."""
    if not isinstance(metric, Metric) or metric.aggregate not in (largest, smallest, total):
        return found
    bare = Difference(found.difference.value, None, None, None, METHOD, found.difference.units, why=metric.no_interval)
    return replace(found, difference=bare if found.difference.value is not None else found.difference)


def reduced_of(matter: MetricPair, place: int, columns: list[Column]) -> Column:
    """What a metric makes of these columns of the first run or the second, task by task, [T] or [T, 2]."""
    asked = (matter.both.first, matter.both.second)[place]
    metric: Any = asked.metric
    settled = {key: asked.params[key] for key in metric.params if key not in (*metric.aggregated, "column")}
    found: Column = metric.reduce(*columns, by=matter.sides[place].by_task, **settled)
    if metric.interval == "posterior":  # a mean over tasks, whose variance is not asked for here
        return Column(found.values[:, 0], found.given)
    return found


def rounded_alike(first: Column, second: Column) -> tuple[Column, Column]:
    """The same values, equal where they differ by rounding: an error that all tasks share would be significant."""
    if first.values.ndim > 1:
        return first, second
    with np.errstate(invalid="ignore"):
        same = apart(second.values, first.values) == 0
    both = np.maximum(first.values, second.values)  # whichever run comes first
    return Column(np.where(same, both, first.values), first.given), Column(
        np.where(same, both, second.values), second.given
    )


def tested(matter: MetricPair, first: Column, second: Column) -> Difference:
    """The difference between task values of both runs, by the test that the question asks for."""
    metric = matter.both.first.metric
    if not isinstance(metric, Metric):
        raise TypeError(f"{metric.name} has no task values")
    reduced = rounded_alike(first, second)
    there = reduced[0].given & reduced[1].given & matter.counted
    pair = (reduced[0].values[there], reduced[1].values[there])
    return _tested(metric, matter, pair, there, _outright(reduced, there))


def _tested(
    metric: Metric,
    matter: MetricPair,
    pair: tuple[Floats, Floats],
    there: Bools,
    outright: tuple[Bools, Bools] | None,
) -> Difference:
    """The difference by the test asked for where the metric is a mean, by the bootstrap where it is none."""
    first, second = pair
    test = matter.question.test
    units = None if matter.clusters is None else matter.clusters[there]
    if not len(first):
        return Difference(None, None, None, None, test, 0, why=NO_COMMON)
    if matter.question.anytime:
        return _in_order(metric, matter, pair, there, units)
    if test == METHOD or metric.interval not in _MEANS:
        return _bootstrapped(metric, matter, pair, units)
    with np.errstate(invalid="ignore"):
        pulls = rate_units(second, first, units) if first.ndim > 1 else units_of(second - first, None, units)
    found = judged(pulls, _limits(metric, matter), matter.confidence, STRICT if test == STRICT else FLOORED_T)
    if found.p is None or test in (FLOORED_T, STRICT):
        return found
    if test == "sign_flip":
        return replace(found, p=sign_flip(pulls.pulls, seed=matter.seed).p, method=test)
    if outright is None:
        right = "expected a metric of 0 and 1, such as solved_rate, or --test sign-flip"
        raise InputError(
            f"McNemar's test needs one pass or fail for each task, which {matter.both.text} has not; {right}"
        )
    counted = flips(outright[0][there], outright[1][there])
    return replace(found, p=counted.exact if test == "mcnemar" else counted.mid_p, method=test)


def _in_order(
    metric: Metric, matter: MetricPair, pair: tuple[Floats, Floats], there: Bools, units: Ints | None
) -> Difference:
    """The difference by the test that may be asked after every task, where the metric is a mean of task values."""
    order = matter.common.order
    order = (np.cumsum(there) - 1)[order[there[order]]]  # places among the tasks that are there
    first, second = (side[order] for side in pair)
    uneven = metric.interval == "pooled" and any(len(np.unique(side[:, 1])) > 1 for side in pair)
    if uneven or metric.interval not in _MEANS:
        ends = _value(metric, matter, first), _value(metric, matter, second)
        value = None if ends[0] is None or ends[1] is None else ends[1] - ends[0]
        count = len(first) if units is None else len(np.unique(units))
        return Difference(value, None, None, None, BETTING, count, why=UNEVEN if uneven else NO_MEAN)
    if metric.interval == "pooled":
        first, second = (side[:, 0] / side[:, 1] for side in (first, second))
    return anytime(
        apart(second, first),
        None if units is None else units[order],
        limits=_limits(metric, matter),
        confidence=matter.confidence,
    )


def _bootstrapped(metric: Metric, matter: MetricPair, pair: tuple[Floats, Floats], units: Ints | None) -> Difference:
    first, second = pair
    sure = _DrawSettings(confidence=matter.confidence, seed=matter.seed)
    if metric.interval == "pooled":
        return resampled_difference(paired_bootstrap(second, first, ratio, units, **sure))
    if metric.interval in ("mean", "posterior"):
        one, two = (np.stack([side, np.ones(len(side))], axis=1) for side in pair)
        return resampled_difference(paired_bootstrap(two, one, ratio, units, **sure))
    aggregate = partial(metric.aggregate, **{key: matter.both.first.params[key] for key in metric.aggregated})
    if (
        metric.aggregate is COST_PER_SOLVED.aggregate
    ):  # a ratio of totals: what it makes of one task it makes of their sum
        return resampled_difference(
            paired_bootstrap(second, first, lambda sums: aggregate(sums[..., None, :]), units, **sure)
        )
    return resampled_difference(paired_bootstrap_of_values(second, first, aggregate, units, **sure))


def _value(metric: Metric, matter: MetricPair, values: Floats) -> float | None:
    if not len(values):
        return None
    if metric.interval == "posterior":
        found = float(mean(values))
    else:
        found = float(metric.aggregate(values, **{key: matter.both.first.params[key] for key in metric.aggregated}))
    return found + 0.0 if np.isfinite(found) else None


def _limits(metric: Metric, matter: MetricPair) -> tuple[float, float] | None:
    """The range of the values, where it is known."""
    known = matter.question.plan.range
    if known is not None and metric.reads[0] == "reward":
        for side, columns in zip(matter.sides, matter.columns, strict=True):
            demand_range(side, columns[0], matter.both.first.params.get("reward") or "reward", known)
    if metric.range is not None or not metric.of_rewards:
        return metric.range
    if known is not None:
        return metric.reach(known)
    kept = [columns[0].kept() for columns in matter.columns]
    return (0.0, 1.0) if all(bool(((side >= 0) & (side <= 1)).all()) for side in kept) else None


def _task_values(metric: Metric, reduced: tuple[Column, Column]) -> tuple[Floats, Floats] | None:
    """Each task's value in both runs, where it has one of its own, [T] each."""
    if metric.interval == "pooled":
        one, two = (side.values[:, 0] / np.maximum(side.values[:, 1], 1.0) for side in reduced)
        return one, two
    return None if reduced[0].values.ndim > 1 else (reduced[0].values, reduced[1].values)


def _outright(reduced: tuple[Column, Column], there: Bools) -> tuple[Bools, Bools] | None:
    """The passes of both runs, [T] each, where every task has one pass or fail in each; else None."""
    found = []
    for side in reduced:
        values = side.values
        if values.ndim > 1:
            if values.shape[1] != 2 or bool((values[there, 1] != 1).any()):  # more than one sample
                return None
            values = values[:, 0]
        kept = values[there]
        if not len(kept) or bool(((kept != 0) & (kept != 1)).any()):
            return None
        found.append(values == 1)
    return found[0], found[1]


def _parts(metric: Metric, matter: MetricPair, there: Bools) -> tuple[PairVariance | None, float | None]:
    """What the variance of a task's difference is made of, for means over samples; samples per task of the
    run that has fewer.
    """
    if metric.reduce is not task_mean and metric.reduce is not passes:
        return None, None
    columns = []
    for asked, held in zip((matter.both.first, matter.both.second), matter.columns, strict=True):
        column = held[0]
        if metric.reduce is passes:
            column = Column(passed(column, asked.params["threshold"]).astype(float), column.given)
        columns.append(column)
    first, second = matter.sides
    found = pair_variance(columns[1], columns[0], second.by_task, first.by_task)
    repeats = min(matter.samples(there)) / max(int(there.sum()), 1)
    return (found if isinstance(found, PairVariance) else None), repeats
