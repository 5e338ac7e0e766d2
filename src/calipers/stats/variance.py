"""The parts of the variance of a mean reward: the choice of tasks, and the sampling of each task.

The mean over T tasks of the means of K samples has the variance ``(Var(x) + E[sigma^2] / K) / T``: x is the mean of a
task over infinitely many samples, sigma^2 the variance of one of its samples (Miller 2024, section 3). More samples
shrink only the second term; more tasks shrink both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calipers.metrics import pass_counts, task_mean
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, sum_by, total
from calipers.stats.estimate import NO_TASKS, Counts, ValueEnds
from calipers.stats.intervals import ONE_CLUSTER, ONE_TASK

NO_REPEATS = "no task has two samples"
NOT_FINITE = "the variance of these rewards is not a finite number"
TOO_SMALL = "the variance of these rewards is too small for a floating-point number"
ALL_ALIKE = "all rewards are equal, so there is no variance"
AT_A_TIME = 1 << 18  # rows
TWICE = 1 - math.sqrt(1 / 2)
"""The share of its width by which the interval narrows with twice the tasks."""
UNLIMITED = 0.95  # if samples can narrow an interval by more than this share of its width, no limit is reported


@dataclass(frozen=True, slots=True)
class Split:
    """The variance of a task's mean reward in its two parts."""

    tasks: float  # Var(x), between tasks; 0 if sampling explains all of the variance
    sampling: float  # E[sigma^2], of one sample
    samples_per_task: float  # K for which the parts add up: the number of samples if all tasks have the same number

    def variance(self, samples: float) -> float:
        """The variance of a task's mean over K samples, ``Var(x) + E[sigma^2] / K``.

        >>> Split(1 / 12, 1 / 6, 1).variance(2)  # chances of success uniform on [0, 1]
        0.16666666666666666
        """
        return self.tasks + self.sampling / samples

    @property
    def share(self) -> float:
        """The share of the squared standard error that infinitely many samples would remove, 0 to 1."""
        noise = self.sampling / self.samples_per_task
        return noise / (self.tasks + noise) if noise else 0.0

    @property
    def narrowing(self) -> float | None:
        """The largest share of its width by which more samples can narrow the interval; None if there is no limit.

        There is no limit if tasks do not differ beyond the sampling: then twice the samples narrow the interval as much
        as twice the tasks.
        """
        most = 1 - math.sqrt(1 - self.share)
        return most if most < UNLIMITED else None

    @property
    def advice(self) -> str:
        """A sentence on how much more samples, and twice the tasks, would narrow the interval.

        >>> Split(0.77, 0.92, 4).advice.partition(": ")[2]
        'more samples per task can narrow the interval by at most 12 %, twice the tasks by 29 %'
        """
        if not self.tasks and not self.sampling:
            return ALL_ALIKE
        noise, narrower = f"sampling noise is an estimated {_percent(self.share)} of the variance", self.narrowing
        if narrower is None:
            return f"{noise}: twice the samples per task, or twice the tasks, narrow the interval by {_percent(TWICE)}"
        return (
            f"{noise}: more samples per task can narrow the interval by at most {_percent(narrower)}, "
            f"twice the tasks by {_percent(TWICE)}"
        )


@dataclass(frozen=True, slots=True)
class Unsplit:
    """The reason why the variance cannot be split."""

    why: str


def split(column: Column, by: Groups, clusters: Ints | None = None) -> Split | Unsplit:
    """Split the variance of the task means of a column, [R], into its parts.

    ``E[sigma^2]`` is the mean of the variances within tasks, n - 1, over tasks with two samples or more. ``Var(x)`` is
    the variance of the task means, n - 1 over tasks (or over ``clusters``, [T]), less the part from sampling, the mean
    of sigma^2 / n; it is never below 0. A task with one sample is assumed to have the mean sigma^2. A gap is not a
    sample, and a task of gaps does not count.
    """
    return split_of(*moments(column, by), ValueEnds.of(column.kept()), clusters)


def split_of(
    n: Counts | Ints, means: Floats, within: Floats, ends: ValueEnds, clusters: Ints | None = None
) -> Split | Unsplit:
    """`split` from the moments of each task, [T] each, and the ends of all values."""
    sampled, repeated = n > 0, n > 1
    tasks = int(sampled.sum())
    if tasks < 2:
        return Unsplit(ONE_TASK if tasks else NO_TASKS)
    if not repeated.any():
        return Unsplit(NO_REPEATS)
    sampling = float(total(within[repeated])) / int(repeated.sum())
    noise = float(total(np.where(repeated, within, sampling)[sampled] / n[sampled])) / tasks
    variance = _between(means[sampled], None if clusters is None else clusters[sampled])
    if variance is None:
        return Unsplit(ONE_CLUSTER)
    if not (math.isfinite(noise) and math.isfinite(variance)):
        return Unsplit(NOT_FINITE)
    if not (noise or variance) and ends.low < ends.high:
        return Unsplit(TOO_SMALL)
    samples = sampling / noise if noise else tasks / float(total(1 / n[sampled]))
    return Split(max(variance - noise, 0.0), sampling, samples)


