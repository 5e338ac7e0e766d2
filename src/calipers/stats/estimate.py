"""The `Estimate` of a metric: its value with the interval, the counts and the signature; never a bare float."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calipers.metrics import TINY, UNIT, Metric, Opaque
from calipers.metrics.rewards import posterior, posterior_variance
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints
from calipers.rollouts.filling import ends_known
from calipers.rollouts.record import SEQUENCE, USAGE
from calipers.stats.intervals import (
    Interval,
    Spread,
    Weighted,
    bootstrap,
    bootstrap_of_values,
    credible,
    largest_share,
    named_interval,
    needs_range,
    quantile_interval,
)
from calipers.stats.scales import Scale
from calipers.stats.sequence import Ends

NO_TASKS = "no task has a value"
UNDEFINED = "undefined for these values"
TOO_LARGE = "the values are too large for their spread to be a number"
NO_SUM = "the values are too large for their sum to be a number"
STOPPED_NO_RANGE = "the run was stopped by what it showed, and a confidence sequence needs values of a known range"
NO_SEQUENCE = "the run was stopped by what it showed, and no confidence sequence is known for this metric"
HALF = 0.5  # share of the variance above which a single task decides how wide the interval is
FEWEST_UNITS = 10  # with fewer tasks or clusters, one of them often has half of the variance by chance
HUGE = 1e150  # the square of a value up to here is finite, and so is a sum of many such squares


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that determines a number, printed on one line.

    >>> str(Signature("pass@{k}", 3, ("k:3",), "wilson", ("seed:0",)))
    'pass@{k}|k:3|interval:wilson|seed:0'
    """

    metric: str  # the name of the definition, not the requested name
    k: int | None = None
    settings: tuple[str, ...] = ()
    method: str | None = None  # the interval's method
    drawn: tuple[str, ...] = ()  # the interval's settings, such as the seed; empty if the number can have no interval
    over: tuple[str, ...] = ()  # the kind of mean over datasets, and of what; empty for a single dataset

    @classmethod
    def of(cls, text: str) -> Signature:
        """Parse the text of a signature.

        >>> text = "macro|datasets:2|pass@{k}|k:3|interval:none|seed:0"
        >>> Signature.of(text).k, Signature.of(text).over, str(Signature.of(text)) == text
        (3, ('macro', 'datasets:2'), True)
        """
        parts = text.split("|")
        metric_index = 2 if len(parts) > 2 and parts[1].startswith("datasets:") else 0
        if metric_index and parts[2].startswith("mean:"):
            metric_index = 3
        interval_index = next((i for i, part in enumerate(parts) if part.startswith("interval:")), len(parts))
        settings = tuple(parts[metric_index + 1 : interval_index])
        k = next((part[2:] for part in settings if part.startswith("k:") and part[2:].isdecimal()), None)
        method = parts[interval_index].partition(":")[2] if interval_index < len(parts) else "none"
        return cls(
            parts[metric_index],
            None if k is None else int(k),
            settings,
            None if method == "none" else method,
            drawn=tuple(parts[interval_index + 1 :]),
            over=tuple(parts[:metric_index]),
        )

    def setting(self, name: str) -> str:
        """The value of a setting as written; "" without it.

        >>> Signature("pass@{k}", 3, ("k:3", "threshold:4.0")).setting("threshold")
        '4.0'
        """
        return next((part[len(name) + 1 :] for part in self.settings if part.startswith(f"{name}:")), "")

    def number(self, name: str) -> float | None:
        """The number of a setting; None without it."""
        try:
            return float(self.setting(name))
        except ValueError:
            return None

    def __str__(self) -> str:
        interval = [f"interval:{self.method or 'none'}", *self.drawn] if self.drawn else []
        return "|".join([*self.over, self.metric, *self.settings, *interval])


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one metric for one group of rollouts."""

    value: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    method: str | None
    tasks: int  # tasks with a value
    samples: int  # samples that the value is computed from
    undefined_tasks: int  # tasks without a value: too few samples, or none
    # the value over all tasks with everything missing at the lowest, and at the highest, reward
    bounds: tuple[float, float] | None
    higher_is_better: bool | None
    why: str | None  # why the value or the interval is absent
    made: Signature
    samples_per_task: tuple[int, int] | None = None  # the fewest and the most rewards of a task, if they differ
    heaviest: tuple[str, float] | None = None  # the task with more than half of the variance, and its share
    # the intervals with everything missing at the lowest, and at the highest, reward; None where there is none
    filled_intervals: tuple[Ends | None, Ends | None] | None = None
    spread: Spread | None = field(default=None, compare=False, repr=False)  # set with the default interval on a range
    scale: Scale | None = field(default=None, compare=False, repr=False)  # of a mean over tasks; not in a document
    # the absolute skewness of the task values, if the interval is the t interval; not in a document
    skewness: float | None = field(default=None, compare=False, repr=False)

    @property
    def threshold(self) -> float | None:
        """The reward from which a sample passes; None for a metric that counts no passes."""
        return self.made.number("threshold")

    @property
    def limits(self) -> Ends | None:
        """The declared range of rewards; None without one."""
        ends = self.made.setting("range").split(",")
        return (float(ends[0]), float(ends[1])) if len(ends) == 2 else None

    @property
    def worst_interval(self) -> Ends | None:
        """The lower end with everything missing at the lowest reward, and the upper end with it at the highest.

        Any rewards of the missing samples leave the true value inside as often as the interval of a complete run has
        it. None if nothing is missing, or if one of the intervals is unknown.
        """
        if self.filled_intervals is None:
            return None
        lowest, highest = self.filled_intervals
        return None if lowest is None or highest is None else (lowest[0], highest[1])

    @property
    def signature(self) -> str:
        """Everything that determines the number, on one line."""
        return str(self.made)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that all estimates of one group of rollouts share."""

    by: Groups
    confidence: float = 0.95
    seed: int = 0
    zero: bool = False  # a missing reward counts as 0 (--missing zero)
    undefined: float | None = None  # the value of a metric over no tasks
    clusters: Ints | None = None  # [T]
    interval: str = "default"  # or a name of `stats.intervals.METHODS`, for every weighted mean of task values
    range: tuple[float, float] | None = None  # the range of rewards, if given; else [0, 1] if all rewards lie in it
    seen: ValueEnds | None = None  # the rewards of the whole run, whose ends fill missing ones; None: those reduced
    not_filled: Bools | None = None  # [R] rollouts that were lost before the model was asked; None: none of them
    fill_all: bool = False  # these are filled like the others, as they are too many
    tasks: Sequence[str] = ()  # [T] task names, for `Estimate.heaviest`


