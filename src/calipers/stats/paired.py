"""Two runs on the same tasks: their difference, its interval, and its test.

The default test is the floored t. A paired t test estimates the spread of the differences from the data, which is too
small if few tasks differ; therefore half of the largest contribution is added to the standard error. In simulations it
keeps its level if both runs draw from one distribution, from ten tasks on, and on clusters: 5.7 % at worst. It does not
if one run is steady and the other nearly all or nothing: 64 % at worst on ten tasks, 15 % on a hundred. The strict test
is the default interval of means, applied to differences: it stays below 6 % there too, at 7 % if the other run passes a
task always or never, and detects little that is finer than one task.

The paired bootstrap draws tasks with replacement, the same for both runs. It is for metrics that are not a mean of task
values: corpus metrics, medians, ratios. A metric that is a function of sums (BLEU, F1, pooled rates) keeps S sufficient
statistics per task, so that 10,000 draws are sums of integers, and a seed gives the same answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Protocol

import numpy as np

from calipers.errors import UnknownName
from calipers.rollouts.column import Bools, Floats, Ints, sum_by, total
from calipers.stats.estimate import HUGE, TOO_LARGE
from calipers.stats.intervals import (
    AGREE,
    NO_SPREAD,
    NOISE,
    ONE_CLUSTER,
    ONE_TASK,
    Spread,
    least_p,
    scaled_integers,
    strength_of,
    t_quantile,
    unit_draws,
    upper_tail,
    wilson_ends,
)

FLOORED_T, STRICT = "floored_t", "strict"
TESTS = (FLOORED_T, STRICT)
NO_COMMON = "no task has a value in both runs"
NOT_FINITE = "a difference is not a finite number"
NO_RANGE = "strict needs a known range, as 0 to 1 for passes; floored_t does not"


@dataclass(frozen=True, slots=True)
class Units:
    """The contribution of each unit, a task or a cluster, to the difference, [G]; units without weight are left out."""

    pulls: Floats  # [G] contributions c_g, which add up to the difference
    residuals: Floats  # [G] c_g less the unit's contribution if all units were equal
    shares: Floats  # [G] weights W_g, which add up to 1
    effective_tasks: float  # Q, at least the effective units
    clustered: bool = False

    @property
    def effective_units(self) -> float:
        """U, the effective number of units: the number of equally weighted units with the same information."""
        return 1 / float(total(self.shares * self.shares))

    @property
    def means(self) -> Floats:
        """The mean difference within each unit, [G]; for pooled rates, the mean that leaves the unit's residual."""
        return (self.residuals + self.shares * float(total(self.pulls))) / self.shares

    @property
    def even(self) -> bool:
        """Whether the units are single tasks of equal weight."""
        return not self.clustered and float(np.ptp(self.shares)) <= NOISE

    @property
    def variance(self) -> float:
        """The squared standard error of the difference, n - 1 over units."""
        count = len(self.pulls)
        return count / max(count - 1, 1) * float(total(self.residuals * self.residuals))


