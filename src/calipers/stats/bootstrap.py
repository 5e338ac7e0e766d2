"""The seeded bootstrap over tasks, for metrics nobody can look into."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from calipers.rollouts.column import Ints
from calipers.stats.interval import ONE_CLUSTER, ONE_TASK, Interval

MOST_CALLS = 1_000
FEWEST_CALLS = 200
MOST_REWARDS = 20_000_000


def bootstrap(
    compute: Callable[[Sequence[Sequence[float]]], float],
    tasks: Sequence[Sequence[float]],
    confidence: float,
    seed: int,
    clusters: Ints | None = None,
) -> Interval:
    """Percentile interval of an opaque metric: whole tasks are drawn again, with replacement.

    With ``clusters``, [T], whole clusters are drawn.

    At most 1,000 calls and 2*10^7 rewards in all; no interval when fewer than 200 calls fit, or when
    a draw fails. The standard error is the standard deviation of the draws.
    """
    of = np.arange(len(tasks)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    units = [np.flatnonzero(of == unit).tolist() for unit in range(int(of.max(initial=-1)) + 1)]
    if len(units) < 2:
        return Interval(None, None, None, ONE_TASK if len(tasks) < 2 else ONE_CLUSTER)
    calls = min(MOST_CALLS, MOST_REWARDS // max(1, sum(map(len, tasks))))
    if calls < FEWEST_CALLS:
        return Interval(None, None, None, f"too many rewards to draw {FEWEST_CALLS} times")
    # raw 64-bit output: numpy may change how it makes integers of it, but not the output itself
    raw = np.random.PCG64(seed).random_raw(calls * len(units))
    drawn = (raw % np.uint64(len(units))).astype(np.int64).reshape(calls, len(units))
    found = np.empty(calls)
    for number, rows in enumerate(drawn.tolist()):
        try:
            found[number] = compute([tasks[task] for row in rows for task in units[row]])
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