Counts = NDArray[np.int32]
"""The number of samples of each task, [T], in four bytes because there may be millions of tasks."""


@dataclass(frozen=True, slots=True)
class ValueEnds:
    """The smallest and the largest of some values, and how many of them are NaN or infinite."""

    low: float = math.inf  # NaN left out; low > high if there are no values
    high: float = -math.inf
    nan: int = 0
    infinite: int = 0
    number: int = 0  # of the values

    @classmethod
    def of(cls, values: Floats) -> ValueEnds:
        """The ends of an array of values."""
        if not len(values):
            return cls()
        low, high = float(values.min()), float(values.max())
        if math.isfinite(low) and math.isfinite(high):
            return cls(low, high, number=len(values))
        numbers = values[~np.isnan(values)]
        low, high = float(numbers.min(initial=math.inf)), float(numbers.max(initial=-math.inf))
        return cls(low, high, len(values) - len(numbers), int(np.isinf(numbers).sum()), len(values))

    @property
    def in_unit(self) -> bool:
        """Whether all values lie between 0 and 1."""
        return not self.nan and self.low >= 0 and self.high <= 1

    @property
    def largest(self) -> float:
        """The largest absolute value; 0 without values."""
        return max(abs(self.low), abs(self.high)) if self.low <= self.high else 0.0

    def and_those(self, other: ValueEnds) -> ValueEnds:
        """The ends of the values of both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        number = self.number + other.number
        return ValueEnds(low, high, self.nan + other.nan, self.infinite + other.infinite, number)


@dataclass(frozen=True, slots=True)
class Filled:
    """The task values with missing rewards at the lowest, and at the highest, possible reward."""

    low: Column  # [T] or [T, S]
    high: Column
    limits: Ends  # the rewards with which they are filled


@dataclass(frozen=True, slots=True)
class Reduced:
    """The task values of a metric over T tasks, with all that an estimate over these tasks, or more tasks, needs."""

    values: Column  # [T] or [T, S]; [R] for a metric of rows
    by: Groups | None  # the partition of the values, [R], into tasks, for a metric of rows
    entered: Counts  # [T] the samples that each value is computed from
    given: Counts  # [T] the given values of the first column
    ends: tuple[ValueEnds, ...]  # the ends of each column, with missing rewards at 0 under `Settings.zero`
    rewards: ValueEnds  # the ends of the first column's given values
    filled: Filled | None  # the values with everything missing filled in
    partly: Filled | None  # without what was lost before the model was asked, if that is something
    missing: bool  # whether anything is missing, so that `filled` matters

    @property
    def partition(self) -> Groups:
        """The partition of the values into tasks."""
        tasks = len(self.given)
        return Groups(np.arange(tasks), np.arange(tasks + 1)) if self.by is None else self.by


def reduce_tasks(
    metric: Metric | Opaque, params: Mapping[str, Any], columns: Sequence[Column], settings: Settings
) -> Reduced:
    """Reduce columns of rollouts with gaps, in the order of ``metric.reads``, to task values."""
    by = settings.by
    counted = [
        column.filled(0.0) if settings.zero and name == "reward" else column
        for name, column in zip(metric.reads, columns, strict=True)
    ]
    given = by.count(counted[0].given).astype(np.int32)
    ends = tuple(ValueEnds.of(column.kept()) for column in counted)
    if isinstance(metric, Opaque):
        return Reduced(counted[0], by, given, given, ends, ends[0], None, None, missing=False)
    parameters = {key: params[key] for key in metric.params if key not in (*metric.aggregated, "column")}
    reduce_columns = partial(metric.reduce, by=by, **parameters)
    reduced = reduce_columns(*counted)
    metric.check_values(reduced, by)
    used = metric.uses(counted[0], by, params["k"]) if metric.uses else counted[0]
    mask = reduced.given if metric.rows else _entered(used, reduced, by)
    entered = given if mask is counted[0].given else by.count(mask).astype(np.int32)
    rewards = ends[0] if counted[0] is columns[0] else ValueEnds.of(columns[0].kept())
    bounded = metric.reads == ("reward",) or metric.extremes is not None
    missing = bounded and not (columns[0].given.all() and (metric.extremes is None or reduced.given.all()))
    filled = partly = None
    if missing and (limits := _filling(metric, params, rewards, settings)):
        filled = _filled(metric, columns, by, limits, parameters)
        if settings.not_filled is not None and bool((settings.not_filled & ~columns[0].given).any()):
            partly = _filled_but(settings.not_filled, metric, columns, by, limits, parameters)
            partly = _without_lost_tasks(partly, reduced, by, settings.not_filled, params.get("k", 1))
    return Reduced(reduced, by if metric.rows else None, entered, given, ends, rewards, filled, partly, missing)


def _filling(metric: Metric, params: Mapping[str, Any], rewards: ValueEnds, settings: Settings) -> Ends | None:
    """The rewards with which missing ones are filled; a metric of passes also allows for a pass and for a failure."""
    seen = settings.seen or rewards
    known = not (seen.nan or seen.infinite)
    limits = ends_known(seen.low, seen.high, seen.number, settings.range) if known else None
    if limits is not None and not (limits[0] <= rewards.low and rewards.high <= limits[1]):
        limits = None  # as a column's values may be outside the range of rewards
    threshold = params.get("threshold")
    if settings.range is not None or metric.range != UNIT or threshold is None:
        return limits
    failed = math.nextafter(threshold, -math.inf)
    low, high = limits or (failed, threshold)
    return (low if limits == UNIT else min(low, failed)), max(high, threshold)


def _filled(
    metric: Metric, columns: Sequence[Column], by: Groups, limits: Ends, parameters: Mapping[str, Any]
) -> Filled:
    """The task values with every gap of the first column, and all samples up to k, at each end."""
    if metric.extremes is not None:
        return Filled(*metric.extremes(*columns, ends=limits, by=by, **parameters), limits)
    low, high = (metric.reduce(columns[0].filled(end), by=by, **parameters) for end in limits)
    return Filled(low, high, limits)


def _filled_but(
    lost: Bools,
    metric: Metric,
    columns: Sequence[Column],
    by: Groups,
    limits: Ends,
    parameters: Mapping[str, Any],
) -> Filled:
    """The same without the rollouts, [R], lost before the model was asked, as if they had not been planned."""
    if metric.rows:  # its values are those of rows, so that no row may go
        given, values = columns[0].given, columns[0].values
        partly = [Column(np.where(given, values, end), given | ~lost) for end in limits]
        low, high = (metric.reduce(column, by=by, **parameters) for column in partly)
        return Filled(low, high, limits)
    kept = np.flatnonzero(~lost | columns[0].given)
    asked = Groups.of(by.code[kept], by.size)
    return _filled(metric, [column.take(kept) for column in columns], asked, limits, parameters)


def _without_lost_tasks(filled: Filled, reduced: Column, by: Groups, lost: Bools, k: int) -> Filled:
    """The fillings without the tasks that have no value only because rollouts were lost before the model was asked."""
    if len(filled.low) != by.size:
        return filled
    planned = np.diff(by.starts)
    costs = ~reduced.given & (planned >= k) & (planned - by.count(lost) < k)
    low, high = (Column(column.values, column.given & ~costs) for column in (filled.low, filled.high))
    return replace(filled, low=low, high=high)


def joined(parts: Sequence[Reduced]) -> Reduced:
    """Join the task values of several sets of tasks, which is exact because a reduction never looks beyond a task."""
    if len(parts) == 1:
        return parts[0]
    first_tasks = np.cumsum([0, *(len(part.given) for part in parts)])
    missing = any(part.missing for part in parts)
    filled = _joined_fillings([part.filled for part in parts], parts)
    partly = None
    if any(part.partly for part in parts):
        partly = _joined_fillings([part.partly or part.filled for part in parts], parts)
    starts = first_tasks[:-1].tolist()
    tasks = [part.by.code + start for part, start in zip(parts, starts, strict=True) if part.by is not None]
    given = np.concatenate([part.given for part in parts])
    all_entered = all(part.entered is part.given for part in parts)
    return Reduced(
        Column.joined([part.values for part in parts]),
        Groups.of(np.concatenate(tasks), len(given)) if tasks else None,
        given if all_entered else np.concatenate([part.entered for part in parts]),
        given,
        tuple(reduce(ValueEnds.and_those, ends) for ends in zip(*(part.ends for part in parts), strict=True)),
        reduce(ValueEnds.and_those, (part.rewards for part in parts)),
        filled,
        partly,
        missing,
    )


def _joined_fillings(fillings: Sequence[Filled | None], parts: Sequence[Reduced]) -> Filled | None:
    """The fillings of several sets of tasks; None if something is missing that was not filled, or not alike."""
    limits = {filling.limits for filling in fillings if filling is not None}
    unknown = any(part.missing and filling is None for part, filling in zip(parts, fillings, strict=True))
    if len(limits) != 1 or unknown:
        return None
    lows, highs = [], []
    for part, filling in zip(parts, fillings, strict=True):
        lows.append(part.values if filling is None else filling.low)
        highs.append(part.values if filling is None else filling.high)
    return Filled(Column.joined(lows), Column.joined(highs), limits.pop())


def estimate_of(
    metric: Metric | Opaque, params: Mapping[str, Any], of: Reduced, settings: Settings, made: Signature
) -> Estimate:
    """Aggregate task values, and compute the interval; ``settings.by`` is not read.

    ``made`` is the signature without the method of the interval.
    """
    if isinstance(metric, Opaque):
        return _opaque(metric, of, settings, made)
    aggregate = partial(metric.aggregate, **{key: params[key] for key in metric.aggregated})
    value = float(aggregate(of.values.kept())) if of.values.given.any() else settings.undefined
    problem = _why_not_finite(value, metric.reads[0], of.ends)
    if value is None or problem:
        interval = Interval(None, None, None, problem)
    else:
        interval = _not_below_zero(_interval_of(metric, params, of, value, settings), metric, params, of.ends[0])
    tasks = int(np.count_nonzero(of.entered))
    filling = of.filled
    if of.partly is not None and not settings.fill_all:
        filling = None if _is_unfilled(of.partly, of.values) else of.partly
    bounds = filled_intervals = None
    if filling is not None:
        bounds = _bounds(aggregate, filling)
        if bounds is not None:
            filled_intervals = _filled_intervals(metric, params, of, filling, bounds, settings)
    return Estimate(
        value=None if value is None or problem in (UNDEFINED, NO_SUM) else value + 0.0,  # -0.0 becomes 0.0
        stderr=interval.stderr,
        interval=interval.ends,
        method=interval.method,
        tasks=tasks,
        samples=int(of.entered.sum()),
        undefined_tasks=len(of.entered) - tasks,
        bounds=bounds,
        higher_is_better=metric.higher_is_better,
        why=interval.why,
        made=replace(made, method=interval.method),
        samples_per_task=_uneven_samples(of.given) if metric.reads[0] == "reward" else None,
        heaviest=_heaviest(metric, of.values, settings) if interval.ends else None,
        filled_intervals=filled_intervals,
        spread=interval.spread,
        scale=_scale(metric, params, of, settings) if metric.is_mean else None,
        skewness=_skewness(task_values(metric, of.values)[0]) if interval.method == T_INTERVAL else None,
    )


def _entered(used: Column, reduced: Column, by: Groups) -> Bools:
    """The given rows of the tasks that have a value, [R]."""
    return used.given if reduced.given.all() else used.given & reduced.given[by.code]


def _why_not_finite(value: float | None, column: str, columns: Sequence[ValueEnds]) -> str | None:
    """Why there is no finite number; None if there is one. ``column`` is the name of the first column."""
    if value is None:
        return NO_TASKS
    if np.isfinite(value):
        return None
    noun = "reward" if column == "reward" else "value"
    nan, infinite = sum(ends.nan for ends in columns), sum(ends.infinite for ends in columns)
    for count, word in ((nan, "NaN"), (infinite, "infinite")):
        if count:
            return f"{count} {noun}{' is' if count == 1 else 's are'} {word}"
    return NO_SUM if any(ends.largest > HUGE for ends in columns) else UNDEFINED


def _interval_of(metric: Metric, params: Mapping[str, Any], of: Reduced, value: float, settings: Settings) -> Interval:
    """The interval of a mean of task values, weighted equally or by samples; else the metric's own interval."""
    reduced = of.values
    if not reduced.given.any():
        return Interval(None, None, None, NO_TASKS)
    if metric.interval == "none":
        return Interval(None, None, None, metric.no_interval)
    if metric.quantile is not None and metric.interval == "quantile":
        q = params[metric.quantile] if isinstance(metric.quantile, str) else metric.quantile
        return quantile_interval(reduced, of.partition, q, value, settings.confidence, settings.clusters)
    if metric.interval == "posterior":
        return credible(posterior(reduced.kept()).item(), posterior_variance(reduced.kept()), settings.confidence)
    if metric.interval == "bootstrap":
        return _bootstrap_interval(metric, params, of, settings)
    values, weights = task_values(metric, reduced)
    limits = _limits(metric, of, settings)
    largest = float(np.abs(values).max())
    if limits is None and largest > HUGE:
        return Interval(None, None, None, TOO_LARGE)
    # tiny values are scaled up so that their squares are no zeros; by a power of two, so that nothing is rounded
    power = 0 if limits or largest >= TINY else -math.frexp(largest)[1]
    clusters = None if settings.clusters is None else settings.clusters[reduced.given]
    values = np.ldexp(values, power) if power else values
    weighted = Weighted(values, weights, limits, clusters, settings.confidence, settings.seed)
    interval = named_interval(settings.interval, weighted)
    return interval if not power else _scaled(interval, -power)


