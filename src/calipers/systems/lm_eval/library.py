"""lm-evaluation-harness' tasks as a library of benchmarks: what a run asks of them, and what doors show of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calipers.errors import CalipersError, InputError
from calipers.formats.run_folder import is_run
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean
from calipers.running.library import TaskLibrary
from calipers.systems.lm_eval import command_line
from calipers.systems.lm_eval.environment import environment, model_blocks
from calipers.systems.lm_eval.jobs import benchmarks, client, report
from calipers.systems.lm_eval.recompute import table_of
from calipers.systems.lm_eval.write import sanitized
from calipers.systems.system import OwnPage
from calipers.tasks.task import Suite

if TYPE_CHECKING:
    from calipers.running.perform import Report

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


def with_own_numbers(result: Result, paths: Sequence[str], trust: bool) -> Result:
    """A result with every number that lm-evaluation-harness' table has, where all paths are our runs of its tasks.

    A task that has changed, cannot be read any more, or has functions without ``trust``, is a note.
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
    """Its own tables in place of ours, as Markdown: from files it wrote or from our runs of its tasks; None for others.

    ``trust`` runs the functions of those tasks.
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
    return OwnPage("\n".join(each.tables() for each in reports), alone=True, remarks=remarks)


def run_page(reports: Sequence[Report], shape: str, export: Path | None) -> OwnPage:
    """Its tables of runs that have just ended, beneath ours or alone as Markdown; its files, where they are wanted."""
    parts = [each.part for each in reports if each.part is not None]
    if export is not None and not any(each.job.lm_eval for each in reports):
        raise InputError.at(
            "--export",
            ("none of the runs is of a task of lm-evaluation-harness"),
            "expected a task of lm-evaluation-harness",
        )
    if not parts or (shape not in ("table", "md") and export is None):
        return OwnPage("")
    models = list(report.joined(parts))
    texts = [text for model in models if (text := model.shown(shape))]
    written: list[str] = []
    if export is not None:
        for model in models:
            _, of_tokenizer = model_blocks(model.parts[0].job)
            blocks = {
                **environment(),
                **of_tokenizer,
                "date": time.time(),
                "model_name_sanitized": sanitized(model.model),
            }
            written += map(str, model.write(export, datetime.now(UTC).replace(tzinfo=None), blocks=blocks))
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
    template=client.template,
    report=report.part,
    documents=report.documents,
    joined=report.joined,
    integrity=benchmarks.integrity,
    written_out=benchmarks.written_out,
    shown_config=benchmarks.shown_config,
    listed=command_line.listed,
)
