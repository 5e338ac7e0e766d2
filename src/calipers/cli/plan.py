"""``calipers plan``: how many tasks and samples show a difference, and at what price."""

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
NUMBERS = ("variance_between", "variance_within", "baseline_rate")


@click.command()
@click.argument("pilots", metavar="[PILOT [SECOND]]", nargs=-1, type=click.Path())
@click.option("--detect", metavar="D", type=float, help="The true difference that is to be shown, such as 0.03.")
@click.option("--power", metavar="SHARE", type=float, default=0.8, show_default=True, help="How often it is shown.")
@click.option(
    "--alpha",
    metavar="SHARE",
    type=float,
    default=0.05,
    show_default=True,
    help="How often one is seen that is not there.",
)
@click.option(
    "--variance-between", metavar="V", type=float, help="Of the tasks' true means in one run, instead of a pilot."
)
@click.option("--variance-within", metavar="V", type=float, help="Of one sample of a task.")
@click.option(
    "--baseline-rate", metavar="SHARE", type=float, help="The share of passes, instead of a pilot or one variance."
)
@click.option(
    "--correlation", metavar="R", type=float, help="Of both runs' true task means.  [default: of two pilots, else 0]"
)
@click.option("--unpaired", is_flag=True, help="Each run has tasks of its own.")
@click.option("--tasks", metavar="N", type=int, help="So many tasks there are.  [default: the pilot's]")
@click.option("--samples", metavar="K", type=int, help="So many samples per task there are.  [default: the pilot's]")
@click.option("--price-per-sample", metavar="P", type=float, help="Of one rollout.  [default: the pilot's cost_usd]")
@click.option("--price-per-task", metavar="P", type=float, default=0.0, help="Of making a task, once.")
@click.option("--budget", metavar="B", type=float, help="How best to spend so much on tasks and samples of both runs.")
@click.option(
    "--metric", type=click.Choice(["mean_reward", "pass_rate"]), default="mean_reward", show_default=True,
    help="What is to differ.",
)  # fmt: skip
@click.option("--reward", metavar="KEY", help="Which of several rewards of a pilot counts.")
@click.option("--agent", metavar="NAME", help="The pilot's group of this agent.")
@click.option("--model", metavar="NAME", help="The pilot's group of this model.")
@click.option("--dataset", metavar="NAME", help="The pilot's group of this dataset.")
@click.option("--cluster", metavar="KEY", help="A pilot's tasks that share this value are one unit of the test.")
@click.option("--columns", metavar="ROLE=KEY,...", multiple=True, help="What a pilot calls its keys: task=id.")
@click.option(
    "--missing", type=click.Choice(["gap", "zero"]), default="gap", show_default=True, help="What becomes of gaps."
)
@options.out("the plan")
@options.shape("table", "json", "md")
@options.verbose
def plan(pilots: tuple[str, ...], out: str | None, shape: str, columns: tuple[str, ...], **given: Any) -> None:
    """Plan a comparison of two runs: tasks and samples for a difference, and the smallest difference in reach.

    PILOT is anything that calipers score reads; two pilots on the same tasks say how alike both runs find them.
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
        raise InputError.at(_option(numbers[0]), "stands beside a pilot", "expected one of them")
    if len(pilots) > MOST_PILOTS:
        raise InputError(f"{len(pilots)} pilots; expected one, or two to be compared")
    if given["unpaired"] and given["correlation"]:
        raise InputError.at("--correlation", "stands beside --unpaired", "other tasks have none: expected one of them")
    if not pilots:
        if given["cluster"]:
            raise InputError.at("--cluster", "no pilot says which tasks belong together", "expected a PILOT run too")
        if not numbers:
            raise InputError("nothing is known of the variance; expected a PILOT run, or --variance-between and others")
        r = 0.0 if given["unpaired"] else given["correlation"]
        return from_numbers(given["variance_between"], given["variance_within"], given["baseline_rate"], r)
    names = ("metric", "reward", "agent", "model", "dataset", "missing", "cluster")
    chosen = Chosen(columns=options.roles(columns), **{name: given[name] for name in names})
    return from_pilots(pilots, chosen, given["correlation"], paired=not given["unpaired"])


def _check(given: dict[str, Any]) -> None:
    """Refuse numbers that mean nothing."""
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
        raise InputError.at("--power", f"is {given['power']:g}, no more than alpha", "expected more, such as 0.8")
    rate, detect = given["baseline_rate"], given["detect"]
    if rate is not None and detect is not None and detect > max(rate, 1 - rate):
        raise InputError.at("--detect", f"is {detect:g}, which no rate is from {rate:g}", "expected a smaller one")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
