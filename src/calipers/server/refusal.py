"""What a server says instead of an answer: a status, a word for programs, a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none."""

    status: int
    code: str
    message: str
    detail: Any = None  # FastAPI's own, for clients that look for it
    headers: Mapping[str, str] | None = None

    def body(self) -> bytes:
        """The body of the answer."""
        more = {} if self.detail is None else {"detail": self.detail}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}, **more}, enc_hook=str)


STATUSES: Final = {
    400: "The body is not JSON, nested too deeply, or has two lengths.",
    401: "The token is missing or wrong.",
    404: "There is no such route here.",
    405: "The route does not know this method.",
    413: "The body, or the number of rows in it, is beyond the limit.",
    415: "The body is not declared to be application/json.",
    421: "The Host header names another machine.",
    422: "The body is JSON, but not what the route needs.",
    500: "The code of the server that is hosted here failed.",
    503: "No worker can answer, or the server is about to end.",
}
"""Every status of a refusal, and what it means."""

_WORDS: Final = {401: "unauthorized", 404: "not_found", 405: "wrong_method", 413: "too_large", 415: "wrong_type"}


def word(status: int) -> str:
    """The code of a status that has no better one."""
    return _WORDS.get(status, "failed" if status >= 500 else "refused")
