"""Runs of lm-evaluation-harness' tasks as it shows them: its own table, and its own files by ``--export``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.cli.output import tell, write
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.reports.untrusted_text import clean

if TYPE_CHECKING:
    from calipers.reports.result import Result
    from calipers.running.perform import Report

SYSTEMS = ("lm_eval",)
FILES = ("lm_eval_samples", "lm_eval_results")
BETWEEN = "\n"  # the tables of two models


def export_folder(asked: str | None) -> Path | None:
    """Where ``--export lm_eval[=DIR]`` puts the files, checked before anything runs; None without it."""
    if asked is None:
        return None
    system, named, folder = asked.partition("=")
    if system not in SYSTEMS:
        raise UnknownName.of("system to export a run to", system, SYSTEMS)
    if named and not folder:
        raise InputError.at("--export", f"{asked!r} names no folder", "expected lm_eval, or lm_eval=DIR")
    return Path(folder or ".")


def are_theirs(paths: Sequence[str], formats: Sequence[str]) -> bool:
    """Whether all paths are of one kind that `show_files` prints: files it wrote, or our runs of its tasks."""
    if all(one in FILES for one in formats):
        return True
    from calipers.systems.lm_eval.jobs.stored import is_theirs

    return all(one == "run" for one in formats) and all(map(is_theirs, paths))


def show_files(paths: Sequence[str], *, trust: bool = False) -> None:
    """Print the table that lm-evaluation-harness prints, from the files it wrote or from runs of its tasks.

    ``trust`` runs the functions of those tasks.
    """
    from calipers.formats.run_plan import is_run

    if not all(map(is_run, paths)):
        from calipers.systems.lm_eval.recompute import table_of

        write(table_of(paths))
        return
    from calipers.systems.lm_eval.jobs.report import theirs
    from calipers.systems.lm_eval.jobs.settings import Loaded
    from calipers.systems.lm_eval.jobs.stored import stored_runs

    tasks = Loaded()
    runs, notes = stored_runs(paths, tasks, trust=trust)
    for number, one in enumerate(theirs(runs, tasks)):
        write(f"{BETWEEN if number else ''}{one.tables()}")
        for line in one.sure:
            tell(line)
    for note in notes:
        tell(f"note: {clean(note, None)}")


def with_theirs(result: Result, paths: Sequence[str], *, trust: bool = False) -> Result:
    """A result with every number that lm-evaluation-harness' table has, where all paths are our runs of its tasks.

    A task that has changed, cannot be read any more, or has functions without ``trust``, is a note.
    """
    from calipers.systems.lm_eval.jobs.stored import is_theirs

    if result.dialect != "lm_eval" or not all(map(is_theirs, paths)):
        return result
    from calipers.systems.lm_eval.jobs.report import theirs
    from calipers.systems.lm_eval.jobs.settings import Loaded
    from calipers.systems.lm_eval.jobs.stored import stored_runs

    try:
        tasks = Loaded()
        runs, told = stored_runs(paths, tasks, trust=trust)
        own = {"lm_eval": [one.document() for one in theirs(runs, tasks)]}
        return replace(result, own=own, notes=[*result.notes, *told])
    except CalipersError as error:
        return replace(result, notes=[*result.notes, f"lm-evaluation-harness' own numbers: {error}"])


def show_theirs(reports: Sequence[Report], shape: str, export: Path | None) -> None:
    """Print their table beneath ours, or alone as Markdown, and write their files where they are wanted."""
    parts = [report.part for report in reports if report.part is not None]
    if export is not None and not any(report.job.lm_eval for report in reports):
        raise InputError.at("--export", "no run is one of lm-evaluation-harness' tasks", "expected such a task")
    if not parts or (shape not in ("table", "md") and export is None):
        return
    from calipers.systems.lm_eval.jobs.report import joined

    for number, one in enumerate(joined(parts)):
        if one.parts[0].job.predict_only:
            pass  # nothing was scored: there are samples, and no table
        elif shape == "md":
            write(f"{BETWEEN if number else ''}{one.tables()}")
        elif shape == "table":
            sure = "".join(f"{line}\n" for line in one.sure)
            write(f"\nas lm-evaluation-harness prints it\n{one.tables()}\nhow sure\n{sure}")
        for path in one.write(export, datetime.now(UTC).replace(tzinfo=None)) if export is not None else ():
            tell(str(path))
