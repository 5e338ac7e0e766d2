"""What stands before every route: who may ask, how much, in which form, and what is said when all else fails."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import uuid
from collections.abc import Collection, Mapping
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calipers.server.documents import respond
from calipers.server.door import Door
from calipers.server.limits import LIMITS, Limits, decode, too_large
from calipers.server.refusal import JSON, Refusal

LOG = logging.getLogger("calipers.server")
ID: Final = "x-request-id"
QUICK: Final = 1 << 20  # bytes; a larger body is looked at on a thread
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BODIES: Final = {"POST", "PUT", "PATCH"}


class _HungUp(Exception):
    """The client has gone before its body was whole."""


class Guard:
    """An ASGI application around another. ``streamed`` are the paths whose body is left to the route."""

    def __init__(
        self, app: ASGIApp, door: Door, limits: Limits = LIMITS, streamed: Collection[str] = frozenset()
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
        asked = headers.get(ID, "")
        mark = asked if _NAME.fullmatch(asked) else uuid.uuid4().hex
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), (ID.encode(), mark.encode())]}
            await send(message)

        refusal = self._refused(scope, headers)
        try:
            if refusal is None and scope["path"] not in self._streamed and _has_body(scope, headers):
                refusal, receive = await self._read(receive)
            if refusal is None:
                await self.app(scope, receive, sending)
        except SystemExit as error:  # of somebody's code; the server is not theirs to end
            refusal = Refusal(500, "server_failed", f"{scope['path']} ended itself: SystemExit: {error.code}")
        except asyncio.CancelledError:  # the server ends, and its grace is over; nobody waits for this task but uvicorn
            refusal = Refusal(
                503, "stopping", f"the server was told to stop before {scope['path']} was done; ask again"
            )
        except (ClientDisconnect, _HungUp):
            return  # nobody is left to answer, and nothing is wrong here
        except Exception as error:
            LOG.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            refusal = Refusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}")
        if refusal is not None and not started:
            await respond(refusal)(scope, receive, sending)

    def _refused(self, scope: Scope, headers: Mapping[str, str]) -> Refusal | None:
        """What the headers alone forbid."""
        if not self._door.knows(headers.get("host", "")):
            wrong = f"Host: {headers.get('host', '')[:200]!r} is not this server"
            return Refusal(421, "wrong_host", f"{wrong}; expected localhost or {self._door.host}")
        if self._door.token is not None:
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {self._door.token}".encode()):
                wrong = "Authorization: no token, or a wrong one; expected Bearer and the server's token"
                return Refusal(401, "unauthorized", wrong, headers={"www-authenticate": "Bearer"})
        if "transfer-encoding" in headers and "content-length" in headers:
            wrong = "Transfer-Encoding: stands beside Content-Length; expected one of them"
            return Refusal(400, "bad_framing", wrong, headers={"connection": "close"})
        if _has_body(scope, headers):
            kind = headers.get("content-type", "")
            if kind.partition(";")[0].strip().lower() != JSON:
                return Refusal(415, "wrong_type", f"Content-Type: it is {kind[:200]!r}; expected {JSON}")
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length) > self._limits.body:
                return too_large(self._limits)
        return None

    async def _read(self, receive: Receive) -> tuple[Refusal | None, Receive]:
        """What is wrong with a body, and where the route gets the same body from."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _HungUp
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._limits.body:
                return too_large(self._limits), receive
        whole = bytes(body)
        if len(whole) <= QUICK:
            found = decode(whole, self._limits)
        else:
            found = await asyncio.to_thread(decode, whole, self._limits)
        return (found if isinstance(found, Refusal) else None), _again(whole, receive)


def _has_body(scope: Scope, headers: Mapping[str, str]) -> bool:
    announced = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return scope["method"] in _BODIES and announced


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, and after it whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
