"""NeMo Gym's servers. This file has the limits of a request's body, and the worker processes that aggregate.

The server stays responsive while they work. A worker reads lines of ``{"body": PATH, "answer": PATH}``. For each it
writes a line: ``{"status": 200}`` once the answer is in its file, or the refusal. Its only argument is a
`WorkerSettings` in JSON, and it ends when its standard input is closed. It loads no web framework. The output of hooks
goes to standard error, and their standard input is empty.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from types import TracebackType
from typing import Any, BinaryIO, Final

import msgspec

from calipers.errors import CalipersError, InputError, PluginError
from calipers.formats import BAD
from calipers.reports.untrusted_text import clean
from calipers.systems.nemo_gym import ROLLOUT, TASK
from calipers.systems.nemo_gym.aggregate import NO_HOOKS, Blocks, Hooks, aggregate, encoded
from calipers.systems.nemo_gym.wire import AggregateRequest
from calipers.typed import complete


@dataclass(eq=False)
class ServerRefusal(Exception):
    """The refusal of a request: an HTTP error."""

    status: int
    code: str
    message: str
    detail: Any = None  # as FastAPI's own errors have it, for clients that read it
    headers: Mapping[str, str] | None = None

    def body(self) -> bytes:
        """The body of the response."""
        more = {} if self.detail is None else {"detail": self.detail}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}, **more}, enc_hook=str)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits of one request."""

    body: int = 512 << 20  # bytes
    rows: int = 2_000_000  # rows of one aggregation
    depth: int = 64  # levels of nested objects and lists


LIMITS: Final = BodyLimits()


def too_large(limits: BodyLimits) -> ServerRefusal:
    """The refusal of a body of too many bytes. It closes the connection, because the rest of the body is not read."""
    message = f"body: it is too large; expected at most {limits.body:,} bytes"
    return ServerRefusal(413, "too_large", message, headers={"connection": "close"})


def too_deep(limits: BodyLimits) -> ServerRefusal:
    """The refusal of JSON that is nested beyond the limit."""
    return ServerRefusal(400, "too_deep", f"body: it is nested too deeply; expected a depth of at most {limits.depth}")


def decode(body: bytes, limits: BodyLimits) -> Any:
    """The JSON value of a body; NaN and Infinity are accepted. `ServerRefusal` if it is not JSON, or is too deep."""
    try:
        value = msgspec.json.decode(body)
    except BAD:
        return decode_loosely(body, limits)
    if deeper([value], limits.depth):
        raise too_deep(limits)
    return value


def decode_loosely(body: bytes, limits: BodyLimits) -> Any:
    """The same with Python's parser, which is slower, but accepts NaN and Infinity."""
    expected = "expected a JSON object"
    try:
        value = json.loads(body.decode())
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        problem, expected = f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text"
    except UnicodeEncodeError:
        problem, expected = "half of a surrogate pair appears alone", "expected whole characters"
    except json.JSONDecodeError as error:
        problem = f"it is not JSON ({error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno})"
    except RecursionError:
        raise too_deep(limits) from None
    except ValueError:  # an integer of thousands of digits
        problem, expected = "a number is out of range", "expected an integer of at most 64 bits"
    else:
        if deeper([value], limits.depth):
            raise too_deep(limits)
        return value
    raise ServerRefusal(400, "bad_json", f"body: {problem}; {expected}")


def deeper(values: Iterable[Any], depth: int) -> bool:
    """Whether the objects and lists of any value are nested more than ``depth`` levels deep, the value included.

    >>> deeper([[[1]]], 2), deeper([[[[1]]]], 2), deeper([1], 0)
    (False, True, False)
    """
    level = [value for value in values if isinstance(value, (dict, list))]
    for _ in range(depth):
        if not level:
            return False
        inner = (item for value in level for item in (value.values() if isinstance(value, dict) else value))
        level = [value for value in inner if isinstance(value, (dict, list))]
    return bool(level)


