"""``calipers list``: names with a one-line description each."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

import click

from calipers import glossary
from calipers.cards import INTERVALS, METHODS, METRIC_CARDS
from calipers.cli.options import Command
from calipers.cli.options import include_path as include_path_option
from calipers.cli.output import write
from calipers.errors import InputError, UnknownName, nearest
from calipers.names import FILTERS, METRICS, VERIFIERS, Index
from calipers.reports.untrusted_text import clean, is_terminal


def metrics() -> dict[str, str]:
    """Every metric with its definition; metrics of plugins without one."""
    return {name: card.one_line.replace("{k}", "k") for name, card in METRIC_CARDS.items()} | plugins(METRICS)


def described(index: Index) -> dict[str, str]:
    """Every verifier or filter with the first line of its docstring; a plugin's by its name only."""
    return {name: glossary.docstring_of(index.load(name)).partition("\n")[0] for name in index.entries} | plugins(index)


def plugins(index: Index) -> dict[str, str]:
    """The names that installed plugins add to an index."""
    return {clean(name): "Added by an installed plugin." for name in index.plugins() if name not in index.entries}


def benchmarks() -> dict[str, str]:
    """The benchmarks in the store of this project, with their latest version."""
    from calipers.tasks import store

    ids = {clean(name): f"id {store.find(name)}" for name in store.names()}
    if not ids:
        raise InputError("the store of this project has no benchmark; calipers publish DIR adds one")
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
    "words": lambda: {
        name: term.text.partition(". ")[0].removesuffix(".") + "." for name, term in glossary.TERMS.items()
    },
    "outcomes": lambda: {word: outcome.one_line for word, outcome in glossary.OUTCOMES.items()},
}


OF_LIBRARY: Final = ("tasks", "groups", "tags")
LEAST: Final = 24  # least width for a description to be wrapped


def of_library(what: str, pattern: str, include_path: Sequence[str]) -> dict[str, str]:
    """The tasks, groups or tags of the task library that match a pattern, each with its file."""
    from calipers.running.library import library

    names = library().listed(what, pattern, include_path)
    if not names:
        every = library().listed(what, "*", include_path)
        raise UnknownName.of(what.removesuffix("s"), pattern, every, "" if nearest(pattern, every) else "none matches")
    return {clean(name): clean(text) for name, text in names.items()}


@click.command(name="list", cls=Command)
@click.argument("what", metavar="WHAT", required=False)
@click.argument("pattern", metavar="[PATTERN]", required=False)
@include_path_option
@click.pass_context
def list_names(ctx: click.Context, what: str | None, pattern: str | None, include_path: tuple[str, ...]) -> None:
    """List names with a description. WHAT is metrics, intervals, methods (tests, adjustments, estimators), words,
    verifiers, filters, models, benchmarks, dialects, formats or outcomes, or the tasks, groups or tags of
    lm-evaluation-harness. PATTERN, such as 'mmlu_*', selects tasks, groups or tags.
    """
    if what is None:
        raise InputError(f"missing argument WHAT; expected {', '.join((*KINDS, *OF_LIBRARY))}")
    if what not in KINDS and what not in OF_LIBRARY:
        raise UnknownName.of("list", what, (*KINDS, *OF_LIBRARY))
    if pattern is not None and what in KINDS:
        raise click.UsageError(f"Got unexpected extra argument ({pattern})", ctx)
    if include_path and what in KINDS:
        raise InputError.at("--include-path", "is for tasks, groups and tags", "remove it")
    lines = of_library(what, pattern or "*", include_path) if what in OF_LIBRARY else KINDS[what]()
    write("".join(f"{line}\n" for line in aligned(lines)))


def aligned(lines: Mapping[str, str]) -> list[str]:
    """A line for each name; on a terminal, a long description is wrapped in its column."""
    widest = max(map(len, lines))
    room = shutil.get_terminal_size().columns - widest - 2
    wrapped = room >= LEAST and is_terminal(sys.stdout)
    rows = []
    for name, text in lines.items():
        pieces = textwrap.wrap(text, room) if wrapped else [text]
        rows += [f"{head:<{widest}}  {piece}" for head, piece in zip_longest([name], pieces or [""], fillvalue="")]
    return rows
