"""The second interface of models: log-likelihoods of texts instead of completions.

::

    texts ──► a task's prompt ──► score ──► a completion of the log: JSON, an object for each text

In that shape likelihoods go through the same loop as answers, and a stored run is replayed like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import msgspec

from calipers.clients.client import Client, Completion, Price, Request
from calipers.errors import ClientError, InputError
from calipers.tasks.task import Message, Prompt

NONE_HERE = "likelihood"
"""The kind of the error for a server that turns out to give no log-likelihoods at all."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """A text after another: asks how likely the second is once the model has read the first.

    Spaces that end the context count as the continuation's, as that is where a tokenizer keeps them.
    An empty context stands for the beginning of a text; one that is a chat is what a local model's template
    makes of its turns.
    """

    context: Prompt
    continuation: str


@dataclass(frozen=True, slots=True)
class Rolling:
    """A whole text from its beginning; one longer than the model reads at once is cut into windows.

    Every token is scored once; each window after the first begins one token early, for something to go
    by, and the last one as early as it can.
    """

    text: str


Text = Continuation | Rolling


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-likelihood of a text: the sum of the natural logarithms of its tokens' probabilities."""

    logprob: float
    greedy: bool  # every token is the one the model itself holds likeliest; true of no tokens at all
    tokens: int
    read: int | None = None  # tokens that a server counted for it, and those it wrote beside
    wrote: int | None = None


@runtime_checkable
class LikelihoodModel(Protocol):
    """A model that says how likely texts are. ``score`` is called by many workers of one event loop at once."""

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """The likelihoods of some texts, in their order; `ClientError` when one of them has none.

        Texts that belong together, such as the choices of one question, belong in one call: they
        succeed or fail together, and what they share is read once.
        """
        ...


def likelihoods(client: Client, model: str) -> LikelihoodModel:
    """The same model seen through this seam; InputError for one that only writes."""
    if isinstance(client, LikelihoodModel):
        return client
    right = "expected hf/PATH, or openai/NAME with --api completions and a server that returns prompt logprobs"
    raise InputError(f"model {model!r} does not return log-likelihoods; {right}")


def as_prompt(texts: Iterable[Text]) -> list[Message]:
    """Texts as the prompt of a task: continuations of one context together, so that it stands there once.

    >>> as_prompt([Continuation("2 + 2 =", " 4"), Continuation("2 + 2 =", " 5"), Rolling("whole")])
    [{'context': '2 + 2 =', 'continuations': [' 4', ' 5']}, {'text': 'whole'}]
    """
    parts: list[Message] = []
    for context, alike in groupby(texts, key=lambda text: text.context if isinstance(text, Continuation) else None):
        if context is None:
            parts += [{"text": text.text} for text in alike if isinstance(text, Rolling)]
        else:
            after = [text.continuation for text in alike if isinstance(text, Continuation)]
            parts.append({"context": context, "continuations": after})
    return parts


def texts_of(prompt: Prompt) -> list[Text]:
    """The texts of such a prompt; ClientError for one that is a question."""
    texts: list[Text] = []
    for part in () if isinstance(prompt, str) else prompt:
        if "text" in part:
            texts.append(Rolling(part["text"]))
        else:
            texts += [Continuation(part.get("context", ""), after) for after in part.get("continuations", ())]
    if not texts:
        raise ClientError("the request is not a log-likelihood request", kind="prompt", hopeless=True)
    return texts


class Line(msgspec.Struct, frozen=True):
    """The likelihood of one text in the log, with its size as it was asked: a continuation with its delimiter."""

    logprob: float
    greedy: bool
    tokens: int
    chars: int
    bytes: int


_decode = msgspec.json.Decoder(list[Line]).decode


def written(texts: Sequence[Text], scored: Sequence[Scored]) -> str:
    """The likelihoods of some texts as the log keeps them."""
    lines = []
    for text, score in zip(texts, scored, strict=True):
        content = text.text if isinstance(text, Rolling) else text.continuation
        size = len(content.encode("utf-8", "surrogatepass"))
        lines.append(Line(score.logprob, score.greedy, score.tokens, len(content), size))
    return msgspec.json.encode(lines).decode()


def read_back(text: str) -> list[Line]:
    """The likelihoods that the log holds; InputError for what is none.

    >>> [line.logprob for line in read_back('[{"logprob":-1.5,"greedy":true,"tokens":1,"chars":2,"bytes":2}]')]
    [-1.5]
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        right = "expected log-likelihoods, as a log-likelihood run logs them"
        raise InputError(f"the completion is {text[:40]!r}; {right}") from None


class Likelihoods:
    """A model as a client of the loop: it is asked for the likelihoods of a prompt's texts, and writes nothing."""

    def __init__(self, client: Client, model: LikelihoodModel, price: Price | None = None) -> None:
        self._client, self._model, self._price = client, model, price

    @property
    def notes(self) -> Sequence[str]:
        """What the model has to say when all is over."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The likelihoods of all texts of a prompt; `ClientError` when one of them has none."""
        texts = texts_of(request.prompt)
        started = perf_counter()
        scored = await self._model.score(texts)
        latency_s = perf_counter() - started
        for score in scored:
            if score.logprob != score.logprob:  # NaN: the log has no word for it, and no metric a use
                raise ClientError("a log-likelihood is not a number", kind="malformed")
        return Completion(written(texts, scored), usage=self._usage(scored, latency_s))

    async def close(self) -> None:
        """Give back what the model holds."""
        await self._client.close()

    def _usage(self, scored: Sequence[Scored], latency_s: float) -> Mapping[str, float]:
        usage: dict[str, Any] = {}
        for name, counts in (
            ("input_tokens", [score.read for score in scored]),
            ("output_tokens", [score.wrote for score in scored]),
        ):
            known = [count for count in counts if count is not None]
            if len(known) == len(counts):
                usage[name] = sum(known)
        cost = self._price.of(usage) if self._price else None
        return {**usage, **({} if cost is None else {"cost_usd": cost}), "latency_s": latency_s}
