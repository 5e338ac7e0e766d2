"""Native JSON Lines: one stream, or a large file divided among processes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from calipers.readers.files import BOM, LONGEST_LINE, LongLine, Source, line_blocks, next_line
from calipers.readers.jsonl import JsonLines, LineError
from calipers.rollouts.part import Part

WORTH_DIVIDING = 64 << 20  # below this a second process costs more than it saves
CHILD_SHARE = 0.47  # of two equal halves: a child starts 0.1 s after its parent
Progress = Callable[[int], None]  # told how many more bytes are read

_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from calipers.readers.native import child; child()"


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a JSON Lines source; one `Part` for each process that read some of it."""
    processes = _processes()
    if source.divisible and source.size >= WORTH_DIVIDING and processes > 1:
        return _divided(source, names, labels, processes, progress)
    source.head = source.head.removeprefix(BOM)
    reader = JsonLines(source.path, names, labels)
    try:
        return [_drive(reader, source.readinto, sys.maxsize, progress)]
    except LineError as error:
        raise error.at(source.path) from None


def _drive(reader: JsonLines, readinto: Callable[[memoryview], int | None], left: int, progress: Progress) -> Part:
    try:
        for block in line_blocks(readinto, left):
            reader.read(block)
            progress(len(block))
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise LineError(reader.lines + 1, wrong, "expected one rollout a line") from None
    return reader.finish()


def _processes() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if sys.executable else 1


def _divided(
    source: Source, names: Mapping[str, str], labels: Collection[str], processes: int, progress: Progress
) -> list[Part]:
    """This process reads the first range of bytes, a child each of the others."""
    share = CHILD_SHARE * 2 / processes
    wished = [round(source.size * (1 - share * (processes - n))) for n in range(1, processes)]
    cuts = [0, *(next_line(source.path, cut) for cut in wished), source.size]
    ranges = list(pairwise(cuts))
    asked = {"path": source.path, "names": dict(names), "labels": sorted(labels)}
    children = [_Child({**asked, "start": start, "end": end}) for start, end in ranges[1:]]
    bom = len(BOM) if source.head.startswith(BOM) else 0
    source.head = source.head[bom:]
    found: list[tuple[Part | LineError, int]] = []
    reader = JsonLines(source.path, names, labels)
    try:
        found.append((_drive(reader, source.readinto, ranges[0][1] - bom, progress), reader.lines))
        found += [child.result(progress) for child in children]
    except LineError as error:
        raise error.at(source.path) from None
    finally:
        for child in children:
            child.stop()
    return _joined(source.path, found)


def _joined(path: str, found: list[tuple[Part | LineError, int]]) -> list[Part]:
    """The parts with their true line numbers, or the error that stands first in the file."""
    lines, parts = 0, []
    for part, own_lines in found:
        if isinstance(part, LineError):
            raise part.at(path, lines)
        parts.append(replace(part, places=part.places.shifted(lines)))
        lines += own_lines
    return parts


class _Child:
    """A process that reads one byte range; should it die, its range is read here."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        # -P and our own sys.path: the child imports what we import, and nothing from its folder
        command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), json.dumps(asked)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pipesize=1 << 20)
        self._answer = b""
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        self._answer = self._process.communicate()[0]

    def result(self, progress: Progress) -> tuple[Part | LineError, int]:
        """(what was read, how many lines it was)."""
        self._listening.join()
        progress(self._asked["end"] - self._asked["start"])
        if self._process.returncode == 0:
            answer: tuple[Part | LineError, int] = pickle.loads(self._answer)  # our own child's words
            return answer
        return read_range(**self._asked)

    def stop(self) -> None:
        """End the process if its answer is no longer wanted."""
        if self._process.poll() is None:
            self._process.kill()
        self._listening.join()


def read_range(
    path: str, start: int, end: int, names: dict[str, str], labels: list[str]
) -> tuple[Part | LineError, int]:
    """The rollouts in a range of bytes that starts and ends with a line; lines count from its start."""
    reader = JsonLines(path, names, labels)
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        try:
            return _drive(reader, file.readinto, end - start, lambda _: None), reader.lines
        except LineError as error:
            return error, reader.lines


def child() -> None:
    """What a child process does: read its range, answer on standard output."""
    import gc

    gc.disable()  # millions of rows and no cycles among them
    answer = read_range(**json.loads(sys.argv[2]))
    sys.stdout.buffer.write(pickle.dumps(answer, protocol=5))
