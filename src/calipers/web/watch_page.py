"""The page of a watch: its alarms, every metric by step with its bands, and the best step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.analyses.watch.best import BestSteps, Pick, advice, best_steps, pick_sentence
from calipers.analyses.watch.document import (
    MetricCurve,
    StepPoint,
    Watched,
    WatchedSeries,
    band_digits,
    evidence_figure,
    needed_by,
    promise,
    raised_sentence,
    state_sentence,
)
from calipers.analyses.watch.monitor import Raised
from calipers.analyses.watch.status import CLOSED
from calipers.analyses.watch.watch import is_watched, last_look, look_once
from calipers.errors import InputError
from calipers.formats import Named
from calipers.reports.figures import NONE, counted, figure
from calipers.reports.sentences import minus, percent, signed_to, to
from calipers.stats.alarms import E_PROCESS, RECOVERY
from calipers.stats.steps import BAND, BEST_STEP
from calipers.web.draw import CurveStep, StepMark, step_curve
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.page import HtmlPage, Section, heading, method_card, once, plain_table, scrolled
from calipers.web.sections import command_line

MOST_METRICS: Final = 14  # metrics that are drawn per series
MOST_POINTS: Final = 1_000  # steps that are drawn per curve; if there are more, only every n-th is drawn
MOST_ROWS: Final = 100  # rows of the table below a curve
TALL: Final = 190  # height of the first curve of a series, in px
LOW: Final = 84  # height of the other curves
VERDICTS: Final = {"higher": "▲ higher", "lower": "▼ lower", "undecided": "~ undecided", "": ""}


@dataclass(frozen=True, slots=True)
class WatchData:
    """The data of the page of a watch."""

    watched: Watched
    best: BestSteps | None = None  # None for a document, which has no tasks


def watch_data(
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    **settings: Any,
) -> WatchData:
    """The data of a folder of steps: the last state of its watch or, if it is not watched, one look at it."""
    folder = os.fspath(path)
    if is_watched(folder):
        watched, steps = last_look(folder)
    else:
        watched, steps = look_once(folder, Named(columns or {}, truth), **settings)
    if not watched.series:
        problem = next(iter(watched.unreadable.values()), "no step could be read")
        raise InputError.at(folder, problem, "expected a file of rollouts for each step")
    return WatchData(watched, best_steps(watched.path, steps, None, watched.confidence))


def watch_page(data: WatchData) -> HtmlPage:
    """The page: the answer, the alarms, the curves of each series, the best step, and the evidence."""
    watched = data.watched
    alarms = watched.open_alarms
    title = (
        watched.headline() if not alarms else f"{counted(len(alarms), 'alarm')} in {counted(watched.steps, 'step')}."
    )
    detail = f"{alarms[0].words}." if alarms else promise(watched)
    last = watched.last_step
    reached = "" if last is None else f"Step {last:,} of {watched.planned:,} planned. "
    top = element(
        "div",
        heading(title, detail),
        element("p", reached, promise(watched) if alarms else "", class_="basis"),
        class_="top",
    )
    picks = {pick.series: pick for pick in (data.best.picks if data.best else ())}
    sections = [
        _alarms(watched),
        *(_series(series, watched, picks.get(series.name)) for series in watched.series if series.curves),
        _best(data.best),
        _evidence(watched),
        _notes(watched),
    ]
    cards = [method_card(BAND), method_card(E_PROCESS)]
    cards += [method_card(RECOVERY)] if watched.raised else []
    cards += [method_card(BEST_STEP)] if picks else []
    steps = "" if last is None else f"step {last:,}"
    about = [part for part in (os.path.basename(os.path.normpath(watched.path)), steps) if part]
    shown = [section for section in sections if section]
    return HtmlPage(title, about, top, shown, [f"Calipers · {watched.path}"], once(cards))


def _alarms(watched: Watched) -> Section | None:
    raised = [*watched.open_alarms, *watched.closed_alarms]
    if not raised:
        return None
    note = "An alarm says since when, how much, and which rollouts of the step at which it was raised show it best."
    return Section("Alarms", joined([_raised(alarm) for alarm in raised]), note, id="alarms")


def _raised(raised: Raised) -> Markup:
    parts: list[Child] = [
        element("p", element("b", name(raised.alarm, 80)), f" {raised.series}" if raised.series else ""),
        element("p", state_sentence(raised)),
        element("p", raised_sentence(raised), class_="second"),
    ]
    if raised.status is not None and raised.status.state == CLOSED:
        return element("div", parts, class_="alarm")
    if raised.rollouts:
        rows = [
            [
                name(str(row["task"]), 60),
                str(row["sample"]),
                str(row["outcome"]).replace("_", " "),
                minus(figure(row["value"])),
            ]
            for row in raised.rollouts
        ]
        parts.append(_table("Rollouts that show it best", ("task", "sample", "outcome", "value"), rows))
    if raised.command:
        parts.append(command_line(raised.command))
    return element("div", parts, class_="alarm")


def _series(series: WatchedSeries, watched: Watched, pick: Pick | None) -> Section:
    chance = percent(watched.confidence)
    notes = [
        f"Line: the mean over tasks. Dark band: the {chance} interval of one look. Pale band: holds at all "
        f"{watched.planned:,} planned steps together.",
        "Judge the whole curve by the pale band.",
    ]
    if pick is not None:
        notes.append("Ring: the step with the highest value.")
    shown = [_metric(curve, series, watched, pick, at == 0) for at, curve in enumerate(series.curves[:MOST_METRICS])]
    if (left := len(series.curves) - MOST_METRICS) > 0:
        verb = "is" if left == 1 else "are"
        shown.append(element("p", f"{counted(left, 'more metric')} {verb} not drawn.", class_="small"))
    return Section(series.name or "By step", joined(shown), notes, id="")


def _metric(curve: MetricCurve, series: WatchedSeries, watched: Watched, pick: Pick | None, first: bool) -> Markup:
    point = curve.points[-1]
    digits = band_digits(point.band) if point.band else 3
    band = f"{to(point.band, digits)} at all steps together" if point.band else "no band"
    value = minus(figure(point.value, digits if point.band else None))
    change = ""
    if point.change_band is not None and series.base_step is not None:
        ends = signed_to(point.change_band, band_digits(point.change_band))
        change = f"{VERDICTS[point.verdict]} since step {series.base_step:,}: {ends}"
    points, skipped = _thinned(curve.points, MOST_POINTS)
    label = f"{curve.metric} by step: {value} at step {point.step:,}, {band}"
    drawn = step_curve(
        [CurveStep(point.step, point.value, point.interval, point.band) for point in points],
        label=f"{label}. {change}".strip(),
        marks=_marks(watched, series) if first else (),
        best=pick.step if pick is not None and pick.metric == curve.metric else None,
        tall=TALL if first else LOW,
    )
    words = [f" {value}, {band} ", element("span", change, class_="second")]
    parts: list[Child] = [element("p", element("b", name(curve.metric)), words), drawn]
    if skipped:
        parts.append(element("p", f"Every {counted_th(skipped)} step is drawn.", class_="small"))
    if first:
        parts.append(_as_table(curve))
    return element("div", parts, class_="metric-curve")


def counted_th(number: int) -> str:
    """An ordinal number in figures.

    >>> [counted_th(number) for number in (2, 3, 11, 21)]
    ['2nd', '3rd', '11th', '21st']
    """
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else last}"


def _thinned(points: Sequence[StepPoint], most: int) -> tuple[Sequence[StepPoint], int]:
    """At most ``most`` points, including the last, and n if only every n-th point is kept; 0 if all are."""
    if len(points) <= most:
        return points, 0
    every = -(-len(points) // most)
    return [*points[(len(points) - 1) % every :: every]], every


def _marks(watched: Watched, series: WatchedSeries) -> list[StepMark]:
    steps = {point.step for curve in series.curves for point in curve.points}
    first, last = min(steps), max(steps)
    marks = []
    for alarm in [*watched.open_alarms, *watched.closed_alarms]:
        if alarm.series == series.name and first <= alarm.since <= last:
            marks.append(StepMark(alarm.since, f"▼ alarm, since step {alarm.since:,}", "orange"))
            closed = alarm.status.closed if alarm.status is not None else None
            if closed is not None:
                marks.append(StepMark(closed, f"closed at {closed:,}", "grey"))
    accepted = [step for step in watched.accepted if first <= step <= last]
    return [*(StepMark(step, f"accepted at {step:,}", "grey") for step in accepted), *marks]


def _as_table(curve: MetricCurve) -> Markup:
    points, skipped = _thinned(curve.points, MOST_ROWS)
    digits = min((band_digits(point.band) for point in points if point.band), default=3)
    rows = [
        [
            f"{point.step:,}",
            minus(figure(point.value, digits)),
            to(point.interval, digits) if point.interval else NONE,
            to(point.band, digits) if point.band else NONE,
            signed_to(point.change_band, digits) if point.change_band else NONE,
            VERDICTS[point.verdict],
        ]
        for point in points
    ]
    caption = f"{curve.metric} by step" + (f", every {counted_th(skipped)} step" if skipped else "")
    heads = ("step", "value", "interval of one look", "band", "change", "verdict")
    return element("details", element("summary", "Show as table"), _table(caption, heads, rows))


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Child]]) -> Markup:
    return scrolled(plain_table(caption, heads, rows), caption)


def _best(best: BestSteps | None) -> Section | None:
    if best is None or not best.picks:
        return None
    parts: list[Child] = []
    for pick in best.picks:
        series = f"{pick.series}: " if pick.series else ""
        parts.append(element("p", element("b", f"{series}{pick_sentence(pick)}")))
        parts.append(element("p", advice(pick), class_="second"))
    note = (
        "The highest of many noisy means is also the luckiest. The interval covers after the picking, with "
        f"{percent(best.confidence)} confidence."
    )
    return Section("Best step", joined(parts), note, id="best-step")


def _evidence(watched: Watched) -> Section | None:
    if not watched.alarms:
        return None
    rows = [
        [
            joined([name(alarm.alarm, 60), element("p", alarm.why, class_="small") if alarm.why else None]),
            name(alarm.series),
            evidence_figure(alarm.evidence),
            evidence_figure(needed_by(alarm, watched)),
            alarm.null,
        ]
        for alarm in watched.alarms
    ]
    note = "How strong the evidence of each alarm is, and what it would have to be, alone, to raise it."
    heads = ("alarm", "series", "evidence", "needed", "holds without a reason")
    return Section("Evidence", _table("Evidence of each alarm", heads, rows), note, id="evidence")


def _notes(watched: Watched) -> Section | None:
    notes = [*watched.advice, *list(watched.unreadable.values())[:20], *watched.notes[:20]]
    if not notes:
        return None
    return Section("Notes", joined([element("p", text, class_="second") for text in dict.fromkeys(notes)]), id="notes")
