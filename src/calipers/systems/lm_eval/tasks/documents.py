"""The documents of a task, split by split: local files read here, anything else by the library ``datasets``.

Local is ``dataset_path: json | csv | parquet | text | arrow`` with ``dataset_kwargs.data_files`` (or
``data_dir``), and a folder as ``dataset_path``. A relative path is looked for from the working directory,
as lm-evaluation-harness does, and then from the task's own folder. Cells are typed as ``datasets`` types them.
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
from calipers.systems.lm_eval.tasks.prompts import called
from calipers.systems.lm_eval.tasks.task_file import TaskFields, TaskFile, is_installed, shown

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
        if kinds == {int} and all(-(1 << 63) <= cell < 1 << 63 for cell in given):
            return cells
        try:
            return _filled(cells, list(map(float, given)))
        except OverflowError:  # an integer of hundreds of digits, which no float holds
            return None
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
        if not isinstance(content, Mapping) or not isinstance(field, str) or field not in content:
            raise InputError.at(str(path), f"no key {field!r}", "expected an object with it")
        content = content[field]
    if isinstance(content, Mapping) and all(isinstance(column, list) for column in content.values()):
        return [dict(zip(content, cells, strict=False)) for cells in zip(*content.values(), strict=False)]
    several = content if isinstance(content, list) else [content]
    return typed([_object(row, f"{path}: row {number}") for number, row in enumerate(several, 1)])


def _lines(path: Path) -> Any:
    if path.suffix not in PACKED:
        return json_lines(path)
    return (
        (number, _decoded(line, f"{path}:{number}"))
        for number, line in enumerate(_lines_of_text(path), 1)
        if line.strip()
    )


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
    listed = names or column_names
    if listed and not (isinstance(listed, (list, tuple)) and all(isinstance(name, str) for name in listed)):
        raise InputError.at(str(path), f"the names of its columns are {shown(listed)}", "expected a list of texts")
    mark = delimiter or sep or ("\t" if path.name.removesuffix(".gz").endswith(".tsv") else ",")
    before = csv.field_size_limit(1 << 27)
    try:
        reader = csv.reader(
            io.StringIO("".join(_lines_of_text(path, keep=True)), newline=""), delimiter=mark, quotechar=quotechar
        )
        records = [record for record in reader if record]
    except (csv.Error, TypeError) as error:
        raise InputError.at(str(path), f"is not valid CSV ({error})") from None
    finally:
        csv.field_size_limit(before)
    header = list(listed or ()) or header_names(records.pop(0) if records else [])
    for number, record in enumerate(records, 1):
        if len(record) > len(header):
            wrong = f"record {number} has {len(record)} cells for {len(header)} columns"
            raise InputError.at(str(path), wrong, "expected one per column")
    columns = [typed_text([record[at] if at < len(record) else "" for record in records]) for at in range(len(header))]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)] if columns else []


def read_text(path: Path, sample_by: str = "line") -> list[Row]:
    """A document a line, in the column ``text``; a paragraph or the whole file where ``sample_by`` says so."""
    if sample_by == "line":
        return [{"text": line} for line in _lines_of_text(path)] if _content(path, 1) else []
    whole = "".join(_lines_of_text(path, keep=True))
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


def _lines_of_text(path: Path, keep: bool = False) -> list[str]:
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
            raise InputError.at(str(path), wrong, "is it complete?") from None
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


FLOOR: Final = Version("5.2")  # the first release whose builders run nothing: no script, no pickle
SCHEMES: Final = ("https", "hf")
OPTIONS: Final = (  # of load_dataset; those of our readers come on top where the kind is one of theirs
    "data_dir",
    "data_files",
    "download_mode",
    "features",
    "keep_in_memory",
    "revision",
    "split",
    "streaming",
    "trust_remote_code",  # taken, and never passed on
    "verification_mode",
)
BUILDERS: Final = frozenset(  # of any release so far; the names of ours are taken from READERS
    (
        *("audiofolder", "cache", "conll", "eval", "fasta", "fastq", "folder_based_builder", "genbank", "generator"),
        *("harbor", "hdf5", "iceberg", "imagefolder", "lance", "meshfolder", "mmcif", "niftifolder", "pandas"),
        *("pdb", "pdffolder", "pickle", "spark", "sql", "tsfile", "videofolder", "vortex", "webdataset", "xml"),
    )
)
TRUSTING: Final = "read the task first, then run it with --trust"
_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_SCHEME: Final = re.compile(r"([A-Za-z][\w+.-]*):")


def refuse_unsafe(config: TaskFields, kwargs: Mapping[str, Any], file: TaskFile) -> None:
    """InputError where a task asks the library for more than a file without trust may."""
    path = config.dataset_path or ""
    _refuse_path(path.removeprefix("hf://datasets/"), file.place("dataset_path"))
    location = file.place("dataset_kwargs")
    known = (*OPTIONS, *(READERS[path][1] if path in READERS else ()))
    for key, value in kwargs.items():
        if key not in known:
            wrong = f"{shown(key)} may not be given to a dataset of the hub"
            raise InputError.at(location, wrong, f"expected {', '.join(known)}; else {TRUSTING}")
        for text in _texts(value) if key in ("data_files", "data_dir") else ():
            _refuse_name(text, f"{location}.{key}")


def refuse_old(version: str, location: str) -> None:
    """InputError for a release of the library that runs code on its own."""
    try:
        old = Version(version) < FLOOR
    except InvalidVersion:
        old = True
    if old:
        wrong = f"the library datasets is {shown(version)}, which may run code stored with the data"
        raise InputError.at(location, wrong, f"expected datasets>={FLOOR}; else {TRUSTING}")


def _refuse_path(path: str, location: str) -> None:
    if path in READERS:
        return
    if path in BUILDERS:
        wrong = f"{path} is a builder of the library datasets"
        raise InputError.at(location, wrong, f"expected {', '.join(READERS)} or a dataset of the hub; else {TRUSTING}")
    if not _HUB.fullmatch(path) or path.endswith(".py") or os.path.lexists(path):
        right = f"expected {', '.join(READERS)}, a folder of such files or the name of a dataset on the hub"
        raise InputError.at(location, f"is {shown(path)}", f"{right}; else {TRUSTING}")


def _refuse_name(name: str, location: str) -> None:
    scheme = _SCHEME.match(name)
    if "::" in name or name.count("://") > 1 or ("://" in name and not scheme):
        raise InputError.at(
            location, f"{shown(name)} is a chain of several URLs", (f"expected one URL or path; else {TRUSTING}")
        )
    if scheme and scheme[1].lower() not in SCHEMES:
        wrong = f"{shown(name)} has the scheme {scheme[1]}"
        raise InputError.at(location, wrong, f"expected {' or '.join(SCHEMES)}; else {TRUSTING}")


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, however deep; keys are names of splits."""
    if isinstance(value, Mapping):
        value = list(value.values())
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, (Mapping, list, tuple)):
            yield from _texts(item)
        elif item is not None:
            yield str(item)


