"""EvSys' stores of benchmarks, and its cache of pulled benchmarks.

The cache is ``benchmarks/<id>.jsonl`` in ``$EVSYS_WORKSPACE``, or by default in ``.evsys``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.errors import InputError, nearest
from calipers.formats.source import opened
from calipers.stores import atomic_file
from calipers.tasks.jsonl import NotThere, WrongType
from calipers.tasks.store import make_root
from calipers.typed import complete

_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")  # as a file name, it cannot lead out of the cache


class _Cached(msgspec.Struct):
    """The keys of ``<id>.meta.json`` in EvSys' cache that are used here."""

    complete: bool = False
    n_rows: int | None = None
    format: str | None = None


def cached(id: str) -> Path | None:
    """The file of a benchmark's tasks in the cache, None if there is none; InputError if it is incomplete."""
    if not _ID.fullmatch(id):
        return None
    file, meta_file = _cache_files(id)
    if not file.is_file():
        return None
    try:
        meta = msgspec.json.decode(meta_file.read_bytes(), type=complete(_Cached))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError.at(str(meta_file), f"cannot be read ({reason})", "pull the benchmark again") from None
    with opened(file) as stream:
        rows = sum(1 for line in stream if line.strip())
    if not meta.complete or meta.n_rows not in (None, rows):
        problem = f"it is incomplete: {rows} rows of {'an unknown number' if meta.n_rows is None else meta.n_rows}"
        raise InputError.at(str(file), problem, "pull the benchmark again")
    if meta.format not in (None, "harbor_task"):
        raise InputError.at(str(meta_file), f"its rows are {meta.format}", "expected harbor_task")
    return file


def _cache_files(id: str) -> tuple[Path, Path]:
    """The files of a benchmark's tasks and of its metadata."""
    folder = workspace() / "benchmarks"
    return folder / f"{id}.jsonl", folder / f"{id}.meta.json"


def workspace() -> Path:
    """The folder in which EvSys keeps its files."""
    return Path(os.environ.get("EVSYS_WORKSPACE") or ".evsys")


PAGE: Final = 500  # rows per request to a store
SHAPE: Final = (
    "expected list_benchmarks(), which returns a list of {id, name, version}, and pull(id), which returns a path, "
    "or get_benchmark(id) and get_benchmark_rows(id, limit=, offset=)"
)
Lookup = tuple[Callable[[str], str], Callable[[str], Path]]


def evsys_lookup(store: Any) -> Lookup | None:
    """(find, pull) of a store with the methods of EvSys' stores; None for a path, or an object with ``find``.

    ``find(name)`` returns the id of the record with the highest version in ``list_benchmarks()``. ``pull(id)`` returns
    the path from the store's ``pull(id)`` or ``pull_benchmark(id)``, which return a path or an object with one; or it
    writes the benchmark into EvSys' cache, from ``get_benchmark(id)`` and pages of ``get_benchmark_rows``. WrongType
    for a store without these methods, or if they return anything else.
    """
    if store is None or isinstance(store, (str, os.PathLike)) or callable(getattr(store, "find", None)):
        return None
    pulls = [pull for name in ("pull", "pull_benchmark") if callable(pull := getattr(store, name, None))]
    if not pulls and not callable(getattr(store, "get_benchmark_rows", None)):
        expected = (
            "expected a path, or an object with find(name) and pull(id), or an object with the methods of EvSys' store"
        )
        raise WrongType(f"the store is a {type(store).__name__}; {expected}: {SHAPE.removeprefix('expected ')}")
    pull = partial(_pulled, pulls[0]) if pulls else partial(_downloaded, store)
    return partial(_find, store), pull


def _find(store: Any, name: str) -> str:
    """The id of the highest version of a benchmark."""
    list_benchmarks = getattr(store, "list_benchmarks", None)
    if not callable(list_benchmarks):
        raise WrongType(f"the store is a {type(store).__name__} without list_benchmarks(); give an id, not a name")
    records = list_benchmarks() or []
    if not isinstance(records, (list, tuple)) or not all(isinstance(record, Mapping) for record in records):
        raise WrongType(f"list_benchmarks() returned {_kind(records)}; {SHAPE}")
    matches = [record for record in records if record.get("name") == name]
    if not matches:
        known = sorted({str(record.get("name")) for record in records})
        close = nearest(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}" if known else "it has none"
        raise NotThere(f"no benchmark named {name!r} in this project; {hint}")
    latest = max(matches, key=_version)
    if latest.get("id") is None:
        raise WrongType(f"list_benchmarks() returned a record of {name!r} without an id; {SHAPE}")
    return str(latest["id"])


def _version(record: Mapping[str, Any]) -> int:
    try:
        return int(record.get("version") or 1)
    except (TypeError, ValueError):
        raise WrongType(f"list_benchmarks() returned the version {record['version']!r}; {SHAPE}") from None


def _pulled(pull: Callable[[str], Any], id: str) -> Path:
    """The path that a store's ``pull`` returns for a benchmark."""
    answer = pull(id)
    if answer is None:
        raise NotThere(f"benchmark {id} not found")
    path = getattr(answer, "path", answer)
    if not isinstance(path, (str, os.PathLike)):
        expected = "expected the path of a directory with tasks.jsonl, of a file of tasks, or an object with path"
        raise WrongType(f"{getattr(pull, '__name__', 'pull')}({id!r}) returned {_kind(answer)}; {expected}")
    return Path(path)


def _downloaded(store: Any, id: str) -> Path:
    """The file of a benchmark in EvSys' cache. Unless it is complete, it is written from the store's pages."""
    describe = getattr(store, "get_benchmark", None)
    meta = describe(id) if callable(describe) else None
    if meta is None:
        raise NotThere(f"benchmark {id} not found")
    if not isinstance(meta, Mapping):
        raise WrongType(f"get_benchmark({id!r}) returned {_kind(meta)}; {SHAPE}")
    if not _ID.fullmatch(id):
        raise InputError(f"the benchmark's id is {id!r}; expected letters, digits, '.', '_' and '-'")
    file, meta_file = _cache_files(id)
    if _is_complete(meta_file, meta.get("n_rows")) and file.is_file():
        return file
    make_root(workspace(), file.parent)
    with atomic_file(file) as lines:
        written = 0
        for row in _rows(store, id):
            lines.write(msgspec.json.encode(row) + b"\n")
            written += 1
        if meta.get("n_rows") not in (None, 0, written):  # a page is missing, and a part of a benchmark is another one
            raise InputError(
                f"the store returned {written} rows of benchmark {id}; expected {meta['n_rows']}, the number it reports"
            )
    description = {key: meta.get(key) for key in ("version", "format", "transform")}
    meta_file.write_bytes(msgspec.json.encode({"id": id, "n_rows": written, "complete": True, **description}))
    return file


def _is_complete(meta_file: Path, rows: Any) -> bool:
    try:
        meta = msgspec.json.decode(meta_file.read_bytes(), type=complete(_Cached))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False  # the benchmark is pulled again
    return meta.complete and meta.n_rows == rows


def _rows(store: Any, id: str) -> Iterator[Any]:
    offset = 0
    while page := store.get_benchmark_rows(id, limit=PAGE, offset=offset):
        if not isinstance(page, (list, tuple)) or not all(isinstance(row, Mapping) for row in page):
            raise WrongType(f"get_benchmark_rows({id!r}) returned {_kind(page)}; {SHAPE}")
        yield from (row.get("payload", row) for row in page)
        if len(page) < PAGE:
            return
        offset += PAGE


def _kind(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
