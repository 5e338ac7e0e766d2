"""The documents of a task by split: local files are read here, other datasets by the library ``datasets``.

Local files are given by ``dataset_path: json | csv | parquet | text | arrow`` with ``dataset_kwargs.data_files`` (or
``data_dir``), or by a folder as ``dataset_path``. A relative path is looked up from the working directory, as in
lm-evaluation-harness, and then from the task's own folder. Cells get the types that ``datasets`` gives them.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from packaging.version import InvalidVersion, Version

from calipers.errors import InputError, PluginError, UnknownName
from calipers.formats.source import ZstdFrames, decoded, json_lines, opened, read_up_to
from calipers.systems.lm_eval.tasks import TaskFields, TaskFile, is_installed, shown
from calipers.systems.lm_eval.tasks.prompts import called

NULLS: Final = frozenset(  # the texts of an empty cell in CSV
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_DATED: Final = re.compile(r"date(time)?|modified|timestamp.*|.*_(at|time)", re.IGNORECASE)  # names for pandas' dates
_INTEGER: Final = re.compile(r" *[+-]?\d{1,20} *", re.ASCII)
_BOOLEANS: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


Row = dict[str, Any]


def typed(rows: Sequence[Row], *, of_field: bool = False) -> list[Row]:
    """Convert rows to the types that ``datasets`` infers for each column; a column of mixed types is unchanged.

    It reads the rows below a ``field`` by pandas: texts are dates only in a column with such a name, and a column of
    whole numbers has integers.
    """
    columns = dict.fromkeys(key for row in rows for key in row)
    unified = {
        column: _unified([row.get(column) for row in rows], dates=not of_field or bool(_DATED.fullmatch(column)))
        for column in columns
    }
    if of_field:
        unified = {column: cells and _whole(cells) for column, cells in unified.items()}
    cells = {column: iter(column_cells) for column, column_cells in unified.items() if column_cells is not None}
    typed_rows = []
    for row in rows:
        all_cells = {key: next(cells[key]) if key in cells else row.get(key) for key in columns}
        typed_rows.append({key: all_cells[key] for key in row})
    return typed_rows


def _whole(cells: Sequence[Any]) -> Sequence[Any]:
    """The cells of a column of floats as integers if all of them are whole numbers; other columns unchanged."""
    given = [cell for cell in cells if cell is not None]
    whole = all(isinstance(cell, float) and cell.is_integer() and abs(cell) < 1 << 63 for cell in given)
    return _filled(cells, list(map(int, given))) if whole else cells


def _unified(cells: Sequence[Any], *, dates: bool = True) -> Sequence[Any] | None:
    """The cells of a column converted to one type: dates to datetimes, mixed numbers to floats; None for mixed types.

    The contents of lists, and of objects with the same keys, are columns of their own.
    """
    given = [cell for cell in cells if cell is not None]
    kinds = {type(cell) for cell in given}
    if kinds == {str}:
        return _filled(cells, (_dates(given) if dates else None) or given)
    if kinds <= {int, float} and kinds:
        if kinds == {int} and all(-(1 << 63) <= cell < 1 << 63 for cell in given):
            return cells
        try:
            return _filled(cells, list(map(float, given)))
        except OverflowError:  # an integer of hundreds of digits, too large for a float
            return None
    if kinds == {list}:
        unified = _unified([item for cell in given for item in cell], dates=dates)
        items = iter(unified or ())
        return None if unified is None else _filled(cells, [[next(items) for _ in cell] for cell in given])
    if kinds == {dict}:
        keys = list(given[0])
        if any(cell.keys() != given[0].keys() for cell in given):
            return None
        columns = [_unified([cell[key] for cell in given], dates=dates) for key in keys]
        if any(column is None for column in columns):
            return None
        return _filled(cells, [dict(zip(keys, item, strict=True)) for item in zip(*columns, strict=True)] or given)
    return cells if len(kinds) <= 1 else None


def _filled(cells: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
    """The cells with those that are not None replaced by ``values``, in order."""
    remaining = iter(values)
    return [None if cell is None else next(remaining) for cell in cells]


def _dates(texts: Sequence[str]) -> Sequence[datetime] | None:
    """The texts as datetimes, in UTC if they have a time zone; None if any text is not a date."""
    if not all(map(_DATE.fullmatch, texts)):
        return None
    try:
        times = [datetime.fromisoformat(text) for text in texts]
    except ValueError:  # a thirteenth month
        return None
    return [time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time for time in times]


def header_names(names: Sequence[str]) -> list[str]:
    """Unique column names: a repeated name gets a numeric suffix, an empty one becomes ``Unnamed: INDEX``."""
    unique: list[str] = []
    for index, name in enumerate(names):
        header, repeats = name or f"Unnamed: {index}", 0
        while header in unique:
            repeats += 1
            header = f"{name}.{repeats}"
        unique.append(header)
    return unique


def typed_text(cells: Sequence[str]) -> Sequence[Any]:
    """The cells of a CSV column as integers, floats or booleans if all of them are such, else as text."""
    given = [cell for cell in cells if cell not in NULLS]
    if not given:
        return [None] * len(cells)
    if all(_INTEGER.fullmatch(cell) for cell in given):
        fits = all(-(1 << 63) <= int(cell) < 1 << 64 for cell in given)
        # a column with empty cells is a column of floats, as in pandas
        convert: Callable[[str], Any] = int if fits and len(given) == len(cells) else float
    elif all(map(_is_float, given)):
        convert = float
    elif all(cell in _BOOLEANS for cell in given):
        convert = _BOOLEANS.__getitem__
    else:
        convert = str
    return [None if cell in NULLS else convert(cell) for cell in cells]


def _is_float(cell: str) -> bool:
    if "_" in cell:  # float() accepts 1_000, but CSV does not have such numbers
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


MAX_BYTES: Final = 2 << 30  # of a file, decompressed
COMPRESSED: Final = {".gz": "gzip", ".zst": "zstd"}


def read_json(path: Path, field: str | None = None) -> list[Row]:
    """Read a file with an object per line, or with an array of objects, or with an array under the key ``field``."""
    if field is None and _first_bytes(path) != b"[":
        return typed([_object(row, f"{path}:{line}") for line, row in _json_lines(path)])
    content = _decoded(_text(path), str(path))
    if field is not None:
        if not isinstance(content, Mapping) or not isinstance(field, str) or field not in content:
            raise InputError.at(str(path), f"no key {field!r}", "expected an object with it")
        content = content[field]
    if isinstance(content, Mapping) and all(isinstance(column, list) for column in content.values()):
        content = [dict(zip(content, cells, strict=False)) for cells in zip(*content.values(), strict=False)]
    rows = content if isinstance(content, list) else [content]
    objects = [_object(row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]
    return typed(objects, of_field=field is not None)


def _json_lines(path: Path) -> Any:
    if path.suffix not in COMPRESSED:
        return json_lines(path)
    lines = enumerate(_text_lines(path), 1)
    return ((number, _decoded(line, f"{path}:{number}")) for number, line in lines if line.strip())


def _decoded(text: str, location: str) -> Any:
    try:
        return decoded(text)
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
    """Read comma-separated values with a header; a column of only integers, floats or booleans gets this type."""
    header = names or column_names or ()
    if header and not (isinstance(header, (list, tuple)) and all(isinstance(name, str) for name in header)):
        raise InputError.at(str(path), f"the names of its columns are {shown(header)}", "expected a list of texts")
    separator = delimiter or sep or ("\t" if path.name.removesuffix(".gz").endswith(".tsv") else ",")
    limit_before = csv.field_size_limit(1 << 27)
    try:
        reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=separator, quotechar=quotechar)
        records = [record for record in reader if record]
    except (csv.Error, TypeError) as error:
        raise InputError.at(str(path), f"is not valid CSV ({error})") from None
    finally:
        csv.field_size_limit(limit_before)
    header = header or header_names(records.pop(0) if records else [])
    width = len(header)
    for number, record in enumerate(records, 1):
        if len(record) > width:
            problem = f"record {number} has {len(record)} cells for {width} columns"
            raise InputError.at(str(path), problem, "expected one per column")
    columns = [typed_text([record[i] if i < len(record) else "" for record in records]) for i in range(width)]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)] if columns else []


def read_text(path: Path, sample_by: str = "line") -> list[Row]:
    """Read a text file: a document per line, per paragraph or per file (``sample_by``), in the column ``text``."""
    if sample_by == "line":
        return [{"text": line} for line in _text_lines(path)] if _content(path, 1) else []
    text = re.sub(r"\r\n?", "\n", _text(path))
    if sample_by not in ("paragraph", "document"):
        raise InputError.at(str(path), f"sample_by is {sample_by!r}", "expected line, paragraph or document")
    return [{"text": part} for part in (text.split("\n\n") if sample_by == "paragraph" else [text]) if part]


def read_parquet(path: Path, columns: list[str] | None = None) -> list[Row]:
    """Read the rows of a Parquet file."""
    import polars as pl

    return _frame_rows(path, lambda: pl.read_parquet(path, columns=columns))


def read_arrow(path: Path) -> list[Row]:
    """Read the rows of an Arrow file, in the file format or in the stream format that ``datasets`` writes."""
    import polars as pl

    is_file = _first_bytes(path, 6) == b"ARROW1"
    return _frame_rows(path, lambda: pl.read_ipc(path) if is_file else pl.read_ipc_stream(path))


def _frame_rows(path: Path, read: Callable[[], Any]) -> list[Row]:
    opened(path).close()
    try:
        rows: list[Row] = read().to_dicts()
    except Exception as error:  # polars raises errors of many classes, among them panics
        first_line = str(error).strip().partition("\n")[0]
        raise InputError.at(str(path), f"cannot be read ({first_line})") from None
    return rows


def _first_bytes(path: Path, count: int = 1) -> bytes:
    """The first bytes of a file's content after whitespace."""
    return _content(path, 4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:count]


