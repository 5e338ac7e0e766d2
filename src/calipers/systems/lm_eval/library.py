"""lm-evaluation-harness' tasks as a library of benchmarks: the functions that runs and commands call.

Also its tables of its own files: the numbers are computed again from the samples, as lm-evaluation-harness does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from calipers.errors import CalipersError, InputError
from calipers.formats.read import with_folders
from calipers.formats.run_folder import is_run
from calipers.formats.source import Source
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean
from calipers.running.library import TaskLibrary
from calipers.systems import OwnPage
from calipers.systems.lm_eval import benchmarks, client, command_line, report
from calipers.systems.lm_eval.aggregations import ITERATIONS
from calipers.systems.lm_eval.entries import KNOWN
from calipers.systems.lm_eval.read import (
    NOT_METRICS,
    RESULTS_BLOCKS,
    is_results,
    listed_aggregation,
    results_beside,
    results_in,
    rows_of,
    samples_beside,
    task_of,
)
from calipers.systems.lm_eval.task_scores import aggregate_task
from calipers.systems.lm_eval.write import NOT_AVAILABLE, environment, model_blocks, sanitized, tables, task_row
from calipers.tasks import Suite
from calipers.typed import complete

if TYPE_CHECKING:
    from calipers.running.perform import Report

SHAPES: Final[Mapping[str, Any]] = {  # the blocks of a results file that the table and the numbers depend on
    **dict.fromkeys(("results", "groups", "configs"), dict[str, dict[str, Any]]),
    "group_subtasks": dict[str, list[str]],
    **dict.fromkeys(("versions", "n-shot", "config"), dict[str, Any]),
    "higher_is_better": dict[str, dict[str, bool | None] | None],
}


def results_of(paths: Sequence[str]) -> dict[str, Any]:
    """A results object computed from samples files, and from the results file beside each, if there is one.

    The results file provides versions, few-shot counts, directions, and the number of bootstrap draws. The path of a
    results file means the samples files beside it. A metric that cannot be computed again keeps the number of the
    results file, or "N/A": its samples may be written with a loss (brier_score's probabilities are rounded to text),
    or the task's own function may aggregate it.
    """
    combined: dict[str, Any] = {block: {} for block in RESULTS_BLOCKS}
    samples: list[str] = []
    for path in _files(paths):
        if not _holds_results(path):
            samples.append(path)
            continue
        samples += samples_beside(path)
        blocks = _blocks(path, results_in(path))
        for block in RESULTS_BLOCKS:  # groups, and tasks without samples files, keep these values
            combined[block] |= blocks[block]
    firsts: dict[str, str] = {}
    for path in samples:
        task, beside = task_of(path), _blocks(*results_beside(path))
        if firsts.setdefault(task, path) != path:
            raise InputError.at(path, f"task {task!r} was also run in {firsts[task]}", "expected one run of a task")
        config = beside["configs"].get(task, {})
        values = _values(path)
        numbers, size = _numbers(values, config, beside["results"].get(task, {}), _draws(beside["config"]))
        combined["results"][task] = task_row(task, config.get("task_alias"), size, numbers)
        for block in ("versions", "n-shot"):
            if task in beside[block]:
                combined[block][task] = beside[block][task]
        names = dict.fromkeys(key.rpartition(",")[0] for key in values)
        directions = beside["higher_is_better"].get(task) or {}
        better = {name: directions.get(name, KNOWN[name].higher_is_better if name in KNOWN else None) for name in names}
        combined["higher_is_better"][task] = better
    return combined


def table_of(paths: Sequence[str]) -> str:
    """The tables that lm-eval prints for tasks and groups, from its own files.

    Files of several models give several such texts, each below the model's name.
    """
    models: dict[str, list[str]] = {}
    for path in _files(paths):
        models.setdefault(_model(path), []).append(path)
    texts = {model: tables(results_of(files)) for model, files in models.items()}
    return "\n".join(f"{model}\n{text}" for model, text in texts.items()) if len(texts) > 1 else "".join(texts.values())


def _model(path: str) -> str:
    """The model of a results or samples file; the path of its folder if the results file does not name the model."""
    results = results_in(path) if _holds_results(path) else results_beside(path)[1]
    model = results.get("model_name")
    return model if isinstance(model, str) else os.path.dirname(os.path.abspath(path))


def _files(paths: Sequence[str]) -> list[str]:
    return [path for path in with_folders(paths)[0] if isinstance(path, str)]


def _holds_results(path: str) -> bool:
    with Source(path) as source:
        return is_results(source.head)


def _blocks(path: str, results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The blocks of a results file, empty if absent; InputError for a block of the wrong type."""
    blocks = {}
    for name, shape in SHAPES.items():
        content = results.get(name)
        try:
            blocks[name] = msgspec.convert({} if content is None else content, complete(shape))
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise InputError.at(path, f"{name}: {error}", "expected a results file as lm_eval writes it") from None
    return blocks


def _draws(config: Mapping[str, Any]) -> int:
    """The number of bootstrap draws for a standard error: from the results file's config, at most the default."""
    iterations = config.get("bootstrap_iters")
    return iterations if isinstance(iterations, int) and iterations <= ITERATIONS else ITERATIONS


def _values(path: str) -> dict[str, list[Any]]:
    """The documents' values under ``metric,pipeline``, in the order of the file."""
    values: dict[str, list[Any]] = {}
    with Source(path) as source:
        for row in rows_of(source):
            for name, value in row.items():
                if name not in NOT_METRICS:
                    values.setdefault(f"{name},{row.get('filter', 'none')}", []).append(value)
    return values


def _numbers(
    values: Mapping[str, list[Any]], config: Mapping[str, Any], beside: Mapping[str, Any], iterations: int
) -> tuple[dict[str, Any], int]:
    hows = {name: known.aggregation for name, known in KNOWN.items()}
    for name in {key.rpartition(",")[0] for key in values}:
        how = listed_aggregation(config, name)
        hows |= {} if how is None else {name: how}
    numbers: dict[str, Any] = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        try:
            numbers |= aggregate_task({key: items}, hows, iterations).metrics
        except CalipersError:
            error = f"{metric}_stderr,{pipeline}"
            numbers |= {key: beside.get(key, NOT_AVAILABLE), error: beside.get(error, NOT_AVAILABLE)}
    return numbers, max(map(len, values.values()), default=0)


NAME: Final = "lm_eval"
FILES: Final = ("lm_eval_samples", "lm_eval_results")  # formats that lm-evaluation-harness wrote
REQUESTED: Final = ("num_fewshot", "predict_only", "trust")  # the options that decide how tasks are loaded


def _settings(benchmark: str, include_path: Sequence[str], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {key: given[key] for key in REQUESTED if key in given}
    return benchmarks.settings(benchmark, benchmarks.TaskRequest(tuple(include_path), **known))


def _checked(benchmark: str, include_path: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    return benchmarks.checked(benchmark, benchmarks.TaskRequest(tuple(include_path), **given))


def _check_documents(path: Path, suite: Suite) -> None:
    benchmarks.check_documents(path, suite.name, suite.metadata[NAME]["document_hashes"])


def with_own_numbers(result: Result, paths: Sequence[str], trust: bool) -> Result:
    """Add the numbers of lm-evaluation-harness' table to a result, if all paths are our runs of its tasks.

    A task that has changed gets a note. A task that cannot be read, or that has functions and no ``trust``, gets a
    note in place of the numbers.
    """
    if not all(map(report.is_harness_run, paths)):
        return result
    try:
        reports, notes = report.stored_reports(paths, trust=trust, interval=result.interval)
        lines = [note for each in reports for note in each.notes if note.startswith("--interval")]
        notes = [*notes, *lines]
        return replace(result, own={NAME: [each.document() for each in reports]}, notes=[*result.notes, *notes])
    except CalipersError as error:
        return replace(result, notes=[*result.notes, f"lm-evaluation-harness' own numbers: {error}"])


def own_page(result: Result, shape: str, paths: Sequence[str], trust: bool) -> OwnPage | None:
    """lm-evaluation-harness' Markdown tables, for files that it wrote and for our runs of its tasks; None for others.

    ``trust`` permits running the functions of those tasks.
    """
    if shape != "md" or not paths:
        return None
    formats = [source.format for source in result.inputs]
    of_files = all(name in FILES for name in formats)
    if not of_files and not (all(name == "run" for name in formats) and all(map(report.is_harness_run, paths))):
        return None
    if not all(map(is_run, paths)):
        return OwnPage(table_of(paths), alone=True)
    reports, notes = report.stored_reports(paths, trust=trust, interval=result.interval)
    sentences = [line for each in reports for line in each.sentences]
    remarks = [*sentences, *(f"note: {clean(note, None)}" for note in notes)]
    return OwnPage("\n".join(tables(each.results) for each in reports), alone=True, remarks=remarks)


def run_page(reports: Sequence[Report], shape: str, export: Path | None) -> OwnPage:
    """lm-evaluation-harness' tables of the runs that have just ended; with ``export``, also write its files."""
    parts = [each.part for each in reports if each.part is not None]
    if export is not None and not any(each.job.lm_eval for each in reports):
        problem = "none of the runs is of a task of lm-evaluation-harness"
        raise InputError.at("--export", problem, "expected a task of lm-evaluation-harness")
    if not parts or (shape not in ("table", "md") and export is None):
        return OwnPage("")
    own_reports = list(report.joined(parts))
    texts = [text for each in own_reports if (text := each.shown(shape))]
    written: list[str] = []
    if export is not None:
        for each in own_reports:
            _, tokenizer_block = model_blocks(each.parts[0].job)
            blocks = {**environment(), **tokenizer_block, "date": time.time()}
            blocks["model_name_sanitized"] = sanitized(each.model)
            written += map(str, each.write(export, datetime.now(UTC).replace(tzinfo=None), blocks=blocks))
    return OwnPage(("\n" if shape == "md" else "").join(texts), remarks=written)


LIBRARY = TaskLibrary(
    name=NAME,
    is_known=benchmarks.is_known,
    settings=_settings,
    checked=_checked,
    loaded=benchmarks.LoadedTasks,
    suite=benchmarks.suite_of,
    check_documents=_check_documents,
    client=client.task_client,
    template=client.template_name,
    report=report.part,
    documents=report.documents,
    joined=report.joined,
    integrity=benchmarks.integrity,
    written_out=benchmarks.written_out,
    shown_config=benchmarks.shown_config,
    listed=command_line.listed,
)
