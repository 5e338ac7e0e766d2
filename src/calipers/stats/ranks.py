"""Several runs and several tests: confidence sets of ranks, the corrected value of the winner, adjusted p values.

Of twenty tests without a difference one succeeds at 5 %, and the best of ten equal models looks better than it is. Rank
sets and the corrected value of the winner hold for all runs at once, adjusted p values for all tests. Signs and draws
come from raw bits and sums of integers, so that a seed gives the same answer on every machine, whatever the order of
the tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from calipers.rollouts.column import Bools, Floats, Ints, sum_by, total
from calipers.stats.intervals import NO_SPREAD, NOISE, spread_of, t_quantile, wilson_ends
from calipers.stats.paired import DRAWS, apart, resampled_sums

MAX_T_BIAS = "max_t_bias"
FLIPS = 2_000  # sign patterns of rank sets
FEW = 12  # up to this many units, all sign patterns are tried
ERROR_DRAWS = 4_000  # joint draws of the runs' errors, for the winner
STEP = 1_024  # units whose signs are in memory at a time
UNIFORMS = 64
"""Number of 16-bit uniform numbers whose sum approximates a normal one: its 97.5 % quantile is 0.001 too small."""


@dataclass(frozen=True, slots=True)
class RankSets:
    """Simultaneous confidence sets of the ranks of M runs, 1 the best."""

    low: Ints  # [M] the best rank not ruled out: 1 plus the number of runs shown to be better
    high: Ints  # [M] the worst rank not ruled out
    t: Floats  # [M, M] floored t of row less column, positive where the row is better; 0 where no task differs
    critical: float  # the last critical value, for the pairs not shown to differ; infinite if no pair can be shown
    patterns: int  # number of sign patterns tried
    exact: bool  # all patterns were tried
    errors: Floats  # [M, M] the floored standard error of each difference
    widest: float  # the first critical value, for all pairs at once; infinite if no pair can be shown

    def interval(self, first: int, second: int, difference: float) -> tuple[float, float] | None:
        """The interval of the true difference of two runs, simultaneous with all other pairs; None if it is unknown.

        If only a later step shows that the pair differs, the interval is cut off at 0 to agree with that step.
        """
        half = self.widest * float(self.errors[first, second])
        if not (math.isfinite(half) and half > 0):
            return None
        low, high = difference - half, difference + half
        if not self.tied[first, second]:
            low, high = (max(low, 0.0), high) if difference > 0 else (low, min(high, 0.0))
        return low, high

    @property
    def tied(self) -> Bools:
        """Whether two runs are not shown to differ, [M, M]; a run is tied with itself."""
        return np.asarray(np.abs(self.t) <= self.critical)


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
    values: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = FLIPS,
) -> RankSets:
    """Simultaneous confidence sets for the ranks of M runs, from task values [M, T].

    (Mogstad, Romano, Shaikh and Wilhelm 2024.) Every pair has its floored t, ``t = D/se_r`` as in `paired`. Under
    random signs e of the units, the same for all runs, a pair's t is ``|D*|/se*`` with ``D* = sum e c`` and ``se*^2 =
    G/(G-1) sum (e c - W D*)^2``; for units of equal weight that is ``|s| sqrt((G-1)/G)/sqrt(1 - s^2/G)`` with ``s = sum
    e c / sqrt(sum c^2)``. Pairs beyond the ``confidence`` quantile of the largest t differ; the quantile is then taken
    over the other pairs, until no more pairs differ (Romano and Wolf 2005). A run's set is ``[1 + runs shown better,
    M - runs shown worse]``.

    All tasks of a cluster have the same sign. With 12 units or fewer, all sign patterns are tried. A pair without a
    differing task is left out.

    >>> rows = ["111111111011", "101101101010", "001000001000"]
    >>> sets = rank_sets(np.array([[float(value) for value in row] for row in rows]))
    >>> sets.low.tolist(), sets.high.tolist(), round(sets.critical, 6)
    ([1, 1, 2], [2, 3, 3], 2.80306)
    """
    scaled = np.ldexp(values if higher_is_better else -values, -_exponent(values))  # so that no square overflows
    pulls, shares = _unit_pulls(scaled, weights, clusters)
    runs, units = pulls.shape
    if units < 2:
        raise ValueError(f"{units} common tasks or clusters; ranks take two or more")
    t, squares, errors = _floored_t(pulls, shares)
    flipped = _Flipped.of(pulls, shares, squares, seed, draws)
    active, shown, critical, widest = squares > 0, np.zeros((runs, runs), dtype=np.bool_), math.inf, math.inf
    while active.any():
        critical = _order_statistic(flipped.largest(active), confidence)
        widest = critical if math.isinf(widest) else widest
        more = active & (np.abs(t) > critical)
        shown, active = shown | more, active & ~more
        if not more.any():
            break
    better = shown & (t > 0)  # row better than column
    low, high = 1 + better.sum(axis=0), runs - better.sum(axis=1)
    errors = np.ldexp(errors, _exponent(values))
    return RankSets(low, high, t, critical, flipped.patterns, units <= FEW, errors, widest)


def winner(
    values: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    limits: tuple[float, float] | None = None,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = ERROR_DRAWS,
) -> Winner:
    """The best of M runs by their means X over T tasks, [M, T], with an interval that is valid after the selection.

    S are draws of the runs' errors, normal with the covariance of X over units; s is the root of its diagonal. q is the
    quantile of ``max S/s``, ``bias`` the mean of S at the best of ``X + S``. The interval is ``[X - q s, X - bias + z
    s]`` of the winner: the lower end comes from the largest t of all candidates, the upper end from the bias, and it
    always contains X. If the range of the values is known, the lower end is also at most that of the default interval
    with q in place of z, because a run near the end of the range hardly shows its error: among ten equal runs of mean
    0.95 on 100 tasks the first end alone covers in 68 % (4,000 replicates). If no range is known, q and z are Student's
    quantiles at the same levels, with U - 1 degrees of freedom.

    If lower is better, all of this is mirrored. A winner without spread and without a range has no interval.
    """
    sign = 1.0 if higher_is_better else -1.0
    power = _exponent(values)  # values are divided by 2**power so that no square overflows
    scaled = sign * np.ldexp(values, -power)
    pulls, shares = _unit_pulls(scaled, weights, clusters)
    runs, units = pulls.shape
    if units < 2:
        raise ValueError(f"{units} common tasks or clusters; a winner takes two or more")
    weights = np.ones(values.shape[1]) if weights is None else weights
    means = np.asarray(total(weights * scaled)) / float(total(weights))
    covariance = _covariance(pulls - shares * means[:, None])
    errors = np.sqrt(np.diag(covariance))
    drawn = _normal_draws(covariance, seed, draws)  # [draws, M]
    best = int(np.argmax(means))
    at_best = drawn[np.arange(draws), np.argmax(means + drawn, axis=1)]
    # subtracting the winner's own errors, which are 0 in the mean, removes noise and keeps the bias at 0 or above
    bias = float(total(at_best - drawn[:, best])) / draws
    level = (1 + confidence) / 2
    varies = errors > NOISE
    largest_t = (drawn[:, varies] / errors[varies]).max(axis=1) if varies.any() else np.zeros(draws)
    normal_quantile = NormalDist().inv_cdf(level)
    quantile = max(float(np.quantile(largest_t, level)), normal_quantile)
    low_quantile, high_quantile = quantile, normal_quantile
    if limits is None:  # few units underestimate the error, and no range bounds it: Student's quantiles at these levels
        freedom = max(1.0, 1 / float(total(shares * shares)) - 1)
        low_quantile, high_quantile = t_quantile(NormalDist().cdf(quantile), freedom), t_quantile(level, freedom)
    mean, error = float(means[best]), float(errors[best])
    low = mean - low_quantile * error
    high = max(mean - bias + high_quantile * error, mean)
    observed, bias, low, high = (sign * math.ldexp(number, power) for number in (mean, bias, low, high))
    low, high = min(low, high), max(low, high)
    ends: tuple[float, float] | None = (low, high)
    if limits is not None:
        ends = _within_range(limits, (low, high), values[best], weights, clusters, quantile, sign)
    elif not varies[best]:
        ends = None
    why = NO_SPREAD if ends is None else None
    return Winner(best, observed, bias + 0.0, observed - bias, ends, runs, why=why)


def _within_range(
    limits: tuple[float, float],
    ends: tuple[float, float],
    values: Floats,
    weights: Floats,
    clusters: Ints | None,
    quantile: float,
    sign: float,
) -> tuple[float, float]:
    """The ends clipped to the range, with the worse end at least as far out as that of the default interval."""
    spread = spread_of(values, weights, limits, clusters)
    wilson = spread.unscaled(wilson_ends(spread, 2 * NormalDist().cdf(quantile) - 1))
    low, high = ends
    low, high = (min(low, wilson[0]), high) if sign > 0 else (low, max(high, wilson[1]))
    return max(low, limits[0]), min(high, limits[1])


def _exponent(values: Floats) -> int:
    """The exponent of the smallest power of two above all absolute values."""
    return math.frexp(float(np.abs(values).max(initial=0.0)))[1]


def _unit_pulls(values: Floats, weights: Floats | None, clusters: Ints | None) -> tuple[Floats, Floats]:
    """The contribution of each unit to each run's mean, [M, G], and the units' shares, [G]; no units of weight 0."""
    weights = np.ones(values.shape[1]) if weights is None else weights
    share = weights / max(float(total(weights)), np.finfo(float).tiny)
    pulls = share * values
    if clusters is not None and len(clusters):
        size = int(clusters.max()) + 1
        pulls, share = np.stack([sum_by(clusters, row, size) for row in pulls]), sum_by(clusters, share, size)
    kept = share > 0
    return pulls[:, kept], share[kept]


def _floored_t(pulls: Floats, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """The floored t of each pair of runs, the sum of the units' squared differences, and the error, [M, M] each."""
    runs, units = pulls.shape
    t, squares, errors = (np.zeros((runs, runs)) for _ in range(3))
    for run in range(runs - 1):
        gaps = apart(pulls[run], pulls[run + 1 :])  # [K, G]
        value, size = np.asarray(total(gaps)), np.asarray(total(np.abs(gaps)))
        value = np.where(np.abs(value) <= NOISE * size, 0.0, value)
        residuals = gaps - shares * value[:, None]
        variance = units / (units - 1) * np.asarray(total(residuals * residuals))
        error = np.sqrt(variance + (np.abs(gaps).max(axis=1) / 2) ** 2)
        t[run, run + 1 :] = np.divide(value, error, out=np.zeros(len(value)), where=error > 0)
        squares[run, run + 1 :] = np.asarray(total(gaps * gaps))
        errors[run, run + 1 :] = error
    return t - t.T, squares + squares.T, errors + errors.T


