"""Intervals: the default rule, the seeded bootstrap, and the methods that can be requested by name.

The default is Wilson's interval with an effective number of tasks and a t quantile: one closed form for every weighted
mean of task values on a known range. It is exactly Wilson's interval if every value is 0 or 1, approaches the t
interval as the values move away from the ends, never has zero width and never leaves the range. Without a range the
default is the t interval over tasks.

The bootstrap resamples whole tasks, or whole clusters, with replacement. A ratio of sums (every mean, every pooled
rate) is computed on 10,000 draws from sums of integers; any other aggregate is computed anew on at most 1,000 draws.
Indices come from the raw 64-bit output of PCG64, which no version of numpy may change, and sums of integers do not
depend on their order, so that a seed gives the same answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import NormalDist
from typing import Final

import numpy as np

from calipers.metrics import percentiles
from calipers.rollouts.column import Column, Floats, Groups, Ints, sum_by, total
from calipers.stats.sequence import Ends, population

ONE_TASK = "one task says nothing about others"
ONE_CLUSTER = "one cluster says nothing about others"
NO_SPREAD = "no spread and no known range"
NO_WIDTH = "the posterior is narrower than the rounding of its mean"
CERTAIN = 1e-14  # a posterior whose deviation is a smaller share of its mean has no computable width
NOISE = 1e-14  # a spread below this share of the largest value is rounding of the values themselves
MANY = 2_000  # degrees of freedom from which the expansion of the t quantile is exact to the last digit


@dataclass(frozen=True, slots=True)
class Interval:
    """A standard error and an interval, or why there is no interval."""

    stderr: float | None
    ends: Ends | None
    method: str | None
    why: str | None = None
    spread: Spread | None = field(default=None, compare=False, repr=False)  # set by the default rule on a range


@dataclass(frozen=True, slots=True)
class Spread:
    """The summary of weighted task values that intervals need, on the scale where the range is [0, 1]."""

    mean: float  # m
    variance: float  # se squared, n-1 over units
    units: int  # G, units (tasks or clusters) with a weight above 0
    effective_units: float  # U, 1 / sum of squared unit shares
    doubt: float  # delta, (1 + U / effective tasks) / 2: 1 without clusters
    limits: Ends  # the range; (0, 1), the values' own scale, if none is known

    @property
    def stderr(self) -> float:
        """The standard error of the mean on the scale of the values."""
        return (self.limits[1] - self.limits[0]) * math.sqrt(self.variance)

    def unscaled(self, ends: Ends) -> Ends:
        """Ends on [0, 1], mapped to the scale of the values."""
        low, high = self.limits
        return low + (high - low) * ends[0], low + (high - low) * ends[1]


def interval(
    values: Floats,
    weights: Floats,
    confidence: float,
    limits: Ends | None = None,
    clusters: Ints | None = None,
) -> Interval:
    """The default interval of a weighted mean of task values, [T].

    ``limits`` is the range that the values cannot leave, None if unknown; ``clusters`` is the number of each task's
    cluster. One task or one cluster gives no interval.
    """
    return named_interval("default", Weighted(values, weights, limits, clusters, confidence))


def alone(tasks: int, clusters: Ints | None) -> Interval:
    """The absent interval of a single task or a single cluster."""
    return Interval(None, None, None, ONE_TASK if clusters is None or tasks < 2 else ONE_CLUSTER)


def spread_of(values: Floats, weights: Floats, limits: Ends | None = None, clusters: Ints | None = None) -> Spread:
    """The summary of weighted task values, [T]; on their own scale if no range is known."""
    low, high = limits if limits else (0.0, 1.0)
    values = (values - low) / (high - low)
    weight = total(weights)
    share = weights / weight
    mean = float(total(weights * values) / weight)  # exactly 1 if every value is
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
    return Spread(mean, variance, units, effective_units, (1 + effective_units / effective_tasks) / 2, (low, high))


def largest_share(values: Floats, weights: Floats, clusters: Ints | None = None) -> tuple[int, float]:
    """The unit with the largest share of the variance of a weighted mean, and that share, 0 to 1.

    ``(w_g e_g)^2 / sum (w_g e_g)^2`` for units g, tasks or clusters, that lie e_g from the mean; 0 if there is no
    spread.
    """
    weight = total(weights)
    pull = weights / weight * (values - float(total(weights * values) / weight))
    if clusters is not None:
        pull = sum_by(clusters, pull, int(clusters.max()) + 1)
    largest = float(np.abs(pull).max())
    if largest == 0 or float(np.abs(values - values[0]).max()) <= NOISE * float(np.abs(values).max()):
        return 0, 0.0  # the values agree; what is left is the rounding of their mean
    squares = (pull / largest) ** 2
    unit = int(np.argmax(squares))
    return unit, float(squares[unit] / total(squares))


def binomial_size(spread: Spread, confidence: float) -> float:
    """The number of 0/1 tasks, n', for which an interval for counts of passes has the width that the spread requires.

    ``n' = n_eff (z/q)^2``, with the normal quantile z in place of the t quantile q; the interval is taken on m n'
    passes of n' tasks. n' is the number of tasks itself if every value is 0 or 1.
    """
    effective, quantile, _ = strength(spread, confidence)
    return effective * (_normal_quantile(confidence) / quantile) ** 2


def t_half_width(spread: Spread, confidence: float) -> float:
    """Half the width of the t interval, ``t(U - 1) se`` with at least one degree of freedom."""
    return _t_quantile(confidence, max(1.0, spread.effective_units - 1)) * math.sqrt(spread.variance)


def credible(mean: float, variance: float, confidence: float) -> Interval:
    """The central interval of a posterior on [0, 1], computed from the beta distribution with its mean and variance.

    No interval if the posterior lies so close to 0 or 1 that its width is lost in the rounding of its mean.
    """
    from scipy.special import betaincinv

    stderr = math.sqrt(variance)
    if stderr <= CERTAIN * max(mean, 1 - mean):
        return Interval(stderr, None, None, NO_WIDTH)
    size = mean * (1 - mean) / variance - 1
    tail = (1 - confidence) / 2
    low, high = (float(betaincinv(mean * size, (1 - mean) * size, q)) for q in (tail, 1 - tail))
    return Interval(stderr, (low, high), "posterior")


def strength(spread: Spread, confidence: float) -> tuple[float, float, str]:
    """The effective number of tasks, the quantile for it, and the name of the method: "wilson" or "wilson_t"."""
    effective, freedom = strength_of(spread)
    if math.isinf(freedom):
        return effective, _normal_quantile(confidence), "wilson"
    return effective, _t_quantile(confidence, freedom), "wilson_t"


def _wilson(mean: float, tasks: float, quantile: float) -> Ends:
    shrink = 1 + quantile**2 / tasks
    centre = (mean + quantile**2 / (2 * tasks)) / shrink
    half = quantile / shrink * math.sqrt(max(mean * (1 - mean), 0.0) / tasks + quantile**2 / (4 * tasks**2))
    # for a mean of 0 or 1, centre and half must cancel exactly, which rounding errors prevent
    lower = 0.0 if mean <= 0 else max(0.0, min(centre - half, mean))
    upper = 1.0 if mean >= 1 else min(1.0, max(centre + half, mean))
    return lower, upper


def _normal_quantile(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _t_quantile(confidence: float, freedom: float) -> float:
    """The two-sided quantile of Student's t; for many degrees of freedom, its expansion around the normal quantile.

    Abramowitz and Stegun 26.7.5: the first term left out is of order freedom^-5, below the last digit here. The
    expansion makes it unnecessary to load scipy, which takes a fifth of a second.
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
    """The quantile of Student's t, or of the normal distribution if the degrees of freedom are infinite."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(level) if math.isinf(freedom) else stdtrit(freedom, level))


def upper_tail(t: float, freedom: float) -> float:
    """The chance of a value above t under Student's t, or under the normal distribution for infinite freedom."""
    from scipy.special import ndtr, stdtr

    return float(ndtr(-t) if math.isinf(freedom) else stdtr(freedom, -t))


