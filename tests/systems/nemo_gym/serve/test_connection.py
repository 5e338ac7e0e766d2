"""Misbehaving clients on a real loopback socket."""

import asyncio
import socket
import threading
from contextlib import contextmanager, suppress

import pytest
from waiting import PATIENCE

from calipers.systems.nemo_gym.serve import serving
from calipers.systems.nemo_gym.serve.app import Door, Guard
from calipers.systems.nemo_gym.serve.serving import HEAD, BoundedConnection

LONG = PATIENCE  # seconds until a client gives up, and the test fails
BODY = b"x" * (8 << 20)


async def answer(scope, receive, send):
    """Answer with some megabytes after the body; to /slow only after more than the idle time."""
    if scope["type"] == "lifespan":
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5 * BoundedConnection.idle)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(BODY))]})
    await send({"type": "http.response.body", "body": BODY})


@contextmanager
def served():
    """The port of a server with this application behind the guard."""
    with serving.closing_socket("127.0.0.1", 0) as bound:
        server = serving._server(Guard(answer, Door()))
        server.config.lifespan = "off"
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
        thread.start()
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(LONG)


@contextmanager
def client(port, *pieces):
    with socket.create_connection(("127.0.0.1", port), LONG) as connection:
        for piece in pieces:
            connection.sendall(piece)
        yield connection


def heard(connection):
    """All bytes until the server closes the connection."""
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found


HEADERS = b"host: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST / HTTP/1.1\r\nhost: loc",
        b"POST / HTTP/1.1\r\n" + HEADERS + b'content-length: 9\r\n\r\n"x',
        b"POST / HTTP/1.1\r\n" + HEADERS + b'transfer-encoding: chunked\r\n\r\n2\r\n"x\r\n',
    ],
)
def test_a_client_that_sends_nothing_more_is_not_waited_for(monkeypatch, sent):
    monkeypatch.setattr(BoundedConnection, "idle", 0.2)
    with served() as port, client(port, sent) as connection, suppress(ConnectionResetError):
        assert heard(connection) == b""


def test_a_client_that_does_not_take_its_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(BoundedConnection, "idle", 0.2)
    lost = threading.Event()
    before = BoundedConnection.connection_lost

    def noticed(self, exc):
        before(self, exc)
        lost.set()

    monkeypatch.setattr(BoundedConnection, "connection_lost", noticed)
    with served() as port, client(port, b"GET / HTTP/1.1\r\n" + HEADERS + b"\r\n"):
        assert lost.wait(LONG)


def test_what_the_server_needs_itself_is_no_idle_time(monkeypatch):
    monkeypatch.setattr(BoundedConnection, "idle", 2.0)  # long enough for the client on a busy machine
    with (
        served() as port,
        client(port, b"GET /slow HTTP/1.1\r\n" + HEADERS + b"connection: close\r\n\r\n") as connection,
    ):
        assert heard(connection).endswith(BODY)


def test_a_head_without_end_is_refused():
    with served() as port, client(port, b"GET / HTTP/1.1\r\n" + HEADERS + b"x: " + b"y" * (HEAD + 1)) as connection:
        assert heard(connection).startswith(b"HTTP/1.1 400 ")


def test_two_lengths_of_one_body_are_refused():
    head = b"POST / HTTP/1.1\r\n" + HEADERS + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"
    # in one piece, because data that arrives after the refusal resets the connection, which may lose the answer
    with served() as port, client(port, head + b"2\r\n{}\r\n0\r\n\r\n") as connection:
        reply = heard(connection)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"bad_framing" in reply


@pytest.mark.parametrize("path", [b"/aggregate_metrics", b"/verify"])
def test_a_client_that_hangs_up_leaves_no_line(path, caplog):
    with served() as port:
        for _ in range(3):
            with client(port, b"POST " + path + b" HTTP/1.1\r\n" + HEADERS + b"content-length: 99\r\n\r\n{"):
                pass
        with client(port, b"GET / HTTP/1.1\r\n" + HEADERS + b"\r\n"):
            pass  # the client does not read its answer
        with client(port, b"GET / HTTP/1.1\r\n" + HEADERS + b"connection: close\r\n\r\n") as connection:
            assert heard(connection).endswith(BODY)
    assert caplog.records == []
