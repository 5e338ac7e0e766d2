"""verl's ``best@k``: the best of k samples drawn with replacement, by a thousand draws of a fixed seed."""

from __future__ import annotations

from typing import Final

import numpy as np

from calipers.metrics.metric import Metric, mean
from calipers.rollouts.column import Column, Groups

DRAWS: Final = 1000
SEED: Final = 42  # verl seeds anew for every prompt, so that prompts with equally many samples share the draws
AT_ONCE: Final = 1 << 22  # drawn values held at a time


def bootstrap_best_at_k(rewards: Column, by: Groups, k: int) -> Column:
    """Mean over 1000 draws of the best of k samples drawn with replacement, per task, [T].

    ``val-core/.../best@k/mean`` of verl's process_validation_metrics. It is below `max@k`, as a draw may take the same
    sample twice: with n = k samples, one of which passes, ``1 - (1 - 1/n)^k`` and not 1. A gap where a task has fewer
    than k samples.
    """
    best = Column.gaps(by.size).values.copy()
    given = np.zeros(by.size, dtype=bool)
    for tasks, values in by.blocks(rewards):
        n = values.shape[1]
        if n < k:
            continue
        drawn = np.random.RandomState(SEED).choice(n, size=(DRAWS, k), replace=True)
        step = max(1, AT_ONCE // (DRAWS * k))
        for first in range(0, len(tasks), step):
            some = tasks[first : first + step]
            best[some] = values[first : first + step][:, drawn].max(axis=2).mean(axis=1)
            given[some] = True
    return Column(best, given)


BOOTSTRAP_BEST_AT_K: Final = Metric(
    "bootstrap_best@{k}",
    bootstrap_best_at_k,
    mean,
    params={"k": int},
    of_rewards=True,
    breaks=frozenset({"sample order"}),
)
