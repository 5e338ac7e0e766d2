"""Every Eval Ever's samples (``{uuid}_samples.jsonl``) as rollouts: rows of one repeat are rewards of one rollout."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats.format import BAD, Beginning, Columns, Format, Progress, Raw
from calipers.formats.rows import Gather
from calipers.formats.source import BOM, Source
from calipers.formats.system_rows import (
    Layout,
    RowBlock,
    SystemLines,
    number,
    own_names,
    read_alone,
    steps_of,
    with_notes,
)
from calipers.rollouts.column import Ints
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE, UNSTATED
from calipers.systems.every_eval_ever.wire import ROW, Performance, SampleData, SampleTokens

SYSTEM: Final = "every_eval_ever"
SCORE: Final = "score"  # the reward of rows that do not say of which result they are
NULL: Final = b"null"
AVERAGED: Final = "the scores are already averaged over repeats: all repeats of a task have the same score"
_DATA: Final = msgspec.json.Decoder(SampleData | None)


@dataclass(slots=True)
class Rollout:
    """What the rows say of one repeat of a sample so far."""

    line: int
    rewards: dict[str, float] = field(default_factory=dict)
    failed: bool = False
    correct: float | None = None
    tokens: SampleTokens | None = None
    performance: Performance | None = None
    metadata: Raw | bytes = b""


Key = tuple[str | None, str | None, str, int]  # model, dataset, task, sample


@dataclass(slots=True)
class Samples:
    """What the rows say so far."""

    lines: int = 0
    rollouts: dict[Key, Rollout] = field(default_factory=dict)
    seen: Counter[tuple[Any, ...]] = field(default_factory=Counter)  # rows without a repeat's number


def take(rows: RowBlock) -> Ints:
    """A block of rows; the rollouts are made when all are read."""
    samples: Samples = rows.memory.setdefault("samples", Samples())
    for row in zip(*(rows[key] for key, _, _ in ROW), strict=True):
        task, evaluation, model, dataset, result, error, metadata, tokens, performance = row
        samples.lines += 1
        who = (model, dataset, str(task))
        repeat = _repeat(metadata)
        if repeat is None:
            repeat = samples.seen[*who, result]
            samples.seen[*who, result] += 1
        rollout = samples.rollouts.get((*who, repeat))
        if rollout is None:
            kept = bytes(metadata) if rows.steps is not None else b""
            rollout = Rollout(samples.lines, tokens=tokens, performance=performance, metadata=kept)
            samples.rollouts[*who, repeat] = rollout
        if len(error) and bytes(error) != NULL:
            rollout.failed = True
        elif evaluation is not None and (score := number(evaluation.score)) is not None:
            rollout.rewards[result or SCORE] = score
            if rollout.correct is None:
                rollout.correct = number(evaluation.is_correct)
    return np.zeros(0, dtype=np.int64)


def _repeat(metadata: Raw) -> int | None:
    """The number of the repeat that a row is of, from 0; None where the row does not say."""
    try:
        data = _DATA.decode(metadata) if len(metadata) else None
    except BAD:
        return None
    for value, first in ((data.epoch, 1), (data.sample, 0)) if data is not None else ():
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= first:
            return int(text) - first
    return None


LAYOUT: Final = Layout(SYSTEM, ROW, take)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file of samples; InputError for the aggregate beside it, which has results only."""
    own_names(names, SYSTEM)
    if is_aggregate(source.head):
        right = "expected the file of its samples, {uuid}_samples.jsonl"
        raise InputError.at(source.path, "is a result of Every Eval Ever, without rollouts", right)
    reader = SystemLines(source.path, LAYOUT, labels)
    part = read_alone(reader, source, progress)
    samples: Samples = reader.memory.get("samples", Samples())
    if not samples.rollouts:
        return []
    fields = _columns(samples, source.path, labels)
    notes = [f"{source.path}: {AVERAGED}"] if _averaged(samples) else []
    return with_notes([replace(part, **fields)], source.path, notes)


def _columns(samples: Samples, path: str, labels: Collection[str]) -> dict[str, Any]:
    """The rollouts, as the fields of a part."""
    rollouts = list(samples.rollouts.values())
    gather = Gather()
    gather.tasks([task for _, _, task, _ in samples.rollouts])
    gather.whole("sample", [sample for *_, sample in samples.rollouts])
    gather.labels("model", [model for model, *_ in samples.rollouts])
    gather.labels("dataset", [dataset for _, dataset, *_ in samples.rollouts])
    for name in dict.fromkeys(name for rollout in rollouts for name in rollout.rewards):
        gather.numbers("reward", name, [rollout.rewards.get(name) for rollout in rollouts])
    gather.whole("outcome", [CODE["client_failed"] if rollout.failed else UNSTATED for rollout in rollouts])
    gather.numbers("column", "is_correct", [rollout.correct for rollout in rollouts])
    spent = {
        "input_tokens": "input_tokens",
        "output_tokens": "output_tokens",
        "cached_tokens": "input_tokens_cache_read",
        "reasoning_tokens": "reasoning_tokens",
    }
    for name, key in spent.items():
        counts = [None if each.tokens is None else number(getattr(each.tokens, key)) for each in rollouts]
        gather.numbers("column", name, counts)
    times = [None if each.performance is None else number(each.performance.latency_ms) for each in rollouts]
    gather.numbers("column", "latency_s", [None if time is None else time / 1000 for time in times])
    if labels:
        RowBlock(path, len(rollouts), {}, {}, labels, gather, Counter(), array("q"), {}, steps_of(labels)).metadata(
            [rollout.metadata for rollout in rollouts]
        )
    gather.rows = len(rollouts)
    places = Places(path)
    places.add(0, np.array([rollout.line for rollout in rollouts]))
    part = gather.finish(places, labels)
    names = ("places", "tasks", "task", "sample", "attempt", "outcome", "rewards", "columns", "labels")
    return {name: getattr(part, name) for name in names} | {"unnumbered": False}


def _averaged(samples: Samples) -> bool:
    """Whether all repeats of every task have the same scores, and some are neither 0 nor 1: they are means."""
    scores: dict[tuple[Any, ...], set[float]] = {}
    repeated = False
    for (model, dataset, task, _), rollout in samples.rollouts.items():
        for name, score in rollout.rewards.items() if not rollout.failed else ():
            known = scores.setdefault((model, dataset, task, name), set())
            repeated = repeated or bool(known)
            known.add(score)
    alike = all(len(each) == 1 for each in scores.values())
    return repeated and alike and any(not each <= {0.0, 1.0} for each in scores.values())


def is_aggregate(head: bytes) -> bool:
    """Whether a file that begins like this is an aggregate: one object, with results and no sample."""
    text = head.removeprefix(BOM).lstrip()
    first = text.partition(b"\n")[0]
    whole = first.rstrip().endswith(b"}")
    return (
        b'"evaluation_id"' in text
        and b'"sample_id"' not in (first if whole else text)
        and (not whole or b'"evaluation_results"' in first)
    )


def recognise(start: Beginning) -> bool:
    """Whether the first row is a sample: ``schema_version evaluation_id sample_id evaluation``; or an aggregate."""
    if start.row is None:
        return is_aggregate(start.head)
    return {"schema_version", "evaluation_id", "sample_id", "evaluation"} <= start.row.keys()


def of_folder(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Of the files in a folder, those with samples: an aggregate beside them has results only."""
    kept = []
    for path in paths:
        with Source(path) as source:
            if not is_aggregate(source.head):
                kept.append(path)
    return kept, []


SAMPLES: Final = Format(SYSTEM, read, recognise, in_folders=True, of_folder=of_folder)
