"""Pages of the report: sections in a grid, number cards, rows of intervals, and the HTML file with its scripts."""

from __future__ import annotations

import hashlib
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import chain
from typing import Any, Final

from calipers.cards import METRIC_CARDS, STATISTIC_CARDS, filled
from calipers.reports.axes import EndsSeen, axes_of
from calipers.reports.figures import POLICY, counted, fails_or_passes, figure, too_few
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import MINUS, decimals_of, duration, level, money, places, to
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import ABSENT
from calipers.stats.estimate import Estimate
from calipers.web import draw
from calipers.web.draw import Scale, hatch
from calipers.web.markup import Child, Markup, element, identifier, island, joined, name

STYLES = ("page.css", "what_if.css", "runs.css")
SCRIPTS = ("page.js", "what_if.js", "differences.js")
MARK = Markup(
    '<svg class="mark" width="26" height="12" aria-hidden="true"><path d="M1 1v10M25 1v10M1 6h24"/>'
    '<circle cx="13" cy="6" r="4"/></svg>'
)
METAS = joined(
    element("meta", name=name, content=content)
    for name, content in (
        ("viewport", "width=device-width, initial-scale=1"),
        ("color-scheme", "light dark"),
        ("referrer", "no-referrer"),
    )
)
DIGITS = 6  # decimals of a value on its card
SHOWN_IN: Final[Mapping[str, Callable[[float], str]]] = {"USD": money, "s": duration}
"""Unit -> the function that formats its numbers."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: its head and note on the left, its body on the right."""

    head: str
    body: Markup
    note: Markup | str | Sequence[Markup | str] = ""  # a sequence gives one paragraph per item
    id: str = ""  # the id of the element; "" for none


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """The content of a page, from which `html` makes the file."""

    title: str  # the title of the window
    about: Sequence[str]  # the top strip: dataset, model, rollouts
    top: Markup  # the sentence, its basis, and the headline axis
    sections: Sequence[Section]
    foot: Sequence[str] = ()  # the digest, and which texts were left out
    cards: Sequence[NumberCard] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # for the scripts, in the data island


def heading(sentence: str, detail: str = "") -> Markup:
    """The sentence of a page and the line below it; a name in them is broken only if it is longer than a line."""
    second = element("span", _unbroken(detail)) if detail else None
    return element("h1", _unbroken(sentence), " ", second)


def _unbroken(sentence: str) -> list[Markup | str]:
    words = re.split("( )", sentence)
    return [element("b", word) if "-" in word else word for word in words]


