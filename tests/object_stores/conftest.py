"""A real S3 server on the loopback (moto's) behind a proxy that counts and breaks connections; or no test."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from waiting import until

KEY, SECRET = "AKIATEST0KEY0123", "a-secret-key-of-the-tests"


class Proxy:
    """Passes bytes on, counts what comes back, and breaks as many connections as it is told to."""

    def __init__(self, port: int) -> None:
        self.received = 0  # bytes from the server
        self.breaks = 0  # connections still to be broken
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._writers: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.breaks:
            self.breaks -= 1
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, back]

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, counted: bool) -> None:
            with suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    self.received += len(data) if counted else 0
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, back, False), pump(there, writer, True))


@pytest.fixture(scope="session")
def _server() -> Iterator[int]:
    for package in ("moto", "s3fs"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; make test-stores brings it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert server.poll() is None, "the S3 server has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "the S3 server")
    yield port
    server.kill()
    server.wait()


@pytest.fixture
def proxy(_server: int) -> Iterator[Proxy]:
    started = Proxy(_server)
    yield started
    started.close()


@pytest.fixture
def bucket(proxy: Proxy, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A bucket of its own, as boto3 sees it; the environment says where it is, and with which keys."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
    }.items():
        monkeypatch.setenv(name, value)
    import boto3

    name = f"bucket-{abs(hash(request.node.name)) % 10**9}"
    made = boto3.resource("s3").Bucket(name)
    made.create()
    return made
