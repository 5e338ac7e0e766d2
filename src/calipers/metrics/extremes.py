"""Extremes: the least and the most that each task can be worth, whatever the samples that are not there hold.

Two kinds of samples are not there: rollouts that were planned and left a gap, and the samples up to k of
a task that was planned with fewer. A task is filled up to its plan, or to k where that is more, once with
the low end of the range of rewards and once with the high end. Every metric here can only rise with a reward,
so no other filling lies outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calipers.metrics.metric import Reduce
from calipers.metrics.reduce import pass_counts
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups

Ends = tuple[float, float]

Worth = Callable[..., Floats]
"""``worth(passes, k, **params)``: what exactly k samples are worth of which so many pass, [T] to [T]."""


def planned(by: Groups) -> Ints:
    """How many samples of each task were planned, gaps among them, [T]."""
    return np.diff(by.starts)


def of_passes(
    reduce: Reduce, worth: Worth, rewards: Column, by: Groups, ends: Ends, k: int, threshold: float, **params: Any
) -> tuple[Column, Column]:
    """The extremes of a metric that counts passes among k samples, [T] each; it may not fall as passes are added."""
    n, c = pass_counts(rewards, by, threshold)
    short = planned(by) < k
    columns = []
    for end in ends:
        whole = reduce(rewards.filled(end), by=by, k=k, threshold=threshold, **params)
        passes = c + np.maximum(k - n, 0) * (end >= threshold)
        columns.append(Column(np.where(short, worth(passes, k=k, **params), whole.values), whole.given | short))
    return columns[0], columns[1]


def of_best(reduce: Reduce, rewards: Column, by: Groups, ends: Ends, k: int) -> tuple[Column, Column]:
    """The extremes of the best reward of k samples, [T] each."""
    best = np.full(by.size, -np.inf)
    np.maximum.at(best, by.code[rewards.given], rewards.kept())
    short = planned(by) < k
    columns = []
    for end in ends:
        whole = reduce(rewards.filled(end), by=by, k=k)
        columns.append(Column(np.where(short, np.maximum(best, end), whole.values), whole.given | short))
    return columns[0], columns[1]


def some_pass(passes: Ints, k: int, **params: Any) -> Floats:
    """1 where one of k samples passes."""
    return (passes > 0).astype(float)


def all_pass(passes: Ints, k: int) -> Floats:
    """1 where all k samples pass."""
    return (passes >= k).astype(float)
