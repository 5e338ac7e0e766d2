"""The shapes of answers: as they are sent, and as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any, Final

from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from calipers.reports.nemo_gym import encoded
from calipers.server.refusal import JSON, STATUSES, Refusal


class Fault(BaseModel):
    """What went wrong: a word that stays the same, and a sentence that says where and what would be right."""

    code: str
    message: str


class Failure(BaseModel):
    """The body of every answer that is none."""

    error: Fault
    detail: Any = None


class Status(BaseModel):
    """The server is there."""

    status: str = "ok"


class Health(Status):
    """The server is there, and whose it is."""

    calipers: str


DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Failure, "description": text} for status, text in STATUSES.items()
}
"""Every refusal, as FastAPI documents it."""


class StrictJSON(JSONResponse):
    """An answer in strict JSON: what is no finite number is null."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return encoded(content)


def respond(refusal: Refusal) -> Response:
    """A refusal as the answer it is."""
    return Response(refusal.body(), refusal.status, headers=dict(refusal.headers or {}), media_type=JSON)
