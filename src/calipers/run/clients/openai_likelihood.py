"""Likelihoods over a completions route: the server reads a prompt and says how likely each of its tokens was.

::

    context + continuation ──► tokens of the prompt, each with its log-probability
                                    └── scored from the border on, which the tokens' own text shows

There are two ways to ask, of which a small probe finds the one that a server understands: ``echo`` with
``logprobs``, OpenAI's own, and vLLM's ``prompt_logprobs``. No tokenizer is needed here. Where a token lies
across the border, the context is sent by itself: as in lm-evaluation-harness, as many tokens as it has alone are
passed over, and what is left is scored after the context as it is.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import msgspec

from calipers.errors import ClientError
from calipers.run.client import Completion, Request
from calipers.run.clients.reply import malformed
from calipers.run.likelihood import NONE_HERE, Continuation, Rolling, Scored, Text

if TYPE_CHECKING:
    from calipers.run.clients.openai import ServedModel

PROBE: Final = "one two"
ECHO: Final = {"echo": True, "logprobs": 1}
LISTED: Final = {"prompt_logprobs": 1}
REFUSED: Final = ("http_400", "http_422", "http_501")  # the server does not know what it is asked for
_SPECIAL: Final = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")  # a token that only steers, as servers print it


class _Echoed(msgspec.Struct, gc=False):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Listed(msgspec.Struct, gc=False):
    logprob: float
    rank: int
    decoded_token: str | None = None


class _Choice(msgspec.Struct, gc=False):
    logprobs: _Echoed | None = None
    prompt_logprobs: list[dict[str, _Listed] | None] | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Reply(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Reply).decode


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt as the server read it, token by token. The first has no log-probability: nothing stands before it."""

    tokens: Sequence[str]  # their text, as far as a token is text
    logprobs: Sequence[float | None]
    greedy: Sequence[bool]  # it is the likeliest there is
    read: int | None
    wrote: int | None

    def spells(self, prompt: str) -> bool:
        """Whether the tokens' texts are those of the prompt, but for what the server put before it."""
        return "".join(self.tokens).endswith(prompt)

    def border(self, prompt: str, at: int) -> int | None:
        """The token that begins at a character of the prompt; None where none does, or where that cannot be seen."""
        starts = [0, *accumulate(map(len, self.tokens))]
        before = starts[-1] - len(prompt)  # what the server put there itself
        if not self.spells(prompt) or before + at not in starts:
            return None
        return len(starts) - 1 - starts[::-1].index(before + at)  # the last: a token without text belongs before it


