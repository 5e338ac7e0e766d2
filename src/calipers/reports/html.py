"""A document as HTML for a notebook: text and tables, no script, no network, for light and dark themes."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from calipers.reports.document import (
    Blank,
    Block,
    Cell,
    Document,
    Glyphs,
    Instead,
    Name,
    Picture,
    Sentence,
    SentenceList,
    Styled,
    Table,
    Text,
    Title,
)
from calipers.reports.untrusted_text import clean

STYLE: Final = (
    ".calipers{font-variant-numeric:tabular-nums;line-height:1.45;max-width:64em}"
    ".calipers table{border-collapse:collapse;margin:.6em 0;font-size:inherit}"
    ".calipers th,.calipers td{text-align:left;border:0;padding:.2em .9em .2em 0;vertical-align:top}"
    ".calipers th{font-weight:400;opacity:.7;border-bottom:1px solid currentColor}"
    ".calipers .r{text-align:right}.calipers .v{font-weight:600}.calipers .n{opacity:.7;font-size:.92em}"
    ".calipers p{margin:.3em 0}.calipers h4{margin:.8em 0 .3em;font-size:1.05em}"
    ".calipers svg{vertical-align:middle;overflow:visible;color:#1c5fc0}"
    "@media(prefers-color-scheme:dark){.calipers svg{color:#7db0ff}}"
)


def render(document: Document) -> str:
    """The document as one ``<div>`` with its style; text from data is escaped."""
    return f'<div class="calipers"><style>{STYLE}</style>{"".join(_blocks(document))}</div>'


def _blocks(document: Document) -> Iterator[str]:
    for block in document.blocks():
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, SentenceList):
        words = [_words(sentence) for sentence in block.sentences]
        yield "<ul>" + "".join(f"<li>{text}</li>" for text in words if text) + "</ul>"
    elif isinstance(block, Table):
        if block.only != "terminal":
            yield _table(block)
    elif not isinstance(block, Blank) and (text := _words(block)):
        if isinstance(block, Title):
            yield f"<h4>{text}</h4>"
        else:
            yield f'<p class="n">{text}</p>' if block.style == "note" else f"<p>{text}</p>"


def _words(block: Title | Sentence) -> str:
    return _text(block.text if block.markdown is None else block.markdown)


def _text(text: Text) -> str:
    if isinstance(text, tuple):
        return "".join(map(_text, text))
    if isinstance(text, Name):
        return f"<code>{escape(clean(text.text, text.longest))}</code>"
    if isinstance(text, Styled):
        words = escape(clean(text.text, None))
        return f"<strong>{words}</strong>" if text.style == "strong" else words
    if isinstance(text, Glyphs):
        return escape(text.plain)
    return escape(clean(text, None))


def _table(table: Table) -> str:
    """Every column that Markdown has, and the pictures; the notes of a row are in a row below it."""
    places = [
        number for number, column in enumerate(table.columns) if column.only != "terminal" or _drawn(table, number)
    ]
    columns = [table.columns[number] for number in places]
    heads = [_text(column.head if column.markdown is None else column.markdown) for column in columns]
    marks = ["r" if column.align != "left" else "" for column in columns]
    head = "".join(f"<th{_class(mark)}>{text}</th>" for mark, text in zip(marks, heads, strict=True))
    body = []
    for row in table.rows:
        cells = [
            f"<td{_class(mark, 'v' if column.style in ('strong', 'value') else '')}>{_cell(row.cells[number])}</td>"
            for number, column, mark in zip(places, columns, marks, strict=True)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
        notes = "; ".join(note for note in row.notes if not isinstance(note, Instead))
        if words := _text(notes if row.markdown is None else row.markdown):
            body.append(f'<tr><td class="n" colspan="{len(places)}">{words}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _drawn(table: Table, number: int) -> bool:
    return any(isinstance(row.cells[number], Picture) for row in table.rows)


def _class(*names: str) -> str:
    there = " ".join(filter(None, names))
    return f' class="{there}"' if there else ""


def _cell(cell: Cell) -> str:
    return _picture(cell) if isinstance(cell, Picture) else _text(cell)


def _picture(picture: Picture) -> str:
    """The interval as a line with its ends on the axis, the value as a point."""
    first, last = picture.axis
    places = ((end - first) / (last - first) for end in (picture.low, picture.value, picture.high))
    low, value, high = (f"{100 * min(max(place, 0.0), 1.0):.2f}%" for place in places)
    ends = "".join(
        f'<line x1="{end}" x2="{end}" y1="5" y2="13" stroke="currentColor" stroke-width="1.6"/>' for end in (low, high)
    )
    return (
        f'<svg width="160" height="18" role="img" aria-label="interval between {first:g} and {last:g}">'
        '<line x1="0" x2="100%" y1="9" y2="9" stroke="currentColor" stroke-opacity=".25"/>'
        f'<line x1="{low}" x2="{high}" y1="9" y2="9" stroke="currentColor" stroke-width="3"/>{ends}'
        f'<circle cx="{value}" cy="9" r="4.5" fill="currentColor"/></svg>'
    )
