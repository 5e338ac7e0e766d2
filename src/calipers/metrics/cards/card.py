"""A card: everything a reader should know about one metric before believing its number."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

WIDTH = 96  # characters of a line of plain text
_LABEL = 12
_SYSTEM = 10


@dataclass(frozen=True, slots=True)
class Card:
    """What a metric means. ``{k}`` in any text stands for the k that was asked for."""

    name: str  # the entry in `names.METRICS`
    short: str  # what a table says beside the number
    one_line: str
    estimates: str
    formula: str
    source: str
    nothing: str  # on no tasks
    gaps: str
    one_sample: str
    interval: str
    edges: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)  # system -> what it means by the word
    unit: str = ""
    unbiased: bool = False  # where every task has the same number of samples; then a table says so

    def parts(self, k: int | None = None) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown, ``{k}`` filled in."""
        labelled = [
            ("estimates", self.estimates),
            ("formula", self.formula),
            ("unit", self.unit),
            ("source", self.source),
            ("on nothing", self.nothing),
            ("on gaps", self.gaps),
            ("one sample", self.one_sample),
            ("interval", self.interval),
        ]
        return [(label, filled(text, k)) for label, text in labelled if text]

    def to_text(self, k: int | None = None) -> str:
        """The card as plain text for a terminal."""
        lines = [filled(self.name, k), *_wrapped(filled(self.one_line, k), ""), ""]
        for label, text in self.parts(k):
            lines += _wrapped(text, f"{label:<{_LABEL}}")
        for number, edge in enumerate(self.edges):
            lines += _wrapped(filled(edge, k), f"{'mind' if not number else '':<{_LABEL}}- ")
        if self.others:
            lines += ["", "what other systems mean by the word"]
            lines += [
                line for who, text in self.others.items() for line in _wrapped(filled(text, k), f"  {who:<{_SYSTEM}}")
            ]
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """The card as a section of a page."""
        lines = [f"## `{filled(self.name, None)}`", "", escaped(filled(self.one_line, None)), ""]
        for label, text in self.parts():
            shown = f"`{text}`" if label == "formula" else escaped(text)
            lines.append(f"- **{label}**: {shown}")
        lines += [f"- **mind**: {escaped(filled(edge, None))}" for edge in self.edges]
        if self.others:
            lines += ["", "| system | what it means by the word |", "|---|---|"]
            lines += [f"| {who} | {escaped(filled(text, None))} |" for who, text in self.others.items()]
        return "\n".join(lines) + "\n"


def filled(text: str, k: int | None) -> str:
    """The text with the k that was asked for, or the letter.

    >>> filled("pass@{k}", 3), filled("pass@{k}", None), filled("the first {k} samples", 1)
    ('pass@3', 'pass@k', 'the first sample')
    """
    if k == 1:
        text = re.sub(r"(\{k\} (?:fresh )?sample)s\b", r"\1", text.replace("first {k} samples", "first sample"))
    return text.replace("{k}", "k" if k is None else str(k))


def escaped(text: str) -> str:
    """Text in which Markdown sees nothing to format: names and powers stay as they are written."""
    for mark in ("\\", "`", "*", "_", "|", "<"):
        text = text.replace(mark, "\\" + mark)
    return text


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
