"""Alarms on a training run with a bounded chance of ever being false, for a run of any length.

::

    groups of a step ──► centred units c_i ──► log f(stake) ──► Process: E, a mixture over start steps and stakes
    earlier steps ─────► a bound on the reference (running best, base steps) ──► the level that the null states

Before each step a null is stated, such as "the mean is at least m", and a bet is placed against it on every group. If
the groups of a step are independent given the past, the product of ``1 + stake c_i`` has an expectation of at most 1
under the null, whatever the distribution of the rewards and the path of the policy. Its running product, started anew
at every step with a share of the capital, is an e-process: by Ville's inequality it ever reaches 1/alpha with a chance
of at most alpha (Waudby-Smith and Ramdas 2024 for the bets). The noise of the reference is not ignored: half of alpha
is spent on a bound of it. Arrays may have leading axes, one for each of several runs.

An alarm stays open until a second e-process, against "the mean has not come back", closes it: `Recovery`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calipers.rollouts.column import Bools, Floats, Ints

E_PROCESS: Final = "e_process"
RECOVERY: Final = "recovery"
# stakes of very different size, so that one of them is near the best for a drop of any size; set once, not searched
STAKES: Final = np.array([0.8, 0.4, 0.2, 0.1, 0.05])
MOST: Final = 0.9  # the largest share of the capital that a group may lose
WINDOWS: Final = (1, 4, 16, 64)  # steps; only long windows make small drops visible
FORGETTING: Final = 0.97  # weight of a task's earlier value, per step of age
HIGHEST: Final = 5.0  # values are cut off at this multiple of the limit, which only lowers the mean


def stakes_below(most: Floats | float) -> Floats:
    """The stakes, capped at ``most``, ``[...] -> [..., 5]``; a cap of 0 or less is ignored."""
    limit = np.asarray(most, dtype=np.float64)
    return np.asarray(np.minimum(STAKES, np.where(limit > 0, limit, np.inf)[..., None]))


def log_factors(units: Floats, stakes: Floats) -> Floats:
    """``sum_i ln(1 + stake c_i)`` of a step, for each stake: ``[..., G], [..., 5] -> [..., 5]``."""
    return np.stack([np.log1p(stakes[..., j, None] * units).sum(axis=-1) for j in range(stakes.shape[-1])], axis=-1)


@dataclass(frozen=True, slots=True)
class AlarmUnits:
    """The evidence of one step against a null: each group's unit, and stakes that can never lose the whole capital."""

    centred: Floats  # [..., G]
    stakes: Floats  # [..., 5]

    @property
    def logs(self) -> Floats:
        """The log of the factor by which each stake's capital changes in this step, [..., 5]."""
        return log_factors(self.centred, self.stakes)


def drop_units(values: Floats, expected: Floats, level: Floats | float, mean_expected: Floats | float) -> AlarmUnits:
    """Units against "the mean is at least ``level``": ``c_i = (m - hbar) - (y_i - h_i)``, values on [0, 1], [..., G].

    ``expected`` is h_i, the value of each group that earlier steps predict, and ``mean_expected`` is hbar, its mean
    over the tasks of the null: the whole set or pool, never the batch. With the mean of the batch, the luck of the
    batch would leave the variance and stay in the sum, and epochs over a pool would alarm in up to 29 % of runs of
    1,000 steps.
    """
    level, centre = np.asarray(level, dtype=np.float64), np.asarray(mean_expected, dtype=np.float64)
    units = (level - centre)[..., None] - (values - expected)
    room = 1 - expected.min(axis=-1) + centre - level
    with np.errstate(divide="ignore"):
        return AlarmUnits(units, stakes_below(np.where(room > 0, MOST / room, np.inf)))


def rate_units(shares: Floats, limit: float) -> AlarmUnits:
    """Units against "the rate is at most ``limit``": ``c_i = share_i / r - 1``, [..., G]."""
    return AlarmUnits(shares / limit - 1, stakes_below(np.full(shares.shape[:-1], MOST)))


def mean_units(values: Floats, limit: Floats | float) -> AlarmUnits:
    """Units against "the mean is at most ``limit``", for values of 0 or more: ``min(y_i / x, 5) - 1``, [..., G].

    No upper bound of the values is needed, because cutting a value off only lowers the mean.
    """
    limits = np.asarray(limit, dtype=np.float64)[..., None]
    return AlarmUnits(np.minimum(values / limits, HIGHEST) - 1, stakes_below(np.full(values.shape[:-1], MOST)))


