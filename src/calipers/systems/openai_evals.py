"""The reader of OpenAI evals' logs. A log has a spec, events, and a final report.

The events of a sample need not be adjacent in the log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, Beginning, Columns, Format, Progress, Raw
from calipers.formats.lines import NOTHING, kind_of
from calipers.formats.own_numbers import inside, numbers_in, parsed, pooled_mean
from calipers.formats.source import Source
from calipers.formats.system_rows import (
    Layout,
    Number,
    RowBlock,
    SystemPart,
    decoded,
    joined,
    ranks,
    read_rows,
    with_notes,
)
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import Labels, Part, Places
from calipers.typed import complete


class EvalSpec(msgspec.Struct, gc=False):
    """The spec of a run: what was evaluated."""

    completion_fns: list[Any] | None = None
    eval_name: str | None = None
    run_id: str | None = None


class MatchEvent(msgspec.Struct, gc=False):
    """The data of a ``match`` event: a verdict on a completion."""

    correct: bool | float | None = None


class TokenCounts(msgspec.Struct, gc=False):
    """The token counts of a completion."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None


class SamplingEvent(msgspec.Struct, gc=False):
    """The data of a ``sampling`` event: a completion."""

    usage: TokenCounts | None = None


class SampledTexts(msgspec.Struct, gc=False):
    """The texts of a ``sampling`` event; ``sampled`` is a list with one text per requested completion."""

    prompt: Any = None
    sampled: Any = None


class Failure(msgspec.Struct, gc=False):
    """The data of an ``error`` event."""

    type: str | None = None


LINE: Final[list[tuple[str, Any, Any]]] = [
    ("spec", EvalSpec | None, None),
    ("final_report", Raw, NOTHING),
    ("sample_id", str | int | None, None),
    ("type", str | None, None),
    ("data", Raw, NOTHING),
]


SYSTEM: Final = "openai_evals"
REWARD: Final = "correct"
MATCH: Final = "match"  # a type of event, and the column with its verdict
METRICS: Final = "metrics"  # a type of event, and the column that is 1 for such an event
TOKENS: Final = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
SPEC: Final = "spec "  # prefix of the count of a spec; the model and the dataset follow as JSON
REPORT: Final = "final report "  # prefix of the count of a final report, which follows as JSON
ACCURACY: Final = "accuracy"  # in a final report, the share of correct match events; also the name of a metric
MOST_SHOWN: Final = 3  # runs that an error names
_SAMPLED: Final = msgspec.json.Decoder(complete(SampledTexts))
_KINDS: Final[dict[str, msgspec.json.Decoder[list[Any]]]] = {
    MATCH: msgspec.json.Decoder(complete(list[MatchEvent | None])),
    METRICS: msgspec.json.Decoder(list[dict[str, Any] | None]),
    "sampling": msgspec.json.Decoder(complete(list[SamplingEvent | None])),
    "error": msgspec.json.Decoder(complete(list[Failure | None])),
}


def take(rows: RowBlock) -> Ints:
    """Add a block of lines: a row for each event of the types in `_KINDS`. `_rollouts` joins the events of a sample."""
    specs, reports, data = rows["spec"], rows["final_report"], rows["data"]
    events: list[int] = []
    of_kind: dict[str, list[int]] = {kind: [] for kind in _KINDS}
    for line, (kind, sample) in enumerate(zip(rows["type"], rows["sample_id"], strict=True)):
        if kind in of_kind and sample is not None and specs[line] is None and not len(reports[line]):
            of_kind[kind].append(len(events))
            events.append(line)
    for spec in specs:
        if spec is not None:
            functions = ", ".join(map(str, spec.completion_fns or ()))
            rows.counts[SPEC + json.dumps([functions or None, spec.eval_name])] += 1
    for report in reports:
        if report:
            rows.counts[REPORT + bytes(report).decode("utf-8", "replace")] += 1
    rows.builder.tasks([rows["sample_id"][line] for line in events])
    for kind, indices in of_kind.items():
        if indices:
            payloads = decoded(_KINDS[kind], [data[events[event]] for event in indices])
            _take_kind(rows, kind, len(events), np.array(indices), payloads)
    return np.array(events, dtype=np.int64)


