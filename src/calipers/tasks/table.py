"""A table of questions: CSV, TSV, JSON Lines, a JSON array, Parquet, or a frame in memory.

The format is recognised by the content. Cells of CSV are text, and an empty cell is None; nothing else is guessed or
repaired. Every row has its place (file and line) for errors.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.formats.source import decoded, opened, read_up_to
from calipers.tasks.jsonl import NotThere

SUFFIXES: Final = (".csv", ".tsv", ".tab", ".parquet", ".pq", ".json", ".jsonl", ".ndjson")
TASK_FIELDS: Final = ("task_id", "instruction")  # of a row that is already a task
LARGEST: Final = 2 << 30  # bytes
LONGEST_CELL: Final = 64 << 20  # characters
SEPARATORS: Final = ",;\t|"  # candidates, in order of preference
_PARQUET: Final = b"PAR1"
_SHEETS: Final = (".xls", ".xlsx", ".ods", ".numbers")
_LOOKED_AT: Final = 50  # records that are read to find the separator
_MARKS: Final = (  # byte order marks, the longer ones first
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QuestionTable:
    """Rows of named cells, each with its place in the source."""

    name: str  # of the benchmark made from it
    origin: str  # its name in errors: the path
    columns: Sequence[str]
    rows: Sequence[Row]
    places: Sequence[str]  # the place of each row for errors, such as its file and line
    sha256: str = ""  # of the file; "" for a table in memory

    def __post_init__(self) -> None:
        for column, count in Counter(self.columns).items():
            if column and count > 1:
                raise InputError.at(self.origin, f"column {column!r} appears twice", "expected each column once")

    @property
    def named(self) -> str:
        """The names of its columns, for an error."""
        text = ", ".join(column or '""' for column in self.columns)
        return text if len(text) <= 300 else text[:297] + "..."


def is_table(path: str) -> bool:
    """Whether a path is a file of questions, and not a benchmark or a file of tasks."""
    file = Path(path)
    if not os.path.isfile(path):  # also False for an invalid path
        return False
    if file.suffix.lower() in (*SUFFIXES[:5], *_SHEETS):
        return True
    with opened(file) as stream:
        head = stream.read(1 << 20)
    try:
        text = _text(head, path, cut=True).lstrip()
    except InputError:
        return False
    if text.startswith("["):
        return True
    try:
        row, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and not any(field in row for field in TASK_FIELDS)


def read_table(path: str) -> QuestionTable:
    """The table in a file; InputError names the file and line of an error."""
    file = Path(path)
    if file.suffix.lower() in _SHEETS:
        raise InputError.at(path, "is a spreadsheet", "save it as CSV (UTF-8) and use that file")
    if not os.path.lexists(path):
        raise NotThere(f"{path}: no such file; expected questions as CSV, TSV, JSON Lines, a JSON array or Parquet")
    with opened(file) as stream:
        data = read_up_to(stream, LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError.at(path, f"is larger than {LARGEST >> 30} GiB", "split it into smaller files")
    digest = hashlib.sha256(data).hexdigest()
    name = re.sub(r"\.(?:csv|tsv|tab|parquet|pq|jsonl|ndjson|json)$", "", file.name, flags=re.IGNORECASE) or file.name
    if data.startswith(_PARQUET):
        columns, rows, places = _parquet(data, path)
    elif data.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        raise InputError.at(path, "is compressed", "decompress it first")
    else:
        text = _text(data, path)
        start = text.lstrip()[:1]
        if start == "[" and file.suffix.lower() not in (".csv", ".tsv", ".tab"):
            columns, rows, places = _array(text, path)
        elif start == "{" and file.suffix.lower() not in (".csv", ".tsv", ".tab"):
            columns, rows, places = _lines(text, path)
        else:
            columns, rows, places = _cells(text, path, "\t" if file.suffix.lower() in (".tsv", ".tab") else "")
    if not rows:
        raise InputError.at(
            path, "has no rows", "expected one question per row" + (", after the header" * bool(columns))
        )
    return QuestionTable(name, path, columns, rows, places, digest)


def _text(data: bytes, path: str, *, cut: bool = False) -> str:
    """The text of a file: UTF-8; UTF-16 or UTF-32 with a byte order mark; or UTF-16 recognised by its zero bytes."""
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    data, head = data[len(mark) :], data[:4096]
    if not mark and head.count(0) > len(head) // 4:
        encoding = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    try:
        text = data.decode(encoding, "ignore" if cut else "strict")
    except UnicodeDecodeError as error:
        line = data.count("\n".encode(encoding), 0, error.start) + 1
        problem = f"byte {error.start + 1} of the file is not {encoding.upper()}"
        raise InputError.at(f"{path}:{line}", problem, "save it as UTF-8 (Excel: CSV UTF-8)") from None
    if "\0" in text and not cut:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError.at(f"{path}:{line}", "contains a NUL character", "expected text")
    return text


Content = tuple[Sequence[str], Sequence[Row], Sequence[str]]


def _cells(text: str, path: str, separator: str) -> Content:
    """CSV with any separator: a header, then one question per record; a record of empty cells is skipped."""
    hint = re.match(r"sep=(.)\r?\n", text)  # Excel writes this line
    if hint and not separator:
        separator = hint[1]
    first = 2 if hint else 1
    text = text[hint.end() :] if hint else text
    separator = separator or _separator(text)
    records = list(_records(text, path, separator, first))
    if not records:
        return [], [], []
    (line, header), *rest = records
    columns = [cell.strip() for cell in header]
    for column, count in Counter(columns).items():
        if column and count > 1:
            raise InputError.at(f"{path}:{line}", f"column {column!r} appears twice", "expected each column once")
    rows: list[Row] = []
    places: list[str] = []
    for line, record in rest:
        if not any(cell.strip() for cell in record):
            continue
        if len(record) != len(columns):
            problem = f"the row has {len(record)} cell{'s' * (len(record) != 1)}"
            part = "tab" if separator == "\t" else separator
            expected = f"expected {len(columns)}, as in the header; put a cell that contains a {part} in quotes"
            raise InputError.at(f"{path}:{line}", problem, expected)
        rows.append({column: cell or None for column, cell in zip(columns, record, strict=True)})
        places.append(f"{path}:{line}")
    return columns, rows, places


def _records(text: str, path: str, separator: str, first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it begins on, without blank lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line, before = first, csv.field_size_limit(LONGEST_CELL)
    try:
        for record in reader:
            if record:
                yield line, record
            line = first + reader.line_num
    except csv.Error as error:
        problem = f"is not valid CSV ({error})"
        expected = 'expected a quote at both ends of the cell, and quotes inside it doubled ("")'
        raise InputError.at(f"{path}:{line}", problem, expected) from None
    finally:
        csv.field_size_limit(before)


def _separator(text: str) -> str:
    """The separator that gives all records the same number of cells, and the largest such number.

    If no separator gives all records the same number, the one with the most cells in the header.
    """
    best, most = ",", (False, 1)
    for separator in SEPARATORS:
        try:
            records = [len(record) for _, record in islice(_records(text, "", separator), _LOOKED_AT)]
        except InputError as error:
            if "field larger" in str(error):
                raise
            records = []
        if records and (score := (len({*records}) == 1, records[0])) > most and records[0] > 1:
            best, most = separator, score
    return best


def _lines(text: str, path: str) -> Content:
    """JSON Lines: one object per line."""
    rows: list[Row] = []
    places: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            rows.append(_object(_json(line, f"{path}:{number}"), f"{path}:{number}"))
            places.append(f"{path}:{number}")
    return _columns(rows), rows, places


def _array(text: str, path: str) -> Content:
    """A JSON array of objects."""
    content = _json(text, path)
    places = [f"{path}: item {number}" for number in range(1, len(content) + 1)]
    rows = [_object(row, location) for row, location in zip(content, places, strict=True)]
    return _columns(rows), rows, places


def _json(text: str, location: str) -> Any:
    try:
        return decoded(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        expected = "expected one object per line, or an array of objects"
        raise InputError.at(location, f"is not valid JSON: {error.msg} at {at}", expected) from None
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"is not valid JSON: {error}") from None


def _object(row: Any, location: str) -> Row:
    if not isinstance(row, dict):
        raise InputError.at(
            location, f"is {json.dumps(row)[:60]}", "expected a JSON object: a question with its columns"
        )
    return row


def _columns(rows: Sequence[Row]) -> list[str]:
    """The keys of all rows, in the order of their first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _parquet(data: bytes, path: str) -> Content:
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(data)).fill_nan(None)  # a NaN is an empty cell, as in a frame in memory
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise InputError.at(path, f"cannot be read as Parquet ({str(error).partition(chr(10))[0]})") from None
    return _frame(frame, f"{path}: row ")


