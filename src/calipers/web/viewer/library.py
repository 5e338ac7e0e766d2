"""The runs that the viewer shows: their indexes, kept up to date while somebody looks, and what they add up to."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from calipers.errors import CalipersError, InputError
from calipers.formats.run_folder import LOG
from calipers.web.gather import is_running
from calipers.web.viewer.index import Group, LogIndex
from calipers.web.viewer.query import (
    GroupRows,
    Query,
    QueryResult,
    Rows,
    checked,
    flipped,
    group_rows,
    matching,
    search,
)
from calipers.web.viewer.runs import RunSource, current_index, kept_index, sources, stamp, watched_folders
from calipers.web.viewer.summary import RunSummary, summaries

LOOK: Final = 0.5  # seconds between two looks at logs that somebody watches
RESCAN: Final = 5.0  # seconds between two looks for new runs
IN_CHILD: Final = 64 << 20  # bytes of a log from which its index is built in a process of its own
MOST_KEPT: Final = 12  # results of queries
THREADS: Final = 4
T = TypeVar("T")

_CHILD: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
    "from calipers.web.viewer.library import child; child(json.loads(sys.argv[2]))"
)


@dataclass
class OpenRun:
    """One source, as far as it was looked at."""

    source: RunSource
    index: LogIndex | None = None
    error: str = ""
    version: int = 0  # rises with every change
    stamp: str = ""
    summaries: list[tuple[Group, RunSummary]] | None = None  # None until they are computed
    why_no_summary: str = ""
    rows: dict[int, GroupRows] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    building: asyncio.Future[None] | None = None  # of its first index


@dataclass(frozen=True, slots=True)
class View:
    """One run: a group of a source, ready to be shown."""

    id: str
    source: RunSource
    index: LogIndex
    group: int
    version: int
    own: GroupRows


class Library:
    """The runs under some paths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self.watches = watched_folders(paths)  # ids -> folders
        found, self.notes = sources(paths)
        self.runs: OrderedDict[str, OpenRun] = OrderedDict((source.id, OpenRun(source)) for source in found)
        self.listeners: set[asyncio.Queue[dict[str, Any]]] = set()
        self._queries: OrderedDict[tuple[Any, ...], tuple[Rows, bool]] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="viewer")
        self._children: set[asyncio.subprocess.Process] = set()
        self._stop = threading.Event()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """A function's answer, computed beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """Stop whatever is going on."""
        self._stop.set()
        for run in self.runs.values():
            if run.building is not None:
                run.building.cancel()
        for child in self._children:
            with suppress(ProcessLookupError):
                child.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def view(self, id: str) -> View:
        """A run by its id; InputError where there is none, or it cannot be read."""
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
        """The index of a run as it is now; InputError says why there is none."""
        if run.index is None and not run.error:
            if run.building is None:
                run.building = asyncio.ensure_future(self._build(run))
            await asyncio.shield(run.building)  # goes on, also when whoever waits for it has gone
        if run.index is None:
            raise InputError(run.error or "cannot be read")
        return run.index

    async def _build(self, run: OpenRun) -> None:
        async with run.lock:
            if run.index is None and not run.error:
                await self._update(run)

    async def refresh(self, run: OpenRun) -> bool:
        """Look whether a run has changed, and take that in; whether it has."""
        async with run.lock:
            if run.index is None and not run.error:
                return False  # nobody has looked at it
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
        """Build an index in a process of its own: it takes memory that this one never gives back."""
        environment = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", **os.environ}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), json.dumps(asdict(source))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            process_group=0,  # Ctrl-C is for this process, which ends its children itself
        )
        self._children.add(child)
        try:
            await child.wait()  # whatever became of it, `current_index` knows what to do
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, 9)
            self._children.discard(child)

    async def summary(self, run: OpenRun) -> list[tuple[Group, RunSummary]]:
        """The summaries of a run's groups; none where it has no number, with the reason in ``why_no_summary``."""
        index = await self.index(run)
        async with run.lock:
            if run.summaries is None:
                try:
                    run.summaries, run.why_no_summary = await self.call(summaries, run.source, index), ""
                except CalipersError as error:
                    run.summaries, run.why_no_summary = [], str(error)
            return run.summaries

    async def rows(self, view: View, query: Query, against: View | None, way: str) -> tuple[Rows, bool]:
        """The rows of a run that a query asks for, and whether the whole log was searched for its words.

        ``against`` and ``way`` keep those that flipped: ``better`` or ``worse`` here than there, or ``flipped``.
        """
        other = (against.id, against.version) if against else None
        key = (view.source.id, view.version, query, other, way)
        if key not in self._queries:
            self._queries[key] = await self._matching(view, checked(query, view.index), against, way)
            while len(self._queries) > MOST_KEPT:
                self._queries.popitem(last=False)
        self._queries.move_to_end(key)
        return self._queries[key]

    async def _matching(self, view: View, query: Query, against: View | None, way: str) -> tuple[Rows, bool]:
        also, complete = None, True
        if query.search:
            cancelled = threading.Event()
            try:
                found: QueryResult = await self.call(search, view.index, query.search, cancelled)
            except asyncio.CancelledError:  # the browser has gone
                cancelled.set()
                raise
            also, complete = found.rows, found.complete
        if against is not None:
            better, worse = await self.call(flipped, view.index, view.own, against.index, against.own)
            kept = better if way == "better" else worse if way == "worse" else better | worse
            also = kept if also is None else also & kept
        return await self.call(matching, view.index, view.own, query, also), complete

    async def watch(self) -> None:
        """Follow the runs while somebody listens, and tell of every change; never ends."""
        loop = asyncio.get_running_loop()
        scanned = loop.time()
        while True:
            await asyncio.sleep(LOOK)
            if not self.listeners:
                continue
            started = loop.time()
            for run in list(self.runs.values()):
                if await self.refresh(run):
                    self.tell({"run": run.source.id, "version": run.version})
            if loop.time() - scanned > RESCAN:
                scanned = loop.time()
                await self._rescan()
            # what takes long is done less often: at most a fifth of the time
            await asyncio.sleep(4 * (loop.time() - started))

    async def _rescan(self) -> None:
        try:
            found, self.notes = await self.call(sources, self.paths)
        except CalipersError:  # all runs are gone for the moment
            return
        self.watches = await self.call(watched_folders, self.paths)
        new = [source for source in found if source.id not in self.runs]
        for source in new:
            self.runs[source.id] = OpenRun(source)
        if new:
            self.tell({"new": len(new)})

    def tell(self, event: dict[str, Any]) -> None:
        """Tell every listener; one that does not listen loses events and looks again later."""
        for listener in self.listeners:
            with suppress(asyncio.QueueFull):
                listener.put_nowait(event)


def running(source: RunSource) -> bool:
    """Whether a run is still going, as far as that can be known."""
    return source.kind == "run" and is_running(source.path)


def modified(source: RunSource) -> float:
    """When a source was written to last, in seconds."""
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


def child(source: dict[str, Any]) -> None:
    """What a child process does: build an index and keep it where this process finds it."""
    with suppress(CalipersError):
        current_index(RunSource(**source))
