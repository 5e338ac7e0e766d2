"""How sure a percentile of pooled rollouts is: Woodruff's interval (1952), with the task as the unit.

The share of rollouts at or below the percentile is a pooled rate, and has the default interval of one.
The values at the two ends of that interval are the interval of the percentile.
"""

from __future__ import annotations

import numpy as np

from calipers.rollouts.column import Column, Ints
from calipers.rollouts.groups import Groups
from calipers.stats.interval import Interval, interval

EXTREME = "the extremes of a sample say little about the extremes of its source"
NO_SPREAD = "the values around the percentile are all equal"


def quantile_interval(
    column: Column, by: Groups, q: float, at: float, confidence: float, clusters: Ints | None
) -> Interval:
    """The interval of the q-th percentile, ``at``, of the given values, [R]; samples of a task count together.

    None for the 0th and the 100th, for one task, and where all values around it are equal.
    """
    if not 0 < q < 100:
        return Interval(None, None, None, EXTREME)
    values = column.kept()
    n = by.count(column.given)
    below = by.count(column.given & (column.values <= at))
    there = n > 0
    share = interval(
        below[there] / n[there],
        n[there].astype(np.float64),
        confidence,
        (0.0, 1.0),
        None if clusters is None else clusters[there],
    )
    if share.ends is None:
        return share
    rate = below.sum() / n.sum()  # ties lift it above q
    low, high = max(0.0, q / 100 - (rate - share.ends[0])), min(1.0, q / 100 + (share.ends[1] - rate))
    first, last = np.percentile(values, [100 * low, 100 * high]).tolist()  # both from one partition
    if not first < last:
        return Interval(None, None, None, NO_SPREAD)
    return Interval(None, (min(first, at), max(last, at)), "woodruff")
