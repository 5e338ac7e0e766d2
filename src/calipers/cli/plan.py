"""``calipers plan``: the tasks and samples that detect a difference, and their price."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import Target, rendered, tell_notes, write
from calipers.errors import InputError
from calipers.reports.untrusted_text import safe_json

if TYPE_CHECKING:
    from calipers.analyses.plan_study.pilot import StudyInputs

MOST_PILOTS = 2
COMPARISON, VARIANCE, SIZE = "Comparison", "Variance", "Size and cost"  # groups of options
NUMBERS = ("variance_between", "variance_within", "baseline_rate")


@click.command(cls=options.GroupedCommand)
@click.argument("pilots", metavar="[PILOT [SECOND]]", nargs=-1, type=click.Path())
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
    "--variance-within",
    group=VARIANCE,
    metavar="VARIANCE",
    type=float,
    help="Variance of a single sample of a task.",
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
    "--tasks",
    group=SIZE,
    metavar="N",
    type=int,
    help="Number of tasks that are available.  [default: the pilot's]",
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
    _check(given)
    target = Target(out, pilots) if out is not None else None
    from calipers.analyses.plan_study.plan_study import StudyRequest, study

    request = StudyRequest(
        metric=given["metric"],
        detect=given["detect"],
        power=given["power"],
        alpha=given["alpha"],
        paired=not given["unpaired"],
        tasks=given["tasks"],
        samples=given["samples"],
        price_per_sample=given["price_per_sample"],
        price_per_task=given["price_per_task"],
        budget=given["budget"],
    )
    result = study(_known(pilots, columns, given), request)
    if target:
        target.write(safe_json(result.to_json()).encode())
    from calipers.analyses.plan_study.document import document

    write(rendered(document(result), shape))
    tell_notes(result.notes)


def _known(pilots: tuple[str, ...], columns: tuple[str, ...], given: dict[str, Any]) -> StudyInputs:
    from calipers.analyses.plan_study.pilot import Chosen, from_numbers, from_pilots

    numbers = [name for name in NUMBERS if given[name] is not None]
    if pilots and numbers:
        raise InputError.at(_option(numbers[0]), "cannot be combined with a pilot", "expected one of them")
    if len(pilots) > MOST_PILOTS:
        raise InputError(f"{len(pilots)} pilots; expected one or two")
    if given["unpaired"] and given["correlation"]:
        raise InputError.at("--correlation", "cannot be combined with --unpaired", "expected one of them")
    if not pilots:
        if given["cluster"]:
            raise InputError.at("--cluster", "needs a pilot that has the key", "add a PILOT run")
        if not numbers:
            raise InputError("the variance is unknown; expected a PILOT run, or --variance-between and others")
        r = 0.0 if given["unpaired"] else given["correlation"]
        return from_numbers(given["variance_between"], given["variance_within"], given["baseline_rate"], r)
    names = ("metric", "reward", "agent", "model", "dataset", "missing", "cluster")
    chosen = Chosen(columns=options.roles(columns), **{name: given[name] for name in names})
    return from_pilots(pilots, chosen, given["correlation"], paired=not given["unpaired"])


def _check(given: dict[str, Any]) -> None:
    """Refuse numbers out of range."""
    ranges = {
        "detect": (0.0, math.inf, "a difference above 0"),
        "power": (0.0, 1.0, "a share between 0 and 1, such as 0.8"),
        "alpha": (0.0, 1.0, "a share between 0 and 1, such as 0.05"),
        "baseline_rate": (0.0, 1.0, "a share between 0 and 1"),
        "tasks": (1, math.inf, "two tasks or more"),
        "samples": (0, math.inf, "one sample or more"),
        "price_per_sample": (0.0, math.inf, "a price above 0"),
        "budget": (0.0, math.inf, "a budget above 0"),
        "variance_between": (-math.ulp(0.0), math.inf, "a variance of 0 or more"),
        "variance_within": (-math.ulp(0.0), math.inf, "a variance of 0 or more"),
        "price_per_task": (-math.ulp(0.0), math.inf, "a price of 0 or more"),
        "correlation": (math.nextafter(-1, -2), math.nextafter(1, 2), "a correlation from -1 to 1"),
    }
    for name, (low, high, right) in ranges.items():
        value = given[name]
        if value is not None and not low < value < high:
            raise InputError.at(_option(name), f"is {value:g}", f"expected {right}")
    if given["power"] <= given["alpha"]:
        raise InputError.at("--power", f"is {given['power']:g}, not above alpha", "expected more, such as 0.8")
    rate, detect = given["baseline_rate"], given["detect"]
    if rate is not None and detect is not None and detect > max(rate, 1 - rate):
        raise InputError.at(
            "--detect", f"is {detect:g}, and a rate cannot differ that much from {rate:g}", "expected a smaller one"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