def _not_below_zero(interval: Interval, metric: Metric, params: Mapping[str, Any], values: ValueEnds) -> Interval:
    """The interval cut off at 0 if the metric is of a time, a cost or a number of tokens, which is never negative.

    It is left alone if a given value is negative all the same.
    """
    if not _is_usage(metric, params) or interval.ends is None or interval.ends[0] >= 0 or values.low < 0:
        return interval
    return replace(interval, ends=(0.0, interval.ends[1]))


def _is_usage(metric: Metric, params: Mapping[str, Any]) -> bool:
    """Whether the metric is of a time, a cost or a number of tokens."""
    return metric.reads[0] in USAGE or (metric.reads[0] == "column" and params.get("column") in USAGE)


def _limits(metric: Metric, of: Reduced, settings: Settings) -> tuple[float, float] | None:
    """The range of the metric: its own, or the one that follows from the range of the rewards; None if unknown."""
    if metric.range is not None or not metric.of_rewards:
        return metric.range
    ends = _range(of.ends[0], settings)
    return None if ends is None else metric.reach(ends)


T_INTERVAL: Final = "t"
LONG_TAIL: Final = 3.0
"""The absolute skewness of task values above which a t interval holds the mean less often than it says.

In samples of 300, that of an exponential law, whose interval keeps its promise, is above 3 in less than one in 100.
"""
COVERAGE_WITH_LONG_TAIL: Final = {30: (0.66, 0.88), 100: (0.70, 0.92), 300: (0.74, 0.93)}
"""Tasks -> how often the 95 % interval held the mean, at least and at most over the simulated laws with a long tail.

docs/statistics.md has the table, from ``make bench-statistics``.
"""


