"""Several runs and several tests: confidence sets of ranks, the corrected value of the winner, adjusted p values.

Of twenty tests without a difference one succeeds at 5 %, and the best of ten equal models looks better than it is. Rank
sets and the corrected value of the winner hold for all runs at once, adjusted p values for all tests. Signs and draws
come from raw bits and sums of integers, so that a seed gives the same answer on every machine, whatever the order of
the tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import NormalDist
from typing import Any

import numpy as np

from calipers.rollouts.column import Bools, Floats, Ints, sum_by, total
from calipers.stats.intervals import NO_SPREAD, NOISE, least_p, spread_of, t_quantile, wilson_ends
from calipers.stats.paired import DRAWS, apart, resampled_sums

MAX_T_BIAS = "max_t_bias"
FLIPS = 2_000  # sign patterns of rank sets
FEW = 12  # up to this many units, all sign patterns are tried
ERROR_DRAWS = 4_000  # joint draws of the runs' errors, for the winner
STEP = 1_024  # units whose signs are in memory at a time
AT_ONCE = 1 << 23  # contributions whose sums under signs are computed at once: 64 MB
UNIFORMS = 64
"""Number of 16-bit uniform numbers whose sum approximates a normal one: its 97.5 % quantile is 0.001 too small."""


@dataclass(frozen=True, slots=True)
class RankSets:
    """Simultaneous confidence sets of the ranks of M runs, 1 the best.

    Every ordered pair has its own test, of the row being better than the column, on the tasks that both have and with
    every missing rollout filled against that claim. Without missing rollouts the test of the column is its mirror.
    """

    low: Ints  # [M] the best rank not ruled out: 1 plus the number of runs shown to be better
    high: Ints  # [M] the worst rank not ruled out
    t: Floats  # [M, M] floored t of the row being better; 0 on the diagonal, and where no common task differs
    critical: float  # the last critical value, of a pair with the most common tasks; infinite if no pair can be shown
    patterns: int  # number of sign patterns tried
    exact: bool  # all patterns were tried
    errors: Floats  # [M, M] the floored standard error of row less column, row at its lowest and column at its highest
    widest: float  # the first critical value, of all pairs at once
    better: Bools  # [M, M] the row is shown to be better than the column
    unseen: Bools  # [M, M] beyond its critical value, but held back: losses not yet seen could explain it
    needed: Floats  # [M, M] the last critical value of each pair, which ``t`` must exceed
    needed_first: Floats  # [M, M] the same of the first step, for intervals
    least: Floats | None = (
        None  # [M, M] the row at its lowest less the column at its highest; None if nothing is missing
    )

    def interval(self, first: int, second: int, difference: float) -> tuple[float, float] | None:
        """The interval of the true difference of two runs, simultaneous with all other pairs; None if it is unknown.

        ``difference`` is that of the observed values of the tasks that both have. With missing rollouts the interval
        reaches from the lower end of the lowest possible difference to the upper end of the highest one. It agrees with
        the verdict: that of a tied pair is extended to contain 0, and that of a pair which only a later step shows to
        differ is cut off at 0.
        """
        needed = float(self.needed_first[first, second])
        below, above = needed * float(self.errors[first, second]), needed * float(self.errors[second, first])
        if not (math.isfinite(below + above) and below + above > 0):
            return None
        below, above = below or above, above or below  # if no task differs under one filling, that shows no error of 0
        lowest, highest, above_0 = difference, difference, difference > 0
        if self.least is not None:
            above_0 = bool(self.least[first, second] > 0)
            lowest = min(lowest, float(self.least[first, second]))
            highest = max(highest, -float(self.least[second, first]))
        low, high = lowest - below, highest + above
        if self.tied[first, second]:
            return min(low, 0.0), max(high, 0.0)
        return (max(low, 0.0), high) if above_0 else (low, min(high, 0.0))

    @property
    def tied(self) -> Bools:
        """Whether two runs are not shown to differ, [M, M]; a run is tied with itself."""
        return np.asarray(~(self.better | self.better.T))

    def missing_decide(self, observed: RankSets) -> Bools:
        """Where the row is better as observed, and is not with the missing rollouts filled against it, [M, M].

        ``observed`` are the rank sets of the observed values.
        """
        return np.asarray(observed.better & ~self.better & (self.t <= self.needed))


def tie_bars(tied: Bools) -> list[tuple[int, int]]:
    """The bars of a critical-difference diagram, (first, last): the longest ranges of runs in which all pairs are tied.

    Runs are in their order. A range inside a longer one is left out, and so is a single run.

    >>> tie_bars(np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=bool))
    [(0, 1), (1, 2)]
    """
    bars: list[tuple[int, int]] = []
    for first in range(len(tied)):
        last = first
        while last + 1 < len(tied) and bool(tied[first : last + 1, last + 1].all()):
            last += 1
        if last > first and not (bars and bars[-1][1] >= last):
            bars.append((first, last))
    return bars


@dataclass(frozen=True, slots=True)
class Winner:
    """The run with the best observed value, and an estimate of its true value, corrected for the selection."""

    run: int  # its index
    observed: float  # the value by which it was selected
    bias: float  # the estimated selection bias of ``observed``; negative if lower is better
    value: float  # observed less bias
    interval: tuple[float, float] | None
    candidates: int  # number of runs that it was selected from
    method: str = MAX_T_BIAS
    why: str | None = None  # why there is no interval


def rank_sets(
    low: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    high: Floats | None = None,
    known: Bools | None = None,
    own: Floats | None = None,
    scores: Floats | None = None,
    barred: Bools | None = None,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = FLIPS,
) -> RankSets:
    """Simultaneous confidence sets for the ranks of M runs, from task values [M, T].

    (Mogstad, Romano, Shaikh and Wilhelm 2024.) ``low`` and ``high`` are the values with every missing rollout at the
    low and at the high end of the range; without ``high`` nothing is missing. ``known`` marks the tasks of each run.
    For every ordered pair the differences are those of the first run at its worst and the second at its best, on the
    tasks that both have, and the pair has its floored t, ``t = D/se_r`` as in `paired`. Under random signs e of the
    units, the same for all runs and pairs, a pair's t is ``|D*|/se*`` with ``D* = sum e c`` and ``se*^2 = G/(G-1) sum
    (e c - W D*)^2``; for units of equal weight that is ``|s| sqrt((G-1)/G)/sqrt(1 - s^2/G)`` with ``s = sum e c /
    sqrt(sum c^2)``. In a pair beyond the ``confidence`` quantile of the largest t the first run is better; the quantile
    is then taken over the other pairs, until no more pairs differ (Romano and Wolf 2005). If the pairs have different
    numbers of units, it is the quantile of the largest s, and every pair has the t of that s as its critical value: a
    few units give t a wider distribution, so that one run with few tasks would hide the order of all others. A run's
    set is ``[1 + runs shown better, M - runs shown worse]``.

    All [M, M]: ``own`` is each pair's own critical value, which a pair must exceed too; ``scores`` is the score of a
    lopsided pair in the direction "row better" (`calipers.stats.claims.unseen`; NaN if it is not lopsided), which must
    reach both critical values; ``barred`` pairs are not ordered. A pair that is held back stays in the quantile, so
    that holding it back makes no other set smaller.

    All tasks of a cluster have the same sign. With 12 units or fewer, all sign patterns are tried. A pair is left out
    of the quantile if no task differs. It is also left out if its units are fewer than those of other pairs, and so few
    that by chance all point one way in more than ``1 - confidence``. The order of the runs decides which unit has which
    sign, so callers sort the runs.

    >>> rows = ["111111111011", "101101101010", "001000001000"]
    >>> values = np.array([[float(value) for value in row] for row in rows])
    >>> sets = rank_sets(values)
    >>> sets.low.tolist(), sets.high.tolist(), round(sets.critical, 6)
    ([1, 1, 2], [2, 3, 3], 2.80306)
    >>> at_best = values.copy()
    >>> at_best[2, [0, 1, 3, 4]] = 1.0  # four rollouts of the last run are missing
    >>> filled = rank_sets(values, high=at_best)
    >>> filled.low.tolist(), round(float(filled.t[0, 2]), 6)
    ([1, 1, 1], 2.699031)
    >>> filled.missing_decide(sets)[0].tolist()
    [False, False, True]
    """
    high = low if high is None else high
    if known is not None:
        low, high = np.where(known, low, 0.0), np.where(known, high, 0.0)
    filled = not np.array_equal(low, high)
    power = max(_exponent(low), _exponent(high))
    low, high = np.ldexp(low, -power), np.ldexp(high, -power)  # so that no square overflows
    if not higher_is_better:
        low, high = -high, -low
    tasks = _Tasks.of(low, high if filled else low, known, weights, clusters)
    if tasks.units < 2:
        raise ValueError(f"{tasks.units} common tasks or clusters; ranks take two or more")
    tests = _PairTests.of(tasks)
    flipped = _Flipped.of(tasks, tests, seed, draws)
    runs = len(low)
    enough = (tests.units == tests.units.max()) | (tests.units >= _fewest_units(confidence))
    active = (tests.squares > 0) & enough
    better = np.zeros((runs, runs), dtype=np.bool_)
    held = better.copy()
    critical, widest = math.inf, math.inf
    needed = needed_first = np.full((runs, runs), math.inf)
    while active.any():
        critical = _order_statistic(flipped.largest(active), confidence)
        needed = _critical_values(critical, tests.units)
        if own is not None:
            needed = np.maximum(needed, own)
        if math.isinf(widest):
            widest, needed_first = critical, needed
        more = active & (tests.t > needed)
        held = np.zeros_like(more) if scores is None else more & (scores < needed)  # NaN is not less
        more &= ~held
        if barred is not None:
            more &= ~barred
        better |= more
        active &= ~(more | more.T)
        if not more.any():
            break
    errors, least = np.ldexp(tests.errors, power), np.ldexp(tests.differences, power)
    if not higher_is_better:
        errors, least = errors.T, least.T
    return RankSets(
        low=1 + better.sum(axis=0),
        high=runs - better.sum(axis=1),
        t=tests.t,
        critical=critical,
        patterns=flipped.patterns,
        exact=tasks.units <= FEW,
        errors=errors,
        widest=widest,
        better=better,
        unseen=held,
        needed=needed,
        needed_first=needed_first,
        least=least if filled else None,
    )


def own_critical(known: Bools, confidence: float) -> Floats:
    """The critical value of each pair tested alone, [M, M], by the number of tasks that both runs have, [M, T]."""
    common = known.astype(np.int64) @ known.T.astype(np.int64)
    counts, place = np.unique(common, return_inverse=True)
    level = (1 + confidence) / 2
    quantiles = np.array([t_quantile(level, max(1.0, count - 1.0)) for count in counts.tolist()])
    return np.asarray(quantiles[place.reshape(common.shape)])


def winner(
    values: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    known: Bools | None = None,
    worst: tuple[Floats, Floats, Bools] | None = None,
    limits: tuple[float, float] | None = None,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = ERROR_DRAWS,
) -> Winner:
    """The best of M runs by their means X over their tasks, [M, T], with an interval that is valid after the selection.

    S are draws of the runs' errors, normal with the covariance of X over units; s is the root of its diagonal. q is the
    quantile of ``max S/s``, ``bias`` the mean of S at the best of ``X + S``. The interval is ``[X - q s, X - bias + z
    s]`` of the winner: the lower end comes from the largest t of all candidates, the upper end from the bias, and it
    always contains X. If the range of the values is known, the lower end is also at most that of the default interval
    with q in place of z, because a run near the end of the range hardly shows its error: among ten equal runs of mean
    0.95 on 100 tasks the first end alone covers in 68 % (4,000 replicates). If no range is known, q and z are Student's
    quantiles at the same levels, with U - 1 degrees of freedom.

    ``known`` marks the tasks of each run; all runs' tasks are samples of the same kind of tasks. The covariance of two
    runs comes from the units that both have. A run with fewer than two units is no candidate.

    ``worst`` is for missing rollouts: the values with all of them at the low end of the range, and at the high end, and
    the planned tasks of each run. The lower end is then that of the winner at its worst, and the upper end that of the
    winner at its best. The upper end is not corrected by the bias, because missing rollouts may have decided which run
    was selected.

    If lower is better, all of this is mirrored. A winner without spread and without a range has no interval.
    """
    sign = 1.0 if higher_is_better else -1.0
    own = np.broadcast_to(np.ones(values.shape[1]) if weights is None else weights, values.shape)  # [M, T]
    if known is not None:
        own, values = np.where(known, own, 0.0), np.where(known, values, 0.0)
    power = _exponent(values)  # values are divided by 2**power so that no square overflows
    scaled = sign * np.ldexp(values, -power)
    pulls, shares = _unit_pulls(scaled, own, clusters)
    units = np.count_nonzero(shares, axis=1)
    candidates = np.flatnonzero(units > 1)
    if not len(candidates):
        raise ValueError(f"{units.max(initial=0)} common tasks or clusters; a winner takes two or more")
    means = np.asarray(total(own * scaled))[candidates] / np.asarray(total(own))[candidates]
    covariance = _covariance(pulls[candidates] - shares[candidates] * means[:, None], units[candidates])
    errors = np.sqrt(np.diag(covariance))
    drawn = _normal_draws(covariance, seed, draws)  # [draws, M]
    best = int(np.argmax(means))
    run = int(candidates[best])
    at_best = drawn[np.arange(draws), np.argmax(means + drawn, axis=1)]
    # subtracting the winner's own errors, which are 0 in the mean, removes noise and keeps the bias at 0 or above
    bias = math.ldexp(float(total(at_best - drawn[:, best])) / draws, power)
    level = (1 + confidence) / 2
    varies = errors > NOISE
    largest_t = (drawn[:, varies] / errors[varies]).max(axis=1) if varies.any() else np.zeros(draws)
    quantiles = max(float(np.quantile(largest_t, level)), NormalDist().inv_cdf(level)), NormalDist().inv_cdf(level)
    ends = _winner_ends(values[run], own[run], clusters, limits, sign, quantiles, bias)
    if worst is not None:
        lowest, highest, planned = (side[run] for side in worst)
        if not np.array_equal(lowest[planned], highest[planned]):
            whole = np.where(planned, 1.0 if weights is None else weights, 0.0)
            low_ends = _winner_ends(np.where(planned, lowest, 0.0), whole, clusters, limits, sign, quantiles)
            high_ends = _winner_ends(np.where(planned, highest, 0.0), whole, clusters, limits, sign, quantiles)
            ends = None if low_ends is None or high_ends is None else (low_ends[0], high_ends[1])
    observed, bias = sign * math.ldexp(float(means[best]), power), sign * bias
    why = NO_SPREAD if ends is None else None
    return Winner(run, observed, bias + 0.0, observed - bias, ends, len(candidates), why=why)


def _winner_ends(
    values: Floats,
    weights: Floats,
    clusters: Ints | None,
    limits: tuple[float, float] | None,
    sign: float,
    quantiles: tuple[float, float],
    bias: float = 0.0,
) -> tuple[float, float] | None:
    """The interval of the selected run from its task values, [T].

    ``quantiles`` are the normal ones of the end away from the best and of the other end, from which the bias is taken.
    """
    power = _exponent(values)
    scaled = sign * np.ldexp(values, -power)
    pulls, shares = _unit_pulls(scaled[None], weights[None], clusters)
    mean = float(total(weights * scaled)) / float(total(weights))
    variance = _covariance(pulls - shares * mean, np.count_nonzero(shares, axis=1))
    error = math.sqrt(float(variance[0, 0]))
    away, toward = quantiles
    if limits is None:  # few units underestimate the error, and no range bounds it: Student's quantiles at these levels
        if error <= NOISE:
            return None
        freedom = max(1.0, 1 / float(total(shares * shares)[0]) - 1)
        away, toward = (t_quantile(NormalDist().cdf(quantile), freedom) for quantile in quantiles)
    worse = sign * math.ldexp(mean - away * error, power)
    better = sign * math.ldexp(max(mean - math.ldexp(bias, -power) + toward * error, mean), power)
    low, high = min(worse, better), max(worse, better)
    if limits is None:
        return low, high
    # clipped to the range, with the worse end at least as far out as that of the default interval
    spread = spread_of(values, weights, limits, clusters)
    wilson = spread.unscaled(wilson_ends(spread, 2 * NormalDist().cdf(quantiles[0]) - 1))
    low, high = (min(low, wilson[0]), high) if sign > 0 else (low, max(high, wilson[1]))
    return max(low, limits[0]), min(high, limits[1])


def _exponent(values: Floats) -> int:
    """The exponent of the smallest power of two above all absolute values."""
    return math.frexp(float(np.abs(values).max(initial=0.0)))[1]


def _unit_pulls(values: Floats, weights: Floats, clusters: Ints | None) -> tuple[Floats, Floats]:
    """The contribution of each unit to each run's mean, and the units' shares, [M, G] each; no units of weight 0."""
    share = weights / np.maximum(np.asarray(total(weights)), np.finfo(float).tiny)[:, None]
    pulls = share * values
    if clusters is not None and len(clusters):
        size = int(clusters.max()) + 1
        pulls = np.stack([sum_by(clusters, row, size) for row in pulls])
        share = np.stack([sum_by(clusters, row, size) for row in share])
    kept = (share > 0).any(axis=0)
    return pulls[:, kept], share[:, kept]


def _fewest_units(confidence: float) -> int:
    """The fewest units that can show a difference by all pointing one way."""
    units = 2
    while least_p(units) > 1 - confidence:
        units += 1
    return units


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The ordered pairs of runs that have the same common tasks."""

    runs: Ints  # [R] the runs in these pairs
    ordered: Bools  # [R, R]
    mask: Bools | None  # [T] their common tasks; None: all

    def columns(self, matrix: Floats | Bools) -> Any:
        """The rows and columns of these runs in a matrix of all runs, [R, R]."""
        return matrix[np.ix_(self.runs, self.runs)]


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The task values of all runs, in an order of the units that does not depend on the order of the tasks."""

    low: Floats  # [M, T] in the direction in which higher is better, 0 where a run does not have the task
    high: Floats  # [M, T] the same array as ``low`` if nothing is missing
    weights: Floats  # [T]
    codes: Ints | None  # [T] the unit of each task; None if each task is a unit
    units: int
    pairs: list[_Pairs]

    @classmethod
    def of(
        cls, low: Floats, high: Floats, known: Bools | None, weights: Floats | None, clusters: Ints | None
    ) -> _Tasks:
        """The tasks that at least two runs have and that have a weight, and the pairs by their common tasks."""
        weights = np.ones(low.shape[1]) if weights is None else weights
        if known is not None:
            weights = np.where(known.sum(axis=0) > 1, weights, 0.0)
        kept = weights > 0
        filled = high is not low
        low, weights = low[:, kept], weights[kept]
        high = high[:, kept] if filled else low
        clusters = None if clusters is None or not len(clusters) else clusters[kept]
        known = None if known is None or known[:, kept].all() else known[:, kept]
        if known is not None:
            low = np.where(known, low, 0.0)
            high = np.where(known, high, 0.0) if filled else low
        codes = None if clusters is None else np.unique(clusters, return_inverse=True)[1].reshape(-1)
        share = weights / max(float(total(weights)), np.finfo(float).tiny)
        keys = [share * low]
        keys += [share * high] if filled else []
        keys += [] if known is None else [share * known]
        columns = np.concatenate([*keys, share[None]])
        units = columns.shape[1]
        if codes is not None:
            units = int(codes.max(initial=-1)) + 1
            columns = np.stack([sum_by(codes, column, units) for column in columns])
        # the first run comes first among the keys of np.lexsort, which are read from the last one
        ahead = len(low)
        order = np.lexsort(np.concatenate([columns[:ahead], columns[-1:], columns[ahead:-1]])[::-1])
        if codes is None:
            low, weights = low[:, order], weights[order]
            high = high[:, order] if filled else low
            known = None if known is None else known[:, order]
        else:
            place = np.empty(units, dtype=np.int64)
            place[order] = np.arange(units)
            codes = place[codes]
        return cls(low, high, weights, codes, units, _pairs_of(len(low), known))

    def pulls(self, pairs: _Pairs) -> tuple[Floats, Floats, Floats]:
        """The contributions of each unit to the low and high means, [R, G] each, and the units' shares, [G]."""
        weights = self.weights if pairs.mask is None else np.where(pairs.mask, self.weights, 0.0)
        share = weights / max(float(total(weights)), np.finfo(float).tiny)
        low = self._by_unit(share * self.low[pairs.runs])
        high = self._by_unit(share * self.high[pairs.runs]) if self.high is not self.low else low
        return low, high, self._by_unit(share[None])[0]

    def _by_unit(self, columns: Floats) -> Floats:
        if self.codes is None:
            return columns
        return np.stack([sum_by(self.codes, column, self.units) for column in columns])


