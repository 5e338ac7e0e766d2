"""The base class of all reports: the printed page, the notebook view, the rows, and reading from JSON.

The notebook view is HTML: a sentence, one table with drawn intervals, and a line below it. Notebook front ends remove
scripts and style sheets, so every style is inline. The view sets no background and inherits its text colour, so it fits
light and dark notebooks.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from calipers.errors import InputError
from calipers.names import DOCUMENTS
from calipers.names import load as load_name
from calipers.reports.document import Document, Glance, Glyphs, Name, Picture, Styled, Table, Text
from calipers.reports.terminal import axis_end
from calipers.reports.untrusted_text import clean, without_middle
from calipers.stores import local
from calipers.typed import complete

if TYPE_CHECKING:
    import pandas
    import polars as pl
    import pyarrow


class Page(ABC):
    """A report. ``print`` shows the page that its command prints; a notebook shows a sentence, a table and a line."""

    __slots__ = ()

    @abstractmethod
    def page(self) -> Document:
        """The page and its data, for renderers."""

    @abstractmethod
    def headline(self) -> str:
        """Its main finding, in one line."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""

    def to_json(self) -> str:
        """The document as indented JSON with a final newline."""
        return encoded(self.to_dict())

    def glance(self) -> Glance:
        """The report in three parts, for a notebook: the sentence, one table, and a line below it."""
        table = next((block for block in self.page().blocks() if isinstance(block, Table)), None)
        return Glance(self.headline(), table)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {clean(self.headline(), 200)}>"

    def __str__(self) -> str:
        from calipers.reports.terminal import render

        return render(self.page()).rstrip("\n")

    def _repr_html_(self) -> str:
        return glance_html(self.glance())

    def to_markdown(self) -> str:
        """The page as Markdown, as ``--format md`` prints it."""
        from calipers.reports.markdown import render

        return render(self.page())

    def to_polars(self) -> pl.DataFrame:
        """The rows of ``--format csv`` as a polars frame."""
        import polars as pl

        page = self.page()
        rows = [{field: row.get(field) for field in page.fields} for row in page.rows()]
        return pl.DataFrame(rows or None, schema=None if rows else list(page.fields), infer_schema_length=None)

    def to_pandas(self) -> pandas.DataFrame:
        """The same rows as a pandas frame; pandas must be installed."""
        import pandas

        frame = self.to_polars()
        return pandas.DataFrame(frame.to_dicts(), columns=frame.columns)

    def to_arrow(self) -> pyarrow.Table:
        """The same rows as an Arrow table; pyarrow must be installed."""
        table: Any = self.to_polars().to_arrow()
        return table

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read the report from its document; InputError if the document is of another kind.

        Text for the reader only, such as the notes of a result, is not in the document.
        """
        try:
            return msgspec.convert(dict(document), complete(cls), strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"not a {cls.__name__} of this version: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the report from text that `to_json` wrote; InputError if the document is of another kind."""
        document = _decoded(text, cls.__name__)
        if _kind_of(document) is not cls:
            raise InputError(f"the document is {document.get('schema')!r}; expected the document of a {cls.__name__}")
        return cls.from_dict(document)


def encoded(data: Mapping[str, Any]) -> str:
    """Strict indented JSON with a final newline."""
    try:
        plain = json.dumps(data, ensure_ascii=False, allow_nan=False)
        return msgspec.json.format(plain, indent=1) + "\n"  # faster than `json`, whose indentation is pure Python
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load(path: str | os.PathLike[str]) -> Page:
    """The report in a file that a command or ``to_json`` wrote: a result, a comparison, a gate and so on."""
    try:
        text = Path(local(path)).read_bytes()
    except OSError as error:
        raise InputError.at(os.fspath(path), f"cannot be read ({error.strerror})") from None
    document = _decoded(text, os.fspath(path))
    kind = _kind_of(document)
    if kind is None:
        expected = f"expected one of {', '.join(DOCUMENTS)}; rollouts are read by calipers.read"
        raise InputError.at(os.fspath(path), f"schema is {document.get('schema')!r}", expected)
    return kind.from_dict(document)


def _kind_of(document: Mapping[str, Any]) -> type[Page] | None:
    schema = document.get("schema")
    return load_name(DOCUMENTS[schema]) if isinstance(schema, str) and schema in DOCUMENTS else None


def _decoded(text: str | bytes, source: str) -> dict[str, Any]:
    """The object in a document; InputError for anything else, and for a number that is not finite."""
    try:
        document = json.loads(text)
        json.dumps(document, allow_nan=False)  # no document of Calipers has one
    except (ValueError, RecursionError) as error:
        raise InputError.at(source, f"not JSON ({error})", "expected a document that Calipers wrote") from None
    if not isinstance(document, dict):
        raise InputError.at(source, "not a JSON object", "expected a document that Calipers wrote")
    return document


MOST_ROWS = 20
MOST_BYTES = 6_000
NAME = 48  # greatest width of a name, in columns
TEXT = 400  # characters of the sentence, and of the line below the table
WIDTH = 180  # width of a picture, in pixels
BLUE = "#2E78D6"  # readable on white and on black
MORE = "result.to_pandas()"  # how to get all rows
_CELL = "text-align:left;border:0;padding:3px 20px 3px 0;white-space:nowrap"
_DIM = "opacity:.65;font-weight:400"
_LINE = "border-bottom:1px solid rgba(128,128,128,.3)"


