"""Reductions and aggregations: from the samples of each task to one value or a few counts, and then to one number.

An aggregation maps ``[..., N]`` to ``[...]``. None is ever handed nothing: a metric over no tasks is undefined before
it is aggregated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, total


def task_mean(column: Column, by: Groups) -> Column:
    """The mean of each task's given values, [T]; a gap for a task without values."""
    n = by.count(column.given)
    return Column(by.sum(column) / np.maximum(n, 1), n > 0)


def task_sum_and_count(column: Column, by: Groups) -> Column:
    """Each task's sum and number of given values, [T, 2]; for what is pooled over samples."""
    n = by.count(column.given)
    return Column(np.stack([by.sum(column), n.astype(float)], axis=1), n > 0)


def each(column: Column, by: Groups) -> Column:
    """Every sample for itself, [R]: for statistics that no value per task can carry."""
    return column


def pass_counts(rewards: Column, by: Groups, threshold: float) -> tuple[Ints, Ints]:
    """(samples, passes) of each task, [T] both. NaN is no pass; a gap is no sample."""
    return by.count(rewards.given), by.count(passed(rewards, threshold))


def passed(rewards: Column, threshold: float) -> Bools:
    """Which samples are given and reach the threshold, [R]."""
    with np.errstate(invalid="ignore"):
        return rewards.given & (rewards.values >= threshold)


def by_counts(n: Ints, c: Ints, chance: Callable[[int, int], float], at_least: int) -> Column:
    """``chance(n, c)`` of each task, [T], worked out once for each distinct pair.

    A gap where a task has fewer than ``at_least`` samples.
    """
    width = int(n.max(initial=0)) + 1
    pair = n * width + c
    if width * width <= 2 * len(pair) + 1000:  # a table of all pairs is cheaper than sorting the tasks
        distinct, code = np.flatnonzero(np.bincount(pair, minlength=width * width)), pair
        table = np.zeros(width * width)
    else:
        distinct, code = np.unique(pair, return_inverse=True)
        table = np.zeros(len(distinct))
    for index, (samples, passes) in enumerate(divmod(p, width) for p in distinct.tolist()):
        if samples >= at_least:
            table[distinct[index] if code is pair else index] = chance(samples, passes)
    return Column(table[code], n >= at_least)


def share_without(total: int, chosen: int, k: int) -> float:
    """C(total - chosen, k) / C(total, k): the chance that k draws miss all the chosen, rounded once.

    >>> share_without(10, 3, 5)
    0.08333333333333333
    """
    return comb(total - chosen, k) / comb(total, k)


WORTH_A_SAMPLE = 1 << 16  # values; fewer are partitioned at once
_SAMPLE = 1 << 13
_MARGIN = 4 * math.isqrt(_SAMPLE) // 2  # four times the largest standard deviation of a rank in the sample


def ranked(values: Floats, ranks: Sequence[int]) -> Floats:
    """The values, [N], that stand at these ranks, from 0, when sorted, [K]; all NaN if one of them is.

    Whoever wants one value in a million need not put the others in order: a thin sample says between which two bounds
    it lies, one comparison counts what is below them, and only what lies between is looked at. Chance decides how
    fast that is, never what is found: the counts prove it, or all values are partitioned.

    >>> ranked(np.array([30.0, 10.0, 20.0]), [0, 1]).tolist()
    [10.0, 20.0]
    """
    wanted = np.asarray(ranks, dtype=np.int64)
    if np.isnan(values.max()):
        return np.full(len(wanted), np.nan)
    quick = _between_bounds(values, wanted) if len(values) >= WORTH_A_SAMPLE else None
    return np.partition(values, wanted)[wanted] if quick is None else quick


def percentiles(values: Floats, levels: Sequence[float]) -> Floats:
    """Percentiles of values, [N], by linear interpolation between those at two ranks, [K].

    >>> percentiles(np.arange(1.0, 21.0), [0, 90]).tolist()
    [1.0, 18.1]
    """
    at = np.asarray(levels, dtype=np.float64) / 100 * (len(values) - 1)
    first = np.floor(at).astype(np.int64)
    last = np.minimum(first + 1, len(values) - 1)
    low, high = ranked(values, [*first.tolist(), *last.tolist()]).reshape(2, -1)
    step, share = high - low, at - first
    return np.where(share >= 0.5, high - step * (1 - share), low + step * share)  # each end is met exactly


def _between_bounds(values: Floats, ranks: Ints) -> Floats | None:
    """The values at these ranks, if a sample bounds them closely enough; else None."""
    sample = np.sort(values[:: len(values) // _SAMPLE])
    scale = len(sample) / len(values)
    first, last = int(ranks.min() * scale) - _MARGIN, int(ranks.max() * scale) + _MARGIN
    if last - first > len(sample) // 2:
        return None
    low = sample[first] if first >= 0 else -np.inf
    high = sample[last] if last < len(sample) else np.inf
    inside = values >= low
    places = ranks - (len(values) - np.count_nonzero(inside))
    inside &= values <= high
    if places.min() < 0 or places.max() >= np.count_nonzero(inside):
        return None
    if low == high:
        return np.full(len(ranks), low)
    statistics: Floats = np.partition(values[inside], places)[places]
    return statistics


TINY = 1e-130  # the squares of differences between values below it may be lost


def mean(values: Floats) -> Floats:
    """The mean over tasks, ``[..., T] -> [...]``."""
    return np.asarray(total(values) / values.shape[-1])


def pooled(counts: Floats) -> Floats:
    """The sum of sums over the sum of counts, ``[..., T, 2] -> [...]``."""
    return total(counts[..., 0]) / total(counts[..., 1])


def largest(values: Floats) -> Floats:
    """The largest value; NaN if one is."""
    return np.asarray(values.max(axis=-1))


def smallest(values: Floats) -> Floats:
    """The smallest value; NaN if one is."""
    return np.asarray(values.min(axis=-1))


def spread(values: Floats) -> Floats:
    """The standard deviation with n - 1, from the exact mean; NaN for a single value."""
    count = values.shape[-1]
    if count < 2:
        return np.full(values.shape[:-1], np.nan)
    away = values - mean(values)[..., None]
    farthest = float(np.maximum(away.max(initial=0.0), -away.min(initial=0.0)))
    power = 0
    if math.isfinite(farthest) and not TINY < farthest < 1 / TINY:
        power = -math.frexp(farthest)[1]  # its square would be lost; times a power of two nothing is rounded
        np.ldexp(away, power, out=away)
    away *= away
    return np.asarray(np.ldexp(np.sqrt(total(away) / (count - 1)), -power))


def percentile(values: Floats, q: float) -> Floats:
    """The q-th percentile by linear interpolation between order statistics (numpy's "linear").

    >>> float(percentile(np.arange(1.0, 21.0), q=90))
    18.1
    """
    if values.ndim == 1:
        return np.asarray(percentiles(values, [q])[0])
    return np.asarray(np.percentile(values, q, axis=-1))


def median(values: Floats) -> Floats:
    """The middle value, or the mean of the two middle ones."""
    if values.ndim == 1:
        return np.asarray(ranked(values, sorted({(len(values) - 1) // 2, len(values) // 2})).mean())
    return np.asarray(np.median(values, axis=-1))
