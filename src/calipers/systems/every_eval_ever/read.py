"""Every Eval Ever's samples (``{uuid}_samples.jsonl``) as rollouts: rows of one repeat are rewards of one rollout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats.format import Beginning, Columns, Format, Progress, Raw
from calipers.formats.lines import NOTHING
from calipers.formats.source import BOM, Source
from calipers.formats.system_rows import (
    Layout,
    Number,
    Remembered,
    RowBlock,
    SystemPart,
    conversation,
    decoded,
    joined,
    own_names,
    ranks,
    read_rows,
    some_rows,
    with_notes,
)
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import Part

SYSTEM: Final = "every_eval_ever"
SCORE: Final = "score"  # the reward of rows that do not say of which result they are
RESULT: Final = "result of the row"  # a label and a column of rows, which rollouts do not have
VALUE: Final = "score of the row"
CORRECT: Final = "is_correct"
UNSAID: Final = -1  # the repeat of a row that does not say it
NO_ERROR: Final = (b"", b"null", b'""')
AVERAGED: Final = "the scores are already averaged over repeats: all repeats of a task have the same score"
SPENT: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "input_tokens_cache_read",
    "reasoning_tokens": "reasoning_tokens",
}


class Evaluation(msgspec.Struct, gc=False):
    """The score of a row."""

    score: Number = None
    is_correct: Number = None


class SampleData(msgspec.Struct, gc=False):
    """What says which repeat a row is of; every value is text."""

    epoch: str | int | None = None
    sample: str | int | None = None


class SampleTokens(msgspec.Struct, gc=False):
    """The tokens of a rollout."""

    input_tokens: Number = None
    output_tokens: Number = None
    input_tokens_cache_read: Number = None
    reasoning_tokens: Number = None


class Performance(msgspec.Struct, gc=False):
    """The times of a rollout."""

    latency_ms: Number = None


class SaidSample(msgspec.Struct, gc=False):
    """What a row says beside numbers."""

    input: Any = None
    output: Any = None
    messages: Any = None
    metadata: Any = None


ROW: Final[list[tuple[str, Any, Any]]] = [
    ("sample_id", str | int, msgspec.NODEFAULT),
    ("evaluation", Evaluation | None, msgspec.NODEFAULT),
    ("model_id", str | None, None),
    ("evaluation_name", str | None, None),
    ("evaluation_result_id", str | None, None),
    ("error", Raw, NOTHING),
    ("metadata", Raw, NOTHING),
    ("token_usage", SampleTokens | None, None),
    ("performance", Performance | None, None),
]


_SAID: Final = msgspec.json.Decoder(SaidSample)
_DATA: Final = msgspec.json.Decoder(list[SampleData | None])


def take(rows: RowBlock) -> None:
    """A block of rows; `_rollouts` puts those of a repeat together."""
    gather = rows.gather
    gather.tasks(rows["sample_id"])
    gather.labels("model", rows["model_id"])
    gather.labels("dataset", rows["evaluation_name"])
    gather.labels(RESULT, rows["evaluation_result_id"])
    repeats: Remembered = rows.memory.setdefault("repeats", Remembered(_repeat))
    data = decoded(_DATA, rows["metadata"])
    gather.whole("sample", repeats.of([(None, None) if each is None else (each.sample, each.epoch) for each in data]))
    evaluations = rows["evaluation"]
    if any(map(len, rows["error"])):
        failed = [bytes(raw) not in NO_ERROR for raw in rows["error"]]
        rows.outcomes(["client_failed" if failure else None for failure in failed])
        evaluations = [None if failure else each for each, failure in zip(evaluations, failed, strict=True)]
    gather.numbers("column", VALUE, [each and each.score for each in evaluations])
    given = [each if each and each.score is not None else None for each in evaluations]
    gather.numbers("column", CORRECT, [each and each.is_correct for each in given])
    for name, key in SPENT.items():
        gather.numbers("column", name, [each and getattr(each, key) for each in rows["token_usage"]])
    times = [each and each.latency_ms for each in rows["performance"]]
    gather.numbers("column", "latency_s", [None if time is None else time / 1000 for time in times])
    rows.metadata(rows["metadata"])
    rows.labelled.update(path.split(".")[0] for path in rows.labels)


def _repeat(said: tuple[str | int | None, str | int | None]) -> int:
    """The number of the repeat that a row is of, from 0, by its sample, or else by its epoch.

    A row with both is one that Calipers wrote: the epoch is a key of the rollout's own metadata.
    """
    for value, first in zip(said, (0, 1), strict=True):
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= first:
            return int(text) - first
    return UNSAID


LAYOUT: Final = Layout(SYSTEM, ROW, take, unnumbered=False)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file of samples; InputError for the aggregate beside it, which has results only."""
    own_names(names, SYSTEM)
    if is_aggregate(source.head):
        right = "expected the file of its samples, {uuid}_samples.jsonl"
        raise InputError.at(source.path, "is a result of Every Eval Ever, without rollouts", right)
    rows = joined(read_rows("calipers.systems.every_eval_ever.read:LAYOUT", source, names, labels, progress))
    if not len(rows):
        return []
    rollouts = _rollouts(rows)
    notes = [f"{source.path}: {AVERAGED}"] if _averaged(rollouts) else []
    return with_notes([rollouts], source.path, notes)


