"""A document as CSV: one flat row per number, in full precision."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from calipers.reports.document import Document
from calipers.reports.untrusted_text import clean

_FORMULA = ("=", "+", "-", "@")


def render(document: Document) -> str:
    """The rows of a document as CSV with a header; an absent value is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(document.fields)
    writer.writerows([cell(row[name]) for name in document.fields] for row in document.rows())
    return uncommanded(stream.getvalue())


def uncommanded(text: str) -> str:
    """Quote the first cell of each row that begins with ``::``, a command for CI runners; the values stay the same.

    >>> uncommanded("::error::x,1")
    '"::error::x",1'
    """
    return re.sub(r"^(\s*::[^,\n]*)", r'"\1"', text, flags=re.MULTILINE) if "::" in text else text


def cell(value: Any) -> Any:
    """A value as a cell: numbers in full precision, text safe to open in a spreadsheet.

    Text that a spreadsheet would run as a formula gets an apostrophe before it.

    >>> cell("=HYPERLINK(1)"), cell("-1"), cell(True), cell(None)
    ("'=HYPERLINK(1)", '-1', 'true', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = clean(value, None)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
