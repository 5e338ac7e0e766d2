"""The workers of a server: a few processes, each with one aggregation at a time; the others wait their turn."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final

import msgspec

from calipers.server.refusal import Refusal
from calipers.server.worker import Settings

PROGRAM: Final = "from calipers.server.worker import main; main()"
MOST: Final = 4  # however many cores: each may hold gigabytes
FAREWELL: Final = 5.0  # seconds that a worker has between its last word and its end
LARGE: Final = 64 << 20  # bytes; a worker that took a larger body has grown, and is replaced


class Workers:
    """An asynchronous context: inside it, bodies are aggregated; at its end the processes are gone."""

    def __init__(self, settings: Settings, most: int | None = None) -> None:
        self._settings = settings
        self._turns = asyncio.Semaphore(most or min(MOST, os.cpu_count() or 1))
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()
        self._folder = TemporaryDirectory(prefix="calipers-serve-")
        self._count = 0

    async def __aenter__(self) -> Workers:
        self._idle.append(await self._started())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self._all):
            await self._ended(process)
        self._folder.cleanup()

    def paths(self) -> tuple[Path, Path]:
        """Where a body and its answer go; whoever asks removes them."""
        self._count += 1
        return Path(self._folder.name, f"{self._count}.body"), Path(self._folder.name, f"{self._count}.answer")

    async def aggregate(self, body: Path, answer: Path) -> Refusal | None:
        """Have a body aggregated; what was refused, or None once the answer is there.

        Whoever stops waiting stops the work, too.
        """
        async with self._turns:
            process = await self._free()
            try:
                reply = await _asked(process, {"body": str(body), "answer": str(answer)})
            except (OSError, asyncio.IncompleteReadError):
                how = await self._last_words(process)
                return Refusal(503, "no_worker", f"the worker {how} while it aggregated; ask for fewer rows")
            except asyncio.CancelledError:
                await self._ended(process)
                raise
            if body.stat().st_size > LARGE:
                await self._ended(process)
            else:
                self._idle.append(process)
        return None if reply["status"] == 200 else Refusal(**reply)

    async def _free(self) -> asyncio.subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            self._all.discard(process)
        return await self._started()

    async def _started(self) -> asyncio.subprocess.Process:
        settings = msgspec.json.encode(self._settings).decode()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", PROGRAM, settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the server's to hear
        )
        self._all.add(process)
        return process

    async def _last_words(self, process: asyncio.subprocess.Process) -> str:
        """How a worker came to its end that no longer answers; one that only fell silent is ended."""
        with suppress(TimeoutError):  # its pipe closes a moment before its status is there, and that is what we tell
            await asyncio.wait_for(process.wait(), FAREWELL)
        code = await self._ended(process)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        # Not process.kill(): it looks for the status first, and then the event loop finds none to report.
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._all.discard(process)
        return await process.wait()


async def _asked(process: asyncio.subprocess.Process, question: dict[str, str]) -> Any:
    if process.stdin is None or process.stdout is None:
        raise OSError("a worker without pipes")
    process.stdin.write(msgspec.json.encode(question) + b"\n")
    await process.stdin.drain()
    return msgspec.json.decode(await process.stdout.readuntil(b"\n"))
