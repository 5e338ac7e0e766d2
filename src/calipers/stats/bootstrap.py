"""The seeded bootstrap over tasks, for metrics nobody can look into."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from calipers.stats.interval import ONE_TASK, Interval

MOST_CALLS = 1_000
FEWEST_CALLS = 200
MOST_REWARDS = 20_000_000


def bootstrap(
    compute: Callable[[Sequence[Sequence[float]]], float],
    tasks: Sequence[Sequence[float]],
    confidence: float,
    seed: int,
) -> Interval:
    """Percentile interval of an opaque metric: whole tasks are drawn again, with replacement.

    At most 1,000 calls and 2*10^7 rewards in all; no interval when fewer than 200 calls fit, or when
    a draw fails. The standard error is the standard deviation of the draws.
    """
    if len(tasks) < 2:
        return Interval(None, None, None, ONE_TASK)
    calls = min(MOST_CALLS, MOST_REWARDS // max(1, sum(map(len, tasks))))
    if calls < FEWEST_CALLS:
        return Interval(None, None, None, f"too many rewards to draw {FEWEST_CALLS} times")
    # raw 64-bit output: numpy may change how it makes integers of it, but not the output itself
    raw = np.random.PCG64(seed).random_raw(calls * len(tasks))
    drawn = (raw % np.uint64(len(tasks))).astype(np.int64).reshape(calls, len(tasks))
    found = np.empty(calls)
    for number, rows in enumerate(drawn.tolist()):
        try:
            found[number] = compute([tasks[row] for row in rows])
        except Exception as error:
            return Interval(None, None, None, f"the metric failed on a bootstrap draw: {error}")
    if not np.isfinite(found).all():
        return Interval(None, None, None, "the metric is not a number on some bootstrap draws")
    centre = math.fsum(found) / calls
    stderr = math.sqrt(math.fsum((found - centre) ** 2) / (calls - 1))
    if stderr == 0:
        return Interval(0.0, None, None, "every bootstrap draw gives the same number")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(found, [tail, 100 - tail]).tolist()
    return Interval(stderr, (low, high), "bootstrap")
