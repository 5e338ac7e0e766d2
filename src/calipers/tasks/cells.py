"""The cells of a table of questions: as text, as JSON, as one line, and whether they are images."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from calipers.errors import InputError
from calipers.tasks.table import QuestionTable


def one_line(value: Any, most: int = 300) -> str:
    """A prompt or a target in one line, shortened if it is long.

    >>> one_line("Q: 2 + 2?\\nA:")
    'Q: 2 + 2?\\\\nA:'
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = text.replace("\r\n", "\n").replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= most else text[: most - 1] + "…"


def is_blank(cell: Any) -> bool:
    """Whether a cell is empty: no value, an empty list, or only white space."""
    return cell is None or cell == [] or (isinstance(cell, str) and not cell.strip())


def scalar_text(cell: Any) -> str | None:
    """A cell as text; None if it is not text, a number or a date."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, (int, Decimal)):
        return str(cell)
    return cell.isoformat() if isinstance(cell, (date, datetime, time)) else None


def cell_text(cell: Any, column: str, where: str) -> str:
    """A cell as text for a prompt; InputError for a list or an object."""
    text = "" if cell is None else scalar_text(cell)
    if text is None:
        wrong = f"column {column!r} is {one_line(cell, 60)}"
        raise InputError.at(where, wrong, "expected text or a number; a Jinja file can use lists and objects")
    return text


def json_value(cell: Any, column: str, where: str) -> Any:
    """A cell as a JSON value; InputError if JSON has no such value."""
    if isinstance(cell, (date, datetime, time, Decimal)):
        return scalar_text(cell)
    try:
        json.dumps(cell, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        wrong = f"column {column!r} is {type(cell).__name__}"
        raise InputError.at(where, wrong, "expected text, numbers, or lists and objects of them") from None
    return cell


_IMAGE_BYTES: Final = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_IMAGE_NAME: Final = re.compile(r"images?([_ -]?(\d+|path|url|file))?", re.IGNORECASE)
_IMAGE_FILE: Final = re.compile(r"\S+\.(png|jpe?g|gif|webp|bmp)", re.IGNORECASE)


def check_images(table: QuestionTable) -> None:
    """InputError for a table with images: without its image a question is a different question."""
    for row, where in zip(table.rows, table.places, strict=True):
        for column, cell in row.items():
            if _is_image(column, cell):
                right = "Calipers sends text only; remove the column to run without images"
                raise InputError.at(where, f"column {column!r} contains an image", right)


def _is_image(column: str, cell: Any) -> bool:
    if isinstance(cell, str):
        named = _IMAGE_NAME.fullmatch(column) is not None
        return cell.startswith("data:image/") or (named and _IMAGE_FILE.fullmatch(cell.strip()) is not None)
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).startswith(_IMAGE_BYTES)
    if isinstance(cell, Mapping):
        inner = cell.get("content")
        parts = inner if isinstance(inner, list) else []
        shown = any(isinstance(part, Mapping) and str(part.get("type", "")).find("image") >= 0 for part in parts)
        return shown or any(_is_image(column, cell.get(key)) for key in ("bytes", "path", "url"))
    if isinstance(cell, list):
        return any(_is_image(column, part) for part in cell[:20])
    return type(cell).__module__.partition(".")[0] == "PIL"
