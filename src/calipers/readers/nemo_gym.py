"""NeMo Gym's rollouts: one file, or a large one divided among processes, and the files that lie beside it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

from calipers.errors import InputError
from calipers.readers.files import BLOCK, BOM, LONGEST_LINE, STDIN, LongLine, Source, line_blocks, next_line
from calipers.readers.jsonl import LineError
from calipers.readers.nemo_gym_beside import FAILURES, INPUTS, beside, with_companions
from calipers.readers.nemo_gym_cells import REWARD
from calipers.readers.nemo_gym_file import GymLines
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.readers.nemo_gym_taking import GymPart
from calipers.rollouts.part import Part

WORTH_DIVIDING = 64 << 20  # bytes; below this a second process costs more than it saves
CHILD_SHARE = 0.47  # of two equal halves: a child starts 0.1 s after its parent
Progress = Callable[[int], None]  # told how many more bytes are read

INDICES = frozenset({TASK, ROLLOUT})
_MARKS = tuple(f'"{key}"'.encode() for key in INDICES)
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from calipers.readers.nemo_gym import child; child()"


def is_row(line: bytes) -> bool:
    """Whether a line of JSON is a rollout of NeMo Gym's: it carries an index of its collector."""
    return any(mark in line for mark in _MARKS)


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without those that are read anyway, beside another of them, where both are NeMo Gym's."""
    mains = [path for path in paths if path != STDIN and _may_be_ours(path)]
    taken = {os.path.realpath(beside(path, word)) for path in mains for word in (FAILURES, INPUTS)}
    return [path for path in paths if os.path.realpath(path) not in taken or not _may_be_ours(path)]


def _may_be_ours(path: str) -> bool:
    """Whether a file starts with a row of NeMo Gym's, or is empty, as a file of failures often is."""
    if not os.path.isfile(path):
        return False  # what passes only once must not be looked into
    try:
        with open(path, "rb") as file:
            head = file.read(BLOCK)
    except (OSError, ValueError):
        return False
    return is_row(head) or not head.strip()


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a JSON Lines source in NeMo Gym's form, and what became of the planned ones.

    ``<stem>_failures.jsonl`` and ``<stem>_materialized_inputs.jsonl`` beside the file say which
    attempts failed and which rollouts were planned.
    """
    for role in names:
        if role not in (REWARD, "answer"):
            wrong = f"{role} has its own place in NeMo Gym's rollouts"
            raise InputError.at("--columns", wrong, "expected reward=KEY or answer=KEY")
    parts = _rows(source, names, labels, progress)
    return with_companions(source.path, parts)


def _rows(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[GymPart]:
    processes = _processes()
    if source.divisible and source.size >= WORTH_DIVIDING and processes > 1:
        return _divided(source, names, labels, processes, progress)
    bom = len(BOM) if source.head.startswith(BOM) else 0
    source.head = source.head[bom:]
    reader = GymLines(source.path, names, labels, bom if source.divisible else None)
    try:
        return [_drive(reader, source.readinto, sys.maxsize, progress)]
    except LineError as error:
        raise error.at(source.path) from None


def _drive(reader: GymLines, readinto: Callable[[memoryview], int | None], left: int, progress: Progress) -> GymPart:
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
) -> list[GymPart]:
    """This process reads the first range of bytes, a child each of the others."""
    share = CHILD_SHARE * 2 / processes
    wished = [round(source.size * (1 - share * (processes - n))) for n in range(1, processes)]
    cuts = [0, *(next_line(source.path, cut) for cut in wished), source.size]
    ranges = list(pairwise(cuts))
    asked = {"path": source.path, "names": dict(names), "labels": sorted(labels)}
    children = [_Child({**asked, "start": start, "end": end}) for start, end in ranges[1:]]
    bom = len(BOM) if source.head.startswith(BOM) else 0
    source.head = source.head[bom:]
    reader = GymLines(source.path, names, labels, bom)
    try:
        parts = [_drive(reader, source.readinto, ranges[0][1] - bom, progress)]
        lines = reader.lines
        for child in children:
            part, own = child.result(progress)
            if isinstance(part, LineError):
                raise part.at(source.path, lines)
            parts.append(replace(part, places=part.places.shifted(lines)))
            lines += own
    except LineError as error:
        raise error.at(source.path) from None
    finally:
        for child in children:
            child.stop()
    return parts


class _Child:
    """A process that reads one byte range; should it die, its range is read here."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        # -P and our own sys.path: the child imports what we import, and nothing from its folder
        command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), json.dumps(asked)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pipesize=1 << 20)
        self._answer: tuple[GymPart | LineError, int] | None = None
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            with stream, suppress(EOFError, pickle.UnpicklingError):  # it died: its range is read here
                self._answer = pickle.load(stream)  # our own child's words
        self._process.wait()

    def result(self, progress: Progress) -> tuple[GymPart | LineError, int]:
        """(what was read, how many lines it was)."""
        self._listening.join()
        progress(self._asked["end"] - self._asked["start"])
        answer, self._answer = self._answer, None
        return read_range(**self._asked) if answer is None else answer

    def stop(self) -> None:
        """End the process if its answer is no longer wanted."""
        if self._process.poll() is None:
            self._process.kill()
        self._listening.join()


def read_range(
    path: str, start: int, end: int, names: dict[str, str], labels: list[str]
) -> tuple[GymPart | LineError, int]:
    """The rollouts in a range of bytes that starts and ends with a line; lines count from its start."""
    reader = GymLines(path, names, labels, start)
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
    pickle.dump(answer, sys.stdout.buffer, protocol=5)
