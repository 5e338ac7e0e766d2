"""The default interval from a spread alone: for whatever has a mean and a variance on [0, 1], be it a mean of
task values, a difference on its own scale, or an estimate that joins labels with a judge.
"""

from __future__ import annotations

import math

from calipers.stats.interval import Spread, effective_tasks


def t_quantile(level: float, freedom: float) -> float:
    """The quantile of Student's t; of the normal distribution where the freedom is infinite."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(level) if math.isinf(freedom) else stdtrit(freedom, level))


def upper_tail(t: float, freedom: float) -> float:
    """The chance of more than t under Student's t, or under the normal distribution."""
    from scipy.special import ndtr, stdtr

    return float(ndtr(-t) if math.isinf(freedom) else stdtr(freedom, -t))


def strength_of(spread: Spread) -> tuple[float, float]:
    """The effective number of 0/1 tasks, and the degrees of freedom that go with it.

    Infinite where that number is the number of units: the variance of 0/1 values follows from their mean.
    """
    tasks = effective_tasks(spread)
    steady = spread.effective_units / tasks
    if steady >= 1 - 1e-9:
        return tasks, math.inf
    return tasks, max(1.0, (spread.effective_units - 1) / (1 - steady))


def wilson_ends(spread: Spread, confidence: float) -> tuple[float, float]:
    """The ends of the default interval on [0, 1]; as `calipers.stats.interval.interval`, from a spread."""
    m = min(max(spread.mean, 0.0), 1.0)
    n, freedom = strength_of(spread)
    q = t_quantile((1 + confidence) / 2, freedom)
    centre = (m + q * q / (2 * n)) / (1 + q * q / n)
    half = q / (1 + q * q / n) * math.sqrt(m * (1 - m) / n + q * q / (4 * n * n))
    low = 0.0 if m <= 0 else max(0.0, min(centre - half, m))
    high = 1.0 if m >= 1 else min(1.0, max(centre + half, m))
    return low, high
