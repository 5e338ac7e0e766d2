"""Access control of the viewer: a token, checks of Host and Origin, and limits on slow and on many clients."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from calipers.errors import InputError

MOST_CLIENTS: Final = 256  # connections at a time; a browser opens up to six
FIRST_REQUEST: Final = 10.0  # seconds that a new connection has for its first request
STALLED: Final = 20.0  # seconds after which a client that reads nothing is disconnected
LONGEST_REQUEST: Final = 30.0  # seconds that an answer may take; building an index continues after that
SWEEP: Final = 1.0  # seconds between two checks of the connections
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
WAITING: Final = "The log is being indexed. This page shows it when that is done."
TOKEN: Final = "token"  # the name of the query parameter with the token
ENDLESS = "/events"  # the path whose answer does not end

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class _Connection:
    """A connection: whether it made a request, and when its client last read something."""

    accepted: float  # when it was accepted
    has_request: bool = False
    unsent: int = 0  # bytes in the write buffer at the last check
    last_read: float = 0.0  # when the client last read, or had nothing to read

    def is_stalled(self, unsent: int, now: float) -> bool:
        """Whether for too long the client has made no request, or has not read what it was sent."""
        if not self.has_request:
            return now - self.accepted > FIRST_REQUEST
        if not unsent or unsent < self.unsent or not self.unsent:
            self.last_read = now
        self.unsent = unsent
        return now - self.last_read > STALLED


@dataclass
class ViewerGuard:
    """The token of one server, and its connections."""

    port: int = 0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    # the value of the cookie for which the token is exchanged
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    connections: dict[Any, _Connection] = field(default_factory=dict)  # by protocol
    cut: int = 0  # number of connections that were closed because they stalled

    @property
    def cookie(self) -> str:
        """The name of the cookie; it contains the port, because all ports of a host share cookies."""
        return f"calipers-{self.port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The accepted values of the Host header."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def refusal(self, request: web.Request) -> str:
        """The reason why a request is refused; "" if it is accepted."""
        if request.headers.get("Host", "") not in self.hosts:  # DNS rebinding
            return "This server answers only for 127.0.0.1 and localhost."
        origin = request.headers.get("Origin")
        if origin is not None and origin not in [f"http://{host}" for host in self.hosts]:
            return "This server answers no other site."
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin") and not self._is_link(request):
            return "This server answers no other site."
        if request.method not in ("GET", "HEAD") and origin is None:
            return "A request that changes something needs an Origin."
        return ""

    def _is_link(self, request: web.Request) -> bool:
        """Whether a request follows a link from another site; without the cookie or the token, it gets nothing."""
        return request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"

    def knows(self, request: web.Request) -> bool:
        """Whether a request has the right cookie."""
        given = request.cookies.get(self.cookie, "").encode("utf-8", "surrogateescape")  # may have any bytes
        return hmac.compare_digest(given, self.session.encode())

    def entering(self, request: web.Request) -> web.Response | None:
        """The answer to a request with a token: a cookie, and a redirect to the address without the token.

        None for a request without a token.
        """
        if TOKEN not in request.query:
            return None
        if not hmac.compare_digest(request.query[TOKEN].encode(), self.token.encode()):
            return refused(
                "The token in this address is not of this server. Use the address that calipers view printed."
            )
        query = [(key, value) for key, value in request.query.items() if key != TOKEN]
        answer = web.Response(status=303, headers={"Location": str(request.rel_url.with_query(query))})
        answer.set_cookie(self.cookie, self.session, httponly=True, samesite="Strict", path="/")
        return answer

    def accept(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """The protocol of a new connection; if there are too many connections, it closes the new one at once."""
        self._forget()
        if len(self.connections) >= MOST_CLIENTS:
            return _Closed()
        protocol = make()
        self.connections[protocol] = _Connection(asyncio.get_running_loop().time())
        return protocol

    def _forget(self) -> None:
        """Forget closed connections; a new one, which has no transport yet, stays."""
        now = asyncio.get_running_loop().time()
        for protocol, connection in list(self.connections.items()):
            if protocol.transport is None and now > connection.accepted:
                del self.connections[protocol]

    async def sweep(self) -> None:
        """Close stalled connections, again and again; never returns."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(SWEEP)
            self._forget()
            for protocol, connection in self.connections.items():
                transport: asyncio.Transport | None = protocol.transport
                if transport is not None and connection.is_stalled(transport.get_write_buffer_size(), clock()):
                    transport.abort()
                    self.cut += 1

    def middleware(self) -> Any:
        """The middleware that checks every request."""

        @web.middleware
        async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.protocol in self.connections:
                self.connections[request.protocol].has_request = True
            if why := self.refusal(request):
                return refused(why)
            if (answer := self.entering(request)) is not None:
                return answer
            if not self.knows(request):
                return refused("Open the address that calipers view printed; it has a token.")
            try:
                async with asyncio.timeout(None if request.path == ENDLESS else LONGEST_REQUEST):
                    return await handler(request)
            except InputError as error:
                return web.json_response({"error": str(error)}, status=400)
            except TimeoutError:
                return web.json_response({"error": WAITING}, status=503)

        return checked

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the security headers to an answer."""
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers.pop("Server", None)


def request_log() -> logging.Logger:
    """The logger of the server, which does not report malformed requests of clients."""
    log = logging.getLogger(__name__)
    log.addFilter(_is_own_error)
    return log


def _is_own_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def refused(why: str) -> web.Response:
    """The answer to a refused request, with the reason."""
    return web.Response(status=403, text=f"{why}\n")


class _Closed(asyncio.Protocol):
    """The protocol of a connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
