"""Runs and files of lm-evaluation-harness as it shows them: its own table, its own numbers, its own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.errors import CalipersError, InputError
from calipers.reports.untrusted_text import clean
from calipers.systems.lm_eval.jobs.stored import is_theirs
from calipers.systems.system import OwnPage

if TYPE_CHECKING:
    from calipers.reports.result import Result
    from calipers.running.perform import Report

FILES = ("lm_eval_samples", "lm_eval_results")
BETWEEN = "\n"  # the tables of two models


def own_page(result: Result, shape: str, paths: Sequence[str], trust: bool) -> OwnPage | None:
    """Its own table in place of ours, as Markdown: of files it wrote, or of our runs of its tasks.

    ``trust`` runs the functions of those tasks. None where the paths are not all of one such kind.
    """
    formats = [source.format for source in result.inputs]
    if shape != "md" or not paths:
        return None
    if not all(name in FILES for name in formats):
        return _page_of_runs(paths, trust) if set(formats) == {"run"} and all(map(is_theirs, paths)) else None
    from calipers.systems.lm_eval.own_files import table_of

    return OwnPage(table_of(paths), alone=True)


def _page_of_runs(paths: Sequence[str], trust: bool) -> OwnPage:
    from calipers.systems.lm_eval.jobs.report import theirs
    from calipers.systems.lm_eval.jobs.settings import Loaded
    from calipers.systems.lm_eval.jobs.stored import stored_runs

    tasks = Loaded()
    runs, notes = stored_runs(paths, tasks, trust=trust)
    models = list(theirs(runs, tasks))
    remarks = [line for model in models for line in model.sure]
    return OwnPage(
        BETWEEN.join(model.tables() for model in models),
        alone=True,
        remarks=[*remarks, *(f"note: {clean(note, None)}" for note in notes)],
    )


def with_own_numbers(result: Result, paths: Sequence[str], trust: bool) -> Result:
    """A result with every number that lm-evaluation-harness' table has, where all paths are our runs of its tasks.

    A task that has changed, cannot be read any more, or has functions without ``trust``, is a note.
    """
    if not all(map(is_theirs, paths)):
        return result
    from calipers.systems.lm_eval.jobs.report import theirs
    from calipers.systems.lm_eval.jobs.settings import Loaded
    from calipers.systems.lm_eval.jobs.stored import stored_runs

    try:
        tasks = Loaded()
        runs, notes = stored_runs(paths, tasks, trust=trust)
        numbers = {"lm_eval": [model.document() for model in theirs(runs, tasks)]}
        return replace(result, own=numbers, notes=[*result.notes, *notes])
    except CalipersError as error:
        return replace(result, notes=[*result.notes, f"lm-evaluation-harness' own numbers: {error}"])


def run_page(reports: Sequence[Report], shape: str, export: Path | None) -> OwnPage:
    """Its table of runs that have just ended, beneath ours or alone as Markdown; its files, where they are wanted."""
    parts = [report.part for report in reports if report.part is not None]
    if export is not None and not any(report.job.lm_eval for report in reports):
        raise InputError.at("--export", "no run is one of lm-evaluation-harness' tasks", "expected such a task")
    if not parts or (shape not in ("table", "md") and export is None):
        return OwnPage("")
    from calipers.systems.lm_eval.jobs.report import joined

    tables: list[str] = []
    written: list[str] = []
    for number, model in enumerate(joined(parts)):
        if model.parts[0].job.predict_only:
            pass  # nothing was scored: there are samples, and no table
        elif shape == "md":
            tables.append(f"{BETWEEN if number else ''}{model.tables()}")
        elif shape == "table":
            sure = "".join(f"{line}\n" for line in model.sure)
            tables.append(f"\nas lm-evaluation-harness prints it\n{model.tables()}\nhow sure\n{sure}")
        if export is not None:
            written += map(str, model.write(export, datetime.now(UTC).replace(tzinfo=None)))
    return OwnPage("".join(tables), remarks=written)
