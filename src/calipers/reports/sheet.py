"""A sheet: a report as titles, sentences and tables, laid out once as text and once as Markdown."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from calipers.reports.csv import cell, uncommanded
from calipers.reports.figures import on_the_point
from calipers.reports.markdown import code
from calipers.reports.page import PLAIN_WIDTH, Line, wrapped
from calipers.reports.safe import clean, width
from calipers.reports.text import plain_lines, print_lines

LEAST = 12  # columns that the last column of a table keeps; its texts are broken to what room there is
_BETWEEN = "  "


@dataclass(frozen=True, slots=True)
class Title:
    """What the blocks after it are about."""

    text: str
    foreign: bool = False  # made of others' names: Markdown shows it as code


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence; ``note`` sets it back behind the numbers."""

    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under a head; numbers stand on their points, names are others' words."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()  # the columns that are set flush right
    names: frozenset[int] = frozenset()  # the columns that Markdown shows as code
    strong: frozenset[int] = frozenset()  # the columns that carry the answer


Block = Title | Said | Table


def render(blocks: Sequence[Block], *, columns: int = PLAIN_WIDTH, ascii_only: bool = False) -> str:
    """The sheet as plain lines."""
    return plain_lines(lines(blocks, columns), ascii_only)


def show(blocks: Sequence[Block], stream: TextIO) -> None:
    """Print a sheet: with colours to a terminal, as plain lines to a file or a pipe."""
    print_lines(partial(lines, blocks), stream)


def lines(blocks: Sequence[Block], columns: int) -> Iterator[Line]:
    """The sheet in lines of about so many columns; an empty line before each title and around each table."""
    before: Block | None = None
    for block in blocks:
        if before is not None and (not isinstance(block, Said) or isinstance(before, Table)):
            yield []
        if isinstance(block, Title):
            yield [(clean(block.text, 200), "title")]
        elif isinstance(block, Said):
            yield from wrapped(clean(block.text, None), columns, "", "note" if block.note else "ledger")
        else:
            yield from _table(block, columns)
        before = block


def _table(table: Table, columns: int) -> Iterator[Line]:
    cells = [[clean(text, None) for text in column] for column in zip(*table.rows, strict=True)] or [
        [] for _ in table.head
    ]
    cells = [on_the_point(column) if place in table.numbers else column for place, column in enumerate(cells)]
    wide = [max(map(width, [head, *column])) for head, column in zip(table.head, cells, strict=True)]
    before = sum(wide[:-1]) + len(_BETWEEN) * (len(wide) - 1)
    more: list[list[str]] = [[] for _ in table.rows]
    if len(wide) - 1 not in table.numbers and before + wide[-1] > columns:
        room = max(columns - before, LEAST)
        broken = [textwrap.wrap(text, room, break_on_hyphens=False) or [""] for text in cells[-1]]
        cells[-1], more = [pieces[0] for pieces in broken], [pieces[1:] for pieces in broken]
        wide[-1] = max(map(width, [table.head[-1], *(piece for pieces in broken for piece in pieces)]))
    heads = [_set(head, wide[place], place in table.numbers) for place, head in enumerate(table.head)]
    line = _BETWEEN.join(heads).rstrip()
    yield [(line, "head")]
    yield [("─" * min(max(sum(wide) + len(_BETWEEN) * (len(wide) - 1), width(line)), max(columns, LEAST)), "rule")]
    for row in range(len(table.rows)):
        yield [
            (
                _set(column[row], wide[place], place in table.numbers) + _BETWEEN,
                "name" if place in table.names else "value" if place in table.strong else "figure",
            )
            for place, column in enumerate(cells)
        ]
        yield from ([(" " * before + piece, "figure")] for piece in more[row])


def _set(text: str, columns: int, right: bool) -> str:
    space = " " * (columns - width(text))
    return space + text if right else text + space


def markdown(blocks: Sequence[Block]) -> str:
    """The sheet as Markdown that GitHub renders; no name in it becomes a link, a mention or an image."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Title):
        return f"### {code(block.text, None) if block.foreign else _prose(block.text)}"
    if isinstance(block, Said):
        return _prose(block.text)
    rule = ["---:" if place in block.numbers else "---" for place in range(len(block.head))]
    rows = [
        [code(text) if place in block.names else _prose(text) for place, text in enumerate(row)] for row in block.rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [[_prose(text) for text in block.head], rule, *rows])


def _prose(text: str) -> str:
    text = clean(text, None).replace("\\", "\\\\")
    text = re.sub(r"([|_*`\[\]])", r"\\\1", text)
    return re.sub(r"(?<![A-Za-z0-9])@", "@\N{WORD JOINER}", text).replace("<", "&lt;")  # pass@k mentions nobody


def as_csv(fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Flat rows as CSV with a header; an absent value is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fields, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(row[name]) for name in fields})
    return uncommanded(stream.getvalue())
