"""Rollouts that were made before: batches of their lines, and of each line what a judge asks for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from calipers.errors import InputError
from calipers.readers.files import BOM, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.readers.read import found_format
from calipers.readers.run_folder import RunLog
from calipers.readers.run_plan import LOG, is_run
from calipers.rollouts.record import Outcome, fault

AT_ONCE = 1024  # lines of a batch
NOTHING_CAME = frozenset({"client_failed", "cancelled", "not_run"})  # outcomes with no completion to look at
SAID_NOTHING = frozenset({"empty", "refused"})  # outcomes under which no completion is the text ""
_RIGHT = "expected the folder of a run, or JSON Lines with a rollout a line"


class Stored(msgspec.Struct, gc=False):
    """The keys of a record that judging it again asks for; all others are passed over."""

    task: str | int
    sample: Annotated[int, msgspec.Meta(ge=0)] = 0
    attempt: Annotated[int, msgspec.Meta(ge=1)] = 1
    outcome: Outcome | None = None
    reward: float | bool | None = None
    rewards: dict[str, float | bool | None] | None = None
    completion: str | list[Any] | None = None
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None

    @property
    def text(self) -> str | None:
        """What the model said, of several turns the last; None when nothing came."""
        found: Any = self.completion
        if self.outcome in NOTHING_CAME:
            return None
        if type(found) is str:
            return found
        if isinstance(found, list):
            found = found[-1].get("content") if found and isinstance(found[-1], dict) else None
        return found if isinstance(found, str) else "" if self.outcome in SAID_NOTHING else None


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines that follow each other, blank ones left out."""

    lines: list[bytes]  # without their newline
    rows: list[Stored]
    numbers: list[int]  # of the lines


_DECODER = msgspec.json.Decoder(Stored)
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def open_stored(path: str) -> Source:
    """The rollouts at a path, to be read; InputError when there are none."""
    if os.path.isdir(path) and not is_run(path):
        raise InputError.at(path, "is no run: there is no plan.json in it", _RIGHT)
    source = RunLog(path) if is_run(path) else Source(path)
    if isinstance(source, RunLog):
        if not source.size:
            source.close()
            raise InputError.at(os.path.join(path, LOG), "no rollouts", "run the benchmark first")
        return source
    kind = found_format(source)
    if kind not in ("native", "run"):
        source.close()
        raise InputError.at(path, f"is {kind}", _RIGHT)
    return source


def batches(source: Source) -> Iterator[Batch]:
    """The lines of a source, some thousands at a time; InputError names the first that is no record."""
    source.head = source.head.removeprefix(BOM)
    lines: list[bytes] = []
    rows: list[Stored] = []
    numbers: list[int] = []
    before = 0
    try:
        for view in line_blocks(source.readinto):
            block = bytes(view)
            held = block.removesuffix(b"\n").split(b"\n")
            found = _decoded(block, held)
            places: Sequence[int] = range(before + 1, before + len(held) + 1)
            before += len(held)
            if found is None:
                filled = [(place, line) for place, line in zip(places, held, strict=True) if line.strip(b" \t\r")]
                found = [_record(source.path, place, line) for place, line in filled]
                held, places = [line for _, line in filled], [place for place, _ in filled]
            lines += held
            rows += found
            numbers += places
            if len(lines) >= AT_ONCE:
                yield Batch(lines, rows, numbers)
                lines, rows, numbers = [], [], []
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{source.path}:{before + 1}", wrong, "expected one rollout a line") from None
    if lines:
        yield Batch(lines, rows, numbers)


def _decoded(block: bytes, lines: list[bytes]) -> list[Stored] | None:
    """The records of a block; None unless each of its lines is exactly one."""
    try:
        found = _DECODER.decode_lines(block)
    except _BAD:
        return None
    # the decoder takes two objects on a line, and one on two: what begins and ends every line tells them apart
    whole = len(found) == len(lines) and all(line[:1] == b"{" and line[-1:] == b"}" for line in lines)
    return found if whole else None


def _record(path: str, number: int, line: bytes) -> Stored:
    try:
        return _DECODER.decode(line)
    except _BAD as error:
        wrong, right = f"is no rollout ({error})", "expected one JSON object a line"
        with suppress(ValueError, RecursionError):
            wrong, right = fault(json.loads(line), {}) or (wrong, right)
        raise InputError.at(f"{path}:{number}", wrong, right) from None