@dataclass(frozen=True, slots=True)
class _Flipped:
    """Every run's sum under random signs of the units, from which the t of all pairs follow."""

    sums: Floats  # [M, B] of the units' contributions less those of the first run
    weighted: Floats | None  # [M, B] sums of the contributions times the units' shares; None if all shares are equal
    squares: Floats  # [M, M] of each pair's differences, which do not depend on the signs
    shares: Floats  # [G]

    @classmethod
    def of(cls, pulls: Floats, shares: Floats, squares: Floats, seed: int, draws: int) -> _Flipped:
        """Sums under all patterns for few units, else under ``draws`` seeded patterns; units are sorted first."""
        order = np.lexsort(np.concatenate([pulls, shares[None]])[::-1])
        pulls, shares = pulls[:, order], shares[order]
        gaps = apart(pulls, pulls[:1])  # leaves differences of runs unchanged, and loses fewer digits
        even = bool((shares == shares[0]).all())
        sums = _signed_sums(gaps if even else np.concatenate([gaps, gaps * shares]), seed, draws)
        return cls(sums[: len(pulls)], None if even else sums[len(pulls) :], squares, shares)

    @property
    def patterns(self) -> int:
        """B, the number of sign patterns tried."""
        return int(self.sums.shape[1])

    def largest(self, active: Bools) -> Floats:
        """The largest t of the active pairs under each pattern of signs, [B]."""
        largest = np.zeros(self.patterns)
        for run in np.flatnonzero(np.triu(active).any(axis=1)).tolist():
            others = np.flatnonzero(active[run, run + 1 :]) + run + 1
            np.maximum(largest, self._squared_t(run, others).max(axis=0), out=largest)
        return np.sqrt(largest)

    def _squared_t(self, run: int, others: Ints) -> Floats:
        """The squared t of a run against others under each pattern, [K, B]; infinite if all flipped units are equal."""
        units = len(self.shares)
        value = self.sums[run] - self.sums[others]
        squares = self.squares[run, others][:, None]
        squared_value = value * value
        if self.weighted is None:
            residual = squares - squared_value / units
        else:
            weighted = self.weighted[run] - self.weighted[others]
            residual = squares - 2 * value * weighted + squared_value * float(total(self.shares * self.shares))
        equal = residual <= NOISE * squares
        return np.where(equal, math.inf, squared_value * ((units - 1) / units) / np.where(equal, 1.0, residual))


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


def _covariance(residuals: Floats) -> Floats:
    """The covariance of the means, [M, M], from the units' residuals, [M, G]; n - 1 over units."""
    runs, units = residuals.shape
    covariance = np.empty((runs, runs))
    for run in range(runs):
        covariance[run, run:] = np.asarray(total(residuals[run] * residuals[run:])) * (units / (units - 1))
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
