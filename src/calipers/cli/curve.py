"""``calipers curve``: what k samples are worth, for every k."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from calipers.cli.group import verbose
from calipers.cli.output import Target
from calipers.cli.progress import Progress
from calipers.cli.score import FORMATS, roles
from calipers.cli.sheet import show_report
from calipers.reports.safe import safe_json


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--to",
    "upto",
    metavar="K",
    type=int,
    help="End the curves at K; beyond the samples there are, pass@k and pass^k go on by a model, and are marked.",
)
@click.option("--threshold", metavar="R", type=float, default=1.0, show_default=True, help="The reward of a pass.")
@click.option("--reward", metavar="KEY", help="Which of several rewards counts.  [default: each]")
@click.option("--cluster", metavar="KEY", help="Tasks that share this value are one unit of the bands.")
@click.option(
    "--columns",
    metavar="ROLE=KEY,...",
    multiple=True,
    help="What the file calls the keys of a record: task=id,reward=score; may be repeated.",
)
@click.option(
    "--missing",
    type=click.Choice(["gap", "zero", "fail"]),
    default="gap",
    show_default=True,
    help="What becomes of rollouts without a number: left out, counted 0, or exit 3.",
)
@click.option("--confidence", metavar="SHARE", type=float, default=0.95, show_default=True, help="Of the bands.")
@click.option("--plot", metavar="FILE", type=click.Path(), help="Draw the curves to this file: .svg or .png.")
@click.option("--out", metavar="PATH", type=click.Path(), help="Write the curves as JSON to this file, too.")
@click.option(
    "--format", "shape", type=click.Choice(FORMATS), default="table", show_default=True, help="Of standard output."
)
@verbose
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
    names = roles(columns)
    picture = None
    if plot is not None:
        from calipers.reports.curve_plot import kind_of, need_matplotlib

        picture = Target(plot, paths), kind_of(plot)
        need_matplotlib()
    with redirect_stdout(sys.stderr), Progress() as progress:
        from calipers.jobs.curve import curve as draw

        found = draw(paths, columns=names, progress=progress if progress.wanted else None, **settings)
    if target:
        target.write(safe_json(found.to_json()).encode())
    if picture:
        from calipers.reports.curve_plot import picture as drawn

        picture[0].write(drawn(found, picture[1]))
    from calipers.reports.curve_sheet import sheet

    show_report(found, shape, sheet)
