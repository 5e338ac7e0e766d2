"""``calipers curve``: metrics of k samples, for every k."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, print_notes, show, targets, write_json


@click.command(cls=options.Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=options.InputPath())
@options.integer(
    options.STATISTICS,
    "--to upto",
    "K",
    "Largest k of the curves. If K exceeds the number of samples, pass@k and pass^k are extrapolated with a "
    "zero-inflated beta-binomial model and marked. This needs at least 30 tasks with 4 samples, and K may be at most "
    "16 times the number of samples. A second line has bounds of pass@K that need no model.",
)
@options.threshold
@options.reward("  [default: each of them]")
@options.cluster
@options.columns
@options.missing_excluded
@options.confidence(0.95)
@options.file_option(options.OUTPUT, "--plot", "Plot the curves to this file, .svg or .png.")
@options.out
@options.shape()
def curve(
    paths: tuple[str, ...], columns: tuple[str, ...], plot: str | None, out: str | None, shape: str, **settings: Any
) -> None:
    """Compute pass@k, pass^k, maj@k and max@k for every k, with confidence bands. No model is called.

    Each PATH is anything that calipers score reads. If the rollouts have cost_usd, the page also shows the expected
    cost of a first pass.
    """
    files = targets((out, plot), paths)
    names = options.roles(columns)
    if plot is not None:
        from calipers.analyses.curve import kind_of, need_matplotlib

        kind = kind_of(plot)
        need_matplotlib()
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.analyses.curve import curve as draw

        curves = draw(paths, columns=names, progress=progress.callback, **settings)
    if out is not None:
        write_json(files[out], curves)
    if plot is not None:
        from calipers.analyses.curve import picture

        files[plot].write(picture(curves, kind))
    show(curves.page(), shape)
    print_notes(curves.notes)
