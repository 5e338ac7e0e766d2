"""Scales: the values that a metric may have on a benchmark, and whether several benchmarks share one scale.

A mean over benchmarks is a number of something only if its parts are. A share of passes and a chrF score of up to 100
have no mean: the second would decide it alone. Two benchmarks share a scale if they have one range, which is given or
the usual 0 to 1 of rewards, and one direction. The spread that was observed is no unit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calipers.names import OF_RANGE
from calipers.remarks import Remark, Value

Ends = tuple[float, float]
UNIT: Final = (0.0, 1.0)
SCALES: Final = "scales"
"""Why a mean over benchmarks is undecided, if they have no common scale."""
FEW: Final = 3  # benchmarks that a sentence names
MOST_NAMED: Final = 6
"""The most benchmarks of which a suggestion names every range; of more it names those that lack one."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The values that a metric may have on one benchmark."""

    limits: Ends | None  # the given range, the metric's own, or 0 to 1 if all rewards lie there; None: unknown
    seen: Ends | None = None  # the lowest and the highest of the values; None if there are none
    higher_is_better: bool | None = True
    has_unit: bool = False  # seconds, tokens or dollars, which are the same on every benchmark


def joined_scale(scales: Iterable[Scale]) -> Scale:
    """The scale of a benchmark from those of all its runs; the range is known only if it is the same for all of them.

    >>> joined_scale([Scale((0, 1), (0.5, 1)), Scale(None, (0, 74.2))])
    Scale(limits=None, seen=(0, 74.2), higher_is_better=True, has_unit=False)
    """
    known = list(scales)
    limits = {scale.limits for scale in known}
    seen = [scale.seen for scale in known if scale.seen is not None]
    return Scale(
        limits.pop() if len(limits) == 1 else None,
        (min(low for low, _ in seen), max(high for _, high in seen)) if seen else None,
        known[0].higher_is_better if known else None,
        all(scale.has_unit for scale in known),
    )


def why_no_mean(scales: Mapping[str, Scale]) -> Remark | None:
    """Why benchmarks have no mean; None if they share one scale and one direction.

    >>> why_no_mean({"acc": Scale((0, 1)), "chrf": Scale(None, (3.5, 74.2))}).values["value"]
    74.2
    """
    directions = {scale.higher_is_better for scale in scales.values()}
    if len(directions) > 1:
        up = [name for name, scale in scales.items() if scale.higher_is_better is not False]
        down = [name for name in scales if name not in up]
        return Remark("directions_differ", {"up": _named(up), "down": _named(down)}, "no_answer")
    if all(scale.has_unit for scale in scales.values()):
        return None
    ranges = {name: scale.limits for name, scale in scales.items() if scale.limits is not None}
    first = next(iter(ranges.items()), None)
    if first is None:
        return Remark("scales_unknown", {"benchmarks": _named([*scales])}, "no_answer")
    name, (low, high) = first
    ends: dict[str, Value] = {"low": low, "high": high}
    if len(ranges) == len(scales):
        other = next((each for each in ranges.items() if each[1] != (low, high)), None)
        if other is None:
            return None
        ends |= {"one": name, "other": other[0], "other_low": other[1][0], "other_high": other[1][1]}
        return Remark("scales_differ", ends, "no_answer")
    within = [each for each, limits in ranges.items() if limits == (low, high)]
    unknown = {each: scale.seen or UNIT for each, scale in scales.items() if each not in ranges}
    beyond, (lowest, highest) = max(unknown.items(), key=lambda item: _excess(item[1]))
    ends |= {"within": _named(within), "count": len(within), "beyond": beyond}
    if highest > UNIT[1]:
        return Remark("scales_above", {**ends, "value": highest}, "no_answer")
    return Remark("scales_below", {**ends, "value": lowest}, "no_answer")


def _named(names: Sequence[str]) -> list[str]:
    """The first names, and an ellipsis for the others."""
    return [*names[:FEW], *(["…"] if len(names) > FEW else [])]


def _excess(seen: Ends) -> float:
    """How far values lie outside 0 to 1."""
    low, high = seen
    return max(high - UNIT[1], UNIT[0] - low)


def ways_to_a_mean(scales: Mapping[str, Scale]) -> list[Remark]:
    """The options with which benchmarks of unlike scales have a mean; empty if no option helps."""
    if len({scale.higher_is_better for scale in scales.values()}) > 1:
        return []
    lacking = [name for name, scale in scales.items() if scale.limits is None]
    if not lacking:
        return [Remark("mean_of_range", {"options": f"--mean {OF_RANGE}"})]
    named = list(scales) if len(scales) <= MOST_NAMED else lacking
    options = []
    for name in named:
        limits = scales[name].limits
        ends = "LOW,HIGH" if limits is None else f"{limits[0]:g},{limits[1]:g}"
        options.append(f"--range {shlex.quote(f'{name}={ends}')}")
    return [Remark("ranges_for_a_mean", {"options": " ".join([*options, f"--mean {OF_RANGE}"])})]
