"""The store of benchmarks in a project: every version is complete or absent.

::

    .calipers/.gitignore                                 holds *
    .calipers/benchmarks/<key>/v1/{tasks.jsonl, metadata.yaml, published.json}
    .calipers/benchmarks/<key>/v2/...

A version is written to a temporary directory and then renamed. The rename fails if another process was first, so two
publishers never write the same version, and no reader sees an incomplete one. The key is the benchmark's name with
only characters that are safe in a path, followed by some digits of the name's hash, which make it unique.

EvSys' cache, ``benchmarks/<id>.jsonl`` under ``$EVSYS_WORKSPACE`` or ``.evsys``, is searched, too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from calipers.errors import InputError, nearest
from calipers.formats.source import opened
from calipers.names import BENCHMARK_CACHES, load
from calipers.tasks import Suite
from calipers.tasks.jsonl import METADATA, TASKS, NotThere, WrongType, read_metadata, read_suite, suite_name, tasks_file
from calipers.typed import complete

ROOT: Final = ".calipers"
RECORD: Final = "published.json"
NOTHING: Final = f"expected a directory with {TASKS}, a published name, or a task of lm-eval with --include-path"
_ID: Final = re.compile(r"(?P<key>[A-Za-z0-9_-]{1,80})\.v(?P<version>[1-9][0-9]{0,8})")

Status = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a benchmark in the store, and what publishing changed."""

    id: str
    name: str
    version: int
    sha256: str  # of tasks.jsonl, as in EvSys
    status: Status
    tasks: int  # number of tasks
    notes: tuple[str, ...] = ()  # what its reader ignored, such as unknown fields


class _VersionRecord(msgspec.Struct, forbid_unknown_fields=False):
    """The content of ``published.json``: the version as it was published."""

    name: str
    version: int
    sha256: str
    metadata_sha256: str
    tasks: int


