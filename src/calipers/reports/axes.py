"""The axis on which the pictures of a table are drawn: what rewards can be, not what happens to be near.

A picture of a metric of passes is always from 0 to 1. One of rewards is drawn on the declared range; else from 0 to 1,
if all rewards lie there; else from the lowest to the highest of the rewards and of the ends to be drawn, so that
nothing is cut off. Terminal, notebook, HTML report and leaderboard all take their axis from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from calipers.reports.sentences import unit
from calipers.stats.estimate import Estimate

Axis = tuple[float, float]

UNIT: Axis = (0.0, 1.0)
DIGITS = 2  # of the range of an axis, to which its ends are rounded outwards
_SAME = 1e-12  # numbers that differ by less are equal: they were only added in another order

EndsSeen = Mapping[str, Axis]
"""Reward -> its lowest and its highest value in a run."""


def axis_from(
    points: Iterable[float | None], *, declared: Axis | None = None, seen: Axis | None = UNIT, passes: bool = False
) -> Axis | None:
    """The axis that holds these points: values, and the ends of intervals.

    ``seen`` are the lowest and the highest reward, None if that is not known; ``passes``: the metric counts passes.
    None if there is nothing to draw, or if the points are all equal and say nothing about a range.

    >>> axis_from([0.4, 0.5]), axis_from([2.1, 3.9], seen=(0.0, 7.5)), axis_from([2.1, 3.9], declared=(1.0, 5.0))
    ((0.0, 1.0), (0.0, 7.5), (1.0, 5.0))
    >>> axis_from([-0.234, 3.9], seen=(0.0, 3.0)), axis_from([2.1, 3.9], seen=None)
    ((-0.3, 3.9), (2.1, 3.9))
    """
    known = [point for point in points if point is not None and math.isfinite(point)]
    if not known:
        return None
    low, high = min(known), max(known)
    base = declared or seen
    if passes or (declared is None and seen is not None and seen[0] >= 0 and seen[1] <= 1):
        base = UNIT
    if base is None and low >= 0 and high <= 1:
        base = UNIT
    first, last = base or (low, high)
    rounded = outward(min(low, first), max(high, last))
    if rounded is None:
        return None
    keeps_first = base is not None and low >= first - _SAME and is_short(first)
    keeps_last = base is not None and high <= last + _SAME and is_short(last)
    return first if keeps_first else rounded[0], last if keeps_last else rounded[1]


def is_short(end: float) -> bool:
    """Whether an end of an axis can be written with four digits."""
    return float(f"{end:.4g}") == end


def outward(low: float, high: float) -> Axis | None:
    """The ends of an axis, rounded outwards to two digits of its range; None without a range."""
    wide = high - low
    if not math.isfinite(wide) or wide <= 0:
        return None
    step = 10.0 ** (math.floor(math.log10(wide)) + 1 - DIGITS)
    if step == 0:  # the range is too small for a power of ten
        return None
    first, last = math.floor(low / step + _SAME) * step, math.ceil(high / step - _SAME) * step
    first, last = round(first, 12) + 0.0, round(last, 12) + 0.0
    return (first, last) if first < last else None  # equal if the range is below 12 decimals


def axes_of(estimates: Sequence[Estimate], seen: EndsSeen) -> list[Axis | None]:
    """The axis of each estimate of a table: those of one reward share theirs; None for one that is not drawn."""
    points: dict[object, list[float]] = {}
    for estimate in estimates:
        points.setdefault(_shared(estimate), []).extend(_drawn(estimate))
    return [
        axis_from(
            points[_shared(estimate)],
            declared=estimate.limits,
            seen=_seen(estimate, seen),
            passes=estimate.threshold is not None,
        )
        if estimate.interval and not unit(estimate)
        else None
        for estimate in estimates
    ]


def is_range_known(estimate: Estimate, seen: EndsSeen) -> bool:
    """Whether the range of what an estimate is drawn on is known: declared, that of passes, or 0 to 1."""
    ends = _seen(estimate, seen)
    return estimate.limits is not None or estimate.threshold is not None or ends is None or _in_unit(ends)


def _in_unit(ends: Axis) -> bool:
    return ends[0] >= 0 and ends[1] <= 1


def _seen(estimate: Estimate, seen: EndsSeen) -> Axis | None:
    """The lowest and the highest reward that an estimate reads; None if it reads none, or if that is not known."""
    return seen.get(estimate.made.setting("reward"))


def _shared(estimate: Estimate) -> object:
    """What estimates on one axis have in common."""
    kind = "passes" if estimate.threshold is not None else estimate.made.setting("reward")
    return kind, estimate.limits, unit(estimate)


def _drawn(estimate: Estimate) -> list[float]:
    """The numbers of an estimate that a picture shows."""
    if estimate.value is None or not estimate.interval:
        return []
    return [estimate.value, *estimate.interval, *(estimate.bounds or ())]
