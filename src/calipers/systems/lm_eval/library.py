"""lm-evaluation-harness' tasks as a library of benchmarks: what a run asks of them, and what doors show of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from calipers.errors import CalipersError
from calipers.formats.run_plan import is_run
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean
from calipers.running.library import OwnTable, TaskLibrary
from calipers.systems.lm_eval.jobs import benchmarks, client, report
from calipers.systems.lm_eval.own_files import table_of
from calipers.tasks.task import Suite

NAME: Final = "lm_eval"
FILES: Final = ("lm_eval_samples", "lm_eval_results")  # formats of what it wrote itself
REQUESTED: Final = ("num_fewshot", "predict_only", "trust")  # what of a command decides how its tasks are loaded


def _settings(benchmark: str, include_path: Sequence[str], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {key: given[key] for key in REQUESTED if key in given}
    return benchmarks.settings(benchmark, benchmarks.TaskRequest(tuple(include_path), **known))


def _checked(benchmark: str, include_path: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    return benchmarks.checked(benchmark, benchmarks.TaskRequest(tuple(include_path), **given))


def _check_documents(path: Path, suite: Suite) -> None:
    benchmarks.check_documents(path, suite.name, suite.metadata[NAME]["document_hashes"])


def _with_numbers(result: Result, paths: Sequence[str], trust: bool) -> Result:
    """A result with every number that lm-evaluation-harness' table has, where all paths are our runs of its tasks.

    A task that has changed, cannot be read any more, or has functions without ``trust``, is a note.
    """
    if not all(map(report.is_harness_run, paths)):
        return result
    try:
        reports, notes = report.stored_reports(paths, trust=trust)
        return replace(result, own={NAME: [each.document() for each in reports]}, notes=[*result.notes, *notes])
    except CalipersError as error:
        return replace(result, notes=[*result.notes, f"lm-evaluation-harness' own numbers: {error}"])


def _tables(paths: Sequence[str], formats: Sequence[str], trust: bool) -> list[OwnTable] | None:
    """The tables that lm-evaluation-harness prints, from files it wrote or from our runs of its tasks; None for others.

    ``trust`` runs the functions of those tasks.
    """
    of_files = all(name in FILES for name in formats)
    if not of_files and not (all(name == "run" for name in formats) and all(map(report.is_harness_run, paths))):
        return None
    if not all(map(is_run, paths)):
        return [OwnTable(table_of(paths))]
    reports, notes = report.stored_reports(paths, trust=trust)
    tables = [OwnTable(each.tables(), each.sentences) for each in reports]
    return [*tables, OwnTable("", [f"note: {clean(note, None)}" for note in notes])]


LIBRARY = TaskLibrary(
    name=NAME,
    is_known=benchmarks.is_known,
    settings=_settings,
    checked=_checked,
    loaded=benchmarks.LoadedTasks,
    suite=benchmarks.suite_of,
    check_documents=_check_documents,
    client=client.task_client,
    template=client.template,
    report=report.part,
    documents=report.documents,
    joined=report.joined,
    with_numbers=_with_numbers,
    tables=_tables,
)
