"""A document in colour on a terminal, or as plain aligned lines of the same content elsewhere."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from msgspec.structs import replace

from calipers.reports.document import (
    Blank,
    Cell,
    Document,
    Glyphs,
    Instead,
    Name,
    Picture,
    Row,
    Sentence,
    SentenceList,
    Style,
    Styled,
    Table,
    TableColumn,
    Text,
    Title,
)
from calipers.reports.figures import on_the_point
from calipers.reports.sentences import short_number
from calipers.reports.untrusted_text import clean, guarded, is_terminal, plain, width, within

if TYPE_CHECKING:
    from rich.text import Text as RichText

Line = list[tuple[str, Style]]

PLAIN_WIDTH = 100
LONGEST_TITLE = 200
LEAST = 12  # least width of the last column of a table, if it is wrapped
LEAST_CUT = 8  # least width of a cell whose beginning is cut off
LEAST_NAME = 18  # least width of a name whose middle is cut out
NARROW, WIDE, FROM = 80, 120, 110  # a page is NARROW columns wide, or WIDE on a terminal with at least FROM columns
_INDENT = "  "
_NO_BREAK = "\N{NO-BREAK SPACE}"
_FILLER = "\N{DELETE}"  # stands for the second column of a wide character; no clean text contains it
_STYLES = {"strong": "bold", "plain": "", "value": "bold", "note": "dim"}
_ORANGE = "yellow"
LEAST_PICTURE = 9  # least width of a picture that takes the remaining room; a narrower one is left out


def render(document: Document, *, columns: int = PLAIN_WIDTH, ascii_only: bool = False) -> str:
    """The document as plain lines; the text does not depend on the terminal."""
    text = "".join(map(_plain_line, lines(document, columns, ascii_only=ascii_only)))
    return plain(text) if ascii_only else text


def _plain_line(line: Line) -> str:
    return "".join(piece for piece, _ in line).rstrip() + "\n"


def show(document: Document, stream: TextIO) -> None:
    """Print a document: with colours on a terminal, as plain lines to a file or a pipe."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    ascii_only = not encoding.lower().replace("-", "").replace("_", "").startswith("utf")
    if ascii_only or not is_terminal(stream):
        text = "".join(map(_plain_line, lines(document, ascii_only=ascii_only)))
        text = guarded(plain(text) if ascii_only else text)
        # A name with a character that the encoding lacks must not stop the report.
        stream.write(text.encode(encoding, "replace").decode(encoding))
        return
    from rich.console import Console

    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    for line in lines(document, console.width):
        console.print(_coloured(line), soft_wrap=True)


def _coloured(line: Line) -> RichText:
    from rich.text import Text as RichText

    text, blue = RichText(), _blue()
    for piece, style in line:
        if style == "chart":
            for part in re.findall(r"·+|│|[├─┼┤●]+|[^·│├─┼┤●]+", piece):
                text.append(part, {"·": "dim", "│": "dim"}.get(part[0], blue if part[0] in "├─┼┤●" else "dim"))
        elif style == "verdict":
            better, worse = (any(word in piece for word in words) for words in (_BETTER, _WORSE))
            text.append(piece, blue if better else _ORANGE if worse else "")
        else:
            text.append(piece, _STYLES[style])
    text.rstrip()
    return text


_BETTER, _WORSE = ("▲", "better", "PASS"), ("▼", "worse", "FAIL")


