"""Files of documents as rows: JSON, CSV, Parquet, Arrow and plain text, typed as ``datasets`` types them."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.tasks.lines import decoded, json_lines, opened
from calipers.tasks.lm_eval.cells import header_names, typed, typed_text
from calipers.tasks.packed import ZstdFrames, read_up_to

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


def _decoded(line: str, place: str) -> Any:
    try:
        return decoded(line)
    except (ValueError, RecursionError) as error:
        raise InputError.at(place, f"malformed json: {error}") from None


def _object(row: Any, place: str) -> Row:
    if not isinstance(row, dict):
        raise InputError.at(place, f"is a {type(row).__name__}", "expected an object: one document")
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
        found = csv.reader(
            io.StringIO("".join(_texts(path, keep=True)), newline=""), delimiter=mark, quotechar=quotechar
        )
        records = [record for record in found if record]
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
