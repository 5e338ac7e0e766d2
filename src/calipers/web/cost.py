"""Score against cost: every run as a cross of two intervals, and the runs that nobody beats in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from calipers.reports.figures import NONE, figure
from calipers.reports.sentences import level, money, to
from calipers.web.draw import Ends, Scale, Tone, line, pc, svg, tick_text, words
from calipers.web.markup import Markup, element, joined, name
from calipers.web.page import Section
from calipers.web.rollout_sections import as_table

TALL = 200  # px of the picture
TOP = 12
LEFT, WIDE = 6.0, 92.0  # per cent: numbers stand left
STEPS = 4
ROUND = (1, 2, 5, 10)  # times a power of ten
LOG = 20  # how many times the range must reach before its axis is a logarithm
NAMED = 6  # runs that have their name beside them; more have their number
PIXELS = 8.2  # of one per cent, on a wide page
LETTER = 6.6  # px of a letter beside a point


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run scored, and what one sample of it cost."""

    label: str  # A, B, or its place
    name: str
    value: float
    interval: Ends | None
    cost: float  # US dollars per sample
    cost_interval: Ends | None
    tone: Tone = "blue"


Ahead = Callable[[int, int], bool]
"""Whether the score of one run is better than that of another, by their test; both by their index."""


def cost_section(
    runs: Sequence[RunCost], metric: str, *, higher_is_better: bool, confidence: float, ahead: Ahead
) -> Section | None:
    """The section of a page; None with fewer than two runs whose cost is known."""
    if len(runs) < 2:
        return None
    times, unit = _unit(min(run.cost for run in runs))
    costs = _cost_scale([end * times for run in runs for end in (run.cost, *(run.cost_interval or ()))])
    scores = _zoomed([end for run in runs for end in (run.value, *(run.interval or ()))])
    corner = "Up and left" if higher_is_better else "Down and left"
    note = [f"Both intervals are drawn. {corner} is better."]
    steps = frontier(runs, higher_is_better, ahead)
    if len(steps) > 1:
        note.append("The thin line joins runs that no other run beats in both; each of its steps is decided.")
    picture = _picture(runs, times, costs, scores, steps, metric)
    foot = element("p", f"cost {unit}, lower is better", class_="axis-name")
    return Section(
        "Score against cost", Markup(picture + foot + _table(runs, metric, times, unit, confidence)), note, id="cost"
    )


def frontier(runs: Sequence[RunCost], higher_is_better: bool, ahead: Ahead) -> list[int]:
    """The runs that nobody beats in both, the cheapest first; nothing unless every step between them is decided.

    A step is decided where the dearer run's score is better by its test, and the intervals of the costs do not touch.
    """
    sign = 1 if higher_is_better else -1
    order = sorted(range(len(runs)), key=lambda index: (runs[index].cost, -sign * runs[index].value))
    kept: list[int] = []
    for index in order:
        if not kept or sign * runs[index].value > sign * runs[kept[-1]].value:
            kept.append(index)
    for cheap, dear in pairwise(kept):
        low, high = runs[cheap].cost_interval, runs[dear].cost_interval
        if low is None or high is None or low[1] >= high[0] or not ahead(dear, cheap):
            return []
    return kept if len(kept) > 1 else []


def _unit(least: float) -> tuple[float, str]:
    """How many samples a price is for, and in words."""
    if least >= 0.001:
        return 1.0, "per sample"
    return (1e3, "per 1,000 samples") if least >= 1e-6 else (1e6, "per million samples")


def _zoomed(values: Sequence[float]) -> Scale:
    """A scale in round steps around the values."""
    low, high = min(values), max(values)
    wide = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(wide / STEPS))
    step = next(factor * power for factor in ROUND if factor * power >= wide / STEPS * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(number * step, 12) for number in range(first, max(last, first + 1) + 1))
    return Scale(ticks[0], ticks[-1], ticks)


