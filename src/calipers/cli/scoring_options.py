"""The options of the commands that read rollouts: which rollouts count and how, and in which shape they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from calipers.errors import InputError
from calipers.names import DIALECTS

FORMATS = ("table", "json", "csv", "md")
Option = Callable[[Any], Any]

dialect = click.option(
    "--dialect", metavar="NAME", help=f"Whose names and rules hold: {', '.join(DIALECTS.entries)}.  [default: native]"
)
reward = click.option("--reward", metavar="KEY", help="Which of several rewards counts.")
each_reward = click.option("--reward", metavar="KEY", help="Which of several rewards counts.  [default: each]")
threshold = click.option(
    "--threshold", metavar="R", type=float, default=1.0, show_default=True, help="The reward of a pass."
)
missing = click.option(
    "--missing",
    type=click.Choice(["gap", "zero", "fail"]),
    help="What becomes of rollouts without a number: left out, counted 0, or exit 3. Without it: the dialect's rule.",
)
missing_left_out = click.option(
    "--missing",
    type=click.Choice(["gap", "zero", "fail"]),
    default="gap",
    show_default=True,
    help="What becomes of rollouts without a number: left out, counted 0, or exit 3.",
)
seed = click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Of resampling.")
plugins = click.option(
    "--plugin", "plugins", metavar="FILE|MODULE", multiple=True, help="Python code that brings metrics; it is run."
)


def _ends(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError.at("--range", f"{text!r} cannot be read", "expected LOW,HIGH, such as -1,1") from None
    return low, high


reward_range = click.option(
    "--range",
    "range",
    metavar="LOW,HIGH",
    callback=_ends,
    help="The lowest and the highest reward there can be; a reward outside is an error.  [default: 0,1 while all "
    "rewards lie in it, else unknown]",
)


def metrics(said: str) -> Option:
    """``--metric``, as often as one likes."""
    return click.option("--metric", "metrics", metavar="NAME", multiple=True, help=said)


def cluster(of: str) -> Option:
    """``--cluster``: what tasks that belong together are one unit of."""
    return click.option("--cluster", metavar="KEY", help=f"Tasks that share this value are one unit of the {of}.")


def columns(who: str) -> Option:
    """``--columns``, as `roles` reads it; ``who`` has the keys."""
    said = f"What {who} the keys of a record: task=id,reward=score; may be repeated."
    return click.option("--columns", metavar="ROLE=KEY,...", multiple=True, help=said)


def confidence(of: str) -> Option:
    """``--confidence`` of intervals or bands."""
    return click.option(
        "--confidence", metavar="SHARE", type=float, default=0.95, show_default=True, help=f"Of the {of}."
    )


def out(what: str) -> Option:
    """``--out``: the same as JSON, in a file."""
    return click.option("--out", metavar="PATH", type=click.Path(), help=f"Write {what} as JSON to this file, too.")


def shape(*shapes: str) -> Option:
    """``--format`` of standard output."""
    choice = click.Choice(shapes or FORMATS)
    return click.option(
        "--format", "shape", type=choice, default="table", show_default=True, help="Of standard output."
    )


def roles(texts: tuple[str, ...]) -> dict[str, str]:
    """What ``--columns`` says: roles, and the keys that play them.

    >>> roles(("task=id,reward=score", "answer=final"))
    {'task': 'id', 'reward': 'score', 'answer': 'final'}
    """
    found: dict[str, str] = {}
    for pair in (pair for text in texts for pair in text.split(",")):
        role, equals, key = (side.strip() for side in pair.partition("="))
        if not (role and equals and key):
            raise InputError.at("--columns", f"{pair!r} cannot be read", "expected ROLE=KEY, such as task=id")
        if role in found:
            raise InputError.at("--columns", f"{role} is given twice", "expected it once")
        found[role] = key
    return found
