"""A failed request as a `ClientError`: the server's message, safe to log, and whether to retry."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from calipers.clients.secrets import Secrets
from calipers.errors import ClientError

LONGEST = 200
"""Maximum characters of a server's text in one error."""

_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn"}  # control, format (bidi among them), half characters, private, unassigned
_RETRIED = {408, 409, 429}
_HOPELESS = {401, 403, 404}  # key, permission, model or address: the next call has the same ones


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the body of an HTTP error says. ``param`` and ``code`` are OpenAI's, "" elsewhere."""

    message: str
    param: str = ""
    code: str = ""


def cleaned(text: str, secrets: Secrets) -> str:
    """A server's text on one line, without keys and without terminal control characters.

    >>> cleaned("no\\n such \\x1b[31mmodel", Secrets())
    'no such \N{REPLACEMENT CHARACTER}[31mmodel'
    """
    words = " ".join(secrets.scrub(text).split())  # before it is cut: half a key is no longer recognised
    if len(words) > LONGEST:
        words = words[: LONGEST - 1] + "…"
    if words.isascii() and words.isprintable():
        return words
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _HARMFUL else c for c in words)


def read_refusal(body: bytes) -> Refusal:
    """The message in the body of an HTTP error, in one of the shapes servers use; else the body as text."""
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
    """The error for an HTTP status: 408, 409, 429 and 5xx can be retried, wrong keys and addresses cannot."""
    message = cleaned(refusal.message, secrets)
    if 300 <= status < 400:
        target = cleaned(headers.get("Location", "nowhere"), secrets)
        message = f"the server redirects to {target}; redirects are not followed, so give the final URL"
    broke = status == 429 and refusal.code == "insufficient_quota"  # OpenAI's word for an account without money
    retry = (status in _RETRIED or status >= 500) and not broke
    return ClientError(
        f"HTTP {status}: {message}" if message else f"HTTP {status}",
        kind=f"http_{status}",
        retry=retry,
        wait=wait_asked(headers) if retry else None,
        slow_down=status == 429 and retry,
        hopeless=status in _HOPELESS or 300 <= status < 400 or broke,
    )


def wait_asked(headers: Mapping[str, str]) -> float | None:
    """The seconds a server asks us to wait: ``retry-after-ms``, or ``Retry-After`` in seconds or as a date.

    >>> wait_asked({"Retry-After": "1.5"}), wait_asked({"Retry-After": "soon"})
    (1.5, None)
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("Retry-After")
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _number(text: Any) -> float | None:
    if not isinstance(text, str) or not re.fullmatch(r"\s*[-+]?[0-9]{1,15}(\.[0-9]{0,15})?\s*", text):
        return None
    number = float(text)
    return max(0.0, number) if math.isfinite(number) else None