Rows = Sequence[Mapping[str, Any]]

KWARGS: Final = ("data_files", "data_dir", "field", "trust_remote_code")  # besides those of a kind of file
NAMED: Final = (  # what in a file's name says which split it is
    ("train", ("train", "training")),
    ("validation", ("validation", "valid", "val", "dev")),
    ("test", ("test", "testing", "eval", "evaluation")),
)


@dataclass(frozen=True, slots=True)
class Splits:
    """The splits of a dataset, each read when it is asked for."""

    place: str
    readers: Mapping[str, Callable[[], Rows]]

    def __getitem__(self, name: str) -> Rows:
        if name not in self.readers:
            known = ", ".join(self.readers) or "(none)"
            raise InputError.at(self.place, f"the dataset has no split {name!r}", f"it has {known}")
        return self.readers[name]()


def load_splits(config: TaskFields, file: TaskFile, *, trust: bool = False) -> Splits:
    """The splits that a task's fields name; InputError for a file, format or library that is not there.

    Without trust no more is asked of the library ``datasets`` than `untrusted` lets through.
    """
    kwargs = dict(config.dataset_kwargs or {})
    if config.custom_dataset is not None:
        return _custom(config, kwargs, file.place("custom_dataset"))
    path = config.dataset_path
    if path is None:
        raise InputError.at(file.place("task"), "no dataset_path", "expected one, such as json with data_files")
    remote = any("://" in str(name) for names in _named(kwargs) for name in names)
    if not remote and (path in READERS or os.path.isdir(path)):
        return _local(path, kwargs, file)
    if not trust:
        refuse_unsafe(config, kwargs, file)
    return _library(config, kwargs, file.place("dataset_path"), trust=trust)


