"""What the body of one request may hold, and the processes that aggregate, so that the server keeps answering.

Into a worker goes ``{"body": PATH, "answer": PATH}`` a line. Out comes ``{"status": 200}`` a line, once the answer lies
in its file, or the refusal. A worker is started with one argument, a `WorkerSettings` in JSON, and ends when nobody
speaks to it any more. It loads no web framework. What a hook prints goes to standard error, and there is nothing for it
to read.
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
from calipers.systems.nemo_gym import ROLLOUT, TASK
from calipers.systems.nemo_gym.aggregate import NO_HOOKS, Blocks, Hooks, aggregate, encoded
from calipers.systems.nemo_gym.wire import AggregateRequest


@dataclass(eq=False)
class ServerRefusal(Exception):
    """An answer that is none."""

    status: int
    code: str
    message: str
    detail: Any = None  # FastAPI's own, for clients that look for it
    headers: Mapping[str, str] | None = None

    def body(self) -> bytes:
        """The body of the answer."""
        more = {} if self.detail is None else {"detail": self.detail}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}, **more}, enc_hook=str)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The most that one request may hold."""

    body: int = 512 << 20  # bytes
    rows: int = 2_000_000  # of one aggregation
    depth: int = 64  # objects and lists inside each other


LIMITS: Final = BodyLimits()


def too_large(limits: BodyLimits) -> ServerRefusal:
    """The refusal of a body of too many bytes; the connection ends, as what is left of it is not read."""
    wrong = f"body: it is too large; expected at most {limits.body:,} bytes"
    return ServerRefusal(413, "too_large", wrong, headers={"connection": "close"})


def too_deep(limits: BodyLimits) -> ServerRefusal:
    """The refusal of JSON that is nested beyond the limit."""
    return ServerRefusal(400, "too_deep", f"body: it is nested too deeply; expected a depth of at most {limits.depth}")


def decode(body: bytes, limits: BodyLimits) -> Any:
    """The JSON value of a body, NaN and Infinity taken as numbers; `ServerRefusal` for what is none, or too deep."""
    try:
        value = msgspec.json.decode(body)
    except BAD:
        return decode_loosely(body, limits)
    if deeper([value], limits.depth):
        raise too_deep(limits)
    return value


def decode_loosely(body: bytes, limits: BodyLimits) -> Any:
    """The same as Python reads JSON, which is slower."""
    right = "expected a JSON object"
    try:
        value = json.loads(body.decode())
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        wrong, right = f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text"
    except UnicodeEncodeError:
        wrong, right = "half of a surrogate pair appears alone", "expected whole characters"
    except json.JSONDecodeError as error:
        wrong = f"it is not JSON ({error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno})"
    except RecursionError:
        raise too_deep(limits) from None
    except ValueError:  # an integer of thousands of digits
        wrong, right = "a number is out of range", "expected an integer of at most 64 bits"
    else:
        if deeper([value], limits.depth):
            raise too_deep(limits)
        return value
    raise ServerRefusal(400, "bad_json", f"body: {wrong}; {right}")


def deeper(values: Iterable[Any], depth: int) -> bool:
    """Whether some value holds more than that many objects and lists inside each other, itself included.

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
    hooks, broken = NO_HOOKS, None
    try:
        hooks = _hooks(settings)
    except CalipersError as error:
        broken = ServerRefusal(503, "no_worker", str(error))
    gc.freeze()
    for line in _questions(questions):
        question = msgspec.json.decode(line)
        refusal = broken or answer(question["body"], question["answer"], settings.limits, hooks)
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
        try:
            blocks = aggregate(rows, hooks)
        except InputError as error:
            return _twice(rows) or ServerRefusal(422, "bad_rows", f"{KEY}: {error}")
        with open(into, "wb") as file:
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
    """The refusal where a body or an answer could not be written down."""
    return ServerRefusal(
        503, "no_room", f"the server's folder of temporary files: {error.strerror}; it needs free space"
    )


def _rows(body: bytes, limits: BodyLimits) -> list[Any]:
    """The rows of a request, decoded; `ServerRefusal` for what is no request, or one too large."""
    try:
        raws = msgspec.json.decode(body, type=AggregateRequest).verify_responses
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
    """At least as many as objects and lists can stand inside each other."""
    return raw.count(b"{") + raw.count(b"[")


def _rows_loosely(body: bytes, limits: BodyLimits) -> list[Any]:
    """The same for a body that is not strict JSON, or not a request at all."""
    value = decode_loosely(body, limits)
    rows = value.get(KEY) if isinstance(value, dict) else None
    if not isinstance(rows, list):
        missing = not isinstance(value, dict) or KEY not in value
        wrong = f"body: no key {KEY!r}" if missing else f"{KEY}: it is {type(rows).__name__}"
        detail = {"type": "missing" if missing else "list_type", "loc": ["body", KEY], "msg": "expected a list of rows"}
        raise ServerRefusal(422, "bad_input", f"{wrong}; expected a list of rows", [detail])
    _check_number(rows, limits)
    return rows


def _check_number(rows: Sequence[Any], limits: BodyLimits) -> None:
    if len(rows) > limits.rows:
        wrong = f"{KEY}: there are too many rows; expected at most {limits.rows:,}"
        raise ServerRefusal(413, "too_many_rows", wrong)


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