def _take_kind(rows: RowBlock, kind: str, size: int, indices: Ints, payloads: Sequence[Any]) -> None:
    """Add the data of one type of event. ``indices`` are the positions of these among the block's ``size`` events."""

    def put(name: str, numbers: Sequence[Number]) -> None:
        values = np.full(size, np.nan)
        values[indices] = np.array(numbers, dtype=np.float64)  # None becomes NaN, which JSON does not have
        rows.builder.floats("column", name, values, ~np.isnan(values))

    if kind == MATCH:
        put(MATCH, [match and match.correct for match in payloads])
    elif kind == METRICS:
        put(METRICS, [None if metrics is None else 1.0 for metrics in payloads])
        tables: list[Mapping[str, Any]] = [{}] * size
        for event, metrics in zip(indices.tolist(), payloads, strict=True):
            tables[event] = metrics or {}
        rows.table("reward", tables)
    elif kind == "sampling":
        usages = [sampling and sampling.usage for sampling in payloads]
        for name, key in TOKENS.items():
            put(name, [usage and getattr(usage, key) for usage in usages])
    else:
        errors: list[str | None] = [None] * size
        for event, failure in zip(indices.tolist(), payloads, strict=True):
            errors[event] = None if failure is None else failure.type or "error"
        rows.builder.labels(ERROR_KIND, errors)


LAYOUT: Final = Layout(SYSTEM, LINE, take, headline=REWARD)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a log: one for each verdict on a sample, and one for a sample without a verdict."""
    events = joined(read_rows("calipers.systems.openai_evals:LAYOUT", source, names, labels, progress))
    if not len(events):
        return []
    notes = []
    several = int((_counts(events, MATCH) > 1).sum())
    if several:
        samples = "1 sample has" if several == 1 else f"{several:,} samples have"
        notes.append(f"{source.path}: {samples} several match events: each is a sample of the task")
    reports = [key.removeprefix(REPORT) for key in events.counts if key.startswith(REPORT)]
    if not reports:
        notes.append(f"{source.path}: there is no final report: the run was interrupted, and its last events are lost")
    rollouts = _rollouts(events)
    if len(reports) == 1:
        rollouts = replace(rollouts, checks=own_checks(rollouts, reports[0]))
    return with_notes([rollouts], source.path, notes)


def own_checks(rollouts: SystemPart, report: str) -> list[Check]:
    """The accuracy of a log's final report, and ours: the share of correct verdicts, or the mean of that metric."""
    document = parsed(report)
    reward = REWARD if REWARD in rollouts.rewards else ACCURACY
    pairs = [(ACCURACY, inside(document, ACCURACY), pooled_mean([rollouts], reward))]
    return compared(SYSTEM, pairs, numbers_in(document))


def _given(events: SystemPart, name: str) -> Ints:
    """The indices of the events with a value in a column."""
    column = events.columns.get(name)
    return np.zeros(0, dtype=np.int64) if column is None else np.flatnonzero(column.given)


def _counts(events: SystemPart, name: str) -> Ints:
    """The number of events per sample with a value in a column."""
    return np.bincount(events.task[_given(events, name)], minlength=len(events.tasks))


def _rollouts(events: SystemPart) -> SystemPart:
    """The rollouts of a log's events. The n-th verdict and the n-th metrics of a sample belong to its n-th rollout."""
    verdicts = np.maximum(_counts(events, MATCH), _counts(events, METRICS))  # of each sample of the log
    sizes = np.maximum(verdicts, 1)
    starts = np.cumsum(sizes) - sizes
    size = int(sizes.sum())
    task = np.repeat(np.arange(len(sizes)), sizes)
    errors = events.labels.get(ERROR_KIND, Labels(np.full(len(events), -1), []))
    error_events = np.flatnonzero(errors.code >= 0)
    error = np.full(len(sizes), -1)
    error[events.task[error_events]] = errors.code[error_events]  # the last error, if there are several
    error[verdicts > 0] = -1  # a sample with a verdict has recovered from its errors
    labels = _spec_labels(events, size)
    if (error >= 0).any():
        labels[ERROR_KIND] = Labels(error[task], errors.values)
    first_line = np.empty(len(sizes), dtype=np.int64)
    first_line[events.task[::-1]] = events.places.lines(len(events))[::-1]
    return replace(
        events,
        places=Places(events.places.path, events.places.unit, [(0, first_line[task])]),
        task=task,
        sample=np.arange(size) - starts[task],
        attempt=np.ones(size, dtype=np.int64),
        outcome=np.where(error >= 0, CODE["client_failed"], UNSTATED).astype(np.uint8)[task],
        rewards=_rewards(events, starts, size),
        columns={name: _summed(events, name, starts, size) for name in TOKENS if name in events.columns},
        labels=labels,
    )


