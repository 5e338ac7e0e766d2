"""Two runs on the same tasks: their difference, its interval, and its test.

The default test is the floored t. A paired t test learns the spread of the differences from the data, and
where few tasks differ that is too small: so half of the largest contribution is added to the standard error.
Simulated, it keeps its level where both runs draw from one law, from ten tasks on, and on clusters: 5.7 % at worst.
Where one run is steady and the other nearly all or nothing it does not: 64 % at worst on ten tasks, 15 % on a
hundred. The strict test is the default interval of means, asked about differences: it stays below 6 % there too, at
7 % where the other run passes a task always or never, and sees little that is finer than one task.

The paired bootstrap, tasks drawn again with the same draw for both runs, is for whatever is no mean of task values:
corpus metrics, medians, ratios. A metric that is a function of sums (BLEU, F1, pooled rates) keeps a row of S
sufficient statistics per task, of which 10,000 draws are gathers and sums of integers: one seed, one answer on every
machine.
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
    """What each unit, a task or a cluster, adds to the difference, [G]; units without weight are left out."""

    pulls: Floats  # [G] c_g, which add up to the difference
    residuals: Floats  # [G] c_g less what the unit would add if all were alike
    shares: Floats  # [G] W_g, which add up to 1
    effective_tasks: float  # Q, at least the effective units
    clustered: bool = False

    @property
    def effective_units(self) -> float:
        """U, how many units of equal weight these are worth."""
        return 1 / float(total(self.shares * self.shares))

    @property
    def means(self) -> Floats:
        """The mean difference within each unit, [G]; of pooled rates, the one that leaves the unit's residual."""
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
    """A test that holds at every look; means and bounds in widths of the range."""

    def ends(self, mean: float, confidence: float) -> tuple[float, float] | None:
        """The interval around the mean that was seen; None where that one is ruled out."""

    def p_at_most(self, bound: float) -> float:
        """Of the hypothesis that the true difference is at most ``bound``."""

    def p_at_least(self, bound: float) -> float:
        """Of the hypothesis that it is at least ``bound``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two means with its interval and test, or why there is none.

    Test and interval agree where the method is floored_t or strict; the p of another test stands beside the
    interval of the floored t.
    """

    value: float | None  # first less second
    stderr: float | None  # as tested with: floored where the test is
    interval: tuple[float, float] | None
    p: float | None  # two-sided, of no difference
    method: str
    units: int  # G, tasks or clusters that were compared
    effective_units: float = 0.0  # U
    freedom: float = math.inf  # of the t distribution; infinite for the normal one
    width: float | None = None  # the difference lies within -width and +width; None: no bound is known
    effective_tasks: float = 0.0  # n of the strict test; 0 in the others
    why: str | None = None
    plain_stderr: float | None = None  # without a floor
    evidence: Units | None = field(default=None, compare=False, repr=False)  # None: draws, or no test
    draws: Floats | None = field(default=None, compare=False, repr=False)  # [B] of the bootstrap
    sequence: Sequential | None = field(default=None, compare=False, repr=False)  # of an anytime test

    def p_at_most(self, bound: float) -> float | None:
        """One-sided p of the hypothesis that the true difference is at most ``bound``.

        None where there is no test. Small means: the difference has been shown to lie above.
        """
        if self.sequence is not None and self.width is not None and abs(bound) < self.width:
            return self.sequence.p_at_most(bound / self.width)
        return None if self.value is None else self._tail(self.value, bound)

    def p_at_least(self, bound: float) -> float | None:
        """One-sided p of the hypothesis that the true difference is at least ``bound``."""
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
        if self.stderr == 0:  # no pair differs: the chance of that, were so many to differ
            return 1.0 if self.width is None or bound >= 0 else (1 + bound / self.width) ** self.effective_units
        return upper_tail((value - bound) / self.stderr, self.freedom)

    def _score(self, value: float, bound: float, width: float) -> float:
        """The strict test is Wilson's: its spread is that of the bound, not of the value."""
        rate, at = (value + width) / (2 * width), (bound + width) / (2 * width)
        return upper_tail((rate - at) / math.sqrt(at * (1 - at) / self.effective_tasks), self.freedom)


