"""Harbor's numbers from columns: statistics of a reward over all rollouts, and the ladder of pass@k.

What `calipers.metrics.harbor` computes from maps of rewards, for tables of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from calipers.metrics.aggregate import largest, mean, pooled, smallest
from calipers.metrics.columns import EXTREME, TOTAL
from calipers.metrics.harbor import eligible_ks
from calipers.metrics.metric import PASS_THRESHOLD, Metric
from calipers.metrics.reduce import each, task_sum_and_count
from calipers.metrics.rewards import pass_at_k
from calipers.rollouts.column import Bools, Column
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import total

POOLED_MEAN = Metric("pooled_mean", task_sum_and_count, pooled, of_rewards=True)
POOLED_SUM = Metric("pooled_sum", each, total, rows=True, no_interval=TOTAL, breaks=frozenset({"doubling"}))
POOLED_MIN = Metric("pooled_min", each, smallest, rows=True, no_interval=EXTREME)
POOLED_MAX = Metric("pooled_max", each, largest, rows=True, no_interval=EXTREME)

NOTHING: Final[Mapping[float, str]] = {}
STATISTICS: Final = {"mean": POOLED_MEAN, "sum": POOLED_SUM, "min": POOLED_MIN, "max": POOLED_MAX}
"""What Harbor calls them."""


def statistic(name: str, rewards: Mapping[str, Column], rows: int) -> dict[str, float]:
    """One of Harbor's metrics over R rollouts, every gap counting 0: named as `harbor.metric` names it.

    >>> statistic("max", {"reward": Column.of([-2, -1, 0], [True, True, False])}, 3)
    {'max': 0.0}
    """
    of = {
        "mean": lambda values: total(values) / rows,
        "sum": total,
        "min": smallest,
        "max": largest,
    }[name]
    if len(rewards) > 1:
        return {key: float(of(column.filled(0.0).values)) for key, column in sorted(rewards.items())}
    only = next(iter(rewards.values()), Column.gaps(rows))
    return {name: float(of(only.filled(0.0).values))}


def ladder(rewards: Mapping[str, Column], by: Groups, odd: Bools) -> dict[int, float]:
    """pass@k for every eligible k, all or nothing as `harbor.pass_ladder`; ``odd`` marks empty maps, [R]."""
    passes, counts = np.zeros(len(by.code)), np.zeros(len(by.code), dtype=np.int64)
    for column in rewards.values():
        if not np.isin(column.kept(), (0.0, 1.0)).all():
            return {}
        passes += column.filled(0.0).values
        counts += column.given
    attempts = np.diff(by.starts)
    attempts = attempts[attempts > 0]
    if odd.any() or (counts > 1).any() or not len(attempts):
        return {}
    column = Column.of(passes)
    found = {}
    for k in eligible_ks(int(attempts.min())):
        found[k] = float(mean(pass_at_k(column, by, k, PASS_THRESHOLD).kept()))
    return found


def counted(column: Column, written: Mapping[float, str] = NOTHING) -> dict[str, int]:
    """How often each value of a reward occurs, the largest first; 1 and 1.0 are the same.

    ``written`` says how files write a value; one that is not among them is written as a float.

    >>> counted(Column.of([0, 1, 1], [True, True, True])), counted(Column.of([0, 1, 1]), {1.0: "1"})
    ({'1.0': 2, '0.0': 1}, {'1': 2, '0.0': 1})
    """
    values, counts = np.unique(column.kept() + 0.0, return_counts=True)
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    return {written.get(value, str(value)): count for value, count in reversed(list(pairs))}
