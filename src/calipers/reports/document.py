"""A report as a Document: titles, sentences, lists, tables, pictures, and its data; renderers turn it into outputs.

Where Markdown has other words than a terminal, a block carries both; "" there means that one of them leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct  # a class of its kind takes no time to make, and every output needs all of these

from calipers.reports.untrusted_text import LONGEST

Style = Literal["plain", "strong", "note", "value", "chart", "verdict"]
Output = Literal["terminal", "markdown"]


class Name(Struct, frozen=True):
    """Untrusted text inside a text, cut to ``longest`` characters; Markdown shows it as code."""

    text: str
    longest: int | None = LONGEST
    plain: str | None = None  # what a terminal shows instead


class Styled(Struct, frozen=True):
    """Emphasised words; Markdown supports only strong ones."""

    text: str
    style: Style = "strong"


class Glyphs(Struct, frozen=True):
    """Signs that draw something on a terminal, and the letters that say the same everywhere else."""

    text: str
    plain: str


Piece = str | Name | Styled | Glyphs
Text = Piece | tuple[Piece, ...]


class Blank(Struct, frozen=True):
    """An empty line of a terminal; Markdown sets every block apart."""


class Title(Struct, frozen=True):
    """A heading for the blocks after it."""

    text: Text
    markdown: Text | None = None
    level: int = 3


class Sentence(Struct, frozen=True):
    """Text that a terminal wraps, unless it is ``whole``."""

    text: Text
    style: Style = "plain"
    markdown: Text | None = None
    indent: int = 0
    whole: bool = False
    right: str = ""  # what a terminal sets flush right on the same line, or on the next where there is no room
    label: str = ""  # stands before the text; a terminal sets all lines of the text beside it
    below: int = 0  # a terminal of so many columns or more leaves it out


class SentenceList(Struct, frozen=True):
    """Sentences under one another: the items of a list in Markdown, one that is indented further under another."""

    sentences: Sequence[Sentence]


class Picture(Struct, frozen=True):
    """A value and its interval as a small picture: where they lie between the ends of an axis."""

    value: float
    low: float
    high: float
    axis: tuple[float, float] = (0.0, 1.0)
    size: int = 21  # columns of a terminal
    bounds: tuple[float, float] | None = None  # the value with all missing rollouts failed, and passed


Cell = Text | Picture


class TableColumn(Struct, frozen=True):
    """A column of a table."""

    head: Text = ""
    align: Literal["left", "right", "point"] = "left"  # point: flush right, with the decimal points in one line
    style: Style = "plain"
    markdown: Text | None = None  # its head there
    only: Output | None = None
    heading: bool = False  # a terminal has its cells as headings, each above all rows that have it
    optional: bool = False  # a terminal leaves it out where every cell is empty
    yields: int = 0  # where a terminal has no room the column with 1 goes first, then that with 2
    widest: int | None = None  # a wider cell of the first column stands on a line of its own
    cut: bool = False  # a terminal cuts the beginning of its cells off, where there is no room
    verbatim: bool = False  # our own figures, in which Markdown escapes nothing
    middle: bool = False  # a terminal cuts the middle of its cells out, where there is no room
    keeps: int = 0  # columns that it keeps then at least
    least: int = 0  # a terminal of fewer columns leaves it out
    below: int = 0  # a terminal of so many columns or more leaves it out
    after: int = 2  # spaces after it
    width: int = 0  # columns that it has at least
    sizes: tuple[int, int] | None = None  # columns of its pictures at most, narrow and wide; they take the room left


class Instead(Struct, frozen=True):
    """A note for a row whose column to yield has gone: the first, or the one that yields at this turn."""

    text: str
    turn: int = 1


class Row(Struct, frozen=True):
    """The cells of a row, and its notes: under it on a terminal, in a cell in Markdown."""

    cells: Sequence[Cell]
    notes: Sequence[str | Instead] = ()
    markdown: Text | None = None  # what is said there
    ruled: bool = False  # a terminal draws a rule above it


class Table(Struct, frozen=True):
    """Rows of cells under heads."""

    columns: Sequence[TableColumn]
    rows: Sequence[Row]
    notes_head: Text | None = None  # of Markdown's column of notes; None: they stand in the last cell
    once: str = ""  # what begins the note instead of a column's cells, where they are all alike
    ruled: bool = True
    fits: bool = False  # a terminal breaks the last column to the room there is
    across: bool = False  # a terminal rules it across the page
    only: Output | None = None


Block = Blank | Title | Sentence | SentenceList | Table


class Document(Struct, frozen=True):
    """A report: its blocks for people and its data for programs; each is made when a renderer needs it."""

    blocks: Callable[[], Iterable[Block]]
    data: Callable[[], Mapping[str, Any]]
    fields: Sequence[str] = ()  # the keys of a flat row, in order; () where there are none
    rows: Callable[[], Sequence[Mapping[str, Any]]] = list
    escaped: str | None = None  # the signs of Markdown that are escaped in its words; None: the usual ones
    flush_right: bool = True  # whether Markdown sets numbers so, too
    paged: bool = False  # a terminal has it on a page of 80 columns, or of 120 where there is room


class Glance(Struct, frozen=True):
    """A report in three parts, for a notebook: the sentence, one table, and a line below it."""

    sentence: str
    table: Table | None = None
    foot: str = ""


def plain_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    names: Collection[int] = (),
    strong: Collection[int] = (),
) -> Table:
    """A table that fits its room, by the places of its columns: numbers, others' names, and what carries the answer."""
    columns = [
        TableColumn(
            text,
            "point" if number in numbers else "left",
            "strong" if number in names else "value" if number in strong else "plain",
        )
        for number, text in enumerate(head)
    ]
    cells = [[Name(text, plain=text) if number in names else text for number, text in enumerate(row)] for row in rows]
    return Table(columns, [Row(row) for row in cells], fits=True)


def spaced(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks with an empty line before each title and around each table."""
    before: Block | None = None
    for block in blocks:
        if before is not None and (not isinstance(block, Sentence) or isinstance(before, Table)):
            yield Blank()
        yield block
        before = block
