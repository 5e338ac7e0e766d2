"""A document's repeats to one score, a task's and a group's numbers, as lm-evaluation-harness adds them up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.metrics.aggregations import OVERLAP, How, aggregate
from calipers.systems.lm_eval.metrics.bootstrap import ITERATIONS, stderr
from calipers.systems.lm_eval.scores.entries import Entry

STEPS: Final = (1, 3, 5, 10, 20, 50, 100)
NAMES: Final = ("take_first", "mean", "pass_at_k", "pass@k", "majority")

Reduction = str | Callable[..., Any]


def pass_at_k(scores: Sequence[Any], k: int | Sequence[int] | None = None) -> dict[str, float]:
    """Chance that k of a document's n repeats include a pass, for each k; a score that is not 0 is a pass.

    ``1 - C(n - c, k) / C(n, k)`` for c passes (Chen et al. 2021). Without k: 1, 3, 5, 10, 20, 50 and 100 as
    far as they go, n itself, and points between 100 and n. A k beyond n is an error where nothing passed:
    then nobody knows.

    >>> pass_at_k([1, 0, 0, 1], 1)
    {'pass@1': 0.5}
    """
    n, passes = len(scores), sum(map(bool, scores))
    ks = default_ks(n) if k is None else [k] if isinstance(k, int) else list(k)
    for size in ks:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError.at("pass_at_k", f"k is {size!r}", "expected a positive integer")
        if size > n and not passes:
            raise InputError.at("pass_at_k", f"k is {size}, but there are only {n} repeats", f"expected at most {n}")
    return {f"pass@{size}": _chance(n, passes, size) for size in ks}


def default_ks(n: int) -> list[int]:
    """The k that are worth a number for n repeats.

    >>> default_ks(12)
    [1, 3, 5, 10, 12]
    """
    ks = {step for step in STEPS if step <= n} | ({n} if n else set())
    if n > STEPS[-1]:
        decades = math.log10(n) - 2
        pieces = max(2, 3 * int(decades))
        ks |= {int(10 ** (2 + i * decades / pieces)) for i in range(1, pieces)}
    return sorted(ks)


def reduced(name: str, values: Sequence[Any], how: Reduction, k: Any = None, reference: Any = None) -> dict[str, Any]:
    """One document's scores of a metric as one number, or as several under ``part(metric)``.

    A single value is passed on as it is.

    >>> reduced("exact_match", [1, 0], "pass_at_k")
    {'pass@1(exact_match)': 0.5, 'pass@2(exact_match)': 1.0}
    """
    if len(values) == 1 and k is None:
        return {name: values[0]}
    result = _reduction(name, values, how, k, reference)
    return (
        {f"{part}({name})": score for part, score in result.items()} if isinstance(result, Mapping) else {name: result}
    )


def check(entry: Entry, repeats: int | None = None, location: str = "metric_list") -> None:
    """Refuse a reduction that does not exist, and a k that no document could have."""
    how = entry.reduction
    if isinstance(how, str) and how not in NAMES:
        raise UnknownName.of("reduction", how, NAMES)
    if entry.k is not None:
        if how not in ("pass_at_k", "pass@k"):
            raise InputError.at(location, f"metric {entry.name!r} has k", "expected reduction: pass_at_k with it")
        pass_at_k([1] * (repeats or 1), entry.k)
        most = entry.k if isinstance(entry.k, int) else max(entry.k)
        if repeats is not None and most > repeats:
            raise InputError.at(location, f"k is {most}, but repeats is {repeats}", f"expected repeats: {most} or more")


def base(key: str) -> str:
    """The metric that a key of a reduction belongs to: ``pass@1(exact_match)`` to exact_match."""
    head, opened, rest = key.partition("(")
    return rest.removesuffix(")") if opened and head and rest.endswith(")") else key


def _reduction(name: str, values: Sequence[Any], how: Reduction, k: Any, reference: Any) -> Any:
    if not values:
        raise InputError(f"metric {name!r}: a document has no repeats; expected at least one")
    if callable(how):
        try:
            return how(reference, list(values))
        except Exception as error:
            raise PluginError(f"the reduction of {name!r} failed: {type(error).__name__}: {error}") from error
    if how == "take_first":
        return values[0]
    if how == "mean":
        return math.fsum(values) / len(values)
    if how in ("pass_at_k", "pass@k"):
        return pass_at_k(values, k)
    if how == "majority":
        return Counter(values).most_common(1)[0][0]
    raise UnknownName.of("reduction", how, NAMES)


def _chance(n: int, passes: int, k: int) -> float:
    if n - passes < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - passes + 1, n + 1)))


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
    numbers: Numbers = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        how = aggregations.get(metric, aggregations.get(base(metric), "mean"))
        numbers[key] = aggregate(how, items)
        most = min(iterations, OF_TEXT) if metric in OVERLAP else iterations
        numbers[f"{metric}_stderr,{pipeline}"] = stderr(how, items, most)
    return TaskNumbers(numbers, max((len(items) for items in values.values()), default=0))


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
    names = [task for task in dict.fromkeys(leaves(tree)) if task in tasks]
    row: dict[str, Any] = {"alias": alias or name, "name": name}
    if not aggregate_metric_list:
        return row
    row["sample_len"] = sum(tasks[task].get("sample_len", 0) for task in names)
    counts: dict[str, int] = {}
    for entry in aggregate_metric_list:
        metric = _checked(entry)
        for pipeline in _pipelines(entry, metric, [tasks[task] for task in names]):
            key, beside = f"{metric},{pipeline}", f"{metric}_stderr,{pipeline}"
            there = [tasks[task] for task in names if key in tasks[task]]
            if not there:
                continue
            sizes = [task["sample_len"] for task in there]
            errors = [_number(task.get(beside)) for task in there]
            weighted = entry.get("weight_by_size", True)
            row[key] = _mean([task[key] for task in there], sizes if weighted else [1] * len(there))
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
    listed = entry.get("filter_list")
    if listed is not None:
        return [listed] if isinstance(listed, str) else list(listed)
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
