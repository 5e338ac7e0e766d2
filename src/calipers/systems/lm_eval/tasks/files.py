"""Files of documents as rows: JSON, CSV, Parquet, Arrow and plain text, typed as ``datasets`` types them."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.tasks.lines import ZstdFrames, decoded, json_lines, opened, read_up_to

NULLS: Final = frozenset(  # what a cell of CSV may say for nothing
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_INTEGER: Final = re.compile(r" *[+-]?\d{1,20} *", re.ASCII)
_TRUTH: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}

CellRow = dict[str, Any]


def typed(rows: Sequence[CellRow]) -> list[CellRow]:
    """Rows as ``datasets`` types them, column by column; a column of several types is left as it is."""
    columns = dict.fromkeys(key for row in rows for key in row)
    made = {column: _unified([row.get(column) for row in rows]) for column in columns}
    cells = {column: iter(column_cells) for column, column_cells in made.items() if column_cells is not None}
    typed_rows = []
    for row in rows:
        whole = {key: next(cells[key]) if key in cells else row.get(key) for key in columns}
        typed_rows.append({key: whole[key] for key in row})
    return typed_rows


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
        inner = _unified([item for cell in given for item in cell])
        parts = iter(inner or ())
        return None if inner is None else _filled(cells, [[next(parts) for _ in cell] for cell in given])
    if kinds == {dict}:
        keys = list(given[0])
        if any(cell.keys() != given[0].keys() for cell in given):
            return None
        columns = [_unified([cell[key] for cell in given]) for key in keys]
        if any(column is None for column in columns):
            return None
        return _filled(cells, [dict(zip(keys, item, strict=True)) for item in zip(*columns, strict=True)] or given)
    return cells if len(kinds) <= 1 else None


def _filled(cells: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    rest = iter(given)
    return [None if cell is None else next(rest) for cell in cells]


def _dates(texts: Sequence[str]) -> Sequence[datetime] | None:
    """The texts as points in time, UTC where they name a zone; None where one of them is none."""
    if not all(map(_DATE.fullmatch, texts)):
        return None
    try:
        times = [datetime.fromisoformat(text) for text in texts]
    except ValueError:  # a thirteenth month
        return None
    return [time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time for time in times]


def header_names(names: Sequence[str]) -> list[str]:
    """The names of the columns, each once: a name again gets a number, none at all is ``Unnamed``."""
    unique: list[str] = []
    for at, name in enumerate(names):
        header, times = name or f"Unnamed: {at}", 0
        while header in unique:
            times += 1
            header = f"{name}.{times}"
        unique.append(header)
    return unique


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


LARGEST: Final = 2 << 30  # bytes of a file, unpacked
PACKED: Final = {".gz": "gzip", ".zst": "zstd"}
Row = dict[str, Any]


def read_json(path: Path, field: str | None = None) -> list[Row]:
    """One object a line, or one array of objects; ``field`` is the key of a larger object that holds the array."""
    if field is None and _first(path) != b"[":
        return typed([_object(row, f"{path}:{line}") for line, row in _lines(path)])
    try:
        content = decoded(_content(path).decode("utf-8-sig"))
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
    return typed([_object(row, f"{path}: row {number}") for number, row in enumerate(several, 1)])


def _lines(path: Path) -> Any:
    if path.suffix not in PACKED:
        return json_lines(path)
    return ((number, _decoded(line, f"{path}:{number}")) for number, line in enumerate(_texts(path), 1) if line.strip())


def _decoded(line: str, location: str) -> Any:
    try:
        return decoded(line)
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"malformed json: {error}") from None


def _object(row: Any, location: str) -> Row:
    if not isinstance(row, dict):
        raise InputError.at(location, f"is a {type(row).__name__}", "expected an object: one document")
    return row


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
        reader = csv.reader(
            io.StringIO("".join(_texts(path, keep=True)), newline=""), delimiter=mark, quotechar=quotechar
        )
        records = [record for record in reader if record]
    except (csv.Error, TypeError) as error:
        raise InputError.at(str(path), f"is no CSV ({error})") from None
    finally:
        csv.field_size_limit(before)
    header = list(names or column_names or ()) or header_names(records.pop(0) if records else [])
    for number, record in enumerate(records, 1):
        if len(record) > len(header):
            wrong = f"record {number} has {len(record)} cells for {len(header)} columns"
            raise InputError.at(str(path), wrong, "expected one a column")
    columns = [typed_text([record[at] if at < len(record) else "" for record in records]) for at in range(len(header))]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)] if columns else []


def read_text(path: Path, sample_by: str = "line") -> list[Row]:
    """A document a line, in the column ``text``; a paragraph or the whole file where ``sample_by`` says so."""
    if sample_by == "line":
        return [{"text": line} for line in _texts(path)] if _content(path, 1) else []
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
    """The bytes of a file, unpacked; no more than ``most``. InputError for a packed file that is not whole."""
    with opened(path) as stream:
        try:
            content = read_up_to(_unpacked(path, stream), most + (most == LARGEST))
        except (OSError, EOFError, zlib.error) as error:
            if path.suffix not in PACKED:
                raise InputError.at(str(path), f"cannot be read ({error})") from None
            wrong = f"cannot be unpacked as {PACKED[path.suffix]} ({error})"
            raise InputError.at(str(path), wrong, "is it whole?") from None
    if len(content) > LARGEST:
        raise InputError.at(str(path), f"larger than {LARGEST >> 30} GiB", "expected documents")
    return content


def _unpacked(path: Path, stream: io.BufferedReader) -> Any:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=stream)
    return ZstdFrames(stream) if path.suffix == ".zst" else stream


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
