"""JSON Lines, a record a line: decoded in blocks into columns, every surprise noticed."""

from __future__ import annotations

import json
from codecs import utf_8_decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.formats.repeated_keys import Colons, said_twice, twice
from calipers.formats.rows import BadRow, Gather, with_none
from calipers.formats.schema import ABSENT, MOST_COLUMNS, MOST_KEYS, NOTHING, Schema, odd_key
from calipers.rollouts.column import Ints
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE, GROUP, UNSTATED, fault

Block = bytes | memoryview
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_LAST_ASCII = 127
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
UNREADABLE = (UnicodeDecodeError, UnicodeEncodeError, RecursionError, json.JSONDecodeError)


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
        self._wide = False
        self._colons = Colons()

    def read(self, block: Block) -> None:
        """Take in one block of whole lines; LineError for the first that is no rollout."""
        octets = np.frombuffer(block, dtype=np.uint8)
        columns = self._decode(block, octets)
        ends = np.flatnonzero(octets == _NEWLINE)
        if columns:
            rows = len(columns[0])
            self._note_places(block, rows, octets, ends)
            fields = zip(self._schema.fields, columns, strict=True)
            keys = sum(self._take(what, name, column) for (what, name), column in fields)
            if not self._colons.once(octets, keys, [columns[at] for at in self._schema.raws]):
                self._refuse_twice(block)
            self._gather.rows += rows
        self.lines += len(ends)

    def finish(self) -> Part:
        """Everything read, as one `Part`."""
        try:
            part = self._gather.finish(self._places, self._labels)
        except BadRow as error:
            row, wrong, right = error.args
            raise LineError(int(self._places.of(row).rpartition(":")[2]), wrong, right) from None
        return replace(part, named=frozenset(self._names.values()) & self._schema.keys())

    def _decode(self, block: Block, octets: NDArray[np.uint8]) -> list[Sequence[Any]]:
        """The block as columns, one for each field of the schema; none where it has no row."""
        while True:
            try:
                if self._schema.skips and (self._wide or octets.max(initial=0) > _LAST_ASCII):
                    self._wide = True  # where one block has letters beyond ASCII, most have
                    utf_8_decode(block, "strict", True)
                columns = _columns(self._schema.decoder.decode_lines(block))
                if not columns or self._schema.sound(columns):
                    return columns
                self._learn(block)
            except _BAD:
                if not self._learn(block):  # each line is as deep as can be, and a list of them deeper
                    return _columns([self._schema.decoder.decode(line) for _, line in filled(block, self.lines)])

    def _learn(self, block: Block) -> bool:
        """Widen the schema to the lines that do not fit it, if any; LineError for one that never can."""
        schema, widened = self._schema, False
        waiting: list[tuple[int, bytes]] = []  # lines that do not fit the decoder there is, and were learnt from
        patience = 1
        for number, line in filled(block, self.lines):
            if _fits(schema, line):
                continue
            widened = True
            waiting.append((number, line))
            many = self._learn_line(line)
            # a decoder costs as much as many lines: where each line brings a key, few are made
            if many or len(waiting) >= patience:
                self._rebuild(waiting)
                waiting, patience = [], 2 * patience
            if many:
                raise LineError(number, many, "expected ids as values (under metadata), not as keys")
        if waiting:
            self._rebuild(waiting)
        return widened

    def _learn_line(self, line: bytes) -> str:
        """Widen the schema to a line, if it can be; what the file then has too many of, if it has."""
        try:
            line.decode()
            learnt = self._schema.learn(line)
        except _BAD:
            learnt = False
        if not learnt:
            return ""
        if self._schema.columns() > MOST_COLUMNS:
            return f"the file has more than {MOST_COLUMNS} columns of numbers"
        return f"the file has more than {MOST_KEYS} different keys" if len(self._schema.extra) > MOST_KEYS else ""

    def _rebuild(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Make the decoder for what was learnt; LineError for the first of these lines that does not fit it."""
        self._schema.rebuild()
        for number, line in lines:
            if not _fits(self._schema, line):
                raise LineError(number, *_faults(line, self._names))

    def _note_places(self, block: Block, rows: int, octets: NDArray[np.uint8], ends: Ints) -> None:
        """Remember the line of each row."""
        if one_a_line(octets, ends, rows):
            self._places.add(self._gather.rows, self.lines + 1)
            return
        self._learn(block)  # raises where a line is not exactly one object
        self._places.add(self._gather.rows, np.array([number for number, _ in filled(block, self.lines)]))

    def _refuse_twice(self, block: Block) -> None:
        """LineError for the first line with a key twice; counting alone could not tell."""
        inside = [key for key, role in self._schema.roles.items() if role in self._schema.inside]
        for number, line in filled(block, self.lines):
            try:
                key = twice(line, inside)
            except RecursionError as error:
                raise LineError(number, *unreadable(error)) from None
            if key is not None:
                raise LineError(number, *said_twice(key))

    def _take(self, what: str, name: str, column: Sequence[Any]) -> int:
        """Take in the block's values of a field; how many keys they stand for."""
        gather = self._gather
        if what == "task":
            gather.tasks(column)
            return len(column)
        if what in ("number", "mixed"):
            return gather.numbers("column", name, column, mixed=what == "mixed")
        if what == "reward":
            return gather.numbers("reward", name, column)
        if what in ("sample", "attempt"):
            return gather.whole(what, column)
        if what in ("raw", "text", "error", "metadata"):
            self._take_raw(what, name, column)
            return len(column) if all(column) else sum(map(bool, column))
        column, there = with_none(column)
        if what == "outcome":
            gather.whole(what, [UNSTATED if word is None else CODE[word] for word in column])
        elif what in GROUP:
            gather.labels(what, column)
        elif what in ("rewards", "usage"):
            kind = "reward" if what == "rewards" else "column"
            for inner, values in _unpacked(column, self._schema.inside[what], ABSENT):
                there += gather.numbers(kind, inner, values)
        return there

    def _take_raw(self, what: str, name: str, column: Sequence[Any]) -> None:
        if what == "raw":
            self._gather.labels("raw:" + name, [bytes(raw) or None for raw in column])
        elif what == "metadata" and self._labels:
            rows = [self._schema.steps.decode(raw) if len(raw) else None for raw in column]
            for step, raws in _unpacked(rows, self._schema.first_steps, NOTHING):
                self._gather.labels(f"raw:metadata.{step}", [bytes(raw) or None for raw in raws])


def filled(block: Block, before: int) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; so many lines stand before the block."""
    for number, line in enumerate(bytes(block).split(b"\n"), before + 1):
        if line.strip(b" \t\r"):
            yield number, line


def one_a_line(octets: NDArray[np.uint8], ends: Ints, rows: int) -> bool:
    """Whether each line is exactly one object: the decoder also takes two on a line, and one on two."""
    if not len(octets) or octets[0] != _OPEN:
        return not rows and not len(octets)
    whole = octets[-1] == _NEWLINE
    before = octets[ends - 1]
    if _RETURN in before[-1:]:
        before = np.where(before == _RETURN, octets[ends - 2], before)
    after = octets[(ends[:-1] if whole else ends) + 1]
    # inside an object no newline stands between } and {, so here each one parts two objects
    return bool((before == _CLOSE).all() and (after == _OPEN).all()) and rows == len(ends) + (not whole)


def unreadable(error: Exception) -> tuple[str, str]:
    """What Python's decoder found in a line, one of `UNREADABLE`: what is wrong, and what would be right."""
    right = "expected one JSON object a line"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} of the line is not UTF-8", "expected UTF-8 text"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair stands alone", "expected whole characters"
    if not isinstance(error, json.JSONDecodeError):
        return "it is nested too deeply", "expected a flat object"
    if error.msg == "Extra data":
        return "two values on one line", right
    return f"not JSON ({error.msg.removesuffix(' at')} at column {error.colno})", right


