"""Arrays that grow in place, a block of rows at a time, so that no row is copied twice."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.formats.lines import ABSENT
from calipers.rollouts.column import Bools, Column, Floats, Ints, alike
from calipers.rollouts.record import UNSTATED
from calipers.rollouts.table import BadRow, Labels, Part, Places


class Growing:
    """An array that grows in place; rows that nobody wrote hold ``fill``."""

    def __init__(self, kind: type, fill: int = 0) -> None:
        self._array: NDArray[Any] = np.zeros(0, dtype=kind)
        self.fill = fill
        self._end = 0  # the first row that nobody wrote to, nor to any after it

    def room(self, start: int, size: int) -> NDArray[Any]:
        """So many rows from there on, to be written to before anything else is asked for."""
        end = start + size
        if end > len(self._array):
            self._array.resize(end + end // 4 + 4096, refcheck=False)  # nobody else holds it
        if start > self._end:
            self._array[self._end : start] = self.fill
        self._end = max(self._end, end)
        return self._array[start:end]

    def put(self, start: int, values: NDArray[Any]) -> None:
        """The values of the rows from there on."""
        self.room(start, len(values))[:] = values

    def pack(self, start: int, column: Sequence[Any]) -> NDArray[Any]:
        """As `put`, three times as fast, for a column of Python's numbers; struct.error where one is none."""
        room = self.room(start, len(column))
        struct.pack_into(f"{len(column)}{room.dtype.char}", room.data, 0, *column)
        return room

    def finish(self, rows: int) -> NDArray[Any]:
        """All rows; the array is no longer its own."""
        self._array.resize(rows, refcheck=False)
        if self._end < rows and self.fill:
            self._array[self._end :] = self.fill
        return self._array


class GrowingFlags:
    """Flags in the making: as long as all rows are alike, a single one. Rows that nobody wrote are false."""

    def __init__(self) -> None:
        self._flag, self._alike = False, 0  # so many rows from the first hold this flag
        self._array: Growing | None = None  # once they are not alike

    def put(self, start: int, size: int, flags: Bools | bool) -> None:
        """The flags of so many rows from there on, or the flag of all of them."""
        if self._array is None and start == self._alike and (flags is self._flag or (not start and flags is True)):
            self._flag, self._alike = bool(flags), start + size
        else:
            self.room(start, size)[:] = flags

    def room(self, start: int, size: int) -> Bools:
        """So many rows from there on, to be looked at and written to."""
        return self._grown().room(start, size)

    def _grown(self) -> Growing:
        if self._array is None:
            self._array = Growing(np.bool_)
            self._array.room(0, self._alike)[:] = self._flag
        return self._array

    def finish(self, rows: int) -> Bools:
        """All rows; those of one kind are shared, and nobody may write to them."""
        if self._array is None and (self._alike == rows or not self._flag):
            return alike(rows, self._flag)
        flags = self._grown().finish(rows)
        if flags.all():
            return alike(rows, True)
        return flags if flags.any() else alike(rows, False)


