"""Number cards: what a number of the page is, in the words of ``calipers explain``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calipers.metrics.cards import CARDS, filled
from calipers.reports.figures import POLICY, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import level, to
from calipers.rollouts.ledger import Ledger
from calipers.stats.cards import CARDS as METHODS
from calipers.stats.estimate import Estimate
from calipers.web.markup import Markup, element, identifier

DIGITS = 6  # of a value on its card


@dataclass(frozen=True, slots=True)
class NumberCard:
    """The card of one number, or of a method."""

    id: str
    name: str
    value: str = ""
    definition: str = ""
    fields: Sequence[tuple[str, str]] = ()  # label, text
    others: Sequence[tuple[str, str]] = ()  # system, what it means by the word

    def markup(self) -> Markup:
        """The card as an article; a script moves it below the row that it belongs to."""
        rows = [
            (element("dt", label), element("dd", text, class_="formula" if label == "Formula" else None))
            for label, text in self.fields
            if text
        ]
        if self.others:
            meanings = [element("p", element("b", who), f": {what}") for who, what in self.others]
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
    """The id of a card by what it is about: a metric, or a metric in a slice."""
    return "card-" + "--".join(map(identifier, names))


def of_estimate(
    name: str, estimate: Estimate, ledger: Ledger, *, missing: str, confidence: float, where: Sequence[str] = ()
) -> NumberCard:
    """The card of a metric's value; ``where`` names a slice, as key and value."""
    card, k = CARDS.get(estimate.made.metric), estimate.made.k
    value = "no value" if estimate.value is None else figure(estimate.value, DIGITS)
    shown = f"{name}, {where[0]} {where[1]}" if where else name
    fields = [
        ("Interval", _interval(estimate, confidence)),
        ("Missing", _missing(estimate, ledger, missing)),
        ("Samples", _samples(estimate)),
    ]
    definition = filled(card.one_line, k) if card else "A metric of an installed plugin."
    if where:  # what the metric is, its own card says in full
        return NumberCard(card_id(name, *where), shown, value, definition, fields)
    what = [("Formula", filled(card.formula, k)), ("Source", filled(card.source, k))] if card else []
    others = [(who, filled(meaning, k)) for who, meaning in card.others.items()] if card else []
    fields = [*what, *fields, ("Signature", estimate.signature)]
    return NumberCard(card_id(name), shown, value, definition, fields, others)


def of_method(name: str) -> NumberCard | None:
    """The card of an interval or a test; None for one that has none."""
    if name not in METHODS:
        return None
    card = METHODS[name]
    return NumberCard(
        card_id(name), name, "", card.one_line, [(label.capitalize(), words) for label, words in card.parts()]
    )


def term(card: str, *shown: Markup | str, value: bool = False) -> Markup:
    """A name or a value that opens its card; without scripts it leads to the card at the end of the page."""
    return element("a", shown, href=f"#{card}", class_="term value" if value else "term")


def once(cards: Iterable[NumberCard | None]) -> list[NumberCard]:
    """The cards without repetitions, in their order."""
    kept: dict[str, NumberCard] = {}
    for card in cards:
        if card is not None:
            kept.setdefault(card.id, card)
    return list(kept.values())


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
    if estimate.undefined_tasks:
        k = estimate.made.k
        few = f"have fewer than {k} samples" if k and k > 1 else "have no value"
        parts.append(f"{counted(estimate.undefined_tasks, 'task')} {few}")
    return "; ".join(parts)


def _samples(estimate: Estimate) -> str:
    spread = estimate.samples_per_task
    each = f", {spread[0]} to {spread[1]} per task" if spread else ""
    return f"{estimate.samples:,}{each}"
