"""A server for the benchmarks: OpenAI's routes on the loopback interface, with one fixed answer.

A bare protocol answers several times faster than any HTTP client can send, so that only the client is measured. The
server ends after a time or a number of requests, even if the benchmark has crashed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.peer import clean_environment

MODEL: Final = "fixed"
ANSWER: Final = "42"
LONGEST: Final = 1800.0  # seconds it may live
MOST: Final = 5_000_000  # requests it may answer
READY: Final = 20.0  # seconds it may take to come up

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"


def _reply(status: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def _completion(kind: str, **choice: Any) -> bytes:
    return _reply(
        "200 OK",
        {
            "id": "reply-1",
            "object": kind,
            "created": 1700000000,
            "model": MODEL,
            "choices": [{"index": 0, **choice, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 24, "completion_tokens": 2, "total_tokens": 26},
        },
    )


NOT_FOUND: Final = _reply("404 Not Found", {"error": {"message": "no such route"}})
REPLIES: Final[Mapping[bytes, bytes]] = {
    b"POST /v1/chat/completions": _completion("chat.completion", message={"role": "assistant", "content": ANSWER}),
    b"POST /v1/completions": _completion("text_completion", text=ANSWER),
    b"GET /v1/models": _reply("200 OK", {"object": "list", "data": [{"id": MODEL, "object": "model"}]}),
}
"""Method and path -> the complete response."""


class Answering(asyncio.Protocol):
    """A connection that stays open: every complete request gets the answer of its route, at once or after a delay."""

    def __init__(self, left: list[int], ended: asyncio.Event, delay: float = 0.0) -> None:
        self._left, self._ended = left, ended  # number of requests that may still be answered, over all connections
        self._delay = delay  # seconds
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the function that writes answers."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._write = transport.write

    def data_received(self, data: bytes) -> None:
        """Answer complete requests, and keep an incomplete one."""
        self._data += data
        while (end := self._data.find(_END)) >= 0:
            length = _LENGTH.search(self._data, 0, end)
            whole = end + len(_END) + (int(length[1]) if length else 0)
            if len(self._data) < whole:
                return
            route, self._data = self._data[: self._data.find(b" HTTP/", 0, end)], self._data[whole:]
            reply = REPLIES.get(route.partition(b"?")[0], NOT_FOUND)
            if self._delay:
                asyncio.get_running_loop().call_later(self._delay, self._write, reply)
            else:
                self._write(reply)
            self._left[0] -= 1
            if self._left[0] <= 0:
                self._ended.set()


async def serve(seconds: float, most: int, delay: float = 0.0) -> None:
    """Serve on a free port of the loopback interface, which is printed, until one of the limits is reached."""
    left, ended = [most], asyncio.Event()
    connection = lambda: Answering(left, ended, delay)  # noqa: E731
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        print(f"the server has ended after {seconds:g} s", file=sys.stderr, flush=True)
    finally:
        server.close()


@contextmanager
def serving(seconds: float = LONGEST, most: int = MOST, delay: float = 0.0) -> Iterator[str]:
    """A context with the base URL of a server in its own process."""
    command = [sys.executable, "-m", "bench.live.server", f"--seconds={seconds}", f"--most={most}", f"--delay={delay}"]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=clean_environment())
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError("the server to measure against did not start")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.communicate(timeout=READY)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench/live/server.py", description=__doc__)
    parser.add_argument("--seconds", type=float, default=LONGEST)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--delay", type=float, default=0.0)
    asyncio.run(serve(**vars(parser.parse_args())))
