"""JSON Lines in one stream, or a large file divided among processes; what a line means, its reader says."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

from calipers.formats.jsonl import LineError
from calipers.formats.source import BOM, LONGEST_LINE, LongLine, Source, line_blocks, next_line
from calipers.names import load
from calipers.rollouts.part import Part

WORTH_DIVIDING = 45 << 20  # bytes; what one process reads while another starts and, at the end, answers
PACE = 0.85  # of another process: this one also hashes what it reads
Progress = Callable[[int], None]  # told how many more bytes are read

P = TypeVar("P", bound=Part, covariant=True)
_CHILD = """
import gc, json, sys
gc.disable()  # millions of rows and no cycles among them
sys.path[:] = json.loads(sys.argv[1])
from calipers.formats.parallel import child
child()
"""


class Lines(Protocol[P]):
    """A reader of blocks of lines."""

    @property
    def lines(self) -> int:
        """Lines read so far."""
        ...

    def read(self, block: memoryview) -> None:
        """Take in some whole lines; LineError for the first that is wrong."""
        ...

    def finish(self) -> P:
        """What all of them were."""
        ...


Maker = Callable[[str, Mapping[str, str], Collection[str], int | None], Lines[P]]
"""``make(path, names, labels, start)``: a reader whose first line stands at this byte, None in a stream."""


def read_lines(
    maker: str, source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress
) -> list[P]:
    """The rollouts of a source; one part for each process that read some of it.

    ``maker`` is the ``module:function`` that makes a reader, so that a child finds it, too.
    """
    make: Maker[P] = load(maker)
    count = processes()
    divided = source.divisible and source.size >= WORTH_DIVIDING and count > 1
    ranges = _ranges(source, count) if divided else []
    request = {"maker": maker, "path": source.path, "names": dict(names), "labels": sorted(labels)}
    children: list[_Child[P]] = [_Child({**request, "start": start, "end": end}) for start, end in ranges[1:]]
    bom = len(BOM) if source.head.startswith(BOM) else 0
    source.head = source.head[bom:]
    reader = make(source.path, names, labels, bom if source.divisible else None)
    readinto = source.readinto_hashed if divided and not bom else source.readinto
    try:
        parts = [_drive(reader, readinto, ranges[0][1] - bom if divided else sys.maxsize, progress)]
        lines = reader.lines
        for child in children:
            part, part_lines = child.result(progress)
            if isinstance(part, LineError):
                raise part.at(source.path, lines)
            parts.append(replace(part, places=part.places.shifted(lines)))
            lines += part_lines
    except LineError as error:
        raise error.at(source.path) from None
    finally:
        for child in children:
            child.stop()
    return parts


def processes() -> int:
    """How many processes may read."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if sys.executable else 1


def _ranges(source: Source, count: int) -> list[tuple[int, int]]:
    """Ranges of bytes that start and end with a line, as large as will be read in one time; the first is read here."""
    share = int((source.size - PACE * WORTH_DIVIDING) / (count - 1 + PACE))
    wished = [source.size - share * (count - n) for n in range(1, count)]
    return list(pairwise([0, *(next_line(source.path, cut) for cut in wished), source.size]))


def _drive(reader: Lines[P], readinto: Callable[[memoryview], int | None], left: int, progress: Progress) -> P:
    try:
        for block in line_blocks(readinto, left):
            reader.read(block)
            progress(len(block))
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise LineError(reader.lines + 1, wrong, "expected one rollout a line") from None
    return reader.finish()


class _Child(Generic[P]):
    """A process that reads one byte range; should it die, its range is read here."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        # -P and our own sys.path: the child imports what we import, and nothing from its folder
        command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), json.dumps(request)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},  # starting threads it never uses costs it 0.1 s
        )
        self._answer: tuple[P | LineError, int] | None = None
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            with stream, suppress(EOFError, pickle.UnpicklingError):  # it died: its range is read here
                self._answer = pickle.load(stream)  # our own child's words
        self._process.wait()

    def result(self, progress: Progress) -> tuple[P | LineError, int]:
        """(what was read, how many lines it was)."""
        self._listening.join()
        progress(self._request["end"] - self._request["start"])
        answer, self._answer = self._answer, None
        return read_range(**self._request) if answer is None else answer

    def stop(self) -> None:
        """End the process if its answer is no longer wanted."""
        if self._process.poll() is None:
            self._process.kill()
        self._listening.join()


def read_range(
    maker: str, path: str, start: int, end: int, names: dict[str, str], labels: list[str]
) -> tuple[Any, int]:
    """The rollouts in a range of whole lines, or its LineError; lines count from its start."""
    reader = load(maker)(path, names, labels, start)
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        try:
            return _drive(reader, file.readinto, end - start, lambda _: None), reader.lines
        except LineError as error:
            return error, reader.lines


def child() -> None:
    """What a child process does: read its range, answer on standard output."""
    answer = read_range(**json.loads(sys.argv[2]))
    pickle.dump(answer, sys.stdout.buffer, protocol=5)
    sys.stdout.buffer.flush()
    os._exit(0)  # somebody waits for the end of this process, and taking its rows apart takes time