def strength_of(spread: Spread) -> tuple[float, float]:
    """The effective number of 0/1 tasks, and the degrees of freedom of its t quantile.

    The first is the number of 0/1 tasks with as much information as these values (at least 1). Its ``1/(4 U)`` terms
    add one unit's worth of the largest possible variance, so that the width is never zero, however well the values
    agree. The second is infinite if the first is the number of units, because the variance of 0/1 values follows from
    their mean.
    """
    m, units = spread.mean, spread.effective_units
    above = m * (1 - m) + spread.variance + 1 / (4 * units)
    tasks = max(1.0, above / (spread.variance + spread.doubt / (4 * units * units)))
    steady = spread.effective_units / tasks  # r: 1 when all values are 0 or 1
    if steady >= 1 - 1e-9:
        return tasks, math.inf
    return tasks, max(1.0, (spread.effective_units - 1) / (1 - steady))


def wilson_ends(spread: Spread, confidence: float, mean: float | None = None) -> Ends:
    """The ends of the default interval on [0, 1], as in `interval`, around the spread's mean or around ``mean``."""
    m = min(max(spread.mean if mean is None else mean, 0.0), 1.0)
    n, freedom = strength_of(spread)
    q = t_quantile((1 + confidence) / 2, freedom)
    centre = (m + q * q / (2 * n)) / (1 + q * q / n)
    half = q / (1 + q * q / n) * math.sqrt(m * (1 - m) / n + q * q / (4 * n * n))
    low = 0.0 if m <= 0 else max(0.0, min(centre - half, m))
    high = 1.0 if m >= 1 else min(1.0, max(centre + half, m))
    return low, high


