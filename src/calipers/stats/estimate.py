"""An estimate: a number with its interval, its counts and its signature; never a bare float."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics import TINY, UNIT, Metric, Opaque
from calipers.metrics.rewards import posterior, posterior_variance
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints
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

NO_TASKS = "no task has a value"
UNDEFINED = "undefined for these values"
TOO_LARGE = "the values are too large for their spread to be a number"
NO_SUM = "the values are too large for their sum to be a number"
STOPPED_NO_RANGE = "the run was stopped by what it showed, and a confidence sequence needs values of a known range"
NO_SEQUENCE = "the run was stopped by what it showed, and no confidence sequence is known for this metric"
HALF = 0.5  # of the variance: a task with more decides how wide the interval is
FEWEST_UNITS = 10  # tasks or clusters: of fewer, one often has half of the variance by chance
HUGE = 1e150  # its square is still a number, and so are sums of many


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that determines a number; its text is one line.

    >>> str(Signature("pass@{k}", 3, ("k:3",), "wilson", ("seed:0",)))
    'pass@{k}|k:3|interval:wilson|seed:0'
    """

    metric: str  # the name of the definition, not the requested name
    k: int | None = None
    settings: tuple[str, ...] = ()
    method: str | None = None  # of the interval
    drawn: tuple[str, ...] = ()  # what the interval was made with; none for a number that can have no interval
    over: tuple[str, ...] = ()  # which mean over datasets it is

    @classmethod
    def of(cls, text: str) -> Signature:
        """The signature that has this text.

        >>> text = "macro|datasets:2|pass@{k}|k:3|interval:none|seed:0"
        >>> Signature.of(text).k, Signature.of(text).over, str(Signature.of(text)) == text
        (3, ('macro', 'datasets:2'), True)
        """
        parts = text.split("|")
        first = 2 if len(parts) > 2 and parts[1].startswith("datasets:") else 0
        end = next((at for at, part in enumerate(parts) if part.startswith("interval:")), len(parts))
        settings = tuple(parts[first + 1 : end])
        k = next((part[2:] for part in settings if part.startswith("k:") and part[2:].isdecimal()), None)
        method = parts[end].partition(":")[2] if end < len(parts) else "none"
        return cls(
            parts[first],
            None if k is None else int(k),
            settings,
            None if method == "none" else method,
            tuple(parts[end + 1 :]),
            tuple(parts[:first]),
        )

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
    samples: int  # samples that entered
    undefined_tasks: int  # tasks without a value: too few samples, or none
    bounds: (
        tuple[float, float] | None
    )  # over all tasks, with everything missing at the lowest and at the highest reward
    higher_is_better: bool | None
    why: str | None  # why the value or the interval is absent
    made: Signature
    samples_per_task: tuple[int, int] | None = None  # the fewest and the most rewards of a task, where they differ
    heaviest: tuple[str, float] | None = None  # the task with more than half of the variance, and its share
    spread: Spread | None = field(default=None, compare=False, repr=False)  # of the default interval on a range

    @property
    def signature(self) -> str:
        """Everything that determines the number, on one line."""
        return str(self.made)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all estimates of one group of rollouts share."""

    by: Groups
    confidence: float = 0.95
    seed: int = 0
    zero: bool = False  # a gap counts 0 (--missing zero)
    undefined: float | None = None  # what a metric over no tasks becomes
    clusters: Ints | None = None  # [T]
    interval: str = "default"  # or a name of `stats.intervals.METHODS`, for every weighted mean of task values
    range: tuple[float, float] | None = None  # of rewards, where the user knows it; [0, 1] while they lie in it
    tasks: Sequence[str] = ()  # [T] their names, to say which one decides


Counts = NDArray[np.int32]
"""How many samples a task has of a kind: four bytes, as there may be millions of tasks."""


@dataclass(frozen=True, slots=True)
class ValueEnds:
    """The smallest and the largest of some numbers, and how many of them are none."""

    low: float = math.inf  # of those that are no NaN; inf and -inf where there are none
    high: float = -math.inf
    nan: int = 0
    infinite: int = 0

    @classmethod
    def of(cls, values: Floats) -> ValueEnds:
        """The ends of these values."""
        if not len(values):
            return cls()
        low, high = float(values.min()), float(values.max())
        if math.isfinite(low) and math.isfinite(high):
            return cls(low, high)
        numbers = values[~np.isnan(values)]
        low, high = float(numbers.min(initial=math.inf)), float(numbers.max(initial=-math.inf))
        return cls(low, high, len(values) - len(numbers), int(np.isinf(numbers).sum()))

    @property
    def in_unit(self) -> bool:
        """Whether all of them lie between 0 and 1."""
        return not self.nan and self.low >= 0 and self.high <= 1

    @property
    def largest(self) -> float:
        """The largest absolute value; 0 of nothing."""
        return max(abs(self.low), abs(self.high)) if self.low <= self.high else 0.0

    def and_those(self, other: ValueEnds) -> ValueEnds:
        """The ends of both together."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return ValueEnds(low, high, self.nan + other.nan, self.infinite + other.infinite)


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a metric makes of T tasks: enough to estimate it over these tasks, or over these and others together."""

    values: Column  # [T] or [T, S]; [R] for a metric of rows
    task: Ints | None  # [R] the task of each value, for a metric of rows
    entered: Counts  # [T] the samples that entered
    given: Counts  # [T] the values of the first column that there are
    ends: tuple[ValueEnds, ...]  # of the columns that were counted
    rewards: ValueEnds  # of the first column, without what was counted in the place of gaps
    filled: tuple[Column, Column] | None  # [T] the values with everything missing at either end of the range
    missing: bool  # whether anything is missing, so that `filled` matters


def reduce_tasks(
    metric: Metric | Opaque, params: Mapping[str, Any], columns: Sequence[Column], settings: Settings
) -> Reduced:
    """Reduce columns of rollouts, in the order of ``metric.reads``, to what each task is worth."""
    by = settings.by
    counted = [
        column.filled(0.0) if settings.zero and name == "reward" else column
        for name, column in zip(metric.reads, columns, strict=True)
    ]
    given = by.count(counted[0].given).astype(np.int32)
    ends = tuple(ValueEnds.of(column.kept()) for column in counted)
    if isinstance(metric, Opaque):
        return Reduced(counted[0], by.code, given, given, ends, ends[0], None, missing=False)
    parameters = {key: params[key] for key in metric.params if key not in (*metric.aggregated, "column")}
    reducing = partial(metric.reduce, by=by, **parameters)
    reduced = reducing(*counted)
    metric.check_values(reduced, by)
    looked_at = metric.uses(counted[0], by, params["k"]) if metric.uses else counted[0]
    mask = reduced.given if metric.rows else _entered(looked_at, reduced, by)
    entered = given if mask is counted[0].given else by.count(mask).astype(np.int32)
    rewards = ends[0] if counted[0] is columns[0] else ValueEnds.of(columns[0].kept())
    bounded = metric.reads == ("reward",) or metric.extremes is not None
    missing = bounded and not (columns[0].given.all() and (metric.extremes is None or reduced.given.all()))
    filled = None
    if missing and (limits := _range(rewards, settings)):
        if metric.extremes is None:
            filled = reducing(columns[0].filled(limits[0])), reducing(columns[0].filled(limits[1]))
        else:
            filled = metric.extremes(*columns, ends=limits, by=by, **parameters)
    task = by.code if metric.rows else None
    return Reduced(reduced, task, entered, given, ends, rewards, filled, missing)


def joined(parts: Sequence[Reduced]) -> Reduced:
    """What a metric makes of several sets of tasks, as one: a reduction never looks beyond a task."""
    if len(parts) == 1:
        return parts[0]
    first = np.cumsum([0, *(len(part.given) for part in parts)])
    missing = any(part.missing for part in parts)
    filled = None
    if missing and all(part.filled or not part.missing for part in parts):
        fillings = [part.filled or (part.values, part.values) for part in parts]
        filled = Column.joined([low for low, _ in fillings]), Column.joined([high for _, high in fillings])
    tasks = [part.task + start for part, start in zip(parts, first.tolist(), strict=False) if part.task is not None]
    given = np.concatenate([part.given for part in parts])
    every = all(part.entered is part.given for part in parts)
    return Reduced(
        Column.joined([part.values for part in parts]),
        np.concatenate(tasks) if tasks else None,
        given if every else np.concatenate([part.entered for part in parts]),
        given,
        tuple(reduce(ValueEnds.and_those, ends) for ends in zip(*(part.ends for part in parts), strict=True)),
        reduce(ValueEnds.and_those, (part.rewards for part in parts)),
        filled,
        missing,
    )


def estimate(
    metric: Metric | Opaque, params: Mapping[str, Any], columns: Sequence[Column], settings: Settings, made: Signature
) -> Estimate:
    """Reduce, aggregate, and compute the interval.

    ``columns`` are in the order of ``metric.reads``, with gaps; ``made`` is the signature without the method of the
    interval.
    """
    return estimate_of(metric, params, reduce_tasks(metric, params, columns, settings), settings, made)


def estimate_of(
    metric: Metric | Opaque, params: Mapping[str, Any], of: Reduced, settings: Settings, made: Signature
) -> Estimate:
    """Aggregate what tasks are worth, and compute the interval; ``settings.by`` is not looked at."""
    if isinstance(metric, Opaque):
        return _opaque(metric, of, settings, made)
    aggregate = partial(metric.aggregate, **{key: params[key] for key in metric.aggregated})
    value = float(aggregate(of.values.kept())) if of.values.given.any() else settings.undefined
    odd = _odd(value, metric.reads[0], of.ends)
    if value is None or odd:
        how = Interval(None, None, None, odd)
    else:
        how = _not_below_zero(_how_sure(metric, params, of, value, settings), metric, params, of.ends[0])
    tasks = int(np.count_nonzero(of.entered))
    return Estimate(
        value=None if value is None or odd in (UNDEFINED, NO_SUM) else value + 0.0,  # -0.0 becomes 0.0
        stderr=how.stderr,
        interval=how.ends,
        method=how.method,
        tasks=tasks,
        samples=int(of.entered.sum()),
        undefined_tasks=len(of.entered) - tasks,
        bounds=_bounds(aggregate, of, settings),
        higher_is_better=metric.higher_is_better,
        why=how.why,
        made=replace(made, method=how.method),
        samples_per_task=_uneven(of.given) if metric.reads[0] == "reward" else None,
        heaviest=_heaviest(metric, of.values, settings) if how.ends else None,
        spread=how.spread,
    )


def _entered(looked_at: Column, reduced: Column, by: Groups) -> Bools:
    """The given rows of the tasks that have a value, [R]."""
    return looked_at.given if reduced.given.all() else looked_at.given & reduced.given[by.code]


def _odd(value: float | None, what: str, columns: Sequence[ValueEnds]) -> str | None:
    """Why there is no finite number, or None."""
    if value is None:
        return NO_TASKS
    if np.isfinite(value):
        return None
    noun = "reward" if what == "reward" else "value"
    nan, infinite = sum(ends.nan for ends in columns), sum(ends.infinite for ends in columns)
    for count, word in ((nan, "NaN"), (infinite, "infinite")):
        if count:
            return f"{count} {noun}{' is' if count == 1 else 's are'} {word}"
    return NO_SUM if any(ends.largest > HUGE for ends in columns) else UNDEFINED


def _how_sure(metric: Metric, params: Mapping[str, Any], of: Reduced, value: float, settings: Settings) -> Interval:
    """The interval of a mean of task values, weighted equally or by samples; else the metric's own interval."""
    reduced = of.values
    if not reduced.given.any():
        return Interval(None, None, None, NO_TASKS)
    if metric.interval == "none":
        return Interval(None, None, None, metric.no_interval)
    if metric.quantile is not None and metric.interval == "quantile":
        q = params[metric.quantile] if isinstance(metric.quantile, str) else metric.quantile
        by = Groups.of(_tasks_of(of), len(of.given))
        return quantile_interval(reduced, by, q, value, settings.confidence, settings.clusters)
    if metric.interval == "posterior":
        return credible(posterior(reduced.kept()).item(), posterior_variance(reduced.kept()), settings.confidence)
    if metric.interval == "bootstrap":
        return _drawn(metric, params, of, settings)
    values, weights = task_values(metric, reduced)
    limits = metric.range
    if limits is None and metric.of_rewards and (ends := _range(of.ends[0], settings)):
        limits = metric.reach(ends)
    largest = float(np.abs(values).max())
    if limits is None and largest > HUGE:
        return Interval(None, None, None, TOO_LARGE)
    power = 0 if limits or largest >= TINY else -math.frexp(largest)[1]  # by a power of two, nothing is rounded
    clusters = None if settings.clusters is None else settings.clusters[reduced.given]
    values = np.ldexp(values, power) if power else values
    weighted = Weighted(values, weights, limits, clusters, settings.confidence, settings.seed)
    how = named_interval(settings.interval, weighted)
    return how if not power else _scaled(how, -power)


