"""How sure a percentile of pooled rollouts is: Woodruff's interval (1952), with the task as the unit.

The share of rollouts at or below a value is a pooled rate. The values whose share the data would not
tell from q are the interval: those at the levels ``q -+ z sqrt(q (1 - q) / n)``, n the effective number
of tasks behind that share. (Where q itself is in Wilson's interval of the share, inverted.)
"""

from __future__ import annotations

import math

import numpy as np

from calipers.rollouts.column import Column, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.ranks import percentiles
from calipers.stats.interval import Interval, alone, spread_of, strength

EXTREME = "the extremes of a sample say little about the extremes of its source"
NO_SPREAD = "the values around the percentile are all equal"
TOO_FEW = "too few tasks: the percentile may lie beyond all that was seen"


def quantile_interval(
    column: Column, by: Groups, q: float, at: float, confidence: float, clusters: Ints | None
) -> Interval:
    """The interval of the q-th percentile, ``at``, of the given values, [R]; samples of a task count together.

    None for the 0th and the 100th, for one task, where the levels leave the data, and where all values
    between them are equal.
    """
    if not 0 < q < 100:
        return Interval(None, None, None, EXTREME)
    values = column.kept()
    n = by.count(column.given)
    below = by.count(column.given & (column.values <= at))
    there = n > 0
    units = None if clusters is None else clusters[there]
    spread = spread_of(below[there] / n[there], n[there].astype(np.float64), (0.0, 1.0), units)
    if spread.units < 2:
        return alone(int(there.sum()), clusters)
    tasks, quantile, _ = strength(spread, confidence)
    half = 100 * quantile * math.sqrt(q / 100 * (1 - q / 100) / tasks)
    if q - half <= 0 or q + half >= 100:
        return Interval(None, None, None, TOO_FEW)
    first, last = percentiles(values, [q - half, q + half]).tolist()
    if not first < last:
        return Interval(None, None, None, NO_SPREAD)
    return Interval(None, (min(first, at), max(last, at)), "woodruff")
