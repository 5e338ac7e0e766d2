"""EvSys' six metrics: the names of its dialect, and its classes over our reductions.

The first k samples by order, 0.0 for nothing. The classes are lent as ``evsys_sdk.metrics.basic``. There a task
without samples is left out, and 0.0 is the answer when none is left. NaN is no pass and makes the mean NaN; a reward
that is None is a TypeError.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Final

import numpy as np

from calipers.metrics import PASS_THRESHOLD, Aggregate, Reduce, mean, pooled, task_mean
from calipers.metrics.rewards import JUDGED, all_of_first_k, any_of_first_k, passes
from calipers.request import Dialect
from calipers.rollouts.column import Column, Groups
from calipers.systems.evsys import SYSTEM

__all__ = ["PASS_THRESHOLD", "Avg", "MeanReward", "PassAt1", "PassAt3", "PassHat3", "PassRate"]  # what is lent

EVSYS: Final = Dialect("evsys", metrics=SYSTEM.card.words, undefined=0.0, lenient=True, label=str)

TaskRewards = Iterable[Iterable[float]]


class _OverTasks:
    """A number for each task, and one of all tasks."""

    name: ClassVar[str]
    _reduce: ClassVar[Reduce]
    _aggregate: ClassVar[Aggregate] = staticmethod(mean)

    def compute(self, task_rewards: TaskRewards) -> float:
        """The number for these rewards."""
        tasks = [list(rewards) for rewards in task_rewards]
        flat = [0.0 + reward for rewards in tasks for reward in rewards]  # a sum refuses None and text; float() may not
        code = np.repeat(np.arange(len(tasks)), [len(rewards) for rewards in tasks])
        kept = self._reduce(Column.of(flat), Groups.of(code, len(tasks))).kept()
        return float(self._aggregate(kept)) if len(kept) else 0.0


class MeanReward(_OverTasks):
    """The mean over tasks of each task's mean reward.

    >>> MeanReward().compute([[1, 0], [], [1]])
    0.75
    """

    name = "mean_reward"
    _reduce = staticmethod(task_mean)


class Avg(MeanReward):
    """`MeanReward` under a second name."""

    name = "avg"


class PassRate(_OverTasks):
    """Passing samples over all samples, pooled over tasks.

    >>> PassRate().compute([[1, 1, 1, 1], [0]])
    0.8
    """

    name = "pass_rate"
    _aggregate = staticmethod(pooled)
    _reduce = staticmethod(partial(passes, threshold=PASS_THRESHOLD))


class PassAt1(_OverTasks):
    """The share of tasks whose first sample passes.

    >>> PassAt1().compute([[0, 1], [1, 0]])
    0.5
    """

    name = "pass@1"
    _reduce = staticmethod(partial(any_of_first_k, k=1, threshold=PASS_THRESHOLD, short=JUDGED))


class PassAt3(_OverTasks):
    """The share of tasks with a pass among their first three samples, however many there are.

    >>> PassAt3().compute([[0, 0, 0, 1], [0, 1]])
    0.5
    """

    name = "pass@3"
    _reduce = staticmethod(partial(any_of_first_k, k=3, threshold=PASS_THRESHOLD, short=JUDGED))


class PassHat3(_OverTasks):
    """The share of tasks whose first three samples, or all if there are fewer, pass.

    >>> PassHat3().compute([[1, 1, 1, 0], [1, 0]])
    0.5
    """

    name = "pass^3"
    _reduce = staticmethod(partial(all_of_first_k, k=3, threshold=PASS_THRESHOLD))