def _pairs_of(runs: int, known: Bools | None) -> list[_Pairs]:
    """All ordered pairs of runs, by the tasks that both have."""
    if known is None:
        return [_Pairs(np.arange(runs), ~np.eye(runs, dtype=np.bool_), None)]
    packed = np.packbits(known, axis=1)
    same: dict[bytes, Bools] = {}
    for first, second in combinations(range(runs), 2):
        ordered = same.setdefault((packed[first] & packed[second]).tobytes(), np.zeros((runs, runs), dtype=np.bool_))
        ordered[first, second] = ordered[second, first] = True
    found = []
    for common, ordered in same.items():
        mask = np.unpackbits(np.frombuffer(common, dtype=np.uint8), count=known.shape[1]).astype(np.bool_)
        inside = np.flatnonzero(ordered.any(axis=1))
        if mask.any():
            found.append(_Pairs(inside, ordered[np.ix_(inside, inside)], mask))
    return found


@dataclass(frozen=True, slots=True)
class _PairTests:
    """The floored t of each ordered pair of runs, and what it is made of, [M, M] each; 0 without two common units."""

    t: Floats
    differences: Floats
    errors: Floats
    squares: Floats  # the sum of the units' squared contributions
    units: Floats  # the effective number of units that both have

    @classmethod
    def of(cls, tasks: _Tasks) -> _PairTests:
        """The tests of all pairs; the mirrored pair is computed too, as its rollouts are filled the other way."""
        runs = len(tasks.low)
        t, differences, errors, squares, units = (np.zeros((runs, runs)) for _ in range(5))
        for pairs in tasks.pairs:
            low, high, shares = tasks.pulls(pairs)
            count = int(np.count_nonzero(shares))
            if count < 2:
                continue
            for row, run in enumerate(pairs.runs.tolist()):
                others = np.flatnonzero(pairs.ordered[row])
                columns = pairs.runs[others]
                gaps = apart(low[row], high[others])  # [K, G]
                value, size = np.asarray(total(gaps)), np.asarray(total(np.abs(gaps)))
                value = np.where(np.abs(value) <= NOISE * size, 0.0, value)
                residuals = gaps - shares * value[:, None]
                variance = count / (count - 1) * np.asarray(total(residuals * residuals))
                error = np.sqrt(variance + (np.abs(gaps).max(axis=1) / 2) ** 2)
                t[run, columns] = np.divide(value, error, out=np.zeros(len(value)), where=error > 0)
                differences[run, columns] = value
                errors[run, columns] = error
                squares[run, columns] = np.asarray(total(gaps * gaps))
                units[run, columns] = _effective_units(shares)
        return cls(t, differences, errors, squares, units)


