"""Power analysis: the tasks and samples that a difference needs, and the smallest difference that a design detects.

The difference of two runs over T common tasks with K samples each has the variance ``(w^2 + s_1^2/K_1 + s_2^2/K_2) /
T``: w^2 is the variance over tasks of the true difference, s^2 the variance of one sample of a task (Miller 2024,
section 5). More samples shrink only the last two terms. With clusters of tasks, w^2 is T times the clustered variance
of the difference less the part from sampling; more clusters shrink ``w^2 / T``, samples do not.

A difference is "shown" if the default test detects it with the given power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.metrics import task_mean
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, sum_by, total
from calipers.stats.intervals import ONE_CLUSTER, ONE_TASK, t_quantile
from calipers.stats.paired import NO_COMMON, units_of
from calipers.stats.sequence import Ends
from calipers.stats.variance import Split, Unsplit, moments, split

POWER, CONFIDENCE = 0.8, 0.95
MOST_TASKS = 10**9
NODES = 100  # of Gauss's rule
MANY = 2_000  # degrees of freedom above which the normal distribution replaces the t distribution


@dataclass(frozen=True, slots=True)
class PairVariance:
    """The variance of one task's difference of two runs, in its three parts."""

    tasks: float  # w^2
    first: float  # s_1^2
    second: float  # s_2^2
    divided: bool = True  # False: a pilot run has no repeats, and ``tasks`` contains its sampling variance

    def of(self, first: float, second: float | None = None) -> float:
        """The variance of a task's difference with ``first`` and ``second`` samples in the runs; inf is allowed."""
        return self.tasks + self.first / first + self.second / (first if second is None else second)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The distribution of cluster sizes, which is assumed to be the same for any number of clusters."""

    size: float = 1.0  # mean number of tasks per cluster
    worth: float = 1.0  # effective units per cluster: 1 if all clusters have the same size, less otherwise

    @classmethod
    def of(cls, clusters: Ints) -> Clusters:
        """The sizes of clusters, from the number of each task's cluster, [T].

        >>> Clusters.of(np.array([0, 0, 0, 1]))  # both clusters are 1.6 effective units: 4^2 / (3^2 + 1^2)
        Clusters(size=2.0, worth=0.8)
        """
        sizes = np.unique(clusters, return_counts=True)[1]
        return cls(len(clusters) / len(sizes), len(clusters) ** 2 / float(sizes @ sizes) / len(sizes))

    def units(self, tasks: float) -> float:
        """U, the effective units of ``tasks`` tasks."""
        return tasks / self.size * self.worth

    def tasks(self, clusters: int) -> int:
        """The number of tasks in ``clusters`` clusters."""
        return math.ceil(clusters * self.size - 1e-9)

    def count(self, tasks: int) -> int:
        """The number of whole clusters in ``tasks`` tasks."""
        return int(tasks / self.size + 1e-9)


APART = Clusters()
"""No clusters: every task is a unit."""


def pair_variance(
    first: Column, second: Column, by_first: Groups, by_second: Groups, clusters: Ints | None = None
) -> PairVariance | Unsplit:
    """The parts of the variance from a pilot: two runs' rewards, [R] each, over the same T tasks in the same order.

    w^2 is T times the squared standard error of the mean task difference, over tasks or over ``clusters``, [T], less
    the part from sampling, never below 0. The sampling variance of a run without repeats stays in w^2. Tasks that only
    one run has are left out.
    """
    common = (by_first.count(first.given) > 0) & (by_second.count(second.given) > 0)
    if int(common.sum()) < 2:
        return Unsplit(ONE_TASK if common.any() else NO_COMMON)
    units = None if clusters is None else clusters[common]
    if units is not None and len(np.unique(units)) < 2:
        return Unsplit(ONE_CLUSTER)
    means, parts = [], []
    for column, by in ((first, by_first), (second, by_second)):
        kept = Column(column.values, column.given & common[by.code])
        means.append(task_mean(kept, by).values[common])
        parts.append(split(kept, by))
    variance = spread_of(means[0] - means[1], units)
    noise = [part.sampling / part.samples_per_task if isinstance(part, Split) else 0.0 for part in parts]
    sampling = [part.sampling if isinstance(part, Split) else 0.0 for part in parts]
    divided = all(isinstance(part, Split) for part in parts)
    return PairVariance(max(variance - sum(noise), 0.0), sampling[0], sampling[1], divided)


def spread_of(values: Floats, clusters: Ints | None = None) -> float:
    """T times the squared standard error of the mean of task values, [T]; without clusters, their variance (n - 1).

    >>> spread_of(np.array([1.0, 1.0, 0.0, 0.0])), spread_of(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]))
    (0.3333333333333333, 1.0)
    """
    return units_of(values, None, clusters).variance * len(values)


def assumed_pair(run: Split, correlation: float) -> PairVariance:
    """The parts of the variance from one run, for a similar second run and a correlation of their true task means.

    ``w^2 = 2 (1 - r) Var(x)``, which is 0 if both runs find the same tasks hard.
    """
    if not -1 <= correlation <= 1:
        raise ValueError(f"a correlation of {correlation}; expected -1 to 1")
    return PairVariance(2 * (1 - correlation) * run.tasks, run.sampling, run.sampling)


def quantiles(power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """``z_(a/2) + z_b``, the size in standard errors of a difference that is shown with the given power.

    >>> round(quantiles(), 6)
    2.801585
    """
    if not (0 < power < 1 and 0 < confidence < 1):
        raise ValueError(f"a power of {power} at a confidence of {confidence}; expected both between 0 and 1")
    return t_quantile((1 + confidence) / 2, math.inf) + t_quantile(power, math.inf)


def tasks_by_formula(variance: float, difference: float, power: float = POWER, confidence: float = CONFIDENCE) -> int:
    """Miller's number of tasks, ``(z_(a/2) + z_b)^2 V / d^2`` rounded up; V is the variance of a task's difference."""
    return math.ceil((quantiles(power, confidence) * math.sqrt(variance) / difference) ** 2 - 1e-9)


def difference_by_formula(variance: float, tasks: float, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """Miller's smallest difference that is shown, ``(z_(a/2) + z_b) sqrt(V / T)``."""
    return quantiles(power, confidence) * math.sqrt(variance / tasks)


