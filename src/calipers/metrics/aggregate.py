"""Aggregations: task values, or rollouts, to one number. Each maps ``[..., N]`` to ``[...]``.

None is ever handed nothing: a metric over no tasks is undefined before it is aggregated.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.rollouts.column import Floats
from calipers.rollouts.ranks import percentiles, ranked
from calipers.rollouts.sums import total

TINY = 1e-130  # the squares of differences between values below it may be lost


def mean(values: Floats) -> Floats:
    """The mean over tasks, ``[..., T] -> [...]``."""
    return np.asarray(total(values) / values.shape[-1])


def pooled(counts: Floats) -> Floats:
    """The sum of sums over the sum of counts, ``[..., T, 2] -> [...]``."""
    return total(counts[..., 0]) / total(counts[..., 1])


def largest(values: Floats) -> Floats:
    """The largest value; NaN if one is."""
    return np.asarray(values.max(axis=-1))


def smallest(values: Floats) -> Floats:
    """The smallest value; NaN if one is."""
    return np.asarray(values.min(axis=-1))


def spread(values: Floats) -> Floats:
    """The standard deviation with n - 1, from the exact mean; NaN for a single value."""
    count = values.shape[-1]
    if count < 2:
        return np.full(values.shape[:-1], np.nan)
    away = values - mean(values)[..., None]
    farthest = float(np.maximum(away.max(initial=0.0), -away.min(initial=0.0)))
    power = 0
    if math.isfinite(farthest) and not TINY < farthest < 1 / TINY:
        power = -math.frexp(farthest)[1]  # its square would be lost; times a power of two nothing is rounded
        np.ldexp(away, power, out=away)
    away *= away
    return np.asarray(np.ldexp(np.sqrt(total(away) / (count - 1)), -power))


def percentile(values: Floats, q: float) -> Floats:
    """The q-th percentile by linear interpolation between order statistics (numpy's "linear").

    >>> float(percentile(np.arange(1.0, 21.0), q=90))
    18.1
    """
    if values.ndim == 1:
        return np.asarray(percentiles(values, [q])[0])
    return np.asarray(np.percentile(values, q, axis=-1))


def median(values: Floats) -> Floats:
    """The middle value, or the mean of the two middle ones."""
    if values.ndim == 1:
        return np.asarray(ranked(values, sorted({(len(values) - 1) // 2, len(values) // 2})).mean())
    return np.asarray(np.median(values, axis=-1))
