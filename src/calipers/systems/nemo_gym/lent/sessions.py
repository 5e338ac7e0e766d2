"""Sessions of the clients of a server.

A client that sends its cookies along stays in its session; ``request.session[SESSION_ID_KEY]`` tells it from others.
"""

from __future__ import annotations

import re
import uuid
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_ID_KEY: Final = "session_id"
_ID = re.compile("[0-9a-f]{32}")


class Sessions:
    """An ASGI application around another, whose requests have a ``session``; its id is kept in a cookie."""

    def __init__(self, app: ASGIApp, cookie: str) -> None:
        self._app, self._cookie = app, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within its session."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = self._known(scope) or uuid.uuid4().hex
        scope["session"] = {SESSION_ID_KEY: session}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                cookie = f"{self._cookie}={session}; path=/; httponly; samesite=lax"
                message = {**message, "headers": [*message.get("headers", ()), (b"set-cookie", cookie.encode())]}
            await send(message)

        await self._app(scope, receive, sending)

    def _known(self, scope: Scope) -> str | None:
        """The session that a request belongs to; a cookie that is none of ours is passed over."""
        for name, value in scope["headers"]:
            if name == b"cookie":
                try:
                    cookie = SimpleCookie(value.decode("latin-1")).get(self._cookie)
                except CookieError:
                    continue
                if cookie is not None and _ID.fullmatch(cookie.value):
                    return cookie.value
        return None
