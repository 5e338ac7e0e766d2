"""The values at given ranks, as sorting would put them there, without sorting or copying all of them.

Whoever wants one value in a million need not put the others in order: a thin sample says between which
two bounds it lies, one comparison counts what is below them, and only what lies between is looked at.
Chance decides how fast that is, never what is found: the counts prove it, or all values are partitioned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calipers.rollouts.column import Floats, Ints

WORTH_A_SAMPLE = 1 << 16  # values; fewer are partitioned at once
_SAMPLE = 1 << 13
_MARGIN = 4 * math.isqrt(_SAMPLE) // 2  # four times the largest standard deviation of a rank in the sample


def ranked(values: Floats, ranks: Sequence[int]) -> Floats:
    """The values, [N], that stand at these ranks, from 0, when sorted, [K]; all NaN if one of them is.

    >>> ranked(np.array([30.0, 10.0, 20.0]), [0, 1]).tolist()
    [10.0, 20.0]
    """
    wanted = np.asarray(ranks, dtype=np.int64)
    if np.isnan(values.max()):
        return np.full(len(wanted), np.nan)
    quick = _between_bounds(values, wanted) if len(values) >= WORTH_A_SAMPLE else None
    return np.partition(values, wanted)[wanted] if quick is None else values_there


def percentiles(values: Floats, levels: Sequence[float]) -> Floats:
    """Percentiles of values, [N], by linear interpolation between those at two ranks, [K].

    >>> percentiles(np.arange(1.0, 21.0), [0, 90]).tolist()
    [1.0, 18.1]
    """
    at = np.asarray(levels, dtype=np.float64) / 100 * (len(values) - 1)
    first = np.floor(at).astype(np.int64)
    last = np.minimum(first + 1, len(values) - 1)
    low, high = ranked(values, [*first.tolist(), *last.tolist()]).reshape(2, -1)
    step, share = high - low, at - first
    return np.where(share >= 0.5, high - step * (1 - share), low + step * share)  # each end is met exactly


def _between_bounds(values: Floats, ranks: Ints) -> Floats | None:
    """The values at these ranks, if a sample bounds them closely enough; else None."""
    sample = np.sort(values[:: len(values) // _SAMPLE])
    scale = len(sample) / len(values)
    first, last = int(ranks.min() * scale) - _MARGIN, int(ranks.max() * scale) + _MARGIN
    if last - first > len(sample) // 2:
        return None
    low = sample[first] if first >= 0 else -np.inf
    high = sample[last] if last < len(sample) else np.inf
    inside = values >= low
    places = ranks - (len(values) - np.count_nonzero(inside))
    inside &= values <= high
    if places.min() < 0 or places.max() >= np.count_nonzero(inside):
        return None
    if low == high:
        return np.full(len(ranks), low)
    statistics: Floats = np.partition(values[inside], places)[places]
    return statistics
