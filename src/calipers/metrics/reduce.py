"""Reductions: the samples of each task to one value, or to a few counts, per task."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np

from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.groups import Groups


def task_mean(column: Column, by: Groups) -> Column:
    """The mean of each task's given values, [T]; a gap where a task has none."""
    n = by.count(column.given)
    return Column(by.sum(column) / np.maximum(n, 1), n > 0)


def task_sum_and_count(column: Column, by: Groups) -> Column:
    """Each task's sum and number of given values, [T, 2]; for what is pooled over samples."""
    n = by.count(column.given)
    return Column(np.stack([by.sum(column), n.astype(float)], axis=1), n > 0)


def each(column: Column, by: Groups) -> Column:
    """Every sample for itself, [R]: for statistics that no value per task can carry."""
    return column


def pass_counts(rewards: Column, by: Groups, threshold: float) -> tuple[Ints, Ints]:
    """(samples, passes) of each task, [T] both. NaN is no pass; a gap is no sample."""
    return by.count(rewards.given), by.count(passed(rewards, threshold))


def passed(rewards: Column, threshold: float) -> Bools:
    """Which samples are given and reach the threshold, [R]."""
    with np.errstate(invalid="ignore"):
        return rewards.given & (rewards.values >= threshold)


def by_counts(n: Ints, c: Ints, chance: Callable[[int, int], float], at_least: int) -> Column:
    """``chance(n, c)`` of each task, [T], worked out once for each distinct pair.

    A gap where a task has fewer than ``at_least`` samples.
    """
    width = int(n.max(initial=0)) + 1
    pair = n * width + c
    if width * width <= 2 * len(pair) + 1000:  # a table of all pairs is cheaper than sorting the tasks
        distinct, code = np.flatnonzero(np.bincount(pair, minlength=width * width)), pair
        table = np.zeros(width * width)
    else:
        distinct, code = np.unique(pair, return_inverse=True)
        table = np.zeros(len(distinct))
    for index, (samples, passes) in enumerate(divmod(p, width) for p in distinct.tolist()):
        if samples >= at_least:
            table[distinct[index] if code is pair else index] = chance(samples, passes)
    return Column(table[code], n >= at_least)


def share_without(total: int, chosen: int, k: int) -> float:
    """C(total - chosen, k) / C(total, k): the chance that k draws miss all the chosen, rounded once.

    >>> share_without(10, 3, 5)
    0.08333333333333333
    """
    return comb(total - chosen, k) / comb(total, k)
