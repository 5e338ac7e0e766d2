"""``calipers view``: show runs in a browser, live and of any size; blind labelling."""

from __future__ import annotations

import click

from calipers.cli import options
from calipers.cli.output import print_err
from calipers.errors import InputError


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path())
@options.option(
    options.OUTPUT,
    "--port",
    "PORT",
    "Port to listen on; 0 picks a free port.",
    default=0,
    type=click.IntRange(0, 65535),
)
@options.flag(options.OUTPUT, "--no-browser", "Only print the address; open no browser.")
@options.option(
    options.OUTPUT,
    "--stop-after",
    "MINUTES",
    "Stop when no page was open for so long; 0 never stops.",
    default=30.0,
    type=click.FloatRange(0),
)
@options.option(
    options.ROLLOUTS,
    "--label",
    "N",
    "Label N rollouts in random order, without the judge's verdict.",
    type=click.IntRange(1),
)
@options.option(
    options.ROLLOUTS,
    "--labels",
    "FILE",
    "CSV file for the labels; calipers judge-check reads it.",
    default="labels.csv",
    type=click.Path(dir_okay=False),
)
@options.option(
    options.ROLLOUTS,
    "--seed",
    "N",
    "Random seed for the order of the rollouts to label.",
    default=0,
    type=click.IntRange(0),
)
def view(
    paths: tuple[str, ...], port: int, no_browser: bool, stop_after: float, label: int | None, labels: str, seed: int
) -> None:
    """Show runs in a browser: every rollout, filters, two runs side by side, and runs that are still going.

    PATH is a log, a run folder, a folder of runs, or files of another system that calipers score reads  [default: this
    folder]. The server listens on 127.0.0.1 only, and reads only the paths given. Ctrl-C stops it.
    """
    import asyncio

    from calipers.web.viewer.labelling import Labelling
    from calipers.web.viewer.library import Library
    from calipers.web.viewer.server import serve

    if label is None:
        options.refuse(("labels", "seed"), "is for blind labelling", "add --label N, the number of rollouts to label")
    library = Library(paths or (".",))
    labelling = None
    if label is not None:
        if len(library.runs) != 1:
            raise InputError.at("--label", f"there are {len(library.runs)} runs", "expected the path of one run")
        [run] = library.runs.values()
        labelling = Labelling(run.source, label, labels, seed)

    def announce(address: str) -> None:
        print_err(f"calipers shows {', '.join(library.paths)} at {address} (Ctrl-C stops it)")
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    asyncio.run(serve(library, port=port, labelling=labelling, announce=announce, stop_after=60 * stop_after or None))
