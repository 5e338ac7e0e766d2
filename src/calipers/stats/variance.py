"""The parts of the variance of a mean reward: the choice of tasks, and the sampling of each task.

The mean over T tasks of the means of K samples has the variance ``(Var(x) + E[sigma^2] / K) / T``: x is the mean of a
task over infinitely many samples, sigma^2 the variance of one of its samples (Miller 2024, section 3). More samples
shrink only the second term; more tasks shrink both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Column, Floats, Groups, Ints, sum_by, total
from calipers.stats.estimate import NO_TASKS, Counts, ValueEnds
from calipers.stats.intervals import ONE_CLUSTER, ONE_TASK

NO_REPEATS = "no task has two samples"
DEPENDENT = "the numbers of samples depend on the rewards"
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