KEY = "verify_responses"
LONGEST_MESSAGE: Final = 2000  # characters of a refusal; the server reads a worker's reply up to 64 KiB
_AROUND = 2  # the levels around a row: it is in a list in an object


class WorkerSettings(msgspec.Struct, frozen=True):
    """The argument of a worker process."""

    limits: BodyLimits
    server: str | None = None  # FILE:CLASS, whose hooks add to the metrics
    host: str = ""
    port: int = 0
    configured: bool = False  # whether the environment has the server's settings


def main() -> None:
    """Answer requests until standard input is closed."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:  # a hook that reads standard input must not wait for, or consume, requests
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    settings = msgspec.json.decode(sys.argv[1], type=complete(WorkerSettings))
    hooks, broken = NO_HOOKS, None
    try:
        hooks = _hooks(settings)
    except CalipersError as error:
        broken = ServerRefusal(503, "no_worker", str(error))
    gc.freeze()
    for line in _lines(requests):
        request = msgspec.json.decode(line)
        refusal = broken or answer(request["body"], request["answer"], settings.limits, hooks)
        if refusal is not None:  # the message may contain a row's own text, or that of a hook's exception
            refusal.message = clean(refusal.message, LONGEST_MESSAGE)
        replies.write(msgspec.json.encode(refusal or {"status": 200}) + b"\n")
        gc.collect()


def _lines(requests: BinaryIO) -> Iterator[bytes]:
    """The lines of standard input. When it is closed, the process ends, even if a hook is still running."""
    waiting = SimpleQueue[bytes]()

    def listen() -> None:
        for line in requests:
            waiting.put(line)
        os._exit(0)  # otherwise a hook that never returns would outlive a killed server

    Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


def _hooks(settings: WorkerSettings) -> Hooks:
    if settings.server is None:
        return NO_HOOKS
    from calipers.systems.nemo_gym.hooks import load_server  # imported here, because it loads a server's libraries
    from calipers.systems.nemo_gym.serve.configuration import own_settings

    given = own_settings() if settings.configured else None
    return load_server(settings.server, settings.host, settings.port, given).hooks


def answer(body: str, target: str, limits: BodyLimits, hooks: Hooks = NO_HOOKS) -> ServerRefusal | None:
    """Aggregate the rows of a body, and write the answer of ``/aggregate_metrics`` to ``target``; or return a refusal.

    Both ``body`` and ``target`` are paths.
    """
    gc.disable()  # rows are a million small objects without cycles, and collecting would take half of the time
    try:
        rows = _rows(Path(body).read_bytes(), limits)
        try:
            blocks = aggregate(rows, hooks)
        except InputError as error:
            return _duplicate(rows) or ServerRefusal(422, "bad_rows", f"{KEY}: {error}")
        with open(target, "wb") as file:
            file.writelines(_chunks(blocks))
    except ServerRefusal as refusal:
        return refusal
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
    """The refusal if a body or an answer could not be written to a file."""
    return ServerRefusal(
        503, "no_room", f"the server's folder of temporary files: {error.strerror}; it needs free space"
    )


def _rows(body: bytes, limits: BodyLimits) -> list[Any]:
    """The decoded rows of a request; `ServerRefusal` if it is not a request, or is too large."""
    try:
        raws = msgspec.json.decode(body, type=complete(AggregateRequest)).verify_responses
        _check_number(raws, limits)
        decoder = msgspec.json.Decoder()
        rows = [decoder.decode(raw) for raw in raws]
    except BAD:
        return _rows_loosely(body, limits)
    most = limits.depth - _AROUND
    if deeper([row for row, raw in zip(rows, raws, strict=True) if _brackets(bytes(raw)) > most], most):
        raise too_deep(limits)
    return rows


def _brackets(raw: bytes) -> int:
    """An upper bound of the nesting depth: the number of opening brackets."""
    return raw.count(b"{") + raw.count(b"[")


def _rows_loosely(body: bytes, limits: BodyLimits) -> list[Any]:
    """The same for a body that is not strict JSON, or that is not a valid request."""
    value = decode_loosely(body, limits)
    rows = value.get(KEY) if isinstance(value, dict) else None
    if not isinstance(rows, list):
        missing = not isinstance(value, dict) or KEY not in value
        problem = f"body: no key {KEY!r}" if missing else f"{KEY}: it is {type(rows).__name__}"
        detail = {"type": "missing" if missing else "list_type", "loc": ["body", KEY], "msg": "expected a list of rows"}
        raise ServerRefusal(422, "bad_input", f"{problem}; expected a list of rows", [detail])
    _check_number(rows, limits)
    return rows


def _check_number(rows: Sequence[Any], limits: BodyLimits) -> None:
    if len(rows) > limits.rows:
        message = f"{KEY}: there are too many rows; expected at most {limits.rows:,}"
        raise ServerRefusal(413, "too_many_rows", message)


def _duplicate(rows: Sequence[Any]) -> ServerRefusal | None:
    """The refusal of rows of which two are the same rollout, with the numbers of both; None if there are none."""
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
            problem = f"rows {first} and {number}: both are {TASK} {row[TASK]}, {ROLLOUT} {row[ROLLOUT]}"
            return ServerRefusal(422, "duplicate", f"{KEY}: {problem}; expected each rollout once")
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


PROGRAM: Final = "from calipers.systems.nemo_gym.serve import main; main()"
MOST: Final = 4  # workers at most, even with more cores, because each may use gigabytes
FAREWELL: Final = 5.0  # seconds for a worker to end after it has closed its pipe
LARGE: Final = 64 << 20  # bytes; a worker that aggregated a larger body is replaced, to free its memory


class Workers:
    """A pool of worker processes, as an asynchronous context manager. On exit, all processes are killed."""

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
            await self._kill(process)
        self._folder.cleanup()

    def paths(self) -> tuple[Path, Path]:
        """New paths for a body and its answer; the caller removes the files."""
        self._count += 1
        return Path(self._folder.name, f"{self._count}.body"), Path(self._folder.name, f"{self._count}.answer")

    async def aggregate(self, body: Path, answer: Path) -> ServerRefusal | None:
        """Have a body aggregated by a worker. Returns a refusal, or None once the answer is written.

        If the call is cancelled, its worker is killed.
        """
        async with self._turns:
            process = await self._free()
            try:
                reply = await _reply_of(process, {"body": str(body), "answer": str(answer)})
            except (OSError, asyncio.IncompleteReadError):
                end = await self._end_of(process)
                return ServerRefusal(503, "no_worker", f"the worker {end} while it aggregated; send fewer rows")
            except asyncio.CancelledError:
                await self._kill(process)
                raise
            if body.stat().st_size > LARGE:
                await self._kill(process)
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
            start_new_session=True,  # so that Ctrl-C reaches only the server
        )
        self._all.add(process)
        return process

    async def _end_of(self, process: asyncio.subprocess.Process) -> str:
        """How a worker that no longer answers has ended, for a message. If it still runs, it is killed."""
        with suppress(TimeoutError):  # the pipe closes a moment before the exit status is available
            await asyncio.wait_for(process.wait(), FAREWELL)
        code = await self._kill(process)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    async def _kill(self, process: asyncio.subprocess.Process) -> int:
        # Not process.kill(): it polls the exit status first, and then the event loop cannot report it.
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._all.discard(process)
        return await process.wait()


async def _reply_of(process: asyncio.subprocess.Process, request: dict[str, str]) -> Any:
    if process.stdin is None or process.stdout is None:
        raise OSError("a worker without pipes")
    process.stdin.write(msgspec.json.encode(request) + b"\n")
    await process.stdin.drain()
    return msgspec.json.decode(await process.stdout.readuntil(b"\n"))
