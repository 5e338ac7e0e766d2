"""The default interval: Wilson with an effective number of tasks and a t quantile.

One closed form for every weighted mean of task values on a known range. It is exactly Wilson's
interval when every value is 0 or 1, turns into the t interval as the values leave the ends, never
has zero width and never leaves the range. Without a range it is the t interval over tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.ranks import percentiles
from calipers.rollouts.sums import sum_by, total

ONE_TASK = "one task says nothing about others"
ONE_CLUSTER = "one cluster says nothing about others"
NO_SPREAD = "no spread and no known range"
NO_WIDTH = "the posterior is narrower than the rounding of its mean"
CERTAIN = 1e-14
NOISE = 1e-14  # a spread below this share of the largest value is the rounding of the values themselves
MANY = 2_000  # degrees of freedom from which the expansion of the t quantile has all its digits


@dataclass(frozen=True, slots=True)
class Interval:
    """A standard error and an interval, or why there is none."""

    stderr: float | None
    ends: tuple[float, float] | None
    method: str | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """What the interval needs of weighted task values, on the scale where the range is [0, 1]."""

    mean: float  # m
    variance: float  # se squared, n-1 over units
    units: int  # G, units of any weight
    effective_units: float  # U
    doubt: float  # delta: 1 without clusters


def interval(
    values: Floats,
    weights: Floats,
    confidence: float,
    limits: tuple[float, float] | None = None,
    clusters: Ints | None = None,
) -> Interval:
    """The default interval of a weighted mean of task values, [T].

    ``limits`` is the range the values cannot leave, None when there is none; ``clusters`` numbers
    the unit each task belongs to. One task or one cluster gives no interval.
    """
    low, high = limits if limits else (0.0, 1.0)
    spread = spread_of(values, weights, limits, clusters)
    if spread.units < 2:
        return alone(len(values), clusters)
    stderr = (high - low) * math.sqrt(spread.variance)
    if limits is None:
        return _unbounded(spread, stderr, confidence)
    effective, quantile, method = strength(spread, confidence)
    lower, upper = _wilson(spread.mean, effective, quantile)
    return Interval(stderr, (low + (high - low) * lower, low + (high - low) * upper), method)


def alone(tasks: int, clusters: Ints | None) -> Interval:
    """No interval, for one task or one cluster."""
    return Interval(None, None, None, ONE_TASK if clusters is None or tasks < 2 else ONE_CLUSTER)


def spread_of(
    values: Floats, weights: Floats, limits: tuple[float, float] | None = None, clusters: Ints | None = None
) -> Spread:
    """What the interval needs of weighted task values, [T]; on their own scale where no range is known."""
    low, high = limits if limits else (0.0, 1.0)
    return _spread((values - low) / (high - low), weights, clusters)


def largest_share(values: Floats, weights: Floats, clusters: Ints | None = None) -> tuple[int, float]:
    """The unit whose pull is the largest part of the variance of a weighted mean, and that part, 0 to 1.

    ``(w_g e_g)^2 / sum (w_g e_g)^2`` for units g, tasks or clusters, that lie e_g from the mean; 0 for all
    where there is no spread.
    """
    whole = total(weights)
    pull = weights / whole * (values - float(total(weights * values) / whole))
    if clusters is not None:
        pull = sum_by(clusters, pull, int(clusters.max()) + 1)
    largest = float(np.abs(pull).max())
    if largest == 0 or float(np.abs(values - values[0]).max()) <= NOISE * float(np.abs(values).max()):
        return 0, 0.0  # the values agree; what is left is the rounding of their mean
    squares = (pull / largest) ** 2
    unit = int(np.argmax(squares))
    return unit, float(squares[unit] / total(squares))


def binomial_size(spread: Spread, confidence: float) -> float:
    """The number of 0/1 tasks, n', on which a normal quantile says what the t quantile says here.

    ``n_eff (z/q)^2``: an interval made for counts of passes, taken on m n' passes of n', is as wide as
    the spread of the values asks for. It is the number of tasks itself when every value is 0 or 1.
    """
    effective, quantile, _ = strength(spread, confidence)
    return effective * (_normal_quantile(confidence) / quantile) ** 2


def t_half_width(spread: Spread, confidence: float) -> float:
    """Half the width of the t interval, ``t(U - 1) se`` with at least one degree of freedom."""
    return _t_quantile(confidence, max(1.0, spread.effective_units - 1)) * math.sqrt(spread.variance)


def credible(mean: float, variance: float, confidence: float) -> Interval:
    """The central interval of a posterior on [0, 1]: of the beta distribution with its mean and variance.

    None where the posterior lies so close to an end that its width is lost in the rounding of its mean.
    """
    from scipy.special import betaincinv

    stderr = math.sqrt(variance)
    if stderr <= CERTAIN * max(mean, 1 - mean):
        return Interval(stderr, None, None, NO_WIDTH)
    size = mean * (1 - mean) / variance - 1
    tail = (1 - confidence) / 2
    low, high = (float(betaincinv(mean * size, (1 - mean) * size, q)) for q in (tail, 1 - tail))
    return Interval(stderr, (low, high), "posterior")


def effective_tasks(spread: Spread) -> float:
    """How many 0/1 tasks would carry as much information as these values (at least 1).

    The quarter terms add one unit's worth of the largest possible variance, so that the width never
    falls to zero, however well the values agree.
    """
    m, units = spread.mean, spread.effective_units
    above = m * (1 - m) + spread.variance + 1 / (4 * units)
    return max(1.0, above / (spread.variance + spread.doubt / (4 * units * units)))


def strength(spread: Spread, confidence: float) -> tuple[float, float, str]:
    """The effective number of tasks, the quantile that goes with it, and the name of the pair."""
    effective = effective_tasks(spread)
    steady = spread.effective_units / effective  # r: 1 when all values are 0 or 1
    if steady >= 1 - 1e-9:
        return effective, _normal_quantile(confidence), "wilson"
    freedom = max(1.0, (spread.effective_units - 1) / (1 - steady))
    return effective, _t_quantile(confidence, freedom), "wilson_t"


def _spread(values: Floats, weights: Floats, clusters: Ints | None) -> Spread:
    whole = total(weights)
    share = weights / whole
    mean = float(total(weights * values) / whole)  # exactly 1 when every value is
    pull = share * (values - mean)
    if clusters is None:
        unit_share = share
    else:
        size = int(clusters.max()) + 1
        unit_share, pull = sum_by(clusters, share, size), sum_by(clusters, pull, size)
    units = int(np.count_nonzero(unit_share))
    effective_units = 1 / float(total(unit_share * unit_share))
    effective_tasks = 1 / float(total(share * share))
    variance = units / max(units - 1, 1) * float(total(pull * pull))
    if math.sqrt(variance * effective_units) <= NOISE * float(np.abs(values).max()):
        variance = 0.0  # the values agree; what is left is the rounding of their mean
    return Spread(mean, variance, units, effective_units, (1 + effective_units / effective_tasks) / 2)


def _wilson(mean: float, tasks: float, quantile: float) -> tuple[float, float]:
    shrink = 1 + quantile**2 / tasks
    centre = (mean + quantile**2 / (2 * tasks)) / shrink
    half = quantile / shrink * math.sqrt(max(mean * (1 - mean), 0.0) / tasks + quantile**2 / (4 * tasks**2))
    # at the ends the two halves must cancel to the last bit, and within a rounding error they do not
    lower = 0.0 if mean <= 0 else max(0.0, min(centre - half, mean))
    upper = 1.0 if mean >= 1 else min(1.0, max(centre + half, mean))
    return lower, upper


def _unbounded(spread: Spread, stderr: float, confidence: float) -> Interval:
    if spread.variance == 0:
        return Interval(0.0, None, None, NO_SPREAD)
    half = _t_quantile(confidence, max(1.0, spread.effective_units - 1)) * stderr
    return Interval(stderr, (spread.mean - half, spread.mean + half), "t")


def _normal_quantile(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _t_quantile(confidence: float, freedom: float) -> float:
    """The quantile of Student's t. For many degrees of freedom its expansion around the normal one.

    Abramowitz and Stegun 26.7.5: the first term left out is of order freedom^-5, below the last digit
    here. It spares most scorings the loading of scipy, a fifth of a second.
    """
    if freedom < MANY:
        from scipy.special import stdtrit

        return float(stdtrit(freedom, (1 + confidence) / 2))
    z = _normal_quantile(confidence)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def t_quantile(level: float, freedom: float) -> float:
    """The quantile of Student's t; of the normal distribution where the freedom is infinite."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(level) if math.isinf(freedom) else stdtrit(freedom, level))


