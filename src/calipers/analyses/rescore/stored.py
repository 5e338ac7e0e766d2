"""Stored rollouts: batches of lines, and the parts of each line that a verifier needs."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats.format import Raw
from calipers.formats.lines import NOTHING
from calipers.formats.read import found_format
from calipers.formats.run_folder import LOG, RunLog, is_run
from calipers.formats.source import BOM, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.rollouts.column import Ints
from calipers.rollouts.record import Outcome, fault

AT_ONCE = 1 << 18  # bytes of a batch
BLANKS = b" \t\r"
NOTHING_CAME = frozenset({"client_failed", "cancelled", "not_run", "stopped_early"})  # outcomes without a completion
SAID_NOTHING = frozenset({"empty", "refused"})  # outcomes under which no completion is the text ""
_RIGHT = "expected a run folder, or JSON Lines with one rollout per line"


class Stored(msgspec.Struct, gc=False):
    """The keys of a record that judging it again asks for; all others are passed over."""

    task: str | int
    sample: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 0
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**53)] = 1
    outcome: Outcome | None = None
    reward: float | bool | None = None
    rewards: dict[str, float | bool | None] | msgspec.UnsetType | None = msgspec.UNSET
    completion: str | list[Any] | dict[str, Any] | None = None
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None

    @property
    def text(self) -> str | None:
        """What the model said, of several turns the last; None when nothing came."""
        text: Any = self.completion
        if self.outcome in NOTHING_CAME:
            return None
        if type(text) is str:
            return text
        if isinstance(text, list):
            text = text[-1] if text and isinstance(text[-1], dict) else None
        if isinstance(text, dict):
            text = text.get("content")
        return text if isinstance(text, str) else "" if self.outcome in SAID_NOTHING else None


@dataclass(frozen=True, slots=True)
class Batch:
    """R lines that follow each other, blank ones left out."""

    data: bytes  # the lines, each with its newline
    ends: list[int]  # [R] where their newlines stand
    rows: list[Any]  # [R] what `Wanted` reads of them: more than `Stored`
    numbers: Sequence[int]  # [R] of the lines in their file


class Wanted:
    """What is read of a record: `Stored`, whether it had this reward before, and labels for ``--by``.

    A label is a key of the record or a path into its metadata; which it is, the records say, so that
    both are kept, as raw JSON.
    """

    def __init__(self, name: str, labels: Collection[str] = ()) -> None:
        keys = [label for label in sorted(labels) if label not in Stored.__struct_fields__]
        steps = sorted({label.split(".")[0] for label in labels})
        inner = [(f"f{i}", Raw, NOTHING) for i in range(len(steps))]
        metadata = msgspec.defstruct(
            "Metadata", inner, rename={f"f{i}": step for i, step in enumerate(steps)}, gc=False
        )
        fields = [
            ("before", str | None, None),
            *([("metadata", metadata | None, None)] if steps else []),
            *((f"f{i}", Raw, NOTHING) for i in range(len(keys))),
        ]
        rename = {"before": f"{name}_outcome", **{f"f{i}": key for i, key in enumerate(keys)}}
        row = msgspec.defstruct("Row", fields, bases=(Stored,), rename=rename, gc=False)
        self.decoder = msgspec.json.Decoder(row)
        self._keys, self._steps = keys, steps

    def labels(self, rows: Sequence[Any]) -> Iterator[tuple[str, list[bytes | None]]]:
        """The labels of some rows, named as `Gather` wants them."""
        for i, key in enumerate(self._keys):
            yield f"raw:{key}", [bytes(getattr(row, f"f{i}")) or None for row in rows]
        for i, step in enumerate(self._steps):
            values = [bytes(getattr(row.metadata, f"f{i}", b"")) or None for row in rows]
            yield f"raw:metadata.{step}", values


_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def open_stored(path: str) -> Source:
    """The rollouts at a path, to be read; InputError when there are none."""
    if os.path.isdir(path) and not is_run(path):
        raise InputError.at(path, "is not a run folder: it has no plan.json", _RIGHT)
    source = RunLog(path) if is_run(path) else Source(path)
    if isinstance(source, RunLog):
        if not source.size:
            source.close()
            raise InputError.at(os.path.join(path, LOG), "no rollouts", "run the benchmark first")
        return source
    kind = found_format(source).name
    if kind not in ("native", "run"):
        source.close()
        raise InputError.at(path, f"is {kind}", _RIGHT)
    return source


def batches(source: Source, wanted: Wanted) -> Iterator[Batch]:
    """The lines of a source, about a thousand at a time; InputError names the first that is no record."""
    before = 0
    pieces = _pieces(source)
    while data := _next(pieces, source.path, before + 1):
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
        numbers = range(before + 1, before + len(ends) + 1)
        before += len(ends)
        rows = _decoded(data, ends, wanted)
        if rows is not None:
            yield Batch(data, ends.tolist(), rows, numbers)
            continue
        split = zip(numbers, data.split(b"\n"), strict=False)  # the last is what follows the last newline: nothing
        filled = [(number, line.strip(BLANKS)) for number, line in split if line.strip(BLANKS)]
        if filled:
            rows = [_record(source.path, number, line, wanted) for number, line in filled]
            ends = np.cumsum([len(line) + 1 for _, line in filled]) - 1
            data = b"".join(line + b"\n" for _, line in filled)
            yield Batch(data, ends.tolist(), rows, [number for number, _ in filled])


def _next(pieces: Iterator[bytes], path: str, line: int) -> bytes:
    try:
        return next(pieces, b"")
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{path}:{line}", wrong, "expected one rollout per line") from None


def _pieces(source: Source) -> Iterator[bytes]:
    """The bytes of a source, some whole lines at a time; the last of them ends with a newline, too."""
    source.head = source.head.removeprefix(BOM)
    blocks: list[bytes] = []
    too_long = None
    try:
        for view in line_blocks(source.readinto):
            blocks.append(bytes(view))
            if sum(map(len, blocks)) >= AT_ONCE:
                yield b"".join(blocks)
                blocks = []
    except LongLine as error:
        too_long = error
    if rest := b"".join(blocks):
        yield rest if rest.endswith(b"\n") else rest + b"\n"
    if too_long:
        raise too_long


def _decoded(data: bytes, ends: Ints, wanted: Wanted) -> list[Any] | None:
    """The records of some lines; None unless each line is exactly one, from its first byte to its last."""
    octets = np.frombuffer(data, dtype=np.uint8)
    # inside an object no newline stands between } and {, so that here each one parts two of them
    whole = octets[0] == ord("{") and (octets[ends - 1] == ord("}")).all()
    if not (whole and (octets[ends[:-1] + 1] == ord("{")).all()):
        return None
    try:
        records: list[Any] = wanted.decoder.decode_lines(data)
    except _BAD:
        return None
    return records if len(records) == len(ends) else None


def _record(path: str, number: int, line: bytes, wanted: Wanted) -> Any:
    try:
        line.decode()
        return wanted.decoder.decode(line)
    except _BAD as error:
        wrong, right = f"is not a rollout ({error})", "expected one JSON object per line"
        with suppress(ValueError, RecursionError):
            wrong, right = fault(json.loads(line), {}) or (wrong, right)
        if wrong.startswith("no key"):  # whose advice is for a file that is scored: here no key can be named
            right = "expected one rollout per line, as in a run's rollouts.jsonl"
        raise InputError.at(f"{path}:{number}", wrong, right) from None
