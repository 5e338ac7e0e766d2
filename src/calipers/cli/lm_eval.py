"""Runs of lm-evaluation-harness' tasks as it shows them: its own table, and its own files by ``--export``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calipers.cli.output import write
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.reports.safe import clean

if TYPE_CHECKING:
    from calipers.jobs.perform import Report

SYSTEMS = ("lm_eval",)
FILES = ("lm_eval_samples", "lm_eval_results")


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
    from calipers.jobs.lm_eval_stored import is_theirs

    return all(one == "run" for one in formats) and all(map(is_theirs, paths))


def show_files(paths: Sequence[str]) -> None:
    """Print the table that lm-evaluation-harness prints, from the files it wrote or from runs of its tasks."""
    from calipers.readers.run_plan import is_run

    if not all(map(is_run, paths)):
        from calipers.dialects.lm_eval_files import table_of

        write(table_of(paths))
        return
    from calipers.jobs.lm_eval_report import theirs
    from calipers.jobs.lm_eval_stored import stored_runs

    runs, notes = stored_runs(paths)
    for one in theirs(runs):
        write(one.tables())
        for line in one.sure:
            click.echo(line, err=True)
    for note in notes:
        click.echo(f"note: {clean(note, None)}", err=True)


def show_theirs(reports: Sequence[Report], shape: str, export: Path | None) -> None:
    """Print their table beneath ours, or alone as Markdown, and write their files where they are wanted."""
    from calipers.jobs.lm_eval_report import theirs

    runs = [(report.job, report.folder) for report in reports if report.job.lm_eval and not report.job.predict_only]
    if export is not None and not runs:
        raise InputError.at("--export", "no run is one of lm-evaluation-harness' tasks", "expected such a task")
    if not runs or (shape not in ("table", "md") and export is None):
        return
    try:
        found = list(theirs(runs))
    except CalipersError as error:
        click.echo(f"note: lm-evaluation-harness' own numbers: {clean(str(error), None)}", err=True)
        return
    for one in found:
        if shape == "md":
            write(one.tables())
        elif shape == "table":
            sure = "".join(f"{line}\n" for line in one.sure)
            write(f"\nas lm-evaluation-harness prints it\n{one.tables()}\nhow sure\n{sure}")
        for path in one.write(export, datetime.now(UTC).replace(tzinfo=None)) if export is not None else ():
            click.echo(str(path), err=True)