def _local(path: str, kwargs: dict[str, Any], file: TaskFile) -> Splits:
    location = file.place("dataset_kwargs")
    kwargs.pop("trust_remote_code", None)  # nothing here would run any code
    data_files, folder = kwargs.pop("data_files", None), kwargs.pop("data_dir", None)
    if path not in READERS:
        folder, path = path, ""
    if data_files is None and folder is None:
        raise InputError.at(location, "no data_files", "expected files, such as data_files: {test: data.jsonl}")
    files_by_split = (
        _files(data_files, folder, file, location)
        if data_files is not None
        else _in_folder(str(folder), path, file, location)
    )
    readers: dict[str, Callable[[], Rows]] = {}
    for split, files in files_by_split.items():
        kind = path or SUFFIXES[_suffix(files[0])]
        read, known = READERS[kind]
        for key in kwargs:
            if key not in known:
                error = UnknownName.of(f"option of {kind} files", str(key), (*KWARGS, *known))
                raise UnknownName(f"{location}: {error}")
        readers[split] = cache(partial(_rows, read, files, kwargs))  # read once, when somebody asks
    return Splits(file.place("dataset_path"), readers)


def _rows(read: Callable[..., list[Row]], files: Sequence[Path], options: Mapping[str, Any]) -> Rows:
    return united([row for file in files for row in read(file, **options)])


