"""Curves laid out for people: a row for each k, the metrics beside each other, then what trying costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calipers.reports.curve import CurveGroup, Curves
from calipers.reports.figures import NONE, counted, figure, percent, whole_account
from calipers.reports.sheet import Block, Said, Table, Title
from calipers.stats.curve import Curve, Point

ALL_SHOWN = 16  # rows up to which every k has one
MODEL = "*"
PLACES = 3


def sheet(curves: Curves) -> list[Block]:
    """Everything that curves have to say."""
    return [block for group in curves.groups for block in _group(group, curves)]


def _group(group: CurveGroup, curves: Curves) -> Iterator[Block]:
    several = len(curves.groups) > 1
    own = f" · reward {group.reward}" if group.reward != "reward" else ""
    if group.title or own or several:
        yield Title((group.title or "(unnamed)") + own, foreign=True)
    yield Said(whole_account(group.ledger, curves.missing))
    shown = group.lines
    ks = _rows(sorted({point.k for curve in shown for point in curve.points}), group.samples[1])
    if ks:
        yield _values(shown, ks, curves.confidence)
    if ks and curves.cluster:
        yield Said(f"the bands are over clusters: tasks of one {curves.cluster} are one unit", note=True)
    if any(point.interval for curve in shown for point in curve.points):
        yield Said(
            f"{percent(curves.confidence)} bands, each by itself: for one k, not for all of them at once", note=True
        )
    yield from _beyond(group, shown)
    tried = [one for one in group.first_success if one.k in ks]
    if tried:
        yield Title("trying until the first pass, giving up after k")
        priced = any(one.cost is not None for one in tried)
        head = ["k", "solved", "tries per task", *(["USD per task", "USD per solved task"] if priced else [])]
        yield Table(
            head,
            [
                [str(one.k), figure(one.solved, PLACES), figure(one.tries, PLACES)]
                + ([_money(one.cost), _money(one.cost_per_success)] if priced else [])
                for one in tried
            ],
            numbers=frozenset(range(len(head))),
        )
    every = {point.k for curve in shown for point in curve.points}
    if len(ks) < len(every):
        yield Said(f"{len(ks)} of {len(every)} rows; --format csv has every k", note=True)
    points = [point for curve in shown for point in curve.points]
    for why in dict.fromkeys(point.why for point in points if point.why and not point.model_based):
        yield Said(f"no band: {why}", note=True)
    for note in group.notes:
        yield Said(note, note=True)


def _beyond(group: CurveGroup, shown: Sequence[Curve]) -> Iterator[Block]:
    """What the points beyond the samples assume, and why others have no value."""
    points = [point for curve in shown for point in curve.points if point.model_based]
    law, samples = group.law, counted(group.samples[1], "sample")
    if law is not None and law.never_solved is not None and any(point.value is not None for point in points):
        yield Said(
            f"{MODEL} beyond the {samples} of a task, {law.assumes}: Beta({law.a:.3g}, {law.b:.3g}), and "
            f"{percent(round(law.never_solved, 3))} never solved. The bands are the hull of {law.draws} bootstrap fits "
            "and of all laws nearly as likely.",
            note=True,
        )
    ending = [curve.metric for curve in shown if points and curve.metric not in ("pass@k", "pass^k")]
    if ending:
        yield Said(f"no {' and '.join(ending)} beyond the {samples} of a task: the law is one of passes", note=True)
    for why in dict.fromkeys(point.why for point in points if point.why):
        where = f" beyond the {samples} of a task" if law is not None and law.why else ""
        yield Said(f"{MODEL} no value{where}: {why}", note=True)


def _rows(ks: Sequence[int], most: int) -> list[int]:
    """Which k have a row: all, or of many the first eight, powers of two, and the last of both kinds."""
    if len(ks) <= ALL_SHOWN:
        return list(ks)
    return [k for k in ks if k <= 8 or k & (k - 1) == 0 or k in (most, ks[-1])]


def _values(shown: Sequence[Curve], ks: Sequence[int], confidence: float) -> Table:
    points = [{point.k: point for point in curve.points} for curve in shown]
    band = f"{percent(confidence)} band"
    head = ["k"]
    for curve in shown:
        head += [curve.metric, band]
    rows = []
    for k in ks:
        there = [of[k] for of in points if k in of]
        row = [f"{k}{MODEL}" if any(point.model_based for point in there) else str(k)]
        for of in points:
            row += _cells(of.get(k))
        rows.append([*row, f"{there[0].tasks:,}"])
    return Table(
        [*head, "tasks"],
        rows,
        numbers=frozenset({*range(1, len(head), 2), len(head)}),
        strong=frozenset(range(1, len(head), 2)),
    )


def _cells(point: Point | None) -> list[str]:
    if point is None:
        return [NONE, ""]
    ends = NONE if point.interval is None else "–".join(figure(end, PLACES) for end in point.interval)
    return [figure(point.value, PLACES), ends]


def _money(amount: float | None) -> str:
    return figure(amount, 4 if amount is not None and amount >= 1 else None)
