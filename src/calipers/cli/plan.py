"""``calipers plan``: how many tasks and samples detect a difference, and their price."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Target, print_notes, rendered, write, write_json

COMPARISON, VARIANCE, SIZE = "Comparison", "Variance", "Size and cost"  # groups of options


@click.command(cls=options.GroupedCommand)
@click.argument("pilots", metavar="[PILOT [SECOND]]", nargs=-1, type=options.InputPath())
@options.option(
    "--detect",
    group=COMPARISON,
    metavar="DIFFERENCE",
    type=float,
    help="True difference that the comparison should detect, such as 0.03.",
)
@options.option(
    "--power",
    group=COMPARISON,
    metavar="POWER",
    type=float,
    default=0.8,
    show_default=True,
    help="Probability of detecting the difference if it exists.",
)
@options.option(
    "--alpha",
    group=COMPARISON,
    metavar="LEVEL",
    type=float,
    default=0.05,
    show_default=True,
    help="Probability of claiming a difference if there is none.",
)
@options.option(
    "--metric",
    group=COMPARISON,
    type=click.Choice(["mean_reward", "pass_rate"]),
    default="mean_reward",
    show_default=True,
    help="Metric that the runs are compared by.",
)
@options.option("--unpaired", group=COMPARISON, is_flag=True, help="Plan for runs on different tasks.")
@options.option(
    "--variance-between",
    group=VARIANCE,
    metavar="VARIANCE",
    type=float,
    help="Variance of the tasks' true means within a run, instead of a pilot.",
)
@options.option(
    "--variance-within", group=VARIANCE, metavar="VARIANCE", type=float, help="Variance of a single sample of a task."
)
@options.option(
    "--baseline-rate",
    group=VARIANCE,
    metavar="RATE",
    type=float,
    help="Pass rate of the baseline, instead of a pilot or of one variance.",
)
@options.option(
    "--correlation",
    group=VARIANCE,
    metavar="R",
    type=float,
    help="Correlation of the true task means of both runs.  [default: that of two pilots, else 0]",
)
@options.option(
    "--tasks", group=SIZE, metavar="N", type=int, help="Number of tasks that are available.  [default: the pilot's]"
)
@options.option(
    "--samples",
    group=SIZE,
    metavar="K",
    type=int,
    help="Number of samples per task that are available.  [default: the pilot's]",
)
@options.option(
    "--price-per-sample",
    group=SIZE,
    metavar="PRICE",
    type=float,
    help="Price of a rollout.  [default: the pilot's cost_usd]",
)
@options.option(
    "--price-per-task",
    group=SIZE,
    metavar="PRICE",
    type=float,
    default=0.0,
    help="Price of creating a task, paid once.  [default: 0]",
)
@options.option(
    "--budget",
    group=SIZE,
    metavar="AMOUNT",
    type=float,
    help="Find the best tasks and samples of both runs for this budget.",
)
@options.pick_agent
@options.pick_model
@options.pick_dataset
@options.reward()
@options.columns
@options.missing("gap", "gap", ("gap", "zero"))
@options.cluster
@options.out
@options.shape("table", "json", "md")
@options.verbose
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
    from calipers.analyses.plan_study import document

    write(rendered(document(result), shape))
    print_notes(result.notes)
