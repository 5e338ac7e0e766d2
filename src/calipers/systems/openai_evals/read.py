"""The logs of OpenAI evals as rollouts: the events of a sample are put together, wherever in the log they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np

from calipers.formats.format import BAD, Beginning, Columns, Format, Progress, Raw
from calipers.formats.lines import kind_of
from calipers.formats.rows import Gather
from calipers.formats.source import Source
from calipers.formats.system_rows import (
    Layout,
    RowBlock,
    SystemLines,
    number,
    own_names,
    read_alone,
    with_notes,
)
from calipers.rollouts.column import Ints
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE, UNSTATED
from calipers.systems.openai_evals.wire import LINE, Failure, Match, Sampling, Spec

SYSTEM: Final = "openai_evals"
REWARD: Final = "correct"
_MATCH: Final = msgspec.json.Decoder(Match)
_SAMPLING: Final = msgspec.json.Decoder(Sampling)
_FAILURE: Final = msgspec.json.Decoder(Failure)
_METRICS: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class Sample:
    """What the events say of one sample so far."""

    line: int
    matches: list[float] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None


@dataclass(slots=True)
class Log:
    """What the lines say so far."""

    lines: int = 0
    samples: dict[str | int, Sample] = field(default_factory=dict)
    spec: Spec | None = None
    ended: bool = False


def take(rows: RowBlock) -> Ints:
    """A block of lines; the rollouts are made when all are read."""
    log: Log = rows.memory.setdefault("log", Log())
    for spec, report, sample_id, kind, data in zip(*(rows[key] for key, _, _ in LINE), strict=True):
        log.lines += 1
        if spec is not None:
            log.spec = spec
        elif len(report):
            log.ended = True
        elif sample_id is not None and kind in _TAKEN:
            sample = log.samples.get(sample_id)
            if sample is None:
                log.samples[sample_id] = sample = Sample(log.lines)
            if len(data):
                try:
                    _TAKEN[kind](sample, data)
                except BAD:  # its data are not of this kind
                    continue
    return np.zeros(0, dtype=np.int64)


def _take_match(sample: Sample, data: Raw) -> None:
    correct = _MATCH.decode(data).correct
    if correct is not None:
        sample.matches.append(float(correct))


def _take_metrics(sample: Sample, data: Raw) -> None:
    sample.metrics.append(_METRICS.decode(data))


def _take_sampling(sample: Sample, data: Raw) -> None:
    usage = _SAMPLING.decode(data).usage
    if usage is not None:
        if usage.prompt_tokens is not None:
            sample.input_tokens = (sample.input_tokens or 0.0) + usage.prompt_tokens
        if usage.completion_tokens is not None:
            sample.output_tokens = (sample.output_tokens or 0.0) + usage.completion_tokens


def _take_error(sample: Sample, data: Raw) -> None:
    sample.error = _FAILURE.decode(data).type or "error"


_TAKEN: Final = {
    "match": _take_match,
    "metrics": _take_metrics,
    "sampling": _take_sampling,
    "error": _take_error,
}
LAYOUT: Final = Layout(SYSTEM, LINE, take, headline=REWARD)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a log: one for each verdict on a sample, one for a sample without a verdict."""
    own_names(names, SYSTEM)
    reader = SystemLines(source.path, LAYOUT, labels)
    part = read_alone(reader, source, progress)
    log: Log = reader.memory.get("log", Log())
    if not log.samples:
        return []
    notes = []
    several = sum(len(sample.matches) > 1 for sample in log.samples.values())
    if several:
        notes.append(f"{source.path}: {several:,} samples have several match events: each is a sample of the task")
    if not log.ended:
        notes.append(f"{source.path}: there is no final report: the run was interrupted, and its last events are lost")
    rollouts = replace(part, **_columns(log, source.path))
    return with_notes([rollouts], source.path, notes)


def _columns(log: Log, path: str) -> dict[str, Any]:
    """The rollouts of a log, as the fields of a part."""
    rows = [
        (task, sample, place)
        for task, sample in log.samples.items()
        for place in range(max(len(sample.matches), len(sample.metrics), 1))
    ]
    gather = Gather()
    gather.tasks([task for task, _, _ in rows])
    gather.whole("sample", [place for _, _, place in rows])
    correct = [sample.matches[place] if place < len(sample.matches) else None for _, sample, place in rows]
    gather.numbers("reward", REWARD, correct)
    measured = [sample.metrics[place] if place < len(sample.metrics) else {} for _, sample, place in rows]
    for name in dict.fromkeys(name for metrics in measured for name in metrics):
        gather.numbers("reward", name, [number(metrics.get(name)) for metrics in measured])
    for name in ("input_tokens", "output_tokens"):
        gather.numbers("column", name, [None if place else getattr(sample, name) for _, sample, place in rows])
    lost = [sample.error if not sample.matches and not sample.metrics else None for _, sample, _ in rows]
    gather.whole("outcome", [UNSTATED if error is None else CODE["client_failed"] for error in lost])
    if any(lost):
        gather.labels(ERROR_KIND, lost)
    if log.spec is not None:
        functions = ", ".join(map(str, log.spec.completion_fns or ()))
        gather.labels("model", [functions or None] * len(rows))
        gather.labels("dataset", [log.spec.eval_name] * len(rows))
    gather.rows = len(rows)
    places = Places(path)
    places.add(0, np.array([sample.line for _, sample, _ in rows]))
    part = gather.finish(places)
    names = ("places", "tasks", "task", "sample", "attempt", "outcome", "rewards", "columns", "labels")
    return {name: getattr(part, name) for name in names} | {"unnumbered": True}


def recognise(start: Beginning) -> bool:
    """Whether the first line is a spec, or an event of a log that was cut at its beginning."""
    row = start.row
    if row is None:
        return False
    if "spec" in row:
        return kind_of(row["spec"]) == "object" and b'"completion_fns"' in bytes(row["spec"])
    return {"run_id", "event_id", "sample_id", "type", "data"} <= row.keys()


LOG: Final = Format(SYSTEM, read, recognise, in_folders=True)