EXTREME = "the extremes of a sample say little about the extremes of its source"
ALL_EQUAL = "the values around the percentile are all equal"
INFINITE = "the values around the percentile are not all finite"
TOO_FEW = "too few tasks: the percentile may lie beyond all that was seen"


def quantile_interval(
    column: Column, by: Groups, q: float, at: float, confidence: float, clusters: Ints | None
) -> Interval:
    """Woodruff's interval of the q-th percentile, ``at``, of the given values, [R], with tasks or clusters as units.

    The interval of the share of values up to ``at`` gives two levels around q; the percentiles at these levels are the
    ends. No interval for the 0th and the 100th percentile, for a single unit, if a level leaves the data, or if all
    values between the levels are equal.
    """
    if not 0 < q < 100:
        return Interval(None, None, None, EXTREME)
    values = column.kept()
    n = by.count(column.given)
    below = by.count(column.given & (column.values <= at))
    nonempty = n > 0
    units = None if clusters is None else clusters[nonempty]
    spread = spread_of(below[nonempty] / n[nonempty], n[nonempty].astype(np.float64), (0.0, 1.0), units)
    if spread.units < 2:
        return alone(int(nonempty.sum()), clusters)
    tasks, quantile, _ = strength(spread, confidence)
    half = 100 * quantile * math.sqrt(q / 100 * (1 - q / 100) / tasks)
    if q - half <= 0 or q + half >= 100:
        return Interval(None, None, None, TOO_FEW)
    first, last = percentiles(values, [q - half, q + half]).tolist()
    if not (math.isfinite(first) and math.isfinite(last)):
        return Interval(None, None, None, INFINITE)
    if not first < last:
        return Interval(None, None, None, ALL_EQUAL)
    return Interval(None, (min(first, at), max(last, at)), "woodruff")


DRAWS = 10_000
BLOCK = 100  # draws per generator: blocks are independent of each other, so that they may be drawn in any order
SLICE = 1 << 14  # units drawn at a time, so that the arrays stay in the processor's cache

MOST_CALLS = 1_000  # of an aggregate without a closed form; see `bootstrap`
FEWEST_CALLS = 200
MOST_REWARDS = 20_000_000


@dataclass(frozen=True, slots=True)
class Draws:
    """A ratio of sums over units, and the same ratio on every bootstrap draw of the units."""

    value: float
    ratios: Floats  # [DRAWS], sorted
    sums: Floats  # [G] numerators of the units
    weights: Floats  # [G] denominators

    @property
    def stderr(self) -> float:
        """The standard deviation of the draws, which is not to be divided by the root of their number."""
        return _deviation(self.ratios)


