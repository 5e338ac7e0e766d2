"""EvSys' six metrics: its dialect, and its classes, which use Calipers' reductions.

pass@k uses the first k samples in order. The classes are the stand-in for ``evsys_sdk.metrics.basic``: tasks without
samples are left out, and without any task the result is 0.0. NaN does not pass, and makes a mean NaN; a reward of None
is a TypeError.
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

# the names of the stand-in
__all__ = ["PASS_THRESHOLD", "Avg", "MeanReward", "PassAt1", "PassAt3", "PassHat3", "PassRate"]

EVSYS: Final = Dialect("evsys", metrics=SYSTEM.card.words, undefined=0.0, lenient=True, label=str)

TaskRewards = Iterable[Iterable[float]]


class _OverTasks:
    """A metric that reduces the rewards of each task to a number, and aggregates these over tasks."""

    name: ClassVar[str]
    _reduce: ClassVar[Reduce]
    _aggregate: ClassVar[Aggregate] = staticmethod(mean)

    def compute(self, task_rewards: TaskRewards) -> float:
        """The value of the metric for ``task_rewards[task][sample]``; 0.0 without samples."""
        tasks = [list(rewards) for rewards in task_rewards]
        flat = [0.0 + reward for rewards in tasks for reward in rewards]  # unlike float(), a sum refuses text
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
    """`MeanReward` under another name."""

    name = "avg"


class PassRate(_OverTasks):
    """The share of samples that pass, pooled over tasks.

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
    """The share of tasks with a pass among their first three samples; tasks may have fewer.

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
