"""lm-evaluation-harness' model ``dummy``: it writes "lol" and returns random log-likelihoods.

There the likelihoods are drawn one after another; here each is drawn from its own text, so that the order in which
requests are answered does not matter, and the same text has the same likelihood in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from calipers.clients import Completion, Request, Rolling, Scored, Text

ANSWER: Final = "lol"
SPEC: Final = f"python/{__name__}:DUMMY"  # as the name of a model


class Dummy:
    """A model that knows nothing and costs nothing, to try a task with."""

    async def complete(self, request: Request) -> Completion:
        """The same word to whatever is asked."""
        return Completion(ANSWER)

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """A log-likelihood between -1 and 0 for each text, never the likeliest."""
        return [Scored(-_uniform(text), greedy=False, tokens=1) for text in requests]

    async def close(self) -> None:
        """Nothing to give back."""


def _uniform(text: Text) -> float:
    parts = [text.text] if isinstance(text, Rolling) else [repr(text.context), text.continuation]
    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return math.ldexp(int.from_bytes(digest[:6]), -48)


DUMMY: Final = Dummy()