def _frame(frame: Any, before: str) -> Content:
    rows = frame.to_dicts()
    return list(frame.columns), rows, [f"{before}{number}" for number in range(1, len(rows) + 1)]


RIGHT: Final = "expected a polars or pandas frame, an Arrow table, a list of dicts, or a dict of columns"


def table_of(source: Any, name: str = "table") -> QuestionTable:
    """A table in memory: a polars or pandas frame, an Arrow table, a list of dicts, a dict of columns.

    >>> table_of({"question": ["2 + 2?"], "answer": [4]}).rows
    [{'question': '2 + 2?', 'answer': 4}]
    """
    columns, rows, places = _content(source)
    if not rows:
        raise InputError.at(name, "the table has no rows", "expected one question per row")
    plain = [{column: _plain(cell) for column, cell in row.items()} for row in rows]
    return QuestionTable(name, name, columns, plain, places)


def _content(source: Any) -> Content:
    package = type(source).__module__.partition(".")[0]
    if package == "polars" and hasattr(source, "collect"):
        source = source.collect()
    if package == "polars" and hasattr(source, "to_dicts"):
        return _frame(source, "row ")
    if package == "pyarrow" and hasattr(source, "to_pylist"):
        rows = source.to_pylist()
        return [*source.schema.names], rows, _numbered(len(rows))
    if package == "pandas" and hasattr(source, "to_dict"):
        return _pandas(source)
    if isinstance(source, Mapping):
        return _by_column(source)
    if isinstance(source, Sequence) and not isinstance(source, (str, bytes)):
        for number, row in enumerate(source, 1):
            if not isinstance(row, Mapping):
                raise InputError.at(f"row {number}", f"is {type(row).__name__}", RIGHT)
        rows = [{str(key): value for key, value in row.items()} for row in source]
        return _columns(rows), rows, _numbered(len(rows))
    kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__qualname__}"
    raise InputError(f"a {kind} is not a table of questions; {RIGHT}")


