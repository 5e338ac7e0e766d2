"""The results of verifiers before 0.4 as rollouts: ``results.jsonl``, with ``metadata.json`` beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from calipers.formats.format import BAD, Beginning, Columns, Format, Progress, Raw
from calipers.formats.lines import ABSENT
from calipers.formats.source import Source
from calipers.formats.system_rows import (
    Layout,
    RowBlock,
    SystemLines,
    beside,
    extra_columns,
    number,
    planned,
    read_rows,
    with_notes,
)
from calipers.rollouts.part import Part
from calipers.systems.verifiers_rl.wire import RESULT

SYSTEM: Final = "verifiers_v0"
BOOKKEEPING: Final = frozenset({"num_turns", "total_tool_calls"})  # metrics that verifiers adds by itself
OURS: Final = frozenset({"sample", "attempt", "outcome", "rewards"})  # keys that only our own records have
NULL: Final = b"null"


class _Failure(msgspec.Struct, gc=False):
    error: str | None = None


class _Generation(msgspec.Struct, gc=False):
    total: float | bool | None = None


_FAILURE: Final = msgspec.json.Decoder(_Failure | str | None)
_TIMING: Final = msgspec.json.Decoder(_Generation | None)


def take(rows: RowBlock) -> None:
    """A block of rows, each a rollout."""
    gather = rows.gather
    gather.tasks(rows["example_id"])
    gather.numbers("reward", "reward", rows["reward"])
    failed = [len(raw) > 0 and bytes(raw) != NULL for raw in rows["error"]]
    rows.outcomes(["client_failed" if failure else None for failure in failed])
    rows.error_kinds([_kind(raw) if failure else None for raw, failure in zip(rows["error"], failed, strict=True)])
    _take_metrics(rows)
    usage = [{} if used is ABSENT or used is None else used for used in rows["token_usage"]]
    for name in ("input_tokens", "output_tokens"):
        gather.numbers("column", name, [number(used.get(name)) for used in usage])
    times = zip(rows["timing"], rows["total_ms"], strict=True)
    gather.numbers("column", "latency_s", [_seconds(*each) for each in times])
    if "env_task" in rows.labels:
        rows.labelled.add("env_task")
        gather.labels("env_task", [_text(raw) for raw in rows["task"]])
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        gather.labels("truncated", [None if cut is ABSENT else cut for cut in rows["is_truncated"]])
    rows.metadata(rows["info"])
    companion = rows.memory.setdefault("companion", beside(rows.path, "metadata.json"))
    for role, key in (("model", "model"), ("dataset", "env_id")):
        if isinstance(companion.get(key), str):
            rows.constant(role, companion[key])


def _take_metrics(rows: RowBlock) -> None:
    """The metrics as rewards by their names: from ``metrics``, and before there was one, from the row itself.

    Newer rows have them in both places; they are read once.
    """
    inside = [{} if metrics is ABSENT or metrics is None else metrics for metrics in rows["metrics"]]
    known = rows.memory.setdefault("metrics", set())
    known.update(name for metrics in inside for name in metrics)
    given = rows.memory.setdefault("has metrics", any(metrics is not ABSENT for metrics in rows["metrics"]))
    rows.table("reward", [{k: v for k, v in metrics.items() if k not in BOOKKEEPING} for metrics in inside])
    rows.table("column", [{k: v for k, v in metrics.items() if k in BOOKKEEPING} for metrics in inside])
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


def _seconds(timing: Raw, milliseconds: Any) -> float | None:
    if isinstance(milliseconds, (int, float)):
        value = number(milliseconds)
        return None if value is None else value / 1000
    try:
        times = _TIMING.decode(timing) if len(timing) else None
    except BAD:
        return None
    return number(times.total) if times else None


def _text(raw: Raw) -> str | None:
    try:
        value = msgspec.json.decode(raw) if len(raw) else None
    except BAD:
        return None
    return value if isinstance(value, str) else None


LAYOUT: Final = Layout(SYSTEM, RESULT, take, extras=True)


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> SystemLines:
    """A reader of rows, wherever in the file they stand."""
    return SystemLines(path, LAYOUT, labels, start)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file, and `not_run` for those that were planned and are not in it."""
    maker = "calipers.systems.verifiers_rl.read_v0:lines"
    parts = read_rows(maker, SYSTEM, source, names, labels, progress)
    companion = beside(source.path, "metadata.json")
    group = {"model": companion.get("model"), "dataset": companion.get("env_id")}
    texts = {role: name if isinstance(name, str) else None for role, name in group.items()}
    examples, samples = companion.get("num_examples"), companion.get("rollouts_per_example")
    own = planned(parts, source.path, examples, samples, texts)
    return [*with_notes(own[: len(parts)], source.path), *own[len(parts) :]]  # type: ignore[arg-type]


def recognise(start: Beginning) -> bool:
    """Whether the first row is one of verifiers' before 0.4: ``example_id prompt completion reward``."""
    keys = {"example_id", "prompt", "completion", "reward"}
    return start.row is not None and keys <= start.row.keys() and not OURS & start.row.keys()


RESULTS: Final = Format(SYSTEM, read, recognise, in_folders=True)
