"""``calipers list``: what there is, a name and a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import click

from calipers.cli import glossary
from calipers.cli.group import verbose
from calipers.cli.output import write
from calipers.errors import InputError, UnknownName
from calipers.metrics.cards import CARDS
from calipers.names import METRICS
from calipers.reports.safe import clean
from calipers.stats.cards import INTERVALS


def metrics() -> dict[str, str]:
    """Every metric with what it is; a plugin's by its name alone."""
    found = {name: card.one_line.replace("{k}", "k") for name, card in CARDS.items()}
    return found | {clean(name): "Brought by an installed plugin." for name in METRICS.names() if name not in found}


KINDS: Final[Mapping[str, Callable[[], Mapping[str, str]]]] = {
    "metrics": metrics,
    "intervals": lambda: {name: card.one_line for name, card in INTERVALS.items()},
    "dialects": lambda: {name: speech.one_line for name, speech in glossary.DIALECTS.items()},
    "formats": lambda: glossary.FORMATS,
    "outcomes": lambda: {word: outcome.one_line for word, outcome in glossary.OUTCOMES.items()},
}


@click.command(name="list")
@click.argument("what", metavar="WHAT", required=False)
@verbose
def list_names(what: str | None) -> None:
    """List what there is. WHAT is metrics, intervals, dialects, formats or outcomes."""
    if what is None:
        raise InputError(f"list what? expected {', '.join(KINDS)}")
    if what not in KINDS:
        raise UnknownName.of("list", what, KINDS)
    lines = KINDS[what]()
    widest = max(map(len, lines))
    write("".join(f"{name:<{widest}}  {text}\n" for name, text in lines.items()))