def _blue() -> str:
    """A blue that is readable on the terminal's background; bright if the background is unknown."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "blue" if background in ("7", "15") else "bright_blue"


def lines(document: Document, columns: int = PLAIN_WIDTH, *, ascii_only: bool = False) -> Iterator[Line]:
    """The lines of a document for a terminal of this width."""
    columns = min(columns, page_width(columns)) if document.paged else columns
    for block in document.blocks():
        if isinstance(block, Blank):
            yield []
        elif isinstance(block, Title):
            if title := _shown(block.text):
                yield [(clean(title, LONGEST_TITLE), "strong")]
        elif isinstance(block, Sentence):
            yield from _sentence(block, columns)
        elif isinstance(block, SentenceList):
            for sentence in block.sentences:
                yield from _sentence(sentence, columns)
        elif block.only != "markdown":
            yield from _table(_without_glyphs(block) if ascii_only else block, columns)


def page_width(columns: int) -> int:
    """The width of a page on a terminal with this many columns: narrow, or wide if there is room."""
    return NARROW if columns < FROM else WIDE


def _without_glyphs(table: Table) -> Table:
    """The table with plain text in place of drawing characters."""
    rows = [
        replace(row, cells=[cell.plain if isinstance(cell, Glyphs) else cell for cell in row.cells])
        for row in table.rows
    ]
    return replace(table, rows=rows)


def _sentence(sentence: Sentence, columns: int) -> Iterator[Line]:
    if sentence.below and columns >= sentence.below:
        return
    if sentence.label:
        hanging = " " * width(sentence.label)
        yield from _wrapped(_shown(sentence.text), columns, sentence.label, sentence.style, hanging)
        return
    if sentence.right:
        left, right = (_shown(text).replace(_NO_BREAK, " ") for text in (sentence.text, sentence.right))
        between = min(columns, page_width(columns)) - width(left) - width(right)
        if between > 1:
            yield [(left, sentence.style), (" " * between + right, "note")]
            return
        yield from _wrapped(left, columns, "", sentence.style)
        yield from _wrapped(right, columns, "", "note")
        return
    if not sentence.whole:
        yield from _wrapped(_shown(sentence.text), columns, _INDENT * sentence.indent, sentence.style)
        return
    pieces = sentence.text if isinstance(sentence.text, tuple) else (sentence.text,)
    runs = groupby(pieces, key=lambda piece: piece.style if isinstance(piece, Styled) else sentence.style)
    yield [(_shown(tuple(run)).replace(_NO_BREAK, " "), style) for style, run in runs]


def _shown(text: Text) -> str:
    """A text without harmful characters; no-break spaces stay."""
    if isinstance(text, tuple):
        return "".join(map(_shown, text))
    if isinstance(text, Name):
        return clean(text.text, text.longest) if text.plain is None else clean(text.plain, None)
    words = text.text if isinstance(text, Styled | Glyphs) else text
    return _NO_BREAK.join(map(partial(clean, longest=None), words.split(_NO_BREAK)))


def _wrapped(text: str, columns: int, indent: str, style: Style, hanging: str | None = None) -> Iterator[Line]:
    """Text as lines that break between words, but never at a no-break space."""
    wrapped = textwrap.wrap(
        "".join(character + _FILLER * (width(character) - 1) for character in text),  # one character per column
        max(columns, 20),
        initial_indent=indent,
        subsequent_indent=indent + _INDENT if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return ([(line.replace(_NO_BREAK, " ").replace(_FILLER, ""), style)] for line in wrapped)


@dataclass(frozen=True, slots=True)
class _TableLine:
    """A line of a table; a heading, or the first cell of the row after it, if ``row`` is None."""

    first: str
    cells: Sequence[str] = ()
    row: Row | None = None


@dataclass(frozen=True, slots=True)
class _Laid:
    """A column with one cell for each line of the table."""

    column: TableColumn
    head: str
    cells: Sequence[str]
    width: int = field(init=False)  # computed once, because every cell needs it

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", max(self.column.width, *map(width, [self.head, *self.cells])))

    def piece(self, text: str) -> tuple[str, Style]:
        space = " " * (self.width - width(text))
        return (text + space if self.column.align == "left" else space + text) + self.between, self.column.style

    @property
    def between(self) -> str:
        """The spaces before the next column."""
        return " " * self.column.after


def _table(table: Table, room: int) -> Iterator[Line]:
    """Columns side by side, with the notes of each row below it.

    If the columns are wider than ``room``, in turn: wide gaps are narrowed, yielding columns are dropped, names lose
    their middle, and the last column is wrapped.
    """
    table = _fitted(table, room)
    rows = list(_table_lines(table, room))
    columns = _columns(table, rows, room)
    shown = [laid for laid in columns if not laid.column.optional or any(map(str.strip, laid.cells))]
    if _total(shown) - sum(map(_spare, shown)) > room:
        shown = [_Laid(replace(laid.column, after=min(laid.column.after, 2)), laid.head, laid.cells) for laid in shown]
    for turn in (1, 2):
        if _total(shown) - sum(map(_spare, shown)) > room:
            shown = [laid for laid in shown if laid.column.yields != turn]
    for last in (False, True):
        shown = _narrowed(shown, _total(shown) - room, last=last)
    gone = {1, 2} - {laid.column.yields for laid in shown}
    before = _total(shown) - shown[-1].width
    more: list[list[str]] = [[] for _ in rows]
    if table.fits and shown[-1].column.align == "left" and _total(shown) > room:
        wrapped = [
            textwrap.wrap(text, max(room - before, LEAST), break_on_hyphens=False) or [""] for text in shown[-1].cells
        ]
        cells, more = [pieces[0] for pieces in wrapped], [pieces[1:] for pieces in wrapped]
        shown[-1] = _Laid(shown[-1].column, shown[-1].head, cells)
    yield from _heads(shown, table, room)
    instead = {
        note.text
        for line in rows
        if line.row
        for note in line.row.notes
        if isinstance(note, Instead) and note.turn == 1
    }
    alike = bool(table.once) and len(instead) == 1 < len(rows)
    for number, line in enumerate(rows):
        if line.row is None:
            yield [(line.first, "strong")]
            continue
        if line.row.ruled:
            yield _rule(shown, table, room)
        yield [laid.piece(laid.cells[number]) for laid in shown]
        for piece in more[number]:
            yield [(" " * before + piece, "plain")]
        notes = [
            note.text if isinstance(note, Instead) else note
            for note in line.row.notes
            if not isinstance(note, Instead) or (note.turn in gone and not (alike and note.turn == 1))
        ]
        indent = " " * (len(line.first) - len(line.first.lstrip())) + _INDENT
        yield from _wrapped(_shown("; ".join(notes)), room, indent, "note")
    if 1 in gone and alike:
        yield from _wrapped(f"{table.once} {instead.pop()}", room, _INDENT, "note")


def _spare(laid: _Laid) -> int:
    """The width that a column can lose by cutting out the middle of its cells."""
    least = max(LEAST_NAME, laid.column.keeps, laid.column.width, width(laid.head))
    return max(laid.width - least, 0) if laid.column.middle else 0


def _narrowed(shown: Sequence[_Laid], excess: int, *, last: bool) -> list[_Laid]:
    """The columns narrowed by ``excess`` as far as possible: all columns above a common width are cut to that width.

    ``last`` selects the columns with their own least width (``keeps``), which are narrowed after the others.
    """
    spares = [_spare(laid) if bool(laid.column.keeps) is last else 0 for laid in shown]
    if excess <= 0 or not any(spares):
        return list(shown)
    cap = max(laid.width for laid, spare in zip(shown, spares, strict=True) if spare)
    while cap > LEAST_NAME and sum(_lost(laid, spare, cap) for laid, spare in zip(shown, spares, strict=True)) < excess:
        cap -= 1
    return [
        _Laid(laid.column, laid.head, within(laid.cells, laid.width - lost)) if lost else laid
        for laid, spare in zip(shown, spares, strict=True)
        for lost in (_lost(laid, spare, cap),)
    ]


def _lost(laid: _Laid, spare: int, cap: int) -> int:
    return min(max(laid.width - cap, 0), spare)


def _fitted(table: Table, room: int) -> Table:
    """The table with pictures as wide as the room beside its other columns; without pictures if that is too little."""
    number = next((at for at, column in enumerate(table.columns) if column.sizes and _is_shown(column, room)), None)
    if number is None:
        return table
    blank = [replace(row, cells=[*row.cells[:number], "", *row.cells[number + 1 :]]) for row in table.rows]
    bare = replace(table, rows=blank)
    others = [
        laid
        for laid in _columns(bare, list(_table_lines(bare, room)), room)
        if not laid.column.sizes and (not laid.column.optional or any(map(str.strip, laid.cells)))
    ]
    column = table.columns[number]
    narrow, wide = column.sizes or (0, 0)
    is_last = others and bare.columns.index(others[-1].column) < number
    left = room - _total(others) - (others[-1].column.after if is_last else column.after)
    size = min(narrow if room < FROM else wide, left)
    if size < LEAST_PICTURE:
        return bare
    cells = [row.cells[number] for row in table.rows]
    drawn_cells = [replace(cell, size=size) if isinstance(cell, Picture) else cell for cell in cells]
    rows = [
        replace(row, cells=[*row.cells[:number], cell, *row.cells[number + 1 :]])
        for row, cell in zip(table.rows, drawn_cells, strict=True)
    ]
    return replace(table, rows=rows)


def _total(columns: Sequence[_Laid]) -> int:
    return sum(laid.width + laid.column.after for laid in columns) - (columns[-1].column.after if columns else 0)


def _heads(shown: Sequence[_Laid], table: Table, room: int) -> Iterator[Line]:
    pieces = [laid.piece(laid.head) for laid in shown]
    if table.ruled:
        yield [("".join(text for text, _ in pieces).removesuffix(shown[-1].between), "note")]
        yield _rule(shown, table, room)
    elif any(laid.head for laid in shown):
        yield pieces


def _rule(shown: Sequence[_Laid], table: Table, room: int) -> Line:
    wide = min(_total(shown), max(room, LEAST)) if table.fits else room if table.across else _total(shown)
    return [("─" * wide, "note")]


def _is_shown(column: TableColumn, room: int) -> bool:
    fits = column.least <= room and (not column.below or room < column.below)
    return fits and column.only != "markdown" and not column.heading


def _table_lines(table: Table, room: int) -> Iterator[_TableLine]:
    """The rows below their headings; a wide name in the first column gets its own line."""
    shown = [index for index, column in enumerate(table.columns) if _is_shown(column, room)]
    heading_index = next((index for index, column in enumerate(table.columns) if column.heading), None)
    groups: dict[Cell, list[Row]] = {}
    for row in table.rows:
        groups.setdefault("" if heading_index is None else row.cells[heading_index], []).append(row)
    widest = table.columns[shown[0]].widest
    for heading, rows in groups.items():
        if heading:
            yield _TableLine(_cell(heading))
        for row in rows:
            first, *others = map(_cell, map(row.cells.__getitem__, shown))
            first = (_INDENT if heading else "") + first
            if widest is not None and width(first) > widest:
                yield _TableLine(first)
                first = " " * (len(first) - len(first.lstrip()))
            yield _TableLine(first, [first, *others], row)


def _cell(cell: Cell) -> str:
    return drawn(cell) if isinstance(cell, Picture) else _shown(cell).replace(_NO_BREAK, " ")


def _columns(table: Table, rows: Sequence[_TableLine], room: int) -> list[_Laid]:
    columns = [column for column in table.columns if _is_shown(column, room)]
    cells = [[line.cells[number] if line.row else "" for line in rows] for number in range(len(columns))]
    widths = [max(map(width, texts), default=0) for column, texts in zip(columns, cells, strict=True) if not column.cut]
    left = room - sum(widths) - sum(column.after for column in columns[:-1])
    share = max(left // max(len(columns) - len(widths), 1), LEAST_CUT)
    laid = []
    for column, texts in zip(columns, cells, strict=True):
        if column.cut:
            texts = [text if len(text) <= share else "…" + text[1 - share :] for text in texts]
        head = _axis(table, column) if column.style == "chart" else _shown(column.head)
        laid.append(_Laid(column, head, on_the_point(texts) if column.align == "point" else texts))
    return laid


def _axis(table: Table, column: TableColumn) -> str:
    """The head of a column of pictures: both ends of their axis; "" if it has no picture."""
    number = table.columns.index(column)
    picture = next((cell for row in table.rows if isinstance(cell := row.cells[number], Picture)), None)
    if picture is None:
        return ""
    low, high = (axis_end(end, picture.axis) for end in picture.axis)
    return low + " " * (picture.size - len(low) - len(high)) + high


def axis_end(end: float, axis: tuple[float, float]) -> str:
    """An end of an axis as text; with a plus sign if the axis also has negative numbers.

    >>> axis_end(-0.05, (-0.05, 0.1)), axis_end(0.1, (-0.05, 0.1)), axis_end(1.0, (0.0, 1.0)), axis_end(2e6, (0, 2e6))
    ('−0.05', '+0.1', '1', '2M')
    """
    return short_number(end, signed=axis[0] < 0)


def drawn(picture: Picture) -> str:
    """A value and its interval drawn on an axis, to half a character; "" if they are not inside the axis.

    Zero inside the axis is a vertical line. Rounding moves no end across zero: an interval that contains zero extends
    at least one character beyond it, and any other interval leaves a character between.

    >>> drawn(Picture(0.5, 0.25, 0.75))
    '·····├────●────┤·····'
    >>> drawn(Picture(1.0, 0.8, 1.0))
    '················├───●'
    >>> drawn(Picture(0.023, -0.002, 0.049, (-0.05, 0.1), 28))
    '········├┼───●────┤·········'
    """
    start, end = picture.axis
    if picture.own_axis:
        first_end, last_end = (axis_end(number, picture.axis) for number in picture.axis)
        inner = picture.size - len(first_end) - len(last_end) - 2
        line_alone = drawn(replace(picture, own_axis=False, size=inner)) if inner >= LEAST_PICTURE else ""
        return f"{first_end} {line_alone} {last_end}" if line_alone else ""
    low, value, high = ((point - start) / (end - start) for point in (picture.low, picture.value, picture.high))
    if not (0 <= low <= high <= 1 and 0 <= value <= 1):
        return ""
    last_cell = picture.size - 1
    first, last, middle = (round(position * last_cell) for position in (low, high, value))
    line = ["·"] * picture.size
    zero = round(-start / (end - start) * last_cell) if start < 0 < end else None
    if zero is not None:
        line[zero] = "│"
        away = 1 if picture.low <= 0 <= picture.high else 2
        first, middle, last = (
            _on_its_side(cell, number, zero, away, last_cell)
            for cell, number in ((first, picture.low), (middle, picture.value), (last, picture.high))
        )
    line[first : last + 1] = "─" * (last + 1 - first)
    if zero is not None and first < zero < last:
        line[zero] = "┼"
    line[first], line[last] = "├", "┤"
    line[min(max(middle, first), last)] = "●"
    return "".join(line)


def _on_its_side(cell: int, number: float, zero: int, away: int, last: int) -> int:
    """The cell of a number: on the same side of the zero cell as the number, at least ``away`` cells from it."""
    if number == 0:
        return zero
    return min(max(cell, zero + away), last) if number > 0 else max(min(cell, zero - away), 0)