def html(page: HtmlPage) -> str:
    """The page as a file that loads nothing: its policy allows only its own style and scripts."""
    style = "".join(map(asset, STYLES)) + _printed_digest(page.foot)
    scripts = [asset(script) for script in SCRIPTS]
    allowed = " ".join(map(_hash, scripts))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        METAS,
        element("title", page.title),
        element("style", Markup(style)),
    )
    listed = any(section.id == "rollouts" for section in page.sections)
    body = element(
        "body",
        hatch(),
        element("a", "Skip to rollouts", href="#rollouts", class_="skip") if listed else None,
        _strip(page.about),
        element("main", page.top, map(_section, page.sections), _glossary(page.cards)),
        element("footer", [element("p", line) for line in page.foot]),
        island("data", page.data) if page.data else None,
        [element("script", Markup(script)) for script in scripts],
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _printed_digest(foot: Sequence[str]) -> str:
    """The CSS rule that prints the digest at the foot of every sheet; a digest has no special character of CSS."""
    digest = next((match[0] for line in foot if (match := re.search("sha256:[0-9a-f]+", line))), "")
    return (
        f'@page {{ @bottom-left {{ content: "Calipers {digest[:23]}"; font: 9px sans-serif; }} }}\n' if digest else ""
    )


def _strip(about: Sequence[str]) -> Markup:
    return element(
        "header",
        element("span", MARK, element("b", "Calipers"), class_="brand"),
        element("span", [name(word) for word in about], class_="about"),
        element("button", "Theme", type="button", id="theme", class_="control", hidden=True),
        class_="strip",
    )


def _section(section: Section) -> Markup:
    notes = [section.note] if isinstance(section.note, str) else section.note
    return element(
        "section",
        element("div", element("h2", section.head), [element("p", note) for note in notes if note], class_="side"),
        element("div", section.body, class_="body"),
        class_="section",
        id=section.id or None,
    )


def _glossary(cards: Sequence[NumberCard]) -> Markup | None:
    """The cards of all numbers: a script shows one at a time; print, and a page without scripts, show all."""
    side = element("div", element("h2", "What the numbers mean"), class_="side")
    shown = element("div", [card.markup() for card in cards], class_="body cards")
    return element("section", side, shown, class_="section glossary", id="glossary") if cards else None


def asset(file: str) -> str:
    """The text of a style sheet or a script of the pages."""
    return (files("calipers.web") / "assets" / file).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@dataclass(frozen=True, slots=True)
class NumberCard:
    """The card of one number, or of a method."""

    id: str
    name: str
    value: str = ""
    definition: str = ""
    fields: Sequence[tuple[str, str]] = ()  # label, text
    others: Sequence[tuple[str, str]] = ()  # another system, and its meaning of the name

    def markup(self) -> Markup:
        """The card as an article; a script moves it below its row."""
        rows = [
            (element("dt", label), element("dd", text, class_="formula" if label == "Formula" else None))
            for label, text in self.fields
            if text
        ]
        if self.others:
            meanings = [element("p", element("b", system), f": {meaning}") for system, meaning in self.others]
            rows.append((element("dt", "Elsewhere"), element("dd", meanings)))
        title = element("h3", element("b", self.name), " ", element("span", self.value) if self.value else None)
        return element(
            "article",
            title,
            element("p", self.definition) if self.definition else None,
            element("dl", rows),
            class_="card",
            id=self.id,
        )


def card_id(*names: str) -> str:
    """The id of the card of a metric, or of a metric in a slice."""
    return "card-" + "--".join(map(identifier, names))


def estimate_card(
    name: str, estimate: Estimate, ledger: Ledger, *, missing: str, confidence: float, cut: Sequence[str] = ()
) -> NumberCard:
    """The card of a metric's value; ``cut`` names a slice by its key and value."""
    card, k = METRIC_CARDS.get(estimate.made.metric), estimate.made.k
    value = "no value" if estimate.value is None else figure(estimate.value, DIGITS)
    shown = f"{name}, {cut[0]} {cut[1]}" if cut else name
    fields = [
        ("Interval", _interval(estimate, confidence)),
        ("Missing", _missing(estimate, ledger, missing)),
        ("Samples", _samples(estimate)),
    ]
    definition = filled(card.one_line, k) if card else "A metric of an installed plugin."
    if cut:  # the card of the metric itself has the formula and the rest
        return NumberCard(card_id(name, *cut), shown, value, definition, fields)
    formula = [("Formula", filled(card.formula, k)), ("Source", filled(card.source, k))] if card else []
    others = [(system, filled(meaning, k)) for system, meaning in card.others.items()] if card else []
    fields = [*formula, *fields, ("Signature", estimate.signature)]
    return NumberCard(card_id(name), shown, value, definition, fields, others)


def method_card(name: str) -> NumberCard | None:
    """The card of an interval method or a test; None if it has no card."""
    if name not in STATISTIC_CARDS:
        return None
    card = STATISTIC_CARDS[name]
    return NumberCard(
        card_id(name), name, "", card.one_line, [(label.capitalize(), words) for label, words in card.parts()]
    )


def term(card: str, *shown: Markup | str, value: bool = False) -> Markup:
    """A name or a value that opens its card; without scripts it links to the card at the end of the page."""
    return element("a", shown, href=f"#{card}", class_="term value" if value else "term")


def method_term(method: str) -> Markup | str:
    """The name of a method, which opens its card if it has one."""
    card = method_card(method)
    return term(card.id, method) if card else method


def once(cards: Iterable[NumberCard | None]) -> list[NumberCard]:
    """The cards without repeated ids, in their order."""
    unique: dict[str, NumberCard] = {}
    for card in cards:
        if card is not None:
            unique.setdefault(card.id, card)
    return list(unique.values())


def _interval(estimate: Estimate, confidence: float) -> str:
    if estimate.interval is None:
        return f"none: {plain_why(estimate.why)}" if estimate.why else "none"
    cluster = next((word[8:] for word in estimate.made.drawn if word.startswith("cluster:")), "none")
    units = "" if cluster == "none" else f", clustered by {cluster}"
    return (
        f"{to(estimate.interval, DIGITS)}; {level(confidence)} by {estimate.method} over "
        f"{counted(estimate.tasks, 'task')}{units}"
    )


def _missing(estimate: Estimate, ledger: Ledger, missing: str) -> str:
    parts = [f"{counted(ledger.gaps, 'rollout')} {POLICY.get(missing, missing)}" if ledger.gaps else "none"]
    if estimate.bounds:
        parts.append(f"{to(estimate.bounds, DIGITS)} if all failed / passed")
    return "; ".join([*parts, *too_few(estimate)])


def _samples(estimate: Estimate) -> str:
    spread = estimate.samples_per_task
    per_task = f", {spread[0]} to {spread[1]} per task" if spread else ""
    return f"{estimate.samples:,}{per_task}"


def column_head(word: Child, kind: str = "") -> Markup:
    """The head of a column of a table."""
    return element("th", word, scope="col", class_=kind or None)


def plain_table(caption: str, heads: Iterable[Child], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table of texts with a caption for screen readers; the first cell of each row is its head."""
    lines = [
        element("tr", element("th", row[0], scope="row"), [element("td", cell) for cell in row[1:]]) for row in rows
    ]
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", [column_head(head) for head in heads])),
        element("tbody", lines),
        class_="plain",
    )


def scrolled(inner: Markup, label: str, kind: str = "scroll") -> Markup:
    """A frame in which wide content scrolls, also by keyboard."""
    return element("div", inner, class_=kind, tabindex="0", role="region", aria_label=label)


def as_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """The numbers of a picture as a collapsed table."""
    table = scrolled(plain_table(caption, heads, rows), caption)
    return element("details", element("summary", "Show as table"), table, class_="as-table")


AXIS_CELLS: Final = ("name-cell", "value-cell", "axis-cell", "interval-cell", "n-cell")


def interval_table(caption: str, head: str, confidence: float, scale: Scale, rows: Iterable[Markup]) -> Markup:
    """A table of values with their intervals on one axis; all such tables of a page share their columns."""
    return axis_table(caption, (head, "value", draw.axis_head(scale), level(confidence), "tasks"), rows)


def axis_table(caption: str, heads: tuple[str, str, Markup, str, str], rows: Iterable[Markup]) -> Markup:
    """A table with a picture in the third column, below its axis; the last head is for screen readers only."""
    name, value, axis, interval, last = heads
    picture = [axis, element("span", "picture", class_="hidden")]
    inner: list[Child] = [name, value, picture, interval, element("span", last, class_="hidden")]
    columns = [
        element("th", words, scope="col", role="columnheader", class_=kind)
        for words, kind in zip(inner, AXIS_CELLS, strict=True)
    ]
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", columns, role="row"), role="rowgroup"),
        element("tbody", rows, role="rowgroup"),
        class_="intervals",
        role="table",
    )


def axis_row(head: Child, *cells: Child, extra: bool = False) -> Markup:
    """A row of an `axis_table`. ``extra`` rows are hidden until a button shows them."""
    return element(
        "tr",
        element("th", head, scope="row", role="rowheader", class_=AXIS_CELLS[0]),
        [element("td", cell, role="cell", class_=kind) for cell, kind in zip(cells, AXIS_CELLS[1:], strict=True)],
        role="row",
        class_="extra" if extra else None,
    )


def estimate_row(
    head: Sequence[Markup | str | None],
    estimate: Estimate,
    ledger: Ledger,
    scale: Scale | None,
    digits: int,
    *,
    card: str | None,
    label: str,
    overall: float | None = None,
    tone: draw.Tone = "blue",
    extra: bool = False,
    own_axis: bool = False,
) -> Markup:
    """The row of an estimate in an `axis_table`.

    ``card`` is the id of the card that the number opens, if any. ``scale`` is None for a number with another unit
    than the table's axis; it is shown without a picture. ``own_axis``: the scale is not the table's, so that the row
    has its numbers. ``overall`` is the value of the whole benchmark.
    """
    known = estimate.value is not None and math.isfinite(estimate.value)
    value = estimate.value if known else None
    why = "" if estimate.interval else no_interval(estimate)
    if scale is None:
        unit = unit_of(estimate)
        show = SHOWN_IN.get(unit, partial(figure, places=digits))
        picture: Markup | str = "" if unit in SHOWN_IN else element("small", unit)
    else:
        show = partial(figure, places=decimals_of(estimate, digits))
        picture = draw.interval_row(
            value,
            estimate.interval,
            estimate.bounds,
            scale,
            label=described(label, estimate, ledger),
            overall=overall,
            tone=tone,
            own_axis=own_axis,
        )
    shown = show(value).replace("-", MINUS) if value is not None else figure(None)
    interval: Markup | str = element("span", why or "no value", class_="why")
    if estimate.interval:
        interval = " to ".join(show(end).replace("-", MINUS) for end in estimate.interval)
    tasks: list[Markup | str] = [counted(estimate.tasks, "task")]
    if few := estimate.undefined_tasks:
        k, verb = estimate.made.k, "has" if few == 1 else "have"
        words = f"{few:,} {verb} fewer than {k} samples" if k and k > 1 else f"{few:,} without"
        tasks.append(element("small", words))
    opener = shown if card is None else term(card, shown, value=True)
    return axis_row(head, opener, picture, interval, tasks, extra=extra)


def slice_name(value: str) -> str:
    """The name of a slice on a page."""
    return "(no value)" if value == ABSENT else value


def ends_of(estimate: Estimate) -> list[float | None]:
    """The numbers that an axis must include: the value, and the ends of its interval and of its bounds."""
    return [estimate.value, *(estimate.interval or ()), *(estimate.bounds or ())]


def scales_of(estimates: Sequence[Estimate], seen: EndsSeen) -> list[Scale]:
    """The scale of each estimate, from its axis; of one without an axis, such as a cost, by its own numbers."""
    scales = []
    for estimate, axis in zip(estimates, axes_of(estimates, seen), strict=True):
        own = draw.scale_of(ends_of(estimate), zero=bool(unit_of(estimate)))
        scales.append(own if axis is None else draw.scale_on(axis))
    return scales


def common_scale(estimates: Sequence[Estimate], seen: EndsSeen) -> Scale:
    """The scale of estimates of one metric; by their numbers if none of them has an axis."""
    axis = next((axis for axis in axes_of(estimates, seen) if axis is not None), None)
    if axis is not None:
        return draw.scale_on(axis)
    return draw.scale_of(chain.from_iterable(ends_of(each) for each in estimates))


def unit_of(estimate: Estimate) -> str:
    """The unit of a metric, such as USD; "" for a metric without a unit."""
    card = METRIC_CARDS.get(estimate.made.metric)
    return card.unit if card else ""


def bounds_words(estimate: Estimate, ledger: Ledger) -> str:
    """The bounds in words: ``0.422 to 0.475 if all 17 missing rollouts had failed or passed``; "" without bounds."""
    if not estimate.bounds:
        return ""
    missing = "missing samples"
    if not estimate.undefined_tasks and ledger.filled:
        missing = counted(ledger.filled, "missing rollout")
    every = f"all {missing}" if ledger.filled != 1 else f"the {missing}"
    ways = "had failed or passed" if fails_or_passes(estimate) else "had the lowest or the highest reward"
    return f"{to(estimate.bounds, places(estimate.interval))} if {every} {ways}"


def described(metric: str, estimate: Estimate, ledger: Ledger) -> str:
    """The picture of an estimate as a sentence, for screen readers."""
    if estimate.value is None:
        return f"{metric} has no value"
    digits = places(estimate.interval)
    parts = [f"{metric} {figure(estimate.value, digits)}"]
    if estimate.interval:
        confidence = next((word[11:] for word in estimate.made.settings if word.startswith("confidence:")), "")
        interval = f"{100 * float(confidence):.6g} percent interval" if confidence else "interval"
        parts.append(f"{interval} {to(estimate.interval, digits)}")
    else:
        parts.append(no_interval(estimate))
    if words := bounds_words(estimate, ledger):
        parts.append(words)
    return ", ".join(parts)


def no_interval(estimate: Estimate) -> str:
    """The reason why an estimate has no interval, in a few words."""
    if estimate.tasks == 1:
        return "no interval: one task"
    why = plain_why(estimate.why) if estimate.why else ""
    return why if why.startswith("no ") else f"no interval: {why}" if why else "no interval"
