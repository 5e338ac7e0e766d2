"""Files of documents as rows: JSON, CSV, Parquet, Arrow and plain text, typed as ``datasets`` types them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.tasks.lines import json_lines, opened

LARGEST: Final = 2 << 30  # bytes of a file, unpacked
NULLS: Final = frozenset(  # what a cell of CSV may say for nothing
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d)?)?)?")
_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_TRUTH: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}

Row = dict[str, Any]


def read_json(path: Path, field: str | None = None) -> list[Row]:
    """One object a line, or one array of objects; ``field`` is the key of a larger object that holds the array."""
    if field is None and _first(path) != b"[":
        rows = [_object(row, f"{path}:{line}") for line, row in _lines(path)]
        return _typed(rows)
    try:
        content = json.loads(_content(path).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError.at(str(path), f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise InputError.at(str(path), f"malformed json: {error}") from None
    if field is not None:
        if not isinstance(content, Mapping) or field not in content:
            raise InputError.at(str(path), f"no key {field!r}", "expected an object with it")
        content = content[field]
    if isinstance(content, Mapping) and all(isinstance(column, list) for column in content.values()):
        return [dict(zip(content, cells, strict=False)) for cells in zip(*content.values(), strict=False)]
    several = content if isinstance(content, list) else [content]
    return [_object(row, f"{path}: row {number}") for number, row in enumerate(several, 1)]


def _lines(path: Path) -> Any:
    if path.suffix not in (".gz", ".zst"):
        return json_lines(path)
    return ((number, _decoded(line, f"{path}:{number}")) for number, line in enumerate(_texts(path), 1) if line.strip())


def _decoded(line: str, place: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError.at(place, f"malformed json: {error}") from None


def _object(row: Any, place: str) -> Row:
    if not isinstance(row, dict):
        raise InputError.at(place, f"is a {type(row).__name__}", "expected an object: one document")
    return row


def _typed(rows: Sequence[Row]) -> list[Row]:
    """Lines as their reader there types them: a column of dates is one of datetimes, one of mixed numbers of floats."""
    made: dict[str, Callable[[Any], Any]] = {}
    for column in dict.fromkeys(key for row in rows for key in row):
        cells = [row[column] for row in rows if row.get(column) is not None]
        kinds = {type(cell) for cell in cells}
        if kinds == {str} and all(_DATE.fullmatch(cell) for cell in cells):
            made[column] = _date
        elif kinds == {int, float}:
            made[column] = float
    try:
        return [{key: made.get(key, _same)(cell) for key, cell in row.items()} for row in rows] if made else list(rows)
    except ValueError:  # a date with a thirteenth month is a text, and so is its column
        made = {key: make for key, make in made.items() if make is not _date}
        return [{key: made.get(key, _same)(cell) for key, cell in row.items()} for row in rows]


def _same(cell: Any) -> Any:
    return cell


def _date(cell: Any) -> Any:
    return None if cell is None else datetime.fromisoformat(cell)


def read_csv(
    path: Path,
    sep: str | None = None,
    delimiter: str | None = None,
    column_names: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    quotechar: str = '"',
) -> list[Row]:
    """Comma-separated values with a header; a column is of integers, floats or truths where all its cells are."""
    mark = delimiter or sep or ("\t" if path.name.removesuffix(".gz").endswith(".tsv") else ",")
    before = csv.field_size_limit(1 << 27)
    try:
        found = csv.reader(
            io.StringIO("".join(_texts(path, keep=True)), newline=""), delimiter=mark, quotechar=quotechar
        )
        records = [record for record in found if record]
    except (csv.Error, TypeError) as error:
        raise InputError.at(str(path), f"is no CSV ({error})") from None
    finally:
        csv.field_size_limit(before)
    header = list(names or column_names or ()) or (records.pop(0) if records else [])
    for number, record in enumerate(records, 1):
        if len(record) > len(header):
            wrong = f"record {number} has {len(record)} cells for {len(header)} columns"
            raise InputError.at(str(path), wrong, "expected one a column")
    columns = [_column([record[at] if at < len(record) else "" for record in records]) for at in range(len(header))]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)] if columns else []


def _column(cells: Sequence[str]) -> Sequence[Any]:
    given = [cell for cell in cells if cell not in NULLS]
    if not given:
        return [None] * len(cells)
    if all(_INTEGER.fullmatch(cell) for cell in given):
        make: Callable[[str], Any] = int if len(given) == len(cells) else float  # with gaps, as pandas has them
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


def read_text(path: Path, sample_by: str = "line") -> list[Row]:
    """A document a line, in the column ``text``; a paragraph or the whole file where ``sample_by`` says so."""
    if sample_by == "line":
        return [{"text": line} for line in _texts(path)]
    whole = "".join(_texts(path, keep=True))
    if sample_by not in ("paragraph", "document"):
        raise InputError.at(str(path), f"sample_by is {sample_by!r}", "expected line, paragraph or document")
    return [{"text": part} for part in (whole.split("\n\n") if sample_by == "paragraph" else [whole]) if part]


def read_parquet(path: Path, columns: list[str] | None = None) -> list[Row]:
    """The rows of a Parquet file."""
    import polars as pl

    return _frame(path, lambda: pl.read_parquet(path, columns=columns))


def read_arrow(path: Path) -> list[Row]:
    """The rows of an Arrow file: in the file's form, or in the stream's, as ``datasets`` writes them."""
    import polars as pl

    is_file = _first(path, 6) == b"ARROW1"
    return _frame(path, lambda: pl.read_ipc(path) if is_file else pl.read_ipc_stream(path))


def _frame(path: Path, read: Callable[[], Any]) -> list[Row]:
    opened(path).close()
    try:
        rows: list[Row] = read().to_dicts()
    except Exception as error:  # polars panics and raises in many classes
        first = str(error).strip().partition("\n")[0]
        raise InputError.at(str(path), f"cannot be read ({first})") from None
    return rows


def _first(path: Path, count: int = 1) -> bytes:
    """The first bytes of a file's content, blanks left out."""
    return _content(path, 4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:count]


def _texts(path: Path, keep: bool = False) -> list[str]:
    try:
        text = _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.at(str(path), f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None
    return io.StringIO(text, newline="").readlines() if keep else re.split(r"\r\n|\r|\n", text.removesuffix("\n"))


def _content(path: Path, most: int = LARGEST) -> bytes:
    """The bytes of a file, unpacked; no more than ``most``."""
    with opened(path) as stream:
        try:
            content = _unpacked(path, stream).read(most + (most == LARGEST))
        except (OSError, EOFError) as error:
            raise InputError.at(str(path), f"cannot be read ({error})") from None
    if len(content) > LARGEST:
        raise InputError.at(str(path), f"larger than {LARGEST >> 30} GiB", "expected documents")
    return bytes(content)


def _unpacked(path: Path, stream: io.BufferedReader) -> Any:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=stream)
    if path.suffix == ".zst":
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(stream)
    return stream


READERS: Final[Mapping[str, tuple[Callable[..., list[Row]], Sequence[str]]]] = {  # kind -> reader, its options
    "json": (read_json, ("field",)),
    "csv": (read_csv, ("sep", "delimiter", "column_names", "names", "quotechar")),
    "parquet": (read_parquet, ("columns",)),
    "text": (read_text, ("sample_by",)),
    "arrow": (read_arrow, ()),
}
SUFFIXES: Final = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".arrow": "arrow",
}
