"""EvSys' six built-in metrics, over our reductions; lent as ``evsys_sdk.metrics.basic``.

A task without samples is left out, and 0.0 is the answer when none is left. NaN is no pass and
makes the mean NaN; a reward that is None is a TypeError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from calipers.metrics.metric import PASS_THRESHOLD, Aggregate, mean, pooled, task_mean
from calipers.metrics.rewards import JUDGED, all_of_first_k, any_of_first_k, passes
from calipers.rollouts.column import Column, Groups

__all__ = ["PASS_THRESHOLD", "Avg", "MeanReward", "PassAt1", "PassAt3", "PassHat3", "PassRate"]

TaskRewards = Iterable[Iterable[float]]


class MeanReward:
    """The mean over tasks of each task's mean reward."""

    name: ClassVar[str] = "mean_reward"

    def compute(self, task_rewards: TaskRewards) -> float:
        """The number for these rewards.

        >>> MeanReward().compute([[1, 0], [], [1]])
        0.75
        """
        return _number(task_mean(*_table(task_rewards)), mean)


class Avg(MeanReward):
    """`MeanReward` under a second name."""

    name: ClassVar[str] = "avg"


class PassRate:
    """Passing samples over all samples, pooled over tasks."""

    name: ClassVar[str] = "pass_rate"

    def compute(self, task_rewards: TaskRewards) -> float:
        """The number for these rewards.

        >>> PassRate().compute([[1, 1, 1, 1], [0]])
        0.8
        """
        return _number(passes(*_table(task_rewards), PASS_THRESHOLD), pooled)


class PassAt1:
    """The share of tasks whose first sample passes."""

    name: ClassVar[str] = "pass@1"

    def compute(self, task_rewards: TaskRewards) -> float:
        """The number for these rewards.

        >>> PassAt1().compute([[0, 1], [1, 0]])
        0.5
        """
        return _number(any_of_first_k(*_table(task_rewards), 1, PASS_THRESHOLD, JUDGED), mean)


class PassAt3:
    """The share of tasks with a pass among their first three samples, however many there are."""

    name: ClassVar[str] = "pass@3"

    def compute(self, task_rewards: TaskRewards) -> float:
        """The number for these rewards.

        >>> PassAt3().compute([[0, 0, 0, 1], [0, 1]])
        0.5
        """
        return _number(any_of_first_k(*_table(task_rewards), 3, PASS_THRESHOLD, JUDGED), mean)


class PassHat3:
    """The share of tasks whose first three samples, or all if there are fewer, pass."""

    name: ClassVar[str] = "pass^3"

    def compute(self, task_rewards: TaskRewards) -> float:
        """The number for these rewards.

        >>> PassHat3().compute([[1, 1, 1, 0], [1, 0]])
        0.5
        """
        return _number(all_of_first_k(*_table(task_rewards), 3, PASS_THRESHOLD), mean)


def _table(task_rewards: TaskRewards) -> tuple[Column, Groups]:
    """The rewards as a column, and which task each belongs to."""
    tasks = [list(rewards) for rewards in task_rewards]
    flat = [0.0 + reward for rewards in tasks for reward in rewards]  # a sum refuses None and text; float() may not
    code = np.repeat(np.arange(len(tasks)), [len(rewards) for rewards in tasks])
    return Column.of(flat), Groups.of(code, len(tasks))


def _number(values: Column, aggregate: Aggregate) -> float:
    kept = values.kept()
    return float(aggregate(kept)) if len(kept) else 0.0
