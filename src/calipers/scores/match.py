"""exact_match, as lm-evaluation-harness compares.

What is to be ignored goes from both sides; then they are equal, or they are not.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers import regexes
from calipers.errors import InputError
from calipers.regexes.pattern import known

PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
DIGITS: Final = str.maketrans("", "", string.digits)
KEPT: Final = 200_000  # texts remembered without what is ignored


@dataclass(frozen=True, slots=True)
class Rules:
    """What exact_match ignores, in this order: patterns, case, ASCII punctuation, ASCII digits."""

    regexes_to_ignore: tuple[str, ...] = ()
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False

    @classmethod
    def of(cls, place: str = "exact_match", **given: Any) -> Rules:
        """The rules that these settings ask for; InputError for one of the wrong type."""
        patterns = given.pop("regexes_to_ignore", None) or ()
        patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise InputError.at(place, f"regexes_to_ignore has {pattern!r}", "expected patterns as text")
            regexes.check(pattern)
        for name, value in given.items():
            if not isinstance(value, bool):
                raise InputError.at(place, f"{name} is {value!r}", "expected true or false")
        return cls(patterns, **given)

    @property
    def any(self) -> bool:
        """Whether anything is ignored at all."""
        return bool(self.regexes_to_ignore) or self.ignore_case or self.ignore_punctuation or self.ignore_numbers


NOTHING: Final = Rules()


def normal(text: Any, rules: Rules) -> Any:
    """One side of a comparison without what is ignored; InputError for what is no text, if anything is.

    >>> normal("$1,200.", Rules(regexes_to_ignore=(",",), ignore_punctuation=True))
    '1200'
    """
    if not rules.any:
        return text
    if not isinstance(text, str):
        raise InputError.at("exact_match", f"{text!r} is no text", "expected text where anything is to be ignored")
    for pattern in rules.regexes_to_ignore:
        held = known(pattern, False)
        if held is not None and len(text) <= held.harmless:
            text = held.pattern.sub("", text)
        else:
            text = regexes.remove(pattern, text)
    text = text.lower() if rules.ignore_case else text
    text = text.translate(PUNCTUATION) if rules.ignore_punctuation else text
    return text.translate(DIGITS) if rules.ignore_numbers else text


def matches(prediction: Any, reference: Any, rules: Rules = NOTHING) -> float:
    """1.0 when an answer equals a reference, else 0.0; for a list over repeats, the share of them that does.

    A list together with patterns to ignore is an error, as it is in lm-eval. No answers at all are NaN.

    >>> matches("Paris", "paris", Rules(ignore_case=True)), matches(["5", "4", "5", "5"], "5")
    (1.0, 0.75)
    """
    if not isinstance(prediction, (list, tuple)):
        return float(bool(normal(prediction, rules) == normal(reference, rules)))
    if rules.regexes_to_ignore:
        right = "expected one answer: end the pipeline with take_first, or give the metric a reduction"
        raise InputError.at("exact_match", "regexes_to_ignore for a list of repeats", right)
    values = [matches(one, reference, rules) for one in prediction]
    return math.fsum(values) / len(values) if values else math.nan


def match_all(predictions: Sequence[str], references: Sequence[str], rules: Rules = NOTHING) -> list[float]:
    """`matches` for each of many pairs of texts. Equal texts are equal whatever is ignored; others are made so once.

    >>> match_all(["a", "B."], ["a", "b"], Rules(ignore_case=True, ignore_punctuation=True))
    [1.0, 1.0]
    """
    if not rules.any:
        return [1.0 if one == other else 0.0 for one, other in zip(predictions, references, strict=True)]
    made: dict[str, str] = {}

    def plain(text: str) -> str:
        held = made.get(text)
        if held is None:
            if len(made) >= KEPT:
                made.clear()
            held = made[text] = normal(text, rules)
        return held

    pairs = zip(predictions, references, strict=True)
    return [1.0 if one == other or plain(one) == plain(other) else 0.0 for one, other in pairs]


def exact_match(predictions: Sequence[Any], references: Sequence[Any], rules: Rules = NOTHING) -> float:
    """The mean of matches over pairs; a single prediction, or reference, is compared with each of the others.

    >>> exact_match(["a", "b", "c", "d"], ["a", "x", "c", "y"])
    0.5
    """
    count = max(len(predictions), len(references))
    if any(len(side) not in (1, count) for side in (predictions, references)):
        wrong = f"{len(predictions)} predictions and {len(references)} references"
        raise InputError.at("exact_match", wrong, "expected as many of each")
    wide = [list(side) * count if len(side) == 1 else list(side) for side in (predictions, references)]
    values = [matches(one, other, rules) for one, other in zip(*wide, strict=True)]
    return math.fsum(values) / len(values) if values else math.nan