def gap_units(first: Floats, second: Floats, limit: Floats | float) -> AlarmUnits:
    """Units against "the mean of first less second is at most ``limit``", both on [0, 1], [..., G]."""
    limits = np.asarray(limit, dtype=np.float64)
    return AlarmUnits(first - second - limits[..., None], stakes_below(MOST / (1 + limits)))


HELD_OUT_SHARE: Final = 0.5  # the share of the gain on training tasks that held-out tasks must show


def held_out_units(
    train: Floats, held_out: Floats, expected: Floats, mean_expected: Floats | float, limit: Floats | float
) -> AlarmUnits:
    """Units against "the mean of half of train less held-out is at most ``limit``", both on [0, 1], [..., G].

    ``c = a_i/2 - (b_j - h_j) - hbar - x``: each training group a_i is matched at random with a held-out task b_j, whose
    value is compared with h_j, the value that earlier evaluations predict; hbar is the mean of h over the whole
    held-out set.
    """
    centre, limits = np.asarray(mean_expected, dtype=np.float64), np.asarray(limit, dtype=np.float64)
    units = HELD_OUT_SHARE * train - (held_out - expected) - (centre + limits)[..., None]
    room = 1 + centre - expected.min(axis=-1) + limits
    return AlarmUnits(units, stakes_below(np.where(room > 0, MOST / np.where(room > 0, room, 1.0), np.inf)))


def held_out_bound(
    train: tuple[Floats | float, Floats | float, Floats | float],
    held_out: tuple[Floats | float, Floats | float, Floats | float],
    level: float,
) -> Floats:
    """An upper bound of the mean of half of train less held-out in the base steps.

    ``train`` and ``held_out`` are the mean, the squared standard error and the number of units of each.
    """
    low, width = -1.0, 1.0 + HELD_OUT_SHARE  # the range of a/2 - b
    gap = HELD_OUT_SHARE * np.asarray(train[0]) - np.asarray(held_out[0])
    variance = HELD_OUT_SHARE**2 * np.asarray(train[1]) + np.asarray(held_out[1])
    units = np.minimum(np.asarray(train[2]), np.asarray(held_out[2]))
    return low + width * upper_bound((gap - low) / width, variance / width**2, units, level)


