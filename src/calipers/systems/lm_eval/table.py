"""The table that lm-evaluation-harness prints, to the character.

Numbers are written with four decimals and then read again by the library that draws its tables: a
column of numbers is set with as many decimals as its longest needs, to the right. A cell that is no number
makes the column one of text, in which whole numbers have no decimals. A cell below more text than
anything else is not read at all.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

HEADERS: Final = ("Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
TITLES: Final = {"results": "Tasks", "groups": "Groups"}
NARROWEST: Final = 3
_ARROWS: Final = {True: "↑", False: "↓"}
_NOT_AVAILABLE: Final = "N/A"


def table(results: Mapping[str, Any], column: str = "results") -> str:
    """The Markdown table of a results object; ``column`` is results, or groups for its groups alone."""
    rows = list(_rows(results, column))
    titles = [TITLES[column], *HEADERS]
    columns = [_column(title, [row[place] for row in rows]) for place, title in enumerate(titles)]
    lines = [[held.head for held in columns], [held.rule for held in columns]]
    lines += [[held.cells[row] for held in columns] for row in range(len(rows))]
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def _rows(results: Mapping[str, Any], column: str) -> Iterator[list[Any]]:
    shots, versions = results.get("n-shot", {}), results.get("versions", {})
    for name, depth in _order(results, column):
        held = results[column][name]
        alias = f"{' ' * depth}- {held.get('alias', name)}" if depth else str(held.get("alias", name))
        version = versions.get(name, "    N/A")
        better = results.get("higher_is_better", {}).get(name, {})
        for key in sorted(key for key in held if "," in key and not _is_error(key)):
            metric, _, pipeline = key.partition(",")
            value, beside = held[key], f"{metric}_stderr,{pipeline}"
            row = [alias, version, pipeline, str(shots.get(name, " ")), metric, _ARROWS.get(better.get(metric), "")]
            row += [f"{value:.4f}" if isinstance(value, float) else value]
            yield [*row, "±", _error(held[beside])] if beside in held else [*row, "", ""]
            alias, version = "", ""


def _order(results: Mapping[str, Any], column: str) -> list[tuple[str, int]]:
    """Groups by name, each followed by its members, then what is in no group; and how deep each stands."""
    held, below = results[column], results.get("group_subtasks") or {}
    found: dict[str, int] = {}

    def visit(name: str, depth: int) -> None:
        if name not in found:
            found[name] = depth
            for member in sorted(below.get(name, ())):
                visit(member, depth + 1)

    members = {member for inner in below.values() for member in inner}
    for name in sorted(name for name in below if name not in members):
        visit(name, 0)
    for name in sorted(held):
        visit(name, 0)
    return [(name, depth) for name, depth in found.items() if name in held]


def _is_error(key: str) -> bool:
    return key.partition(",")[0].endswith("_stderr")


def _error(value: Any) -> str:
    return "   N/A" if value is None or value == _NOT_AVAILABLE else f"{value:.4f}"


class _Column:
    """A column as it is set: its head, the rule below it, its cells."""

    def __init__(self, title: str, texts: Sequence[str], right: Sequence[bool], all_right: bool) -> None:
        width = max(NARROWEST, _width(title), *(_width(text) for text in texts))
        left = (width - _width(title)) // 2
        self.head = " " * left + title + " " * (width - _width(title) - left)
        self.rule = "-" * (width - 1) + ":" if all_right else "-" * width
        self.cells = [_padded(text, width, to) for text, to in zip(texts, right, strict=True)]


def _column(title: str, cells: Sequence[Any]) -> _Column:
    read = _read(cells)
    blank = [isinstance(cell, str) and not cell.strip() for cell in read]
    numeric = any(isinstance(cell, Decimal) and cell.is_finite() for cell in read) and all(
        isinstance(cell, Decimal) or empty for cell, empty in zip(read, blank, strict=True)
    )
    places = max((_places(cell) for cell in read if isinstance(cell, Decimal)), default=0)
    texts = [_shown(cell, places, numeric) if isinstance(cell, Decimal) else str(cell) for cell in read]
    right = [numeric or (isinstance(cell, Decimal) and cell.is_finite()) for cell in read]
    return _Column(title, texts, right, numeric)


def _read(cells: Sequence[Any]) -> list[Any]:
    """The cells with what looks like a number read as one, but not below more text than anything else."""
    met: Counter[str] = Counter()
    found: list[Any] = []
    for cell in cells:
        most = met.most_common(1)[0][0] if met else ""
        number = None if most == "text" and isinstance(cell, str) else _number(cell)
        found.append(cell if number is None else number)
        met[_kind(found[-1])] += 1
    return found


def _kind(cell: Any) -> str:
    if not isinstance(cell, Decimal):
        return "text" if not isinstance(cell, str) or cell.strip() else "blank"
    if not cell.is_finite():
        return "nan" if cell.is_nan() else "infinity"
    return "real" if _places(cell) else "whole"


def _number(cell: Any) -> Decimal | None:
    if isinstance(cell, bool):
        return None
    try:
        return Decimal(str(cell).strip()) if isinstance(cell, (int, float, str)) else None
    except InvalidOperation:
        return None


def _places(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent if number.is_finite() else 0
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _shown(number: Decimal, places: int, numeric: bool) -> str:
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    text = f"{number:.{places if numeric or _places(number) else 0}f}"
    return text.removeprefix("-") if not math.fabs(number) else text


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    shown = text.replace("|", "\\|")
    return blanks + shown if right else shown + blanks


def _width(text: str) -> int:
    """How many places a text takes, where East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "FW" else 1 for character in text)
