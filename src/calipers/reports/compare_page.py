"""A comparison laid out for people: the verdict in a sentence first, then the numbers that back it."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from calipers.reports.compare import Changed, Comparison, Contest, Finding, Pair, Ranks
from calipers.reports.compare_words import (
    about_ranks,
    answer,
    best_in,
    chance,
    common,
    detail,
    figures,
    hints,
    names_of,
    sentences,
    settings,
    tally,
    under_verdicts,
    ways,
    word,
)
from calipers.reports.figures import counted, figure, on_the_point, percent
from calipers.reports.page import PLAIN_WIDTH, Line, wrapped
from calipers.reports.safe import clean, guarded, is_terminal, note_line, plain, width
from calipers.reports.text import coloured, encodable, speaks_unicode

_BETWEEN = "  "
_ARROWS = {True: " ↑", False: " ↓", None: ""}


def render(found: Comparison, *, columns: int = PLAIN_WIDTH, ascii_only: bool = False) -> str:
    """The comparison as plain lines."""
    text = "".join("".join(piece for piece, _ in line).rstrip() + "\n" for line in page(found, columns))
    return plain(text.replace("→", "to")) if ascii_only else text


def show(found: Comparison, stream: TextIO) -> None:
    """Print a comparison: with colours to a terminal, as plain lines to a file or a pipe."""
    ascii_only = not speaks_unicode(stream)
    if ascii_only or not is_terminal(stream):
        stream.write(encodable(guarded(render(found, ascii_only=ascii_only)), stream))
        return
    from rich.console import Console

    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    for line in page(found, console.width):
        console.print(coloured(line), soft_wrap=True)


def page(found: Comparison, columns: int = PLAIN_WIDTH) -> Iterator[Line]:
    """Everything a comparison has to say, in lines of about so many columns."""
    for contest in found.contests:
        yield from _contest(contest, found, columns)
    yield from wrapped(settings(found), columns, "", "note")


def _contest(contest: Contest, found: Comparison, columns: int) -> Iterator[Line]:
    if contest.dataset:
        yield [(clean(contest.dataset, 200), "title")]
    letters = string.ascii_uppercase if len(contest.runs) <= 26 else [str(n + 1) for n in range(len(contest.runs))]
    wide = len(letters[len(contest.runs) - 1])
    for letter, run, name in zip(letters, contest.runs, names_of(contest.runs), strict=False):
        told = [one for one in (run.model, run.agent, run.source) if one and one not in run.name]
        source = "".join(f"  {clean(one, None)}" for one in told)
        account = f"{counted(run.tasks, 'task')}, {counted(run.samples, 'sample')}"
        yield [(f"{letter:{wide}}  ", "head"), (name, "name"), (f"{source}  ({account})", "note")]
    for pair in contest.pairs:
        yield []
        yield from _pair(pair, contest, letters, found, columns)
    for ranks in contest.ranks:
        yield []
        yield from _ranks(ranks, contest, found, columns)
    yield []


def _pair(pair: Pair, contest: Contest, letters: Sequence[str], found: Comparison, columns: int) -> Iterator[Line]:
    names = names_of(contest.runs)
    both = names[pair.first], names[pair.second]
    for (_, said), below in zip(sentences(pair, both), under_verdicts(pair, both), strict=True):
        yield from wrapped(said.replace(" %", "\N{NO-BREAK SPACE}%"), columns, "", "heading")
        for line in below:
            yield from wrapped(line, columns, "  ", "heading")
    yield from wrapped(common(pair, both), columns, "", "ledger")
    for note in filter(None, (hints(pair), *pair.notes)):
        yield from wrapped(note_line(note), columns, "", "ledger")
    yield []
    yield from _table(pair, letters[pair.first], letters[pair.second], found, columns)
    if pair.flips and (pair.flips.worse or pair.flips.better):
        yield []
        yield from _flips(pair, (letters[pair.first], letters[pair.second]), columns)


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cells: Sequence[str]
    style: str = "figure"
    right: bool = False

    @property
    def width(self) -> int:
        return max(map(width, [self.head, *self.cells]))

    def piece(self, text: str) -> tuple[str, str]:
        space = " " * (self.width - width(text))
        return (space + text if self.right else text + space) + _BETWEEN, self.style


def _table(pair: Pair, one: str, two: str, found: Comparison, columns: int) -> Iterator[Line]:
    """All findings of a pair: those of all tasks first, then the slices of each metric under one another."""
    rows = list(_rows(pair))
    shown = [figures(row.finding) if row.finding else ("",) * 4 for row in rows]
    held = [row.finding for row in rows]
    plain_p = _Column("p", [chance(f.p) if f else "" for f in held], right=True)
    adjusted = {"bh": "p (BH)", "holm": "p (Holm)"}.get(found.adjust, "p adjusted")
    stepped = [chance(f.p_adjusted) if f else "" for f in held]
    interval = _Column(f"{percent(found.confidence)} interval", [cells[3] for cells in shown])
    table = [
        _Column("metric", [row.name if row.finding else "" for row in rows], "name"),
        _Column(one, on_the_point([cells[0] for cells in shown]), right=True),
        _Column(two, on_the_point([cells[1] for cells in shown]), right=True),
        _Column(f"{two} - {one}", on_the_point([cells[2] for cells in shown]), "value", right=True),
        interval,
        plain_p,
        *([_Column(adjusted, stepped, right=True)] if found.tests > 1 else []),
        _Column("verdict", [word(f) if f else "" for f in held], "value"),
    ]
    for least in (plain_p if found.tests > 1 else interval, interval):
        if sum(column.width + len(_BETWEEN) for column in table) - len(_BETWEEN) > columns:
            table = [column for column in table if column is not least]
    headings = ["" if row.finding else row.name for row in rows]
    yield from _laid_out(table, [detail(f, (one, two)) if f else [] for f in held], columns, headings)


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    finding: Finding | None = None  # None: a heading


def _rows(pair: Pair) -> Iterator[_Row]:
    for finding in pair.findings:
        if finding.by is None:
            yield _Row(clean(finding.metric) + _ARROWS[finding.higher_is_better], finding)
    cuts = dict.fromkeys((finding.by, finding.metric) for finding in pair.findings if finding.by is not None)
    for key, metric in cuts:
        those = [finding for finding in pair.findings if (finding.by, finding.metric) == (key, metric)]
        yield _Row(f"{clean(metric)}{_ARROWS[those[0].higher_is_better]} by {clean(key or '')}")
        yield from (_Row(f"  {clean(finding.slice or '')}", finding) for finding in those)


def _laid_out(
    table: Sequence[_Column], notes: Sequence[Sequence[str]], columns: int, headings: Sequence[str] = ()
) -> Iterator[Line]:
    """Columns side by side, and under each row what is said of it; a row may be a heading instead."""
    heads = "".join(column.piece(column.head)[0] for column in table).removesuffix(_BETWEEN)
    yield [(heads, "head")]
    yield [("─" * width(heads), "rule")]
    for number, said in enumerate(notes):
        if headings and headings[number]:
            yield [(headings[number], "name")]
            continue
        yield [column.piece(column.cells[number]) for column in table]
        indent = "    " if table[0].cells[number].startswith("  ") else "  "
        yield from wrapped(clean("; ".join(said), None), columns, indent, "note")


def _flips(pair: Pair, letters: tuple[str, str], columns: int) -> Iterator[Line]:
    flips = pair.flips
    if flips is None:
        return
    yield [(f"by {clean(flips.metric)}, task by task: {tally(pair)}", "heading")]
    worse, better = ways(pair)
    for what, count, those in ((worse, flips.worse, flips.regressions), (better, flips.better, flips.fixes)):
        if those:
            many = f"{len(those)} of {count:,}" if count > len(those) else f"{count:,}"
            yield [(f"{what}, {many}", "head")]
            yield from _changed(those, letters, columns)


def _changed(those: Sequence[Changed], letters: tuple[str, str], columns: int) -> Iterator[Line]:
    """Tasks under one another, both answers beside them as far as there is room."""
    names = [clean(one.task, 30) for one in those]
    moves = [f"{one.first:.4g} → {one.second:.4g}" for one in those]
    wide = max(map(width, names)) + max(map(width, moves))
    room = max((columns - wide - 8) // 2, 8)
    table = [_Column("", [f"  {name}" for name in names], "name"), _Column(" → ".join(letters), moves)]
    if any(text is not None for one in those for text in one.answers):
        for place, letter in enumerate(letters):
            table.append(_Column(f"{letter} answered", [answer(one.answers[place], room) for one in those], "note"))
    yield [column.piece(column.head) for column in table]
    for number in range(len(those)):
        yield [column.piece(column.cells[number]) for column in table]


def _ranks(ranks: Ranks, contest: Contest, found: Comparison, columns: int) -> Iterator[Line]:
    yield [(f"ranks by {clean(ranks.metric)} over {counted(ranks.tasks, 'task')} of all runs", "heading")]
    if ranks.why:
        yield from wrapped(f"no ranks: {ranks.why}", columns, "  ", "note")
        return
    places, names = ranks.places, names_of(contest.runs)
    table = [
        _Column("rank", [f"{place.rank:g}" for place in places], right=True),
        _Column("run", [names[place.run] for place in places], "name"),
        _Column("value", on_the_point([figure(place.value) for place in places]), "value", right=True),
        _Column(f"{percent(found.confidence)} rank set", [f"{p.rank_set[0]} to {p.rank_set[1]}" for p in places]),
        _Column("best in", [best_in(place.chance_best) for place in places], right=True),
    ]
    yield from _laid_out(table, [[] for _ in places], columns)
    for said in about_ranks(ranks, names, found.confidence):
        yield from wrapped(said, columns, "", "note")
