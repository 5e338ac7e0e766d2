"""Scoring on a Ray cluster: every file is a part that a task of Ray reads and packs; the parts are merged here.

::

    file ──► a task: read, pack ──┐
    file ──► a task: read, pack ──┴─ merge ──► score: the numbers and the digest of one process

Merging knows neither order nor split (`rollouts.packed`), so it does not matter where and when a part was read. Metrics
are computed here. A part whose task ends its worker three times is named, and the others are scored.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from calipers.engines.ray.cluster import connected, lost, nodes
from calipers.errors import CalipersError, InputError
from calipers.formats.format import NUMBERED, Named
from calipers.formats.read import Input, begin, with_folders
from calipers.names import FORMATS
from calipers.pipeline import score_rollouts
from calipers.reports.result import Result
from calipers.request import Plan, make_plan, no_reward
from calipers.rollouts.labels import SPLIT, STEP, steps_of
from calipers.rollouts.packed import Loose, merge, pack, table_of
from calipers.rollouts.part import Part
from calipers.stores.address import is_remote

TRIES: Final = 3  # of one part
AHEAD: Final = 4  # tasks for each processor that are handed over before the first of them is done
WAIT: Final = 10.0  # seconds after which it is looked whether the cluster is still there


def read_part(
    path: str, columns: dict[str, str], truth: Mapping[str, float] | None, labels: list[str], folder: str
) -> bytes:
    """What a task does: the packed rollouts of one file and what the file is, or the error about it."""
    try:
        if os.path.isdir(folder):
            os.chdir(folder)  # relative paths mean what they mean to the user
        parts: list[Part] = []
        _, inputs = begin([path], columns=Named(columns, truth), labels=labels, kept=parts)
        if columns.get("sample") == NUMBERED or any(part.unnumbered for part in parts):
            wrong = "its samples have no numbers, and those of one task may be in several parts"
            raise InputError.at(path, wrong, "expected a sample number in each rollout, or --engine local")
        return pickle.dumps(([pack(part) for part in parts], inputs()), protocol=5)
    except CalipersError as error:
        return pickle.dumps(error, protocol=5)


def score_parts(
    address: str,
    paths: Sequence[str],
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
    if input_format is not None:
        raise InputError.at("--engine", "does not go with --input-format", "give one or the other")
    plan = make_plan(metrics, source=list(paths), **settings)
    files, notes = _files(paths)
    with connected(address) as ray:
        found, failed = _read_all(ray, files, columns or {}, truth, plan.labels)
    loose = [part for name in files if name in found for part in found[name][0]]
    inputs = [each for name in files if name in found for each in found[name][1]]
    if not loose:
        raise CalipersError("; ".join(failed))
    _check_joined(inputs)
    result = _scored(loose, plan, list(paths))
    return replace(result, inputs=inputs, notes=[*result.notes, *notes, *failed], failed=[*result.failed, *failed])


def _files(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The parts: a file or the folder of a run each."""
    given, notes = with_folders([path for path in paths if not is_remote(path)])
    if any(not isinstance(each, str) for each in given):
        wrong = "a folder of another system is read as a whole"
        raise InputError.at("--engine", wrong, "expected files, or --engine local")
    return list(dict.fromkeys([*map(str, given), *filter(is_remote, paths)])), notes


Found = dict[str, tuple[list[Loose], list[Input]]]


def _read_all(
    ray: Any,
    files: Sequence[str],
    columns: Mapping[str, str],
    truth: Mapping[str, float] | None,
    labels: Collection[str],
) -> tuple[Found, list[str]]:
    """The parts that could be read, and a line about each that could not because it ends workers."""
    read = ray.remote(read_part).options(max_retries=TRIES - 1, num_cpus=1)
    lent = max(sum(nodes(ray).values()), 1)
    waiting, under_way = list(reversed(files)), dict[Any, str]()
    found: Found = {}
    failed: list[str] = []
    while waiting or under_way:
        while waiting and len(under_way) < AHEAD * lent:
            name = waiting.pop()
            under_way[read.remote(name, dict(columns), truth, sorted(labels), os.getcwd())] = name
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


def _check_joined(inputs: Sequence[Input]) -> None:
    """InputError for files of a format that says something only about all of them together."""
    if len(inputs) > 1:
        for name in {each.format for each in inputs}:
            if FORMATS.load(name).join is not None:
                wrong = f"files of {name} are read together"
                raise InputError.at("--engine", wrong, "expected --engine local")


def _scored(loose: Sequence[Loose], plan: Plan, source: Sequence[str]) -> Result:
    table = table_of(merge(loose))
    if table.kinds.unread and any("reward" in request.metric.reads for request in plan.asked):
        raise no_reward(list(source), table.kinds.unread)
    steps = steps_of(table.kinds)
    if steps or STEP in plan.by or SPLIT in plan.by:
        raise InputError.at("--engine", "the steps of a training run are scored in one process", "use --engine local")
    return score_rollouts(table, plan)