@dataclass(frozen=True, slots=True)
class _FlippedPairs:
    """The sums under random signs of the runs in pairs with the same common tasks."""

    pairs: _Pairs
    low: Floats  # [R, B] of the units' contributions less those of the first run
    high: Floats  # [R, B] the same array as ``low`` if nothing is missing
    weighted_low: Floats | None  # [R, B] sums of the contributions times the units' shares; None if shares are equal
    weighted_high: Floats | None
    squared_share: float  # the sum of the units' squared shares
    units: int
    effective_units: float

    def raise_to_largest(self, largest: Floats, active: Bools, squares: Floats, most: float) -> None:
        """Raise each pattern's largest squared t so far, [B], to that of the active pairs; ``active`` is [M, M].

        A t of fewer units than ``most`` is first put on the scale of those.
        """
        outstanding = self.pairs.ordered & self.pairs.columns(active)
        if self.high is self.low:
            outstanding = np.triu(outstanding)  # the mirrored pairs have the same squares
        squares = self.pairs.columns(squares)
        of_pairs = np.zeros(len(largest))
        for row in np.flatnonzero(outstanding.any(axis=1)).tolist():
            others = np.flatnonzero(outstanding[row])
            np.maximum(of_pairs, self._squared_t(row, others, squares[row, others]).max(axis=0), out=of_pairs)
        if self.effective_units < most:
            of_pairs = _squared_t_of(_squared_s_of(of_pairs, self.effective_units), most)
        np.maximum(largest, of_pairs, out=largest)

    def _squared_t(self, row: int, others: Ints, squares: Floats) -> Floats:
        """The squared t of a run against others under each pattern, [K, B]; infinite if all flipped units are equal."""
        value = self.low[row] - self.high[others]
        squared_value = value * value
        if self.weighted_low is None or self.weighted_high is None:
            residual = squares[:, None] - squared_value / self.units
        else:
            weighted = self.weighted_low[row] - self.weighted_high[others]
            residual = squares[:, None] - 2 * value * weighted + squared_value * self.squared_share
        equal = residual <= NOISE * squares[:, None]
        unequal = np.where(equal, 1.0, residual)
        return np.where(equal, math.inf, squared_value * ((self.units - 1) / self.units) / unequal)


