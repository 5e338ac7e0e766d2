"""``calipers judge-check``: check a judge against labels."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, print_notes, show, write_json


@click.command("judge-check", cls=options.Command)
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=options.InputPath())
@options.option(
    options.ROLLOUTS,
    "--labels",
    "FILE",
    "CSV file with the columns task, sample and label, and a column rater if there are several raters.",
    type=options.InputPath(),
    required=True,
)
@options.option(options.ROLLOUTS, "--reward", "KEY", "Reward that the judge gave, if rollouts have several.")
@options.number(options.ROLLOUTS, "--threshold", "REWARD", "Lowest reward or label that counts as good.", default=1.0)
@options.columns
@options.confidence(0.95)
@options.out
@options.shape()
def judge_check(
    paths: tuple[str, ...], labels: str, columns: tuple[str, ...], out: str | None, shape: str, **settings: Any
) -> None:
    """Check the judge of a RUN against labels: its errors, its agreement, and the score corrected by PPI++.

    RUN is anything that calipers score reads; its rewards are the judge's. No model is called.
    """
    target = Target(out, (*paths, labels)) if out is not None else None
    names = options.roles(columns)
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.analyses.judge_check import judge_check as check

        verdict = check(paths, labels, columns=names, progress=progress.callback, **settings)
    write_json(target, verdict)
    from calipers.analyses.judge_check import document

    show(document(verdict), shape)
    print_notes(verdict.notes)
