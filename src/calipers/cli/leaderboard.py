"""``calipers leaderboard``: rank many models on the same tasks, and show ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import (
    Progress,
    Target,
    annotate,
    plugins_loaded,
    print_notes,
    print_warnings,
    show,
    write_json,
)

if TYPE_CHECKING:
    from calipers.analyses.leaderboard import Leaderboard
    from calipers.analyses.watch.best import BestSteps
    from calipers.reports.document import Document

NOT_OF_STEPS = ("baseline", "cluster", "dialect", "every", "missing", "pairs", "seed", "trust_reader")
"""Options that do not apply to the steps of a training run."""


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="FILE|RUN...", nargs=-1, required=True, type=options.InputPath())
@options.columns
@options.reward()
@options.reward_range
@options.threshold
@options.missing_compared
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
@options.trust_reader
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
    """Rank models by their values, and show which ones the tasks cannot tell apart. No model is called.

    Each path is anything that calipers score reads, a folder of runs, or a finished result (listed without a rank).
    """
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    if steps:
        options.refuse(NOT_OF_STEPS, "cannot be combined with --steps", "leave one of them out")
        with plugins_loaded(plugins):
            best = _best_steps(paths, names, settings)
        _write_and_show(best, best.page(), target, shape)
        return
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.analyses.leaderboard import leaderboard as rank

        board = rank(*paths, columns=names, progress=progress.callback, **settings)
    from calipers.analyses.leaderboard import document

    _write_and_show(board, document(board, every=every, pairs=pairs), target, shape)
    print_warnings(board.remarks, shape)


def _write_and_show(report: Leaderboard | BestSteps, page: Document, target: Target | None, shape: str) -> None:
    write_json(target, report)
    show(page, shape)
    if shape == "github":
        annotate(page, ())
    print_notes(report.notes)


def _best_steps(paths: tuple[str, ...], names: dict[str, str], settings: dict[str, Any]) -> BestSteps:
    """The best step of a training run."""
    from calipers.analyses.watch.best import best_in
    from calipers.formats import Named

    return best_in(
        paths,
        settings["metric"],
        confidence=settings["confidence"],
        columns=Named(names, settings["truth"]),
        reward=settings["reward"],
    )
