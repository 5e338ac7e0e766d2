"""Curves as a picture: a panel for each group, a line and a band for each metric; the same curves, the same bytes."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError
from calipers.reports.curve import CurveGroup, Curves
from calipers.reports.figures import counted, percent
from calipers.reports.safe import clean, width
from calipers.stats.curve import Curve, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("svg", "png")
MOST_PANELS = 24
LINEAR = 16  # k up to which the axis counts them; beyond, it doubles
ACROSS, PANEL = 3, (4.7, 3.5)  # panels in a row; inches of each
DOTS = 160  # to an inch, in a PNG
HEADING = 46  # columns of text that have room above a panel

COLOURS = {"pass@k": "#0b6fa4", "maj@k": "#2a8c5a", "max@k": "#8a5fa8", "pass^k": "#c8571b"}
INK, FAINT, RULE = "#222222", "#6b6b6b", "#e3e3e3"
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "svg.hashsalt": "calipers",  # ids inside the file are made from it: no chance in them
    "svg.fonttype": "none",  # letters stay letters, to be searched and read aloud
    "axes.unicode_minus": False,
}


def kind_of(path: str) -> str:
    """The kind of picture a file's name asks for."""
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in KINDS:
        raise InputError.at(path, "is no picture by its name", "expected a name that ends in .svg or .png")
    return kind


def need_matplotlib() -> None:
    """InputError where the library that draws is not there."""
    if find_spec("matplotlib") is None:
        raise InputError("--plot needs matplotlib, which is not installed; pip install 'calipers[plot]'")


def picture(curves: Curves, kind: str = "svg") -> bytes:
    """The picture of all groups, as SVG or PNG."""
    need_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    if len(curves.groups) > MOST_PANELS:
        wrong = f"there are {len(curves.groups)} groups, too many for a picture"
        raise InputError.at("--plot", wrong, f"expected {MOST_PANELS} or fewer; give one model or dataset at a time")
    across = min(math.ceil(math.sqrt(len(curves.groups))), ACROSS)
    down = math.ceil(len(curves.groups) / across)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(PANEL[0] * across + 0.5, PANEL[1] * down + 0.45), layout="constrained")
        (FigureCanvasSVG if kind == "svg" else FigureCanvasAgg)(figure)
        panels = figure.subplots(down, across, squeeze=False).ravel()
        headings = _headings(curves.groups)
        for place, axes in enumerate(panels):
            if place < len(curves.groups):
                _panel(axes, curves.groups[place], headings[place])
            else:
                axes.axis("off")
        figure.supxlabel(_legend(curves), x=0.99, ha="right", fontsize=7.5, color=FAINT)
        stream = io.BytesIO()
        clean_of = {"Date": None, "Creator": "Calipers"} if kind == "svg" else {"Software": "Calipers"}
        with warnings.catch_warnings():  # a letter that the font has not is drawn as a box
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
            figure.savefig(stream, format=kind, dpi=DOTS, metadata=clean_of, facecolor="white")
    return stream.getvalue()


def _legend(curves: Curves) -> str:
    band = f"bands: {percent(curves.confidence)} over {'clusters' if curves.cluster else 'tasks'}, each by itself"
    points = [point for group in curves.groups for one in group.curves for point in one.points]
    assumed = next((point.assumes for point in points if point.assumes), None)
    if assumed:
        return f"{band}\ndashed: beyond the samples there are, {assumed}"
    return f"{band}\nno value beyond the samples there are" if any(point.model_based for point in points) else band


def _headings(groups: Sequence[CurveGroup]) -> list[str]:
    """What stands above each panel: as much of a group's name as there is room for, its beginning and its end.

    Where that makes two of them alike, their numbers tell them apart.
    """
    found = []
    for group in groups:
        own = f" · reward {group.reward}" if group.reward != "reward" else ""
        heading = clean((group.title or ("" if len(groups) == 1 else "(unnamed)")) + own, None)
        found.append(_fitted(heading.removeprefix(" · "), HEADING))
    return [
        f"{place + 1}: {_fitted(heading, HEADING - 4)}" if found.count(heading) > 1 else heading
        for place, heading in enumerate(found)
    ]


def _fitted(text: str, room: int) -> str:
    """The text without its middle, where it is wider than so many columns."""
    if width(text) <= room:
        return text
    head, tail = text, text
    while width(head) > (room - 1) // 2:
        head = head[:-1]
    while width(tail) > room - 1 - width(head):
        tail = tail[1:]
    return f"{head}…{tail}"


