"""What the viewer may show: the runs under the paths that were given, and nothing outside them.

A log of Calipers is read where it lies. Rollouts of any other format, and packed ones, are converted once into a log in
the user's cache folder. A link that leads out of the paths given is not followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from calipers.analyses.watch.state import LOG as LOG_OF_WATCH
from calipers.analyses.watch.state import SNAPSHOT
from calipers.analyses.watch.watch import is_watched, state_folder
from calipers.errors import InputError
from calipers.formats.convert import convert
from calipers.formats.read import (
    DEEPEST,
    OWN,
    found_format,
    has_rollouts,
    is_folder_of_runs,
    is_result,
    runs_inside,
    with_folders,
)
from calipers.formats.run_folder import IDENTITY, LOG, PLAN, RESULT, STOPPED, is_run
from calipers.formats.source import Source
from calipers.web.viewer.index import (
    KEPT_FROM,
    SAMPLED,
    SUFFIX,
    LogIndex,
    LogState,
    build,
    extend,
    has_grown,
    is_fresh,
    load_index,
)

MOST_ENTRIES: Final = 100_000  # files of another system's folder that are looked at
WATCHED_DEPTH: Final = 2  # folders below a path in which watches are looked for
MOST_FOLDERS: Final = 1_000  # that are looked into at each depth
RUN_FILES: Final = (LOG, PLAN, STOPPED, RESULT, IDENTITY)

Kind = Literal["log", "run", "other", "result"]


@dataclass(frozen=True, slots=True)
class RunSource:
    """One path that holds rollouts, or a finished result."""

    id: str  # in addresses; the same at every start
    path: str  # without links
    name: str  # as the user would type it
    kind: Kind
    root: str  # the path given that it lies under

    @property
    def log(self) -> str:
        """The log of its rollouts."""
        if self.kind == "run":
            return os.path.join(self.path, LOG)
        return self.path if self.kind == "log" else os.path.join(cache_folder(), self.id, "records.jsonl")


def sources(paths: Sequence[str]) -> tuple[list[RunSource], list[str]]:
    """The runs under some paths, and what is not shown of them, a sentence each.

    InputError for a path that is not there, or has nothing to show.
    """
    found: dict[str, RunSource] = {}
    notes: list[str] = []
    for path in paths:
        if not os.path.exists(path):
            raise InputError.at(path, "no such file or folder", "expected a log, a run folder or a folder of runs")
        root = os.path.realpath(path)
        inside = _inside(path)
        for each in inside:
            try:
                source = _source(each, root)
            except InputError as error:
                if len(inside) == 1:
                    raise
                notes.append(str(error))
                continue
            found.setdefault(source.id, source)
    return list(found.values()), notes


def watched_folders(paths: Sequence[str]) -> dict[str, str]:
    """The folders under some paths that calipers watch has looked at: ids in addresses -> paths without links."""
    found: dict[str, str] = {}
    for path in paths:
        root = os.path.realpath(path)
        folders = [path] if os.path.isdir(path) else []
        for _ in range(WATCHED_DEPTH + 1):
            for folder in filter(is_watched, folders):
                with suppress(InputError):  # a link that leads out of the paths
                    real = confined(folder, root)
                    for name in (LOG_OF_WATCH, SNAPSHOT):
                        confined(os.path.join(state_folder(real), name), root)
                    found[hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:12]] = real
            folders = [inside for folder in folders[:MOST_FOLDERS] for inside in _folders(folder)]
    return found


def _folders(path: str) -> list[str]:
    """The visible folders in a folder."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []


def _inside(path: str, depth: int = DEEPEST) -> list[str]:
    """The paths of the runs in a path: itself, or what a folder of several runs, or of several formats, has."""
    if not os.path.isdir(path) or is_run(path):
        return [path]
    if is_folder_of_runs(path):
        return runs_inside(path)
    try:
        with_folders([path])
    except InputError:
        entries = [os.path.join(path, name) for name in sorted(os.listdir(path)) if not name.startswith(".")]
        folders = [entry for entry in entries if os.path.isdir(entry)] if depth > 1 else []
        files = [entry for entry in entries if os.path.isfile(entry) and (is_result(entry) or has_rollouts(entry))]
        return [*(run for folder in folders for run in _inside_or_none(folder, depth - 1)), *files]
    return [path]


def _inside_or_none(path: str, depth: int) -> list[str]:
    try:
        return _inside(path, depth)
    except InputError:  # a folder without runs, among others
        return []


def _source(path: str, root: str) -> RunSource:
    real = confined(path, root)
    kind = _kind(real)
    if kind == "run":
        for name in RUN_FILES:
            if os.path.lexists(os.path.join(real, name)):
                confined(os.path.join(real, name), root)
    elif os.path.isdir(real):
        for entry in _entries(real):
            confined(entry, root)
    return RunSource(hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:12], real, path, kind, root)


