"""Alarms on a training run whose chance of ever being false is bounded, however long one looks.

::

    groups of a step ──► centred units c_i ──► log f(stake) ──► Process: E, a mixture over start steps and stakes
    earlier steps ─────► a bound on the reference (running best, base steps) ──► the level that the null states

Before each step one states a null, "the mean is at least m", and bets against it on every group. If the groups of a
step are independent given the past, the product of ``1 + stake c_i`` has an expectation of at most 1 under the null,
whatever the law of the rewards and the path of the policy. Its running product, started anew at every step with a
share of the capital, is an e-process: by Ville's inequality it ever reaches 1/alpha with a chance of at most alpha
(Waudby-Smith and Ramdas 2024 for the bets). The noise of the reference is not ignored: half of alpha pays for a bound
on it. Arrays may have leading axes, one for each of several runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calipers.rollouts.column import Bools, Floats, Ints

E_PROCESS: Final = "e_process"
# stakes of very different size, so that one of them is near the best for a drop of any size; set once, not searched
STAKES: Final = np.array([0.8, 0.4, 0.2, 0.1, 0.05])
MOST: Final = 0.9  # of the capital that a group may lose
WINDOWS: Final = (1, 4, 16, 64)  # steps; long windows are what makes small drops visible
FORGETTING: Final = 0.97  # weight of a task's earlier value, per step of age
HIGHEST: Final = 5.0  # times the limit: a value beyond it counts as this much, which only lowers the mean


def stakes_below(most: Floats | float) -> Floats:
    """The stakes, none above ``most``, ``[...] -> [..., 5]``; a limit of 0 or less is none."""
    limit = np.asarray(most, dtype=np.float64)
    return np.asarray(np.minimum(STAKES, np.where(limit > 0, limit, np.inf)[..., None]))


def log_factors(units: Floats, stakes: Floats) -> Floats:
    """``sum_i ln(1 + stake c_i)`` of a step, for each stake: ``[..., G], [..., 5] -> [..., 5]``."""
    return np.stack([np.log1p(stakes[..., j, None] * units).sum(axis=-1) for j in range(stakes.shape[-1])], axis=-1)


@dataclass(frozen=True, slots=True)
class AlarmUnits:
    """What one step brings against a null: each group's unit, and the stakes that can never lose all."""

    centred: Floats  # [..., G]
    stakes: Floats  # [..., 5]

    @property
    def logs(self) -> Floats:
        """The log of what each stake makes of a unit of capital in this step, [..., 5]."""
        return log_factors(self.centred, self.stakes)


def drop_units(values: Floats, expected: Floats, level: Floats | float, mean_expected: Floats | float) -> AlarmUnits:
    """Units against "the mean is at least ``level``": ``c_i = (m - hbar) - (y_i - h_i)``, values on [0, 1], [..., G].

    ``expected`` is h_i, what earlier steps say of each group, and ``mean_expected`` its mean over the tasks that the
    null speaks of: the whole set or pool, never the batch. With the mean of the batch its luck would leave the
    variance and stay in the sum, and epochs over a pool would alarm in up to 29 % of 1,000 steps.
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

    No upper bound of the values is needed: cutting a value off only lowers the mean.
    """
    at = np.asarray(limit, dtype=np.float64)[..., None]
    return AlarmUnits(np.minimum(values / at, HIGHEST) - 1, stakes_below(np.full(values.shape[:-1], MOST)))


def gap_units(first: Floats, second: Floats, limit: Floats | float) -> AlarmUnits:
    """Units against "the mean of first less second is at most ``limit``", both on [0, 1], [..., G]."""
    at = np.asarray(limit, dtype=np.float64)
    return AlarmUnits(first - second - at[..., None], stakes_below(MOST / (1 + at)))


HELD_OUT_SHARE: Final = 0.5  # of what training gains that the held-out tasks must gain, too


def held_out_units(
    train: Floats, held_out: Floats, expected: Floats, mean_expected: Floats | float, limit: Floats | float
) -> AlarmUnits:
    """Units against "the mean of half of train less held-out is at most ``limit``", both on [0, 1], [..., G].

    ``c = a_i/2 - (b_j - h_j) - hbar - x``: each training group is matched at random with a held-out task, whose value
    is compared with what earlier evaluations say of it, h_j; hbar is the mean of h over the whole held-out set.
    """
    centre, at = np.asarray(mean_expected, dtype=np.float64), np.asarray(limit, dtype=np.float64)
    units = HELD_OUT_SHARE * train - (held_out - expected) - (centre + at)[..., None]
    room = 1 + centre - expected.min(axis=-1) + at
    return AlarmUnits(units, stakes_below(np.where(room > 0, MOST / np.where(room > 0, room, 1.0), np.inf)))


