"""Texts at which a completion ends, held to here whatever the server makes of them.

Some servers take no more than four, some none. What they are not sent is cut off here: the text is the one
that a server that had taken them all would have given, for whatever stands before the first of them does not
depend on what comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from calipers.run.client import Completion

MOST: Final = 4  # that OpenAI's own servers take


def cut(done: Completion, stops: Sequence[str]) -> Completion:
    """A completion up to the first of some texts, as one that ended there by itself; else as it is.

    >>> cut(Completion("4\\n\\nQ: 3 + 3", "length", "truncated"), ["Q:", "\\n\\n"])
    Completion(text='4', finish_reason='stop', ending='', usage={})
    """
    places = [place for stop in stops if stop and (place := done.text.find(stop)) >= 0]
    if not places:
        return done
    ending = "" if done.ending == "truncated" else done.ending  # it was at its end before it ran out of tokens
    return msgspec.structs.replace(done, text=done.text[: min(places)], finish_reason="stop", ending=ending)


def fewer(sent: int) -> tuple[int, str]:
    """How many texts to send to a server that refused so many, and what to tell the user."""
    if sent > MOST:
        return MOST, f"the server takes no {sent} stop texts; it gets the first {MOST}, and the others are cut off here"
    return 0, "the server takes no stop texts; answers are cut off here, after they are paid for"