def _tasks_of(of: Reduced) -> Ints:
    """The task of each value, [R] or [T]."""
    return np.arange(len(of.given)) if of.task is None else of.task


def _not_below_zero(how: Interval, metric: Metric, params: Mapping[str, Any], source: ValueEnds) -> Interval:
    """The interval of a time, a cost or a number of tokens: these are never negative, so that it begins at 0."""
    usage = metric.reads[0] in USAGE or (metric.reads[0] == "column" and params.get("column") in USAGE)
    if not usage or how.ends is None or how.ends[0] >= 0 or source.low < 0:
        return how
    return replace(how, ends=(0.0, how.ends[1]))


def _drawn(metric: Metric, params: Mapping[str, Any], of: Reduced, settings: Settings) -> Interval:
    """The interval of a plugin's aggregate: the bootstrap over tasks or clusters."""
    reduced, tasks = of.values, _tasks_of(of)
    units = tasks if settings.clusters is None else settings.clusters[tasks]
    aggregate = partial(metric.aggregate, **{key: params[key] for key in metric.aggregated})
    how = bootstrap_of_values(
        aggregate,
        reduced.kept(),
        units[reduced.given],
        settings.confidence,
        settings.seed,
        settings.clusters is not None,
    )
    low, high = metric.range or (-math.inf, math.inf)
    return replace(how, ends=how.ends and (max(how.ends[0], low), min(how.ends[1], high)))


