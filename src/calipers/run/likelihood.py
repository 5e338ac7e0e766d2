"""The second seam to a model: how likely it holds a text, instead of what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from calipers.errors import InputError
from calipers.run.client import Client


@dataclass(frozen=True, slots=True)
class Continuation:
    """A text after another: asks how likely the second is once the model has read the first.

    Spaces that end the context count as the continuation's, as that is where a tokenizer keeps them.
    An empty context stands for the beginning of a text.
    """

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class Rolling:
    """A whole text from its beginning; one longer than the model reads at once is cut into windows.

    Every token is scored once; each window after the first begins one token early, for something to go
    by, and the last one as early as it can.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Scored:
    """How likely a text is: the sum of the natural logarithms of its tokens' probabilities."""

    logprob: float
    greedy: bool  # every token is the one the model itself holds likeliest; true of no tokens at all
    tokens: int


@runtime_checkable
class LikelihoodModel(Protocol):
    """A model that says how likely texts are. ``score`` is called by many workers of one event loop at once."""

    async def score(self, requests: Sequence[Continuation | Rolling]) -> list[Scored]:
        """The likelihoods of some texts, in their order; `ClientError` when one of them has none.

        Texts that belong together, such as the choices of one question, belong in one call: they
        succeed or fail together, and what they share is read once.
        """
        ...


def likelihoods(client: Client, model: str) -> LikelihoodModel:
    """The same model seen through this seam; InputError for one that only writes."""
    if isinstance(client, LikelihoodModel):
        return client
    raise InputError(f"model {model!r} gives no log-likelihoods; expected a model that does, such as hf/PATH")