def draw(sums: Floats, weights: Floats, seed: int) -> Draws:
    """``sum of sums / sum of weights`` on DRAWS samples of the G units, each drawn with replacement.

    Units are sorted first, so that the order of tasks does not matter. The draws are `unit_draws`.
    """
    order = np.lexsort((weights, sums))
    sums, weights = sums[order], weights[order]
    numerators, numerator_power = scaled_integers(sums)
    denominators, denominator_power = scaled_integers(weights)
    equal_weights = bool((denominators == denominators[0]).all())
    ratios, start = np.empty(DRAWS), 0
    for index in unit_draws(len(numerators), seed, DRAWS):
        part = numerators.take(index, mode="clip").sum(axis=1).astype(np.float64)
        if not equal_weights:
            part /= denominators.take(index, mode="clip").sum(axis=1)
        ratios[start : start + len(part)] = part
        start += len(part)
    if equal_weights:
        ratios /= float(denominators[0]) * len(denominators)
    value = float(numerators.sum()) / float(denominators.sum())
    shift = denominator_power - numerator_power
    return Draws(math.ldexp(value, shift), np.sort(np.ldexp(ratios, shift)), sums, weights)


def percentile_ends(draws: Draws, confidence: float) -> Ends:
    """The ends between which the middle ``confidence`` of the draws lie."""
    tail = (1 - confidence) / 2
    return _quantile(draws.ratios, tail), _quantile(draws.ratios, 1 - tail)


LARGEST_CUBED = 1e90  # the cube of a number up to here is finite, and so is a sum of many such cubes


def bca_ends(draws: Draws, confidence: float) -> Ends | None:
    """The ends of the BCa interval: percentile levels corrected for bias and skewness (Efron 1987).

    The bias comes from the share of draws below the value, with draws equal to it counted half; the skewness comes
    from the jackknife. None if the corrected levels lie outside 0 to 1.
    """
    below, upto = (int(np.searchsorted(draws.ratios, draws.value, side)) for side in ("left", "right"))
    share = (below + upto) / (2 * len(draws.ratios))
    jackknife = (total(draws.sums) - draws.sums) / (total(draws.weights) - draws.weights)  # each unit left out once
    pull = float(total(jackknife)) / len(jackknife) - jackknife
    largest = float(np.abs(pull).max())
    if largest > LARGEST_CUBED:
        pull = np.ldexp(pull, -math.frexp(largest)[1])  # the skewness does not depend on their scale
    size = float(total(pull * pull)) ** 1.5
    if not 0 < share < 1 or size == 0:  # the size is also 0 if the cubes of the values underflow
        return None
    normal = NormalDist()
    bias, skew = normal.inv_cdf(share), float(total(pull**3)) / (6 * size)
    levels = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        moved = bias + normal.inv_cdf(tail)
        if 1 - skew * moved <= 0:
            return None
        levels.append(normal.cdf(bias + moved / (1 - skew * moved)))
    return _quantile(draws.ratios, levels[0]), _quantile(draws.ratios, levels[1])