class Sequential(Protocol):
    """A test that is valid at any stopping time; means and bounds are in widths of the range."""

    def ends(self, mean: float, confidence: float) -> tuple[float, float] | None:
        """The interval around the observed mean; None if that mean is ruled out."""

    def p_at_most(self, bound: float) -> float:
        """The p of the hypothesis that the true difference is at most ``bound``."""

    def p_at_least(self, bound: float) -> float:
        """The p of the hypothesis that the true difference is at least ``bound``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two means with its interval and test, or why there is none.

    Test and interval agree if the method is floored_t or strict; any other test has its p beside the interval of the
    floored t.
    """

    value: float | None  # first less second
    stderr: float | None  # as used in the test: with the floor for the floored t
    interval: tuple[float, float] | None
    p: float | None  # two-sided, of no difference
    method: str
    units: int  # G, tasks or clusters that were compared
    effective_units: float = 0.0  # U
    freedom: float = math.inf  # of the t distribution; infinite for the normal distribution
    width: float | None = None  # the difference lies between -width and +width; None: no bound is known
    effective_tasks: float = 0.0  # n of the strict test; 0 for other tests
    why: str | None = None
    plain_stderr: float | None = None  # without the floor
    evidence: Units | None = field(default=None, compare=False, repr=False)  # None for draws, or without a test
    draws: Floats | None = field(default=None, compare=False, repr=False)  # [B] of the bootstrap
    sequence: Sequential | None = field(default=None, compare=False, repr=False)  # of an anytime test

    def p_at_most(self, bound: float) -> float | None:
        """The one-sided p of the hypothesis that the true difference is at most ``bound``.

        None if there is no test. A small p shows that the difference lies above ``bound``.
        """
        if self.sequence is not None and self.width is not None and abs(bound) < self.width:
            return self.sequence.p_at_most(bound / self.width)
        return None if self.value is None else self._tail(self.value, bound)

    def p_at_least(self, bound: float) -> float | None:
        """The one-sided p of the hypothesis that the true difference is at least ``bound``."""
        if self.sequence is not None and self.width is not None and abs(bound) < self.width:
            return self.sequence.p_at_least(bound / self.width)
        return None if self.value is None else self._tail(-self.value, -bound)

    def _tail(self, value: float, bound: float) -> float | None:
        if self.p is None or self.stderr is None:
            return None
        if self.width is not None and abs(bound) >= self.width:
            return 0.0 if bound < 0 else 1.0
        if self.effective_tasks and self.width is not None:
            return self._score(value, bound, self.width)
        if self.stderr == 0:  # no pair differs: the chance of that if a share -bound/width of pairs differed
            return 1.0 if self.width is None or bound >= 0 else (1 + bound / self.width) ** self.effective_units
        return upper_tail((value - bound) / self.stderr, self.freedom)

    def _score(self, value: float, bound: float, width: float) -> float:
        """The p of the strict test, a score test: its spread is computed at the bound, not at the value."""
        rate, null_rate = (value + width) / (2 * width), (bound + width) / (2 * width)
        stderr = math.sqrt(null_rate * (1 - null_rate) / self.effective_tasks)
        return upper_tail((rate - null_rate) / stderr, self.freedom)


def paired(
    differences: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    limits: tuple[float, float] | None = None,
    confidence: float = 0.95,
    test: str = FLOORED_T,
) -> Difference:
    """The weighted mean of the differences of task values from `apart`, [T], with its test and interval.

    ``limits`` is the range of the values themselves, None if unknown; ``clusters`` is the number of each task's
    cluster.

    ``D = sum c_g`` over units, ``se_r^2 = G/(G-1) sum (c_g - W_g D)^2 + (max |c_g| / 2)^2``, t with ``max(1, U - 1)``
    degrees of freedom. One unit gives no interval. If no pair differs, p is 1, and the interval contains every share of
    differing pairs that is compatible with observing none.
    """
    return judged(units_of(differences, weights, clusters), limits, confidence, test)


def apart(first: Floats, second: Floats) -> Floats:
    """First less second, [T], and exactly 0 where they differ by rounding errors alone.

    Otherwise a rounding error that all tasks share would be a significant difference.

    >>> apart(np.array([0.1 + 0.2, 1.0]), np.array([0.3, 0.5])).tolist()
    [0.0, 0.5]
    """
    gap = first - second
    # strictly less, because an infinite difference is not smaller than its infinite bound
    return np.where(np.abs(gap) < NOISE * np.maximum(np.abs(first), np.abs(second)), 0.0, gap)


def units_of(differences: Floats, weights: Floats | None = None, clusters: Ints | None = None) -> Units:
    """The units of a weighted mean of differences, [T]."""
    weights = np.ones(len(differences)) if weights is None else weights
    share = weights / max(float(total(weights)), np.finfo(float).tiny)
    pulls, shares = _by_unit(clusters, share * differences, share)
    value = float(total(pulls))
    kept = shares > 0
    with np.errstate(invalid="ignore"):  # infinite values are refused later, with a message
        residuals = pulls - shares * value
    return Units(pulls[kept], residuals[kept], shares[kept], _effective(share), clusters is not None)


