"""The results of verifiers before 0.4 as rollouts: ``results.jsonl``, with ``metadata.json`` beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from calipers.formats.format import BAD, Beginning, Columns, Format, Progress, Raw, Text
from calipers.formats.lines import ABSENT, NOTHING, kind_of
from calipers.formats.source import Source
from calipers.formats.system_rows import (
    Layout,
    Number,
    RowBlock,
    beside,
    extra_columns,
    given,
    planned,
    raw_hash,
    read_rows,
    row_texts,
    with_notes,
)
from calipers.rollouts.table import Part

SYSTEM: Final = "verifiers_v0"
BOOKKEEPING: Final = frozenset({"num_turns", "total_tool_calls"})  # metrics that verifiers adds by itself
OURS: Final = frozenset({"sample", "attempt", "outcome", "rewards"})  # keys that only our own records have
NO_ERROR: Final = (b"", b"null", b'""')
COMPANION: Final = "metadata.json"


class ResultTiming(msgspec.Struct, gc=False):
    """The time of a rollout before 0.4, in seconds."""

    total: Number = None


class ResultUsage(msgspec.Struct, gc=False):
    """The tokens of a rollout before 0.4."""

    input_tokens: Number = None
    output_tokens: Number = None


class TextResult(msgspec.Struct, gc=False):
    """A row before 0.4, as far as it says something."""

    example_id: int | str
    prompt: Raw = NOTHING
    completion: Raw = NOTHING
    answer: Raw = NOTHING


RESULT: Final[list[tuple[str, Any, Any]]] = [
    ("example_id", int | str, msgspec.NODEFAULT),
    ("prompt", Raw, NOTHING),
    ("completion", Raw, NOTHING),
    ("answer", Raw, NOTHING),
    ("info", Raw, NOTHING),
    ("task", Raw, NOTHING),
    ("reward", Number, ABSENT),
    ("error", Raw, NOTHING),
    ("error_chain", Raw, NOTHING),
    ("timing", ResultTiming | None, None),
    ("is_completed", bool | None, ABSENT),
    ("is_truncated", bool | None, ABSENT),
    ("stop_condition", str | None, ABSENT),
    ("metrics", dict[str, Any] | None, ABSENT),
    ("tool_defs", Raw, NOTHING),
    ("token_usage", ResultUsage | None, None),
    ("generation_ms", Number, ABSENT),
    ("scoring_ms", Number, ABSENT),
    ("total_ms", Number, ABSENT),
]
"""A row of verifiers before 0.4; every other key is a metric, or a column of the state."""


class _Failure(msgspec.Struct, gc=False):
    error: str | None = None


_FAILURE: Final = msgspec.json.Decoder(_Failure | str | None)


def take(rows: RowBlock) -> None:
    """A block of rows, each a rollout."""
    gather = rows.gather
    gather.tasks(rows["example_id"])
    gather.numbers("reward", "reward", rows["reward"])
    failed = [bytes(raw) not in NO_ERROR for raw in rows["error"]]
    rows.outcomes(["client_failed" if failure else None for failure in failed])
    rows.error_kinds([_kind(raw) if failure else None for raw, failure in zip(rows["error"], failed, strict=True)])
    _take_metrics(rows)
    for name in ("input_tokens", "output_tokens"):
        gather.numbers("column", name, [getattr(used, name) if used else None for used in rows["token_usage"]])
    times = [times.total if times else None for times in rows["timing"]]
    if any(isinstance(each, float) for each in rows["total_ms"]):  # as they were before 0.1.10
        times = [each / 1000 if isinstance(each, float) else None for each in rows["total_ms"]]
    gather.numbers("column", "latency_s", times)
    if "env_task" in rows.labels:
        rows.labelled.add("env_task")
        gather.labels("env_task", [_text(raw) for raw in rows["task"]])
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        gather.labels("truncated", [None if cut is ABSENT else cut for cut in rows["is_truncated"]])
    rows.metadata(rows["info"])
    for role, name in rows.memory.setdefault("group", _group(beside(rows.path, COMPANION))).items():
        if name is not None:
            rows.constant(role, name)


def _group(companion: Mapping[str, Any]) -> dict[str, str | None]:
    """The model and the dataset, which only the companion of a file names."""
    names = {"model": companion.get("model"), "dataset": companion.get("env_id")}
    return {role: name if isinstance(name, str) else None for role, name in names.items()}


def _take_metrics(rows: RowBlock) -> None:
    """The metrics as rewards by their names: from ``metrics``, and before there was one, from the row itself.

    Newer rows have them in both places; they are read once.
    """
    inside = [{} if metrics is ABSENT or metrics is None else metrics for metrics in rows["metrics"]]
    known = rows.memory.setdefault("metrics", set())
    known.update(name for metrics in inside for name in metrics)
    given = rows.memory.setdefault("has metrics", any(metrics is not ABSENT for metrics in rows["metrics"]))
    rows.table("reward", inside, BOOKKEEPING)
    counted_here = BOOKKEEPING & known
    if counted_here:
        rows.table("column", [{name: each.get(name) for name in counted_here} for each in inside])
    rows.extras = {key: values for key, values in rows.extras.items() if key not in known}
    counted = {key: values for key, values in rows.extras.items() if key in BOOKKEEPING}
    others = {key: values for key, values in rows.extras.items() if key not in BOOKKEEPING}
    rows.extras = counted
    extra_columns(rows)
    rows.extras = others
    extra_columns(rows, "column" if given else "reward")


def _kind(raw: Raw) -> str:
    try:
        failure = _FAILURE.decode(raw)
    except BAD:
        return "error"
    return (failure.error if isinstance(failure, _Failure) else failure) or "error"


def _text(raw: Raw) -> str | None:
    try:
        value = msgspec.json.decode(raw) if len(raw) else None
    except BAD:
        return None
    return value if isinstance(value, str) else None


LAYOUT: Final = Layout(SYSTEM, RESULT, take, extras=True)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file, and `not_run` for those that were planned and are not in it."""
    parts = read_rows("calipers.systems.verifiers_rl.read_v0:LAYOUT", source, names, labels, progress)
    companion = beside(source.path, COMPANION)
    examples, samples = companion.get("num_examples"), companion.get("rollouts_per_example")
    own = planned(parts, source.path, examples, samples, _group(companion))
    return [*with_notes(own[: len(parts)], source.path), *own[len(parts) :]]  # type: ignore[arg-type]  # a part stays of its kind


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """What the rows of a file say; an example_id is a place in the dataset, so prompts tell whether tasks are equal."""
    group = _group(beside(path, COMPANION))

    def said(row: TextResult) -> Text:
        who = None, group["model"], group["dataset"], str(row.example_id)
        return Text(*who, 0, target=raw_hash(row.answer), completion=row.completion, prompt=row.prompt)

    return row_texts(path, TextResult, said, wanted)


def said(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, and what the dataset knows of the task."""
    metadata = given(row, metadata="info") if kind_of(row.get("info", NOTHING)) == "object" else {}
    return [{**metadata, **given(row, prompt="prompt", completion="completion")}]


def recognise(start: Beginning) -> bool:
    """Whether the first row is one of verifiers' before 0.4: ``example_id prompt completion reward``."""
    keys = {"example_id", "prompt", "completion", "reward"}
    return start.row is not None and keys <= start.row.keys() and not OURS & start.row.keys()


RESULTS: Final = Format(SYSTEM, read, recognise, texts, in_folders=True, said=said)