def bootstrap(
    compute: Callable[[Sequence[Sequence[float]]], float],
    tasks: Sequence[Sequence[float]],
    confidence: float,
    seed: int,
    clusters: Ints | None = None,
    value: float | None = None,
) -> Interval:
    """Percentile interval of an opaque metric, from whole tasks, or whole clusters, drawn with replacement.

    ``clusters``, [T], is the number of each task's cluster; ``value`` is the metric of these tasks, if it is known.
    ``compute`` is called at most 1,000 times, on at most 2*10^7 rewards in all. No interval if that allows fewer than
    200 calls, if a draw fails, for an extreme (`one_sided`), or for five units or fewer at 95 % (`least_p`). The
    standard error is the standard deviation of the draws.
    """
    units = _units(len(tasks), clusters)
    if len(units) < 2:
        return alone(len(tasks), clusters)
    calls = min(MOST_CALLS, MOST_REWARDS // max(1, sum(map(len, tasks))))
    if calls < FEWEST_CALLS:
        return Interval(None, None, None, f"too many rewards to draw {FEWEST_CALLS} times")
    drawn = _raw_draws(seed, calls, len(units))
    values = np.empty(calls)
    for number, rows in enumerate(drawn.tolist()):
        try:
            values[number] = compute([tasks[task] for row in rows for task in units[row]])
        except Exception as error:
            return Interval(None, None, None, f"the metric failed on a bootstrap draw: {error}")
    seen = compute(tasks) if value is None else value
    return _percentile_interval(seen, values, confidence, len(units), clusters is not None)


def bootstrap_of_values(
    aggregate: Callable[[Floats], Floats],
    values: Floats,
    units: Ints,
    confidence: float,
    seed: int,
    clustered: bool = False,
) -> Interval:
    """Percentile interval of an aggregate of task values or rollouts, [N] or [N, S], from a bootstrap over units.

    ``units``, [N], is the number of each value's unit; ``clustered`` says that units are clusters, not tasks. The
    rules are those of `bootstrap`. If every unit has one value, many draws go to ``aggregate`` in one call,
    ``[b, N] -> [b]``.
    """
    code = np.unique(units, return_inverse=True)[1]
    count = int(code.max()) + 1
    if count < 2:
        return alone(len(values), units if clustered else None)
    calls = min(MOST_CALLS, MOST_REWARDS // len(values))
    if calls < FEWEST_CALLS:
        return Interval(None, None, None, f"too many values to draw {FEWEST_CALLS} times")
    drawn = _raw_draws(seed, calls, count)
    try:
        seen = float(aggregate(values))
        statistics = _on_draws(aggregate, values, code, drawn)
    except Exception as error:
        return Interval(None, None, None, f"the metric failed on a bootstrap draw: {error}")
    return _percentile_interval(seen, statistics, confidence, count, clustered)


def _on_draws(aggregate: Callable[[Floats], Floats], values: Floats, code: Ints, drawn: Ints) -> Floats:
    """An aggregate on every draw of units, [B]; many draws per call if each unit has one value."""
    members = np.argsort(code, kind="stable")
    if len(drawn[0]) == len(values):
        together = max(1, (SLICE * 16) // len(values))
        parts = [aggregate(values[members[drawn[at : at + together]]]) for at in range(0, len(drawn), together)]
        if all(np.ndim(part) == 1 for part in parts) and sum(map(len, parts)) == len(drawn):
            return np.concatenate(parts)
        return np.array([float(aggregate(values[members[row]])) for row in drawn])  # not vectorised: a draw per call
    starts = np.concatenate([[0], np.cumsum(np.bincount(code))])
    chosen = ([members[starts[unit] : starts[unit + 1]] for unit in row] for row in drawn.tolist())
    return np.array([float(aggregate(values[np.concatenate(rows)])) for rows in chosen])


def _raw_draws(seed: int, calls: int, units: int) -> Ints:
    """The units of each draw, [calls, units]."""
    # numpy may change how it makes integers of the raw 64-bit output, but not the output itself
    raw = np.random.PCG64(seed).random_raw(calls * units)
    return (raw % np.uint64(units)).astype(np.int64).reshape(calls, units)


ONE_SIDED = "all bootstrap draws lie on one side of the value, as for the extremes of a sample"
AGREE = "the draws agree at this confidence"


def _percentile_interval(value: float, draws: Floats, confidence: float, units: int, clustered: bool) -> Interval:
    """The percentile interval of draws, [B], of ``units`` units, with their deviation; or why there is none.

    There is none for an extreme, see `one_sided`.
    """
    if not np.isfinite(draws).all():
        return Interval(None, None, None, "the metric is not a number on some bootstrap draws")
    stderr = _deviation(draws)
    if stderr == 0:
        return Interval(0.0, None, None, "every bootstrap draw gives the same number")
    if least_p(units) > 1 - confidence:  # the draws of so few units never reach beyond the units' own values
        few = f"{units} {'clusters' if clustered else 'tasks'}"
        why = f"no interval at {100 * confidence:g} % from {few}, which may all point one way by chance"
        return Interval(stderr, None, None, why)
    if one_sided(value, draws):
        return Interval(None, None, None, ONE_SIDED)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(draws, [tail, 100 - tail]).tolist()
    return Interval(stderr, (low, high), "bootstrap") if low < high else Interval(stderr, None, None, AGREE)


def one_sided(value: float, draws: Floats) -> bool:
    """Whether draws, [B], vary, and all lie on one side of the value of the sample, as those of an extreme do.

    The largest value of a draw is never larger than that of the sample, and equals it in most draws. So draws say
    nothing of the extreme of the population.
    """
    return bool(draws.min() < draws.max() and (value <= draws.min() or value >= draws.max()))


def least_p(units: int) -> float:
    """The chance that all ``units`` units point the same way if both ways are equally likely: the smallest p value."""
    return float(2.0 ** (1 - units))


def _units(tasks: int, clusters: Ints | None) -> list[list[int]]:
    """The tasks of each bootstrap unit: those of each cluster, or each task by itself."""
    if clusters is None:
        return [[task] for task in range(tasks)]
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order])) + 1
    return [part.tolist() for part in np.split(order, starts)]