def moments(column: Column, by: Groups) -> tuple[Ints, Floats, Floats]:
    """The number of given values of each task, their mean and their variance, n - 1, [T] each.

    Each task's first value is subtracted, so that equal values have exactly no variance. A block of tasks is computed
    at a time, so that no second table of all rollouts is made. A task without values has 0 for all three, one with a
    single value a variance of 0.
    """
    n = by.count(column.given)
    means, within = np.zeros(by.size), np.zeros(by.size)
    step = max(1, AT_A_TIME // max(int(n.max(initial=0)), 1))
    for start in range(0, by.size, step):
        rows = slice(by.starts[start], by.starts[min(start + step, by.size)])
        values = column.values[rows][column.given[rows]]
        filled = start + np.flatnonzero(n[start : start + step])
        count = n[filled]
        part = Groups.of(np.repeat(np.arange(len(filled)), count), len(filled))
        first = values[part.starts[:-1]]
        with np.errstate(over="ignore", invalid="ignore"):
            shifted = values - first[part.code]
            sums, squares = part.sum(Column.of(shifted)), part.sum(Column.of(shifted * shifted))
            means[filled] = first + sums / count
            within[filled] = np.maximum(squares - sums * sums / count, 0.0) / np.maximum(count - 1, 1)
    return n, means, within


def _between(means: Floats, clusters: Ints | None) -> float | None:
    """T times the squared standard error of the mean over tasks, n - 1 over units; None for one cluster."""
    units = len(means)
    with np.errstate(over="ignore", invalid="ignore"):
        pull = means - means[0]
        pull = pull - total(pull) / len(means)
        if clusters is not None:
            units = len(np.unique(clusters))
            pull = sum_by(clusters, pull, int(clusters.max()) + 1)
        return None if units < 2 else float(total(pull * pull)) * units / (units - 1) / len(means)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


DEPENDENT = "the numbers of samples depend on the rewards"
FEWEST_STOPPED = 5  # of tasks that stop at their first pass, and of tasks with two samples: fewer may be chance
FEWEST_TASKS = 20  # of the score test, whose normal approximation needs them
LEVEL = 0.0005  # of the score test, two-sided: at most 1 % false warnings even if its normal approximation is poor


@dataclass(frozen=True, slots=True)
class Retries:
    """The pattern of retries: tasks were tried until their first pass, at most ``most`` times."""

    stopped: int  # tasks with fewer samples than ``most``, each with one pass, its last sample
    tasks: int  # tasks with a sample
    most: int  # the largest number of samples of a task


@dataclass(frozen=True, slots=True)
class Dependence:
    """Numbers of samples that depend on the rewards, by the score test."""

    z: float  # above 0: tasks with more samples have higher rewards
    p: float  # two-sided
    tasks: int


@dataclass(frozen=True, slots=True)
class Samples:
    """The summary of T tasks that shows whether their numbers of samples depend on their rewards."""

    n: Counts  # [T] samples, without gaps
    passes: Counts  # [T]
    last_passes: Bools  # [T] whether the last sample passes
    mean: Floats  # [T] mean reward; 0 without samples

    @classmethod
    def of(cls, rewards: Column, by: Groups, threshold: float) -> Samples:
        """The summary of the rewards of rollouts, [R]."""
        n, c = pass_counts(rewards, by, threshold)
        last_rows = np.flatnonzero(rewards.given)[np.cumsum(n)[n > 0] - 1]
        last_passes = np.zeros(by.size, dtype=bool)
        last_passes[n > 0] = rewards.values[last_rows] >= threshold
        return cls(n.astype(np.int32), c.astype(np.int32), last_passes, task_mean(rewards, by).values)


def joined_samples(parts: Sequence[Samples]) -> Samples:
    """The summary of several sets of tasks together."""
    columns = zip(*((part.n, part.passes, part.last_passes, part.mean) for part in parts), strict=True)
    return Samples(*map(np.concatenate, columns))


def dependence_of(samples: Samples) -> Retries | Dependence | None:
    """Evidence that the numbers of samples of tasks depend on their rewards; None without evidence.

    Gaps are not samples, and a task of gaps does not count.
    """
    return retries(samples) or score_test(samples)


def retries(samples: Samples) -> Retries | None:
    """The pattern of retries: no task has two passes, and every task with fewer samples than the most ends with a pass.

    None without the pattern, or with fewer than five such tasks, or fewer than five tasks with two samples or more.
    """
    n = samples.n
    most = int(n.max(initial=0))
    short = (n > 0) & (n < most)
    stopped = int(short.sum())
    if stopped < FEWEST_STOPPED or int((n > 1).sum()) < FEWEST_STOPPED or int(samples.passes.max()) > 1:
        return None
    return Retries(stopped, int((n > 0).sum()), most) if bool(samples.last_passes[short].all()) else None


def score_test(samples: Samples) -> Dependence | None:
    """The score test of counts n_t against means m_t; None unless its two-sided p is below `LEVEL`.

    ``z = sum x_t e_t / sqrt(sum (x_t e_t)^2)`` with x_t = n_t - mean n and e_t = m_t - mean m, over at least 20 tasks.
    A rank correlation would be wrong, because means of few samples have other ranks even without any dependence.
    """
    sampled = samples.n > 0
    counts = samples.n[sampled].astype(float)
    tasks = len(counts)
    if tasks < FEWEST_TASKS or counts.min() == counts.max():
        return None
    values = samples.mean[sampled]
    largest = float(np.abs(values).max())
    if not 0 < largest < math.inf:
        return None
    values = values / largest  # the test does not depend on the scale, and squares of large rewards would overflow
    products = (counts - total(counts) / tasks) * (values - total(values) / tasks)
    spread = float(total(products * products))
    if not spread > 0:
        return None
    z = float(total(products)) / math.sqrt(spread)
    p = 2 * NormalDist().cdf(-abs(z))
    return Dependence(z, p, tasks) if p < LEVEL else None