def paired(
    differences: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    limits: tuple[float, float] | None = None,
    confidence: float = 0.95,
    test: str = FLOORED_T,
) -> Difference:
    """The weighted mean of the differences of task values, as `apart` makes them, [T].

    ``limits`` is the range of the values themselves, None when there is none; ``clusters`` numbers the
    unit each task belongs to.

    ``D = sum c_g`` over units, ``se_r^2 = G/(G-1) sum (c_g - W_g D)^2 + (max |c_g| / 2)^2``, t with
    ``max(1, U - 1)`` degrees of freedom. One unit gives no interval. Where no pair differs p is 1, and the
    interval holds every share of differing pairs that would leave none in sight.
    """
    return judged(units_of(differences, weights, clusters), limits, confidence, test)


def apart(first: Floats, second: Floats) -> Floats:
    """First less second, [T], and exactly 0 where they differ by no more than the rounding of their means.

    A rounding error that all tasks share would be a significant difference.

    >>> apart(np.array([0.1 + 0.2, 1.0]), np.array([0.3, 0.5])).tolist()
    [0.0, 0.5]
    """
    gap = first - second
    # less than, as an infinite gap is as large as what it is measured by
    return np.where(np.abs(gap) < NOISE * np.maximum(np.abs(first), np.abs(second)), 0.0, gap)


def units_of(differences: Floats, weights: Floats | None = None, clusters: Ints | None = None) -> Units:
    """The units of a weighted mean of differences, [T]."""
    weights = np.ones(len(differences)) if weights is None else weights
    share = weights / max(float(total(weights)), np.finfo(float).tiny)
    pulls, shares = _by_unit(clusters, share * differences, share)
    value = float(total(pulls))
    kept = shares > 0
    with np.errstate(invalid="ignore"):  # what is infinite is refused later, in words
        residuals = pulls - shares * value
    return Units(pulls[kept], residuals[kept], shares[kept], _effective(share), clusters is not None)


def rate_units(first: Floats, second: Floats, clusters: Ints | None = None) -> Units:
    """The units of a difference of pooled rates, from each task's sum and count in both runs, [T, 2] each.

    ``c_g = s_1g/N_1 - s_2g/N_2``; its residual is that less ``n_1g r_1/N_1 - n_2g r_2/N_2``, and a unit's
    share is the mean of its two shares of the samples.
    """
    whole = np.array([[float(total(run[:, column])) for column in (0, 1)] for run in (first, second)])
    size = np.maximum(whole[:, 1], np.finfo(float).tiny)
    rates = whole[:, 0] / size
    shares = first[:, 1] / size[0], second[:, 1] / size[1]
    share = (shares[0] + shares[1]) / 2
    pulls = apart(first[:, 0] / size[0], second[:, 0] / size[1])
    residuals = pulls - apart(shares[0] * rates[0], shares[1] * rates[1])
    unit_pulls, unit_shares, unit_residuals = _by_unit(clusters, pulls, share, residuals)
    kept = unit_shares > 0
    return Units(unit_pulls[kept], unit_residuals[kept], unit_shares[kept], _effective(share), clusters is not None)


def judged(units: Units, limits: tuple[float, float] | None, confidence: float, test: str = FLOORED_T) -> Difference:
    """The difference that these units make, and the test asked for."""
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
    """Whether one more unit of average weight, with a full loss against the verdict, would take the verdict back.

    Asked of the floored t, whose spread is learnt from what was seen. Never without a known range.
    """
    units, width, value = difference.evidence, difference.width, difference.value
    if difference.method != FLOORED_T or units is None or width is None or not value:
        return False
    count = len(units.shares)
    means = np.append(units.means, -math.copysign(width, value))
    again = paired(means, np.append(units.shares, 1 / count), limits=(0.0, width), confidence=confidence)
    return again.p is None or again.p > 1 - confidence or (again.value or 0.0) * value <= 0


