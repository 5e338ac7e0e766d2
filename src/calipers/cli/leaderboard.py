"""``calipers leaderboard``: rank many models on the same tasks, and show ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, annotate, plugins_loaded, print_notes, show, write_json
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.analyses.watch.best import BestSteps


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="FILE|RUN...", nargs=-1, required=True, type=options.InputPath())
@options.columns
@options.reward()
@options.missing_by_dialect
@options.option(
    options.STATISTICS,
    "--metric",
    "NAME",
    "Metric to rank by, such as pass@3; it must be a mean over tasks.  [default: the first of the dialect]",
)
@options.option(
    options.STATISTICS,
    "--baseline",
    "NAME",
    "Show every model's difference from this one, given as a path, a model or an agent.",
)
@options.flag(
    options.STATISTICS,
    "--steps",
    "Rank the steps of a training run instead of models: the best one without its luck, and those that may be best.",
)
@options.cluster
@options.confidence(0.95)
@options.seed(0)
@options.every_row
@options.pairs
@options.out
@options.shape(*options.FORMATS, "latex", "github")
@options.dialect
@options.plugins
def leaderboard(
    paths: tuple[str, ...],
    columns: tuple[str, ...],
    plugins: tuple[str, ...],
    every: bool,
    pairs: bool,
    out: str | None,
    shape: str,
    steps: bool,
    **settings: Any,
) -> None:
    """Rank models on the tasks that all of them have, and show which ones are tied. No model is called.

    Each path is anything that calipers score reads, a folder of runs, or a finished result (listed without a rank).
    """
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    if steps:
        with plugins_loaded(plugins):
            best = _best_steps(paths, names, settings)
        write_json(target, best)
        show(best.page(), shape)
        print_notes(best.notes)
        return
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.analyses.leaderboard import leaderboard as rank

        board = rank(*paths, columns=names, progress=progress.callback, **settings)
    write_json(target, board)
    from calipers.analyses.leaderboard import document

    page = document(board, every=every, pairs=pairs)
    show(page, shape)
    if shape == "github":
        annotate(page, ())
    print_notes(board.notes)


def _best_steps(paths: tuple[str, ...], names: dict[str, str], settings: dict[str, Any]) -> BestSteps:
    """The best step of a training run."""
    if given := [name for name in ("baseline", "cluster", "dialect", "missing") if settings[name] is not None]:
        raise InputError.at(f"--{given[0]}", "cannot be combined with --steps", "leave one of them out")
    from calipers.analyses.watch.best import best_in
    from calipers.formats import Named

    return best_in(
        paths,
        settings["metric"],
        confidence=settings["confidence"],
        columns=Named(names, settings["truth"]),
        reward=settings["reward"],
    )
