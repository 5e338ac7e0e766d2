"""Differences that docs/dialects.md lists: they are named and counted separately, and do not fail the comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.parity.one import DIFFERENT, QUIRK, REFUSED, Outcome

KNOWN: Sequence[tuple[str, str]] = (  # (message of Calipers, the row of docs/dialects.md about it)
    (r"the target is choice -?\d+, and there are", "a document whose target is not a valid choice index"),
    (r"counts? from the end|is -\d+; expected", "a negative index counts from the end"),
    (
        r"no column of the documents|unknown column of the documents",
        "a bare word in `doc_to_text` that is not a column",
    ),
    (r"choices are contexts only in multiple_choice", "a task that generates with an integer `doc_to_text`"),
    (r"lists? of repeats", "an empty `regexes_to_ignore` compares whole lists"),
)


def settled(found: Sequence[Outcome]) -> None:
    """Mark known quirks: tasks that Calipers refuses by a rule of its own, with a message."""
    for one in found:
        row = quirk(one.said) if one.status in (DIFFERENT, REFUSED) and not one.differences else None
        if row is not None:
            one.status, one.said = QUIRK, row


def quirk(said: str) -> str | None:
    """The documented difference that a message is about; None for other messages.

    >>> quirk("a.yaml:3: doc_to_target: the target is choice 4, and there are 2; expected 0 to 1")
    'a document whose target is not a valid choice index'
    """
    return next((row for pattern, row in KNOWN if re.search(pattern, said)), None)