def _sum(pulls: Floats) -> float:
    """The difference that pulls add up to; exactly 0 where they cancel but for the rounding of task values."""
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
    """The default interval of a mean on [-width, width], and the test that rejects what it leaves out."""
    if width is None:
        return Difference(value, math.sqrt(units.variance), None, None, STRICT, len(units.pulls), why=NO_RANGE)
    rate = min(max((value + width) / (2 * width), 0.0), 1.0)
    effective = units.effective_units
    doubt = (1 + effective / units.effective_tasks) / 2
    spread = Spread(rate, units.variance / (2 * width) ** 2, len(units.pulls), effective, doubt)
    n, freedom = strength_of(spread)
    low, high = (2 * width * end - width for end in wilson_ends(spread, confidence))
    p = min(1.0, 2 * upper_tail(abs(rate - 0.5) * 2 * math.sqrt(n), freedom))
    stderr = math.sqrt(units.variance)
    return Difference(
        value, stderr, (low, high), p, STRICT, len(units.pulls), effective, freedom, width, n,
        plain_stderr=stderr, evidence=units,
    )  # fmt: skip


def _by_unit(clusters: Ints | None, *columns: Floats) -> tuple[Floats, ...]:
    if clusters is None or len(clusters) == 0:
        return columns
    size = int(clusters.max()) + 1
    sums = ((sum_by(clusters, column, size), sum_by(clusters, np.abs(column), size)) for column in columns)
    # what cancels but for rounding is 0: of clusters that all cancel nothing else would be left to judge by
    return tuple(np.where(np.abs(values) < NOISE * sizes, 0.0, values) for values, sizes in sums)


def _effective(share: Floats) -> float:
    squares = float(total(share * share))
    return 1 / squares if squares else 0.0


@dataclass(frozen=True, slots=True)
class McNemar:
    """The test by the tasks that only one run passes."""

    first_only: int  # b
    second_only: int  # c
    exact: float  # two-sided p; 1 when no task differs
    mid_p: float  # two-sided, with half the chance of the table seen; less cautious, still near its level
    first_better: float  # exact one-sided p, small where the first run is better
    second_better: float  # exact one-sided p, small where the second run is
    chance_first: float  # posterior chance that the first run is better, uniform prior over the four outcomes


def mcnemar(first_only: int, second_only: int) -> McNemar:
    """The test of b tasks that only the first run passes and c that only the second does.

    ``exact = 2 P(X <= min(b, c))`` for X of b + c fair coins, at most 1; mid-p takes the chance of
    X = min(b, c) away once; the posterior chance is that of ``Beta(b + 1, c + 1) > 1/2``.

    >>> found = mcnemar(10, 2)
    >>> round(found.exact, 6), round(found.mid_p, 6)
    (0.038574, 0.022461)
    """
    from scipy.special import bdtr, betainc, betaln

    b, c = int(first_only), int(second_only)
    if b < 0 or c < 0:
        raise ValueError(f"{b} and {c} tasks; expected counts")
    n, fewer = b + c, min(b, c)
    at = float(np.exp(-betaln(fewer + 1, n - fewer + 1) - n * np.log(2))) / (n + 1)
    tail = float(bdtr(fewer, n, 0.5))
    return McNemar(
        b,
        c,
        min(1.0, 2 * tail),
        min(1.0, 2 * tail - at),
        float(bdtr(c, n, 0.5)),
        float(bdtr(b, n, 0.5)),
        float(betainc(c + 1, b + 1, 0.5)),
    )


def flips(first: Bools, second: Bools) -> McNemar:
    """The test of two runs with one verdict per task, [T] each, tasks in the same order."""
    return mcnemar(int(np.count_nonzero(first & ~second)), int(np.count_nonzero(second & ~first)))


DRAWS = 10_000
FEW = 20  # units of which all sign patterns are looked at
TOGETHER = 8  # units whose signs one byte decides
STEP = 64  # groups of units at a time: their table of signed sums, 128 KB, stays in the processor's cache
ALIKE = 2.0**-40
"""Sums that differ by less than this part of the largest pull are a tie: the pulls themselves are rounded."""


@dataclass(frozen=True, slots=True)
class SignFlip:
    """How often a random choice of signs brings a difference as large as the one seen."""

    p: float  # two-sided
    patterns: int  # of signs looked at
    exact: bool  # all there are
    units: int  # whose difference is not 0; the others have no sign to flip


