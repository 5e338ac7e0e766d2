"""Partials: write one for some input files, merge several into one score, and cache one for each input file.

::

    files ──► write_partial ──► a.partial ──┐
    files ──► write_partial ──► b.partial ──┴─ merge_partials ──► Result, the same as that of all files at once

A partial has packed rollouts and no sums, so that a task may be split among partials, and every metric of its columns
can be computed from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from calipers.errors import Incomplete, InputError
from calipers.formats import NUMBERED, Named, insisted, worths
from calipers.formats.lines import NotPackable
from calipers.formats.partial import SCHEMA, PartHeader, Partial, PartSettings, input_file, opened, written
from calipers.formats.read import Input, natural, read_packed, with_folders
from calipers.formats.read import begin as begin_reading
from calipers.names import FORMATS
from calipers.pipeline import Progress, by_step, columns_read, score_rollouts, steps_only
from calipers.reports.result import Result
from calipers.request import NATIVE, Plan, Wanted, make_plan, names_code
from calipers.rollouts.packed import Loose, Packed, Repeated, merge, pack, small, table_of
from calipers.rollouts.record import GROUP
from calipers.rollouts.table import Part
from calipers.stores import atomic_file
from calipers.tally import DEFINITIONS

Path = str | os.PathLike[str]


def write_partial(
    source: Path | Sequence[Path],
    out: Path,
    metrics: Wanted | Sequence[Wanted] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> PartHeader:
    """Read files once and keep everything that a score needs from them in a partial, for `merge_partials`.

    ``settings`` are those of `score`: by, cluster, dialect, missing, reward, confidence, seed, interval, range,
    exclude. InputError for metric scripts, and for runs that were stopped by a rule: a partial cannot have them.
    """
    paths = _paths(source)
    plan = make_plan(metrics, source=paths, **settings)
    reading = Named(columns or {}, truth, input_format or "")
    partial = _planned_partial(paths, reading, plan, progress)
    _write(os.fspath(out), _bytes(partial, plan))
    return partial.header


def merge_partials(
    partials: Path | Sequence[Path], metrics: Wanted | Sequence[Wanted] | None = None, *, expect: Path | None = None
) -> Result:
    """The score of all input files of the partials: the same numbers and digest as scoring the files at once.

    Without ``metrics``, the metrics that the partials were made for. ``expect`` is a file with the path or the SHA-256
    of an input on each line; Incomplete if one of them is in no partial.
    """
    parts = [opened(path) for path in _paths(partials)]
    _check_alike(parts)
    _check_once(parts)
    if expect is not None:
        _check_expected(parts, os.fspath(expect))
    return _scored(parts, _plan(parts[0], metrics))


def score_cached(
    source: Path | Sequence[Path],
    metrics: Wanted | Sequence[Wanted] | None = None,
    *,
    cache: Path,
    check: bool = False,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Result:
    """Like `score`, but with a cache: a folder with a partial of each input file, so that no file is read twice.

    A file with the same size and modification time as before is assumed to be unchanged; ``check`` hashes it again.
    """
    paths = _paths(source)
    plan = make_plan(metrics, source=paths, **settings)
    reading = Named(columns or {}, truth, input_format or "")
    inputs, notes = with_folders(paths, reading)
    cached = _Cache(os.fspath(cache), reading, plan)
    parts = [
        cached.partial(source_input, check, progress)
        if isinstance(source_input, str) and os.path.isfile(source_input)
        else _planned_partial(
            [source_input if isinstance(source_input, str) else source_input.path], reading, plan, None
        )  # its files may still change
        for source_input in inputs
    ]
    cached.save()
    result = score_partials(parts, plan)
    return replace(result, notes=[*result.notes, *notes])


def _paths(source: Path | Sequence[Path]) -> list[str]:
    paths = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not paths:
        raise InputError("no files; expected at least one")
    return [os.fspath(path) for path in paths]


def _planned_partial(paths: Sequence[str], names: Mapping[str, str], plan: Plan, progress: Progress | None) -> Partial:
    """The partial of some files with the labels and columns that a plan needs."""
    if plan.afterwards is not None:
        raise InputError("a partial cannot have metric scripts, which need every rollout's files; score them at once")
    return partial_of(paths, names, plan.labels, columns_read(plan), progress)


def partial_of(
    paths: Sequence[str],
    names: Mapping[str, str],
    labels: Collection[str],
    keep: Collection[str] | None,
    progress: Progress | None = None,
) -> Partial:
    """The partial of some files, with these labels and columns."""
    unnumbered = names.get("sample") == NUMBERED
    try:
        packs, inputs = read_packed(paths, columns=names, labels=labels, keep=keep, progress=progress)
        packed = merge(packs)
    except (NotPackable, Repeated):  # read the files again without packing, so that an error names its line
        parts: list[Part] = []
        _, inputs = begin_reading(paths, columns=names, labels=labels, progress=progress, kept=parts)
        for part in parts:
            if part.stop is not None:
                problem = "the run was stopped by its own results, and its numbers belong to the whole run"
                expected = "expected calipers score without --partial, --cache and --engine"
                raise InputError.at(part.places.path, problem, expected) from None
        unnumbered = unnumbered or any(part.unnumbered for part in parts)
        packed = merge([pack(part, keep) for part in parts])
    files = [input_file(each.path, each.format, each.sha256, each.rollouts) for each in inputs()]
    header = PartHeader(
        SCHEMA, "", DEFINITIONS, {}, files, {}, len(packed.starts) - 1, len(packed), unnumbered=unnumbered
    )
    return Partial(", ".join(paths), header, replace(packed, inputs=", ".join(paths)))


def _bytes(partial: Partial, plan: Plan) -> bytes:
    from calipers import __version__

    settings = {
        "metrics": [request.text for request in plan.requests if request.asked or plan.dialect.name != NATIVE.name],
        "by": list(plan.by),
        "cluster": plan.cluster,
        "dialect": plan.dialect.name,
        "missing": plan.missing,
        "reward": plan.reward,
        "confidence": plan.confidence,
        "seed": plan.seed,
        "interval": plan.interval,
        "range": list(plan.range) if plan.range else None,
        "ranges": {name: list(limits) for name, limits in plan.ranges.items()} or None,
        "mean": plan.mean,
        "exclude": [f"{key}={value}" for key, value in plan.exclude],
        "threshold": plan.threshold,
        "labels": list(plan.labels),
    }
    known = {"calipers": __version__, "definitions": DEFINITIONS, "settings": settings}
    return written(partial.packed, {**known, "inputs": partial.header.inputs, "unnumbered": partial.header.unnumbered})


def _plan(partial: Partial, metrics: Any) -> Plan:
    """The plan of a partial, with other metrics if the user requests any."""
    names = [name for name in PartSettings.__struct_fields__ if name != "labels"]
    given = partial.header.settings
    settings: dict[str, Any] = {name: given[name] for name in names if given.get(name) is not None}
    if ranges := settings.pop("ranges", None):
        settings["range"] = {None: settings["range"], **ranges} if "range" in settings else ranges
    stored = settings.pop("metrics", None) or None
    if metrics is None and (code := next(filter(names_code, stored or ()), None)):
        expected = f"give it again: --metric {code}"
        raise InputError.at(partial.path, f"metric {code!r} is your own code, which a partial does not have", expected)
    return make_plan(stored if metrics is None else metrics, trusted=metrics is not None, **settings)


def score_partials(parts: Sequence[Partial], plan: Plan) -> Result:
    """The score of partials that other processes have made; InputError if two of them have the same input."""
    _check_once(parts)
    return _scored(parts, plan)


def _scored(parts: Sequence[Partial], plan: Plan) -> Result:
    """The score of several partials as one set of rollouts."""
    try:
        packed = merge(_numbered(parts))
    except Repeated as error:
        task, sample, attempt, first, second = error.args
        problem = f"task {task!r} sample {sample} attempt {attempt} appears twice"
        problem += f", also in {first}" if first != second else ""
        raise InputError.at(second, problem, "expected each rollout once") from None
    inputs = [
        Input(each.path, each.format, each.sha256, each.rollouts) for part in parts for each in part.header.inputs
    ]
    rollouts = table_of(packed)
    plan, note = by_step(plan, rollouts, [part.path for part in parts])
    result = score_rollouts(rollouts, plan)
    return replace(steps_only(result, note) if note else result, inputs=inputs)


def _numbered(parts: Sequence[Partial]) -> list[Loose | Packed]:
    """The rollouts of several partials, with distinct sample numbers where a file has none.

    Such samples are numbered by their order of appearance, across all partials. Partials are sorted by the names of
    their inputs, so that the order in which they are given does not matter.
    """
    ordered = sorted(parts, key=lambda part: [natural(each.path) for each in part.header.inputs])
    if sum(part.header.unnumbered for part in parts) < 2:
        return [part.packed for part in ordered]
    samples_of: dict[tuple[Any, ...], int] = {}  # (task, group) -> number of its samples so far
    packs: list[Loose | Packed] = []
    for part in ordered:
        packed = part.packed
        if not part.header.unnumbered:
            packs.append(packed)
            continue
        labels = [packed.kinds.labels.get(name) for name in GROUP]
        counts = np.diff(packed.starts)
        offsets = np.zeros(len(counts), dtype=np.int64)
        for task in np.flatnonzero(counts).tolist():
            kind = int(packed.code[packed.starts[task]])
            group = [
                None if label is None or label.code[kind] < 0 else label.values[label.code[kind]] for label in labels
            ]
            key = (packed.tasks[task if packed.unit is None else int(packed.unit[task])], *group)
            offsets[task] = samples_of.get(key, 0)
            samples_of[key] = int(offsets[task]) + int(counts[task])
        samples = np.concatenate([sample.astype(np.int64) for _, sample, _ in packed.rows()] or [counts[:0]])
        packs.append(replace(packed, sample=small(samples + np.repeat(offsets, counts))))
    return packs


def _check_alike(parts: Sequence[Partial]) -> None:
    """InputError if the partials have different settings, or were made with other definitions than this version's."""
    first = parts[0]
    for part in parts:
        if part.header.definitions != DEFINITIONS:
            problem = f"was made with definitions {part.header.definitions}, and this version has {DEFINITIONS}"
            raise InputError.at(part.path, problem, "make it again")
        for key in PartSettings.__struct_fields__:
            own, firsts = part.header.settings.get(key), first.header.settings.get(key)
            if own != firsts:
                problem = f"was made with {key} {_shown(own)}, and {first.path} with {_shown(firsts)}"
                raise InputError.at(part.path, problem, "make both with the same settings")


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) and value else "none" if not value else str(value)


