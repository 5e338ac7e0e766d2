"""A result laid out for people: lines of styled pieces, the same ones for a terminal and for a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from calipers.metrics.cards import CARDS
from calipers.metrics.cards.card import filled
from calipers.reports import chart
from calipers.reports.figures import (
    EACH_BY_ITSELF,
    account,
    advice,
    counted,
    decimals,
    ends,
    exceptions,
    figure,
    on_the_point,
    over,
    percent,
    reason,
    remarks,
    size,
    stopped,
    whole_account,
)
from calipers.reports.result import Group, Result, Slice
from calipers.reports.safe import clean, width
from calipers.stats.estimate import Estimate
from calipers.stats.suite import Suite

Piece = tuple[str, str]  # text, style
Line = list[Piece]

PLAIN_WIDTH = 100
_BETWEEN = "  "
_INDENT = "  "
_WIDEST_NAME = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table and what is said under it; without an estimate, a heading inside it."""

    name: str
    estimate: Estimate | None = None
    notes: Sequence[str] = ()
    unit: str = ""


def page(result: Result, columns: int = PLAIN_WIDTH) -> list[Line]:
    """Everything a result has to say, in lines of about so many columns."""
    lines: list[Line] = []
    for group in result.groups:
        lines += _group(group, result, columns)
    for suite in result.suites:
        lines += _suite(suite, result, columns)
    return [*lines, *_origin(result, columns)]


def described(estimate: Estimate) -> str:
    """What a number is, in a few words: the estimator its signature names, not the word it was asked by."""
    card, k = CARDS.get(estimate.made.metric), estimate.made.k
    if card is None or estimate.made.over:
        script = estimate.made.metric == "metric_script"
        return "a metric script's own number" if script else "a plugin's own function of all rewards"
    beyond = card.name == "bayes_pass@{k}" and k is not None and k * estimate.tasks > estimate.samples
    even = estimate.value is not None and not estimate.samples_per_task  # else nobody knows what counts depend on
    unbiased = "unbiased: " if card.unbiased and even else ""
    return unbiased + filled(card.short, k) + (", extrapolated beyond the samples" if beyond else "")


def described_of(group: Group, estimate: Estimate) -> str:
    """What a number of a group is: as `described`, but no estimate is unbiased of a run that its results stopped."""
    said = described(estimate)
    return said.removeprefix("unbiased: ") if group.stop else said


def named(name: str, estimate: Estimate) -> str:
    """A metric's name with an arrow that says which way is better."""
    return clean(name) + {True: " ↑", False: " ↓", None: ""}[estimate.higher_is_better]


def title(group: Group, result: Result) -> str:
    """What a group is called; nothing when it has no name and there is no other."""
    return clean(group.title, 200) or ("(unnamed)" if len(result.groups) > 1 else "")


def _group(group: Group, result: Result, columns: int) -> Iterator[Line]:
    if name := title(group, result):
        yield [(name, "title")]
    yield from wrapped(whole_account(group.ledger, result.missing), columns, "", "ledger")
    yield from wrapped(exceptions(group.ledger), columns, "", "ledger")
    yield from wrapped(stopped(group.stop), columns, "", "ledger")
    yield []
    rows = [Row(named(name, e), e, [described_of(group, e), *remarks(e)]) for name, e in group.metrics.items()]
    yield from _table(rows, "metric", percent(result.confidence), columns) if rows else ()
    for key, said in advice(group.metrics, group.variance):
        yield from wrapped(f"mean reward{key and f' ({clean(key)})'}: {said}", columns, "", "note")
    for said in group.warnings:
        yield from wrapped(f"warning: {clean(said, None)}", columns, "", "ledger")
    for key, cut in group.breakdowns.items():
        yield from _breakdown(key, cut, result, columns)
    if group.economics or group.totals:
        yield from _economics(group, result, columns)
    yield []


def _breakdown(key: str, cut: Mapping[str, Slice], result: Result, columns: int) -> Iterator[Line]:
    """A metric at a time, its slices under one another, so that their intervals can be compared."""
    yield []
    yield [(f"by {clean(key)}{'' if cut else ': no rollouts'}", "heading")]
    if not cut:
        return
    for value, part in cut.items():
        yield from wrapped(f"{clean(value)}: {account(part.ledger, result.missing)}", columns, _INDENT, "ledger")
    yield []
    rows = []
    for name in next(iter(cut.values())).metrics:
        slices = {value: part[name] for value, part in cut.items()}
        rows.append(Row(named(name, next(iter(slices.values())))))
        for value, estimate in slices.items():
            undefined = [f"{counted(estimate.undefined_tasks, 'task')} undefined"] if estimate.undefined_tasks else []
            rows.append(Row(_INDENT + clean(value), estimate, [*undefined, *reason(estimate)]))
    yield from _table(rows, clean(key), percent(result.confidence), columns)
    if len(cut) > 1:
        yield from wrapped(EACH_BY_ITSELF, columns, "", "note")


def _suite(suite: Suite, result: Result, columns: int) -> Iterator[Line]:
    """The means over datasets, a metric at a time."""
    yield [(clean(over(suite), 200), "title")]
    yield from wrapped(", ".join(map(clean, suite.datasets)), columns, "", "ledger")
    yield []
    rows = []
    for name, means in suite.metrics.items():
        rows.append(Row(named(name, means.macro)))
        for kind, estimate in (("macro", means.macro), ("micro", means.micro)):
            rows.append(Row(_INDENT + kind, estimate, reason(estimate)))
    yield from _table(rows, "over datasets", percent(result.confidence), columns)
    yield [("macro: every dataset counts alike; micro: every task does", "note")]
    yield []


