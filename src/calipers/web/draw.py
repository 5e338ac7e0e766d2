"""Pictures of numbers as inline SVG. Positions are percentages, so a picture stretches with the page, but not its text.

In every picture, the same form has the same meaning: a line with end marks is an interval; a hollow bar below it shows
the bounds for missing rollouts; a hatched area is missing; a hollow point is another population or a what-if; grey is a
baseline or undecided. Every picture has a label that says the same in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from calipers.reports.sentences import short_number
from calipers.web.markup import Markup, element, text

Tone = Literal["blue", "orange", "grey"]
Ends = tuple[float, float]
LEAST_PART = 0.7  # least width of a part of a bar, in per cent: 5 px of 720
LEAST_BOUNDS = 1.0  # least width of bounds in a row, in per cent: about 3 px
STEPS = 4  # greatest number of tick steps within the range of the values
RIGHT = 75  # the word of a step marked right of this x, in per cent, is on the left of its mark
MARK_TALL, MARK_WIDE = 15, 48  # height in px, and width in per cent on a phone, of the word of a marked step
NAME_TALL = 32  # height of the name of a curve with the word below it, in px
NAMED_STRETCH, NARROW_STRETCH = 22, 14  # least widths for the long and the short name of a bracket, in per cent
ROUND = (1, 2, 2.5, 5, 10)  # tick steps, times a power of ten
ALIKE = 1e-12  # two values that differ by less than this share of the larger one differ only by rounding
CLOSE = 0.12  # of an axis: least distance of a tick from the ends
LEAST, LARGEST = 1e-300, 1e300  # the range of values for which an axis can have steps


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its ends and its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...] = ()

    @property
    def ends(self) -> Ends:
        """The lowest and the highest value."""
        return self.low, self.high

    def at(self, value: float) -> float:
        """The position of a value, in per cent; a value outside the axis is at its end."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(100 * share, 0.0), 100.0)