def task_values(metric: Metric, reduced: Column) -> tuple[Floats, Floats]:
    """The values of the tasks that have one, and their weights: alike in a mean, by its samples in a pooled rate."""
    if metric.interval == "mean":
        return reduced.kept(), np.ones(int(reduced.given.sum()))
    sums, weights = reduced.kept()[:, 0], reduced.kept()[:, 1]
    return sums / weights, weights


def _scaled(how: Interval, power: int) -> Interval:
    """The same interval for values times two to some power."""
    stderr = None if how.stderr is None else math.ldexp(how.stderr, power)
    ends = how.ends and (math.ldexp(how.ends[0], power), math.ldexp(how.ends[1], power))
    return replace(how, stderr=stderr, ends=ends)


def _range(rewards: ValueEnds, settings: Settings) -> tuple[float, float] | None:
    """The range of rewards: the given range, [0, 1] if all rewards are in it, else None."""
    if settings.range is not None:
        return settings.range
    return UNIT if rewards.in_unit else None


def _bounds(aggregate: Callable[[Floats], Floats], of: Reduced, settings: Settings) -> tuple[float, float] | None:
    """The value over all tasks with everything missing at the lowest and at the highest reward.

    None where nothing is missing, for a metric that reads more than rewards and does not define it, and where the range
    of rewards is not known or an end is no number.
    """
    if of.filled is None or _range(of.rewards, settings) is None or not of.filled[0].given.any():
        return None
    low, high = (float(aggregate(reduced.kept())) + 0.0 for reduced in of.filled)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _uneven(given: Counts) -> tuple[int, int] | None:
    """The fewest and the most given rewards of a task; None where all tasks have the same number."""
    fewest, most = (int(given.min()), int(given.max())) if len(given) else (0, 0)
    return None if fewest == most else (fewest, most)


