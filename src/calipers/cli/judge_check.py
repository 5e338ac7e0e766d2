"""``calipers judge-check``: a judge against labels."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, show, tell_notes
from calipers.reports.untrusted_text import safe_json


@click.command("judge-check")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--labels",
    metavar="FILE",
    type=click.Path(),
    required=True,
    help="CSV with task, sample and label; a column rater where there are several of them.",
)
@click.option("--reward", metavar="KEY", help="Which reward is the judge's.")
@click.option(
    "--threshold", metavar="R", type=float, default=1.0, show_default=True, help="The reward or label that is good."
)
@options.columns("the run calls")
@options.confidence("intervals")
@options.out("the check")
@options.shape()
@options.verbose
def judge_check(
    paths: tuple[str, ...], labels: str, columns: tuple[str, ...], out: str | None, shape: str, **settings: Any
) -> None:
    """Check the judge of a RUN against labels: how it errs, who agrees, and the score put right by PPI++.

    RUN is anything that calipers score reads; its reward is the judge's word. No model is called.
    """
    target = Target(out, (*paths, labels)) if out is not None else None
    names = options.roles(columns)
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.analyses.judge_check.judge_check import judge_check as check

        verdict = check(paths, labels, columns=names, progress=progress if progress.wanted else None, **settings)
    if target:
        target.write(safe_json(verdict.to_json()).encode())
    from calipers.analyses.judge_check.document import document

    show(document(verdict), shape)
    tell_notes(verdict.notes)
