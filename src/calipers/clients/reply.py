"""Parse the response to a request: a reply in OpenAI's format into a `Completion`, a failure into a `ClientError`.

Replies come from the chat or the completions route. A `ClientError` has the server's message without secrets, and says
whether to retry.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard

import msgspec

from calipers.clients import Completion, Ending, Price, priced
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError
from calipers.typed import complete

LONGEST = 200
"""Maximum characters of a server's text in one error."""

_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn"}  # control, format (including bidi), surrogate, private use, unassigned
_RETRIED = {408, 409, 429}
LONGEST_WAIT = 86_400.0  # seconds; a server that asks for more than a day has a wrong clock or uses wrong units
_HOPELESS = {401, 403, 404}  # wrong key, permission, model or address, which all calls have in common


@dataclass(frozen=True, slots=True)
class Refusal:
    """The content of an HTTP error's body. ``param`` and ``code`` are OpenAI's fields; "" for other servers."""

    message: str
    param: str = ""
    code: str = ""


def cleaned(text: str, secrets: Secrets) -> str:
    """A server's text on one line, without keys and without terminal control characters.

    >>> cleaned("no\\n such \\x1b[31mmodel", Secrets())
    'no such \N{REPLACEMENT CHARACTER}[31mmodel'
    """
    line = " ".join(secrets.scrub(text).split())  # before it is cut, because a part of a key is not recognised
    if len(line) > LONGEST:
        line = line[: LONGEST - 1] + "…"
    if line.isascii() and line.isprintable():
        return line
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _HARMFUL else c for c in line)


def described(error: BaseException, secrets: Secrets) -> str:
    """The type and the message of an exception on one line, without keys."""
    try:
        return cleaned(f"{type(error).__name__}: {error}", secrets)
    except Exception:  # from the exception's own code
        return type(error).__name__


def read_refusal(body: bytes) -> Refusal:
    """The message in the body of an HTTP error, in one of the formats that servers use; else the body as text."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(body.decode(errors="replace"))
    if not isinstance(document, dict):
        return Refusal(body.decode(errors="replace"))
    error = document.get("error", document)
    if isinstance(error, dict):
        message = next((error[key] for key in ("message", "detail", "error") if error.get(key)), body.decode())
        param, code = error.get("param"), error.get("code")
        return Refusal(str(message), param if isinstance(param, str) else "", code if isinstance(code, str) else "")
    return Refusal(str(error or body.decode()))


def from_status(status: int, refusal: Refusal, headers: Mapping[str, str], secrets: Secrets) -> ClientError:
    """The error for an HTTP status; 408, 409, 429 and 5xx are retried, except if the account has no money left."""
    message = cleaned(refusal.message, secrets)
    if 300 <= status < 400:
        target = cleaned(headers.get("Location", "nowhere"), secrets)
        message = f"the server redirects to {target}; redirects are not followed, so give the final URL"
    out_of_quota = status == 429 and refusal.code == "insufficient_quota"  # OpenAI's code for an account without money
    retry = (status in _RETRIED or status >= 500) and not out_of_quota
    return ClientError(
        f"HTTP {status}: {message}" if message else f"HTTP {status}",
        kind=f"http_{status}",
        retry=retry,
        wait=retry_after(headers) if retry else None,
        slow_down=status == 429 and retry,
        before_answer=status == 429,
        hopeless=status in _HOPELESS or 300 <= status < 400 or out_of_quota,
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait: ``retry-after-ms``, or ``Retry-After`` in seconds or as a date.

    None if it does not ask, or asks for more than a day.

    >>> retry_after({"Retry-After": "1.5"}), retry_after({"Retry-After": "soon"})
    (1.5, None)
    """
    text = headers.get("Retry-After")
    milliseconds = _number(headers.get("retry-after-ms"))
    seconds = _number(text) if milliseconds is None else milliseconds / 1000
    if seconds is None and text:
        seconds = _until(text)
    return seconds if seconds is not None and seconds <= LONGEST_WAIT else None


def _until(text: str) -> float | None:
    """The seconds until a date; None if the text is not a date."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # not a date, or a date with numbers out of range
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _number(text: Any) -> float | None:
    if not isinstance(text, str) or not re.fullmatch(r"\s*[-+]?[0-9]{1,15}(\.[0-9]{0,15})?\s*", text):
        return None
    number = float(text)
    return max(0.0, number) if math.isfinite(number) else None


class _Message(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    error: Any = None


class Reply(msgspec.Struct, gc=False):
    """The fields of a reply that are used; all others are skipped without decoding."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    id: Any = None


LONGEST_ID = 200  # characters; those of known servers have at most 64
MOST = 2**53
"""The largest valid count: larger integers are not exact as floats, and a log with them could not be read."""

_DECODER = msgspec.json.Decoder(complete(Reply))
_COUNTS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cost": "cost_usd",  # from OpenRouter
}
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
    """The error message for a body that is not a reply, by its first bytes."""
    if start.startswith((b"data:", b"event:")):
        return "the server streams its response, although streaming was not requested"
    if start.startswith(b"<"):
        return "the response body is an HTML or XML page, not a completion; does the base URL need a path such as /v1?"
    return "the response body is not a JSON completion"


def completion(
    reply: Reply, latency_s: float, price: Price | None, secrets: Secrets, seed: int | None = None
) -> Completion:
    """The first choice of a reply as a completion; ClientError if there is none, or an error in its place.

    A choice without content is the text "". Reasoning that the server returns apart is not part of the text. ``seed``
    is the seed that was sent.
    """
    if reply.error:
        raise malformed(
            f"the server returned a success status with an error: {cleaned(_message(reply.error), secrets)}"
        )
    if not reply.choices:
        raise malformed("the response has no choices")
    choice = reply.choices[0]
    if choice.error:  # OpenRouter: the model failed, and its text is incomplete
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
    given = choice.message.reasoning_content, choice.message.reasoning
    reasoning = next((part for part in given if isinstance(part, str) and part), None)
    ending = _ending(finish, refusal)
    return Completion(text, finish, ending, usage, request_id=request_id, seed=seed, reasoning=reasoning)


def malformed(message: str) -> ClientError:
    """The error for a malformed response; a retry may succeed."""
    return ClientError(message, kind="malformed", retry=True)


def _ending(finish: str | None, refusal: str | None) -> Ending:
    if refusal or finish == "content_filter":
        return "refused"
    return "truncated" if finish == "length" else ""


def _joined(parts: list[Any], key: str) -> str:
    """The joined texts under a key of a message's parts; a part with a type is used only for the key of its type."""
    texts = [part.get(key) for part in parts if isinstance(part, dict) and str(part.get("type") or key).endswith(key)]
    return "".join(text for text in texts if isinstance(text, str))


def _usage(counts: Any, latency_s: float, price: Price | None) -> Mapping[str, float]:
    """The usage under our names: only counts that the server returned and that are valid, and the latency."""
    usage: dict[str, float] = {}
    if isinstance(counts, dict):
        for theirs, ours in _COUNTS.items():
            if is_count(counts.get(theirs)):
                usage[ours] = counts[theirs]
        for group, theirs, ours in _DETAILS:
            if group in counts and isinstance(details := counts[group], dict) and is_count(details.get(theirs)):
                usage[ours] = details[theirs]
    return {**priced(usage, price), "latency_s": latency_s}


def is_count(value: Any) -> TypeGuard[float]:
    """Whether a value in a reply is a valid count."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST


def _message(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)
