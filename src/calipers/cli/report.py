"""``calipers report``: one HTML file about a run, two runs or many."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, plugins_loaded, print_lines, print_notes


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="RUN|RESULT|COMPARISON...", nargs=-1, required=True, type=options.InputPath())
@options.metrics("  [default: mean_reward, pass@1, and pass@k and pass^k if there are several samples]")
@options.by
@options.cluster
@options.columns
@options.reward()
@options.reward_range
@options.threshold
@options.missing_by_dialect
@options.confidence(0.95)
@options.seed(0)
@options.file_option(
    options.ROLLOUTS,
    "--flag",
    "Suspicious tasks, which the What if of the page can exclude: the JSON of calipers items or of calipers check "
    "--selftest, or a task id per line.",
)
@options.flag(
    options.ROLLOUTS,
    "--steps",
    "The files in the folder are steps of one training run: show its curves, alarms and best step. A folder that "
    "calipers watch has looked at is shown so without it.",
)
@options.file_option(options.OUTPUT, "-o --out", "File to write.", default="report.html")
@options.flag(
    options.OUTPUT, "--no-texts texts", "Leave out prompts, completions and answers.", flag_value=False, default=True
)
@options.dialect
@options.plugins
def report(
    paths: tuple[str, ...],
    metrics: tuple[str, ...],
    columns: tuple[str, ...],
    plugins: tuple[str, ...],
    out: str,
    **settings: Any,
) -> None:
    """Write one HTML file about a run, a comparison of two runs, or a leaderboard of more. No model is called.

    Each path is anything that calipers score reads, a document that Calipers wrote, or a folder that calipers watch has
    looked at. The file opens in a browser without a network.
    """
    flag = [settings["flag"]] if settings["flag"] else []
    target = Target(out, [*paths, *flag], example="report.html")
    names = options.roles(columns)
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.reports.figures import megabytes
        from calipers.web import report as make

        page = make(*paths, metrics=metrics or None, columns=names, progress=progress.callback, **settings)
    content = page.html.encode()
    target.write(content)
    print_lines([f"{out}: {megabytes(len(content))}"])
    print_notes(page.notes)