def rate_units(first: Floats, second: Floats, clusters: Ints | None = None) -> Units:
    """The units of a difference of pooled rates, from each task's sum and count in both runs, [T, 2] each.

    ``c_g = s_1g/N_1 - s_2g/N_2``; the residual is c_g less ``n_1g r_1/N_1 - n_2g r_2/N_2``, and a unit's share is the
    mean of its two shares of the samples.
    """
    totals = np.array([[float(total(run[:, column])) for column in (0, 1)] for run in (first, second)])
    size = np.maximum(totals[:, 1], np.finfo(float).tiny)
    rates = totals[:, 0] / size
    shares = first[:, 1] / size[0], second[:, 1] / size[1]
    share = (shares[0] + shares[1]) / 2
    pulls = apart(first[:, 0] / size[0], second[:, 0] / size[1])
    residuals = pulls - apart(shares[0] * rates[0], shares[1] * rates[1])
    unit_pulls, unit_shares, unit_residuals = _by_unit(clusters, pulls, share, residuals)
    kept = unit_shares > 0
    return Units(unit_pulls[kept], unit_residuals[kept], unit_shares[kept], _effective(share), clusters is not None)


def judged(units: Units, limits: tuple[float, float] | None, confidence: float, test: str = FLOORED_T) -> Difference:
    """The difference over units, with the requested test."""
    if test not in TESTS:
        raise UnknownName.of("test", test, TESTS)
    count = len(units.pulls)
    width = None if limits is None else limits[1] - limits[0]
    if count == 0:
        return Difference(None, None, None, None, test, 0, why=NO_COMMON)
    value = _sum(units.pulls)
    if not (math.isfinite(value) and np.isfinite(units.residuals).all()):
        return Difference(None, None, None, None, test, count, why=NOT_FINITE)
    if float(np.abs(units.pulls).max()) > HUGE:
        return Difference(value, None, None, None, test, count, why=TOO_LARGE)
    if count < 2:
        return Difference(value, None, None, None, test, count, why=ONE_CLUSTER if units.clustered else ONE_TASK)
    if test == STRICT:
        return _strict(units, value, width, confidence)
    return _floored(units, value, width, confidence)


def undone_by_one(difference: Difference, confidence: float) -> bool:
    """Whether one more unit of average weight, with a full loss against the verdict, would undo the verdict.

    Only for the floored t, whose spread is estimated from the data. False without a known range.
    """
    units, width, value = difference.evidence, difference.width, difference.value
    if difference.method != FLOORED_T or units is None or width is None or not value:
        return False
    count = len(units.shares)
    means = np.append(units.means, -math.copysign(width, value))
    again = paired(means, np.append(units.shares, 1 / count), limits=(0.0, width), confidence=confidence)
    return again.p is None or again.p > 1 - confidence or (again.value or 0.0) * value <= 0


def _sum(pulls: Floats) -> float:
    """The sum of the contributions; exactly 0 if they cancel up to the rounding of task values."""
    value = float(total(pulls))
    return 0.0 if abs(value) <= NOISE * float(total(np.abs(pulls))) else value


def _floored(units: Units, value: float, width: float | None, confidence: float) -> Difference:
    effective = units.effective_units
    freedom = max(1.0, effective - 1)
    variance = units.variance
    stderr = math.sqrt(variance + (float(np.abs(units.pulls).max()) / 2) ** 2)
    if stderr == 0:
        unseen = None if width is None else width * (1 - ((1 - confidence) / 2) ** (1 / effective))
        ends = None if unseen is None else (-unseen, unseen)
        why = NO_SPREAD if ends is None else None
        return Difference(
            0.0, 0.0, ends, 1.0, FLOORED_T, len(units.pulls), effective, freedom, width,
            why=why, plain_stderr=0.0, evidence=units,
        )  # fmt: skip
    p = min(1.0, 2 * upper_tail(abs(value) / stderr, freedom))
    half = t_quantile((1 + confidence) / 2, freedom) * stderr
    low, high = value - half, value + half
    if width is not None:
        low, high = max(low, -width), min(high, width)
    return Difference(
        value, stderr, (low, high), p, FLOORED_T, len(units.pulls), effective, freedom, width,
        plain_stderr=math.sqrt(variance), evidence=units,
    )  # fmt: skip


