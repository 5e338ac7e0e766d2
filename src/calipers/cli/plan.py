"""``calipers plan``: how many tasks and samples detect a difference, and their price."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Target, print_notes, rendered, write, write_json

COMPARISON, VARIANCE, SIZE = "Comparison", "Variance", "Size and cost"  # groups of options


@click.command(cls=options.GroupedCommand)
@click.argument("pilots", metavar="[PILOT [SECOND]]", nargs=-1, type=options.InputPath())
@options.number(
    COMPARISON, "--detect", "DIFFERENCE", "True difference that the comparison should detect, such as 0.03."
)
@options.number(COMPARISON, "--power", "POWER", "Probability of detecting the difference if it exists.", default=0.8)
@options.number(COMPARISON, "--alpha", "LEVEL", "Probability of claiming a difference if there is none.", default=0.05)
@options.choice(
    COMPARISON, "--metric", ["mean_reward", "pass_rate"], "Metric that the runs are compared by.", default="mean_reward"
)
@options.flag(COMPARISON, "--unpaired", "Plan for runs on different tasks.")
@options.number(
    VARIANCE, "--variance-between", "VARIANCE", "Variance of the tasks' true means within a run, instead of a pilot."
)
@options.number(VARIANCE, "--variance-within", "VARIANCE", "Variance of a single sample of a task.")
@options.number(
    VARIANCE, "--baseline-rate", "RATE", "Pass rate of the baseline, instead of a pilot or of one variance."
)
@options.number(
    VARIANCE,
    "--correlation",
    "R",
    "Correlation of the true task means of both runs.  [default: that of two pilots, else 0]",
)
@options.integer(SIZE, "--tasks", "N", "Number of tasks that are available.  [default: the pilot's]")
@options.integer(SIZE, "--samples", "K", "Number of samples per task that are available.  [default: the pilot's]")
@options.number(SIZE, "--price-per-sample", "PRICE", "Price of a rollout.  [default: the pilot's cost_usd]")
@options.number(SIZE, "--price-per-task", "PRICE", "Price of creating a task, paid once.  [default: 0]", default=0.0)
@options.number(SIZE, "--budget", "AMOUNT", "Find the best tasks and samples of both runs for this budget.")
@options.pick_group
@options.reward()
@options.columns
@options.missing("gap", "gap", ("gap", "zero"))
@options.cluster
@options.out
@options.shape("table", "json", "md")
def plan(pilots: tuple[str, ...], out: str | None, shape: str, columns: tuple[str, ...], **given: Any) -> None:
    """Plan a comparison of two runs: how many tasks and samples detect a difference, and the smallest difference
    that the available ones detect.

    PILOT is anything that calipers score reads. Two pilots on the same tasks give the correlation of both runs.
    No model is called.
    """
    target = Target(out, pilots) if out is not None else None
    from calipers.analyses.plan_study import plan as plan_study

    result = plan_study(*pilots, columns=options.roles(columns), **given)
    write_json(target, result)
    write(rendered(result.page(), shape))
    print_notes(result.notes)
