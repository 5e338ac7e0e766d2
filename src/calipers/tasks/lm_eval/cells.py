"""The types of cells, as the library ``datasets`` finds them: column by column, from what is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

NULLS: Final = frozenset(  # what a cell of CSV may say for nothing
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_INTEGER: Final = re.compile(r" *[+-]?\d{1,20} *", re.ASCII)
_TRUTH: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}

Row = dict[str, Any]


def typed(rows: Sequence[Row]) -> list[Row]:
    """Rows as ``datasets`` types them, column by column; a column of several types is left as it is."""
    columns = dict.fromkeys(key for row in rows for key in row)
    made = {column: _unified([row.get(column) for row in rows]) for column in columns}
    cells = {column: iter(found) for column, found in made.items() if found is not None}
    found = []
    for row in rows:
        whole = {key: next(cells[key]) if key in cells else row.get(key) for key in columns}
        found.append({key: whole[key] for key in row})
    return found


def _unified(cells: Sequence[Any]) -> Sequence[Any] | None:
    """The cells of one column in one type: dates as datetimes, mixed numbers as floats; None where there is none.

    What is inside lists, and inside objects with the same keys, is a column of its own.
    """
    given = [cell for cell in cells if cell is not None]
    kinds = {type(cell) for cell in given}
    if kinds == {str}:
        return _filled(cells, _dates(given) or given)
    if kinds <= {int, float} and kinds:
        whole = kinds == {int} and all(-(1 << 63) <= cell < 1 << 63 for cell in given)
        return _filled(cells, given if whole else list(map(float, given)))
    if kinds == {list}:
        inner = _unified([one for cell in given for one in cell])
        parts = iter(inner or ())
        return None if inner is None else _filled(cells, [[next(parts) for _ in cell] for cell in given])
    if kinds == {dict}:
        keys = list(given[0])
        if any(cell.keys() != given[0].keys() for cell in given):
            return None
        columns = [_unified([cell[key] for cell in given]) for key in keys]
        if any(column is None for column in columns):
            return None
        return _filled(cells, [dict(zip(keys, one, strict=True)) for one in zip(*columns, strict=True)] or given)
    return cells if len(kinds) <= 1 else None


def _filled(cells: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    rest = iter(given)
    return [None if cell is None else next(rest) for cell in cells]


def _dates(texts: Sequence[str]) -> Sequence[datetime] | None:
    """The texts as points in time, UTC where they name a zone; None where one of them is none."""
    if not all(map(_DATE.fullmatch, texts)):
        return None
    try:
        found = [datetime.fromisoformat(text) for text in texts]
    except ValueError:  # a thirteenth month
        return None
    return [one.astimezone(UTC).replace(tzinfo=None) if one.tzinfo else one for one in found]


def header_names(names: Sequence[str]) -> list[str]:
    """The names of the columns, each once: a name again gets a number, none at all is ``Unnamed``."""
    found: list[str] = []
    for at, name in enumerate(names):
        own, times = name or f"Unnamed: {at}", 0
        while own in found:
            times += 1
            own = f"{name}.{times}"
        found.append(own)
    return found


def typed_text(cells: Sequence[str]) -> Sequence[Any]:
    """The cells of a column of CSV: integers, floats or truths where all of them are, else text."""
    given = [cell for cell in cells if cell not in NULLS]
    if not given:
        return [None] * len(cells)
    if all(_INTEGER.fullmatch(cell) for cell in given):
        fits = all(-(1 << 63) <= int(cell) < 1 << 64 for cell in given)
        whole = len(given) == len(cells) and fits  # with gaps they are floats, as pandas has them
        make: Callable[[str], Any] = int if whole else float
    elif all(map(_is_float, given)):
        make = float
    elif all(cell in _TRUTH for cell in given):
        make = _TRUTH.__getitem__
    else:
        make = str
    return [None if cell in NULLS else make(cell) for cell in cells]


def _is_float(cell: str) -> bool:
    if "_" in cell:  # a number in Python's own writing only
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True