def _strict(units: Units, value: float, width: float | None, confidence: float) -> Difference:
    """The default interval of a mean on [-width, width], and the test that rejects the values outside it."""
    if width is None:
        return Difference(value, math.sqrt(units.variance), None, None, STRICT, len(units.pulls), why=NO_RANGE)
    rate = min(max((value + width) / (2 * width), 0.0), 1.0)
    effective = units.effective_units
    doubt = (1 + effective / units.effective_tasks) / 2
    spread = Spread(rate, units.variance / (2 * width) ** 2, len(units.pulls), effective, doubt, (-width, width))
    n, freedom = strength_of(spread)
    ends = spread.unscaled(wilson_ends(spread, confidence))
    p = min(1.0, 2 * upper_tail(abs(rate - 0.5) * 2 * math.sqrt(n), freedom))
    stderr = math.sqrt(units.variance)
    return Difference(
        value, stderr, ends, p, STRICT, len(units.pulls), effective, freedom, width, n,
        plain_stderr=stderr, evidence=units,
    )  # fmt: skip


def _by_unit(clusters: Ints | None, *columns: Floats) -> tuple[Floats, ...]:
    """The sums of columns of tasks, [T], over clusters, [G]; the columns themselves without clusters."""
    if clusters is None or len(clusters) == 0:
        return columns
    size = int(clusters.max()) + 1
    sums = ((sum_by(clusters, column, size), sum_by(clusters, np.abs(column), size)) for column in columns)
    # sums that cancel up to rounding are 0: if every cluster cancels, only rounding errors would be tested
    return tuple(np.where(np.abs(values) < NOISE * sizes, 0.0, values) for values, sizes in sums)


def _effective(share: Floats) -> float:
    squares = float(total(share * share))
    return 1 / squares if squares else 0.0


@dataclass(frozen=True, slots=True)
class McNemar:
    """McNemar's test, from the tasks that only one run passes."""

    first_only: int  # b
    second_only: int  # c
    exact: float  # two-sided p; 1 if no task differs
    mid_p: float  # two-sided, with half the chance of the observed table; less cautious, still near its level
    first_better: float  # exact one-sided p, small if the first run is better
    second_better: float  # exact one-sided p, small if the second run is better
    chance_first: float  # posterior chance that the first run is better, uniform prior over the four outcomes


def mcnemar(first_only: int, second_only: int) -> McNemar:
    """McNemar's test of b tasks that only the first run passes and c tasks that only the second run passes.

    ``exact = 2 P(X <= min(b, c))``, at most 1, where X is the number of heads of b + c fair coins; mid-p subtracts
    ``P(X = min(b, c))`` once; the posterior chance is ``P(Beta(b + 1, c + 1) > 1/2)``.

    >>> test = mcnemar(10, 2)
    >>> round(test.exact, 6), round(test.mid_p, 6)
    (0.038574, 0.022461)
    """
    from scipy.special import bdtr, betainc, betaln

    b, c = int(first_only), int(second_only)
    if b < 0 or c < 0:
        raise ValueError(f"{b} and {c} tasks; expected counts")
    n, fewer = b + c, min(b, c)
    point = float(np.exp(-betaln(fewer + 1, n - fewer + 1) - n * np.log(2))) / (n + 1)
    tail = float(bdtr(fewer, n, 0.5))
    return McNemar(
        b,
        c,
        exact=min(1.0, 2 * tail),
        mid_p=min(1.0, 2 * tail - point),
        first_better=float(bdtr(c, n, 0.5)),
        second_better=float(bdtr(b, n, 0.5)),
        chance_first=float(betainc(c + 1, b + 1, 0.5)),
    )