def united(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """The rows with every column of any of them, in the order they are first seen; what is missing is null."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return [{column: row.get(column) for column in columns} for row in rows]


def _named(kwargs: Mapping[str, Any]) -> list[Sequence[Any]]:
    files = kwargs.get("data_files")
    several = list(files.values()) if isinstance(files, Mapping) else [files]
    return [names if isinstance(names, list) else [names] for names in several]


def _files(data_files: Any, folder: Any, file: TaskFile, location: str) -> dict[str, list[Path]]:
    """Split -> files; a text or a list alone is the split ``train``."""
    splits = data_files if isinstance(data_files, Mapping) else {"train": data_files}
    files_by_split: dict[str, list[Path]] = {}
    for split, names in splits.items():
        several = names if isinstance(names, list) else [names]
        if not several or not all(isinstance(name, str) and name for name in several):
            raise InputError.at(f"{location}.data_files", f"is {shown(names)}", "expected a path or a list of paths")
        below = f"{folder}/" if folder else ""
        files_by_split[str(split)] = [
            path for name in several for path in _matching_files(f"{below}{name}", file, location)
        ]
    return files_by_split


def _matching_files(name: str, file: TaskFile, location: str) -> list[Path]:
    """The files that a path or a pattern means: from the working directory, else from the task's folder."""
    homes = list(dict.fromkeys([Path(), *([file.path.parent] if file.path else [])]))
    for home in homes:
        whole = home / name
        if os.path.isfile(whole):  # False for what is no path at all, such as a name of thousands of letters
            return [whole]
        if glob.has_magic(name) and (matches := sorted(glob.glob(str(whole), recursive=True))):
            return [Path(match) for match in matches if Path(match).is_file()]
    where = " or ".join(str(home) for home in homes)
    raise InputError.at(f"{location}.data_files", f"no file {name}", f"expected it in {where}")


def _in_folder(folder: str, kind: str, file: TaskFile, location: str) -> dict[str, list[Path]]:
    """The files of a folder by the split that their names tell; all are ``train`` where none does."""
    homes = [Path(folder), *([file.path.parent / folder] if file.path else [])]
    home = next((candidate for candidate in homes if os.path.isdir(candidate)), None)
    if home is None:
        raise InputError.at(location, f"no folder {folder}", "expected one with files of data")
    below = sorted(home.rglob("*"))
    files = [path for path in below if path.is_file() and SUFFIXES.get(_suffix(path), kind) == kind]
    if not kind:
        first = next((SUFFIXES[_suffix(path)] for path in below if _suffix(path) in SUFFIXES), None)
        files = [path for path in below if first and SUFFIXES.get(_suffix(path)) == first]
    files_by_split: dict[str, list[Path]] = {}
    for path in files:
        words = set(re.split(r"[^a-z]+", path.relative_to(home).as_posix().lower()))
        split = next((name for name, signs in NAMED if words & set(signs)), None)
        if split:
            files_by_split.setdefault(split, []).append(path)
    if not files:
        raise InputError.at(location, f"no files of data in {home}", f"expected {', '.join(SUFFIXES)}")
    return files_by_split or {"train": files}


def _suffix(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix in (".gz", ".zst") else path.suffix


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
    """A dataset of the hub, or one that only the library can read; its remote code is never asked for."""
    kwargs.pop("trust_remote_code", None)
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError as error:
        wrong = f"{config.dataset_path} is a dataset of the hub"
        if is_installed("datasets"):
            wrong += f", and the library datasets is installed but cannot be imported ({error})"
            raise InputError.at(location, wrong, "repair its installation, or give local files") from None
        raise InputError.at(location, wrong, "install calipers[hf] to load it, or give local files") from None
    if not trust:
        refuse_old(str(datasets.__version__), location)
    try:
        dataset = datasets.load_dataset(config.dataset_path, config.dataset_name, **kwargs)
    except Exception as error:  # the library's errors are of every class there is
        first = str(error).strip().partition("\n")[0]
        raise InputError.at(
            location, f"{config.dataset_path} cannot be loaded ({type(error).__name__}: {first})"
        ) from None
    return _of_mapping(dataset if isinstance(dataset, Mapping) else {"train": dataset}, location)


def _of_mapping(splits: Mapping[str, Any], location: str) -> Splits:
    def reader(split: Any) -> Callable[[], Rows]:
        return lambda: [dict(row) for row in split]

    return Splits(location, {str(name): reader(split) for name, split in splits.items()})


def processed(rows: Rows, function: Any, location: str) -> Rows:
    """The rows as ``process_docs`` leaves them. It gets a ``datasets.Dataset`` where that library is installed."""
    if function is None:
        return rows
    dataset = _dataset(rows)
    if dataset is None:
        try:
            documents = function(deepcopy(list(rows)))  # it may change them, and they may be read again
        except AttributeError as error:
            right = "expects a datasets.Dataset; install calipers[hf]"
            if is_installed("datasets"):
                right = "expects a datasets.Dataset, and the library datasets is installed but cannot be imported"
            raise PluginError(f"{location}: {getattr(function, '__name__', 'it')} {right} ({error})") from error
        except Exception as error:
            raise PluginError(f"{location}: failed: {type(error).__name__}: {error}") from error
    else:
        documents = called(function, dataset, location)
    try:
        return united([dict(row) for row in documents])
    except (TypeError, ValueError):
        raise PluginError(f"{location}: returns a {type(documents).__name__}; expected documents") from None


def _dataset(rows: Rows) -> Any:
    """The rows as the library's own dataset; None where it is not installed."""
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]  # an extra
        from datasets.table import InMemoryTable  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError:
        return None
    table = InMemoryTable.from_pylist([dict(row) for row in rows])
    return datasets.Dataset(table, fingerprint=uuid4().hex[:16])  # else it would pickle the table to name it