def _economics(group: Group, result: Result, columns: int) -> Iterator[Line]:
    yield []
    whys: dict[str, list[str]] = {}
    rows = []
    for name, estimate in group.economics.items():
        card = CARDS.get(estimate.made.metric)
        rows.append(Row(named(name, estimate), estimate, unit=card.unit if card else ""))
        for why in reason(estimate):
            whys.setdefault(why, []).append(clean(name))
    yield from _table(rows, "economics", percent(result.confidence), columns, charts=False)
    for why, names in whys.items():
        yield from wrapped(f"{', '.join(names)}: {why}", columns, _INDENT, "note")
    totals = ", ".join(f"{total(amount)}\N{NO-BREAK SPACE}{clean(name)}" for name, amount in group.totals.items())
    yield from wrapped(f"total: {totals}", columns, "", "ledger")


def total(amount: float) -> str:
    """A sum of usage: a count in full, anything else to four digits."""
    return figure(amount, 0 if abs(amount) < 1e15 and amount == int(amount) else None)


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cells: Sequence[str]
    style: str = "figure"
    right: bool = False  # flush right
    width: int = field(init=False)  # found once: each of its cells asks for it

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", max(map(width, [self.head, *self.cells])))

    def piece(self, text: str) -> Piece:
        space = " " * (self.width - width(text))
        return (space + text if self.right else text + space) + _BETWEEN, self.style


def _table(rows: Sequence[Row], heading: str, confidence: str, columns: int, *, charts: bool = True) -> Iterator[Line]:
    """A table of estimates. A long name stands on a line of its own; where a line has no room for how
    many tasks and samples there were, that goes under it, and where it has none for pictures, they go.
    """
    rows = [part for row in rows for part in _split(row)]
    found = [row.estimate for row in rows]
    pairs = [(estimate, decimals(estimate) if estimate else 0) for estimate in found]
    names = _Column(heading, [row.name if row.estimate else "" for row in rows], "name")
    pictures = _Column(chart.AXIS, [chart.bar(e) if e and charts else "" for e in found], "chart")
    counts = _Column("n", [size(e) if e else "" for e in found])
    others = [
        _Column("value", on_the_point([figure(e.value, p) if e else "" for e, p in pairs]), "value", right=True),
        _Column("± stderr", on_the_point([figure(e.stderr, p) if e else "" for e, p in pairs]), right=True),
        _Column(f"{confidence} interval", [ends(e.interval, p) if e else "" for e, p in pairs]),
        pictures,
        _Column("unit", [row.unit for row in rows]),
        counts,
    ]
    shown = [names, *(column for column in others if any(map(str.strip, column.cells)))]
    for least in (counts, pictures):
        if sum(column.width + len(_BETWEEN) for column in shown) - len(_BETWEEN) > columns:
            shown = [column for column in shown if column is not least]
    heads = "".join(column.piece(column.head)[0] for column in shown).removesuffix(_BETWEEN)
    yield [(heads, "head")]
    yield [("─" * width(heads), "rule")]
    uncounted = counts not in shown
    alike = len({*filter(None, counts.cells)}) == 1 < len(rows)
    for number, row in enumerate(rows):
        if row.estimate is None:
            yield [(row.name, "name")]
            continue
        yield [column.piece(column.cells[number]) for column in shown]
        indent = " " * (len(row.name) - len(row.name.lstrip())) + _INDENT
        notes = [*row.notes, counts.cells[number]] if uncounted and not alike else row.notes
        yield from wrapped("; ".join(notes), columns, indent, "note")
    if uncounted and alike:
        yield from wrapped(f"each from {next(filter(None, counts.cells))}", columns, _INDENT, "note")


def _split(row: Row) -> list[Row]:
    """A row whose name would push the figures aside, as a line with the name and one with the figures."""
    if row.estimate is None or width(row.name) <= _WIDEST_NAME:
        return [row]
    indent = " " * (len(row.name) - len(row.name.lstrip()))
    return [Row(row.name), replace(row, name=indent)]


def _origin(result: Result, columns: int) -> Iterator[Line]:
    """Where the numbers came from, and the digest that proves them the same."""
    for source in result.inputs[:3]:
        what = f"{clean(source.path, None)}: {source.format}, {counted(source.rollouts, 'rollout')}"
        yield from wrapped(what, columns, "", "note")
    if len(result.inputs) > 3:
        yield [(f"and {counted(len(result.inputs) - 3, 'file')} more", "note")]
    settings = f"dialect {result.dialect}, missing {result.missing}, seed {result.seed}"
    yield [(f"{settings}, digest {result.digest[:23]}…", "note")]


def wrapped(text: str, columns: int, indent: str, style: str) -> list[Line]:
    """Text in lines that break between words, but nowhere at a no-break space."""
    lines = textwrap.wrap(
        text,
        max(columns, 20),
        initial_indent=indent,
        subsequent_indent=indent + _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [[(line.replace("\N{NO-BREAK SPACE}", " "), style)] for line in lines]
