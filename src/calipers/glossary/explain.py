"""The meaning of a word, in Calipers or in a dialect."""

from __future__ import annotations

import inspect
import textwrap
from html import escape

from calipers.errors import UnknownName, nearest
from calipers.glossary import words as glossary
from calipers.metrics.cards import CARDS, WIDTH, card_for, filled
from calipers.names import FILTERS, METRICS, VERIFIERS
from calipers.stats.cards import CARDS as METHODS
from calipers.stats.cards import EXPLAINED, IntervalCard, MethodCard, method_named
from calipers.systems.system import DialectCard

_LABEL = 13


class Explanation(str):
    """The text that ``calipers explain`` prints, shown as it is in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def explain(word: str, *, dialect: str = "native") -> Explanation:
    """Explain a word: a metric, an interval, a test, a verifier, a filter, an outcome, a dialect or another word."""
    if dialect not in glossary.DIALECTS:
        raise UnknownName.of("dialect", dialect, glossary.DIALECTS)
    words = glossary.DIALECTS[dialect].words
    return Explanation(_native(word) if words is None else _word(word, dialect, words.get(word)))


def said(thing: object) -> str:
    """The docstring of a function or of an object's class, without backquotes."""
    text = inspect.getdoc(thing if inspect.isfunction(thing) else type(thing)) or ""
    return text.replace("`", "")


def _native(name: str) -> str:
    """What a word means in Calipers: a term of a page, then a metric, a method or another name."""
    target = glossary.term_named(name)
    term = glossary.TERMS.get(target or name)
    names = [name, target or name] if term is not None else [*glossary.forms(name), target or name]
    card = next((card for form in names if (card := _card(form))), None)
    if term is not None:
        return _term(target or name, term) + (f"\nalso {_kind(target or name)}\n{card}" if card else "")
    if card is not None:
        return card
    bare = name.partition("(")[0].strip()
    if bare in METRICS.plugins():  # this reads the installed packages, so it comes last
        return f"{bare}\nA metric of an installed plugin; its own documentation explains it.\n"
    names = [*METRICS.names(), *METHODS, *EXPLAINED, *VERIFIERS.entries, *FILTERS.entries]
    others = [*glossary.MODELS, *glossary.OUTCOMES, *glossary.DIALECTS, *glossary.FORMATS, *glossary.TERMS]
    known = [*names, *others]
    hint = "" if nearest(name, known) else "calipers list WHAT shows all names"
    raise UnknownName.of(
        "metric, interval, test, verifier, filter, model, outcome, dialect, format or other word", name, known, hint
    )


def _kind(name: str) -> str:
    """What else a term of a page is the name of."""
    kinds = {"an outcome": glossary.OUTCOMES, "a format": glossary.FORMATS, "a metric": METRICS.entries}
    return next((kind for kind, names in kinds.items() if name in names), "a method")


def _card(name: str) -> str | None:
    """The card of a metric, a method or another name; None if there is none."""
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
    if name in glossary.FORMATS:  # after the dialects: some have the same name
        details = glossary.FORMAT_DETAILS.get(name, {})
        lines = [_line(label, text) for label, text in details.items()]
        return "\n".join([name, glossary.FORMATS[name], *(["", *lines] if lines else [])]) + "\n"
    return None


def _term(name: str, term: glossary.Term) -> str:
    see = ["", _line("see also", ", ".join(_shown(word) for word in term.see))] if term.see else []
    return "\n".join([name, *textwrap.wrap(term.text, WIDTH), *see]) + "\n"


def _shown(name: str) -> str:
    return name.replace("{k}", "k")


def _word(name: str, dialect: str, ours: str | None) -> str:
    """The meaning of a word in another system's dialect: the name of our metric, and its card."""
    if ours is None:
        words = glossary.DIALECTS[dialect].words or {}
        native = "it is a native name: remove --dialect" if METRICS.match(name.partition("(")[0].strip()) else ""
        raise UnknownName.of(f"{dialect} metric", name, words, native)
    card, k = card_for(ours)
    meaning = f"In {dialect}, {name} is Calipers' {ours}."
    return f"{meaning}\n\n{card.to_text(k)}"


def _method(name: str, card: IntervalCard | MethodCard) -> str:
    lines = [name, card.one_line, "", *(_line(label, text) for label, text in card.parts())]
    return "\n".join(lines) + "\n"


def _verifier(name: str, judge: object) -> str:
    """The docstring of a verifier, and its risks."""
    marks = {
        "an answer can forge its reward": getattr(judge, "forgeable", False),
        "it calls models, which costs money": getattr(judge, "costs", False),
        "it verifies more than a text, so it cannot verify stored completions": not getattr(judge, "rerunnable", True),
    }
    notes = [_line("note", text) for text, applies in marks.items() if applies]
    return "\n".join([name, said(judge), *(["", *notes] if notes else [])]) + "\n"


def _outcome(word: str, outcome: glossary.Outcome) -> str:
    lines = [word, outcome.one_line, "", _line("contributes", outcome.contributes), _line("set by", outcome.set_by)]
    return "\n".join(lines) + "\n"


def _dialect(name: str, dialect: DialectCard) -> str:
    lines = [
        name,
        dialect.one_line,
        "",
        _line("by default", ", ".join(dialect.default)),
        _line("missing", dialect.gaps),
        _line("no data", dialect.nothing),
        _line("slices", dialect.slices),
    ]
    if dialect.words is None:
        return "\n".join([*lines, _line("words", "see calipers list metrics")]) + "\n"
    widest, ours = max(map(len, dialect.words)), max(map(len, dialect.words.values()))
    lines += ["", "its words and Calipers' metrics"]
    for word, meant in dialect.words.items():
        card, k = card_for(meant)
        lines.append(f"  {word:<{widest}}  {meant:<{ours}}  {filled(card.short, k)}")
    return "\n".join(lines) + "\n"


def _line(label: str, text: str) -> str:
    unbroken = text.replace(" %", "\xa0%")  # a number and its sign stay on one line
    lines = textwrap.fill(unbroken, WIDTH, initial_indent=f"{label:<{_LABEL}}", subsequent_indent=" " * _LABEL)
    return lines.replace("\xa0", " ")
