"""A client of the server's application without a socket; it sends the same bytes as uvicorn would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.systems.nemo_gym.hooks import load_server
from calipers.systems.nemo_gym.serve import LIMITS, BodyLimits, Workers, WorkerSettings
from calipers.systems.nemo_gym.serve.app import Door, Offer, make_app

HERE = Door()
HEADERS = {"host": "localhost", "content-type": "application/json"}

SERVER = """
from nemo_gym.base_resources_server import *

{hooks}

class Server(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

    {body}
"""


def strict(text: bytes) -> Any:
    """Decode strict JSON, without NaN and Infinity."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@dataclass(frozen=True)
class Answer:
    """The response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return strict(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]

    @property
    def message(self) -> str:
        return self.json["error"]["message"]


async def asked(
    app: Any, method: str, path: str, pieces: Sequence[bytes], headers: dict[str, str], *, hang_up: bool = False
) -> Answer:
    """Send one request to an ASGI application, its body in pieces; a client that disconnects does so after the last."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    coming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    coming.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive() -> Any:
        if coming:
            return coming.pop(0)
        if not hang_up:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


class Asking:
    """An application with its workers and their event loop."""

    def __init__(self, offer: Offer, settings: WorkerSettings, door: Door, limits: BodyLimits) -> None:
        self._runner = asyncio.Runner()
        self.workers = Workers(settings, most=1)
        self.run(self.workers.__aenter__())
        self.app = make_app(self.workers, offer, door, limits)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def __call__(self, method: str, path: str, body: Any = None, *, hang_up: bool = False, **headers: str) -> Answer:
        """Send one request; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        length = {"content-length": str(len(data))} if data else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.run(asked(self.app, method, path, [data], {**HEADERS, **length, **named}, hang_up=hang_up))

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self("POST", path, body, **headers)

    def close(self) -> None:
        self.run(self.workers.__aexit__(None, None, None))
        self._runner.close()


@contextmanager
def asking(
    spec: str | None = None, *, verifier: Any = None, door: Door = HERE, limits: BodyLimits = LIMITS
) -> Iterator[Asking]:
    """An application for a user's server, a verifier, or neither."""
    offer = Offer(load_server(spec) if spec else None, verifier)
    found = Asking(offer, WorkerSettings(limits, spec, "127.0.0.1", 0), door, limits)
    try:
        yield found
    finally:
        found.close()


def server_file(folder: Path, body: str = "pass", hooks: str = "") -> str:
    """Write a file with a resources server into a folder and return FILE:CLASS."""
    path = folder / "my_server.py"
    path.write_text(SERVER.format(body=body, hooks=hooks))
    return f"{path}:Server"


def spoken(text: str, **more: Any) -> dict[str, Any]:
    """A request to verify a text as the model's answer."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"responses_create_params": {"input": "?"}, "response": {"id": "r", "output": [said]}, **more}
