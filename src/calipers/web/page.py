"""A page of the report: sections in a grid, number cards, and the whole file with its style and scripts."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from calipers.web.cards import NumberCard
from calipers.web.draw import hatch
from calipers.web.markup import Markup, element, island

STYLES = ("page.css", "what_if.css", "runs.css")
SCRIPTS = ("page.js", "what_if.js", "differences.js")
MARK = Markup(
    '<svg class="mark" width="26" height="12" aria-hidden="true"><path d="M1 1v10M25 1v10M1 6h24"/>'
    '<circle cx="13" cy="6" r="4"/></svg>'
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: its head and note stand left, its body right."""

    head: str
    body: Markup
    note: Markup | str | Sequence[Markup | str] = ""  # several: a paragraph each
    id: str = ""  # of the element; none is given where it is empty


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A page before it becomes a file."""

    title: str  # of the window
    about: Sequence[str]  # the top strip: dataset, model, rollouts
    top: Markup  # sentence, what it is from, headline axis
    sections: Sequence[Section]
    foot: Sequence[str] = ()  # digest, what was cut
    cards: Sequence[NumberCard] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # for the scripts, in the data island
    scripts: Sequence[str] = SCRIPTS


def heading(sentence: str, detail: str = "") -> Markup:
    """The sentence of a page and the line below it; a name in them is broken only where a line cannot hold it."""
    second = element("span", _unbroken(detail)) if detail else None
    return element("h1", _unbroken(sentence), " ", second)


def _unbroken(sentence: str) -> list[Markup | str]:
    words = re.split("( )", sentence)
    return [element("b", word) if "-" in word else word for word in words]


def html(page: HtmlPage) -> str:
    """The page as a file that loads nothing: its policy allows only the style and the scripts that are in it."""
    style = "".join(map(_asset, STYLES)) + _printed_digest(page.foot)
    scripts = [script for script in map(_asset, page.scripts) if script]
    allowed = " ".join(map(_hash, scripts)) or "'none'"
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", page.title),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        hatch(),
        element("a", "Skip to rollouts", href="#rollouts", class_="skip") if _has(page, "rollouts") else None,
        _strip(page.about),
        element("main", page.top, map(_section, page.sections), _glossary(page.cards)),
        _footer(page.foot),
        island("data", page.data) if page.data else None,
        [element("script", Markup(script)) for script in scripts],
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _printed_digest(foot: Sequence[str]) -> str:
    """The rule that prints the digest at the foot of every sheet; a digest has no sign that style would read."""
    digest = next((found[0] for line in foot if (found := re.search("sha256:[0-9a-f]+", line))), "")
    return (
        f'@page {{ @bottom-left {{ content: "Calipers {digest[:23]}"; font: 9px sans-serif; }} }}\n' if digest else ""
    )


def _has(page: HtmlPage, section: str) -> bool:
    return any(each.id == section for each in page.sections)


def _strip(about: Sequence[str]) -> Markup:
    return element(
        "header",
        element("span", MARK, element("b", "Calipers"), class_="brand"),
        element("span", [element("bdi", word) for word in about], class_="about"),
        element("button", "Theme", type="button", id="theme", class_="control", hidden=True),
        class_="strip",
    )


def _section(section: Section) -> Markup:
    notes = [section.note] if isinstance(section.note, str) else section.note
    anchor = section.id or None
    return element(
        "section",
        element("div", element("h2", section.head), [element("p", note) for note in notes if note], class_="side"),
        element("div", section.body, class_="body"),
        class_="section",
        id=anchor,
    )


def _glossary(cards: Iterable[NumberCard]) -> Markup:
    """The cards of all numbers: a script shows one at a time, print and a page without scripts show all."""
    shown = [card.markup() for card in cards]
    if not shown:
        return Markup("")
    side = element("div", element("h2", "What the numbers mean"), class_="side")
    return element(
        "section", side, element("div", shown, class_="body cards"), class_="section glossary", id="glossary"
    )


def _footer(foot: Sequence[str]) -> Markup:
    return element("footer", [element("p", line) for line in foot])


def _asset(file: str) -> str:
    path = files("calipers.web") / "assets" / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