UNIT = Scale(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def scale_of(values: Iterable[float | None], *, zero: bool = False, spare: float = 0.0, close: bool = False) -> Scale:
    """A scale that includes the values: 0 to 1 if all are inside, else with round steps; with ``zero``, also zero.

    ``spare`` is the share of the range to leave free at both ends. ``close`` is for curves: a scale with round steps
    around the values, even if they are between 0 and 1.
    """
    known = [value for value in values if value is not None and abs(value) < LARGEST]
    if (not zero and not close and all(0 <= value <= 1 for value in known)) or not known:
        return UNIT
    known += [0.0] if zero else []
    low, high = min(known), max(known)
    wide = spread(low, high)
    if wide != high - low:  # all values are equal: leave room on both sides
        spare = max(spare, 0.2)
    low, high = low - spare * wide, high + spare * wide
    return round_scale(low, high, high - low)


def scale_on(axis: Ends) -> Scale:
    """A scale from end to end of an axis, with zero and some round numbers as ticks between the ends.

    >>> scale_on((0.0, 7.5)).ticks, scale_on((-1.0, 0.5)).ticks
    ((0.0, 2.0, 4.0, 6.0, 7.5), (-1.0, -0.5, 0.0, 0.5))
    """
    if axis == (UNIT.low, UNIT.high):
        return UNIT
    low, high = axis
    room = CLOSE * (high - low)  # a tick nearer to an end would run into its number
    between = round_scale(low, high, high - low).ticks
    kept = [tick for tick in between if tick == 0 or (low + room < tick < high - room)]
    return Scale(low, high, tuple(sorted({low, high, *(tick for tick in kept if low <= tick <= high)})))


def spread(low: float, high: float) -> float:
    """The range of values from ``low`` to ``high``; if they are equal except for rounding, their size."""
    wide, size = high - low, max(abs(low), abs(high))
    if wide > max(ALIKE * size, LEAST):
        return wide
    return size if size > LEAST else 1.0


def round_scale(low: float, high: float, wide: float, factors: Sequence[float] = ROUND) -> Scale:
    """A scale from ``low`` to ``high`` in round steps: factors times a power of ten, at most `STEPS` in ``wide``."""
    power = 10.0 ** math.floor(math.log10(wide / STEPS))
    step = next(factor * power for factor in factors if factor * power >= wide / STEPS - 1e-12 * power)
    digits = max(12, 3 - math.floor(math.log10(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(number * step, digits) for number in range(first, max(last, first + 1) + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def pc(share: float) -> str:
    """A position in per cent, as CSS has it.

    >>> pc(44.01786), pc(100.0)
    ('44.02%', '100%')
    """
    return f"{share:.2f}".rstrip("0").rstrip(".") + "%"


def svg(*inner: Markup, label: str, class_: str, height: int | None = None) -> Markup:
    """A picture with its label for screen readers."""
    return element("svg", inner, role="img", aria_label=label, class_=class_, height=height, width="100%")


def line(x1: float, x2: float, y1: float | str, y2: float | str, class_: str) -> Markup:
    """A line between two points, with x in per cent and y in pixels."""
    return Markup(f'<line class="{class_}" x1="{pc(x1)}" x2="{pc(x2)}" y1="{y1}" y2="{y2}"/>')


def words(x: float, y: float | str, content: str, class_: str = "", anchor: str = "middle") -> Markup:
    """Text at a point, with x in per cent and y in pixels."""
    attribute = f' class="{class_}"' if class_ else ""
    return Markup(f'<text{attribute} x="{pc(x)}" y="{y}" text-anchor="{anchor}">{text(content)}</text>')


def rect(x: float, wide: float, y: float | str, tall: float | str, class_: str, rx: float | None = None) -> Markup:
    """A rectangle: left end and width in per cent, top and height in pixels, ``rx`` the radius of its corners."""
    corners = "" if rx is None else f' rx="{rx}"'
    return Markup(f'<rect class="{class_}" x="{pc(x)}" width="{pc(wide)}" y="{y}" height="{tall}"{corners}/>')


def circle(x: float, y: float | str, r: float, class_: str) -> Markup:
    """A circle around a point, with x in per cent and y in pixels."""
    return Markup(f'<circle class="{class_}" cx="{pc(x)}" cy="{y}" r="{r}"/>')


def _beside(x: float, right: bool, y: float, content: str, class_: str, origin: str | None = None) -> Markup:
    """Text a few pixels to the right or to the left of x, in per cent; ``origin`` is where y begins."""
    offset, anchor = (12, "start") if right else (-12, "end")
    inner = Markup(f'<text class="{class_}" x="{offset}" y="{y}" text-anchor="{anchor}">{text(content)}</text>')
    return element("svg", inner, x=pc(x), y=origin, overflow="visible")


def _band(ends: Sequence[tuple[float, Ends]], y: Callable[[float], float], class_: str) -> str:
    """The area between the lower and the upper ends at each x; "" for a single point."""
    upper = [f"{x:.2f},{y(pair[1]):.2f}" for x, pair in ends]
    lower = [f"{x:.2f},{y(pair[0]):.2f}" for x, pair in reversed(ends)]
    return f'<polygon class="band {class_}" points="{" ".join([*upper, *lower])}"/>' if len(ends) > 1 else ""


def _path(points: Sequence[tuple[float, float]], y: Callable[[float], float], class_: str) -> str:
    """A curve through the points; "" for a single point."""
    path = " ".join(f"{x:.2f},{y(value):.2f}" for x, value in points)
    return f'<polyline class="curve {class_}" points="{path}"/>' if len(points) > 1 else ""


def _stretched(shapes: Iterable[str], left: float, top: float, wide: float, tall: float) -> Markup:
    """Shapes in a frame that stretches with the page; their x is from 0 to 100, their y from 0 to ``tall``."""
    return Markup(
        f'<svg x="{pc(left)}" y="{top}" width="{pc(wide)}" height="{tall}" viewBox="0 0 100 {tall}" '
        f'preserveAspectRatio="none" overflow="visible">{"".join(shapes)}</svg>'
    )


def centred(*inner: Markup) -> Markup:
    """Marks around the middle of a row, which is at y = 0."""
    return Markup(f'<svg y="50%" overflow="visible">{"".join(inner)}</svg>')


def glyph(
    value: float | None,
    interval: Ends | None,
    bounds: Ends | None,
    scale: Scale,
    *,
    tone: Tone = "blue",
    large: bool = False,
    y: float = 0,
) -> Markup:
    """The marks of a row: interval, point and bounds, centred on y."""
    half, radius = (9, 9) if large else (4.5, 5)
    size = " large" if large else ""
    marks: list[Markup] = []
    if interval is not None:
        low, high = scale.at(interval[0]), scale.at(interval[1])
        marks.append(line(low, high, y, y, f"ci {tone}{size}"))
        marks += [line(end, end, y - half, y + half, f"end {tone}{size}") for end in (low, high)]
    if bounds is not None:
        low, high = scale.at(bounds[0]), scale.at(bounds[1])
        wide = max(high - low, 0.4 if large else LEAST_BOUNDS)
        left = min(max((low + high - wide) / 2, 0.0), 100 - wide)
        top, tall = (y + 31, 8) if large else (y + 7.5, 5)
        marks.append(rect(left, wide, top, tall, "bounds", tall / 2))
    if value is not None:
        kind = f"point grey{size} hollow" if interval is None else f"point {tone}{size}"
        marks.append(circle(scale.at(value), y, radius, kind))
    return Markup("".join(marks))


def interval_row(
    value: float | None,
    interval: Ends | None,
    bounds: Ends | None,
    scale: Scale,
    *,
    label: str,
    tone: Tone = "blue",
    zero: bool = False,
    overall: float | None = None,
    own_axis: bool = False,
) -> Markup:
    """The axis cell of a row: value and interval, and bounds below.

    ``own_axis``: the scale is not that of the column, so that its ends have their numbers.

    ``zero`` draws the zero line of a difference, ``overall`` the dashed line of the whole benchmark; both continue
    through all rows.
    """
    marks = [line(0, 100, "50%", "50%", "track")]
    if zero:
        marks.append(line(scale.at(0), scale.at(0), 0, "100%", "zero"))
    if overall is not None:
        marks.append(line(scale.at(overall), scale.at(overall), 0, "100%", "whole"))
    marks.append(centred(glyph(value, interval, bounds, scale, tone=tone)))
    if own_axis:
        ends = [words(scale.at(end), -9, short_number(end), "tick", _anchor(scale, end)) for end in scale.ends]
        marks.append(centred(*ends))
    return svg(*marks, label=label, class_="row")


def around_zero(scale: Scale) -> Scale:
    """The same axis with its ends and zero as the only marks."""
    return Scale(scale.low, scale.high, tuple(sorted({scale.low, 0.0, scale.high})))


def axis_head(scale: Scale, *, signed: bool = False) -> Markup:
    """The numbers of an axis, above a column of rows: its ends and some ticks between them."""
    ticks = scale.ticks or (scale.low, scale.high)
    if scale is UNIT:
        ticks = (0.0, 0.5, 1.0)
    elif len(ticks) > 5:
        ticks = ticks[:: math.ceil(len(ticks) / 5)]
    shown = [
        words(scale.at(tick), 11, short_number(tick, signed=signed), "tick", _anchor(scale, tick)) for tick in ticks
    ]
    return element("svg", shown, class_="axis-head", width="100%", height=16, aria_hidden="true")


def _anchor(scale: Scale, tick: float) -> str:
    x = scale.at(tick)
    return "start" if x < 3 else "end" if x > 97 else "middle"


def headline(
    value: float,
    interval: Ends | None,
    bounds: Ends | None,
    scale: Scale,
    *,
    label: str,
    figure: Callable[[float], str],
    remark: str = "",
    tone: Tone = "blue",
    ticks: Callable[[float], str] = short_number,
    zero: bool = False,
    margin: float | None = None,
    sides: tuple[str, str] | None = None,
) -> Markup:
    """The answer on a full-width axis: the value in large type, the ends of its interval, bounds and their remark.

    ``margin`` is half the width of a band around zero. ``sides`` are the words to the left and to the right of zero.
    """
    y = 40
    marks: list[Markup] = []
    if margin is not None:
        left, right = scale.at(-margin), scale.at(margin)
        marks.append(rect(left, right - left, y - 18, 36, "margin"))
    marks.append(line(0, 100, y, y, "axis"))
    for tick in scale.ticks:
        tick_x = scale.at(tick)
        marks.append(line(tick_x, tick_x, y, y + 5, "axis"))
        marks.append(words(tick_x, y + 21, ticks(tick), "tick", _anchor(scale, tick)))
    if zero:
        marks.append(line(scale.at(0), scale.at(0), y - 20, y + 6, "zero"))
    marks.append(glyph(value, interval, bounds, scale, tone=tone, large=True, y=y))
    x = scale.at(value)
    value_anchor = _inside(x)
    marks.append(words(x, y - 18, figure(value), "value", value_anchor))
    if interval is not None:
        for end, anchor in zip(interval, ("end", "start"), strict=True):
            if value_anchor not in ("middle", anchor):  # at an end of the axis the value needs the room
                continue
            end_x = scale.at(end)
            distance = abs(end_x - x)
            least, clear = (4.5, 6.0) if value_anchor == "middle" else (10.0, 13.0)
            if distance < least:  # beside the value instead of above the end
                end_x = x - least if anchor == "end" else x + least
            anchor = "middle" if distance > clear else anchor
            marks.append(words(min(max(end_x, 0), 100), y - 18, figure(end), "end-text", _inside(end_x, anchor)))
    if bounds is not None and remark:
        high = scale.at(bounds[1])
        right = high < 60
        marks.append(_beside(high if right else scale.at(bounds[0]), right, y + 39, remark, "remark"))
    if sides is not None:
        marks.append(words(0, y + 42, f"◀ {sides[0]}", "worse", "start"))
        marks.append(words(100, y + 42, f"{sides[1]} ▶", "better", "end"))
    height = 86 if bounds is not None or sides is not None else 66
    return svg(*marks, label=label, class_="headline", height=height)


def _inside(x: float, anchor: str = "middle") -> str:
    """The anchor of a text at x that keeps it inside the picture."""
    return "start" if x < 2 else "end" if x > 98 else anchor


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a ledger bar."""

    state: str  # one of `report_data.STATES`, which determines its colour
    count: int
    word: str


def ledger_bar(parts: Sequence[Segment], *, label: str, height: int = 26) -> Markup:
    """All planned rollouts in one bar; each part has at least a few pixels, so that none is hidden."""
    parts = [part for part in parts if part.count]
    total = sum(part.count for part in parts)
    shares = [max(100 * part.count / total, LEAST_PART) for part in parts]
    shares = [100 * share / sum(shares) for share in shares]
    gap = 0.2
    drawn, left = [], 0.0
    for part, share in zip(parts, shares, strict=True):
        wide = max(share - gap, gap)
        title = element("title", f"{part.count:,} {part.word}")
        drawn.append(
            Markup(
                f'<rect class="{part.state}" data-state="{part.state}" x="{pc(left + gap / 2)}" width="{pc(wide)}" '
                f'y="1" height="{height - 2}" rx="2">{title}</rect>'
            )
        )
        left += share
    return svg(*drawn, label=label, class_="bar", height=height)


def square(state: str) -> Markup:
    """A square in the colour of a state, as a mark before its name."""
    return Markup(
        f'<svg class="square" width="12" height="12" aria-hidden="true"><rect class="{state}" x="1" y="1" width="10" '
        'height="10" rx="2"/></svg>'
    )


MANY_COLUMNS = 60  # with more columns, squares are so narrow that round corners would make them circles
LETTER = {"passed": "p", "scored": "s", "wrong": "w", "zero": "z", "missing": "m"}


def squares(
    columns: Sequence[Sequence[str]], *, label: str, titles: Sequence[str] = (), tasks: Sequence[int] = ()
) -> Markup:
    """A column of squares for each task, the first state at the bottom; ``titles`` and ``tasks`` name the columns."""
    step = 10
    tallest = max(map(len, columns), default=0)
    wide = 100 / max(len(columns), 1)
    gap = min(0.22 * wide, 0.35)
    drawn = []
    for number, column in enumerate(columns):
        rects = "".join(
            f'<rect class="{LETTER[state]}" y="{step * (tallest - 1 - row) + 1}" width="100%" height="8"/>'
            for row, state in enumerate(column)
        )
        title = str(element("title", titles[number])) if titles else ""
        frame = f'x="{pc(number * wide + gap / 2)}" width="{pc(wide - gap)}" overflow="visible"'
        key = tasks[number] if tasks else number
        drawn.append(Markup(f'<svg data-task="{key}" {frame}>{title}{rects}</svg>'))
    dense = " dense" if len(columns) > MANY_COLUMNS else ""
    return svg(*drawn, label=label, class_=f"squares{dense}", height=step * tallest)


@dataclass(frozen=True, slots=True)
class Bracket:
    """A range of sorted tasks with a name below it."""

    start: float  # per cent
    end: float
    word: str
    short: str = ""  # its name if there is little room


def brackets(ranges: Sequence[Bracket]) -> Markup:
    """Brackets with their names, below a picture."""
    marks = []
    for bracket in ranges:
        if bracket.end <= bracket.start:
            continue
        start, end = bracket.start + 0.15, bracket.end - 0.15
        marks.append(line(start, end, 4, 4, "axis"))
        wide, short = end - start, bracket.short or bracket.word
        long = bracket.word if wide > NAMED_STRETCH else short
        x, anchor = (start + end) / 2, "middle"
        if wide < NARROW_STRETCH:  # a centred name could leave the picture
            x, anchor = (start, "start") if x < 50 else (end, "end")
        marks += [words(x, 20, long, "tick long", anchor), words(x, 20, short, "tick short", anchor)]
    return element("svg", marks, class_="brackets", width="100%", height=26, aria_hidden="true")


def histogram(counts: Sequence[int], *, label: str) -> Markup:
    """Counts in bins of equal width from 0 to 1, with numbers above the bars."""
    tall, most = 96, max(counts, default=0) or 1
    wide = 100 / max(len(counts), 1)
    marks = []
    for number, count in enumerate(counts):
        if not count:
            continue
        height = max(round(tall * count / most, 1), 1.5)
        top = f"{16 + tall - height:.1f}"
        marks.append(rect(number * wide + 0.3, wide - 0.6, top, f"{height:.1f}", "passed", 1))
        marks.append(words((number + 0.5) * wide, f"{12 + tall - height:.1f}", f"{count:,}", "tick bin"))
    marks.append(line(0, 100, 16 + tall, 16 + tall, "axis"))
    marks += [
        words(100 * tick, 16 + tall + 16, short_number(tick), "tick", _anchor(UNIT, tick)) for tick in (0.0, 0.5, 1.0)
    ]
    return svg(*marks, label=label, class_="histogram", height=16 + tall + 20)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a curve."""

    x: float  # 0 to 1 along the axis
    y: float
    interval: Ends | None
    firm: bool  # over the same population as the first point; else it is hollow and the line to it is dashed
    marked: bool = True  # has a dot


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: its name at the end of the line, and a word below it."""

    name: str
    word: str
    tone: Tone
    points: Sequence[CurvePoint]


def curves(
    series: Sequence[Series],
    scale: Scale,
    *,
    label: str,
    below: Sequence[tuple[float, str, str]] = (),
    names: tuple[str, str] = ("", ""),
) -> Markup:
    """Curves with bands on a common axis.

    ``below`` are the texts below the axis, as (x, first line, second line); ``names`` are the names of both lines.
    """
    tall, top = 200, 10
    left, wide = 7.0, 77.0  # per cent, with room for numbers on the left and names on the right

    def y(value: float) -> float:
        return top + tall * (1 - scale.at(value) / 100)

    def x(share: float) -> float:
        return left + wide * share

    marks = []
    for tick in scale.ticks:
        marks.append(line(left, left + wide, f"{y(tick):.1f}", f"{y(tick):.1f}", "track"))
        marks.append(words(left - 2.4, f"{y(tick) + 4:.1f}", short_number(tick), "tick", "end"))

    def inner(value: float) -> float:
        return y(value) - top

    bands = [
        _band([(100 * point.x, point.interval) for point in curve.points if point.interval], inner, curve.tone)
        for curve in series
    ]
    paths = []
    for curve in series:
        firm = [point for point in curve.points if point.firm]
        for points, style in ((firm, ""), (curve.points[max(len(firm) - 1, 0) :], " dashed")):
            paths.append(_path([(100 * point.x, point.y) for point in points], inner, f"{curve.tone}{style}"))
    marks.append(_stretched([*bands, *paths], left, top, wide, tall))
    for curve in series:
        for point in filter(lambda point: point.marked, curve.points):
            kind = f"dot {curve.tone}{'' if point.firm else ' hollow'}"
            marks.append(circle(x(point.x), f"{y(point.y):.1f}", 3.5, kind))
    bottom = top + tall
    named = sorted((curve for curve in series if curve.points), key=lambda curve: y(curve.points[-1].y))
    free = float(top)  # the first y without a name above it
    for number, curve in enumerate(named):
        right, lowest = x(curve.points[-1].x) + 1.6, bottom - 12 - NAME_TALL * (len(named) - 1 - number)
        name_y = max(min(y(curve.points[-1].y), lowest), free)
        free = name_y + NAME_TALL
        marks.append(words(right, f"{name_y:.1f}", curve.name, f"series {curve.tone}", "start"))
        marks.append(words(right, f"{name_y + 15:.1f}", curve.word, "tick word", "start"))
    for share, first, second in below:
        marks.append(words(x(share), bottom + 20, first, "tick k"))
        marks.append(words(x(share), bottom + 36, second, "tick tasks"))
    marks += [words(x(1) + 4, bottom + 20 + 16 * row, name, "tick", "start") for row, name in enumerate(names)]
    return svg(*marks, label=label, class_="curves", height=bottom + 44)


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step that is marked on a curve by a vertical line with a word at its top."""

    step: int
    word: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class CurveStep:
    """A step of a curve: its value, its own interval, and its part of the band that holds for all steps together."""

    step: int
    value: float
    interval: Ends | None
    band: Ends | None


def step_curve(
    points: Sequence[CurveStep], *, label: str, marks: Sequence[StepMark] = (), best: int | None = None, tall: int = 180
) -> Markup:
    """A metric by step: a line, the interval of each step as a dark band, the band of all steps together as a pale one.

    ``best`` is the step whose point has a ring.
    """
    left, wide = 7.0, 92.0  # per cent, with room for numbers on the left
    scale = scale_of([end for point in points for end in (point.value, *(point.band or ()))], close=True)
    steps = [point.step for point in points] + [mark.step for mark in marks]
    first, last = min(steps), max(steps)
    span = max(last - first, 1)
    placed_marks, rows = _mark_rows([(left + wide * (mark.step - first) / span, mark) for mark in marks])
    top = 22 + MARK_TALL * max(rows - 1, 0)  # pixels for the words

    def y(value: float) -> float:
        return top + tall * (1 - scale.at(value) / 100)

    def across(step: int) -> float:
        return 100 * (step - first) / span

    def inner(value: float) -> float:
        return y(value) - top

    drawn: list[Markup] = []
    for tick in scale.ticks[:: 1 if tall > 100 else max(len(scale.ticks) - 1, 1)]:  # only the ends of a low axis
        drawn.append(line(left, left + wide, f"{y(tick):.1f}", f"{y(tick):.1f}", "track"))
        drawn.append(words(left - 1.2, f"{y(tick) + 4:.1f}", short_number(tick), "tick", "end"))
    shapes = [
        _band([(across(point.step), point.band) for point in points if point.band], inner, "blue"),
        _band([(across(point.step), point.interval) for point in points if point.interval], inner, "look"),
        _path([(across(point.step), point.value) for point in points], inner, "blue"),
    ]
    drawn.append(_stretched(shapes, left, top, wide, tall))
    for mark, x, row in placed_marks:
        drawn.append(line(x, x, 16 + MARK_TALL * row, top + tall, f"step-mark {mark.tone}"))
        anchor = "end" if x > RIGHT else "start"
        drawn.append(words(x, 13 + MARK_TALL * row, mark.word, f"series {mark.tone}", anchor))
    for point in points:
        if point.step == best or len(points) == 1:
            x, kind = left + wide * across(point.step) / 100, "dot blue hollow" if point.step == best else "dot blue"
            drawn.append(circle(x, f"{y(point.value):.1f}", 5, kind))
    bottom = top + tall
    shown = sorted({round(first + span * share / 4) for share in range(5)}) if span >= 4 else sorted({first, last})
    drawn += [words(left + wide * across(step) / 100, bottom + 18, f"{step:,}", "tick k") for step in shown]
    return svg(*drawn, label=label, class_="curves steps", height=bottom + 26)


def _mark_rows(marks: Sequence[tuple[float, StepMark]]) -> tuple[list[tuple[StepMark, float, int]], int]:
    """The marks, given as (x, mark), with rows for their words such that no two words overlap; and the number of rows.

    Words nearest to an end of the axis get the highest row. Words right of `RIGHT` extend to the left of their mark.
    """
    ordered = sorted(marks, key=lambda item: item[0])
    left = [item for item in ordered if item[0] <= RIGHT]
    right = [item for item in ordered if item[0] > RIGHT]
    rows: list[list[float]] = []  # of each row, the x at which its words begin
    placed = []
    for x, mark in [*left, *reversed(right)]:
        start = x - MARK_WIDE if x > RIGHT else x
        free = (row for row, starts in enumerate(rows) if all(abs(start - other) >= MARK_WIDE for other in starts))
        row = next(free, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(start)
        placed.append((mark, x, row))
    return placed, len(rows)


def share_bar(shares: Sequence[tuple[float, str]], *, label: str) -> Markup:
    """Shares of a total in one bar, the first dark, with a word below each."""
    marks, left = [], 0.0
    for number, (share, word) in enumerate(shares):
        wide = 100 * share
        tone = ("dark", "light", "middle")[min(number, 2)]
        marks.append(rect(left, max(wide - 0.2, 0.2), 0, 14, f"share {tone}", 1))
        first, last = number == 0, number == len(shares) - 1
        x, anchor = (0.0, "start") if first else (100.0, "end") if last else (left + wide / 2, "middle")
        marks.append(words(x, 32, word, "tick dark", anchor))
        left += wide
    return svg(*marks, label=label, class_="shares", height=38)


def hatch() -> Markup:
    """The hatched pattern for missing rollouts; it is part of the page, because it takes its colours from there."""
    return Markup(
        '<svg class="defs" width="0" height="0" aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-paper" width="6" height="6"/>'
        '<line class="hatch-line" x1="3" x2="3" y1="0" y2="6"/></pattern></defs></svg>'
    )
