"""``calipers list``: what there is, a name and a line each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final

import click

from calipers.cli import glossary
from calipers.cli.options import verbose
from calipers.cli.output import write
from calipers.errors import InputError, UnknownName
from calipers.metrics.cards import CARDS
from calipers.names import FILTERS, METRICS, VERIFIERS, Index
from calipers.reports.untrusted_text import clean
from calipers.stats.cards import INTERVALS, METHODS


def metrics() -> dict[str, str]:
    """Every metric with what it is; a plugin's by its name alone."""
    return {name: card.one_line.replace("{k}", "k") for name, card in CARDS.items()} | plugins(METRICS)


def described(index: Index) -> dict[str, str]:
    """Every verifier or filter with the first line of what it says of itself; a plugin's by its name alone."""
    return {name: said(index.load(name)).partition("\n")[0] for name in index.entries} | plugins(index)


def plugins(index: Index) -> dict[str, str]:
    """The names of an index that are not ours."""
    brought = "Brought by an installed plugin."
    return {clean(name): brought for name in index.plugins() if name not in index.entries}


def said(thing: object) -> str:
    """What a function, or a thing's class, says of it, without the marks of its markup."""
    text = inspect.getdoc(thing if inspect.isfunction(thing) else type(thing)) or ""
    return text.replace("`", "")


def benchmarks() -> dict[str, str]:
    """The benchmarks in the store of this project, with their latest version."""
    from calipers.tasks import store

    ids = {clean(name): f"id {store.find(name)}" for name in store.names()}
    if not ids:
        raise InputError("no benchmark is in the store of this project; calipers publish DIR puts one there")
    return ids


KINDS: Final[Mapping[str, Callable[[], Mapping[str, str]]]] = {
    "metrics": metrics,
    "intervals": lambda: {name: card.one_line for name, card in INTERVALS.items()},
    "methods": lambda: {name: card.one_line for name, card in METHODS.items()},
    "verifiers": lambda: described(VERIFIERS),
    "filters": lambda: described(FILTERS),
    "models": lambda: glossary.MODELS,
    "benchmarks": benchmarks,
    "dialects": lambda: {name: card.one_line for name, card in glossary.DIALECTS.items()},
    "formats": lambda: glossary.FORMATS,
    "outcomes": lambda: {word: outcome.one_line for word, outcome in glossary.OUTCOMES.items()},
}


@click.command(name="list")
@click.argument("what", metavar="WHAT", required=False)
@verbose
def list_names(what: str | None) -> None:
    """List what there is. WHAT is metrics, intervals, methods (tests, adjustments, estimators), verifiers,
    filters, models, benchmarks, dialects, formats or outcomes.
    """
    if what is None:
        raise InputError(f"list what? expected {', '.join(KINDS)}")
    if what not in KINDS:
        raise UnknownName.of("list", what, KINDS)
    lines = KINDS[what]()
    widest = max(map(len, lines))
    write("".join(f"{name:<{widest}}  {text}\n" for name, text in lines.items()))
