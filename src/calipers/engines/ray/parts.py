"""Scoring on a Ray cluster: a task of Ray makes a partial of each file; the partials are merged here.

::

    file ──► a task: its partial ──┐
    file ──► a task: its partial ──┴─ merge ──► score: the numbers and the digest of one process

Merging knows neither order nor split (`calipers.partials`), so it does not matter where and when a part was read.
Metrics are computed here. A part whose task ends its worker three times is named, and the others are scored.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from calipers.engines.ray.cluster import connected, lost, nodes
from calipers.errors import CalipersError, Incomplete, InputError
from calipers.formats.format import Named
from calipers.formats.partial import Partial
from calipers.formats.read import with_folders
from calipers.partials import partial_of, score_partials
from calipers.pipeline import columns_read
from calipers.reports.result import Result
from calipers.request import Plan, make_plan
from calipers.stores.address import is_remote

TRIES: Final = 3  # of one part
AHEAD: Final = 4  # tasks for each processor that are handed over before the first of them is done
WAIT: Final = 10.0  # seconds after which it is looked whether the cluster is still there


def read_part(path: str, names: Named, labels: list[str], keep: Collection[str] | None, folder: str) -> bytes:
    """What a task does: the partial of one file, or the error about it."""
    try:
        if os.path.isdir(folder):
            os.chdir(folder)  # relative paths mean what they mean to the user
        return pickle.dumps(partial_of([path], names, labels, keep), protocol=5)
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
    """The score of some files, read on a cluster: the result that `calipers.score` has, with the same digest.

    A part that cannot be read because its worker ends each time is in ``failed`` of the result.
    """
    given = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    if not given or not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise InputError.at("engine", "only files can be read elsewhere", "expected paths")
    paths = [str(os.fspath(path)) for path in given]
    plan = make_plan(metrics, source=paths, **settings)
    names = Named(columns or {}, truth, input_format or "")
    files, notes = _files(paths, names)
    with connected(address) as ray:
        found, failed = _read_all(ray, files, names, plan)
    if not found:
        raise Incomplete("; ".join(failed))
    result = score_partials([found[name] for name in files if name in found], plan)
    return replace(result, notes=[*result.notes, *notes, *failed], failed=[*result.failed, *failed])


def _files(paths: Sequence[str], names: Named) -> tuple[list[str], list[str]]:
    """The parts: a file, an object or the folder of a run each."""
    given, notes = with_folders([path for path in paths if not is_remote(path)], names)
    if any(not isinstance(each, str) for each in given):
        wrong = "a folder of another system is read as a whole"
        raise InputError.at("--engine", wrong, "expected files, or --engine local")
    return list(dict.fromkeys([*map(str, given), *filter(is_remote, paths)])), notes


def _read_all(ray: Any, files: Sequence[str], names: Named, plan: Plan) -> tuple[dict[str, Partial], list[str]]:
    """The partials of the files, and a line about each file that has none because it ends workers."""
    read = ray.remote(read_part).options(max_retries=TRIES - 1, num_cpus=1)
    lent = max(sum(nodes(ray).values()), 1)
    waiting, under_way = list(reversed(files)), dict[Any, str]()
    found: dict[str, Partial] = {}
    failed: list[str] = []
    while waiting or under_way:
        while waiting and len(under_way) < AHEAD * lent:
            name = waiting.pop()
            under_way[read.remote(name, names, sorted(plan.labels), columns_read(plan), os.getcwd())] = name
        done, _ = ray.wait(list(under_way), num_returns=1, timeout=WAIT)
        if not done:
            nodes(ray)  # an error, if the cluster is gone
        for reference in done:
            name = under_way.pop(reference)
            try:
                answer = pickle.loads(ray.get(reference))
            except ray.exceptions.WorkerCrashedError:
                failed.append(f"{name}: was not read: {TRIES} workers ended while they read it")
                continue
            except ray.exceptions.RayError as error:
                raise lost(error) from None
            if isinstance(answer, CalipersError):
                raise answer
            found[name] = answer
    return found, failed
