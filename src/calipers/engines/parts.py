"""Scoring on a Ray cluster: each Ray task makes a partial of some files; the partials are merged in this process.

::

    files ──► a task: their partial ──┐
    files ──► a task: their partial ──┴─ merge ──► score: the same numbers and digest as in one process
                └── lost with its worker ──► each of the files in a task of its own, three tries in all

The result of merging depends neither on order nor on split (`calipers.partials`), so it does not matter where and when
a part was read. Metrics are computed in this process. A file whose task ends its worker three times is named, and the
others are scored.
"""

from __future__ import annotations

import math
import os
import pickle
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from calipers.engines import connected, nodes
from calipers.errors import CalipersError, Incomplete, InputError
from calipers.formats import Named
from calipers.formats.partial import Partial
from calipers.formats.read import natural, with_folders
from calipers.names import is_remote
from calipers.partials import partial_of, score_partials
from calipers.pipeline import columns_read
from calipers.reports.result import Result
from calipers.request import Plan, make_plan

TRIES: Final = 3  # tries to read one file
AHEAD: Final = 2  # tasks for each processor that are submitted at once
WAIT: Final = 10.0  # seconds between two checks whether the cluster is still there
# A task costs some milliseconds, and merging a partial takes as long for few rollouts as for many. So a task reads
# several files, but few enough that each processor has several tasks, and that a lost worker loses little.
MOST_FILES: Final = 32
MOST_BYTES: Final = 64 << 20
TASKS: Final = 4  # tasks for each processor

Batch = tuple[str, ...]


def read_parts(paths: Batch, names: Named, labels: list[str], keep: Collection[str] | None, folder: str) -> bytes:
    """The function of a Ray task: the pickled partial of some files, or the error about one of them."""
    try:
        if os.path.isdir(folder):
            os.chdir(folder)  # so that relative paths mean the same as for the user
        return pickle.dumps(partial_of(paths, names, labels, keep), protocol=5)
    except CalipersError as error:
        return pickle.dumps(error, protocol=5)


def score_parts(
    address: str,
    source: Any,
    metrics: Any = None,
    *,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    **settings: Any,
) -> Result:
    """The score of some files, read on a cluster; the same result as of `calipers.score`, with the same digest.

    A file that cannot be read because its worker is lost each time is listed in ``failed`` of the result.
    """
    given = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    if not given or not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise InputError.at("engine", "only files can be read elsewhere", "expected paths")
    paths = [str(os.fspath(path)) for path in given]
    plan = make_plan(metrics, source=paths, **settings)
    names = Named(columns or {}, truth, input_format or "")
    files, notes = _files(paths, names)
    with connected(address) as ray:
        reading = _Reading(ray, names, plan)
        partials, failed = reading.all_of(_batches(sorted(files, key=natural), sum(nodes(ray).values())))
        if not partials:
            raise Incomplete("; ".join(failed))
        try:
            result = score_partials(partials, plan)
        except InputError:  # two files do not match; with one partial per file, the error names them
            partials, failed = reading.all_of([(name,) for name in files if name not in reading.given_up])
            result = score_partials(partials, plan)
    order = {name: index for index, name in enumerate(files)}
    inputs = sorted(result.inputs, key=lambda each: order.get(each.path, len(order)))
    return replace(result, inputs=inputs, notes=[*result.notes, *notes, *failed], failed=[*result.failed, *failed])


def _files(paths: Sequence[str], names: Named) -> tuple[list[str], list[str]]:
    """The inputs to read, each a file, an object or the folder of a run; and notes."""
    given, notes = with_folders([path for path in paths if not is_remote(path)], names)
    if any(not isinstance(each, str) for each in given):
        problem = "a folder of another system is read as a whole"
        raise InputError.at("--engine", problem, "expected files, or --engine local")
    return list(dict.fromkeys([*map(str, given), *filter(is_remote, paths)])), notes


def _batches(files: Sequence[str], processors: int) -> list[Batch]:
    """The files in batches, in their order, because samples without numbers are numbered across all files."""
    most = min(MOST_FILES, math.ceil(len(files) / (TASKS * max(processors, 1))))
    batches: list[Batch] = []
    size = 0
    for name in files:
        added = os.path.getsize(name) if os.path.isfile(name) else 0
        if not batches or size + added > MOST_BYTES or len(batches[-1]) >= most:
            batches.append(())
            size = 0
        batches[-1] += (name,)
        size += added
    return batches


class _Reading:
    """Reads files by Ray tasks, and counts the workers lost with each file."""

    def __init__(self, ray: Any, names: Named, plan: Plan) -> None:
        self._ray, self._read = ray, ray.remote(read_parts).options(max_retries=0, num_cpus=1)
        self._arguments = names, sorted(plan.labels), columns_read(plan), os.getcwd()
        self._lost: Counter[str] = Counter()  # file -> workers that were lost while they read it
        self.given_up: dict[str, str] = {}  # file -> a note why it has no partial

    def all_of(self, batches: Sequence[Batch]) -> tuple[list[Partial], list[str]]:
        """The partials of the files, and a note about each file without one because its workers were lost."""
        ray = self._ray
        at_once = AHEAD * max(sum(nodes(ray).values()), 1)
        waiting, running = deque(batches), dict[Any, Batch]()
        partials: list[Partial] = []
        while waiting or running:
            while waiting and len(running) < at_once:
                batch = waiting.popleft()
                running[self._read.remote(batch, *self._arguments)] = batch
            finished, _ = ray.wait(list(running), num_returns=1, timeout=WAIT)
            if not finished:
                nodes(ray)  # raises if the cluster is gone
            for reference in finished:
                batch = running.pop(reference)
                try:
                    answer = pickle.loads(ray.get(reference))
                except ray.exceptions.RayError as error:
                    nodes(ray)  # raises if the cluster is gone
                    waiting.extend(self._retries(batch, error))
                    continue
                if isinstance(answer, CalipersError):
                    raise answer
                partials.append(answer)
        return partials, list(self.given_up.values())

    def _retries(self, batch: Batch, error: Exception) -> Iterator[Batch]:
        """Each file of a batch whose worker was lost, as a batch of its own, up to TRIES tries per file."""
        for name in batch:
            self._lost[name] += 1
            if self._lost[name] < TRIES:
                yield (name,)
            elif isinstance(error, self._ray.exceptions.WorkerCrashedError):
                self.given_up[name] = f"{name}: was not read: {TRIES} workers ended while they read it"
            else:
                reason = " ".join(str(error).split())[:200]
                self.given_up[name] = f"{name}: was not read: {TRIES} tries failed, the last by {reason}"