def _unpacked(column: Sequence[Any], names: Sequence[str], absent: Any) -> list[tuple[str, Sequence[Any]]]:
    """A column of objects as one column per name; a missing object lacks them all."""
    if not names:
        return []
    nothing = (absent,) * len(names)
    rows = [nothing if row is None else astuple(row) for row in column]
    return list(zip(names, zip(*rows, strict=True), strict=True))


def _fits(schema: Schema, line: bytes) -> bool:
    try:
        line.decode()  # what is skipped unread must be UTF-8 too
        return schema.sound(_columns([schema.decoder.decode(line)]))
    except _BAD:
        return False


def _columns(rows: Sequence[Any]) -> list[Sequence[Any]]:
    return list(zip(*map(astuple, rows), strict=True))


def _faults(line: bytes, names: Mapping[str, str]) -> tuple[str, str]:
    """What is wrong with a line that no schema can hold, and what would be right."""
    try:
        row = json.loads(line.decode(), parse_constant=_no_constant)
        problem = fault(row, names) or _odd(row, names)
        json.dumps(row, ensure_ascii=False).encode()
    except UNREADABLE as error:
        return unreadable(error)
    except _Constant as error:
        return f"{error} is not JSON", "expected a finite number or null"
    except ValueError:  # an integer of thousands of digits
        problem = None
    return problem or ("a number is out of range", "expected at most 1.8e308 in size")


def _odd(row: dict[str, Any], names: Mapping[str, str]) -> tuple[str, str] | None:
    inside = [row.get(names.get(role, role)) or {} for role in ("rewards", "usage")]
    key = odd_key(name for keyed in (row, *inside) for name in keyed)
    if key is None:
        return None
    return f"key {json.dumps(key)} holds a quote, a backslash or a control character", "expected a plain key"


class _Constant(Exception):
    """NaN or Infinity, which Python's decoder takes for numbers."""


def _no_constant(word: str) -> Any:
    raise _Constant(word)