def upper_tail(t: float, freedom: float) -> float:
    """The chance of more than t under Student's t, or under the normal distribution."""
    from scipy.special import ndtr, stdtr

    return float(ndtr(-t) if math.isinf(freedom) else stdtr(freedom, -t))


def strength_of(spread: Spread) -> tuple[float, float]:
    """The effective number of 0/1 tasks, and the degrees of freedom that go with it.

    Infinite where that number is the number of units: the variance of 0/1 values follows from their mean.
    """
    tasks = effective_tasks(spread)
    steady = spread.effective_units / tasks
    if steady >= 1 - 1e-9:
        return tasks, math.inf
    return tasks, max(1.0, (spread.effective_units - 1) / (1 - steady))


def wilson_ends(spread: Spread, confidence: float) -> tuple[float, float]:
    """The ends of the default interval on [0, 1]; as `calipers.stats.intervals.interval`, from a spread."""
    m = min(max(spread.mean, 0.0), 1.0)
    n, freedom = strength_of(spread)
    q = t_quantile((1 + confidence) / 2, freedom)
    centre = (m + q * q / (2 * n)) / (1 + q * q / n)
    half = q / (1 + q * q / n) * math.sqrt(m * (1 - m) / n + q * q / (4 * n * n))
    low = 0.0 if m <= 0 else max(0.0, min(centre - half, m))
    high = 1.0 if m >= 1 else min(1.0, max(centre + half, m))
    return low, high


