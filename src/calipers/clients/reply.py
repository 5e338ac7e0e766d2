"""A reply in OpenAI's shape, of the chat or the completions route, as a `Completion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from calipers.clients.client import Completion, Ending, Price
from calipers.clients.failure import cleaned
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError


class _Message(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    error: Any = None


class Reply(msgspec.Struct, gc=False):
    """The keys that matter; whatever else a server sends is skipped unread."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    id: Any = None


LONGEST_ID = 200  # characters; those of known servers have at most 64
MOST = 2**53
"""The largest count that is one: beyond it a log could not be read, nor a sum be true."""

_DECODER = msgspec.json.Decoder(Reply)
_COUNTS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cost": "cost_usd",
}  # cost: OpenRouter
_DETAILS = (
    ("prompt_tokens_details", "cached_tokens", "cached_tokens"),
    ("completion_tokens_details", "reasoning_tokens", "reasoning_tokens"),
)


def decode(raw: bytes) -> Reply:
    """The reply in a body; ClientError if the body is not a reply."""
    try:
        return _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(_no_reply(raw[:64].lstrip())) from error


def _no_reply(start: bytes) -> str:
    """What a body that begins so is instead of a reply, where that can be seen."""
    if start.startswith((b"data:", b"event:")):
        return "the server streams its response, although streaming was not requested"
    if start.startswith(b"<"):
        return "the response body is an HTML or XML page, not a completion; does the base URL need a path such as /v1?"
    return "the response body is not a JSON completion"


def completion(
    reply: Reply, latency_s: float, price: Price | None, secrets: Secrets, seed: int | None = None
) -> Completion:
    """The first choice of a reply; ClientError when there is none, or an error in its place.

    No content is the text "": the model said nothing. Reasoning is not part of the text. ``seed`` is the one that was
    sent.
    """
    if reply.error:
        raise malformed(
            f"the server returned a success status with an error: {cleaned(_message(reply.error), secrets)}"
        )
    if not reply.choices:
        raise malformed("the response has no choices")
    choice = reply.choices[0]
    if choice.error:  # OpenRouter: the model broke off, what there is of its answer is not the answer
        raise malformed(f"an error instead of an answer: {cleaned(_message(choice.error), secrets)}")
    usage = _usage(reply.usage, latency_s, price)
    finish = choice.finish_reason
    request_id = reply.id[:LONGEST_ID] if isinstance(reply.id, str) and reply.id else None
    if choice.message is None:
        if choice.text is None:
            raise malformed("the first choice has neither a message nor text")
        return Completion(choice.text, finish, _ending(finish, None), usage, request_id=request_id, seed=seed)
    content, refusal = choice.message.content, choice.message.refusal
    if isinstance(content, list):
        refusal = refusal or _joined(content, "refusal")
        content = _joined(content, "text")
    text = content or refusal or ""
    return Completion(text, finish, _ending(finish, refusal), usage, request_id=request_id, seed=seed)


def malformed(what: str) -> ClientError:
    """The error for a malformed response; a retry may succeed."""
    return ClientError(what, kind="malformed", retry=True)


def _ending(finish: str | None, refusal: str | None) -> Ending:
    if refusal or finish == "content_filter":
        return "refused"
    return "truncated" if finish == "length" else ""


def _joined(parts: list[Any], key: str) -> str:
    """The texts of some parts of a message; a part that says its type counts under that type only."""
    texts = [part.get(key) for part in parts if isinstance(part, dict) and str(part.get("type") or key).endswith(key)]
    return "".join(text for text in texts if isinstance(text, str))


def _usage(counts: Any, latency_s: float, price: Price | None) -> Mapping[str, float]:
    """Usage under our names: only what the server counted, in numbers that can be."""
    usage: dict[str, float] = {}
    if isinstance(counts, dict):
        for theirs, ours in _COUNTS.items():
            if (value := counts.get(theirs)) is not None:
                _put(usage, ours, value)
        for group, theirs, ours in _DETAILS:
            if (details := counts.get(group)) and isinstance(details, dict):
                _put(usage, ours, details.get(theirs))
    if price and "cost_usd" not in usage and (cost := price.of(usage)) is not None:
        usage["cost_usd"] = cost
    usage["latency_s"] = latency_s
    return usage


def _put(usage: dict[str, float], name: str, value: Any) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST:
        usage[name] = value


def _message(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)
