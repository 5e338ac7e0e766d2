"""Before the run: how many tasks and samples show a difference, and which difference is the smallest shown.

The difference of two runs over T common tasks with K samples each has the variance ``(w^2 + s_1^2/K_1 +
s_2^2/K_2) / T``: w^2 is the variance over tasks of the true difference, s^2 that of one sample of a task
(Miller 2024, section 5). Samples shrink only the last two terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.metrics.reduce import task_mean
from calipers.rollouts.column import Column, Floats
from calipers.rollouts.groups import Groups
from calipers.stats.interval import ONE_TASK
from calipers.stats.paired import NO_COMMON
from calipers.stats.variance import Split, Unsplit, split
from calipers.stats.wilson import t_quantile

POWER, CONFIDENCE = 0.8, 0.95
MOST_TASKS = 10**9
NODES = 100
MANY = 2_000  # degrees of freedom from which the t distribution is taken for the normal one


@dataclass(frozen=True, slots=True)
class PairVariance:
    """The variance of one task's difference of two runs, in its three parts."""

    tasks: float  # w^2
    first: float  # s_1^2
    second: float  # s_2^2
    divided: bool = True  # False: a pilot without repeats, and all of the variance stands under tasks

    def of(self, first: float, second: float | None = None) -> float:
        """The variance of a task's difference with so many samples in each run; inf is allowed."""
        return self.tasks + self.first / first + self.second / (first if second is None else second)


def pair_variance(first: Column, second: Column, by_first: Groups, by_second: Groups) -> PairVariance | Unsplit:
    """The parts from a pilot: two runs' rewards, [R] each, over the same T tasks in the same order.

    w^2 is the variance of the task differences less what sampling adds to it, never below 0. A run without
    repeats leaves its sampling undivided. Tasks that only one run has are left out.
    """
    there = (by_first.count(first.given) > 0) & (by_second.count(second.given) > 0)
    if int(there.sum()) < 2:
        return Unsplit(ONE_TASK if there.any() else NO_COMMON)
    means, parts = [], []
    for column, by in ((first, by_first), (second, by_second)):
        kept = Column(column.values, column.given & there[by.code])
        means.append(task_mean(kept, by).values[there])
        parts.append(split(kept, by))
    whole = float(np.var(means[0] - means[1], ddof=1))
    noise = [part.sampling / part.samples_per_task if isinstance(part, Split) else 0.0 for part in parts]
    samples = [part.sampling if isinstance(part, Split) else 0.0 for part in parts]
    divided = all(isinstance(part, Split) for part in parts)
    return PairVariance(max(whole - sum(noise), 0.0), samples[0], samples[1], divided)


def assumed_pair(run: Split, correlation: float) -> PairVariance:
    """The parts from one run, for a second like it whose true task means correlate so with the first's.

    ``w^2 = 2 (1 - r) Var(x)``: nothing is left of it when both find the same tasks hard.
    """
    if not -1 <= correlation <= 1:
        raise ValueError(f"a correlation of {correlation}; expected -1 to 1")
    return PairVariance(2 * (1 - correlation) * run.tasks, run.sampling, run.sampling)


def quantiles(power: float = POWER, confidence: float = CONFIDENCE, *, one_sided: bool = False) -> float:
    """``z_(a/2) + z_b``, the standard errors by which a difference must exceed 0 to be shown so often.

    >>> round(quantiles(), 6), round(quantiles(one_sided=True), 6)
    (2.801585, 2.486475)
    """
    if not (0 < power < 1 and 0 < confidence < 1):
        raise ValueError(f"a power of {power} at a confidence of {confidence}; expected both between 0 and 1")
    level = confidence if one_sided else (1 + confidence) / 2
    return t_quantile(level, math.inf) + t_quantile(power, math.inf)


