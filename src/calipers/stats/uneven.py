"""Sample counts that depend on results: when tasks have different numbers of samples because of what the samples were.

A mean of each task's samples has no bias while the number of samples has nothing to do with their rewards. Two
rules find where it has: a task that is tried again until it passes, and a score test of counts against means.
Silence proves nothing: both can miss a dependence, on few tasks above all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calipers.metrics.reduce import pass_counts, passed, task_mean
from calipers.rollouts.column import Column
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import total

DEPENDENT = "the numbers of samples depend on the rewards"
FEWEST_STOPPED = 5  # tasks that stop at their first pass, and tasks with two samples: fewer may be chance
FEWEST_TASKS = 20  # of the score test: its normal law needs them
LEVEL = 0.0005  # of the score test, two-sided: at most 1 % false warnings also where its normal law is poor


@dataclass(frozen=True, slots=True)
class Retries:
    """Tasks that were tried until their first pass, at most so many times."""

    stopped: int  # tasks with fewer samples than the most, each with one pass, its last sample
    tasks: int  # tasks with a sample
    most: int  # samples of a task


@dataclass(frozen=True, slots=True)
class Dependence:
    """Counts that go with rewards, by the score test."""

    z: float  # above 0: tasks with more samples have higher rewards
    p: float  # two-sided
    tasks: int


def dependence(rewards: Column, by: Groups, threshold: float) -> Retries | Dependence | None:
    """Whether the numbers of samples of tasks depend on their rewards, [R]; None where nothing shows it.

    Gaps are no samples, and a task of gaps is no task.
    """
    return retries(rewards, by, threshold) or score_test(rewards, by)


def retries(rewards: Column, by: Groups, threshold: float) -> Retries | None:
    """The pattern of retries: no task has two passes, and every task short of the most samples ends with one.

    At least five such tasks, and five tasks with two samples or more.
    """
    n, c = pass_counts(rewards, by, threshold)
    most = int(n.max(initial=0))
    short = (n > 0) & (n < most)
    stopped = int(short.sum())
    if stopped < FEWEST_STOPPED or int((n > 1).sum()) < FEWEST_STOPPED or int(c.max()) > 1:
        return None
    last = by.count(passed(rewards, threshold) & (by.rank(rewards.given) == n[by.code] - 1))
    return Retries(stopped, int((n > 0).sum()), most) if bool((last[short] == 1).all()) else None


def score_test(rewards: Column, by: Groups) -> Dependence | None:
    """The score test of counts n_t against means m_t, where its two-sided p is below `LEVEL`.

    ``z = sum x_t e_t / sqrt(sum (x_t e_t)^2)`` with x_t = n_t - mean n and e_t = m_t - mean m, over at
    least 20 tasks. A correlation of ranks would not do: means of few samples have other ranks even where
    nothing depends on anything.
    """
    counts = by.count(rewards.given).astype(float)
    counts = counts[counts > 0]
    tasks = len(counts)
    if tasks < FEWEST_TASKS or counts.min() == counts.max():
        return None
    values = task_mean(rewards, by).kept()
    size = float(np.abs(values).max())
    if not 0 < size < math.inf:
        return None
    values = values / size  # the test has no scale; squares of large rewards would have no number
    products = (counts - total(counts) / tasks) * (values - total(values) / tasks)
    spread = float(total(products * products))
    if not spread > 0:
        return None
    z = float(total(products)) / math.sqrt(spread)
    p = 2 * NormalDist().cdf(-abs(z))
    return Dependence(z, p, tasks) if p < LEVEL else None