def _numbered(rows: int) -> list[str]:
    return [f"row {number}" for number in range(1, rows + 1)]


def _pandas(frame: Any) -> Content:
    """The rows of a pandas frame; its missing values (NaN, NaT, NA) become None."""
    columns = [str(column) for column in frame.columns]
    cells, gaps = frame.to_dict("split")["data"], frame.isna().to_numpy().tolist()
    rows = [
        {column: None if gap else cell for column, cell, gap in zip(columns, row, gap_row, strict=True)}
        for row, gap_row in zip(cells, gaps, strict=True)
    ]
    return columns, rows, _numbered(len(rows))


def _by_column(columns: Mapping[Any, Any]) -> Content:
    lists = {}
    for column, cells in columns.items():
        if isinstance(cells, (str, bytes, Mapping)) or not hasattr(cells, "__len__"):
            raise InputError.at(f"column {column!r}", f"is {type(cells).__name__}", "expected a list of its cells")
        lists[str(column)] = list(cells)
    lengths = {column: len(cells) for column, cells in lists.items()}
    if len({*lengths.values()}) > 1:
        each = ", ".join(f"{column}: {count}" for column, count in lengths.items())
        raise InputError(f"the columns differ in length ({each}); expected one cell per question in every column")
    rows = [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]
    return [*lists], rows, _numbered(len(rows))


def _plain(cell: Any) -> Any:
    """A cell with numpy's scalars and arrays converted to Python's own types; NaN becomes None."""
    if type(cell).__module__.partition(".")[0] == "numpy" and hasattr(cell, "tolist"):
        cell = cell.tolist()
    return None if isinstance(cell, float) and cell != cell else cell