def sign_flip(pulls: Floats, *, seed: int = 0, draws: int = DRAWS) -> SignFlip:
    """The sign-flip test of what each unit adds to the difference, [G]: tasks, or clusters as in `units_of`.

    Exact for 20 units or fewer that differ. Else ``(hits + 1) / (draws + 1)``: the pattern that was seen
    is one of the patterns. No unit that differs: p is 1.

    >>> sign_flip(np.array([0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05])).p
    0.15625
    """
    if not np.isfinite(pulls).all():
        raise ValueError("a difference is not a finite number")
    whole, seen, slack = _integers(pulls)
    if len(whole) <= FEW:
        sums, observed = _all_patterns(whole), 0
    else:
        sums, observed = _some_patterns(whole, seed, draws), 1
    patterns = len(sums) + observed
    two_sided = int(np.count_nonzero(np.abs(sums) >= abs(seen) - slack)) + observed
    return SignFlip(two_sided / patterns, len(sums), observed == 0, len(whole))


def _integers(pulls: Floats) -> tuple[Ints, int, int]:
    """The sizes of the pulls that are not 0, as integers whose sum has no overflow; their own sum; what is a tie.

    Largest first: neither the order of tasks means anything, nor the signs, so that two pulls of one size but
    for rounding may change places.
    """
    moved = pulls[pulls != 0]
    size = np.sort(np.abs(moved))[::-1]
    if not len(size):
        return np.zeros(0, dtype=np.int64), 0, 0
    power = 61 - math.frexp(float(size[0]))[1] - len(size).bit_length()
    slack = int(math.ldexp(float(size[0]) * ALIKE, power))
    whole, seen = (np.rint(np.ldexp(some, power)).astype(np.int64) for some in (size, moved))
    return whole, int(seen.sum()), slack


def _all_patterns(whole: Ints) -> Ints:
    sums = np.zeros(1, dtype=np.int64)
    for pull in whole.tolist():
        sums = np.concatenate([sums + pull, sums - pull])
    return sums