def _text_lines(path: Path) -> list[str]:
    return re.split(r"\r\n|\r|\n", _text(path).removesuffix("\n"))


def _text(path: Path) -> str:
    try:
        return _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.at(str(path), f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None


def _content(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The decompressed bytes of a file, at most ``max_bytes``; InputError for an incomplete compressed file."""
    with opened(path) as stream:
        try:
            # one byte more than the limit shows that a file is too large
            content = read_up_to(_decompressed(path, stream), max_bytes + (max_bytes == MAX_BYTES))
        except (OSError, EOFError, zlib.error) as error:
            if path.suffix not in COMPRESSED:
                raise InputError.at(str(path), f"cannot be read ({error})") from None
            problem = f"cannot be unpacked as {COMPRESSED[path.suffix]} ({error})"
            raise InputError.at(str(path), problem, "is it complete?") from None
    if len(content) > MAX_BYTES:
        raise InputError.at(str(path), f"larger than {MAX_BYTES >> 30} GiB", "expected documents")
    return content


def _decompressed(path: Path, stream: io.BufferedReader) -> Any:
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


OLDEST_SAFE: Final = Version("5.2")  # the first release of datasets whose builders run no script and no pickle
SCHEMES: Final = ("https", "hf")
OPTIONS: Final = (  # of load_dataset; for a kind in READERS also the options of its reader
    "data_dir",
    "data_files",
    "download_mode",
    "features",
    "keep_in_memory",
    "revision",
    "split",
    "streaming",
    "trust_remote_code",  # accepted, and never passed on
    "verification_mode",
)
BUILDERS: Final = frozenset(  # the builders of all releases of datasets so far that are not in READERS
    (
        *("audiofolder", "cache", "conll", "eval", "fasta", "fastq", "folder_based_builder", "genbank", "generator"),
        *("harbor", "hdf5", "iceberg", "imagefolder", "lance", "meshfolder", "mmcif", "niftifolder", "pandas"),
        *("pdb", "pdffolder", "pickle", "spark", "sql", "tsfile", "videofolder", "vortex", "webdataset", "xml"),
    )
)
TRUST_ADVICE: Final = "read the task first, then run it with --trust"
_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_SCHEME: Final = re.compile(r"([A-Za-z][\w+.-]*):")


def refuse_unsafe(config: TaskFields, kwargs: Mapping[str, Any], file: TaskFile) -> None:
    """InputError if a task that is not trusted asks the library for anything that may run code or read other files."""
    path = config.dataset_path or ""
    _refuse_path(path.removeprefix("hf://datasets/"), file.location("dataset_path"))
    location = file.location("dataset_kwargs")
    known = (*OPTIONS, *(READERS[path][1] if path in READERS else ()))
    for key, value in kwargs.items():
        if key not in known:
            problem = f"{shown(key)} may not be given to a dataset of the hub"
            raise InputError.at(location, problem, f"expected {', '.join(known)}; else {TRUST_ADVICE}")
        for text in _texts(value) if key in ("data_files", "data_dir") else ():
            _refuse_name(text, f"{location}.{key}")


def refuse_old(version: str, location: str) -> None:
    """InputError for a release of the library that may run code stored with a dataset."""
    try:
        old = Version(version) < OLDEST_SAFE
    except InvalidVersion:
        old = True
    if old:
        problem = f"the library datasets is {shown(version)}, which may run code stored with the data"
        raise InputError.at(location, problem, f"expected datasets>={OLDEST_SAFE}; else {TRUST_ADVICE}")


def _refuse_path(path: str, location: str) -> None:
    if path in READERS:
        return
    if path in BUILDERS:
        expected = f"expected {', '.join(READERS)} or a dataset of the hub; else {TRUST_ADVICE}"
        raise InputError.at(location, f"{path} is a builder of the library datasets", expected)
    if not _HUB.fullmatch(path) or path.endswith(".py") or os.path.lexists(path):
        expected = f"expected {', '.join(READERS)}, a folder of such files or the name of a dataset on the hub"
        raise InputError.at(location, f"is {shown(path)}", f"{expected}; else {TRUST_ADVICE}")


def _refuse_name(name: str, location: str) -> None:
    scheme = _SCHEME.match(name)
    if "::" in name or name.count("://") > 1 or ("://" in name and not scheme):
        problem = f"{shown(name)} is a chain of several URLs"
        raise InputError.at(location, problem, f"expected one URL or path; else {TRUST_ADVICE}")
    if scheme and scheme[1].lower() not in SCHEMES:
        problem = f"{shown(name)} has the scheme {scheme[1]}"
        raise InputError.at(location, problem, f"expected {' or '.join(SCHEMES)}; else {TRUST_ADVICE}")


def _texts(value: Any) -> Iterator[str]:
    """Every text in a nested value, except the keys of mappings, which are names of splits."""
    if isinstance(value, Mapping):
        value = list(value.values())
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, (Mapping, list, tuple)):
            yield from _texts(item)
        elif item is not None:
            yield str(item)


Rows = Sequence[Mapping[str, Any]]

KWARGS: Final = ("data_files", "data_dir", "field", "trust_remote_code")  # in addition to the options of a reader
SPLIT_WORDS: Final = (  # split -> words in the names of its files
    ("train", ("train", "training")),
    ("validation", ("validation", "valid", "val", "dev")),
    ("test", ("test", "testing", "eval", "evaluation")),
)


@dataclass(frozen=True, slots=True)
class Splits:
    """The splits of a dataset; each is read on access."""

    location: str
    readers: Mapping[str, Callable[[], Rows]]

    def __getitem__(self, name: str) -> Rows:
        if name not in self.readers:
            known = ", ".join(self.readers) or "(none)"
            raise InputError.at(self.location, f"the dataset has no split {name!r}", f"it has {known}")
        return self.readers[name]()


def load_splits(config: TaskFields, file: TaskFile, *, trust: bool = False) -> Splits:
    """The splits of a task's dataset; InputError for a missing file, format or library.

    Without trust, `refuse_unsafe` limits what the library ``datasets`` may be asked for.
    """
    kwargs = dict(config.dataset_kwargs or {})
    if config.custom_dataset is not None:
        return _custom(config, kwargs, file.location("custom_dataset"))
    path = config.dataset_path
    if path is None:
        raise InputError.at(file.location("task"), "no dataset_path", "expected one, such as json with data_files")
    remote = any("://" in str(name) for name in _file_names(kwargs))
    if not remote and (path in READERS or os.path.isdir(path)):
        return _local(path, kwargs, file)
    if not trust:
        refuse_unsafe(config, kwargs, file)
    return _library(config, kwargs, file.location("dataset_path"), trust=trust)


def _local(path: str, kwargs: dict[str, Any], file: TaskFile) -> Splits:
    location = file.location("dataset_kwargs")
    kwargs.pop("trust_remote_code", None)  # the readers of local files run no code
    data_files, folder = kwargs.pop("data_files", None), kwargs.pop("data_dir", None)
    if path not in READERS:
        folder, path = path, ""
    if data_files is None and folder is None:
        raise InputError.at(location, "no data_files", "expected files, such as data_files: {test: data.jsonl}")
    if data_files is not None:
        files_by_split = _listed_files(data_files, folder, file, location)
    else:
        files_by_split = _folder_files(str(folder), path, file, location)
    readers: dict[str, Callable[[], Rows]] = {}
    for split, files in files_by_split.items():
        kind = path or SUFFIXES[_suffix(files[0])]
        read, known = READERS[kind]
        for key in kwargs:
            if key not in known:
                error = UnknownName.of(f"option of {kind} files", str(key), (*KWARGS, *known))
                raise UnknownName(f"{location}: {error}")
        readers[split] = cache(partial(_rows, read, files, kwargs))  # read once, on first access
    return Splits(file.location("dataset_path"), readers)


def _rows(read: Callable[..., list[Row]], files: Sequence[Path], options: Mapping[str, Any]) -> Rows:
    return united([row for file in files for row in read(file, **options)])


def united(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows that all have the same columns, in the order of first occurrence; missing cells are None."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return [{column: row.get(column) for column in columns} for row in rows]


def _file_names(kwargs: Mapping[str, Any]) -> Iterator[Any]:
    data_files = kwargs.get("data_files")
    for names in data_files.values() if isinstance(data_files, Mapping) else [data_files]:
        yield from names if isinstance(names, list) else [names]


def _listed_files(data_files: Any, folder: Any, file: TaskFile, location: str) -> dict[str, list[Path]]:
    """The files of each split; a text or a list that is not in a mapping is the split ``train``."""
    splits = data_files if isinstance(data_files, Mapping) else {"train": data_files}
    files_by_split: dict[str, list[Path]] = {}
    for split, given in splits.items():
        names = given if isinstance(given, list) else [given]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InputError.at(f"{location}.data_files", f"is {shown(given)}", "expected a path or a list of paths")
        prefix = f"{folder}/" if folder else ""
        files_by_split[str(split)] = [
            path for name in names for path in _matching_files(f"{prefix}{name}", file, location)
        ]
    return files_by_split


def _matching_files(name: str, file: TaskFile, location: str) -> list[Path]:
    """The files that a path or pattern matches in the working directory, else in the task's folder."""
    folders = list(dict.fromkeys([Path(), *([file.path.parent] if file.path else [])]))
    for folder in folders:
        path = folder / name
        if os.path.isfile(path):  # unlike Path.is_file, it is False for an invalid path, such as one that is too long
            return [path]
        if glob.has_magic(name) and (matches := sorted(glob.glob(str(path), recursive=True))):
            return [Path(match) for match in matches if Path(match).is_file()]
    where = " or ".join(map(str, folders))
    raise InputError.at(f"{location}.data_files", f"no file {name}", f"expected it in {where}")


def _folder_files(name: str, kind: str, file: TaskFile, location: str) -> dict[str, list[Path]]:
    """The files of a folder by split, which is recognised by words in their names; ``train`` if none has such words."""
    candidates = [Path(name), *([file.path.parent / name] if file.path else [])]
    folder = next((candidate for candidate in candidates if os.path.isdir(candidate)), None)
    if folder is None:
        raise InputError.at(location, f"no folder {name}", "expected one with files of data")
    paths = sorted(folder.rglob("*"))
    if kind:
        files = [path for path in paths if path.is_file() and SUFFIXES.get(_suffix(path), kind) == kind]
    else:
        kind_of_first = next((SUFFIXES[_suffix(path)] for path in paths if _suffix(path) in SUFFIXES), None)
        files = [path for path in paths if kind_of_first and SUFFIXES.get(_suffix(path)) == kind_of_first]
    files_by_split: dict[str, list[Path]] = {}
    for path in files:
        words = set(re.split(r"[^a-z]+", path.relative_to(folder).as_posix().lower()))
        split = next((split for split, split_words in SPLIT_WORDS if words & set(split_words)), None)
        if split:
            files_by_split.setdefault(split, []).append(path)
    if not files:
        raise InputError.at(location, f"no files of data in {folder}", f"expected {', '.join(SUFFIXES)}")
    return files_by_split or {"train": files}


def _suffix(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix


def _custom(config: TaskFields, kwargs: Mapping[str, Any], location: str) -> Splits:
    function: Any = config.custom_dataset

    def call() -> Any:
        return function(**(config.metadata or {}), **kwargs)

    if callable(function):
        call.__name__ = getattr(function, "__name__", "custom_dataset")
    splits = called(call if callable(function) else function, location)
    if not isinstance(splits, Mapping):
        raise PluginError(
            f"{location}: {call.__name__} returns a {type(splits).__name__}; expected a mapping of splits"
        )
    return _of_mapping(splits, location)


def _library(config: TaskFields, kwargs: dict[str, Any], location: str, *, trust: bool = False) -> Splits:
    """A dataset of the hub, or one that only the library can read; its remote code is never run."""
    kwargs.pop("trust_remote_code", None)
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError as error:
        problem = f"{config.dataset_path} is a dataset of the hub"
        if is_installed("datasets"):
            problem += f", and the library datasets is installed but cannot be imported ({error})"
            raise InputError.at(location, problem, "repair its installation, or give local files") from None
        raise InputError.at(location, problem, "install calipers[hf] to load it, or give local files") from None
    if not trust:
        refuse_old(str(datasets.__version__), location)
    try:
        dataset = datasets.load_dataset(config.dataset_path, config.dataset_name, **kwargs)
    except Exception as error:  # the library raises errors of many classes
        first_line = str(error).strip().partition("\n")[0]
        problem = f"{config.dataset_path} cannot be loaded ({type(error).__name__}: {first_line})"
        raise InputError.at(location, problem) from None
    return _of_mapping(dataset if isinstance(dataset, Mapping) else {"train": dataset}, location)


def _of_mapping(splits: Mapping[str, Any], location: str) -> Splits:
    def reader(split: Any) -> Callable[[], Rows]:
        return lambda: [dict(row) for row in split]

    return Splits(location, {str(name): reader(split) for name, split in splits.items()})


def processed(rows: Rows, function: Any, location: str) -> Rows:
    """The rows after ``process_docs``, which gets a ``datasets.Dataset`` if that library is installed."""
    if function is None:
        return rows
    dataset = _dataset(rows)
    if dataset is None:
        try:
            documents = function(deepcopy(list(rows)))  # a copy, because the function may change the rows
        except AttributeError as error:
            reason = "expects a datasets.Dataset; install calipers[hf]"
            if is_installed("datasets"):
                reason = "expects a datasets.Dataset, and the library datasets is installed but cannot be imported"
            raise PluginError(f"{location}: {getattr(function, '__name__', 'it')} {reason} ({error})") from error
        except Exception as error:
            raise PluginError(f"{location}: failed: {type(error).__name__}: {error}") from error
    else:
        documents = called(function, dataset, location)
    try:
        return united([dict(row) for row in documents])
    except (TypeError, ValueError):
        raise PluginError(f"{location}: returns a {type(documents).__name__}; expected documents") from None


def _dataset(rows: Rows) -> Any:
    """The rows as a ``datasets.Dataset``; None if the library is not installed."""
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]  # an extra
        from datasets.table import InMemoryTable  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError:
        return None
    table = InMemoryTable.from_pylist([dict(row) for row in rows])
    return datasets.Dataset(table, fingerprint=uuid4().hex[:16])  # without a fingerprint it pickles the table for one
