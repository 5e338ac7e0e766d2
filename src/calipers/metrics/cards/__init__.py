"""Cards: one for every built-in metric, in plain words, without loading any arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from calipers.errors import InputError
from calipers.metrics.cards import bayes, columns, draws, economics, pooled, rewards
from calipers.metrics.cards.card import Card
from calipers.names import METRICS

__all__ = ["CARDS", "Card", "card_for"]


def _all(*modules: ModuleType) -> dict[str, Card]:
    found = (thing for module in modules for thing in vars(module).values() if isinstance(thing, Card))
    cards = {card.name: card for card in found}
    order = list(METRICS.entries)
    return dict(sorted(cards.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


CARDS: Final[Mapping[str, Card]] = _all(rewards, draws, bayes, pooled, columns, economics)
"""Entry of `METRICS` -> its card, in the order of the index."""


def card_for(name: str) -> tuple[Card, int | None]:
    """The card of a metric as a user names it, and its k; parameters in parentheses do not matter.

    >>> card, k = card_for("pass@3")
    >>> card.name, k
    ('pass@{k}', 3)
    >>> card_for("percentile(column=latency_s, q=95)")[0].unit
    ''
    """
    bare = name.partition("(")[0].strip()
    if bare in CARDS:  # pass@{k} itself, as the list prints it
        return CARDS[bare], None
    found = METRICS.match(bare)
    if found is None or found[0] not in CARDS:
        raise METRICS.unknown(bare)
    entry, k = found
    if k == 0:
        raise InputError(f"metric {name!r}: k is 0; expected a positive integer")
    return CARDS[entry], k
