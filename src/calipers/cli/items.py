"""``calipers items``: the tasks themselves, and where the variance comes from."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, show, tell_notes
from calipers.errors import InputError
from calipers.reports.untrusted_text import safe_json

SHOWN = 20
SORTS = ("difficulty", "easiest", "discrimination", "contradiction", "information", "samples", "task")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="difficulty",
    show_default=True,
    help="The order of the tasks: the hardest, the easiest, those that tell least (discrimination, contradiction) or "
    "most (information), the most samples, or by name.",
)
@click.option(
    "--limit", metavar="N", type=int, help=f"Show so many tasks; 0 is all.  [default: {SHOWN}; all of json and csv]"
)
@options.threshold
@options.each_reward
@options.cluster("variance")
@options.columns("the files call")
@options.missing_left_out
@options.out("all tasks")
@options.shape()
@options.verbose
def items(
    paths: tuple[str, ...],
    limit: int | None,
    columns: tuple[str, ...],
    out: str | None,
    shape: str,
    **settings: Any,
) -> None:
    """Say which tasks are hard, which tell runs apart, and which contradict the rest. No model is called.

    Each PATH is a run, or holds several (by agent and model). Three runs or more show which tasks discriminate;
    five or more, which to keep in a shorter benchmark for runs like the best: --sort information.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit is {limit}; expected 0 for all tasks, or a number of them")
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.analyses.items.items import items as look_at

        analysis = look_at(*paths, columns=names, progress=progress if progress.wanted else None, **settings)
    if target:
        target.write(safe_json(analysis.to_json()).encode())
    from calipers.analyses.items.document import document

    most = (None if shape in ("json", "csv") else SHOWN) if limit is None else limit or None
    show(document(analysis.limited(most)), shape)
    tell_notes(analysis.notes)
