"""lm-evaluation-harness' filters for tagged words and named entities: a response brought into one shape."""

from __future__ import annotations

import re
from typing import Any, Final

from calipers import regexes
from calipers.answers.lm_eval_filters import Doc, Each, text_of

PAIR: Final = r"\('([^']*)', '([^']*)'\)"
LABELS: Final = (
    ("PER", "person|people|persons|per"),
    ("LOC", "location|counties|places|country|continent|loc"),
    ("ORG", "organization|company|org"),
    ("DATE", "time|date"),
)
_LABELLED: Final = tuple((label, re.compile(rf"\b(?:{words})\b\s*:")) for label, words in LABELS)
_SPAN: Final = re.compile(r"(PER|LOC|ORG|DATE):\s*([^$]+)")


def regex_pos(*, regex_pattern: str = "", group_select: int = 0, fallback: Any = None) -> Each:
    """The tags of all pairs ``('word', 'TAG')``, as a list; the pattern and the selection change nothing."""
    instead = ["invalid"] if fallback is None else fallback

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        tags = [pair[1] for pair in regexes.find_all(PAIR, text_of("regex_pos", response))]
        return (tags, True) if tags else (instead, False)

    return Each(answer)


def format_span() -> Each:
    """Named entities in one shape: ``per: jane doe $ loc: kenya``, whatever words and lines the response used."""

    def answer(response: Any, doc: Doc) -> tuple[Any, bool]:
        text = text_of("format_span", response).lower()
        for label, words in _LABELLED:
            text = words.sub(f"{label}:", text)
        spans = _SPAN.findall(text.rstrip("$").replace("\n", "$").strip())
        values = [(label, value.strip()) for label, held in spans for value in held.split(",")]
        return " $ ".join(f"{label.lower()}: {value}" for label, value in values if value.lower() != "none"), True

    return Each(answer)
