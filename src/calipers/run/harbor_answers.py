"""Verdicts for a Harbor in another process: asked over a socket, given by functions of this one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

LARGEST: Final = 128 << 20  # bytes of a question
NO_TEXT: Final = "the agent wrote no completion"
Judge = Callable[[str], float]


@asynccontextmanager
async def answering(judges: Mapping[str, Judge]) -> AsyncIterator[str]:
    """The path of a socket on which a task's completion is answered with its reward, while the block lasts.

    The folder is its owner's alone, so nobody else on the machine can ask. A judge is called on this event loop's
    thread, one at a time, as `Benchmark.score` does it.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = msgspec.json.decode(await reader.readline())
            writer.write(msgspec.json.encode(_answer(judges, question)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # whoever asked has gone, or asked nonsense: no answer is a failed verification over there
        finally:
            writer.close()

    with TemporaryDirectory(prefix="calipers-") as folder:
        path = str(Path(folder, "verify"))
        server = await asyncio.start_unix_server(serve, path, limit=LARGEST)
        async with server:
            yield path


def _answer(judges: Mapping[str, Judge], question: dict[str, str | None]) -> dict[str, float | str]:
    task, text = question.get("task"), question.get("completion")
    if text is None:
        return {"error": NO_TEXT}
    try:
        reward = float(judges[task or ""](text))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"reward": reward} if math.isfinite(reward) else {"error": f"the reward is {reward}"}
