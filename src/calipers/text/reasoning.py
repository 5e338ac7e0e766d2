"""The reasoning at the start of a completion, which is split off before the answer is verified.

A model that reasons prints its reasoning first, between markers of its family, and the answer after the closing one.
The template of some models opens the reasoning in the prompt, so that the completion has the closing marker alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

MARKERS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""The markers that open and close reasoning; those of the last pair are channels, which have an end of their own."""

ENDS: Final = ("<|return|>", "<|end|>")
"""What ends the message in a channel."""


_BLANKS: Final = re.compile(r"[\s\ufeff\u200b-\u200d\u2060]*+")  # also those without width


@dataclass(frozen=True, slots=True)
class Split:
    """A completion without its reasoning."""

    answer: str  # what follows the closing marker, without blanks at its start; "" if there is no closing marker
    chars: int  # number of characters before the answer
    marker: str  # the marker that opens the reasoning, also if the template opened it
    closed: bool = True  # whether there is a closing marker


def split(text: str) -> Split | None:
    """The completion without the reasoning at its start; None if it does not start with reasoning.

    Reasoning extends to the last of its closing markers. A marker that opens it elsewhere has no meaning; a closing
    marker that comes before any opening one ends reasoning that the template opened.

    >>> split("<think>could be 4, no</think>It is 9").answer, split("It is 9"), split("<think>could be 4").closed
    ('It is 9', None, False)
    """
    start = _BLANKS.match(text).end()  # type: ignore[union-attr]  # it matches nothing, too
    for opening, closing in MARKERS:
        if text.startswith(opening, start):
            end = text.rfind(closing, start + len(opening))
            return Split("", len(text), opening, closed=False) if end < 0 else _split_at(text, end, opening, closing)
    for opening, closing in MARKERS:
        first = text.find(closing)
        if first >= 0 and text.find(opening, 0, first) < 0:
            return _split_at(text, text.rfind(closing), opening, closing)
    return None


def _split_at(text: str, end: int, opening: str, closing: str) -> Split:
    answer = text[end + len(closing) :].lstrip()
    chars = len(text) - len(answer)
    if closing in MARKERS[-1]:
        for mark in ENDS:
            answer = answer.removesuffix(mark)
    return Split(answer, chars, opening)


def has_marker(value: Any) -> bool:
    """Whether a JSON value has a marker in one of its texts; one in a regular expression may be escaped.

    >>> has_marker({"marker": "</think>"}), has_marker([r"\\[THINK\\]"]), has_marker("think"), has_marker(None)
    (True, True, False, False)
    """
    if isinstance(value, str):
        plain = value.replace("\\", "")
        return any(mark in plain for mark in chain.from_iterable(MARKERS))
    if isinstance(value, Mapping):
        return any(has_marker(part) for part in (*value, *value.values()))
    return isinstance(value, (list, tuple)) and any(has_marker(part) for part in value)
