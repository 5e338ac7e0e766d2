"""The seeded bootstrap: whole tasks, or whole clusters, drawn again with replacement.

For a ratio of sums (every mean, every pooled rate) 10,000 draws are a gather and a sum of integers;
a metric that nobody can look into is computed anew on at most 1,000 draws. Indices come from the raw
64-bit output of PCG64, which no version of numpy may change, and sums of integers have no rounding
that could depend on their order: one seed, one answer, on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calipers.rollouts.column import Floats, Ints
from calipers.rollouts.sums import total
from calipers.stats.intervals import Interval, alone

DRAWS = 10_000
BLOCK = 100  # draws that share a generator, so that blocks may be drawn in any order
SLICE = 1 << 14  # units drawn at a time: what is held stays in the processor's cache

MOST_CALLS = 1_000
FEWEST_CALLS = 200
MOST_REWARDS = 20_000_000


@dataclass(frozen=True, slots=True)
class Draws:
    """A ratio of sums over units, and the same ratio on every draw of them."""

    value: float
    found: Floats  # [DRAWS], sorted
    sums: Floats  # [G] numerators of the units
    weights: Floats  # [G] denominators

    @property
    def stderr(self) -> float:
        """The standard deviation of the draws; dividing it by the root of their number would be wrong."""
        return _deviation(self.found)


def draw(sums: Floats, weights: Floats, seed: int) -> Draws:
    """``sum of sums / sum of weights`` on DRAWS samples of the G units, each drawn with replacement.

    Units are put in order first, so that the order of tasks does not matter. A unit's chance differs
    from 1/G by less than one part in 2^32/G, as 32 bits choose it.
    """
    order = np.lexsort((weights, sums))
    sums, weights = sums[order], weights[order]
    above, up = _integers(sums)
    below, down = _integers(weights)
    alike = bool((below == below[0]).all())
    ratios = np.empty(DRAWS)
    for number, child in enumerate(np.random.SeedSequence(seed).spawn(DRAWS // BLOCK)):
        start = number * BLOCK
        ratios[start : start + BLOCK] = _block(np.random.PCG64(child), above, None if alike else below)
    if alike:
        ratios /= float(below[0]) * len(below)
    value = float(above.sum()) / float(below.sum())
    shift = down - up
    return Draws(math.ldexp(value, shift), np.sort(np.ldexp(ratios, shift)), sums, weights)


def percentile_ends(draws: Draws, confidence: float) -> tuple[float, float]:
    """The ends between which the middle ``confidence`` of the draws lie."""
    tail = (1 - confidence) / 2
    return _quantile(draws.found, tail), _quantile(draws.found, 1 - tail)


def bca_ends(draws: Draws, confidence: float) -> tuple[float, float] | None:
    """The same, with levels moved for bias and skewness (Efron 1987); None where they move out of sight.

    Bias: the share of draws below the value, those equal to it counted half. Skewness: the jackknife's.
    """
    below, upto = (int(np.searchsorted(draws.found, draws.value, side)) for side in ("left", "right"))
    share = (below + upto) / (2 * len(draws.found))
    left = (total(draws.sums) - draws.sums) / (total(draws.weights) - draws.weights)  # each unit left out once
    pull = float(total(left)) / len(left) - left
    size = float(total(pull * pull)) ** 1.5
    if not 0 < share < 1 or size == 0:  # also of values whose cubes are too small to be numbers
        return None
    normal = NormalDist()
    bias, skew = normal.inv_cdf(share), float(total(pull**3)) / (6 * size)
    levels = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        moved = bias + normal.inv_cdf(tail)
        if 1 - skew * moved <= 0:
            return None
        levels.append(normal.cdf(bias + moved / (1 - skew * moved)))
    return _quantile(draws.found, levels[0]), _quantile(draws.found, levels[1])


def bootstrap(
    compute: Callable[[Sequence[Sequence[float]]], float],
    tasks: Sequence[Sequence[float]],
    confidence: float,
    seed: int,
    clusters: Ints | None = None,
) -> Interval:
    """Percentile interval of an opaque metric: whole tasks are drawn again, with replacement.

    With ``clusters``, [T], whole clusters are drawn.

    At most 1,000 calls and 2*10^7 rewards in all; no interval when fewer than 200 calls fit, or when
    a draw fails. The standard error is the standard deviation of the draws.
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
    return _percentile_interval(values, confidence)


