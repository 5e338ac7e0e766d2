"""Several requests of one document in one prompt: completions to generate, and texts whose likelihood is asked for.

::

    requests ──► a task's prompt ──► each sent in turn ──► one completion of the log

The completion of a single request for text is that text. Any other is JSON, with one object per request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from calipers.clients.client import Client, Completion, Request
from calipers.clients.likelihood import Likelihoods, Line, Text, read_back, texts_of
from calipers.clients.likelihood import as_prompt as texts_as_prompt
from calipers.errors import ClientError, InputError
from calipers.tasks.task import Message, Prompt


@dataclass(frozen=True, slots=True)
class Writing:
    """A request for a completion, with the sampling settings that the task gives it."""

    context: Prompt
    max_tokens: int | None = None
    temperature: float | None = None
    stop: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


Part = Writing | Text


class _Said(msgspec.Struct):
    text: str


def as_prompt(parts: Iterable[Part]) -> list[Message]:
    """Requests as the prompt of a task, in their order.

    >>> as_prompt([Writing("2 + 2 =", stop=["."])])
    [{'prompt': '2 + 2 =', 'stop': ['.']}]
    """
    found: list[Message] = []
    for part in parts:
        if not isinstance(part, Writing):
            found += texts_as_prompt([part])
            continue
        given = {"max_tokens": part.max_tokens, "temperature": part.temperature}
        told = {name: value for name, value in given.items() if value is not None}
        more = {"stop": list(part.stop)} if part.stop else {}
        found.append({"prompt": part.context, **told, **more, **({"extra": dict(part.extra)} if part.extra else {})})
    return found


def read_answers(text: str, kinds: Sequence[str]) -> list[Any]:
    """What the log holds of a document, one result per request: texts, ``(logprob, greedy)``, or log-likelihoods.

    InputError where it does not hold one of the right kind for each.

    >>> read_answers("four", ["generate_until"]), read_answers('[{"text":"4"},{"text":"5"}]', ["generate_until"] * 2)
    (['four'], ['4', '5'])
    """
    if list(kinds) == ["generate_until"]:
        return [text]
    try:
        held = msgspec.json.decode(text, type=list[dict[str, Any]])
        if len(held) != len(kinds):
            raise InputError(f"{len(held)} results for {len(kinds)} requests; expected one for each")
        return [_result(one, kind) for one, kind in zip(held, kinds, strict=True)]
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        right = "expected one result per request, as the log of such a run keeps them"
        raise InputError(f"the completion is {text[:40]!r}; {right}") from None


def _result(held: Mapping[str, Any], kind: str) -> Any:
    if kind == "generate_until":
        return msgspec.convert(held, _Said).text
    line = msgspec.convert(held, Line)
    return line.logprob if kind == "loglikelihood_rolling" else (line.logprob, line.greedy)


class Mixed:
    """A model as a client of the loop: every request of a prompt is sent to it, and the results are one completion.

    ``told`` names the sampling settings that the user gave; they win over those of the requests.
    """

    def __init__(self, client: Client, likelihoods: Likelihoods | None, told: Sequence[str] = ()) -> None:
        self._client, self._likelihoods, self._told = client, likelihoods, frozenset(told)

    @property
    def notes(self) -> Sequence[str]:
        """What the model has to say when all is over."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The results of all requests of a prompt; `ClientError` when one of them fails."""
        if isinstance(request.prompt, str):
            raise ClientError("the prompt holds no requests", kind="prompt", hopeless=True)
        done = [await self._one(request, part) for part in request.prompt]
        if len(done) == 1 and "prompt" in request.prompt[0]:
            return done[0]
        results: list[Any] = []
        for part, one in zip(request.prompt, done, strict=True):
            results += [_Said(one.text)] if "prompt" in part else read_back(one.text)
        usage: dict[str, float] = {}
        for name in done[0].usage:
            counts = [one.usage.get(name) for one in done]
            known = [count for count in counts if count is not None]
            if len(known) == len(counts):  # of all of them, or it would be a guess
                usage[name] = sum(known)
        ended = next((one for one in done if one.ending), done[0])
        text = msgspec.json.encode(results).decode()
        return Completion(text, ended.finish_reason, ended.ending, usage)

    async def _one(self, request: Request, part: Message) -> Completion:
        if "prompt" not in part:
            if self._likelihoods is None:
                raise ClientError("the model gives no log-likelihoods", kind="prompt", hopeless=True)
            texts_of([part])
            return await self._likelihoods.complete(msgspec.structs.replace(request, prompt=[part]))
        given = {name: part[name] for name in ("max_tokens", "temperature", "stop") if name in part}
        own = {name: value for name, value in given.items() if name not in self._told}
        extra = {**part.get("extra", {}), **request.extra}
        return await self._client.complete(msgspec.structs.replace(request, prompt=part["prompt"], extra=extra, **own))

    async def close(self) -> None:
        """Give back what the model holds."""
        await self._client.close()