def tasks_by_formula(variance: float, difference: float, power: float = POWER, confidence: float = CONFIDENCE) -> int:
    """Miller's number of tasks, ``(z_(a/2) + z_b)^2 V / d^2`` rounded up, V the variance of one task's difference."""
    return math.ceil(quantiles(power, confidence) ** 2 * variance / difference**2 - 1e-9)


def difference_by_formula(variance: float, tasks: float, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """Miller's smallest difference shown, ``(z_(a/2) + z_b) sqrt(V / T)``."""
    return quantiles(power, confidence) * math.sqrt(variance / tasks)


def difference_by_flips(flips: int, pairs: int, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """The smallest difference in accuracy that McNemar's test shows when so many of the pairs differ.

    ``(z_(a/2) + z_b) sqrt(flips) / pairs``: a share of all pairs, as the accuracy is, not of those that differ.

    >>> round(difference_by_flips(100, 1000), 4)
    0.028
    """
    return quantiles(power, confidence) * math.sqrt(flips) / pairs


def power_of(
    variance: float, difference: float, tasks: int, confidence: float = CONFIDENCE, *, largest: float = 0.0
) -> float:
    """The chance that the default test shows a true difference on T tasks.

    The noncentral t with T - 1 degrees of freedom; ``largest`` is the largest difference a task can have,
    of which the floored t adds half to the standard error, over T. Without variance a difference is sure.
    """
    if tasks < 2:
        return 0.0
    floor = (largest / (2 * tasks)) ** 2
    error = variance / tasks
    if error == 0:
        return float(abs(difference) > 0)
    shift, freedom = abs(difference) / math.sqrt(error), tasks - 1.0
    critical = t_quantile((1 + confidence) / 2, freedom) * math.sqrt(1 + floor / error)
    return _beyond(critical, shift, freedom) + _beyond(critical, -shift, freedom)


def tasks_needed(
    variance: float,
    difference: float,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    *,
    largest: float = 0.0,
) -> int | None:
    """The fewest tasks on which the default test shows this difference with this chance; None beyond 10^9."""

    def enough(tasks: int) -> bool:
        return power_of(variance, difference, tasks, confidence, largest=largest) >= power

    if difference == 0:
        return None
    return fewest(enough, tasks_by_formula(variance, difference, power, confidence))


def fewest(enough: Callable[[int], bool], guess: int) -> int | None:
    """The fewest tasks, two or more, that are enough, where more never are less; None beyond 10^9."""
    high = max(2, min(guess, MOST_TASKS))
    while not enough(high):
        if high >= MOST_TASKS:
            return None
        high = min(2 * high, MOST_TASKS)
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def smallest_difference(
    variance: float, tasks: int, power: float = POWER, confidence: float = CONFIDENCE, *, largest: float = 0.0
) -> float | None:
    """The smallest true difference that the default test shows on T tasks with this chance; None for one task."""
    if tasks < 2:
        return None
    low, high = 0.0, difference_by_formula(variance, tasks, power, confidence) or math.ulp(0.0)
    while power_of(variance, high, tasks, confidence, largest=largest) < power:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        enough = power_of(variance, middle, tasks, confidence, largest=largest) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _beyond(critical: float, shift: float, freedom: float) -> float:
    """The chance that a t shifted by so many standard errors exceeds the critical value.

    The mean of ``Phi(shift - critical s)`` over the estimated error s, whose square is chi-squared over its
    degrees of freedom, by Gauss's rule over its quantiles.
    """
    from scipy.special import ndtr

    if freedom > MANY:
        return float(ndtr(shift - critical))
    errors, weights = _errors(freedom)
    return float(weights @ ndtr(shift - critical * errors))


@lru_cache(maxsize=64)
def _errors(freedom: float) -> tuple[Floats, Floats]:
    """What an estimated error may be, relative to the true one, and the weights of these."""
    from scipy.special import gammaincinv

    points, weights = np.polynomial.legendre.leggauss(NODES)
    return np.sqrt(gammaincinv(freedom / 2, (points + 1) / 2) * 2 / freedom), weights / 2