def _heaviest(metric: Metric, reduced: Column, settings: Settings) -> tuple[str, float] | None:
    """The task, or the first task of the cluster, that has more than half of the variance, and its share.

    None below ten units, and for tasks that all pass or fail: with few passes, one task always has most of the
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
    odd = _odd(value, "reward", of.ends)
    how = Interval(None, None, None, odd)
    if odd is None:
        how = bootstrap(metric.compute, tasks, settings.confidence, settings.seed, settings.clusters)
    filled = int(np.count_nonzero(counts))
    return Estimate(
        value=value + 0.0,
        stderr=how.stderr,
        interval=how.ends,
        method=how.method,
        tasks=filled,
        samples=int(counts.sum()),
        undefined_tasks=len(counts) - filled,
        bounds=None,
        higher_is_better=None,
        why=how.why,
        made=replace(made, method=how.method),
    )


def sequence_only(estimate: Estimate) -> Estimate:
    """An estimate without an interval that is made for a fixed number of tasks.

    Only a confidence sequence covers the truth when the number of tasks depends on the values (Ville 1939).
    """
    if estimate.why == needs_range(SEQUENCE):  # which names intervals that hold for a fixed number of tasks
        return replace(estimate, why=STOPPED_NO_RANGE)
    if estimate.method in (None, SEQUENCE):
        return estimate
    return without_interval(estimate, NO_SEQUENCE)


def without_interval(estimate: Estimate, why: str) -> Estimate:
    """The same estimate with no interval, and why."""
    return replace(estimate, interval=None, method=None, why=why, made=replace(estimate.made, method=None))
