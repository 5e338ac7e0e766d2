"""Checks before every route: who may send requests, their size and format, and the error for a rejected one."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import socket
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calipers.systems.nemo_gym.aggregate import encoded
from calipers.systems.nemo_gym.serve.workers import LIMITS, BodyLimits, ServerRefusal, decode, too_large

JSON: Final = "application/json"


STATUSES: Final = {
    400: "The body is not JSON, nested too deeply, or has two lengths.",
    401: "The token is missing or wrong.",
    404: "There is no such route here.",
    405: "The route does not accept this method.",
    413: "The body, or its number of rows, exceeds the limit.",
    415: "The body is not declared to be application/json.",
    421: "The Host header names another machine.",
    422: "The body is JSON, but not what the route needs.",
    500: "The code of the server that is hosted here failed.",
    503: "No worker can answer, or the server is shutting down.",
}
"""Every status of a refusal, and what it means."""

_WORDS: Final = {401: "unauthorized", 404: "not_found", 405: "wrong_method", 413: "too_large", 415: "wrong_type"}


def word(status: int) -> str:
    """The code of a status that has no better one."""
    return _WORDS.get(status, "failed" if status >= 500 else "refused")


class Fault(BaseModel):
    """What went wrong: a word that stays the same, and a sentence that says where and what would be right."""

    code: str
    message: str


class FailureDocument(BaseModel):
    """The body of every answer that is none."""

    error: Fault
    detail: Any = None


class StatusDocument(BaseModel):
    """The server is there."""

    status: str = "ok"


class Health(StatusDocument):
    """The server is there, and whose it is."""

    calipers: str


DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": FailureDocument, "description": text} for status, text in STATUSES.items()
}
"""Every refusal, as FastAPI documents it."""


class StrictJSON(JSONResponse):
    """An answer in strict JSON: what is no finite number is null."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return encoded(content)


def respond(refusal: ServerRefusal) -> Response:
    """A refusal as the answer it is."""
    return Response(refusal.body(), refusal.status, headers=dict(refusal.headers or {}), media_type=JSON)


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens, and the token it demands."""

    host: str = "127.0.0.1"
    token: str | None = None

    def knows(self, header: str) -> bool:
        """Whether a Host header means this server; that of a web page which had its name point here does not.

        >>> Door().knows("localhost:8000"), Door().knows("[::1]:80"), Door().knows("evil.example")
        (True, True, False)
        """
        name = header.strip().lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in {"localhost", self.host.lower()}:
            return True
        try:  # a number cannot be made to point elsewhere, as a name can
            return ipaddress.ip_address(name).is_loopback or not self.local
        except ValueError:
            return not self.local and name == socket.gethostname().lower()

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


LOG = logging.getLogger("calipers.systems.nemo_gym.serve")
ID: Final = "x-request-id"
QUICK: Final = 1 << 20  # bytes; a larger body is looked at on a thread
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BODIES: Final = {"POST", "PUT", "PATCH"}


class _HungUp(Exception):
    """The client has gone before its body was whole."""


class Guard:
    """An ASGI application around another. ``streamed`` are the paths whose body is left to the route."""

    def __init__(
        self, app: ASGIApp, door: Door, limits: BodyLimits = LIMITS, streamed: Collection[str] = frozenset()
    ) -> None:
        self.app, self._door, self._limits, self._streamed = app, door, limits, streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client_id = headers.get(ID, "")
        mark = client_id if _NAME.fullmatch(client_id) else uuid.uuid4().hex
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), (ID.encode(), mark.encode())]}
            await send(message)

        refusal = None
        try:
            self._check(scope, headers)
            if scope["path"] not in self._streamed and _has_body(scope, headers):
                receive = await self._read(receive)
            await self.app(scope, receive, sending)
        except ServerRefusal as error:
            refusal = error
        except SystemExit as error:  # of somebody's code; the server is not theirs to end
            refusal = ServerRefusal(500, "server_failed", f"{scope['path']} ended itself: SystemExit: {error.code}")
        except asyncio.CancelledError:  # the server ends, and its grace is over; nobody waits for this task but uvicorn
            refusal = ServerRefusal(
                503, "stopping", f"the server was stopped before {scope['path']} was done; send the request again"
            )
        except (ClientDisconnect, _HungUp):
            return  # nobody is left to answer, and nothing is wrong here
        except Exception as error:
            LOG.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            refusal = ServerRefusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}")
        if refusal is not None and not started:
            await respond(refusal)(scope, receive, sending)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """`ServerRefusal` for what the headers alone forbid."""
        if not self._door.knows(headers.get("host", "")):
            wrong = f"Host: {headers.get('host', '')[:200]!r} is not this server"
            raise ServerRefusal(421, "wrong_host", f"{wrong}; expected localhost or {self._door.host}")
        if self._door.token is not None:
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {self._door.token}".encode()):
                wrong = "Authorization: no token, or a wrong one; expected Bearer and the server's token"
                raise ServerRefusal(401, "unauthorized", wrong, headers={"www-authenticate": "Bearer"})
        if "transfer-encoding" in headers and "content-length" in headers:
            wrong = "Transfer-Encoding: given together with Content-Length; expected one of them"
            raise ServerRefusal(400, "bad_framing", wrong, headers={"connection": "close"})
        if _has_body(scope, headers):
            kind = headers.get("content-type", "")
            if kind.partition(";")[0].strip().lower() != JSON:
                raise ServerRefusal(415, "wrong_type", f"Content-Type: it is {kind[:200]!r}; expected {JSON}")
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length) > self._limits.body:
                raise too_large(self._limits)

    async def _read(self, receive: Receive) -> Receive:
        """Where the route gets a body from that was read here; `ServerRefusal` for a bad one."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _HungUp
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._limits.body:
                raise too_large(self._limits)
        whole = bytes(body)
        if len(whole) <= QUICK:
            decode(whole, self._limits)
        else:
            await asyncio.to_thread(decode, whole, self._limits)
        return _again(whole, receive)


def _has_body(scope: Scope, headers: Mapping[str, str]) -> bool:
    announced = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return scope["method"] in _BODIES and announced


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, and after it whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
