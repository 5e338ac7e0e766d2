"""A report as a Document: titles, sentences, lists, tables, pictures, and its data; renderers turn it into outputs.

A block whose Markdown text differs from its terminal text has both; an empty text leaves it out of that output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct  # cheaper to define than a dataclass, and every output imports this module

from calipers.reports.untrusted_text import LONGEST

Style = Literal["plain", "strong", "note", "value", "chart", "verdict"]
Output = Literal["terminal", "markdown"]


class Name(Struct, frozen=True):
    """Untrusted text, cut to ``longest`` characters; Markdown shows it as code."""

    text: str
    longest: int | None = LONGEST
    plain: str | None = None  # what a terminal shows instead


class Styled(Struct, frozen=True):
    """Text in a style; Markdown supports only "strong"."""

    text: str
    style: Style = "strong"


class Glyphs(Struct, frozen=True):
    """Drawing characters for a terminal, and plain text with the same meaning for every other output."""

    text: str
    plain: str


Piece = str | Name | Styled | Glyphs
Text = Piece | tuple[Piece, ...]


class Blank(Struct, frozen=True):
    """An empty line on a terminal; Markdown separates all blocks anyway."""


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
    right: str = ""  # a terminal shows it flush right on the same line, or on the next line if there is no room
    label: str = ""  # comes before the text; a terminal indents the wrapped lines by its width
    below: int = 0  # a terminal with at least this many columns leaves the sentence out; 0: no limit


class SentenceList(Struct, frozen=True):
    """Sentences on consecutive lines; in Markdown the items of a list, nested by their indent."""

    sentences: Sequence[Sentence]


class Picture(Struct, frozen=True):
    """A value and its interval, drawn on an axis."""

    value: float
    low: float
    high: float
    axis: tuple[float, float] = (0.0, 1.0)
    size: int = 21  # width on a terminal, in columns
    bounds: tuple[float, float] | None = None  # the value if all missing rollouts failed, and if all passed
    own_axis: bool = False  # it is not on the axis of its column, so that it names the ends of its own


Cell = Text | Picture


class TableColumn(Struct, frozen=True):
    """A column of a table."""

    head: Text = ""
    align: Literal["left", "right", "point"] = "left"  # point: flush right, with aligned decimal points
    style: Style = "plain"
    markdown: Text | None = None  # its head in Markdown, if another
    only: Output | None = None
    heading: bool = False  # a terminal shows each distinct cell as a heading above the rows that have it
    optional: bool = False  # a terminal leaves the column out if every cell is empty
    yields: int = 0  # a terminal without room drops the column with 1 first, then the column with 2; 0: never dropped
    widest: int | None = None  # a wider cell of the first column gets a line of its own
    cut: bool = False  # a terminal without room cuts off the beginning of its cells
    verbatim: bool = False  # numbers that Calipers formatted: Markdown escapes nothing in them
    middle: bool = False  # a terminal without room cuts out the middle of its cells
    keeps: int = 0  # the least width of cells whose middle is cut out
    least: int = 0  # a terminal with fewer columns leaves the column out
    below: int = 0  # a terminal with at least this many columns leaves the column out; 0: no limit
    after: int = 2  # spaces after it
    width: int = 0  # its least width on a terminal
    sizes: tuple[int, int] | None = None  # greatest width of its pictures on a narrow and on a wide terminal


class Instead(Struct, frozen=True):
    """A note that a row shows in place of the column with ``yields == turn``, if that column is not shown."""

    text: str
    turn: int = 1


class Row(Struct, frozen=True):
    """The cells of a row, and its notes: below the row on a terminal, in a cell in Markdown."""

    cells: Sequence[Cell]
    notes: Sequence[str | Instead] = ()
    markdown: Text | None = None  # Markdown's text in place of the notes
    ruled: bool = False  # a terminal draws a rule above it


class Table(Struct, frozen=True):
    """Rows of cells under column heads."""

    columns: Sequence[TableColumn]
    rows: Sequence[Row]
    notes_head: Text | None = None  # the head of Markdown's column of notes; None: notes are added to the last cell
    once: str = ""  # if all rows have the same `Instead`, it is shown once below the table, after this text
    ruled: bool = True
    fits: bool = False  # a terminal wraps the last column to the available width
    across: bool = False  # a terminal draws its rules across the whole page
    only: Output | None = None


Block = Blank | Title | Sentence | SentenceList | Table


class Document(Struct, frozen=True):
    """A report: its blocks for people and its data for programs; each is computed when a renderer needs it."""

    blocks: Callable[[], Iterable[Block]]
    data: Callable[[], Mapping[str, Any]]
    fields: Sequence[str] = ()  # the keys of a flat row, in order
    rows: Callable[[], Sequence[Mapping[str, Any]]] = list
    escaped: str | None = None  # the characters that Markdown escapes in text; None: the usual ones
    flush_right: bool = True  # whether Markdown aligns numbers to the right, too
    paged: bool = False  # a terminal shows it 80 columns wide, or 120 if there is room


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
    """A table that wraps to the available width.

    The indexes of columns: ``numbers`` have aligned decimal points, ``names`` are untrusted text, and ``strong``
    columns are emphasised.
    """
    columns = [
        TableColumn(
            text,
            "point" if index in numbers else "left",
            "strong" if index in names else "value" if index in strong else "plain",
        )
        for index, text in enumerate(head)
    ]
    cells = [[Name(text, plain=text) if index in names else text for index, text in enumerate(row)] for row in rows]
    return Table(columns, [Row(row) for row in cells], fits=True)


def spaced(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks with an empty line before each title and around each table."""
    previous: Block | None = None
    for block in blocks:
        if previous is not None and (not isinstance(block, Sentence) or isinstance(previous, Table)):
            yield Blank()
        yield block
        previous = block