def _some_patterns(whole: Ints, seed: int, draws: int) -> Ints:
    """Sums under random signs, [draws]: one look-up per eight units, in a table of their 256 signed sums."""
    groups = -(-len(whole) // TOGETHER)
    padded = np.zeros((groups, TOGETHER), dtype=np.int64)
    padded.ravel()[: len(whole)] = whole
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(TOGETHER)) & 1)  # [256, 8]
    sums = np.zeros(draws, dtype=np.int64)
    source = np.random.PCG64(seed)
    offsets = np.arange(STEP) * 256
    for first in range(0, groups, STEP):
        some = padded[first : first + STEP]
        table = (some @ signs.T).ravel()
        words = -(-draws * len(some) // 8)
        # raw 64-bit output: numpy may change how it makes numbers of it, but not the output itself
        chosen = source.random_raw(words).astype("<u8", copy=False).view(np.uint8)[: draws * len(some)]
        index = chosen.reshape(draws, len(some)) + offsets[: len(some)]
        sums += table.take(index, mode="clip").sum(axis=1)
    return sums


def below(passes: Ints, samples: Ints, rate: float) -> Floats:
    """One-sided p of each task's rate being at least ``rate``, [T]: the chance of as few passes or fewer.

    ``P(X <= c)`` for X binomial with n samples and this rate (Clopper and Pearson 1934). Small means: the task has
    been shown to lie below. A rate above 1 nobody reaches, p is 0; of 0 or less everybody does, p is 1.

    >>> below(np.array([0, 3]), np.array([4, 4]), 0.5).tolist()
    [0.0625, 0.9375]
    """
    from scipy.special import bdtr

    if rate > 1 or rate <= 0:
        return np.full(len(passes), 0.0 if rate > 1 else 1.0)
    return np.asarray(bdtr(passes.astype(float), samples, rate))


MOST_VALUES = 200_000_000
"""Values that all draws of a metric of task values may hold together; fewer draws where there are more."""
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
    """A difference, and what became of it on every draw; or why there is none."""

    value: float | None  # first less second
    stderr: float | None  # the standard deviation of the draws
    interval: tuple[float, float] | None  # the middle draws, and more of them where units are few
    p: float | None  # two-sided: by the share of draws on the other side of 0
    draws: int
    units: int
    why: str | None = None
    found: Floats | None = field(default=None, compare=False, repr=False)  # [B] the difference on every draw


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

    Whole clusters are drawn where tasks come in ``clusters``. A mean is quickest as the ratio of the
    differences, with zeros for the second run: columns of equal values are not drawn.
    """
    stacked = np.concatenate([first, second], axis=1)
    if clusters is not None and len(clusters):
        size = int(clusters.max()) + 1
        there = np.bincount(clusters, minlength=size) > 0
        stacked = np.stack([sum_by(clusters, column, size)[there] for column in stacked.T], axis=1)
    if not len(stacked):
        return Resampled(None, None, None, None, 0, 0, NO_COMMON)
    statistics = first.shape[1]
    sums = np.asarray(total(np.ascontiguousarray(stacked.T)))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(apart(combine(sums[:statistics]), combine(sums[statistics:])))
        if len(stacked) < 2:
            return _alone(value, len(first))
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
    """The difference of a metric of task values that no sums carry, as a median, from [T] each.

    Without clusters the draws go to ``aggregate`` in blocks, [b, T]; with them one by one, as no two draws
    of clusters have the same number of tasks. At most MOST_VALUES values in all, and at least 1,000 draws.
    """
    code = np.arange(len(first)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    units = int(code.max(initial=-1)) + 1
    if not units:
        return Resampled(None, None, None, None, 0, 0, NO_COMMON)
    value = float(apart(aggregate(first), aggregate(second)))
    if units < 2:
        return _alone(value, len(first))
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
    """A mean or a pooled rate as a metric of sums: the first over the second, ``[..., 2] -> [...]``."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def resampled_sums(columns: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """The sums of S columns over G units drawn with replacement, [draws, S], from [G, S].

    Every column sees the same draws. Units are put in order first, so that the order of tasks does not
    matter; a column of equal values needs no draws.
    """
    order = np.lexsort(columns.T[::-1])
    scaled = [scaled_integers(column[order]) for column in columns.T]
    units = len(columns)
    constant = [bool((whole == whole[0]).all()) for whole, _ in scaled]
    drawn = np.empty((draws, len(scaled)))
    start = 0
    for index in unit_draws(units, seed, draws):
        stop = start + len(index)
        for number, (whole, power) in enumerate(scaled):
            part = units * float(whole[0]) if constant[number] else whole.take(index, mode="clip").sum(axis=1)
            drawn[start:stop, number] = np.ldexp(part, -power)
        start = stop
    return drawn


def _alone(value: float, tasks: int) -> Resampled:
    """The difference of a single unit: there is nothing to draw from."""
    if not math.isfinite(value):
        return Resampled(None, None, None, None, 0, 1, UNDEFINED)
    return Resampled(value, None, None, None, 0, 1, ONE_TASK if tasks < 2 else ONE_CLUSTER)


def by_draws(value: float, differences: Floats, confidence: float, units: int) -> Resampled:
    """A difference by what it became on every draw of so many units, [B].

    Draws of few units vary too little: by the square root of (n - 1) / n, and as a normal distribution where the
    t distribution is right. So the interval reaches to the draws that are as rare under the normal distribution
    as sqrt(n / (n - 1)) t is (Hesterberg 2015, "What teachers should know about the bootstrap", expanded
    percentiles), and p is read the other way round. It is never below 2^(1 - n), the chance that n units all
    point one way; where that alone is more than 1 - confidence there is no interval.
    """
    draws = len(differences)
    if not math.isfinite(value):
        return Resampled(None, None, None, None, draws, units, UNDEFINED)
    if not np.isfinite(differences).all():
        return Resampled(value, None, None, None, draws, units, SOME_UNDEFINED)
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
        return Resampled(value, None, None, p, draws, units, why, differences)  # nor a spread to rely on
    tail = NormalDist().cdf(-t_quantile((1 + confidence) / 2, units - 1) * math.sqrt(units / (units - 1)))
    low, high = np.quantile(differences, [tail, 1 - tail]).tolist()
    return Resampled(value, stderr, (min(low, value), max(high, value)), p, draws, units, found=differences)