EXTREME = "the extremes of a sample say little about the extremes of its source"
ALL_EQUAL = "the values around the percentile are all equal"
TOO_FEW = "too few tasks: the percentile may lie beyond all that was seen"


def quantile_interval(
    column: Column, by: Groups, q: float, at: float, confidence: float, clusters: Ints | None
) -> Interval:
    """The interval of the q-th percentile, ``at``, of the given values, [R]; samples of a task count together.

    None for the 0th and the 100th, for one task, where the levels leave the data, and where all values
    between them are equal.
    """
    if not 0 < q < 100:
        return Interval(None, None, None, EXTREME)
    values = column.kept()
    n = by.count(column.given)
    below = by.count(column.given & (column.values <= at))
    there = n > 0
    units = None if clusters is None else clusters[there]
    spread = spread_of(below[there] / n[there], n[there].astype(np.float64), (0.0, 1.0), units)
    if spread.units < 2:
        return alone(int(there.sum()), clusters)
    tasks, quantile, _ = strength(spread, confidence)
    half = 100 * quantile * math.sqrt(q / 100 * (1 - q / 100) / tasks)
    if q - half <= 0 or q + half >= 100:
        return Interval(None, None, None, TOO_FEW)
    first, last = percentiles(values, [q - half, q + half]).tolist()
    if not first < last:
        return Interval(None, None, None, ALL_EQUAL)
    return Interval(None, (min(first, at), max(last, at)), "woodruff")