class ScoringModel:
    """A served model that may also be asked how likely texts are. The first such call is preceded by a probe."""

    def __init__(self, name: str, served: ServedModel) -> None:
        self._name, self._served = name, served
        self._way: dict[str, Any] | None = None  # how this server is asked; None until it is known
        self._lead: int | None = None  # tokens that it puts before a text; None when that cannot be seen
        self._probing = asyncio.Lock()

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of the server when all is over."""
        return self._served.notes

    async def complete(self, request: Request) -> Completion:
        """The model's answer; `ClientError` for every other end of a call."""
        return await self._served.complete(request)

    async def close(self) -> None:
        """Give back the connections."""
        await self._served.close()

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """The likelihoods of some texts, in their order; `ClientError` when one of them has none."""
        async with self._probing:
            if self._way is None:
                await self._probe()
        ends = await asyncio.gather(*map(self._scored, requests), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return [end for end in ends if isinstance(end, Scored)]

    async def _scored(self, text: Text) -> Scored:
        if isinstance(text, Rolling):
            return await self._from(text.text, 0) if text.text else Scored(0.0, True, 0)
        if not text.continuation:
            raise _empty(text)
        if not isinstance(text.context, str):
            raise ClientError("the context is a chat and only text can be scored here", kind="prompt")
        return await self._from(text.context + text.continuation, len(text.context.rstrip()), text)

    async def _from(self, prompt: str, at: int, text: Continuation | None = None) -> Scored:
        """The likelihood of a prompt from a character on."""
        if at == 0 and not self._lead:
            raise ClientError(
                "a text without a context cannot be scored: the server shows no token before it, "
                "and of a first token nobody tells the likelihood",
                kind="prompt" if text else NONE_HERE,
                hopeless=text is None,  # every whole text would fare the same
            )
        calls = [whole := await self._ask(prompt)]
        first = self._lead if at == 0 else whole.border(prompt, at)
        if first is None:  # a token lies across the border, or half a character is no text
            calls.append(alone := await self._ask(prompt[:at]))
            first = len(alone.logprobs)
            if whole.spells(prompt):  # then what is left of the continuation follows the context as it is alone
                calls.append(whole := await self._ask(prompt[:at] + "".join(whole.tokens[first:])))
        logprobs = whole.logprobs[first:]
        if text is not None and not logprobs:
            raise _empty(text)
        known = [one for one in logprobs if one is not None]
        if len(known) < len(logprobs):
            raise malformed("a token of the prompt has no log-probability")
        counts = (_sum(one.read for one in calls), _sum(one.wrote for one in calls))
        return Scored(math.fsum(known), all(whole.greedy[first:]), len(known), *counts)

    async def _ask(self, prompt: str) -> Read:
        found = await self._try(prompt, self._way or ECHO)
        if found is None:
            raise malformed("the answer has no log-probabilities of the prompt")
        return found

    async def _try(self, prompt: str, way: dict[str, Any]) -> Read | None:
        """A prompt as the server read it; None when it does not say."""
        body = {"model": self._name, "prompt": prompt, "max_tokens": 1, "temperature": 0, **way}
        raw = await self._served.ask(body)
        try:
            reply = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise malformed("the body is not JSON in the shape of a reply with log-probabilities") from error
        if not reply.choices:
            raise malformed("the reply has no choices")
        usage = reply.usage or _Usage()
        return _listed(reply.choices[0], usage, prompt) if way is LISTED else _echoed(reply.choices[0], usage)

    async def _probe(self) -> None:
        """Find out how this server is asked; ClientError, before any question of the task, for one that cannot be."""
        said = ""
        for way in (ECHO, LISTED):
            try:
                found = await self._try(PROBE, way)
            except ClientError as error:
                if error.kind not in REFUSED:
                    raise
                said = f" (it says: {error})"
                continue
            if found is not None and len(found.logprobs) > 1 and None not in found.logprobs[1:]:
                self._way, self._lead = way, _lead(found)
                return
        tried = "neither echo with logprobs nor prompt_logprobs brings them"
        raise ClientError(
            f"the server gives no log-likelihoods of a prompt: {tried}{said}", kind=NONE_HERE, hopeless=True
        )


def _echoed(choice: _Choice, usage: _Usage) -> Read | None:
    """The echo of a prompt; what was written after it is left out. None where it does not say enough."""
    told = choice.logprobs
    if told is None or told.token_logprobs is None or told.top_logprobs is None:
        return None
    most = len(told.token_logprobs)
    count = usage.prompt_tokens if usage.prompt_tokens in (most - 1, most) else most - 1
    logprobs, tops = told.token_logprobs[:count], told.top_logprobs[:count]
    if len(tops) < len(logprobs):
        return None
    greedy = []
    for one, top in zip(logprobs, tops, strict=True):
        if one is not None and not top:
            return None
        greedy.append(one is None or not top or one >= max(top.values()))
    return Read((told.tokens or [])[:count], logprobs, greedy, usage.prompt_tokens, usage.completion_tokens)


def _listed(choice: _Choice, usage: _Usage, prompt: str) -> Read | None:
    """The list that vLLM gives: at each place the token itself and the likeliest, one entry where they are the same."""
    if choice.prompt_logprobs is None:
        return None
    held = [None if not place else max(place.values(), key=lambda one: one.rank) for place in choice.prompt_logprobs]
    tokens = ["" if one is None else one.decoded_token or "" for one in held]
    rest = "".join(tokens)
    if tokens and held[0] is None and prompt.endswith(rest):
        tokens[0] = prompt.removesuffix(rest)  # of the first one nothing is told: it is what the others leave
    logprobs = [None if one is None else one.logprob for one in held]
    greedy = [one is None or one.rank <= 1 for one in held]
    return Read(tokens, logprobs, greedy, usage.prompt_tokens, usage.completion_tokens)


def _lead(probe: Read) -> int | None:
    """How many tokens stand before the probe's own; None when its tokens do not show it."""
    found = probe.border(PROBE, 0)
    if found is not None:
        return found
    return 1 if probe.tokens and _SPECIAL.fullmatch(probe.tokens[0]) else None


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _empty(text: Continuation) -> ClientError:
    return ClientError(f"the continuation {text.continuation!r} has no tokens of its own", kind="prompt")
