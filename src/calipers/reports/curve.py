"""Curves over k of some rollouts: what k samples are worth, and what it costs to try until one passes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from calipers.errors import UnknownName
from calipers.readers.read import Input
from calipers.reports.document import Block, Document, Name, Sentence, Table, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, figure, percent, whole_account
from calipers.reports.json import encoded
from calipers.reports.result import canonical
from calipers.reports.safe import clean
from calipers.rollouts.ledger import Ledger
from calipers.stats.curve import Curve, FirstSuccess, Point

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "calipers.curves/1"
FIELDS = (
    *("dataset", "model", "agent", "reward", "metric", "k", "value", "stderr", "low", "high", "tasks"),
    *("model_based", "tries", "cost_usd", "cost_usd_per_success", "why", "assumes"),
)
ALL_SHOWN = 16  # rows up to which every k has one
MODEL = "*"
PLACES = 3


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """The law by which curves go on beyond the samples, or why they do not."""

    assumes: str
    draws: int  # of the bootstrap
    a: float | None = None  # of the beta law; None where none was fitted
    b: float | None = None
    never_solved: float | None = None  # share of tasks
    log_likelihood: float | None = None
    fit_p: float | None = None  # of Pearson's test of the counts of passes against the law
    why: str | None = None  # why nothing beyond the samples is said


@dataclass(frozen=True, slots=True)
class CurveGroup:
    """The curves of one agent, model and dataset, by one of its rewards."""

    agent: str | None
    model: str | None
    dataset: str | None
    reward: str
    ledger: Ledger
    samples: tuple[int, int]  # the fewest and the most that a task has
    tasks: int  # with a sample
    curves: Sequence[Curve]
    first_success: Sequence[FirstSuccess]
    notes: Sequence[str] = ()
    law: FittedLaw | None = None  # None where nothing beyond the samples is asked for

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def lines(self) -> list[Curve]:
        """The curves worth a line: not max@k where it is pass@k, as it is for rewards of 0 and 1."""
        first = [point.value or 0.0 for point in self["pass@k"].points if not point.model_based]
        best = [point.value or 0.0 for curve in self.curves if curve.metric == "max@k" for point in curve.points]
        same = all(math.isclose(one, other, abs_tol=1e-12) for one, other in zip(best, first, strict=False))
        return [curve for curve in self.curves if not (same and curve.metric == "max@k")]

    def __getitem__(self, metric: str) -> Curve:
        found = {curve.metric: curve for curve in self.curves}
        if metric not in found:
            raise UnknownName.of("curve in this group", metric, found)
        return found[metric]


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of every group. ``curves["pass@k"]`` is the curve when there is one group."""

    missing: str
    confidence: float
    threshold: float  # what a sample's reward must reach to pass
    cluster: str | None
    inputs: Sequence[Input]
    groups: Sequence[CurveGroup]
    notes: Sequence[str] = ()  # for the reader; no part of the JSON

    def __getitem__(self, metric: str) -> Curve:
        if len(self.groups) != 1:
            raise KeyError(f"there are {len(self.groups)} groups; ask .groups[i][{metric!r}]")
        return self.groups[0][metric]

    @property
    def digest(self) -> str:
        """The hash of everything that must not change: settings and numbers, no files and no words."""
        groups = [_numbers(asdict(group)) for group in self.groups]
        return "sha256:" + hashlib.sha256(canonical({**self._settings(), "groups": groups})).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **self._settings(),
            "inputs": [asdict(source) for source in self.inputs],
            "groups": [asdict(group) for group in self.groups],
            "digest": self.digest,
        }

    def to_json(self) -> str:
        """The document as indented JSON with a final newline."""
        return encoded(self.to_dict())

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per metric and k; pass@k carries what it takes to reach a first pass."""
        found = []
        for group in self.groups:
            who = {"dataset": group.dataset, "model": group.model, "agent": group.agent, "reward": group.reward}
            tries = {one.k: one for one in group.first_success}
            for curve in group.curves:
                for point in curve.points:
                    low, high = point.interval or (None, None)
                    first = tries.get(point.k) if curve.metric == "pass@k" else None
                    found.append(
                        {
                            **who,
                            "metric": curve.metric,
                            **_without(asdict(point), "interval"),
                            "low": low,
                            "high": high,
                            "tries": first.tries if first else None,
                            "cost_usd": first.cost if first else None,
                            "cost_usd_per_success": first.cost_per_success if first else None,
                        }
                    )
        return found

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("missing", "confidence", "threshold", "cluster")}


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    """A group without words, and without the law: only its points are rounded to what every machine finds."""
    curves = [
        {**curve, "points": [_without(point, "assumes") for point in curve["points"]]} for curve in group["curves"]
    ]
    return {**_without(_without(group, "notes"), "law"), "curves": curves}


def _without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}


def document(curves: Curves) -> Document:
    """Curves for people: a row for each k, the metrics beside each other, then what trying costs."""
    return Document(partial(_blocks, curves), curves.to_dict, FIELDS, curves.rows)


def _blocks(curves: Curves) -> Iterator[Block]:
    return spaced(block for group in curves.groups for block in _group(group, curves))


def _group(group: CurveGroup, curves: Curves) -> Iterator[Block]:
    several = len(curves.groups) > 1
    own = f" · reward {group.reward}" if group.reward != "reward" else ""
    if group.title or own or several:
        yield Title(Name((group.title or "(unnamed)") + own, None))
    yield Sentence(clean(whole_account(group.ledger, curves.missing), None))
    shown = group.lines
    ks = _rows(sorted({point.k for curve in shown for point in curve.points}), group.samples[1])
    if ks:
        yield _values(shown, ks, curves.confidence)
    if ks and curves.cluster:
        yield Sentence(f"the bands are over clusters: tasks of one {curves.cluster} are one unit", "note")
    if any(point.interval for curve in shown for point in curve.points):
        yield Sentence(
            f"{percent(curves.confidence)} bands, each by itself: for one k, not for all of them at once", "note"
        )
    yield from _beyond(group, shown)
    tried = [one for one in group.first_success if one.k in ks]
    if tried:
        yield Title("trying until the first pass, giving up after k")
        priced = any(one.cost is not None for one in tried)
        head = ["k", "solved", "tries per task", *(["USD per task", "USD per solved task"] if priced else [])]
        yield plain_table(
            head,
            [
                [str(one.k), figure(one.solved, PLACES), figure(one.tries, PLACES)]
                + ([_money(one.cost), _money(one.cost_per_success)] if priced else [])
                for one in tried
            ],
            numbers=range(len(head)),
        )
    every = {point.k for curve in shown for point in curve.points}
    if len(ks) < len(every):
        yield Sentence(f"{len(ks)} of {len(every)} rows; --format csv has every k", "note")
    points = [point for curve in shown for point in curve.points]
    for why in dict.fromkeys(point.why for point in points if point.why and not point.model_based):
        yield Sentence(f"no band: {why}", "note")
    for note in group.notes:
        yield Sentence(note, "note")


def _beyond(group: CurveGroup, shown: Sequence[Curve]) -> Iterator[Block]:
    """What the points beyond the samples assume, and why others have no value."""
    points = [point for curve in shown for point in curve.points if point.model_based]
    law, samples = group.law, counted(group.samples[1], "sample")
    if law is not None and law.never_solved is not None and any(point.value is not None for point in points):
        yield Sentence(
            f"{MODEL} beyond the {samples} of a task, {law.assumes}: Beta({law.a:.3g}, {law.b:.3g}), and "
            f"{percent(round(law.never_solved, 3))} never solved. The bands are the hull of {law.draws} bootstrap fits "
            "and of all laws nearly as likely.",
            "note",
        )
    ending = [curve.metric for curve in shown if points and curve.metric not in ("pass@k", "pass^k")]
    if ending:
        yield Sentence(f"no {' and '.join(ending)} beyond the {samples} of a task: the law is one of passes", "note")
    for why in dict.fromkeys(point.why for point in points if point.why):
        where = f" beyond the {samples} of a task" if law is not None and law.why else ""
        yield Sentence(f"{MODEL} no value{where}: {why}", "note")


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
    return plain_table(
        [*head, "tasks"],
        rows,
        numbers={*range(1, len(head), 2), len(head)},
        strong=range(1, len(head), 2),
    )


def _cells(point: Point | None) -> list[str]:
    if point is None:
        return [NONE, ""]
    ends = NONE if point.interval is None else "–".join(figure(end, PLACES) for end in point.interval)
    return [figure(point.value, PLACES), ends]


def _money(amount: float | None) -> str:
    return figure(amount, 4 if amount is not None and amount >= 1 else None)