def coverage_with_long_tail(tasks: int) -> tuple[float, float]:
    """How often the 95 % interval of this many tasks held the mean of a law with a long tail, at least and at most."""
    simulated = [count for count in COVERAGE_WITH_LONG_TAIL if count <= tasks]
    return COVERAGE_WITH_LONG_TAIL[max(simulated, default=min(COVERAGE_WITH_LONG_TAIL))]


def _skewness(values: Floats) -> float:
    """The absolute skewness of task values, [T]: the mean cube of their standardised deviations; 0 without spread."""
    largest = float(np.abs(values).max(initial=0.0))
    if not 0 < largest < math.inf:
        return 0.0
    deviations = values / largest  # so that no cube overflows
    deviations = deviations - deviations.mean()
    spread = float(np.sqrt(np.mean(deviations**2)))
    return abs(float(np.mean((deviations / spread) ** 3))) if spread > 0 else 0.0


def _scale(metric: Metric, params: Mapping[str, Any], of: Reduced, settings: Settings) -> Scale:
    """The scale of a mean over tasks; without a range of rewards, that of the task values."""
    ends = of.ends[0]
    limits = _limits(metric, of, settings)
    if limits is None and not metric.of_rewards and of.values.given.any():
        ends = ValueEnds.of(task_values(metric, of.values)[0])
        limits = UNIT if ends.in_unit else None
    seen = (ends.low, ends.high) if ends.low <= ends.high else None
    return Scale(limits, seen, metric.higher_is_better, _is_usage(metric, params))


