"""The values in a sample of lm-evaluation-harness: what a perplexity keeps, what is no answer, what is not finite."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from calipers.rollouts.column import Column
from calipers.rollouts.part import Part

LIKELIHOODS: Final = {
    "perplexity": "",
    "word_perplexity": "words",
    "byte_perplexity": "bytes",
    "bits_per_byte": "bytes",
}
"""Metrics of log-likelihoods, and what else a document keeps for them."""
COMPARED: Final = "shown by calipers score --dialect lm_eval --format md, compared by calipers compare"


@dataclass(slots=True)
class Odd:
    """What the records cannot say themselves, found on the way."""

    numbers: list[tuple[int, str, float]] = field(default_factory=list)  # (row, metric, NaN or an infinity)
    paired: set[str] = field(default_factory=set)  # metrics that are pairs, of which only all together are a number
    rows: int = 0


def sizes(name: str, value: Any) -> dict[str, float]:
    """What a document keeps for a perplexity, as columns: its log-likelihood, and the words or bytes it is of."""
    held = value if isinstance(value, list) else [value]
    if name not in LIKELIHOODS or not all(isinstance(one, (int, float)) and math.isfinite(one) for one in held):
        return {}
    return {column: float(one) for column, one in zip(("logprob", LIKELIHOODS[name]), held, strict=False)}


def lost(answers: Any, fallbacks: Collection[str]) -> bool:
    """Whether all that a pipeline left is a fallback."""
    held = answers if isinstance(answers, list) else [answers]
    flat = [one for answer in held for one in (answer if isinstance(answer, list) else [answer])]
    return bool(flat) and all(isinstance(one, str) and one in fallbacks for one in flat)


def finite(value: Any) -> Any:
    """A JSON value with null for every number that strict JSON cannot say."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_odd(part: Part, odd: Odd, path: str) -> Part:
    """The rollouts of a file with the numbers that are not finite, and a note on what is a number of all together."""
    rewards = dict(part.rewards)
    for row, name, value in odd.numbers:
        held = rewards[name]
        values = np.array(held.values)
        values[row] = value
        rewards[name] = Column(values, held.given)
    if not odd.paired:
        return replace(part, rewards=rewards)
    names = ", ".join(sorted(odd.paired))
    said = "is a number" if len(odd.paired) == 1 else "are numbers"
    note = f"{path}: {names} {said} of all documents together, {COMPARED}"
    return replace(part, rewards=rewards, notes=[*part.notes, note])
