"""The process that aggregates, so that the server keeps answering: ``{"body": PATH, "answer": PATH}`` a line in.

Out comes ``{"status": 200}`` a line, once the answer lies in its file, or the refusal. It is started with one
argument, a `Settings` in JSON, and ends when nobody speaks to it any more. What a hook prints goes to standard error,
and there is nothing for it to read.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

import msgspec

from calipers.dialects.nemo_gym_aggregate import NO_HOOKS, Blocks, Hooks, aggregate
from calipers.errors import CalipersError, InputError, PluginError
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.reports.nemo_gym import encoded
from calipers.server.limits import BAD, Limits, decode_loosely, deeper, too_deep
from calipers.server.refusal import Refusal

KEY = "verify_responses"
_AROUND = 2  # a row stands in a list in an object


class Settings(msgspec.Struct, frozen=True):
    """What a worker is told when it is started."""

    limits: Limits
    server: str | None = None  # FILE:CLASS, whose hooks add to the metrics
    host: str = ""
    port: int = 0


class _Body(msgspec.Struct):
    verify_responses: list[msgspec.Raw]


def main() -> None:
    """Answer until nobody asks any more."""
    questions, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:  # a hook that reads standard input would wait for, and eat, what is asked
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    hooks: Hooks | Refusal
    try:
        hooks = _hooks(settings)
    except CalipersError as error:
        hooks = Refusal(503, "no_worker", str(error))
    gc.freeze()
    for line in _asked(questions):
        asked = msgspec.json.decode(line)
        refusal = (
            hooks if isinstance(hooks, Refusal) else answer(asked["body"], asked["answer"], settings.limits, hooks)
        )
        replies.write(msgspec.json.encode(refusal or {"status": 200}) + b"\n")
        gc.collect()


def _asked(questions: BinaryIO) -> Iterator[bytes]:
    """What is asked, line by line, until nobody speaks any more: then the process ends, a hook at work or not."""
    waiting = SimpleQueue[bytes]()

    def listen() -> None:
        for line in questions:
            waiting.put(line)
        os._exit(0)  # a hook that never returns would outlive a server that was killed

    Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


def _hooks(settings: Settings) -> Hooks:
    if settings.server is None:
        return NO_HOOKS
    from calipers.compat.nemo_gym.hosting import load_server

    return load_server(settings.server, settings.host, settings.port).hooks


def answer(body: str, into: str, limits: Limits, hooks: Hooks = NO_HOOKS) -> Refusal | None:
    """Aggregate the rows of a body, and put the answer of ``/aggregate_metrics`` into a file; or say why not."""
    gc.disable()  # a million small objects, and not a cycle among them: looking for some takes half the time
    try:
        rows = _rows(Path(body).read_bytes(), limits)
        if isinstance(rows, Refusal):
            return rows
        try:
            blocks = aggregate(rows, hooks)
        except InputError as error:
            return _twice(rows) or Refusal(422, "bad_rows", f"{KEY}: {error}")
        with open(into, "wb") as file:
            file.writelines(_chunks(blocks))
    except PluginError as error:
        return Refusal(500, "hook_failed", str(error))
    except OSError as error:
        return no_room(error)
    except MemoryError:
        return Refusal(503, "no_worker", f"{KEY}: the rows do not fit into memory; expected fewer of them")
    finally:
        gc.enable()
    return None


def no_room(error: OSError) -> Refusal:
    """The refusal where a body or an answer could not be written down."""
    return Refusal(503, "no_room", f"the server's folder of temporary files: {error.strerror}; it needs some space")


def _rows(body: bytes, limits: Limits) -> list[Any] | Refusal:
    """The rows of a request, decoded."""
    try:
        raws = msgspec.json.decode(body, type=_Body).verify_responses
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


def _rows_loosely(body: bytes, limits: Limits) -> list[Any] | Refusal:
    """The same for a body that is not strict JSON, or not a request at all."""
    found = decode_loosely(body, limits)
    if isinstance(found, Refusal):
        return found
    if deeper([found], limits.depth):
        return too_deep(limits)
    rows = found.get(KEY) if isinstance(found, dict) else None
    if not isinstance(rows, list):
        missing = not isinstance(found, dict) or KEY not in found
        wrong = f"body: no key {KEY!r}" if missing else f"{KEY}: it is {type(rows).__name__}"
        detail = {"type": "missing" if missing else "list_type", "loc": ["body", KEY], "msg": "expected a list of rows"}
        return Refusal(422, "bad_input", f"{wrong}; expected a list of rows", [detail])
    return _too_many(limits) if len(rows) > limits.rows else rows


def _too_many(limits: Limits) -> Refusal:
    return Refusal(413, "too_many_rows", f"{KEY}: there are too many rows; expected at most {limits.rows:,}")


def _twice(rows: Sequence[Any]) -> Refusal | None:
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
            return Refusal(422, "duplicate", f"{KEY}: rows {first} and {number}: {what}; expected each rollout once")
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