def _bootstrap_interval(metric: Metric, params: Mapping[str, Any], of: Reduced, settings: Settings) -> Interval:
    """The interval of a metric with its own aggregate: the bootstrap over tasks or clusters."""
    reduced, tasks = of.values, of.partition.code
    units = tasks if settings.clusters is None else settings.clusters[tasks]
    aggregate = partial(metric.aggregate, **{key: params[key] for key in metric.aggregated})
    interval = bootstrap_of_values(
        aggregate,
        reduced.kept(),
        units[reduced.given],
        settings.confidence,
        settings.seed,
        settings.clusters is not None,
    )
    low, high = metric.range or (-math.inf, math.inf)
    return replace(interval, ends=interval.ends and (max(interval.ends[0], low), min(interval.ends[1], high)))


def task_values(metric: Metric, reduced: Column) -> tuple[Floats, Floats]:
    """The values of the tasks that have one, and their weights: 1 in a mean, the number of samples in a pooled rate."""
    if metric.interval == "mean":
        return reduced.kept(), np.ones(int(reduced.given.sum()))
    sums, weights = reduced.kept()[:, 0], reduced.kept()[:, 1]
    return sums / weights, weights


def _scaled(interval: Interval, power: int) -> Interval:
    """The interval of the values times ``2**power``."""
    stderr = None if interval.stderr is None else math.ldexp(interval.stderr, power)
    ends = interval.ends and (math.ldexp(interval.ends[0], power), math.ldexp(interval.ends[1], power))
    return replace(interval, stderr=stderr, ends=ends)