@dataclass(frozen=True, slots=True)
class _LogScale:
    """An axis of equal factors."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return min(max(100 * share, 0.0), 100.0)


def _cost_scale(costs: Sequence[float]) -> Scale | _LogScale:
    positive = [cost for cost in costs if cost > 0]
    if not positive or len(positive) < len(costs) or max(positive) <= LOG * min(positive):
        return _zoomed(costs)
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    ticks = tuple(10.0**power for power in range(first, last + 1))
    return _LogScale(ticks[0], ticks[-1], ticks)


def _picture(
    runs: Sequence[RunCost], times: float, costs: Scale | _LogScale, scores: Scale, steps: Sequence[int], metric: str
) -> Markup:
    def x(cost: float) -> float:
        return LEFT + WIDE * costs.at(cost * times) / 100

    def y(score: float) -> float:
        return round(TOP + TALL * (1 - scores.at(score) / 100), 1)

    marks = []
    for tick in scores.ticks:
        marks.append(line(LEFT, LEFT + WIDE, y(tick), y(tick), "track"))
        marks.append(words(LEFT - 1, y(tick) + 4, tick_text(tick), "tick", "end"))
    for tick in costs.ticks:
        right = x(tick / times)
        marks.append(words(right, TOP + TALL + 20, money(tick), "tick", "end" if right > 95 else "middle"))
    path = [(x(runs[index].cost), y(runs[index].value)) for index in steps]
    marks += [line(a[0], b[0], a[1], b[1], "frontier") for a, b in pairwise(path)]
    for run in runs:
        across, up = run.cost_interval, run.interval
        if across:
            marks.append(line(x(across[0]), x(across[1]), y(run.value), y(run.value), f"cross {run.tone}"))
        if up:
            marks.append(line(x(run.cost), x(run.cost), y(up[0]), y(up[1]), f"cross {run.tone}"))
    for run in runs:
        hollow = " hollow" if run.interval is None else ""
        place = f'cx="{pc(x(run.cost))}" cy="{y(run.value)}"'
        marks.append(Markup(f'<circle class="point {run.tone}{hollow}" {place} r="5"/>'))
    marks += _names(runs, x, y)
    said = "; ".join(
        f"{run.label} {run.name}: {metric} {figure(run.value, 3)}, {money(run.cost * times)}" for run in runs[:NAMED]
    )
    more = f"; and {len(runs) - NAMED} more in the table" if len(runs) > NAMED else ""
    return svg(*marks, label=f"Score against cost. {said}{more}", class_="scatter", height=TOP + TALL + 28)


def _names(runs: Sequence[RunCost], x: Callable[[float], float], y: Callable[[float], float]) -> list[Markup]:
    """A name beside each point, where it meets no other name and no other point."""
    taken = [(x(run.cost) - 0.8, x(run.cost) + 0.8, y(run.value)) for run in runs]
    marks = []
    for number, run in enumerate(runs):
        said = f"{run.label} {run.name}" if len(runs) <= NAMED and run.label != run.name else run.label
        wide = len(said) * LETTER / PIXELS
        right = x(run.cost_interval[1] if run.cost_interval else run.cost) + 1
        left = x(run.cost_interval[0] if run.cost_interval else run.cost) - 1
        near = x(run.cost) + 1
        spots = [(right, 4.0, "start"), (left, 4.0, "end"), (near, -8.0, "start"), (near, 16.0, "start")]
        free = [spot for spot in spots if _fits(spot, wide, y(run.value), taken[:number] + taken[number + 1 :])]
        place, down, anchor = (free or spots)[0]
        start = place if anchor == "start" else place - wide
        taken.append((start, start + wide, y(run.value) + down - 4))
        marks.append(words(place, round(y(run.value) + down, 1), said, f"spot {run.tone}", anchor))
    return marks


def _fits(
    spot: tuple[float, float, str], wide: float, height: float, taken: Sequence[tuple[float, float, float]]
) -> bool:
    place, down, anchor = spot
    start = place if anchor == "start" else place - wide
    if start < 0 or start + wide > 100:
        return False
    middle = height + down - 4
    return all(start > last or start + wide < first or abs(middle - there) > 12 for first, last, there in taken)


def _table(runs: Sequence[RunCost], metric: str, times: float, unit: str, confidence: float) -> Markup:
    rows = [
        (
            joined([f"{run.label} " if run.label != run.name else None, name(run.name)]),
            figure(run.value, 3),
            to(run.interval) if run.interval else NONE,
            money(run.cost * times),
            " to ".join(money(end * times) for end in run.cost_interval) if run.cost_interval else NONE,
        )
        for run in runs
    ]
    return as_table("Score against cost", ("run", metric, level(confidence), f"cost {unit}", level(confidence)), rows)