def held_out_bound(
    train: tuple[Floats | float, Floats | float, Floats | float],
    held_out: tuple[Floats | float, Floats | float, Floats | float],
    level: float,
) -> Floats:
    """An upper bound of the mean of half of train less held-out in the base steps; mean, variance and units of each."""
    low, width = -1.0, 1.0 + HELD_OUT_SHARE  # the range of a/2 - b
    gap = HELD_OUT_SHARE * np.asarray(train[0]) - np.asarray(held_out[0])
    variance = HELD_OUT_SHARE**2 * np.asarray(train[1]) + np.asarray(held_out[1])
    units = np.minimum(np.asarray(train[2]), np.asarray(held_out[2]))
    return low + width * upper_bound((gap - low) / width, variance / width**2, units, level)


@dataclass(frozen=True, slots=True)
class Process:
    """An e-process: capital split over stakes and start steps; it starts at 1 and is at most 1 on average.

    ``M_j <- (M_j + w/5) f(stake_j)``, ``cash <- cash - w``, with w = 1/2 at the first step and 1/2H at each later
    one, so that half of the capital bets on a change from the start and the rest on a change at any later step.

    An even process has w = 1/H at every step, and each stake a share of it in proportion to its size: for nights,
    where a change is as likely at any of them and lasts for a few only, in which small stakes cannot grow.
    """

    steps: int  # H, planned
    logs: Floats  # [..., 5] ln M_j
    cash: Floats  # [...]
    taken: int = 0  # steps that were bet on
    sums: Floats | None = None  # [..., 5] of ln f since each stake last lost all its gain
    starts: Ints | None = None  # [..., 5] the step at which that sum began
    last: int = -1  # the step that was bet on last
    even: bool = False  # the same capital for a change at any step, most of it on the large stakes

    @classmethod
    def begin(cls, steps: int, shape: tuple[int, ...] = (), *, even: bool = False) -> Process:
        """A process before its first step, for so many planned steps."""
        many = (*shape, len(STAKES))
        starts = np.zeros(many, dtype=np.int64)
        return cls(steps, np.full(many, -np.inf), np.ones(shape), 0, np.zeros(many), starts, even=even)

    def step(self, logs: Floats, step: int | None = None) -> Process:
        """The process after a step with these ``ln f``, [..., 5]; ``step`` is its number, for `since`."""
        assert self.sums is not None
        assert self.starts is not None
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
        """The step from which on the stake with the most capital has gained, [...]; the last step for none."""
        assert self.sums is not None
        assert self.starts is not None
        best = self.logs.argmax(axis=-1)[..., None]
        start = np.take_along_axis(self.starts, best, axis=-1)[..., 0]
        gains = np.take_along_axis(self.sums, best, axis=-1)[..., 0] > 0
        return np.where(gains, start, self.last)


def effective(mean: Floats, variance: Floats, units: Floats) -> Floats:
    """The number of 0/1 units that would carry as much information, step 4 of the default rule, [...]."""
    above = mean * (1 - mean) + variance + 1 / (4 * units)
    return np.maximum(1.0, above / (variance + 1 / (4 * units * units)))