def _range(rewards: ValueEnds, settings: Settings) -> tuple[float, float] | None:
    """The range of rewards: the given range, [0, 1] without one; None if values, as of a column, are outside of it."""
    if settings.range is None:
        return UNIT if rewards.in_unit else None
    low, high = settings.range
    return settings.range if low <= rewards.low and rewards.high <= high else None


def _is_unfilled(filling: Filled, values: Column) -> bool:
    """Whether nothing was filled in, because everything missing was lost before the model was asked."""
    for column in (filling.low, filling.high):
        if not np.array_equal(column.given, values.given):
            return False
        if not np.array_equal(column.kept(), values.kept(), equal_nan=True):
            return False
    return True


def _bounds(aggregate: Callable[[Floats], Floats], filling: Filled) -> Ends | None:
    """The value over all tasks with everything missing at the lowest and at the highest reward.

    None without tasks, or if an end is not finite.
    """
    if not (filling.low.given.any() and filling.high.given.any()):
        return None
    low, high = (float(aggregate(column.kept())) + 0.0 for column in (filling.low, filling.high))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _filled_intervals(
    metric: Metric, params: Mapping[str, Any], of: Reduced, filling: Filled, bounds: Ends, settings: Settings
) -> tuple[Ends | None, Ends | None]:
    """The intervals of both fillings, which the verdict of a gate and the ends of a score read."""
    ends = (of.ends[0].and_those(ValueEnds(*filling.limits)), *of.ends[1:])
    low, high = (
        _interval_of(metric, params, replace(of, values=column, ends=ends), value, settings).ends
        for column, value in zip((filling.low, filling.high), bounds, strict=True)
    )
    return low, high


