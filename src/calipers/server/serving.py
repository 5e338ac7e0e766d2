"""A server on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn

from calipers.compat.nemo_gym.hosting import load_server
from calipers.errors import InputError
from calipers.run.judged import ready
from calipers.run.verifiers.find import verifier as find_verifier
from calipers.server.app import Offer, make_app
from calipers.server.connection import HEAD, Connection
from calipers.server.door import Door
from calipers.server.limits import LIMITS
from calipers.server.worker import Settings
from calipers.server.workers import Workers

GRACE: Final = 10  # seconds that requests under way have when the server is told to stop
WAITING: Final = 2048  # connections that may wait to be taken


def serve(spec: str | None, verifier: str | None, door: Door, port: int, say: Callable[[str], None]) -> None:
    """Serve until a signal comes; ``say`` is told the address. InputError for what cannot be served, or not there."""
    with closing_socket(door.host, port) as bound:
        number = bound.getsockname()[1]
        hosted = load_server(spec, door.host, number) if spec else None
        offer = Offer(hosted, find_verifier(verifier) if verifier else None)
        ready([] if offer.verifier is None else [offer.verifier])
        settings = Settings(LIMITS, spec, door.host, number)

        async def serving() -> None:
            async with Workers(settings) as workers:
                app = make_app(workers, offer, door)
                say(address(door.host, number))
                await _server(app).serve(sockets=[bound])

        with _stopped_by_signals(), suppress(KeyboardInterrupt):
            asyncio.run(serving())


def address(host: str, port: int) -> str:
    """Where a server is found.

    >>> address("::1", 8000)
    'http://[::1]:8000'
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _server(app: Any) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ws="none",
        http=Connection,
        h11_max_incomplete_event_size=HEAD,
    )
    return uvicorn.Server(config)


@contextmanager
def closing_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens there; InputError when it cannot."""
    place = address(host, port).removeprefix("http://")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=WAITING)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else an answer in two writes waits 40 ms
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError.at(place, "the port is in use", "--port 0 takes a free one") from None
        wrong = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]  # Python repeats the address
        raise InputError.at(place, f"cannot listen there ({wrong})", "expected an address of this machine") from None
    with bound:
        yield bound


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Until the server itself listens for signals, and when it hands them on after its end, they end it quietly."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