def flips(first: Bools, second: Bools) -> McNemar:
    """McNemar's test of two runs with one pass or fail per task, [T] each, tasks in the same order."""
    return mcnemar(int(np.count_nonzero(first & ~second)), int(np.count_nonzero(second & ~first)))


DRAWS = 10_000
FEW = 20  # up to this many units, all sign patterns are tried
TOGETHER = 8  # units whose signs come from one byte
STEP = 64  # groups of units at a time: their table of signed sums, 128 KB, stays in the processor's cache
ALIKE = 2.0**-40
"""Sums that differ by less than this share of the largest contribution are a tie, because contributions are rounded."""


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The result of a sign-flip test: how often random signs give a difference as large as the observed one."""

    p: float  # two-sided
    patterns: int  # number of sign patterns tried
    exact: bool  # all patterns were tried
    units: int  # whose difference is not 0; the others have no sign to flip


def sign_flip(pulls: Floats, *, seed: int = 0, draws: int = DRAWS) -> SignFlip:
    """The sign-flip test of the contributions to the difference, [G], of tasks, or of clusters as in `units_of`.

    Exact for 20 units or fewer that differ. For more, ``p = (hits + 1) / (draws + 1)``, which counts the observed
    pattern. 1 if no unit differs.

    >>> sign_flip(np.array([0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05])).p
    0.15625
    """
    if not np.isfinite(pulls).all():
        raise ValueError("a difference is not a finite number")
    sizes, observed, slack = _integers(pulls)
    if len(sizes) <= FEW:
        sums, extra = _all_patterns(sizes), 0
    else:
        sums, extra = _random_patterns(sizes, seed, draws), 1
    patterns = len(sums) + extra
    hits = int(np.count_nonzero(np.abs(sums) >= abs(observed) - slack)) + extra
    return SignFlip(hits / patterns, len(sums), extra == 0, len(sizes))


def _integers(pulls: Floats) -> tuple[Ints, int, int]:
    """The sizes of the nonzero contributions as integers without overflow, their signed sum, and the slack of a tie.

    Sizes are sorted, the largest first, so that neither the order of tasks nor a rounding error in a size changes the
    patterns.
    """
    nonzero = pulls[pulls != 0]
    if not len(nonzero):
        return np.zeros(0, dtype=np.int64), 0, 0
    scaled, power = scaled_integers(nonzero)
    slack = int(math.ldexp(float(np.abs(nonzero).max()) * ALIKE, power))
    return np.sort(np.abs(scaled))[::-1], int(scaled.sum()), slack


def _all_patterns(sizes: Ints) -> Ints:
    """Sums under all patterns of signs, [2^G]."""
    sums = np.zeros(1, dtype=np.int64)
    for size in sizes.tolist():
        sums = np.concatenate([sums + size, sums - size])
    return sums


def _random_patterns(sizes: Ints, seed: int, draws: int) -> Ints:
    """Sums under random signs, [draws], by one look-up per eight units in a table of their 256 signed sums."""
    groups = -(-len(sizes) // TOGETHER)
    padded = np.zeros((groups, TOGETHER), dtype=np.int64)
    padded.ravel()[: len(sizes)] = sizes
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(TOGETHER)) & 1)  # [256, 8]
    sums = np.zeros(draws, dtype=np.int64)
    source = np.random.PCG64(seed)
    offsets = np.arange(STEP) * 256
    for first in range(0, groups, STEP):
        block = padded[first : first + STEP]
        table = (block @ signs.T).ravel()
        words = -(-draws * len(block) // 8)
        # numpy may change how it makes numbers of the raw 64-bit output, but not the output itself
        chosen = source.random_raw(words).astype("<u8", copy=False).view(np.uint8)[: draws * len(block)]
        index = chosen.reshape(draws, len(block)) + offsets[: len(block)]
        sums += table.take(index, mode="clip").sum(axis=1)
    return sums


def below(passes: Ints, samples: Ints, rate: float) -> Floats:
    """The one-sided p of each task's rate being at least ``rate``, [T]: the chance of c passes or fewer.

    ``P(X <= c)`` for X binomial with n samples and this rate (Clopper and Pearson 1934). A small p shows that the
    task's rate is below. p is 0 for a rate above 1, and 1 for a rate of 0 or less.

    >>> below(np.array([0, 3]), np.array([4, 4]), 0.5).tolist()
    [0.0625, 0.9375]
    """
    from scipy.special import bdtr

    if rate > 1 or rate <= 0:
        return np.full(len(passes), 0.0 if rate > 1 else 1.0)
    return np.asarray(bdtr(passes.astype(float), samples, rate))


MOST_VALUES = 200_000_000
"""The most task values over all draws of a metric; with more tasks, there are fewer draws."""
FEWEST_DRAWS = 1_000
UNDEFINED = "the metric is not a number on these tasks"
SOME_UNDEFINED = "the metric is not a number on some draws of these tasks"
DRAWS_AGREE = "every draw gives the same difference"

Combine = Callable[[Floats], Floats]
"""``[..., S] -> [...]``: a metric from the sums of its sufficient statistics over tasks."""
Aggregate = Callable[[Floats], Floats]
"""``[..., T] -> [...]``: a metric from its task values, as in `calipers.metrics`."""


@dataclass(frozen=True, slots=True)
class Resampled:
    """A difference with its bootstrap draws, or why there is none."""

    value: float | None  # first less second
    stderr: float | None  # the standard deviation of the draws
    interval: tuple[float, float] | None  # expanded percentiles of the draws
    p: float | None  # two-sided, from the share of draws on the other side of 0
    draws: int
    units: int
    why: str | None = None
    differences: Floats | None = field(default=None, compare=False, repr=False)  # [B] the difference on every draw


def paired_bootstrap(
    first: Floats,
    second: Floats,
    combine: Combine,
    clusters: Ints | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
) -> Resampled:
    """The difference of a metric of sums, from sufficient statistics of each task in both runs, [T, S] each.

    With ``clusters``, whole clusters are drawn. A mean is quickest as the ratio of the sums of differences, with zeros
    for the second run, because columns of equal values are not drawn.
    """
    stacked = np.concatenate([first, second], axis=1)
    if clusters is not None and len(clusters):
        size = int(clusters.max()) + 1
        nonempty = np.bincount(clusters, minlength=size) > 0
        stacked = np.stack([sum_by(clusters, column, size)[nonempty] for column in stacked.T], axis=1)
    if not len(stacked):
        return Resampled(None, None, None, None, 0, 0, NO_COMMON)
    statistics = first.shape[1]
    sums = np.asarray(total(np.ascontiguousarray(stacked.T)))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(apart(combine(sums[:statistics]), combine(sums[statistics:])))
        if len(stacked) < 2:
            return _single_unit(value, len(first))
        drawn = resampled_sums(stacked, seed, draws)
        differences = apart(combine(drawn[:, :statistics]), combine(drawn[:, statistics:]))
    return by_draws(value, differences, confidence, len(stacked))


def paired_bootstrap_of_values(
    first: Floats,
    second: Floats,
    aggregate: Aggregate,
    clusters: Ints | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
) -> Resampled:
    """The difference of a metric of task values that is not a function of sums, such as a median, from [T] each.

    Without clusters the draws go to ``aggregate`` in blocks, [b, T]; with clusters one by one, because draws of
    clusters differ in their number of tasks. At most MOST_VALUES values in all, but at least 1,000 draws.
    """
    code = np.arange(len(first)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    units = int(code.max(initial=-1)) + 1
    if not units:
        return Resampled(None, None, None, None, 0, 0, NO_COMMON)
    value = float(apart(aggregate(first), aggregate(second)))
    if units < 2:
        return _single_unit(value, len(first))
    draws = min(draws, max(FEWEST_DRAWS, MOST_VALUES // len(first)))
    members = np.argsort(code, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(code))])
    differences = []
    for index in unit_draws(units, seed, draws):
        if clusters is None:
            differences.append(apart(aggregate(first[index]), aggregate(second[index])))
            continue
        for row in index:
            tasks = np.concatenate([members[starts[unit] : starts[unit + 1]] for unit in row.tolist()])
            differences.append(apart(aggregate(first[tasks]), aggregate(second[tasks])).reshape(1))
    return by_draws(value, np.concatenate(differences), confidence, units)


def ratio(sums: Floats) -> Floats:
    """A mean or a pooled rate as a metric of sums: the first sum over the second, ``[..., 2] -> [...]``."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def resampled_sums(columns: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """The sums of S columns over G units drawn with replacement, [draws, S], from [G, S].

    Every column has the same draws. Units are sorted first, so that the order of tasks does not matter; a column of
    equal values needs no draws.
    """
    order = np.lexsort(columns.T[::-1])
    scaled = [scaled_integers(column[order]) for column in columns.T]
    units = len(columns)
    constant = [bool((integers == integers[0]).all()) for integers, _ in scaled]
    drawn = np.empty((draws, len(scaled)))
    start = 0
    for index in unit_draws(units, seed, draws):
        stop = start + len(index)
        for column, (integers, power) in enumerate(scaled):
            sums = units * float(integers[0]) if constant[column] else integers.take(index, mode="clip").sum(axis=1)
            drawn[start:stop, column] = np.ldexp(sums, -power)
        start = stop
    return drawn


def _single_unit(value: float, tasks: int) -> Resampled:
    """The difference of a single unit, which has no interval."""
    if not math.isfinite(value):
        return Resampled(None, None, None, None, 0, 1, UNDEFINED)
    return Resampled(value, None, None, None, 0, 1, ONE_TASK if tasks < 2 else ONE_CLUSTER)


def by_draws(value: float, differences: Floats, confidence: float, units: int) -> Resampled:
    """A difference with the interval and p from its bootstrap draws, [B], of n ``units``.

    Draws of few units vary too little: by the square root of (n - 1) / n, and like a normal distribution, although the
    t distribution is correct. Therefore the percentiles are expanded to the normal tail of ``sqrt(n / (n - 1)) t``
    (Hesterberg 2015, "What teachers should know about the bootstrap", expanded percentiles), and p is corrected in the
    same way. p is never below 2^(1 - n), the chance that all n units point the same way; if that is more than
    1 - confidence, there is no interval.
    """
    draws = len(differences)
    if not math.isfinite(value):
        return Resampled(None, None, None, None, draws, units, UNDEFINED)
    if not np.isfinite(differences).all():
        return Resampled(value, None, None, None, draws, units, SOME_UNDEFINED)
    if float(np.abs(differences).max()) > HUGE:
        return Resampled(value, None, None, None, draws, units, TOO_LARGE)
    if differences.max() - differences.min() <= NOISE * abs(value):
        p = 1.0 if differences[0] == 0 else min(1.0, max(2 / (draws + 1), least_p(units)))
        return Resampled(value, 0.0, None, p, draws, units, DRAWS_AGREE)
    stderr = float(np.std(differences, ddof=1))
    below, above = int(np.count_nonzero(differences <= 0)), int(np.count_nonzero(differences >= 0))
    beyond = min(0.5, (min(below, above) + 1) / (draws + 1))
    shrunk = -NormalDist().inv_cdf(beyond) * math.sqrt((units - 1) / units)
    p = min(1.0, max(2 * upper_tail(shrunk, units - 1), least_p(units)))
    if least_p(units) > 1 - confidence:
        why = f"no interval at {100 * confidence:g} % from {units}, which may all point one way by chance"
        return Resampled(value, None, None, p, draws, units, why, differences)  # the deviation would be unreliable too
    tail = NormalDist().cdf(-t_quantile((1 + confidence) / 2, units - 1) * math.sqrt(units / (units - 1)))
    low, high = np.quantile(differences, [tail, 1 - tail]).tolist()
    if min(low, value) >= max(high, value):
        return Resampled(value, stderr, None, p, draws, units, AGREE, differences)
    return Resampled(value, stderr, (min(low, value), max(high, value)), p, draws, units, differences=differences)