def _uneven_samples(given: Counts) -> tuple[int, int] | None:
    """The fewest and the most given rewards of a task; None if all tasks have the same number."""
    fewest, most = (int(given.min()), int(given.max())) if len(given) else (0, 0)
    return None if fewest == most else (fewest, most)


def _heaviest(metric: Metric, reduced: Column, settings: Settings) -> tuple[str, float] | None:
    """The task, or the first task of the cluster, that has more than half of the variance, and its share.

    None below ten units, and for tasks whose values are all 0 or 1: with few passes, one task always has most of the
    variance, and the interval allows for that.
    """
    if not len(settings.tasks) or not metric.is_mean:
        return None
    values, weights = task_values(metric, reduced)
    clusters = None if settings.clusters is None else settings.clusters[reduced.given]
    units = len(values) if clusters is None else len(np.unique(clusters))
    if units < FEWEST_UNITS or (clusters is None and bool(((values == 0) | (values == 1)).all())):
        return None
    unit, share = largest_share(values, weights, clusters)
    first = np.flatnonzero(reduced.given)[unit if clusters is None else int(np.argmax(clusters == unit))]
    return (settings.tasks[first], share) if share > HALF else None


def _opaque(metric: Opaque, of: Reduced, settings: Settings, made: Signature) -> Estimate:
    counts = of.given
    tasks = [part.tolist() for part in np.split(of.values.kept(), np.cumsum(counts)[:-1])] if len(counts) else []
    value = float(metric.compute(tasks))
    problem = _why_not_finite(value, "reward", of.ends)
    interval = Interval(None, None, None, problem)
    if problem is None:
        interval = bootstrap(metric.compute, tasks, settings.confidence, settings.seed, settings.clusters, value)
    tasks_with_rewards = int(np.count_nonzero(counts))
    return Estimate(
        value=value + 0.0,
        stderr=interval.stderr,
        interval=interval.ends,
        method=interval.method,
        tasks=tasks_with_rewards,
        samples=int(counts.sum()),
        undefined_tasks=len(counts) - tasks_with_rewards,
        bounds=None,
        higher_is_better=None,
        why=interval.why,
        made=replace(made, method=interval.method),
    )


def sequence_only(estimate: Estimate) -> Estimate:
    """The estimate, without its interval unless that is a confidence sequence.

    Only a confidence sequence covers the truth when the number of tasks depends on the values (Ville 1939).
    """
    if estimate.why == needs_range(SEQUENCE):  # it suggests intervals that hold for a fixed number of tasks only
        return replace(estimate, why=STOPPED_NO_RANGE, filled_intervals=None)
    if estimate.method in (None, SEQUENCE):
        return estimate
    return without_interval(estimate, NO_SEQUENCE)


def without_interval(estimate: Estimate, why: str) -> Estimate:
    """The estimate without its interval, and with the reason."""
    made = replace(estimate.made, method=None)
    return replace(estimate, interval=None, method=None, why=why, made=made, filled_intervals=None)
