"""A result as CSV: one row per number, every field of its estimate."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from calipers.reports.result import Result
from calipers.reports.safe import clean

FIELDS = (
    *("dataset", "model", "agent", "by", "slice", "metric", "value", "stderr", "low", "high", "method"),
    *("tasks", "samples", "undefined_tasks", "lowest", "highest", "higher_is_better", "why", "signature"),
)
_FORMULA = ("=", "+", "-", "@")


def render(result: Result) -> str:
    """The rows of a result as CSV with a header; an absent value is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in result.rows():
        writer.writerow({name: cell(row[name]) for name in FIELDS})
    return uncommanded(stream.getvalue())


def uncommanded(text: str) -> str:
    """Rows of cells in quotes where they would begin with ``::``, a command for CI runners; the values stay.

    >>> uncommanded("::error::x,1")
    '"::error::x",1'
    """
    return re.sub(r"^(\s*::[^,\n]*)", r'"\1"', text, flags=re.MULTILINE) if "::" in text else text


def cell(value: Any) -> Any:
    """A value as a cell: numbers in full, text safe to open in a spreadsheet.

    A name that a spreadsheet would run as a formula gets an apostrophe before it.

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