@dataclass(frozen=True, slots=True)
class _Flipped:
    """Every run's sums under random signs of the units, from which the t of all pairs follow."""

    groups: list[_FlippedPairs]
    squares: Floats  # [M, M] of each pair's differences, which do not depend on the signs
    patterns: int  # B, the number of sign patterns tried
    most: float  # the largest effective number of units of a pair

    @classmethod
    def of(cls, tasks: _Tasks, tests: _PairTests, seed: int, draws: int) -> _Flipped:
        """Sums under all patterns for few units, else under ``draws`` seeded patterns, which are the same for all."""
        patterns = 1 << tasks.units if tasks.units <= FEW else draws
        groups: list[_FlippedPairs] = []
        waiting: list[tuple[_Pairs, Floats, Floats]] = []  # pairs, columns and shares whose sums are outstanding
        size = 0
        for pairs in tasks.pairs:
            low, high, shares = tasks.pulls(pairs)
            if np.count_nonzero(shares) < 2:
                continue
            rows = low if high is low else np.concatenate([low, high])
            columns = apart(rows, low[:1])  # leaves differences of runs unchanged, and loses fewer digits
            columns = np.where(shares > 0, columns, 0.0)
            if not _even(shares):
                columns = np.concatenate([columns, columns * shares])
            waiting.append((pairs, columns, shares))
            size += columns.size
            if size > AT_ONCE:
                groups += _flipped_pairs(waiting, tasks, seed, draws)
                waiting, size = [], 0
        groups += _flipped_pairs(waiting, tasks, seed, draws)
        return cls(groups, tests.squares, patterns, float(tests.units.max()))

    def largest(self, active: Bools) -> Floats:
        """The largest t of the active pairs under each pattern of signs, [B]."""
        largest = np.zeros(self.patterns)
        for group in self.groups:
            group.raise_to_largest(largest, active, self.squares, self.most)
        return np.sqrt(largest)


