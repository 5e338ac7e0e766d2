"""``calipers explain``: what a word means, here or in a dialect."""

from __future__ import annotations

import textwrap

import click

from calipers.cli import glossary
from calipers.cli.list import said
from calipers.cli.options import verbose
from calipers.cli.output import write
from calipers.errors import UnknownName, nearest
from calipers.metrics.cards import CARDS, WIDTH, card_for, filled
from calipers.names import FILTERS, METRICS, VERIFIERS
from calipers.stats.cards import CARDS as METHODS
from calipers.stats.cards import EXPLAINED, IntervalCard, MethodCard, method_named
from calipers.systems.system import DialectCard

_LABEL = 13


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--dialect", metavar="NAME", default="native", help="In whose sense the word is meant.")
@verbose
def explain(name: str, dialect: str) -> None:
    """Say what NAME means: a metric (pass@3), an interval (wilson), a test (mcnemar), an adjustment (holm) or another
    statistical method (ppi++), a verifier (exact_match), a filter (last_number), a kind of model (openai), a format
    (parquet), an outcome (refused) or a dialect (evsys).
    """
    if dialect not in glossary.DIALECTS:
        raise UnknownName.of("dialect", dialect, glossary.DIALECTS)
    words = glossary.DIALECTS[dialect].words
    write(_metric(name) if words is None else _word(name, dialect, words.get(name)))


def _metric(name: str) -> str:
    """What a word means natively: a metric first, then a statistical method, an outcome, a dialect."""
    bare = name.partition("(")[0].strip()
    if METRICS.match(bare) or bare in CARDS:
        card, k = card_for(name)
        return card.to_text(k)
    method = method_named(name)
    if method is not None:
        return _method(method, METHODS[method])
    if name in VERIFIERS.entries:
        return _verifier(name, VERIFIERS.load(name))
    if name in FILTERS.entries:
        return f"{name}\n{said(FILTERS.load(name))}\n"
    if name in glossary.MODELS:
        return f"{name}/...\n{glossary.MODELS[name]}\n"
    if name in glossary.OUTCOMES:
        return _outcome(name, glossary.OUTCOMES[name])
    if name in glossary.DIALECTS:
        return _dialect(name, glossary.DIALECTS[name])
    if name in glossary.FORMATS:  # after the dialects: some are called alike
        return f"{name}\n{glossary.FORMATS[name]}\n"
    if bare in METRICS.plugins():
        return f"{bare}\nA metric of an installed plugin; what it means, its own documentation says.\n"
    names = [*METRICS.names(), *METHODS, *EXPLAINED, *VERIFIERS.entries, *FILTERS.entries]
    known = [*names, *glossary.MODELS, *glossary.OUTCOMES, *glossary.DIALECTS, *glossary.FORMATS]
    hint = "" if nearest(name, known) else "calipers list WHAT shows what there is"
    raise UnknownName.of(
        "metric, interval, test, verifier, filter, model, outcome, dialect or format", name, known, hint
    )


def _word(name: str, dialect: str, ours: str | None) -> str:
    """What a word means in another system's dialect: one of our own metrics, and its card."""
    if ours is None:
        words = glossary.DIALECTS[dialect].words or {}
        native = "it is a native name: leave out --dialect" if METRICS.match(name.partition("(")[0].strip()) else ""
        raise UnknownName.of(f"{dialect} metric", name, words, native)
    card, k = card_for(ours)
    meaning = f"In {dialect}, {name} is our {ours}." if name != ours else f"In {dialect}, {name} is our own {name}."
    return f"{meaning}\n\n{card.to_text(k)}"


def _method(name: str, card: IntervalCard | MethodCard) -> str:
    lines = [name, card.one_line, "", *(_line(label, text) for label, text in card.parts())]
    return "\n".join(lines) + "\n"


def _verifier(name: str, judge: object) -> str:
    """What a verifier says of itself, and whatever speaks against trusting it blindly."""
    marks = {
        "an answer may forge its reward": getattr(judge, "forgeable", False),
        "it asks models, which costs money": getattr(judge, "costs", False),
        "it judges more than a text, and never stored ones": not getattr(judge, "rerunnable", True),
    }
    mind = [_line("mind", text) for text, holds in marks.items() if holds]
    return "\n".join([name, said(judge), *(["", *mind] if mind else [])]) + "\n"


def _outcome(word: str, outcome: glossary.Outcome) -> str:
    lines = [word, outcome.one_line, "", _line("contributes", outcome.contributes), _line("set by", outcome.set_by)]
    return "\n".join(lines) + "\n"


def _dialect(name: str, dialect: DialectCard) -> str:
    lines = [
        name,
        dialect.one_line,
        "",
        _line("by default", ", ".join(dialect.default)),
        _line("gaps", dialect.gaps),
        _line("on nothing", dialect.nothing),
        _line("slices", dialect.slices),
    ]
    if dialect.words is None:
        return "\n".join([*lines, _line("words", "see calipers list metrics")]) + "\n"
    widest, ours = max(map(len, dialect.words)), max(map(len, dialect.words.values()))
    lines += ["", "what its words mean here"]
    for word, meant in dialect.words.items():
        card, k = card_for(meant)
        lines.append(f"  {word:<{widest}}  {meant:<{ours}}  {filled(card.short, k)}")
    return "\n".join(lines) + "\n"


def _line(label: str, text: str) -> str:
    unbroken = text.replace(" %", "\xa0%")  # a number and its sign stay on one line
    lines = textwrap.fill(unbroken, WIDTH, initial_indent=f"{label:<{_LABEL}}", subsequent_indent=" " * _LABEL)
    return lines.replace("\xa0", " ")
