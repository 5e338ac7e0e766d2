"""lm-evaluation-harness' numbers from its own files: samples added up again as it adds them up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from calipers.errors import CalipersError, InputError
from calipers.formats.read import with_folders
from calipers.formats.repeated_keys import refuse_twice
from calipers.formats.source import LARGEST_WHOLE, Source
from calipers.systems.lm_eval.metrics.aggregations import ITERATIONS
from calipers.systems.lm_eval.read import (
    IN_RESULTS,
    OTHERS,
    decoded,
    is_results,
    results_beside,
    rows_of,
    samples_beside,
    task_of,
)
from calipers.systems.lm_eval.scores.entries import KNOWN
from calipers.systems.lm_eval.task_scores import aggregate_task
from calipers.systems.lm_eval.write import table, task_row

WITHOUT: Final = "N/A"


def results_of(paths: Sequence[str]) -> dict[str, Any]:
    """A results object from files of samples; version, shots and direction from the results beside them, if any.

    So is the number of draws behind a standard error. A path to a results file stands for the samples beside it.
    A metric whose documents were written so that they cannot be read back (brier_score's chances are rounded to
    text) keeps the number that stands beside, or has none.
    """
    blocks = ("results", "versions", "n-shot", "higher_is_better", "group_subtasks")
    combined: dict[str, Any] = {block: {} for block in blocks}
    samples, results = _samples(paths)
    for path in results:  # what no samples are there for, and groups, stand as they are
        for block, content in _results(path).items():
            combined[block] = {**combined.get(block, {}), **content} if isinstance(content, dict) else content
    firsts: dict[str, str] = {}
    for path in samples:
        task, beside = task_of(path), results_beside(path)
        if firsts.setdefault(task, path) != path:
            raise InputError.at(path, f"task {task!r} was also run in {firsts[task]}", "expected one run of a task")
        config = (beside.get("configs") or {}).get(task) or {}
        values = _values(path)
        numbers, size = _numbers(values, config, (beside.get("results") or {}).get(task) or {}, _draws(beside))
        combined["results"][task] = task_row(task, config.get("task_alias"), size, numbers)
        for block in ("versions", "n-shot"):
            if task in (beside.get(block) or {}):
                combined[block][task] = beside[block][task]
        names = dict.fromkeys(key.rpartition(",")[0] for key in values)
        directions = (beside.get("higher_is_better") or {}).get(task) or {}
        better = {name: directions.get(name, KNOWN[name].higher_is_better if name in KNOWN else None) for name in names}
        combined["higher_is_better"][task] = better
    return combined


def table_of(paths: Sequence[str]) -> str:
    """The table that lm-eval prints, and that of its groups where there are some, from its own files.

    Files of several models make one such text each, under the model's name.
    """
    models: dict[str, list[str]] = {}
    for path in _files(paths):
        models.setdefault(_model(path), []).append(path)
    texts = {model: _table(some) for model, some in models.items()}
    return "\n".join(f"{model}\n{text}" for model, text in texts.items()) if len(texts) > 1 else _table(paths)


def _table(paths: Sequence[str]) -> str:
    results = results_of(paths)
    return "\n".join([table(results), *([table(results, "groups")] if results.get("groups") else [])])


def _model(path: str) -> str:
    """The model that a file of results or samples is of; where none is told, the folder it lies in."""
    with Source(path) as source:
        whole = is_results(source.head)
    model = (_whole(path) if whole else results_beside(path)).get("model_name")
    return model if isinstance(model, str) else os.path.dirname(os.path.abspath(path))


def _files(paths: Sequence[str]) -> list[str]:
    return [path for path in with_folders(paths)[0] if isinstance(path, str)]


def _samples(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of samples, those beside results files included; and the results files."""
    samples: list[str] = []
    results: list[str] = []
    for path in _files(paths):
        with Source(path) as source:
            whole = is_results(source.head)
        samples += samples_beside(path) if whole else [path]
        results += [path] if whole else []
    return samples, results


def _results(path: str) -> dict[str, Any]:
    results = _whole(path)
    blocks = ("results", "groups", "group_subtasks", "versions", "n-shot", "higher_is_better")
    return {block: results[block] for block in blocks if block in results}


def _whole(path: str) -> dict[str, Any]:
    with Source(path) as source:
        text = source.everything(LARGEST_WHOLE)
    refuse_twice(text, path, IN_RESULTS)
    return decoded(text) or {}


def _draws(beside: dict[str, Any]) -> int:
    """How often documents were drawn again for a standard error, as its configuration says."""
    iterations = (beside.get("config") or {}).get("bootstrap_iters")
    return iterations if isinstance(iterations, int) and iterations <= ITERATIONS else ITERATIONS


def _values(path: str) -> dict[str, list[Any]]:
    """The documents' values under ``metric,pipeline``, in the order of the file."""
    values: dict[str, list[Any]] = {}
    with Source(path) as source:
        for row in rows_of(source):
            for name, value in row.items():
                if name not in OTHERS:
                    values.setdefault(f"{name},{row.get('filter', 'none')}", []).append(value)
    return values


def _numbers(
    values: dict[str, list[Any]], config: dict[str, Any], beside: dict[str, Any], iterations: int
) -> tuple[dict[str, Any], int]:
    hows = {name: known.aggregation for name, known in KNOWN.items()}
    hows |= {
        entry["metric"]: entry["aggregation"]
        for entry in config.get("metric_list") or ()
        if isinstance(entry.get("aggregation"), str) and " " not in entry["aggregation"]
    }
    numbers: dict[str, Any] = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        try:
            numbers |= aggregate_task({key: items}, hows, iterations).metrics
        except CalipersError:
            error = f"{metric}_stderr,{pipeline}"
            numbers |= {key: beside.get(key, WITHOUT), error: beside.get(error, WITHOUT)}
    return numbers, max(map(len, values.values()), default=0)
