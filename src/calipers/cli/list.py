"""``calipers list``: what there is, a name and a line each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from calipers.cli import glossary
from calipers.cli.options import verbose
from calipers.cli.output import write
from calipers.errors import InputError, UnknownName, nearest
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


OF_LIBRARY: Final = ("tasks", "groups", "tags")


def of_library(what: str, pattern: str, include_path: Sequence[str]) -> dict[str, str]:
    """The tasks, groups or tags of the task library that match a pattern, and where each is from."""
    from calipers.running.library import library

    names = library().listed(what, pattern, include_path)
    if not names:
        every = library().listed(what, "*", include_path)
        raise UnknownName.of(what.removesuffix("s"), pattern, every, "" if nearest(pattern, every) else "none matches")
    return {clean(name): clean(text) for name, text in names.items()}


@click.command(name="list")
@click.argument("what", metavar="WHAT", required=False)
@click.argument("pattern", metavar="[PATTERN]", required=False)
@click.option("--include-path", metavar="DIR", multiple=True, help="A folder of lm-eval tasks; may be repeated.")
@verbose
@click.pass_context
def list_names(ctx: click.Context, what: str | None, pattern: str | None, include_path: tuple[str, ...]) -> None:
    """List what there is. WHAT is metrics, intervals, methods (tests, adjustments, estimators), verifiers,
    filters, models, benchmarks, dialects, formats or outcomes; or the tasks, groups or tags of
    lm-evaluation-harness, of which PATTERN, such as 'mmlu_*', takes some.
    """
    if what is None:
        raise InputError(f"list what? expected {', '.join((*KINDS, *OF_LIBRARY))}")
    if what not in KINDS and what not in OF_LIBRARY:
        raise UnknownName.of("list", what, (*KINDS, *OF_LIBRARY))
    if pattern is not None and what in KINDS:
        raise click.UsageError(f"Got unexpected extra argument ({pattern})", ctx)
    if include_path and what in KINDS:
        raise InputError.at("--include-path", "is for tasks, groups and tags", "expected none")
    lines = of_library(what, pattern or "*", include_path) if what in OF_LIBRARY else KINDS[what]()
    widest = max(map(len, lines))
    write("".join(f"{name:<{widest}}  {text}\n" for name, text in lines.items()))
