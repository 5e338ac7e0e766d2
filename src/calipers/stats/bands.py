"""Intervals of a curve over training steps that hold at all planned steps together.

A reader judges a whole curve, and an interval of one look misses somewhere on nearly every curve of 200 steps. Here
each step has the confidence ``1 - (1 - confidence)/steps``, so that by Bonferroni's inequality all of them hold
together. The target is the mean over tasks like these, so the task is the unit, and pairing narrows the difference
to a base step but not the band of a mean.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from calipers.rollouts.column import Floats, Ints
from calipers.stats.intervals import METHODS, NOISE, Interval, Spread, Weighted, named_interval, spread_of, t_quantile
from calipers.stats.paired import Difference, apart, paired

BAND = "simultaneous_band"


def step_confidence(confidence: float, steps: int) -> float:
    """The confidence of each of so many steps, for all of them to hold together."""
    return 1 - (1 - confidence) / max(steps, 1)


def band(
    values: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: Ints | None = None,
) -> Interval:
    """The interval of a step's mean of task values, [T], that holds at all planned ``steps`` together.

    The exact interval on the default rule's effective number of tasks; Student's where no range is known. One task
    gives none.
    """
    weighted = Weighted(values, np.ones(len(values)), limits, clusters, step_confidence(confidence, steps))
    return named_interval("default" if limits is None else "clopper-pearson", weighted)


def look_and_band(
    values: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: Ints | None = None,
) -> tuple[Interval, Interval]:
    """The interval of one look and the band of a step's task values, [T], from one spread of them."""
    size = len(values)
    weighted = Weighted(values, np.ones(size), limits, clusters, confidence)
    if size < 2:
        none = named_interval("default", weighted)
        return none, none
    if clusters is not None:
        wide = band(values, steps, confidence=confidence, limits=limits, clusters=clusters)
        return named_interval("default", weighted), wide
    low, high = limits or (0.0, 1.0)
    scaled = (values - low) / (high - low)
    variance = float(scaled.var(ddof=1)) / size
    if math.sqrt(variance * size) <= NOISE * float(np.abs(scaled).max()):
        variance = 0.0
    spread = Spread(float(scaled.mean()), variance, size, float(size), 1.0)
    names = ("t", "t") if limits is None else ("wilson", "clopper-pearson")
    levels = (confidence, step_confidence(confidence, steps))
    looked, banded = (
        METHODS[name](name, replace(weighted, confidence=level), spread)
        for name, level in zip(names, levels, strict=True)
    )
    return looked, banded


def paired_change(
    now: Floats,
    base: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: Ints | None = None,
) -> Difference:
    """The change since a base step on the same tasks, [T] each in one order: the floored t at all steps together."""
    return paired(apart(now, base), None, clusters, limits=limits, confidence=step_confidence(confidence, steps))


def unpaired_change(
    now: Floats,
    base: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: tuple[Ints, Ints] | None = None,
) -> tuple[float, tuple[float, float] | None]:
    """The change since a base step on other tasks, [T] each, and its interval at all steps together.

    ``m_s - m_0 +- t(G_s + G_0 - 2) sqrt(se_s^2 + se_0^2)``, clipped to the range of a difference. None where a step
    has one task, or where neither has any spread.
    """
    if len(now) == 0 or len(base) == 0:
        return math.nan, None
    change = float(apart(now.mean(), base.mean()))
    if min(len(now), len(base)) < 2:
        return change, None
    variance = float(now.var(ddof=1) / len(now) + base.var(ddof=1) / len(base))
    units = float(len(now) + len(base))
    if clusters is not None:
        pairs = zip((now, base), clusters, strict=True)
        spreads = [spread_of(values, np.ones(len(values)), None, code) for values, code in pairs]
        variance, units = sum(some.variance for some in spreads), sum(some.effective_units for some in spreads)
    largest = max(float(np.abs(now).max()), float(np.abs(base).max()))
    if units <= 2 or math.sqrt(variance) <= NOISE * largest:  # what is left is the rounding of the means
        return change, None
    tail = (1 - step_confidence(confidence, steps)) / 2
    half = -t_quantile(tail, units - 2) * math.sqrt(variance)
    low, high = change - half, change + half
    if limits is not None:
        width = limits[1] - limits[0]
        low, high = max(low, -width), min(high, width)
    return change, (low, high)