def lower_bound(mean: Floats | float, variance: Floats | float, units: Floats | float, level: float) -> Floats:
    """A lower bound of a mean on [0, 1] that is too high with a chance of about ``level``, [...].

    ``BetaInv(level; m n, n - m n + 1)``, n the effective number of units: Clopper and Pearson's on 0/1 values.
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
    """Mean, squared standard error and units of a step for these very tasks, from each task's sums, [G] each.

    ``se^2 = sum_i s_i^2/n_i / G^2`` with the within-task variance, units the rollouts. Where no task has two samples
    it is ``m(1-m)/G``, the most that it can be.
    """
    there = counts > 0
    n, sums, squares = counts[there], sums[there], squares[there]
    size = len(n)
    if size == 0:
        return math.nan, math.nan, 0.0
    mean = float((sums / n).mean())
    several = n > 1
    if not several.any():
        return mean, mean * (1 - mean) / size, float(n.sum())
    spread = np.maximum(squares[several] - sums[several] ** 2 / n[several], 0.0) / (n[several] - 1)
    each = np.full(size, float(spread.mean()))  # a task of one sample has the spread of the others
    each[several] = spread
    return mean, float((each / n).sum()) / size**2, float(n.sum())


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
    """The highest lower bound of any earlier step, or of a window of 4, 16 or 64 of them, or of all of them.

    The best single step is at least as good as the mean of any window that holds it, so long windows are allowed. The
    window of all steps so far is for nights, of which there are few: ten of them are more than a window of four.
    """

    level: float  # alpha_b / (4 H) for each bound, alpha_b / (5 H) with the window of all steps
    means: Floats  # [..., up to 64] of the last steps, the newest last
    variances: Floats
    units: Floats
    best: Floats  # [...]; 0 before the first step
    totals: Floats | None = None  # [..., 4] of all steps: how many, and the sums of their means, variances and units

    @classmethod
    def begin(cls, alpha: float, steps: int, shape: tuple[int, ...] = (), *, pooled: bool = False) -> RunningBest:
        """Before the first step; ``alpha`` pays for the bounds of all windows of all ``steps``."""
        none = np.zeros((*shape, 0))
        totals = np.zeros((*shape, 4)) if pooled else None
        return cls(alpha / ((len(WINDOWS) + pooled) * steps), none, none, none, np.zeros(shape), totals)

    def step(self, mean: Floats | float, variance: Floats | float, units: Floats | float) -> RunningBest:
        """After a step with this mean, squared standard error and number of units, [...] each."""
        new = [np.broadcast_to(np.asarray(some, dtype=np.float64), self.best.shape) for some in (mean, variance, units)]
        means, variances, counts = (
            np.concatenate([old, some[..., None]], -1)[..., -WINDOWS[-1] :]
            for old, some in zip((self.means, self.variances, self.units), new, strict=True)
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
    """The standard deviation of a run's own movement from step to step, beyond its noise, [S] each; 0 for none.

    ``sqrt(max(0, Var(m_s - m_(s-1))/2 - mean of se^2))``. A drop alarm below it would be right and useless.
    """
    if len(means) < 3:
        return 0.0
    return math.sqrt(max(0.0, float(np.diff(means).var(ddof=1)) / 2 - float(variances.mean())))


def average(values: Floats, weights: Floats | None = None) -> float:
    """The e-process of several alarms together: the weighted average of theirs, [A]."""
    return float(np.average(values, weights=weights))


def closed(values: Floats, weights: Floats | None = None) -> Floats:
    """The evidence of each alarm after all others had their say, [A]: the smallest average of any set that holds it.

    ``e*_a = min over k of (E_a + the k smallest others) / (k + 1)``, each with its weight. An alarm is named as a
    cause where this reaches the limit of the average itself.

    >>> closed(np.array([30, 0.4, 2, 900])).round(9).tolist()
    [10.8, 0.4, 1.2, 233.1]
    """
    share = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values))
    for place in range(len(values)):
        others = np.concatenate([[place], order[order != place]])
        found[place] = (np.cumsum((share * values)[others]) / np.cumsum(share[others])).min()
    return found


def segment_level(alpha: float, segment: int, alarms: int) -> float:
    """The level of the k-th segment after so many alarms: ``alpha (D + 1) / (k (k + 1))``.

    e-LOND with ``gamma_k = 1/(k(k+1))`` (Xu and Ramdas 2024): the expected share of false alarms among all alarms is
    at most alpha, under any dependence between segments.
    """
    return alpha * (alarms + 1) / (segment * (segment + 1))


def slow_gamma(number: Ints | int) -> Floats:
    """``0.07720838 ln(max(t, 2)) / (t exp(sqrt(ln t)))``: shares of alpha that add up to 1 over all tests t."""
    t = np.asarray(number, dtype=np.float64)
    return np.asarray(0.07720838 * np.log(np.maximum(t, 2)) / (t * np.exp(np.sqrt(np.log(t)))))


def lord_plus_plus(p: Sequence[float] | Floats, alpha: float = 0.05) -> tuple[Floats, Bools]:
    """The level of each test in a stream of p values, [N], and which are rejected (Ramdas et al. 2017, LORD++).

    ``alpha_t = gamma_t w0 + (alpha - w0) gamma_(t - tau_1) + alpha sum_(j>1) gamma_(t - tau_j)``, w0 = alpha/2, for
    the rejections tau_j so far. The p values must not depend on the past.
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
    """An e value of a standard normal z against "the mean is at most 0": the mean of exp(l z - l^2/2) over four l."""
    sizes = np.array([1.5, 2.5, 3.5, 4.5])
    return np.asarray(np.exp(np.asarray(z, dtype=np.float64)[..., None] * sizes - sizes**2 / 2).mean(axis=-1))
