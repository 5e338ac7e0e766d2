"""``calipers items``: show the difficulty and discrimination of tasks, and the sources of variance."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, print_notes, show, write_json
from calipers.errors import InputError

SHOWN = 20
SORTS = ("difficulty", "easiest", "discrimination", "contradiction", "information", "samples", "task")


@click.command(cls=options.Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=options.InputPath())
@options.choice(
    options.OUTPUT,
    "--sort",
    SORTS,
    "Order of the tasks: difficulty (hardest first), easiest, discrimination or contradiction (least "
    "discriminating first), information (most informative first), samples (most first) or task (by name).",
    metavar="ORDER",
    default="difficulty",
)
@options.integer(
    options.OUTPUT, "--limit", "N", f"Show only N tasks; 0 shows all.  [default: {SHOWN}, and all for json and csv]"
)
@options.threshold
@options.reward("  [default: each of them]")
@options.cluster
@options.columns
@options.missing_excluded
@options.out
@options.shape()
def items(
    paths: tuple[str, ...], limit: int | None, columns: tuple[str, ...], out: str | None, shape: str, **settings: Any
) -> None:
    """Show which tasks are hard, which tell runs apart, and which contradict the rest. No model is called.

    Each PATH has one run, or several runs by agent and model. Discrimination needs three runs or more.
    Information needs five runs or more: --sort information shows which tasks to keep in a shorter benchmark for
    models like the best.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit is {limit}; expected a number of tasks, or 0 for all")
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.analyses.items import items as look_at

        analysis = look_at(*paths, columns=names, progress=progress.callback, **settings)
    write_json(target, analysis)
    most = (None if shape in ("json", "csv") else SHOWN) if limit is None else limit or None
    show(analysis.limited(most).page(), shape)
    print_notes(analysis.notes)
