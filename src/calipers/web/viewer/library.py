"""The runs that the viewer shows: those under the given paths, with indexes that are kept up to date."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

from calipers.analyses.watch.state import LOG as LOG_OF_WATCH
from calipers.analyses.watch.state import SNAPSHOT
from calipers.analyses.watch.watch import is_watched, state_folder
from calipers.errors import CalipersError, InputError
from calipers.formats.read import (
    DEEPEST,
    OWN,
    format_of,
    has_rollouts,
    is_folder_of_runs,
    is_result,
    run_or_path,
    runs_inside,
    with_folders,
)
from calipers.formats.run_folder import LOG, is_run
from calipers.formats.source import Source
from calipers.web.report_data import is_running
from calipers.web.viewer.index import (
    MOST_ENTRIES,
    RUN_FILES,
    Group,
    Kind,
    LogIndex,
    RunSource,
    confined,
    current_index,
    kept_index,
    stamp,
)
from calipers.web.viewer.rollouts import GroupRows, Query, Rows, checked, flipped, group_rows, matching, search
from calipers.web.viewer.summary import RunSummary, View, summaries

LOOK: Final = 0.5  # seconds between two checks of logs for changes
RESCAN: Final = 5.0  # seconds between two searches for new runs
IN_CHILD: Final = 64 << 20  # the index of a log with at least this many bytes is built in a child process
MOST_KEPT: Final = 12  # cached results of queries
THREADS: Final = 4
WATCHED_DEPTH: Final = 2  # levels of folders below a path that are searched for watches
MOST_FOLDERS: Final = 1_000  # folders that are searched at each level
T = TypeVar("T")
_CHILD: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
    "from calipers.web.viewer.index import child; child(json.loads(sys.argv[2]))"
)


@dataclass
class OpenRun:
    """A source, with its index and what was computed from it so far."""

    source: RunSource
    index: LogIndex | None = None
    error: str = ""  # the reason why it cannot be read
    version: int = 0  # increases with every change
    stamp: str = ""
    summaries: list[tuple[Group, RunSummary]] | None = None  # None until they are computed
    why_no_summary: str = ""
    rows: dict[int, GroupRows] = field(default_factory=dict)  # by the number of the group
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    building: asyncio.Future[None] | None = None  # builds its first index


class Library:
    """The runs under the given paths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self.watches = watched_folders(paths)  # ids -> folders
        found_sources, self.notes = sources(paths)
        self.runs: OrderedDict[str, OpenRun] = OrderedDict((source.id, OpenRun(source)) for source in found_sources)
        self.listeners: set[asyncio.Queue[dict[str, Any]]] = set()
        self._queries: OrderedDict[tuple[Any, ...], tuple[Rows, bool]] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="viewer")
        self._children: set[asyncio.subprocess.Process] = set()
        self._stop = threading.Event()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def call_while_open(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread, with an event as its last argument that is set if the request is cancelled."""
        cancelled = threading.Event()
        try:
            return await self.call(function, *arguments, cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def close(self) -> None:
        """Stop all threads, builds and child processes."""
        self._stop.set()
        for run in self.runs.values():
            if run.building is not None:
                run.building.cancel()
        for child in self._children:
            with suppress(ProcessLookupError):
                child.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def view(self, id: str) -> View:
        """The run with an id; InputError if there is none, or if it cannot be read."""
        name, _, group = id.partition(".")
        run = self.runs.get(name)
        if run is None or (group and not group.isdecimal()):
            raise InputError(f"no run {id[:40]!r}; the list of runs has all of them")
        index = await self.index(run)
        number = int(group or 0)
        if number >= max(len(index.groups), 1):
            raise InputError(f"no run {id[:40]!r}; the list of runs has all of them")
        own = run.rows.get(number)
        if own is None or len(own.states) != len(index):
            own = run.rows[number] = await self.call(group_rows, index, number)
        return View(id, run.source, index, number, run.version, own)

    async def index(self, run: OpenRun) -> LogIndex:
        """The current index of a run; InputError, with the reason, if there is none."""
        if run.index is None and not run.error:
            if run.building is None:
                run.building = asyncio.ensure_future(self._build(run))
            await asyncio.shield(run.building)  # the build continues if this request is cancelled
        if run.index is None:
            raise InputError(run.error or "cannot be read")
        return run.index

    async def _build(self, run: OpenRun) -> None:
        async with run.lock:
            if run.index is None and not run.error:
                await self._update(run)

    async def refresh(self, run: OpenRun) -> bool:
        """Update a run if its files have changed; return whether they have."""
        async with run.lock:
            if run.index is None and not run.error:
                return False  # it was never requested
            if await self.call(stamp, run.source) == run.stamp:
                return False
            await self._update(run)
            return True

    async def _update(self, run: OpenRun) -> None:
        run.stamp = await self.call(stamp, run.source)
        try:
            if run.source.kind == "result":
                raise InputError("is a finished result without rollouts")
            known = run.index
            if known is None and await self.call(_size, run.source) >= IN_CHILD:
                known = await self.call(kept_index, run.source)
                if known is None:
                    await self._in_child(run.source)
            index = await self.call(current_index, run.source, known)
        except CalipersError as error:
            run.error = str(error)
        else:
            run.index, run.error, run.summaries = index, "", None
            run.rows.clear()
        run.version += 1

    async def _in_child(self, source: RunSource) -> None:
        """Build an index in a child process, because this process would never release the memory that it takes."""
        environment = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", **os.environ}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), json.dumps(asdict(source))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            process_group=0,  # so that Ctrl-C ends only this process, which ends its children itself
        )
        self._children.add(child)
        try:
            await child.wait()  # if it failed, `current_index` builds the index, or reports the error
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, 9)
            self._children.discard(child)

    async def summary(self, run: OpenRun) -> list[tuple[Group, RunSummary]]:
        """The summaries of a run's groups; empty if it has no numbers, with the reason in ``why_no_summary``."""
        index = await self.index(run)
        async with run.lock:
            if run.summaries is None:
                try:
                    run.summaries, run.why_no_summary = await self.call(summaries, run.source, index), ""
                except CalipersError as error:
                    run.summaries, run.why_no_summary = [], str(error)
            return run.summaries

    async def rows(self, view: View, query: Query, against: View | None, way: str) -> tuple[Rows, bool]:
        """The rows of a run that match a query, and whether the search for its words covered the whole log.

        With ``against``, only rows that differ between the two runs match: those that pass here only (``way`` is
        ``better``), there only (``worse``), or either (``flipped``).
        """
        other = (against.id, against.version) if against else None
        key = (view.source.id, view.version, query, other, way)
        return await cached(self._queries, MOST_KEPT, key, lambda: self._matching(view, query, against, way))

    async def _matching(self, view: View, query: Query, against: View | None, way: str) -> tuple[Rows, bool]:
        mask, complete = None, True
        checked(query, view.index)
        if query.search:
            mask, complete = await self.call_while_open(search, view.index, query.search)
        if against is not None:
            better, worse = await self.call(flipped, view.index, view.own, against.index, against.own)
            chosen = {"better": better, "worse": worse}.get(way, better | worse)
            mask = chosen if mask is None else mask & chosen
        return await self.call(matching, view.index, view.own, query, mask), complete

    async def watch(self) -> None:
        """Update the runs while there are listeners, and send them every change; never returns."""
        loop = asyncio.get_running_loop()
        scanned = loop.time()
        while True:
            await asyncio.sleep(LOOK)
            if not self.listeners:
                continue
            started = loop.time()
            for run in list(self.runs.values()):
                if await self.refresh(run):
                    self.send({"run": run.source.id, "version": run.version})
            if loop.time() - scanned > RESCAN:
                scanned = loop.time()
                await self._rescan()
            # updates take at most a fifth of the time
            await asyncio.sleep(4 * (loop.time() - started))

    async def _rescan(self) -> None:
        try:
            found_sources, self.notes = await self.call(sources, self.paths)
        except CalipersError:  # all paths are missing for the moment
            return
        self.watches = await self.call(watched_folders, self.paths)
        new = [source for source in found_sources if source.id not in self.runs]
        for source in new:
            self.runs[source.id] = OpenRun(source)
        if new:
            self.send({"new": len(new)})

    def send(self, event: dict[str, Any]) -> None:
        """Send an event to every listener; a listener whose queue is full loses it, and reloads later."""
        for listener in self.listeners:
            with suppress(asyncio.QueueFull):
                listener.put_nowait(event)


async def cached(cache: OrderedDict[Any, T], most: int, key: Any, make: Callable[[], Awaitable[T]]) -> T:
    """The cached value of a key, computed by ``make`` if it is missing; an LRU cache of at most ``most`` values."""
    if key not in cache:
        cache[key] = await make()
        while len(cache) > most:
            cache.popitem(last=False)
    cache.move_to_end(key)
    return cache[key]


def running(source: RunSource) -> bool:
    """Whether a run is in progress, as far as the system tells."""
    return source.kind == "run" and is_running(source.path)


def modified(source: RunSource) -> float:
    """The time when a source was last written to, in seconds."""
    path = os.path.join(source.path, LOG) if source.kind == "run" else source.path
    with suppress(OSError):
        return os.stat(path).st_mtime
    with suppress(OSError):
        return os.stat(source.path).st_mtime
    return 0.0


def _size(source: RunSource) -> int:
    with suppress(OSError):
        return os.stat(source.log if source.kind in ("run", "log") else source.path).st_size
    return 0


def sources(paths: Sequence[str]) -> tuple[list[RunSource], list[str]]:
    """The runs under the paths, and a note for each run that cannot be shown.

    InputError for a path that does not exist, or if it is a single run that cannot be shown.
    """
    found: dict[str, RunSource] = {}
    notes: list[str] = []
    for path in map(run_or_path, paths):
        if not os.path.exists(path):
            raise InputError.at(path, "no such file or folder", "expected a log, a run folder or a folder of runs")
        root = os.path.realpath(path)
        inside = _inside(path)
        for run_path in inside:
            try:
                source = _source(run_path, root)
            except InputError as error:
                if len(inside) == 1:
                    raise
                notes.append(str(error))
                continue
            found.setdefault(source.id, source)
    return list(found.values()), notes


def watched_folders(paths: Sequence[str]) -> dict[str, str]:
    """The folders under the paths that calipers watch has looked at: id in addresses -> path without links."""
    found: dict[str, str] = {}
    for path in paths:
        root = os.path.realpath(path)
        folders = [path] if os.path.isdir(path) else []
        for _ in range(WATCHED_DEPTH + 1):
            for folder in filter(is_watched, folders):
                with suppress(InputError):  # a link that leads out of the given paths
                    real = confined(folder, root)
                    for name in (LOG_OF_WATCH, SNAPSHOT):
                        confined(os.path.join(state_folder(real), name), root)
                    found[_id(real)] = real
            folders = [inside for folder in folders[:MOST_FOLDERS] for inside in _folders(folder)]
    return found


def _id(path: str) -> str:
    """The id of a path in addresses, which is the same at every start."""
    return sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _folders(path: str) -> list[str]:
    """The visible folders in a folder."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []


def _inside(path: str, depth: int = DEEPEST) -> list[str]:
    """The paths of the runs at a path: the path itself, or the runs in a folder of several runs or formats."""
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
    except InputError:  # such as a folder without runs
        return []


def _source(path: str, root: str) -> RunSource:
    real = confined(path, root)
    kind = _kind(real)
    if kind == "run":
        for name in RUN_FILES:
            if os.path.lexists(os.path.join(real, name)):
                confined(os.path.join(real, name), root)
    elif os.path.isdir(real):
        for link in _links(real):
            confined(link, root)
    return RunSource(_id(real), real, path, kind, root)


def _kind(path: str) -> Kind:
    if os.path.isdir(path):
        return "run" if is_run(path) else "other"
    if is_result(path):
        return "result"
    if not os.path.getsize(path):
        return "log"  # nothing is written yet
    with Source(path) as source:
        lines = source.divisible and source.head.lstrip()[:1] != b"["
        return "log" if lines and format_of(source).name == OWN else "other"


def _links(folder: str) -> Iterator[str]:
    """The symbolic links in a folder, at any depth; InputError if it has too many files."""
    count = 0
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            count += 1
            if os.path.islink(os.path.join(root, name)):
                yield os.path.join(root, name)
        if count > MOST_ENTRIES:
            raise InputError.at(folder, f"has more than {MOST_ENTRIES:,} files", "expected the folder of one run")