def bootstrap_of_values(
    aggregate: Callable[[Floats], Floats],
    values: Floats,
    units: Ints,
    confidence: float,
    seed: int,
    clustered: bool = False,
) -> Interval:
    """Percentile interval of an aggregate of task values or rollouts, [N] or [N, S]: whole units are drawn again.

    ``units``, [N], says which values are drawn as one; ``clustered`` that they are clusters, not tasks. The rules are
    `bootstrap`'s. Where every unit has one value the draws go to ``aggregate`` together, ``[b, N] -> [b]``.
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
        statistics = _on_draws(aggregate, values, code, drawn)
    except Exception as error:
        return Interval(None, None, None, f"the metric failed on a bootstrap draw: {error}")
    return _percentile_interval(statistics, confidence)


def _on_draws(aggregate: Callable[[Floats], Floats], values: Floats, code: Ints, drawn: Ints) -> Floats:
    """An aggregate on every draw of units, [B]; of values that are their own units, block by block."""
    members = np.argsort(code, kind="stable")
    if len(drawn[0]) == len(values):
        together = max(1, (SLICE * 16) // len(values))
        parts = [aggregate(values[members[drawn[at : at + together]]]) for at in range(0, len(drawn), together)]
        if all(np.ndim(part) == 1 for part in parts) and sum(map(len, parts)) == len(drawn):
            return np.concatenate(parts)
        return np.array([float(aggregate(values[members[row]])) for row in drawn])  # it takes one draw at a time only
    starts = np.concatenate([[0], np.cumsum(np.bincount(code))])
    chosen = ([members[starts[unit] : starts[unit + 1]] for unit in row] for row in drawn.tolist())
    return np.array([float(aggregate(values[np.concatenate(rows)])) for rows in chosen])


def _raw_draws(seed: int, calls: int, units: int) -> Ints:
    """The units of each draw, [calls, units]."""
    # raw 64-bit output: numpy may change how it makes integers of it, but not the output itself
    raw = np.random.PCG64(seed).random_raw(calls * units)
    return (raw % np.uint64(units)).astype(np.int64).reshape(calls, units)


def _percentile_interval(draws: Floats, confidence: float) -> Interval:
    """The middle of the draws, [B], and their standard deviation; or why there is none."""
    if not np.isfinite(draws).all():
        return Interval(None, None, None, "the metric is not a number on some bootstrap draws")
    stderr = _deviation(draws)
    if stderr == 0:
        return Interval(0.0, None, None, "every bootstrap draw gives the same number")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(draws, [tail, 100 - tail]).tolist()
    return Interval(stderr, (low, high), "bootstrap")


def _units(tasks: int, clusters: Ints | None) -> list[list[int]]:
    """What is drawn as one: the tasks of each cluster, or each task by itself."""
    if clusters is None:
        return [[task] for task in range(tasks)]
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order])) + 1
    return [part.tolist() for part in np.split(order, starts)]


def _block(source: np.random.PCG64, above: Ints, below: Ints | None) -> Floats:
    """The sums, or the ratios of sums, of BLOCK draws."""
    units = len(above)
    words = (units + 1) // 2  # each gives two numbers of 32 bits
    rows = max(1, SLICE // units)
    ratios = np.empty(BLOCK)
    for start in range(0, BLOCK, rows):
        some = min(rows, BLOCK - start)
        raw = source.random_raw(some * words).astype("<u8", copy=False).view("<u4").reshape(some, 2 * words)
        chosen = raw[:, :units].astype(np.uint64)
        chosen *= np.uint64(units)  # multiply and shift: a number below 2^32 becomes one below G
        chosen >>= np.uint64(32)
        index = chosen.view(np.int64)
        part = above.take(index, mode="clip").sum(axis=1).astype(np.float64)
        if below is not None:
            part /= below.take(index, mode="clip").sum(axis=1)
        ratios[start : start + some] = part
    return ratios


def _integers(values: Floats) -> tuple[Ints, int]:
    """The values times two to some power, as integers of which G add up below 2^62, and that power."""
    biggest = float(np.abs(values).max())
    power = 61 - math.frexp(biggest)[1] - len(values).bit_length()
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
