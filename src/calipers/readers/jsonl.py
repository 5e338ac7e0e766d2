"""JSON Lines, a record a line: decoded in blocks into columns, every surprise noticed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from calipers.errors import InputError
from calipers.readers.gather import Gather, TwiceGiven
from calipers.readers.schema import MOST_COLUMNS, NOTHING, Schema
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE, GROUP, UNSTATED, fault

_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class LineError(Exception):
    """A line that is no rollout: (its number, what is wrong, what would be right)."""

    def at(self, path: str, lines_before: int = 0) -> InputError:
        """The error for the user, once it is known how many lines stand before."""
        line, wrong, right = self.args
        return InputError.at(f"{path}:{line + lines_before}", wrong, right)


class JsonLines:
    """Blocks of whole lines in, one `Part` out."""

    def __init__(self, path: str, names: Mapping[str, str], labels: Collection[str]) -> None:
        self.lines = 0
        self._places = Places(path)
        self._names = names
        self._labels = labels
        self._schema = Schema(names, labels)
        self._gather = Gather()

    def read(self, block: bytes) -> None:
        """Take in one block of whole lines; LineError for the first that is no rollout."""
        rows = self._decode(block)
        ends = int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == 10))
        if rows:
            self._note_places(block, rows, ends + (not block.endswith(b"\n")))
            columns = zip(*map(astuple, rows), strict=True)
            for (what, name), column in zip(self._schema.fields, columns, strict=True):
                self._take(what, name, column)
            self._gather.rows += len(rows)
        self.lines += ends

    def finish(self) -> Part:
        """Everything read, as one `Part`."""
        try:
            return self._gather.finish(self._places, self._labels)
        except TwiceGiven as error:
            name, row = error.args
            line = int(self._places.of(row).rpartition(":")[2])
            raise LineError(line, f"{name} stands twice in one row", "expected it once") from None

    def _decode(self, block: bytes) -> list[Any]:
        while True:
            try:
                if not block.isascii():
                    block.decode()  # what is skipped unread must be UTF-8 too
                rows: list[Any] = self._schema.decoder.decode_lines(block)
                return rows
            except _BAD:
                self._learn(block)

    def _learn(self, block: bytes) -> None:
        """Widen the schema to the lines that do not fit it; LineError for one that never can."""
        schema = self._schema
        for number, line in enumerate(block.split(b"\n"), self.lines + 1):
            if not line.strip() or _fits(schema, line):
                continue
            try:
                line.decode()
                learnt = schema.learn(line)
            except _BAD:
                learnt = False
            if learnt:
                schema.rebuild()
            if not (learnt and _fits(schema, line)):
                raise LineError(number, *_faults(line, self._names))
            if schema.columns() > MOST_COLUMNS:
                many = f"the file has more than {MOST_COLUMNS} columns of numbers"
                raise LineError(number, many, "expected ids as values (under metadata), not as keys")

    def _note_places(self, block: bytes, rows: Sequence[Any], lines: int) -> None:
        if len(rows) == lines:
            self._places.add(self._gather.rows, self.lines + 1)
            return
        filled = [n for n, line in enumerate(block.split(b"\n"), self.lines + 1) if line.strip()]
        if len(filled) != len(rows):
            self._learn(block)  # raises: some line holds two objects
        self._places.add(self._gather.rows, np.array(filled))

    def _take(self, what: str, name: str, column: Sequence[Any]) -> None:
        gather = self._gather
        if what == "task":
            gather.tasks(column)
        elif what in ("number", "mixed"):
            gather.numbers("column", name, column, mixed=what == "mixed")
        elif what == "reward":
            gather.numbers("reward", name, column)
        elif what in ("sample", "attempt"):
            gather.whole(what, column)
        elif what == "outcome":
            gather.whole(what, [UNSTATED if word is None else CODE[word] for word in column])
        elif what in GROUP:
            gather.labels(what, column)
        elif what == "raw":
            gather.labels("raw:" + name, [bytes(raw) or None for raw in column])
        elif what in ("rewards", "usage"):
            kind = "reward" if what == "rewards" else "column"
            for inner, values in _unpacked(column, self._schema.inside[what], None):
                gather.numbers(kind, inner, values)
        elif what == "metadata":
            for step, raws in _unpacked(column, self._schema.first_steps, NOTHING):
                gather.labels(f"raw:metadata.{step}", [bytes(raw) or None for raw in raws])


def _unpacked(column: Sequence[Any], names: Sequence[str], absent: Any) -> list[tuple[str, Sequence[Any]]]:
    """A column of objects as one column per name; a missing object lacks them all."""
    if not names:
        return []
    nothing = (absent,) * len(names)
    rows = [nothing if row is None else astuple(row) for row in column]
    return list(zip(names, zip(*rows, strict=True), strict=True))


def _fits(schema: Schema, line: bytes) -> bool:
    try:
        schema.decoder.decode(line)
    except _BAD:
        return False
    return True


def _faults(line: bytes, names: Mapping[str, str]) -> tuple[str, str]:
    """What is wrong with a line that no schema can hold, and what would be right."""
    try:
        row = json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} of the line is not UTF-8", "expected UTF-8 text"
    except RecursionError:
        return "it is nested too deeply", "expected a flat object"
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return "two values on one line", "expected one JSON object a line"
        return f"not JSON ({error.msg} at column {error.colno})", "expected one JSON object a line"
    except ValueError as error:
        return str(error), "expected a finite number or null"
    return fault(row, names) or ("a number is out of range", "expected at most 1.8e308 in size")


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