def glance_html(glance: Glance) -> str:
    """The report as one ``<div>`` of less than 6 KB, with as much detail and as many rows as fit."""
    for detail in (3, 2, 1, 0):  # 3: wide cells; 2: full pictures; 1: intervals only; 0: no pictures
        page = _page(glance, detail, MOST_ROWS)
        if len(page.encode()) < MOST_BYTES:
            return page
    rows = len(glance.table.rows) if glance.table else 0
    for most in range(min(rows, MOST_ROWS) - 1, -1, -1):
        page = _page(glance, 0, most)
        if len(page.encode()) < MOST_BYTES:
            return page
    return page


def _page(glance: Glance, detail: int, most: int) -> str:
    table = "".join(_table(glance.table, detail, most)) if glance.table else ""
    foot = f'<div style="{_DIM};font-size:.9em">{_words(glance.foot)}</div>' if glance.foot else ""
    sentence = f'<div style="font-weight:600;margin:.3em 0">{_words(glance.sentence)}</div>'
    return f'<div style="font-variant-numeric:tabular-nums;overflow-x:auto">{sentence}{table}{foot}</div>'


def _words(text: str) -> str:
    return escape(clean(text, TEXT))


def _table(table: Table, detail: int, most: int) -> Iterator[str]:
    indexes = [
        index
        for index, column in enumerate(table.columns)
        if column.only != "markdown" and (detail or not _has_pictures(table, index))
    ]
    heads = [
        _axis(table, index) if _has_pictures(table, index) else _text(table.columns[index].head) for index in indexes
    ]
    cell = f' style="{_CELL}"' if detail == 3 else ""
    head = f' style="{_CELL};{_DIM}"' if detail == 3 else f' style="{_DIM}"'
    spaced = "" if detail == 3 else ' cellpadding="5"'  # shorter than a style on each cell
    yield f'<table{spaced} style="border-collapse:collapse;margin:.4em 0;color:inherit;font:inherit"><thead>'
    yield f'<tr style="{_LINE}">{"".join(f"<th{head}>{text}</th>" for text in heads)}</tr></thead><tbody>'
    for row in table.rows[:most]:
        cells = []
        for position, index in enumerate(indexes):
            inner = row.cells[index]
            text = _on_axis(inner, detail) if isinstance(inner, Picture) else _text(inner)
            content = f"<b>{text}</b>" if text and table.columns[index].style == "value" else text
            style = ' style="text-align:left"' if not position and detail < 3 else cell
            cells.append(f"<td{style}>{content}</td>")
        yield f'<tr style="{_LINE}">{"".join(cells)}</tr>' if detail == 3 else f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"
    left = len(table.rows) - most
    if left > 0:
        yield f'<div style="{_DIM}">… {left:,} more row{"" if left == 1 else "s"}: {escape(MORE)}</div>'


def _has_pictures(table: Table, index: int) -> bool:
    return any(isinstance(row.cells[index], Picture) for row in table.rows)


def _axis(table: Table, index: int) -> str:
    axis = next(cell.axis for row in table.rows if isinstance(cell := row.cells[index], Picture))
    low, high = (axis_end(end, axis) for end in axis)
    return f"{low} to {high}"


def _text(text: Text) -> str:
    if isinstance(text, tuple):
        return "".join(map(_text, text))
    words = text.plain if isinstance(text, Glyphs) else text.text if isinstance(text, Name | Styled) else text
    whole = clean(words, None)
    short = without_middle([whole], NAME)[0] if isinstance(text, Name) else clean(whole, 4 * NAME)
    return escape(short) if short == whole else f'<span title="{escape(clean(whole, 200))}">{escape(short)}</span>'


def _on_axis(picture: Picture, detail: int) -> str:
    """The picture, between the ends of its axis if that is not the axis of its column."""
    if not picture.own_axis:
        return _picture(picture, detail)
    low, high = (escape(axis_end(end, picture.axis)) for end in picture.axis)
    return f"{low} {_picture(picture, detail)} {high}"


def _picture(picture: Picture, detail: int) -> str:
    """An SVG of the interval as a line with end marks, the value as a point, and the bounds as a hollow bar below."""
    first, last = picture.axis

    def x(number: float) -> float:
        return round(4 + (WIDTH - 8) * min(max((number - first) / (last - first), 0.0), 1.0), 1)

    low, value, high = map(x, (picture.low, picture.value, picture.high))
    paths = f"M{low:g} 5v8M{low:g} 9H{high:g}M{high:g} 5v8"
    point = f'<path d="M{value:g} 9h0" stroke-width="9" stroke-linecap="round"/>'
    under, over = "", ""
    if detail > 1:
        under = f'<path stroke="currentColor" stroke-width="1" opacity=".25" d="M0 9H{WIDTH}"/>'
        if first < 0 < last:
            under += f'<path stroke="currentColor" stroke-width="1" opacity=".6" d="M{x(0.0):g} 0v18"/>'
        if picture.bounds:
            left, right = map(x, picture.bounds)
            bar = f'x="{left:g}" y="14.5" width="{max(right - left, 3):g}" height="4" rx="2"'
            over = f'<rect {bar} stroke="currentColor" stroke-width="1" opacity=".6"/>'
    frame = f'width="{WIDTH}" height="20" fill="none" stroke="{BLUE}" stroke-width="2"'
    return f'<svg aria-hidden="true" {frame}>{under}<path d="{paths}"/>{point}{over}</svg>'
