"""``calipers curve``: what k samples are worth, for every k."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, show, tell_notes
from calipers.reports.untrusted_text import safe_json


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--to",
    "upto",
    metavar="K",
    type=int,
    help="End the curves at K. Beyond the samples there are, pass@k and pass^k are extrapolated, and marked: by a beta "
    "law of chances with a share never solved. At least 30 tasks with 4 samples; K up to 16 times the samples.",
)
@options.threshold
@options.each_reward
@options.cluster("bands")
@options.columns("the file calls")
@options.missing_left_out
@options.confidence("bands")
@click.option("--plot", metavar="FILE", type=click.Path(), help="Draw the curves to this file: .svg or .png.")
@options.out("the curves")
@options.shape()
@options.verbose
def curve(
    paths: tuple[str, ...],
    columns: tuple[str, ...],
    plot: str | None,
    out: str | None,
    shape: str,
    **settings: Any,
) -> None:
    """Say what k samples are worth: pass@k, pass^k, maj@k and max@k for every k, with bands. No model is called.

    PATH... is anything that calipers score reads. Where cost_usd is known, so is the cost of a first pass.
    """
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    picture = None
    if plot is not None:
        from calipers.analyses.curve.document import kind_of, need_matplotlib

        picture = Target(plot, paths), kind_of(plot)
        need_matplotlib()
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.analyses.curve.curve import curve as draw

        curves = draw(paths, columns=names, progress=progress if progress.wanted else None, **settings)
    if target:
        target.write(safe_json(curves.to_json()).encode())
    if picture:
        from calipers.analyses.curve.document import picture as drawn

        picture[0].write(drawn(curves, picture[1]))
    from calipers.analyses.curve.document import document

    show(document(curves), shape)
    tell_notes(curves.notes)