def publish(directory: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Published:
    """Put a benchmark into the store as its next version, unless the latest version has the same bytes.

    Both files are compared: the same tasks with another ``metadata.yaml`` are a new version.
    """
    source = Path(directory)
    if not source.is_dir():
        advice = f"; calipers init NAME --from {source} makes one" if source.is_file() else ""
        raise NotThere(f"benchmark dir not found: {source}; expected a directory with {TASKS}{advice}")
    suite = read_suite(source)
    versions_folder = _versions_folder(_root(root), suite.name)
    make_root(_root(root), versions_folder)
    try:
        copy = Path(tempfile.mkdtemp(prefix=".new-", dir=versions_folder))
    except OSError as error:
        raise _unwritable(versions_folder, error) from None
    try:
        record = _copy(source, copy, suite.name, len(suite.tasks))
        if record.sha256 != suite.sha256:
            raise InputError.at(
                str(source / TASKS), "changed while it was read", "expected a file that does not change"
            )
        return _publish_copy(copy, versions_folder, record, tuple(suite.notes))
    except OSError as error:
        raise _unwritable(versions_folder, error) from None
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def find(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """The id of a benchmark's latest version, or of the version in ``name@version``."""
    by_full_name = _versions_folder(_root(root), name)
    if latest := _latest(by_full_name):
        return f"{by_full_name.name}.v{latest.version}"
    bare_name, at, version = name.rpartition("@")
    versions_folder = _versions_folder(_root(root), bare_name)
    newest = _latest(versions_folder) if at else None
    if newest and version in map(str, _versions(versions_folder)):
        return f"{versions_folder.name}.v{version}"
    if newest:
        available = f"its versions are {', '.join(map(str, _versions(versions_folder)))}"
        raise NotThere(f"no benchmark named {name!r} in this project; {available}")
    close = nearest(name, known := names(root), 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}" if known else NOTHING
    raise NotThere(f"no benchmark named {name!r} in this project; {hint}")


def pull(id: str, root: str | os.PathLike[str] | None = None) -> Path:
    """The directory of a published version, or the file of tasks with this id in EvSys' cache."""
    folder = _pulled(id, root)
    if folder is None:
        raise NotThere(f"benchmark {id} not found; publish it, or look it up by its name")
    return folder


def _pulled(id: str, root: str | os.PathLike[str] | None) -> Path | None:
    if parts := _ID.fullmatch(id):
        folder = _root(root) / "benchmarks" / parts["key"] / f"v{parts['version']}"
        if _record(folder):
            return folder
    caches = map(load, BENCHMARK_CACHES) if root is None else ()
    return next((folder for cached in caches if (folder := cached(id)) is not None), None)


def load_suite(benchmark: str) -> Suite:
    """The benchmark with a path, a name, ``name@version`` or an id; an existing path takes precedence."""
    if os.path.lexists(benchmark):
        return read_suite(benchmark)
    if os.sep in benchmark or benchmark.endswith(".jsonl"):
        raise NotThere(f"{benchmark}: no such file or directory; expected a benchmark: a directory with {TASKS}")
    folder = _pulled(benchmark, None) or pull(find(benchmark))
    record = _record(folder)
    return replace(read_suite(folder), name=record.name if record else benchmark)


def lookup(store: Any = None) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    """The functions ``find`` and ``pull`` of a store: None is this project's store, a path is that of another one.

    Any other object must have both functions itself.
    """
    if store is None or isinstance(store, (str, os.PathLike)):
        return partial(find, root=store), partial(pull, root=store)
    if callable(getattr(store, "find", None)) and callable(getattr(store, "pull", None)):
        return store.find, store.pull
    expected = "expected a path, or an object with find(name) and pull(id)"
    raise WrongType(f"the store is a {type(store).__name__}; {expected}")


def names(root: str | os.PathLike[str] | None = None) -> list[str]:
    """The names of all benchmarks in the store, sorted."""
    with suppress(OSError):
        folders = [entry for entry in (_root(root) / "benchmarks").iterdir() if entry.is_dir()]
        return sorted(latest.name for folder in folders if (latest := _latest(folder)))
    return []


def _publish_copy(copy: Path, folder: Path, record: _VersionRecord, notes: tuple[str, ...]) -> Published:
    """Give a complete copy the next version number; tries again if another process has taken the number."""
    while True:
        versions = _versions(folder)  # listed once, so that the new version follows the one it is compared with
        latest = _newest(folder, versions)
        if latest and (latest.sha256, latest.metadata_sha256) == (record.sha256, record.metadata_sha256):
            return _published(folder, latest, "unchanged", notes)
        record.version = max(versions, default=0) + 1
        (copy / RECORD).write_bytes(msgspec.json.encode(record))
        if _renamed(copy, folder / f"v{record.version}"):
            return _published(folder, record, "updated" if latest else "created", notes)


def _renamed(source: Path, target: Path) -> bool:
    """Rename a directory; False if the target exists."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def _copy(source: Path, target: Path, name: str, tasks: int) -> _VersionRecord:
    """Copy both files, sync them to disk, and return their record."""
    hashes: dict[str, str] = {}
    for file in (tasks_file(source), source / METADATA):
        digest = hashlib.sha256()
        if file.name == TASKS or os.path.lexists(file):
            with opened(file) as original, open(target / file.name, "xb") as copy:
                while piece := original.read(1 << 20):
                    digest.update(piece)
                    copy.write(piece)
                copy.flush()
                os.fsync(copy.fileno())
        hashes[file.name] = digest.hexdigest()
    target.chmod(0o755)
    if suite_name(source, read_metadata(target)) != name:
        raise InputError.at(str(source / METADATA), "changed while it was read", "expected a file that does not change")
    return _VersionRecord(name, 0, hashes[TASKS], hashes[METADATA], tasks)


def _published(versions_folder: Path, record: _VersionRecord, status: Status, notes: tuple[str, ...]) -> Published:
    id = f"{versions_folder.name}.v{record.version}"
    return Published(id, record.name, record.version, record.sha256, status, record.tasks, notes)


def _versions(folder: Path) -> list[int]:
    with suppress(OSError):
        matches = (re.fullmatch(r"v([1-9][0-9]{0,8})", entry.name) for entry in folder.iterdir())
        return sorted(int(version[1]) for version in matches if version)
    return []


def _latest(folder: Path) -> _VersionRecord | None:
    return _newest(folder, _versions(folder))


def _newest(folder: Path, versions: Sequence[int]) -> _VersionRecord | None:
    """The record of the highest version that has one; a directory without a record is not a published version."""
    return next((record for version in reversed(versions) if (record := _record(folder / f"v{version}"))), None)


def _record(folder: Path) -> _VersionRecord | None:
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=complete(_VersionRecord))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError.at(str(folder / RECORD), f"cannot be read ({error})", "delete this version") from None


def _root(root: str | os.PathLike[str] | None) -> Path:
    return Path(ROOT if root is None else root)


def _versions_folder(root: Path, name: str) -> Path:
    """The directory with all versions of a benchmark."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:60] or "benchmark"
    digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return root / "benchmarks" / f"{plain}-{digits}"


def make_root(root: Path, folder: Path) -> None:
    """Make a directory in the store, with a ``.gitignore`` at its root that keeps the store out of version control."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(root / ".gitignore", "x") as ignore:
            ignore.write("*\n")
    except OSError as error:
        raise _unwritable(root, error) from None


def _unwritable(target: Path, error: OSError) -> InputError:
    return InputError.at(
        str(target), f"cannot be written ({error.strerror or error})", "expected a writable place to publish to"
    )