def power_of(
    variance: float,
    difference: float,
    tasks: int,
    confidence: float = CONFIDENCE,
    *,
    largest: float = 0.0,
    clusters: Clusters = APART,
) -> float:
    """The power of the default test: the chance that it detects a true difference on T tasks.

    Computed from the noncentral t with U - 1 degrees of freedom, at least 1, for U effective units, tasks or clusters.
    ``largest`` is the largest difference of a unit; the floored t adds half of it, over U, to the standard error.
    Without variance every difference is detected.
    """
    units = clusters.units(tasks)
    if units <= 1:
        return 0.0
    floor = (largest / (2 * units)) ** 2
    error = variance / tasks
    if error == 0:
        return float(abs(difference) > 0)
    shift, freedom = abs(difference) / math.sqrt(error), max(1.0, units - 1.0)
    critical = t_quantile((1 + confidence) / 2, freedom) * math.sqrt(1 + floor / error)
    return _chance_beyond(critical, shift, freedom) + _chance_beyond(critical, -shift, freedom)


def tasks_needed(
    variance: float,
    difference: float,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    *,
    largest: float = 0.0,
    clusters: Clusters = APART,
) -> int | None:
    """The fewest tasks on which the default test detects a difference with the given power; None above 10^9 tasks.

    With ``clusters``, the number of tasks in whole clusters.
    """

    def enough(count: int) -> bool:
        tasks = clusters.tasks(count)
        return power_of(variance, difference, tasks, confidence, largest=largest, clusters=clusters) >= power

    # tested without squares, which may overflow
    if difference == 0 or quantiles(power, confidence) * math.sqrt(variance) > MOST_TASKS * abs(difference):
        return None
    guess = math.ceil(tasks_by_formula(variance, difference, power, confidence) / clusters.size)
    units = fewest(enough, guess, int(MOST_TASKS / clusters.size))
    return None if units is None else clusters.tasks(units)