class _Codes(dict[Any, int]):
    """Distinct values, numbered by first appearance."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code


class GrowingLabels:
    """Labels in the making: distinct values numbered by first appearance, and a code for each row, -1 for None."""

    def __init__(self) -> None:
        self._codes, self._code = _Codes(), Growing(np.int64, fill=-1)

    def put(self, start: int, column: Sequence[Any]) -> None:
        """The values of the rows from there on; None where a row has none."""
        codes = self._codes
        if len(set(column)) == 1:  # as a name of who answered is, most of the time
            self._code.room(start, len(column))[:] = -1 if column[0] is None else codes[column[0]]
        else:
            self._code.pack(start, [-1 if value is None else codes[value] for value in column])

    def finish(self, rows: int) -> Labels:
        """All rows."""
        return Labels(self._code.finish(rows), list(self._codes))


class _Numbers:
    """A column of numbers in the making, out of one key or of several: a row may name it once."""

    def __init__(self) -> None:
        self.some = False  # whether any row has a number
        self.twice: int | None = None  # the first row found in which two keys give one
        self._values, self._given = Growing(np.float64), GrowingFlags()
        self._end = 0

    def take(self, start: int, column: Sequence[Any], mixed: bool) -> int:
        """The block's values from one key; with ``mixed``, what is no number is a gap as None is.

        How many rows have the key, be it with null.
        """
        again, self._end = start < self._end, start + len(column)
        if not again:
            try:
                self._values.pack(start, column)
            except struct.error:  # not every row has a number
                pass
            else:
                self._given.put(start, len(column), True)
                self.some = True
                return len(column)
        column, there = with_none(column)
        self._merge(start, *_parsed(column, mixed))
        return there

    def put(self, start: int, values: Floats, given: Bools) -> None:
        """As `take`, of numbers that are an array already."""
        again, self._end = start < self._end, start + len(values)
        if again or not given.all():
            self._merge(start, values, given)
        elif len(values):
            self._values.put(start, values)
            self._given.put(start, len(values), True)
            self.some = True

    def _merge(self, start: int, values: Floats, given: Bools) -> None:
        current, there = self._values.room(start, len(values)), self._given.room(start, len(values))
        twice = np.flatnonzero(there & given)
        if len(twice) and self.twice is None:
            self.twice = start + int(twice[0])
        current[given], there[given] = values[given], True
        self.some = self.some or bool(given.any())

    def finish(self, rows: int) -> Column:
        """The whole column."""
        return Column(self._values.finish(rows), self._given.finish(rows))


def with_none(column: Sequence[Any]) -> tuple[Sequence[Any], int]:
    """A column with None where rows lack the key, and how many rows have it."""
    there = sum(value is not ABSENT for value in column)
    return (column if there == len(column) else [None if value is ABSENT else value for value in column]), there


def _parsed(column: Sequence[Any], mixed: bool) -> tuple[Floats, Bools]:
    if mixed:
        column = [value if isinstance(value, (float, bool)) else None for value in column]
    values = np.array(column, dtype=np.float64)  # None becomes NaN, which JSON cannot hold
    return values, ~np.isnan(values)


class Gather:
    """The columns of a `Part`, filled a block of rows at a time. A column may start at any row."""

    def __init__(self) -> None:
        self.rows = 0
        self._tasks, self._task = _Codes(), Growing(np.int64)
        self._whole = {
            "sample": Growing(np.int64),
            "attempt": Growing(np.int64, fill=1),
            "outcome": Growing(np.uint8, fill=UNSTATED),
        }
        self._numbers = defaultdict[tuple[str, str], _Numbers](_Numbers)
        self._labels = defaultdict[str, GrowingLabels](GrowingLabels)

    def tasks(self, column: Sequence[int | str]) -> None:
        """The task ids of the block; an integer is read as its text."""
        self._task.pack(self.rows, [*map(self._tasks.__getitem__, column)])

    def whole(self, name: str, column: Sequence[Any]) -> int:
        """The block's whole numbers of ``sample``, ``attempt`` or ``outcome``; how many rows have the key."""
        array = self._whole[name]
        try:
            array.pack(self.rows, column)
        except struct.error:
            column, there = with_none(column)
            array.pack(self.rows, [array.fill if value is None else value for value in column])
            return there
        return len(column)

    def numbers(self, kind: str, name: str, column: Sequence[Any], mixed: bool = False) -> int:
        """The block's values of a ``reward`` or a ``column``; None, and what is no number, is a gap.

        How many rows have the key.
        """
        return self._numbers[kind, name].take(self.rows, column, mixed)

    def floats(self, kind: str, name: str, values: Floats, given: Bools) -> None:
        """As `numbers`, of an array: its values count where they are ``given``."""
        self._numbers[kind, name].put(self.rows, values, given)

    def labels(self, name: str, column: Sequence[Any]) -> None:
        """The block's values of a label; None where a row has none."""
        self._labels[name].put(self.rows, column)

    def finish(self, places: Places, paths: Collection[str] = ()) -> Part:
        """Everything gathered, as one `Part`; ``paths`` are the labels that were asked for."""
        columns: dict[str, dict[str, Column]] = {"reward": {}, "column": {}}
        for (kind, name), numbers in self._numbers.items():
            if numbers.twice is not None:
                raise BadRow(numbers.twice, f"{name} appears twice in one row", "expected it once")
            if numbers.some:
                columns[kind][name] = numbers.finish(self.rows)
        coded = {name: growing.finish(self.rows) for name, growing in self._labels.items()}
        labels = {name: coded[name] for name in coded if not name.startswith("raw:")}
        for path in paths:
            first, _, rest = path.partition(".")
            for name, raw, steps in ((path, f"raw:{path}", ""), (f"metadata.{path}", f"raw:metadata.{first}", rest)):
                if raw in coded:
                    labels[name] = _walk(coded[raw], steps)
            if path in labels and (column := _numbers(labels[path])) is not None:
                columns["column"][path] = column
        tasks, task = _as_texts(list(self._tasks), self._task.finish(self.rows))
        return Part(
            places=places,
            tasks=tasks,
            task=task,
            sample=self._whole["sample"].finish(self.rows),
            attempt=self._whole["attempt"].finish(self.rows),
            outcome=self._whole["outcome"].finish(self.rows),
            rewards=columns["reward"],
            columns=columns["column"],
            labels=labels,
        )


def _as_texts(ids: list[int | str], code: Ints) -> tuple[list[str], Ints]:
    """Ids as text, and the codes, [R], of their rows: 7 and "7" are one task."""
    codes = _Codes()
    table = [codes[str(task)] for task in ids]
    return list(codes), code if len(codes) == len(ids) else np.array(table)[code]


def _walk(raws: Labels, path: str) -> Labels:
    """Decode raw JSON labels and follow a dotted path into them; -1 where it leads nowhere."""
    values: list[Any] = []
    codes = np.full(len(raws.values) + 1, -1, dtype=np.int64)
    for code, raw in enumerate(raws.values):
        try:
            value = msgspec.json.decode(raw)
            if type(value) is int:
                float(value)
        except (msgspec.DecodeError, OverflowError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            wrong = "a label is nested too deeply" if deep else "a number is out of range"
            raise BadRow(int((raws.code == code).argmax()), wrong, "expected text or a number") from None
        for step in path.split(".") if path else ():
            if not isinstance(value, Mapping) or step not in value:
                break
            value = value[step]
        else:
            codes[code] = len(values)
            values.append(value)
    return Labels(codes[raws.code], values)


def _numbers(labels: Labels) -> Column | None:
    """Labels as a column, where they are numbers; None when none is."""
    known = [float(v) if isinstance(v, (int, float)) else np.nan for v in labels.values]
    values = np.array([*known, np.nan])[labels.code]
    given = ~np.isnan(values)
    return Column(values, given) if given.any() else None