def _flipped_pairs(
    waiting: Sequence[tuple[_Pairs, Floats, Floats]], tasks: _Tasks, seed: int, draws: int
) -> list[_FlippedPairs]:
    """The sums of several groups of pairs under the same signs, by one product."""
    if not waiting:
        return []
    sums = _signed_sums(np.concatenate([columns for _, columns, _ in waiting]), seed, draws)
    filled = tasks.high is not tasks.low
    found, start = [], 0
    for pairs, columns, shares in waiting:
        of_group = sums[start : start + len(columns)]
        start += len(columns)
        runs = len(pairs.runs)
        low, high = of_group[:runs], of_group[runs : 2 * runs] if filled else of_group[:runs]
        weighted_low = weighted_high = None
        if not _even(shares):
            weighted = of_group[len(columns) // 2 :]
            weighted_low, weighted_high = weighted[:runs], weighted[runs : 2 * runs] if filled else weighted[:runs]
        if not filled:
            high, weighted_high = low, weighted_low
        squared_share, units = float(total(shares * shares)), int(np.count_nonzero(shares))
        effective = _effective_units(shares)
        found.append(_FlippedPairs(pairs, low, high, weighted_low, weighted_high, squared_share, units, effective))
    return found


def _squared_s_of(squared_t: Floats, units: Floats | float) -> Floats:
    """The squared ``s = sum e c / sqrt(sum c^2)`` of squared t values; its variance under random signs is 1.

    It is at most the number of units, which an infinite t has.
    """
    with np.errstate(invalid="ignore"):
        squared_s = units * squared_t / (units - 1 + squared_t)
    return np.where(np.isinf(squared_t), units, squared_s)


def _squared_t_of(squared_s: Floats, units: Floats | float) -> Floats:
    """The squared t of squared s; infinite if s is as large as it can be with so many units, or larger."""
    room = units - squared_s
    return np.where(room > 0, squared_s * (units - 1) / np.where(room > 0, room, 1.0), math.inf)


def _critical_values(critical: float, units: Floats) -> Floats:
    """The critical value of each pair by its units, [M, M], from that of the pairs with the most.

    With few units t has a wider distribution under random signs, and s has not. So pairs share the critical value of s,
    and a pair with few tasks does not raise the value that other pairs need.
    """
    most = float(units.max())
    squared_s = _squared_s_of(np.array(critical * critical), most)
    return np.where(units == most, critical, np.sqrt(_squared_t_of(squared_s, units)))


def _effective_units(shares: Floats) -> float:
    """The number of units of equal weight with the same information; exactly their number if weights are equal."""
    return float(np.count_nonzero(shares)) if _even(shares) else 1 / float(total(shares * shares))


def _even(shares: Floats) -> bool:
    """Whether all units with a share have the same one."""
    positive = shares[shares > 0]
    return bool((positive == positive[0]).all())


def _signed_sums(columns: Floats, seed: int, draws: int) -> Floats:
    """The sums of columns [S, G] under every pattern of signs, or ``draws`` seeded ones, [S, B].

    Columns are rounded to integers whose sums stay below 2^53. Their product with signs is exact, so that the order in
    which a machine adds does not matter.
    """
    units = columns.shape[1]
    powers = np.array([52 - _exponent(column) - units.bit_length() for column in columns])
    integers = np.rint(np.ldexp(columns, powers[:, None]))
    exact = units <= FEW
    sums = np.zeros((len(columns), 1 << units if exact else draws))
    source = np.random.PCG64(seed)
    edges = [*range(0, units, STEP), units]
    for start, stop in pairwise(edges):
        signs = _all_signs(units) if exact else random_signs(source, stop - start, draws)
        sums += integers[:, start:stop] @ signs
    return np.asarray(np.ldexp(sums, -powers[:, None]))


def _all_signs(units: int) -> Floats:
    """Every pattern of signs, [G, 2^G]."""
    return np.asarray(1 - 2 * ((np.arange(1 << units) >> np.arange(units)[:, None]) & 1), dtype=np.float64)


def random_signs(source: np.random.PCG64, units: int, draws: int) -> Floats:
    """Random signs, [G, draws], one per bit of the raw 64-bit output, which no version of numpy may change."""
    words = -(-draws // 64)
    raw = source.random_raw(units * words).astype("<u8", copy=False).view(np.uint8).reshape(units, 8 * words)
    bits = np.unpackbits(raw, axis=1, count=draws, bitorder="little").astype(np.float64)
    return np.asarray(1 - 2 * bits)


def _order_statistic(largest: Floats, confidence: float) -> float:
    """The ceil(confidence B)-th smallest of B values."""
    index = math.ceil(round(confidence * len(largest), 6)) - 1
    return float(np.partition(largest, index)[index])


def _covariance(residuals: Floats, units: Ints) -> Floats:
    """The covariance of the means, [M, M], from the residuals of the runs' units, [M, G], 0 for units of others.

    ``units`` are each run's own, [M]; n - 1 over them. The matrix has no negative eigenvalue.
    """
    runs = len(residuals)
    unbiased = units / (units - 1)
    covariance = np.empty((runs, runs))
    for run in range(runs):
        factors = np.sqrt(unbiased[run] * unbiased[run:])
        covariance[run, run:] = np.asarray(total(residuals[run] * residuals[run:])) * factors
        covariance[run:, run] = covariance[run, run:]
    return covariance


def _normal_draws(covariance: Floats, seed: int, draws: int) -> Floats:
    """Normal numbers with a given covariance, [draws, M].

    The Cholesky root is computed column by column, each sum in a fixed order; a run that is determined by the runs
    before it has a column of zeros.
    """
    runs = len(covariance)
    root = np.zeros((runs, runs))
    for column in range(runs):
        remainder = covariance[column:, column].copy()
        for before in range(column):
            remainder -= root[column:, before] * root[column, before]
        if remainder[0] > NOISE * covariance[column, column]:
            root[column:, column] = remainder / math.sqrt(float(remainder[0]))
    standard = standard_normals(seed, runs, draws)
    correlated = np.zeros((runs, draws))
    for column in range(runs):
        correlated[column:] += root[column:, column, None] * standard[column]
    return np.ascontiguousarray(correlated.T)


def standard_normals(seed: int, runs: int, draws: int) -> Floats:
    """Standard normal numbers, [M, draws], as sums of uniform integers, which are the same on every machine."""
    source = np.random.PCG64(seed)
    normals = np.empty((runs, draws))
    middle = UNIFORMS * (2**16 - 1) / 2
    for run in range(runs):
        raw = source.random_raw(draws * UNIFORMS // 4).astype("<u8", copy=False).view("<u2").reshape(draws, UNIFORMS)
        normals[run] = (raw.sum(axis=1, dtype=np.int64) - middle) / (2**16 * math.sqrt(UNIFORMS / 12))
    return normals


def holm(p: Floats) -> Floats:
    """Holm's adjusted p values, [m]: the smallest p times m, the next times m - 1, never decreasing.

    They control the family-wise error like Bonferroni's, and are never larger (Holm 1979).
    """
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    return _unsorted(order, np.minimum(1.0, np.maximum.accumulate(steps)))


def benjamini_hochberg(p: Floats) -> Floats:
    """Adjusted p values that control the false discovery rate, [m].

    The i-th smallest p times m/i, and never more than the next (Benjamini and Hochberg 1995), for tests that are
    independent or positively dependent.
    """
    order = np.argsort(p, kind="stable")[::-1]
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    return _unsorted(order, np.minimum(1.0, np.minimum.accumulate(steps)))


def sidak(p: float, tests: int) -> float:
    """The Sidak-adjusted p of one of m tests: ``1 - (1 - p)^m`` (Sidak 1967).

    Exact for independent tests, and conservative for normal means with any dependence. An interval at
    confidence^(1/m) agrees with it.

    >>> [round(sidak(p, 3), 6) for p in (0.012, 0.03, 0.2)]
    [0.03557, 0.087327, 0.488]
    """
    return float(-np.expm1(tests * np.log1p(-p))) if p < 1 else 1.0


def _unsorted(order: Ints, adjusted: Floats) -> Floats:
    """Sorted values back in their original order."""
    restored = np.empty(len(order))
    restored[order] = adjusted
    return restored


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranks of M runs on the same tasks, 1 the best, with bootstrap intervals."""

    values: Floats  # [M] means over tasks
    ranks: Floats  # [M] of the values; equal values share their mean rank
    low: Floats  # [M] the best rank of the interval
    high: Floats  # [M] the worst rank of the interval
    chance_best: Floats  # [M] share of draws in which the run is the best; ties are divided
    optimism: float  # the expected selection bias of the best of M equal runs
    best: int  # index of the best run

    @property
    def corrected(self) -> float:
        """The best run's value less the optimism, which is its unbiased value if all runs are equal."""
        return float(self.values[self.best]) - self.optimism


def ranking(
    values: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
) -> Ranking:
    """Rank M runs by their means over T common tasks, from task values [M, T].

    Tasks, or whole clusters, are drawn with replacement, the same for all runs. The interval of a rank is the middle
    ``confidence`` of the draws. The optimism is the mean over draws of the largest of the M deviations from the runs'
    own means: the selection bias of the best of M equal runs. It is an upper bound if some run is clearly the best.
    """
    models = len(values)
    weights = np.ones(values.shape[1]) if weights is None else weights
    columns = np.concatenate([(values * weights).T, weights[:, None]], axis=1)  # [T, M + 1]
    if clusters is not None:
        size = int(clusters.max()) + 1
        columns = np.stack([sum_by(clusters, column, size) for column in columns.T], axis=1)
    columns = columns[columns[:, -1] > 0]
    if len(columns) < 2:
        raise ValueError(f"{len(columns)} common tasks or clusters; ranks take two or more")
    means = np.asarray(total(np.ascontiguousarray(columns.T)))
    means = means[:-1] / means[-1]
    sums = resampled_sums(columns, seed, draws)
    drawn = sums[:, :models] / sums[:, models:]  # [draws, M]
    sign = 1.0 if higher_is_better else -1.0
    ranks = _ranks(sign * drawn)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ranks, [tail, 1 - tail], axis=0)
    first = sign * drawn == (sign * drawn).max(axis=1, keepdims=True)
    best = int(np.argmax(sign * means))
    deviations = sign * (drawn - means)
    # subtracting the mean over runs, which has no optimism, removes its noise
    optimism = float((deviations.max(axis=1) - deviations.mean(axis=1)).mean())
    return Ranking(
        means,
        _ranks((sign * means)[None])[0],
        np.floor(low),
        np.ceil(high),
        (first / first.sum(axis=1, keepdims=True)).mean(axis=0),
        sign * optimism,
        best,
    )


def _ranks(values: Floats) -> Floats:
    """The rank of each value in its row, 1 the largest, [..., M]; equal values share their mean rank."""
    models = values.shape[-1]
    ranks = np.ones(values.shape)
    for other in range(models):
        rival = values[..., other : other + 1]
        ranks += (rival > values) + 0.5 * (rival == values)
    return ranks - 0.5  # each value ties with itself
