"""Processes that aggregate, so that the server keeps answering: ``{"body": PATH, "answer": PATH}`` a line in.

Out comes ``{"status": 200}`` a line, once the answer lies in its file, or the refusal. A worker is started with one
argument, a `WorkerSettings` in JSON, and ends when nobody speaks to it any more. What a hook prints goes to standard
error, and there is nothing for it to read.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from types import TracebackType
from typing import Any, BinaryIO, Final

import msgspec

from calipers.errors import CalipersError, InputError, PluginError
from calipers.formats.format import BAD
from calipers.systems.nemo_gym.aggregate import NO_HOOKS, Blocks, Hooks, aggregate
from calipers.systems.nemo_gym.report import encoded
from calipers.systems.nemo_gym.serve.limits import BodyLimits, ServerRefusal, decode_loosely, deeper, too_deep
from calipers.systems.nemo_gym.wire import AggregateRequest
from calipers.systems.nemo_gym.words import ROLLOUT, TASK

KEY = "verify_responses"
_AROUND = 2  # a row stands in a list in an object


class WorkerSettings(msgspec.Struct, frozen=True):
    """What a worker is told when it is started."""

    limits: BodyLimits
    server: str | None = None  # FILE:CLASS, whose hooks add to the metrics
    host: str = ""
    port: int = 0
    configured: bool = False  # whether the environment holds the server's settings


def main() -> None:
    """Answer until nobody asks any more."""
    questions, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:  # a hook that reads standard input would wait for, and eat, what is asked
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    hooks: Hooks | ServerRefusal
    try:
        hooks = _hooks(settings)
    except CalipersError as error:
        hooks = ServerRefusal(503, "no_worker", str(error))
    gc.freeze()
    for line in _questions(questions):
        question = msgspec.json.decode(line)
        refusal = (
            hooks
            if isinstance(hooks, ServerRefusal)
            else answer(question["body"], question["answer"], settings.limits, hooks)
        )
        replies.write(msgspec.json.encode(refusal or {"status": 200}) + b"\n")
        gc.collect()


def _questions(questions: BinaryIO) -> Iterator[bytes]:
    """What is asked, line by line, until nobody speaks any more: then the process ends, a hook at work or not."""
    waiting = SimpleQueue[bytes]()

    def listen() -> None:
        for line in questions:
            waiting.put(line)
        os._exit(0)  # a hook that never returns would outlive a server that was killed

    Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


def _hooks(settings: WorkerSettings) -> Hooks:
    if settings.server is None:
        return NO_HOOKS
    from calipers.systems.nemo_gym.hooks import load_server  # which loads the libraries of a server
    from calipers.systems.nemo_gym.serve.configuration import own_settings

    given = own_settings() if settings.configured else None
    return load_server(settings.server, settings.host, settings.port, given).hooks


def answer(body: str, into: str, limits: BodyLimits, hooks: Hooks = NO_HOOKS) -> ServerRefusal | None:
    """Aggregate the rows of a body, and put the answer of ``/aggregate_metrics`` into a file; or say why not."""
    gc.disable()  # a million small objects, and not a cycle among them: looking for some takes half the time
    try:
        rows = _rows(Path(body).read_bytes(), limits)
        if isinstance(rows, ServerRefusal):
            return rows
        try:
            blocks = aggregate(rows, hooks)
        except InputError as error:
            return _twice(rows) or ServerRefusal(422, "bad_rows", f"{KEY}: {error}")
        with open(into, "wb") as file:
            file.writelines(_chunks(blocks))
    except PluginError as error:
        return ServerRefusal(500, "hook_failed", str(error))
    except OSError as error:
        return no_room(error)
    except MemoryError:
        return ServerRefusal(503, "no_worker", f"{KEY}: the rows do not fit into memory; expected fewer rows")
    finally:
        gc.enable()
    return None


def no_room(error: OSError) -> ServerRefusal:
    """The refusal where a body or an answer could not be written down."""
    return ServerRefusal(
        503, "no_room", f"the server's folder of temporary files: {error.strerror}; it needs free space"
    )


def _rows(body: bytes, limits: BodyLimits) -> list[Any] | ServerRefusal:
    """The rows of a request, decoded."""
    try:
        raws = msgspec.json.decode(body, type=AggregateRequest).verify_responses
        if len(raws) > limits.rows:
            return _too_many(limits)
        decoder = msgspec.json.Decoder()
        rows = [decoder.decode(raw) for raw in raws]
    except BAD:
        return _rows_loosely(body, limits)
    most = limits.depth - _AROUND
    suspects = [row for row, raw in zip(rows, raws, strict=True) if _brackets(bytes(raw)) > most]
    return too_deep(limits) if deeper(suspects, most) else rows


def _brackets(raw: bytes) -> int:
    """At least as many as objects and lists can stand inside each other."""
    return raw.count(b"{") + raw.count(b"[")


def _rows_loosely(body: bytes, limits: BodyLimits) -> list[Any] | ServerRefusal:
    """The same for a body that is not strict JSON, or not a request at all."""
    value = decode_loosely(body, limits)
    if isinstance(value, ServerRefusal):
        return value
    if deeper([value], limits.depth):
        return too_deep(limits)
    rows = value.get(KEY) if isinstance(value, dict) else None
    if not isinstance(rows, list):
        missing = not isinstance(value, dict) or KEY not in value
        wrong = f"body: no key {KEY!r}" if missing else f"{KEY}: it is {type(rows).__name__}"
        detail = {"type": "missing" if missing else "list_type", "loc": ["body", KEY], "msg": "expected a list of rows"}
        return ServerRefusal(422, "bad_input", f"{wrong}; expected a list of rows", [detail])
    return _too_many(limits) if len(rows) > limits.rows else rows


def _too_many(limits: BodyLimits) -> ServerRefusal:
    return ServerRefusal(413, "too_many_rows", f"{KEY}: there are too many rows; expected at most {limits.rows:,}")


def _twice(rows: Sequence[Any]) -> ServerRefusal | None:
    """The refusal of rows of which two are the same rollout, with both their places; None when no two are."""
    seen: dict[tuple[Any, Any], int] = {}
    for number, row in enumerate(rows, 1):
        if (
            not isinstance(row, dict)
            or not isinstance(row.get(ROLLOUT), (int, float))
            or not isinstance(row.get(TASK), (int, float, str))
        ):
            return None
        first = seen.setdefault((row[TASK], row[ROLLOUT]), number)
        if first != number:
            what = f"both are {TASK} {row[TASK]}, {ROLLOUT} {row[ROLLOUT]}"
            return ServerRefusal(
                422, "duplicate", f"{KEY}: rows {first} and {number}: {what}; expected each rollout once"
            )
    return None


def _chunks(blocks: Blocks) -> Iterator[bytes]:
    lead = b'{"group_level_metrics":['
    for chunk in blocks.groups:
        yield lead
        yield encoded(chunk)[1:-1]
        lead = b","
    yield b"" if lead == b"," else lead
    metrics, keys = encoded(blocks.agent_metrics), encoded(blocks.key_metrics)
    yield b'],"agent_metrics":' + metrics + b',"key_metrics":' + keys + b"}"


if __name__ == "__main__":
    main()


PROGRAM: Final = "from calipers.systems.nemo_gym.serve.workers import main; main()"
MOST: Final = 4  # however many cores: each may hold gigabytes
FAREWELL: Final = 5.0  # seconds that a worker has between its last word and its end
LARGE: Final = 64 << 20  # bytes; a worker that took a larger body has grown, and is replaced


class Workers:
    """An asynchronous context: inside it, bodies are aggregated; at its end the processes are gone."""

    def __init__(self, settings: WorkerSettings, most: int | None = None) -> None:
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

    async def aggregate(self, body: Path, answer: Path) -> ServerRefusal | None:
        """Have a body aggregated; what was refused, or None once the answer is there.

        Whoever stops waiting stops the work, too.
        """
        async with self._turns:
            process = await self._free()
            try:
                reply = await _reply_of(process, {"body": str(body), "answer": str(answer)})
            except (OSError, asyncio.IncompleteReadError):
                how = await self._last_words(process)
                return ServerRefusal(503, "no_worker", f"the worker {how} while it aggregated; send fewer rows")
            except asyncio.CancelledError:
                await self._ended(process)
                raise
            if body.stat().st_size > LARGE:
                await self._ended(process)
            else:
                self._idle.append(process)
        return None if reply["status"] == 200 else ServerRefusal(**reply)

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


async def _reply_of(process: asyncio.subprocess.Process, question: dict[str, str]) -> Any:
    if process.stdin is None or process.stdout is None:
        raise OSError("a worker without pipes")
    process.stdin.write(msgspec.json.encode(question) + b"\n")
    await process.stdin.drain()
    return msgspec.json.decode(await process.stdout.readuntil(b"\n"))