@dataclass(frozen=True, slots=True)
class Process:
    """An e-process: capital split over stakes and start steps, which starts at 1 and is at most 1 on average.

    ``M_j <- (M_j + w/5) f(stake_j)``, ``cash <- cash - w``, with w = 1/2 at the first step and 1/2H at each later
    step, so that half of the capital bets on a change from the start and the rest on a change at any later step.

    An even process has w = 1/H at every step, split over the stakes in proportion to their size. It is made for
    nightly runs, in which a change is equally likely at every night and lasts for a few nights only, too few for small
    stakes to grow.
    """

    steps: int  # H, planned
    logs: Floats  # [..., 5] ln M_j
    cash: Floats  # [...]
    sums: Floats  # [..., 5] sum of ln f since each stake last lost all its gain
    starts: Ints  # [..., 5] the step at which that sum began
    taken: int = 0  # number of steps that were bet on
    last: int = -1  # the step that was bet on last
    even: bool = False  # the same capital for a change at any step, most of it on the large stakes

    @classmethod
    def begin(cls, steps: int, shape: tuple[int, ...] = (), *, even: bool = False) -> Process:
        """The process before its first step, with ``steps`` planned steps."""
        by_stake = (*shape, len(STAKES))
        starts = np.zeros(by_stake, dtype=np.int64)
        return cls(steps, np.full(by_stake, -np.inf), np.ones(shape), np.zeros(by_stake), starts, even=even)

    def step(self, logs: Floats, step: int | None = None) -> Process:
        """The process after a step with ``ln f`` of each stake, [..., 5]; ``step`` is its number, for `since`."""
        first, later = (1 / self.steps, 1 / self.steps) if self.even else (0.5, 0.5 / self.steps)
        weight = first if self.taken == 0 else max(0.0, min(later, float(self.cash.min(initial=1.0))))
        number = self.taken if step is None else step
        with np.errstate(divide="ignore"):
            shares = STAKES / STAKES.sum() if self.even else np.ones(len(STAKES)) / len(STAKES)
            entry = np.log(weight * shares)
        stake_logs = np.logaddexp(self.logs, entry) + logs
        fresh = self.sums <= 0
        sums = np.where(fresh, 0.0, self.sums) + logs
        starts = np.where(fresh, number, self.starts)
        return replace(
            self,
            logs=stake_logs,
            cash=self.cash - weight,
            taken=self.taken + 1,
            sums=np.maximum(sums, 0.0),
            starts=starts,
            last=number,
        )

    @property
    def log_value(self) -> Floats:
        """The log of E, [...]."""
        top = np.maximum(self.logs.max(axis=-1), 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(top + np.log(self.cash * np.exp(-top) + np.exp(self.logs - top[..., None]).sum(axis=-1)))

    @property
    def value(self) -> Floats:
        """E, [...]."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_value)

    @property
    def since(self) -> Ints:
        """The step since which the stake with the most capital has gained, [...]; the last step if it has not."""
        best = self.logs.argmax(axis=-1)[..., None]
        start = np.take_along_axis(self.starts, best, axis=-1)[..., 0]
        gains = np.take_along_axis(self.sums, best, axis=-1)[..., 0] > 0
        return np.where(gains, start, self.last)


CLOSE_AT: Final = 20.0  # the evidence that closes an alarm: false in at most 5 % of alarms, by Ville's inequality
# the share of the change that may remain when an alarm closes: with a half, most half recoveries would close it
MAY_REMAIN: Final = 0.25


def recovery_level(bound: Floats | float, mean: Floats | float) -> Floats:
    """The level c of "the mean is at most c", against which recovery is tested: ``c = b - (b - a)/4``, [...].

    b is the level that the alarm's null states, and a the mean since the change, or b if the mean is above it.
    """
    reference = np.asarray(bound, dtype=np.float64)
    return np.asarray(reference - MAY_REMAIN * (reference - np.minimum(reference, mean)))


def recovery_units(
    values: Floats, expected: Floats, level: Floats | float, mean_expected: Floats | float
) -> AlarmUnits:
    """Units against "the mean is at most ``level``": ``u_i = (y_i - h_i) - (c - hbar)``, for values of 0 or more.

    The arguments are those of `drop_units`; no upper bound of the values is needed, because a value far above the
    level only adds to the evidence.
    """
    limit, centre = np.asarray(level, dtype=np.float64), np.asarray(mean_expected, dtype=np.float64)
    units = (values - expected) - (limit - centre)[..., None]
    room = expected.max(axis=-1) + limit - centre
    with np.errstate(divide="ignore"):
        return AlarmUnits(units, stakes_below(np.where(room > 0, MOST / np.where(room > 0, room, 1.0), np.inf)))


@dataclass(frozen=True, slots=True)
class Recovery:
    """The e-process of an open alarm, against "the mean is at most ``level``"; the alarm closes when it reaches 20.

    On the k-th step after the alarm ``M_j <- (M_j + 1/(5 k (k + 1))) prod_i (1 + stake_j u_i)``, and
    ``E = 1/(k + 1) + sum_j M_j``: the capital that is not staked yet bets on a recovery at a later step.
    """

    level: float  # c
    logs: Floats  # [5] ln M_j
    taken: int = 0  # k, the number of steps that were bet on

    @classmethod
    def begin(cls, level: float) -> Recovery:
        """The process of an alarm that was just raised."""
        return cls(level, np.full(len(STAKES), -np.inf))

    def step(self, values: Floats, expected: Floats, mean_expected: float) -> Recovery:
        """The process after a step with the values y_i, their predictions h_i, [G] each, and hbar."""
        count = self.taken + 1
        entry = math.log(1 / (len(STAKES) * count * (count + 1)))
        factors = recovery_units(values, expected, self.level, mean_expected).logs
        return replace(self, logs=np.logaddexp(self.logs, entry) + factors, taken=count)

    @property
    def log_value(self) -> float:
        """The log of E."""
        return float(np.logaddexp.reduce(np.append(self.logs, -math.log(self.taken + 1))))

    @property
    def value(self) -> float:
        """E, which begins with 1."""
        return math.exp(min(self.log_value, 700.0))

    @property
    def closes(self) -> bool:
        """Whether the evidence is enough to close the alarm."""
        return self.log_value >= math.log(CLOSE_AT)


def effective(mean: Floats, variance: Floats, units: Floats) -> Floats:
    """The number of 0/1 units with as much information, [...], as in `intervals.strength_of` without clusters."""
    above = mean * (1 - mean) + variance + 1 / (4 * units)
    return np.maximum(1.0, above / (variance + 1 / (4 * units * units)))


def lower_bound(mean: Floats | float, variance: Floats | float, units: Floats | float, level: float) -> Floats:
    """A lower bound of a mean on [0, 1] that is too high with a chance of about ``level``, [...].

    ``BetaInv(level; m n, n - m n + 1)`` for n effective units, which is Clopper and Pearson's bound for 0/1 values.
    """
    from scipy.special import betaincinv

    mean = np.clip(np.asarray(mean, dtype=np.float64), 0.0, 1.0)
    n = effective(mean, np.asarray(variance, dtype=np.float64), np.asarray(units, dtype=np.float64))
    passes = mean * n
    ends = betaincinv(np.maximum(passes, 1e-300), n - passes + 1, level)
    return np.asarray(np.where(passes > 0, ends, 0.0))


def upper_bound(mean: Floats | float, variance: Floats | float, units: Floats | float, level: float) -> Floats:
    """The mirror image of `lower_bound`, [...]."""
    return np.asarray(1 - lower_bound(1 - np.asarray(mean, dtype=np.float64), variance, units, level))


def within_variance(sums: Floats, squares: Floats, counts: Floats) -> tuple[float, float, float]:
    """Mean, squared standard error and units of a step over a fixed set of tasks, from each task's sums, [G] each.

    ``se^2 = sum_i s_i^2/n_i / G^2`` with the within-task variance s_i^2; units are rollouts. If no task has two
    samples, ``se^2`` is ``m(1-m)/G``, its largest possible value.
    """
    nonempty = counts > 0
    n, sums, squares = counts[nonempty], sums[nonempty], squares[nonempty]
    size = len(n)
    if size == 0:
        return math.nan, math.nan, 0.0
    mean = float((sums / n).mean())
    several = n > 1
    if not several.any():
        return mean, mean * (1 - mean) / size, float(n.sum())
    variances = np.maximum(squares[several] - sums[several] ** 2 / n[several], 0.0) / (n[several] - 1)
    within = np.full(size, float(variances.mean()))  # a task with one sample gets the mean variance of the others
    within[several] = variances
    return mean, float((within / n).sum()) / size**2, float(n.sum())


def group_variance(values: Floats) -> tuple[float, float, float]:
    """Mean, squared standard error and units of a step for a stream of prompts, from its group means, [G]."""
    size = len(values)
    if size == 0:
        return math.nan, math.nan, 0.0
    mean = float(values.mean())
    variance = float(values.var(ddof=1)) / size if size > 1 else mean * (1 - mean)
    return mean, variance, float(size)


@dataclass(frozen=True, slots=True)
class RunningBest:
    """The highest lower bound so far of a step, of a window of 4, 16 or 64 steps, or of all steps together.

    The best single step is at least as good as the mean of any window that contains it, so that windows are valid. The
    window of all steps is for nightly runs, which are few: ten of them are more than a window of four.
    """

    level: float  # alpha_b / (4 H) for each bound, alpha_b / (5 H) with the window of all steps
    means: Floats  # [..., up to 64] of the last steps, the newest last
    variances: Floats
    units: Floats
    best: Floats  # [...]; 0 before the first step
    totals: Floats | None = None  # [..., 4] over all steps: their number, sums of means, of variances and of units

    @classmethod
    def begin(cls, alpha: float, steps: int, shape: tuple[int, ...] = (), *, pooled: bool = False) -> RunningBest:
        """The state before the first step; ``alpha`` is spread over the bounds of all windows of all ``steps``."""
        empty = np.zeros((*shape, 0))
        totals = np.zeros((*shape, 4)) if pooled else None
        return cls(alpha / ((len(WINDOWS) + pooled) * steps), empty, empty, empty, np.zeros(shape), totals)

    def step(self, mean: Floats | float, variance: Floats | float, units: Floats | float) -> RunningBest:
        """The state after a step with a mean, a squared standard error and a number of units, [...] each."""
        shape = self.best.shape
        new = [np.broadcast_to(np.asarray(value, dtype=np.float64), shape) for value in (mean, variance, units)]
        means, variances, counts = (
            np.concatenate([old, value[..., None]], -1)[..., -WINDOWS[-1] :]
            for old, value in zip((self.means, self.variances, self.units), new, strict=True)
        )
        best = self.best
        for window in WINDOWS:
            if means.shape[-1] >= window:
                bound = lower_bound(
                    means[..., -window:].mean(axis=-1),
                    variances[..., -window:].sum(axis=-1) / window**2,
                    counts[..., -window:].sum(axis=-1),
                    self.level,
                )
                best = np.maximum(best, bound)
        totals = self.totals
        if totals is not None:
            totals = totals + np.stack([np.ones(self.best.shape), *new], axis=-1)
            steps, total, spread, rollouts = np.moveaxis(totals, -1, 0)
            best = np.maximum(best, lower_bound(total / steps, spread / steps**2, rollouts, self.level))
        return replace(self, means=means, variances=variances, units=counts, best=best, totals=totals)


def jitter(means: Floats, variances: Floats) -> float:
    """The standard deviation of a run's real movement from step to step, without its noise, from S steps, [S] each.

    ``sqrt(max(0, Var(m_s - m_(s-1))/2 - mean of se^2))``; 0 below three steps. An alarm for a drop smaller than this
    would be correct and useless.
    """
    if len(means) < 3:
        return 0.0
    return math.sqrt(max(0.0, float(np.diff(means).var(ddof=1)) / 2 - float(variances.mean())))


def closed(values: Floats, weights: Floats | None = None) -> Floats:
    """The evidence of each alarm adjusted for the others, [A]: the smallest average of any set that contains it.

    ``e*_a = min over k of (E_a + the k smallest others) / (k + 1)``, each with its weight. An alarm is named as a
    cause if its adjusted evidence reaches the limit of the average (closed testing).

    >>> closed(np.array([30, 0.4, 2, 900])).round(9).tolist()
    [10.8, 0.4, 1.2, 233.1]
    """
    share = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    for alarm in range(len(values)):
        members = np.concatenate([[alarm], order[order != alarm]])
        adjusted[alarm] = (np.cumsum((share * values)[members]) / np.cumsum(share[members])).min()
    return adjusted


def segment_level(alpha: float, segment: int, alarms: int) -> float:
    """The level of the k-th segment after D alarms: ``alpha (D + 1) / (k (k + 1))``.

    e-LOND with ``gamma_k = 1/(k(k+1))`` (Xu and Ramdas 2024): the expected share of false alarms among all alarms is
    at most alpha, under any dependence between segments.
    """
    return alpha * (alarms + 1) / (segment * (segment + 1))


def slow_gamma(number: Ints | int) -> Floats:
    """The share of alpha for test t, ``0.07720838 ln(max(t, 2)) / (t exp(sqrt(ln t)))``; all shares add up to 1."""
    t = np.asarray(number, dtype=np.float64)
    return np.asarray(0.07720838 * np.log(np.maximum(t, 2)) / (t * np.exp(np.sqrt(np.log(t)))))


def lord_plus_plus(p: Sequence[float] | Floats, alpha: float = 0.05) -> tuple[Floats, Bools]:
    """The level of each test in a stream of p values, [N], and which are rejected (Ramdas et al. 2017, LORD++).

    ``alpha_t = gamma_t w0 + (alpha - w0) gamma_(t - tau_1) + alpha sum_(j>1) gamma_(t - tau_j)``, w0 = alpha/2, for
    the rejections tau_j so far. The p values must be independent of the past.
    """
    first = alpha / 2
    levels, rejected = [], []
    taus: list[int] = []
    for t, value in enumerate(np.asarray(p, dtype=np.float64).tolist(), 1):
        level = first * float(slow_gamma(t))
        for order, tau in enumerate(taus):
            level += (alpha - first if order == 0 else alpha) * float(slow_gamma(t - tau))
        levels.append(level)
        rejected.append(value <= level)
        if value <= level:
            taus.append(t)
    return np.array(levels), np.array(rejected, dtype=bool)


def e_lond(e: Sequence[float] | Floats, alpha: float = 0.05) -> tuple[Floats, Bools]:
    """The level of each test in a stream of e values, [N], and which are rejected (Xu and Ramdas 2024)."""
    levels: list[float] = []
    rejected: list[bool] = []
    for t, value in enumerate(np.asarray(e, dtype=np.float64).tolist(), 1):
        level = alpha * float(slow_gamma(t)) * (sum(rejected) + 1)
        levels.append(level)
        rejected.append(value >= 1 / level)
    return np.array(levels), np.array(rejected, dtype=bool)


def e_of_z(z: Floats | float) -> Floats:
    """The e value of a standard normal z against "the mean is at most 0": the mean of exp(l z - l^2/2) over four l."""
    sizes = np.array([1.5, 2.5, 3.5, 4.5])
    return np.asarray(np.exp(np.asarray(z, dtype=np.float64)[..., None] * sizes - sizes**2 / 2).mean(axis=-1))