def _check_once(parts: Sequence[Partial]) -> None:
    """InputError if two partials have the same input, or files of a format that must be read together."""
    seen: dict[str, tuple[str, str]] = {}
    folders: dict[str, tuple[str, str]] = {}
    for part in parts:
        for each in part.header.inputs:
            if each.sha256 in seen:
                owner, path = seen[each.sha256]
                problem = f"has {each.path}, which {owner} has, too" + (f" as {path}" if path != each.path else "")
                problem = "appears twice" if owner == part.path else problem
                raise InputError.at(part.path, problem, "expected each input once")
            seen[each.sha256] = part.path, each.path
            if each.format in FORMATS.entries and FORMATS.load(each.format).join:
                owner, folder = folders.setdefault(each.format, (part.path, each.folder))
                if folder != each.folder:
                    problem = f"files of {each.format} in the folders {folder} and {each.folder} must be read together"
                    raise InputError.at(part.path, problem, f"make one partial of them and those of {owner}")


def _check_expected(parts: Sequence[Partial], manifest: str) -> None:
    """Incomplete if an input of the list is in no partial."""
    try:
        with open(manifest, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        expected = "expected a file with a path or a SHA-256 on each line"
        raise InputError.at(manifest, f"cannot be read ({why})", expected) from None
    inputs = [each for part in parts for each in part.header.inputs]
    known = {each.sha256 for each in inputs} | {each.path for each in inputs}
    known |= {os.path.abspath(each.path) for each in inputs} | {part.path for part in parts}
    missing = []
    for line in filter(None, lines):
        hashed = re.fullmatch(r"([0-9a-f]{64})(?:\s+\*?(.*))?", line)
        if (hashed[1] if hashed else line) not in known and (hashed or os.path.abspath(line) not in known):
            missing.append(line if not hashed else hashed[2] or hashed[1])
    if missing:
        more = f" and {len(missing) - 3:,} more" if missing[3:] else ""
        raise Incomplete(f"{manifest}: in no partial: {', '.join(missing[:3])}{more}; expected a partial of each input")


class _Cache:
    """A folder with a partial for each input, named by its hash, and an index of file states: path -> hash."""

    def __init__(self, folder: str, names: Mapping[str, str], plan: Plan) -> None:
        self._folder, self._names, self._plan = folder, names, plan
        keep = columns_read(plan)
        columns = None if keep is None else sorted(keep)
        options = [sorted(plan.labels), columns, dict(names), worths(names), insisted(names)]
        text = json.dumps([SCHEMA, DEFINITIONS, *options], sort_keys=True, default=dict)
        self._key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._index_path = os.path.join(folder, "index.json")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise InputError.at(folder, f"cannot be a cache ({error.strerror})", "expected a folder") from None
        self._index: dict[str, Any] = {}
        # without a readable index every file is hashed again
        with suppress(OSError, msgspec.MsgspecError), open(self._index_path, "rb") as file:
            self._index = msgspec.json.decode(file.read(), type=dict[str, tuple[int, int, str]])

    def partial(self, path: str, check: bool, progress: Progress | None) -> Partial:
        """The partial of a file: from the cache if it is there, else a new one."""
        real = os.path.realpath(path)
        status = os.stat(real)
        state = (status.st_size, status.st_mtime_ns)
        entry = self._index.get(real)
        sha256 = entry[2] if entry and tuple(entry[:2]) == state and not check else _hashed(path)
        cached = os.path.join(self._folder, f"{sha256}-{self._key}.partial")
        if os.path.exists(cached):
            with suppress(InputError):  # a damaged partial is made again
                part = opened(cached)
                self._index[real] = (*state, sha256)
                inputs = [msgspec.structs.replace(each, path=path) for each in part.header.inputs]
                header = msgspec.structs.replace(part.header, inputs=inputs)
                return Partial(path, header, replace(part.packed, inputs=path))
        partial = _planned_partial([path], self._names, self._plan, progress)
        sha256 = partial.header.inputs[0].sha256
        _write(os.path.join(self._folder, f"{sha256}-{self._key}.partial"), _bytes(partial, self._plan))
        self._index[real] = (*state, sha256)
        return partial

    def save(self) -> None:
        """Write the index."""
        _write(self._index_path, msgspec.json.encode(self._index))


def _hashed(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: str, data: bytes) -> None:
    try:
        with atomic_file(os.path.realpath(path)) as file:
            file.write(data)
    except OSError as error:
        raise InputError.at(path, f"cannot be written ({error.strerror})", "choose another file") from None