def unit_draws(units: int, seed: int, draws: int) -> Iterator[Ints]:
    """Yield the units of each draw, a few draws at a time, [b, G].

    Each block of 100 draws has its own generator. Units are chosen by 32 bits, so that a unit's chance differs from
    1/G by less than one part in 2^32/G.
    """
    words = (units + 1) // 2  # each gives two numbers of 32 bits
    rows = max(1, SLICE // units)
    for number, child in enumerate(np.random.SeedSequence(seed).spawn(-(-draws // BLOCK))):
        source = np.random.PCG64(child)
        block = min(BLOCK, draws - number * BLOCK)
        for start in range(0, block, rows):
            size = min(rows, block - start)
            # numpy may change how it makes numbers of the raw 64-bit output, but not the output itself
            raw = source.random_raw(size * words).astype("<u8", copy=False).view("<u4").reshape(size, 2 * words)
            chosen = raw[:, :units].astype(np.uint64)
            chosen *= np.uint64(units)  # multiply and shift: a number below 2^32 becomes one below G
            chosen >>= np.uint64(32)
            yield chosen.view(np.int64)


def scaled_integers(values: Floats) -> tuple[Ints, int]:
    """The G values times ``2**power``, rounded to integers whose sum stays below 2^62, and ``power``."""
    largest = float(np.abs(values).max())
    power = 61 - math.frexp(largest)[1] - len(values).bit_length()
    return np.rint(np.ldexp(values, power)).astype(np.int64), power


def _quantile(ordered: Floats, level: float) -> float:
    """The quantile of sorted draws, by linear interpolation between two of them."""
    position = level * (len(ordered) - 1)
    first = min(int(position), len(ordered) - 2)
    low, high = ordered[first : first + 2].tolist()
    return float(low + (position - first) * (high - low))


def _deviation(draws: Floats) -> float:
    centre = math.fsum(draws) / len(draws)
    return math.sqrt(math.fsum((draws - centre) ** 2) / (len(draws) - 1))


@dataclass(frozen=True, slots=True)
class Weighted:
    """A weighted mean of task values, with the settings of its interval."""

    values: Floats  # [T]
    weights: Floats  # [T]
    limits: Ends | None = None  # the range that the values cannot leave
    clusters: Ints | None = None  # [T] the unit each task belongs to
    confidence: float = 0.95
    seed: int = 0


Method = Callable[[str, Weighted, Spread], Interval]
"""``method(name, weighted, spread)``, called only for two units or more."""


def named_interval(name: str, weighted: Weighted) -> Interval:
    """The interval with the method ``name`` ("default" for the default rule), or why there is none.

    No method has an interval for a single task or a single cluster.
    """
    spread = spread_of(weighted.values, weighted.weights, weighted.limits, weighted.clusters)
    if spread.units < 2:
        return alone(len(weighted.values), weighted.clusters)
    return (_by_default if name == "default" else METHODS[name])(name, weighted, spread)


def _by_default(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """Wilson's interval if the range is known, else Student's."""
    if weighted.limits is not None:
        return default_of(spread, weighted.confidence)
    if spread.variance == 0:
        return Interval(0.0, None, None, NO_SPREAD)
    half = t_half_width(spread, weighted.confidence)
    return Interval(spread.stderr, (spread.mean - half, spread.mean + half), "t")


def default_of(spread: Spread, confidence: float) -> Interval:
    """The default interval on a known range."""
    effective, quantile, method = strength(spread, confidence)
    return Interval(spread.stderr, spread.unscaled(_wilson(spread.mean, effective, quantile)), method, spread=spread)


def _wilson_only(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """The default rule on a known range, and no interval without a range."""
    return _no_range(name, spread) if weighted.limits is None else default_of(spread, weighted.confidence)


def _t(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """``m +- t(U - 1) se``, clipped to the range if it is known."""
    half = t_half_width(spread, weighted.confidence)
    low, high = spread.mean - half, spread.mean + half
    if spread.variance == 0 or low >= high:
        return _no_spread(name, weighted)
    if weighted.limits is not None:
        low, high = max(low, 0.0), min(high, 1.0)
    return Interval(spread.stderr, spread.unscaled((low, high)), name)


def _beta(name: str, weighted: Weighted, spread: Spread, prior: float, opposite_prior: float) -> Interval:
    """Quantiles of two beta distributions for x = m n' passes of n' tasks (`binomial_size`).

    The lower end is a quantile of ``Beta(x + prior, n' - x + opposite_prior)``, the upper end its mirror image.
    """
    if weighted.limits is None:
        return _no_range(name, spread)
    tasks, m, tail = binomial_size(spread, weighted.confidence), spread.mean, (1 - weighted.confidence) / 2
    passes, fails = max(m, 0.0) * tasks, max(1 - m, 0.0) * tasks
    low = _beta_quantile(passes + prior, fails + opposite_prior, tail)
    high = 1 - _beta_quantile(fails + prior, passes + opposite_prior, tail)
    if name != "beta":  # a credible interval with a uniform prior may exclude a mean of 0 or 1
        low, high = min(low, m), max(high, m)
    return Interval(spread.stderr, spread.unscaled((low, high)), name)


def _bootstrap(name: str, weighted: Weighted, spread: Spread, ends: Callable[[Draws, float], Ends | None]) -> Interval:
    """The bootstrap interval of the mean over tasks, or clusters; the standard error is the deviation of the draws."""
    if spread.variance == 0:
        return _no_spread(name, weighted)
    weights, sums = weighted.weights, weighted.weights * weighted.values
    value = float(total(sums) / total(weights))
    if weighted.clusters is not None:
        size = int(weighted.clusters.max()) + 1
        weights, sums = (sum_by(weighted.clusters, column, size) for column in (weights, sums))
    draws = draw(sums[weights > 0], weights[weights > 0], weighted.seed)
    drawn_ends = ends(draws, weighted.confidence)
    if drawn_ends is None:
        return Interval(draws.stderr, None, None, f"the draws are too skewed for {name}")
    least, most = float(weighted.values.min()), float(weighted.values.max())
    low, high = min(max(drawn_ends[0], least), value), max(min(drawn_ends[1], most), value)
    if low >= high:
        return Interval(draws.stderr, None, None, AGREE)
    return Interval(draws.stderr, (low, high), name)


def _sequence(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """The beta mixture of equally weighted tasks, valid for any stopping rule that fixed their number."""
    if weighted.limits is None:
        return _no_range(name, spread)
    if weighted.clusters is not None or weighted.weights.min() != weighted.weights.max():
        return Interval(spread.stderr, None, None, f"{name} needs tasks that count alike, and no clusters")
    low, high = weighted.limits
    passes, tasks = float(total((weighted.values - low) / (high - low))), len(weighted.values)
    ends = population(min(max(passes, 0.0), float(tasks)), tasks, weighted.confidence)
    return Interval(spread.stderr, spread.unscaled(ends), name)


def _beta_quantile(a: float, b: float, tail: float) -> float:
    from scipy.special import betaincinv

    return float(betaincinv(a, b, tail)) if a > 0 else 0.0


def needs_range(name: str) -> str:
    """The reason why a method has no interval for values of unknown range."""
    return f"{name} needs a known range; t, bootstrap and bca do not"


def _no_range(name: str, spread: Spread) -> Interval:
    return Interval(spread.stderr, None, None, needs_range(name))


def _no_spread(name: str, weighted: Weighted) -> Interval:
    units = "task values" if weighted.clusters is None else "clusters"
    return Interval(0.0, None, None, f"all {units} agree, and {name} has no width without spread")


METHODS: Final[Mapping[str, Method]] = {
    "wilson": _wilson_only,
    "t": _t,
    "clopper-pearson": partial(_beta, prior=0.0, opposite_prior=1.0),
    "jeffreys": partial(_beta, prior=0.5, opposite_prior=0.5),
    "beta": partial(_beta, prior=1.0, opposite_prior=1.0),
    "bootstrap": partial(_bootstrap, ends=percentile_ends),
    "bca": partial(_bootstrap, ends=bca_ends),
    "beta_mixture": _sequence,
}
"""The methods that can be requested by name; `stats/cards.toml` describes them."""
