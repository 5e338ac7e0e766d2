"""``POST /aggregate_metrics``: rows in, metrics out, worked out in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.server.documents import respond
from calipers.server.limits import Limits, too_large
from calipers.server.refusal import JSON, Refusal
from calipers.server.worker import no_room
from calipers.server.workers import Workers

PATH: Final = "/aggregate_metrics"
PIECE: Final = 256 << 10  # bytes of an answer that are read and sent at a time
GONE: Final = 499  # nobody is there to read it

_BITS = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_ROW = {
    "type": "object",
    "required": [TASK, ROLLOUT],
    "properties": {
        TASK: {"anyOf": [_BITS, {"type": "string"}], "description": "all numbers, or all text"},
        ROLLOUT: {**_BITS, "description": "which try at the task; each once"},
        "reward": {"description": "a number counts; anything else is shown as it is"},
        "response": {
            "type": "object",
            "properties": {"usage": {"type": "object", "nullable": True, "description": "numbers in it count too"}},
        },
    },
    "additionalProperties": True,
}
REQUEST: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["verify_responses"],
                    "properties": {"verify_responses": {"type": "array", "items": _ROW}},
                }
            }
        },
    }
}
"""What the OpenAPI document says of the body: it is not read by FastAPI."""


def route(workers: Workers, limits: Limits) -> Callable[[Request], Awaitable[Response]]:
    """The route, over these workers."""

    async def aggregate_metrics(request: Request) -> Response:
        """Statistics of the rows of one agent, per task and pooled, and what the server's hooks add."""
        body, answer = workers.paths()
        try:
            refusal = await _spooled(request, body, limits) or await _unless_gone(request, workers, body, answer)
            if refusal is not None:
                return respond(refusal)
            return _sent(answer)
        except OSError as error:
            return respond(no_room(error))
        finally:
            await asyncio.to_thread(_removed, body, answer)  # on a thread: hundreds of megabytes take their time

    return aggregate_metrics


def _removed(body: Path, answer: Path) -> None:
    """Remove both; an answer that is open by now stays until it is sent."""
    body.unlink(missing_ok=True)
    answer.unlink(missing_ok=True)


async def _spooled(request: Request, body: Path, limits: Limits) -> Refusal | None:
    """Put the body into a file as it comes: hundreds of megabytes are not held here."""
    size = 0
    with open(body, "wb", buffering=0) as file:
        async for piece in request.stream():
            size += len(piece)
            if size > limits.body:
                return too_large(limits)
            file.write(piece)
    return None


async def _unless_gone(request: Request, workers: Workers, body: Path, answer: Path) -> Refusal | None:
    """Aggregate, but not for somebody who has hung up."""
    work = asyncio.ensure_future(workers.aggregate(body, answer))
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return Refusal(GONE, "gone", "the client has hung up")
    finally:
        for waiting in (work, gone):
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _sent(answer: Path) -> Response:
    file = open(answer, "rb")  # noqa: SIM115  closed when all of it is sent
    size = answer.stat().st_size

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while piece := file.read(PIECE):
                yield piece
                await asyncio.sleep(0)  # a buffer that takes all it is given would keep everybody else waiting
        finally:
            await asyncio.to_thread(file.close)

    return StreamingResponse(pieces(), media_type=JSON, headers={"content-length": str(size)})