def _spec_labels(events: SystemPart, size: int) -> dict[str, Labels]:
    """The spec's model and dataset as labels of ``size`` rollouts; InputError if several specs differ in them."""
    specs = [json.loads(key.removeprefix(SPEC)) for key in events.counts if key.startswith(SPEC)]
    if len(specs) > 1:
        runs = ", ".join(" on ".join(name or "?" for name in spec) for spec in specs[:MOST_SHOWN])
        more = ", …" if len(specs) > MOST_SHOWN else ""
        problem = f"has the logs of {len(specs)} runs ({runs}{more})"
        raise InputError.at(events.places.path, problem, "expected each in a file of its own")
    names = zip(("model", "dataset"), specs[0], strict=True) if specs else ()
    return {
        label: Labels(np.full(size, -1 if name is None else 0), [] if name is None else [name]) for label, name in names
    }


def _rewards(events: SystemPart, starts: Ints, size: int) -> dict[str, Column]:
    """The rewards of the rollouts: the verdict and the metrics, in the order of their first values.

    The verdict is the first. InputError if a metric has the verdict's name, and a rollout has both.
    """
    sources = []
    for kind, columns in ((MATCH, {REWARD: events.columns.get(MATCH)}), (METRICS, events.rewards)):
        rows = _given(events, kind)
        rollouts = starts[events.task[rows]] + ranks(events.task[rows])
        sources += [(name, column, rows, rollouts) for name, column in columns.items() if column is not None]
    rewards: dict[str, Column] = {}
    for name, column, rows, rollouts in sources:
        values, given = np.zeros(size), np.zeros(size, dtype=np.bool_)
        has_value = column.given[rows]
        values[rollouts[has_value]], given[rollouts[has_value]] = column.values[rows[has_value]], True
        if name in rewards and (doubled := np.flatnonzero(given & rewards[name].given)).size:
            line = events.places.lines(len(events))[rows[rollouts == doubled[0]][0]]
            problem = f"the metric {name} is there, and match events of the same sample"
            raise InputError.at(f"{events.places.path}:{line}", problem, "expected one of them")
        if name in rewards:
            values, given = np.where(given, values, rewards[name].values), given | rewards[name].given
        rewards[name] = Column(values, given)
    return dict(sorted(rewards.items(), key=lambda reward: (reward[0] != REWARD, int(reward[1].given.argmax()))))


def _summed(events: SystemPart, name: str, starts: Ints, size: int) -> Column:
    """The tokens of all completions of a sample, counted for its first rollout."""
    rows = _given(events, name)
    values, given = np.zeros(size), np.zeros(size, dtype=np.bool_)
    values[starts] = np.bincount(events.task[rows], events.columns[name].values[rows], len(starts))
    given[starts] = _counts(events, name) > 0
    return Column(values, given)


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The prompt and the completion of a sample, if its first event has them."""
    try:
        event = _SAMPLED.decode(row.get("data", b"{}"))
    except BAD:
        return [{}]
    sampled = event.sampled
    completion = sampled[0] if isinstance(sampled, list) and len(sampled) == 1 else sampled
    parts = {"prompt": event.prompt, "completion": completion}
    return [{name: part for name, part in parts.items() if isinstance(part, (str, list))}]


def recognise(start: Beginning) -> bool:
    """Whether the first line is a spec, or an event (of a log whose beginning was cut off)."""
    row = start.row
    if row is None:
        return False
    if "spec" in row:
        return kind_of(row["spec"]) == "object" and b'"completion_fns"' in bytes(row["spec"])
    return {"run_id", "event_id", "sample_id", "type", "data"} <= row.keys()


LOG: Final = Format(SYSTEM, read, recognise, in_folders=True, line_extras=line_extras)