def _kind(path: str) -> Kind:
    if os.path.isdir(path):
        return "run" if is_run(path) else "other"
    if is_result(path):
        return "result"
    if not os.path.getsize(path):
        return "log"  # nothing is written yet
    with Source(path) as source:
        return (
            "log"
            if found_format(source).name == OWN and source.divisible and source.head.lstrip()[:1] != b"["
            else "other"
        )


def confined(path: str, root: str) -> str:
    """The path without links; InputError where it is neither a path given nor inside one."""
    real = os.path.realpath(path)
    if real != root and not real.startswith(os.path.join(root, "")):
        raise InputError.at(path, "is a link that leads out of the paths given", "give its target, too")
    return real


def _entries(folder: str) -> Iterator[str]:
    """The links in a folder and the folders in it."""
    count = 0
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            count += 1
            if os.path.islink(os.path.join(root, name)):
                yield os.path.join(root, name)
        if count > MOST_ENTRIES:
            raise InputError.at(folder, f"has more than {MOST_ENTRIES:,} files", "expected the folder of one run")


def cache_folder() -> str:
    """The folder of what is kept and cannot lie beside a log."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "calipers", "view")


def stamp(source: RunSource) -> str:
    """What changes when anything of a source does."""
    digest = hashlib.sha256()
    paths = [source.path]
    if os.path.isdir(source.path):
        names = RUN_FILES if source.kind == "run" else ()
        paths = [os.path.join(source.path, name) for name in names] or [
            os.path.join(root, name) for root, _, files in os.walk(source.path) for name in sorted(files)
        ]
    for path in paths[:MOST_ENTRIES]:
        with suppress(OSError):
            status = os.stat(path)
            digest.update(
                f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}\0".encode("utf-8", "replace")
            )
    return digest.hexdigest()


def current_index(source: RunSource, known: LogIndex | None = None) -> LogIndex:
    """The index of a source as it is now: the known one, one that was kept, extended or built. InputError says why not.

    A converted log is made again when its source changes.
    """
    log = _converted(source) if source.kind == "other" else confined_log(source)
    if known is None:
        for target in _targets(source, log):
            if (known := load_index(log, target)) is not None:
                break
    state = LogState.of(log)
    if known is not None and is_fresh(known, state):
        return known
    # the slices of a log are those of its beginning, which a short one has not told yet
    if known is not None and known.state.end >= SAMPLED and has_grown(known):
        index = extend(known)
        worth = index.state.end - known.state.end > index.state.end // 8
    else:
        index, worth = build(log), True
    if worth and index.state.end >= KEPT_FROM:
        index = kept(index, source)
    return index


def kept_index(source: RunSource) -> LogIndex | None:
    """The index that was kept, if it is of the log as it is now; None where it is to be built or extended."""
    if source.kind == "other":
        return None
    log = confined_log(source)
    for target in _targets(source, log):
        if (index := load_index(log, target)) is not None and is_fresh(index, LogState.of(log)):
            return index
    return None


def confined_log(source: RunSource) -> str:
    """The log of a source, if it still lies under the paths given; InputError where it is a link out of them."""
    path = source.log
    if not os.path.lexists(path):  # a run that has not begun
        return path
    real = confined(path, source.root)
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise InputError.at(path, "is not a regular file", "expected a log")
    return real


def kept(index: LogIndex, source: RunSource) -> LogIndex:
    """The index as it was written beside its log, or in the cache folder where that cannot be; else as it is."""
    mode = stat.S_IMODE(os.stat(index.path).st_mode) & 0o666
    for target in _targets(source, index.path):
        with suppress(OSError):
            if target.startswith(cache_folder()):
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            index.save(target, mode)
            return load_index(index.path, target) or index
    return index


def _targets(source: RunSource, log: str) -> list[str]:
    """Where an index may be: beside its log, else in the cache folder."""
    return [log + SUFFIX, os.path.join(cache_folder(), source.id, os.path.basename(log) + SUFFIX)]


def _converted(source: RunSource) -> str:
    """The log in the cache folder that a source of another format was converted to; InputError says what is wrong."""
    target, mark = source.log, os.path.join(os.path.dirname(source.log), "stamp")
    now = stamp(source)
    with suppress(OSError), open(mark) as file:
        if file.read() == now and os.path.exists(target):
            return target
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError.at(folder, f"cannot be written ({error.strerror})", "set XDG_CACHE_HOME") from None
    convert(source.path, target, force=True)
    os.chmod(target, 0o600)
    with open(mark, "w") as file:
        file.write(now)
    return target