def fewest(enough: Callable[[int], bool], guess: int, most: int = MOST_TASKS) -> int | None:
    """The smallest number from 2 to ``most`` for which ``enough`` is true, or None.

    ``enough`` must stay true above the first number for which it is true. The search starts at ``guess``.
    """
    high = max(2, min(guess, most))
    while not enough(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def smallest_difference(
    variance: float,
    tasks: int,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    *,
    largest: float = 0.0,
    clusters: Clusters = APART,
) -> float | None:
    """The smallest true difference that the default test detects on T tasks with the given power; None for one unit."""

    def enough(difference: float) -> bool:
        return power_of(variance, difference, tasks, confidence, largest=largest, clusters=clusters) >= power

    if clusters.units(tasks) <= 1:
        return None
    low, high = 0.0, difference_by_formula(variance, tasks, power, confidence) or math.ulp(0.0)
    while not enough(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _chance_beyond(critical: float, shift: float, freedom: float) -> float:
    """The chance that a t shifted by ``shift`` standard errors exceeds the critical value.

    The mean of ``Phi(shift - critical s)`` over the estimated error s, whose square is chi-squared over its degrees of
    freedom, computed by Gauss's rule over the quantiles of s.
    """
    from scipy.special import ndtr

    if freedom > MANY:
        return float(ndtr(shift - critical))
    errors, weights = _errors(freedom)
    return float(weights @ ndtr(shift - critical * errors))


@lru_cache(maxsize=64)
def _errors(freedom: float) -> tuple[Floats, Floats]:
    """Quantiles of the estimated standard error relative to the true one, and their weights."""
    from scipy.special import gammaincinv

    points, weights = _nodes()
    return np.sqrt(gammaincinv(freedom / 2, (points + 1) / 2) * 2 / freedom), weights / 2


@lru_cache(maxsize=1)
def _nodes() -> tuple[Floats, Floats]:
    """Gauss's points on [-1, 1] and their weights, which are expensive and the same for all degrees of freedom."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return points, weights


ENOUGH = 0.75
"""The share of the narrowing by infinitely many samples after which more samples add little."""


def samples_worth(pair: PairVariance) -> int | None:
    """The number of samples per task that gives three quarters of the narrowing by infinitely many samples.

    More samples add little, and more tasks narrow the interval faster. None if tasks do not differ, so that every
    sample counts in full; 1 if samples have no effect.

    >>> samples_worth(PairVariance(1 / 12, 1 / 6, 0.0))  # chances of success uniform on [0, 1]
    6
    """
    if pair.tasks == 0:
        return None if pair.first + pair.second > 0 else 1
    error_of_one, least_error = math.sqrt(pair.of(1)), math.sqrt(pair.of(math.inf))
    target = error_of_one - ENOUGH * (error_of_one - least_error)
    for_sampling = target * target - pair.tasks
    return max(1, math.ceil((pair.first + pair.second) / for_sampling - 1e-9)) if for_sampling > 0 else 1


def samples_at_price(pair: PairVariance, per_sample: float, per_task: float) -> int | None:
    """The most economical number of samples per task, ``sqrt(s^2 per_task / (w^2 2 per_sample))``.

    None if tasks do not differ, so that one task with all the samples is best.

    >>> samples_at_price(PairVariance(1 / 9, 1 / 6, 1 / 6), per_sample=0.05, per_task=1.0)
    5
    """
    if pair.tasks == 0:
        return None
    return max(1, round(math.sqrt((pair.first + pair.second) * per_task / (pair.tasks * 2 * per_sample))))


def best_split(
    pair: PairVariance,
    budget: float,
    *,
    per_sample: float,
    per_task: float = 0.0,
    most_tasks: int | None = None,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    clusters: Clusters = APART,
) -> tuple[int, int] | None:
    """The tasks, and the samples per task in each of two runs, that show the smallest difference for a budget.

    A task costs ``per_task`` once and ``per_sample`` for each of K samples in each of two runs. If tasks are free and
    unlimited, one sample per task is best; otherwise about ``K = sqrt(s^2 per_task / (w^2 2 per_sample))``. Of equal
    designs, the one with fewer samples is returned. Tasks are added in whole ``clusters``. None if the budget does not
    pay for two units.
    """
    if not per_sample > 0:
        raise ValueError(f"{per_sample} a sample; expected a price above 0")
    best: tuple[int, int] | None = None
    smallest = math.inf
    limit = MOST_TASKS if most_tasks is None else most_tasks
    affordable = (budget / 2 - per_task) / (2 * per_sample)  # samples per task with two tasks
    for samples in _candidates(int(min(max(affordable, 0.0), MOST_TASKS))):
        price = per_task + 2 * samples * per_sample
        tasks = _in_whole_clusters(int(min(budget / price * (1 + 1e-12), limit)), limit, clusters)
        if tasks >= 2 and clusters.units(tasks) > 1:
            shown = _approximate_smallest(pair.of(samples), tasks, power, confidence, clusters)
            if best is None or shown < smallest * (1 - 1e-9):
                best, smallest = (tasks, samples), shown
    return best


def _in_whole_clusters(tasks: int, limit: int, clusters: Clusters) -> int:
    """The number of tasks rounded down to whole clusters, unless it is the limit, which means all tasks."""
    return tasks if tasks == limit else clusters.tasks(clusters.count(tasks))


def _approximate_smallest(variance: float, tasks: int, power: float, confidence: float, clusters: Clusters) -> float:
    """Miller's smallest difference with a t quantile, a quick approximation to compare designs."""
    freedom = max(1.0, clusters.units(tasks) - 1.0)
    needed = t_quantile((1 + confidence) / 2, freedom) + t_quantile(power, math.inf)
    return needed * math.sqrt(variance / tasks)


def _candidates(most: int) -> list[int]:
    """Every number of samples up to 64, and then in growing steps, because one sample in 64 makes no difference."""
    candidates, samples = [], 1
    while samples <= most:
        candidates.append(samples)
        samples += max(1, samples // 64)
    return candidates


@dataclass(frozen=True, slots=True)
class Pilot:
    """The variance contributions of a pilot's U units, [U] each, scaled so that their means are per task."""

    squares: Floats  # squared deviations: their mean is the variance of task differences with the pilot's samples
    noise: Floats  # the part of it from sampling: the samples' variance over their number
    single: Floats  # the variance of one sample
    freedom: float

    def variance(self, samples: float) -> float:
        """The unbiased estimate of V(k), which may be negative; k may be infinite."""
        return float(total(self.squares + self.single / samples - self.noise)) / len(self.squares)

    def interval(self, samples: float, confidence: float = 0.95) -> Ends:
        """The interval of V(k); with a lower end of 0 or less, there is no known smallest variance."""
        low, high = variance_ends(self.squares, self.single / samples - self.noise, self.freedom, confidence)
        return float(low), float(high)


def variance_ends(squares: Floats, sampling: Floats, freedom: float, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The ends of the interval of V(k) from units, ``[..., U] -> [...]``; ``sampling`` is s/k less the noise.

    The hull of ``V +- t sd(psi) / sqrt(U)``, for psi the sum of the two parts, and of ``V - sqrt(l^2 + r^2), V +
    sqrt(h^2 + r^2)``: l and h are the half-widths of the chi-squared interval of the mean square, r is the half-width
    of the t interval of the mean of ``sampling``.
    """
    from scipy.special import chdtri

    units = squares.shape[-1]
    tail = (1 - confidence) / 2
    t = t_quantile(1 - tail, units - 1)
    middle = (squares + sampling).mean(axis=-1)
    reach = t * (squares + sampling).std(axis=-1, ddof=1) / math.sqrt(units)
    mean_square = squares.mean(axis=-1)
    below, above = (mean_square * abs(1 - freedom / float(chdtri(freedom, level))) for level in (tail, 1 - tail))
    noise = t * sampling.std(axis=-1, ddof=1) / math.sqrt(units)
    low = np.minimum(middle - reach, middle - np.hypot(below, noise))
    high = np.maximum(middle + reach, middle + np.hypot(above, noise))
    return low, high


def pilot_of_pair(
    first: Column,
    second: Column,
    by_first: Groups,
    by_second: Groups,
    clusters: Ints | None = None,
    *,
    paired: bool = True,
) -> Pilot | None:
    """The pilot of two runs' rewards, [R] each, over the tasks that both have; None for fewer than two units.

    If not ``paired``, it is for a comparison in which each run has its own tasks.
    """
    runs = [_PilotRun.of(column, by) for column, by in ((first, by_first), (second, by_second))]
    common = (runs[0].n > 0) & (runs[1].n > 0)
    run_one, run_two = (run.kept(common) for run in runs)
    values = [run_one.means - run_two.means] if paired else [run_one.means, run_two.means]
    kept = None if clusters is None else clusters[common]
    return _pilot(values, run_one.noise + run_two.noise, run_one.single + run_two.single, kept)


def pilot_of_run(column: Column, by: Groups, correlation: float, clusters: Ints | None = None) -> Pilot | None:
    """The pilot from one run's rewards, [R], for two such runs with the given correlation of their true task means.

    The interval does not include the uncertainty of the correlation. None for fewer than two units.
    """
    run = _PilotRun.of(column, by)
    sampled = run.n > 0
    run = run.kept(sampled)
    factor = 2 * (1 - correlation)
    kept = None if clusters is None else clusters[sampled]
    return _pilot([math.sqrt(factor) * run.means], factor * run.noise, 2 * run.single, kept)


@dataclass(frozen=True, slots=True)
class _PilotRun:
    """The tasks of one run, [T] each."""

    n: Ints
    means: Floats
    single: Floats  # variance of one sample; 0 if the run has no repeats, so that the means have all of the variance

    @classmethod
    def of(cls, column: Column, by: Groups) -> _PilotRun:
        n, means, within = moments(column, by)
        repeated = n > 1
        mean_variance = float(total(within[repeated])) / int(repeated.sum()) if repeated.any() else 0.0
        return cls(n, means, np.where(repeated, within, mean_variance))

    def kept(self, tasks: Bools) -> _PilotRun:
        return _PilotRun(self.n[tasks], self.means[tasks], self.single[tasks])

    @property
    def noise(self) -> Floats:
        return self.single / self.n


def _pilot(values: list[Floats], noise: Floats, single: Floats, clusters: Ints | None) -> Pilot | None:
    tasks = len(noise)
    code = np.arange(tasks) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    units = int(code.max(initial=-1)) + 1
    if units < 2:
        return None
    scale = units / tasks  # turns sums over the tasks of a unit into values whose mean over units is per task
    squares = np.zeros(units)
    for column in values:
        pull = sum_by(code, column - total(column) / tasks, units)
        squares += scale * pull * pull * units / (units - 1)
    sizes = np.bincount(code, minlength=units)
    effective_units = tasks**2 / float(sizes @ sizes)
    sums = [scale * sum_by(code, part, units) for part in (noise, single)]
    return Pilot(squares, sums[0], sums[1], max(1.0, effective_units - 1.0))
