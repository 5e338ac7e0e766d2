"""A task's and a group's numbers, as lm-evaluation-harness adds them up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.errors import InputError, UnknownName
from calipers.metrics.lm_eval import How, aggregate
from calipers.metrics.lm_eval_reduce import base
from calipers.metrics.lm_eval_stderr import ITERATIONS, stderr
from calipers.scores.overlap import NAMES as OVERLAP

Numbers = dict[str, Any]
"""``metric,pipeline`` to its value, ``metric_stderr,pipeline`` to its standard error or None."""

OF_TEXT: Final = 100
"""The most iterations for the metrics called bleu, chrf, chrf++ and ter, which are slow to resample."""

_GROUP_KEYS: Final = ("metric", "aggregation", "weight_by_size", "filter_list")


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """What a task comes to."""

    metrics: Numbers
    sample_len: int  # documents of the metric that has most


def aggregate_task(
    values: Mapping[str, Sequence[Any]], aggregations: Mapping[str, How], iterations: int = ITERATIONS
) -> TaskNumbers:
    """The numbers of a task, from its documents' values under ``metric,pipeline``; an unknown metric is averaged."""
    found: Numbers = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        how = aggregations.get(metric, aggregations.get(base(metric), "mean"))
        found[key] = aggregate(how, items)
        most = min(iterations, OF_TEXT) if metric in OVERLAP else iterations
        found[f"{metric}_stderr,{pipeline}"] = stderr(how, items, most)
    return TaskNumbers(found, max((len(items) for items in values.values()), default=0))


def leaves(tree: Sequence[Any]) -> Iterator[str]:
    """The tasks of a group, those of its groups included; a group is a mapping of its name to its members."""
    for member in tree:
        if isinstance(member, Mapping):
            for inner in member.values():
                yield from leaves(inner)
        else:
            yield member


def aggregate_group(
    name: str,
    tree: Sequence[Any],
    tasks: Mapping[str, Mapping[str, Any]],
    aggregate_metric_list: Sequence[Mapping[str, Any]] = (),
    alias: str | None = None,
) -> dict[str, Any]:
    """A group's row, from the rows of its tasks.

    A mean is weighted by documents unless ``weight_by_size: false``. Its standard error is that of the
    pooled sample when weighted, ``sqrt(sum s^2) / k`` when not, and none when a task has none. Tasks
    without a row, or without the metric, are passed by; where none has it, the group has no number of it either.
    """
    names = [one for one in dict.fromkeys(leaves(tree)) if one in tasks]
    row: dict[str, Any] = {"alias": alias or name, "name": name}
    if not aggregate_metric_list:
        return row
    row["sample_len"] = sum(tasks[one].get("sample_len", 0) for one in names)
    counts: dict[str, int] = {}
    for entry in aggregate_metric_list:
        metric = _checked(entry)
        for pipeline in _pipelines(entry, metric, [tasks[one] for one in names]):
            key, beside = f"{metric},{pipeline}", f"{metric}_stderr,{pipeline}"
            there = [tasks[one] for one in names if key in tasks[one]]
            if not there:
                continue
            sizes = [one["sample_len"] for one in there]
            errors = [_number(one.get(beside)) for one in there]
            weighted = entry.get("weight_by_size", True)
            row[key] = _mean([one[key] for one in there], sizes if weighted else [1] * len(there))
            row[beside] = _error(errors, sizes, weighted)
            counts[key] = sum(sizes)
    if counts:
        row["sample_count"] = counts
    return row


def _checked(entry: Mapping[str, Any]) -> str:
    for key in entry:
        if key not in _GROUP_KEYS:
            raise UnknownName.of("key of aggregate_metric_list", key, _GROUP_KEYS)
    if not isinstance(entry.get("metric"), str):
        raise InputError.at("aggregate_metric_list", f"an entry is {dict(entry)!r}", "expected a key 'metric'")
    how = entry.get("aggregation", "mean")
    if how != "mean" and not callable(how):
        raise InputError.at("aggregate_metric_list", f"aggregation is {how!r}", "expected mean")
    return str(entry["metric"])


def _pipelines(entry: Mapping[str, Any], metric: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    asked = entry.get("filter_list")
    if asked is not None:
        return [asked] if isinstance(asked, str) else list(asked)
    keys = {key for row in rows for key in row if "," in key}
    return sorted({pipeline for head, _, pipeline in (key.rpartition(",") for key in keys) if head == metric})


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    whole = sum(weights)
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / whole


def _error(errors: Sequence[float | None], sizes: Sequence[int], weighted: bool) -> float | None:
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    if not weighted:
        return math.sqrt(math.fsum(error * error for error in known)) / len(known)
    whole, k = sum(sizes), len(sizes)
    if whole <= k:
        return None
    pooled = math.fsum((n - 1) * n * error * error for n, error in zip(sizes, known, strict=True)) / (whole - k)
    return math.sqrt(pooled / whole)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