def _rollouts(rows: SystemPart) -> SystemPart:
    """The rows of each repeat as one rollout: the last score of a result counts, and what the first row says else."""
    who, sample = _who(rows), rows.sample.copy()
    unsaid = sample == UNSAID
    result = rows.labels[RESULT]
    sample[unsaid] = ranks(_codes(who, result.code)[unsaid])  # in the order of the rows of each result
    first, owner = _by_appearance(_codes(who, sample))
    failed = np.zeros(len(first), dtype=np.bool_)
    failed[owner[rows.outcome == CODE["client_failed"]]] = True
    columns = {name: column.take(first) for name, column in rows.columns.items() if name not in (VALUE, CORRECT)}
    if CORRECT in rows.columns:
        columns[CORRECT] = _gathered(rows.columns[CORRECT], np.arange(len(rows))[::-1], owner, len(first))
    rewards = {}
    for name in dict.fromkeys(value or SCORE for value in (*result.values, None)):
        named = [code for code, value in enumerate(result.values) if (value or SCORE) == name]
        own = np.flatnonzero(np.isin(result.code, [*named, -1] if name == SCORE else named))
        if VALUE in rows.columns and rows.columns[VALUE].given[own].any():
            rewards[name] = _gathered(rows.columns[VALUE], own, owner, len(first))
    return replace(
        some_rows(rows, first),
        sample=sample[first],
        outcome=np.where(failed, CODE["client_failed"], UNSTATED).astype(np.uint8),
        rewards=dict(sorted(rewards.items(), key=lambda reward: int(reward[1].given.argmax()))),
        columns={name: column for name, column in columns.items() if column.given.any()},
        labels={name: labels.take(first) for name, labels in rows.labels.items() if name != RESULT},
    )


def _gathered(column: Column, rows: Ints, owner: Ints, size: int) -> Column:
    """Of each rollout the number of the last of these rows that has one."""
    values, given = np.zeros(size), np.zeros(size, dtype=np.bool_)
    rows = rows[column.given[rows]]
    values[owner[rows]], given[owner[rows]] = column.values[rows], True
    return Column(values, given)


def _who(part: SystemPart) -> Ints:
    """A code for each model, dataset and task."""
    return _codes(_codes(part.labels["model"].code, part.labels["dataset"].code), part.task)


def _codes(first: Ints, second: Ints) -> Ints:
    """A code for each pair of codes, from -1 on."""
    pairs = (first + 1) * (int(second.max(initial=0)) + 2) + second + 1
    inverse: Ints = np.unique(pairs, return_inverse=True)[1]
    return inverse


def _by_appearance(codes: Ints) -> tuple[Ints, Ints]:
    """The first row of each code, in their order; and the place there of each row's code."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[inverse]


def _averaged(rollouts: SystemPart) -> bool:
    """Whether all repeats of every task have the same scores, and some are neither 0 nor 1: they are means."""
    who = _who(rollouts)
    repeated, between = False, False
    for column in rollouts.rewards.values():
        rows = np.flatnonzero(column.given & (rollouts.outcome != CODE["client_failed"]))
        values, owner = column.values[rows], who[rows]
        one = np.zeros(len(rollouts))
        one[owner] = values
        if (one[owner] != values).any():
            return False
        repeated = repeated or len(np.unique(owner)) < len(owner)
        between = between or bool(((values != 0) & (values != 1)).any())
    return repeated and between


def said(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a sample, its answer and its metadata."""
    sample = _SAID.decode(msgspec.json.encode(row))
    texts = conversation(sample.messages) if isinstance(sample.messages, list) else {}
    asked, answered = (each.get("raw") if isinstance(each, dict) else None for each in (sample.input, sample.output))
    if not texts and isinstance(asked, str):
        texts["prompt"] = asked
    if "completion" not in texts and isinstance(answered, list) and len(answered) == 1:
        texts["completion"] = answered[0]
    return [{**texts, **({"metadata": sample.metadata} if isinstance(sample.metadata, dict) else {})}]


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


SAMPLES: Final = Format(SYSTEM, read, recognise, in_folders=True, of_folder=of_folder, said=said)