def _panel(axes: Axes, group: CurveGroup, heading: str) -> None:
    drawn = [
        replace(one, points=tuple(point for point in one.points if point.value is not None)) for one in group.lines
    ]
    shown = [curve for curve in drawn if curve.points]
    points = [point for curve in shown for point in curve.points]
    fewest, most = group.samples
    each = counted(most, "sample") if fewest == most else f"{fewest} to {counted(most, 'sample')}"
    size = f"{counted(group.tasks, 'task')}, {each} each"
    axes.set_title(heading or size, loc="left", fontsize=10.5, color=INK, fontweight="bold", parse_math=False, pad=18)
    if heading:
        axes.text(0, 1.025, size, transform=axes.transAxes, fontsize=8, color=FAINT)
    for curve in shown:
        _draw(axes, curve)
    _frame(axes, points)
    if any(point.model_based for point in points):
        axes.axvline(group.samples[1], color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)))
    _name_lines(axes, shown)


def _value(point: Point) -> float:
    return math.nan if point.value is None else point.value


def _draw(axes: Axes, curve: Curve) -> None:
    colour = COLOURS[curve.metric]
    for guessed in (False, True):
        points = [point for point in curve.points if point.model_based is guessed]
        ks = [point.k for point in points]
        dash: Any = (0, (4, 2)) if guessed else "-"
        marker = "o" if len(points) <= LINEAR else ""
        axes.plot(
            ks,
            [_value(point) for point in points],
            color=colour,
            linewidth=1.8,
            linestyle=dash,
            marker=marker,
            markersize=3.6,
            markerfacecolor="white" if guessed else colour,
            zorder=3,
        )
        banded = [point for point in points if point.interval]
        low, high = ([point.interval[end] for point in banded if point.interval] for end in (0, 1))
        if len(banded) == 1:  # a band of no width would not be seen
            axes.vlines([banded[0].k], low, high, color=colour, alpha=0.5, linewidth=1.2)
        axes.fill_between(
            [point.k for point in banded], low, high, color=colour, alpha=0.07 if guessed else 0.14, linewidth=0
        )


def _frame(axes: Axes, points: Sequence[Point]) -> None:
    """The axes: bare, with k counted or doubling, and room on the right for the names."""
    last = max((point.k for point in points), default=1)
    values = [end for point in points for end in (_value(point), *(point.interval or ()))]
    if all(0 <= value <= 1 for value in values):
        axes.set_ylim(-0.02, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.50", "0.75", "1"])
    if last > LINEAR:
        axes.set_xscale("log", base=2)
        ticks: Iterable[int] = (1 << i for i in range(last.bit_length()))
        axes.set_xlim(0.92, last * 1.08)
    else:
        ticks = range(1, last + 1)
        axes.set_xlim(1 - 0.04 * last, last + 0.04 * last)
    marks = list(ticks)
    axes.set_xticks(marks, [f"{k:,}" for k in marks])
    axes.minorticks_off()
    axes.set_xlabel("k, samples", color=FAINT)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=FAINT, length=0, labelsize=8)


def _name_lines(axes: Axes, shown: Sequence[Curve]) -> None:
    """Each name beside the end of its line, pushed apart where lines end close together."""
    low, high = axes.get_ylim()
    room = 0.065 * (high - low)
    last = max((curve.points[-1].k for curve in shown), default=1)
    ordered = sorted(shown, key=lambda one: _value(one.points[-1]))
    reaching = [curve for curve in ordered if curve.points[-1].k == last]
    places: list[float] = []
    for curve in reaching:
        places.append(max([_value(curve.points[-1]), *(place + room for place in places[-1:])]))
    over = max(0.0, places[-1] - high) if places else 0.0
    for curve in ordered:
        end = curve.points[-1]
        early = curve not in reaching  # it ends where its samples do: the name goes there
        axes.annotate(
            curve.metric,
            xy=(end.k, _value(end)) if early else (1.0, places[reaching.index(curve)] - over),
            xycoords="data" if early else ("axes fraction", "data"),
            xytext=(7 if early else 4, 0),
            textcoords="offset points",
            va="center",
            color=COLOURS[curve.metric],
            fontweight="bold",
            fontsize=9,
            annotation_clip=False,
            parse_math=False,
        )
