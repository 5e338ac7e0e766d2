"""Columns under construction: arrays that grow in place, a block of rows at a time, so that no row is copied twice."""

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


class Buffer:
    """An array that grows in place; rows that were never written hold ``fill``."""

    def __init__(self, kind: type, fill: int = 0) -> None:
        self._array: NDArray[Any] = np.zeros(0, dtype=kind)
        self.fill = fill
        self._end = 0  # one past the last row that was written

    def view(self, start: int, size: int) -> NDArray[Any]:
        """A writable view of ``size`` rows from ``start`` on, valid until the next call."""
        end = start + size
        if end > len(self._array):
            self._array.resize(end + end // 4 + 4096, refcheck=False)  # no other view of it is in use
        if start > self._end:
            self._array[self._end : start] = self.fill
        self._end = max(self._end, end)
        return self._array[start:end]

    def put(self, start: int, values: NDArray[Any]) -> None:
        """Write the values of the rows from ``start`` on."""
        self.view(start, len(values))[:] = values

    def pack(self, start: int, column: Sequence[Any]) -> NDArray[Any]:
        """As `put`, for a sequence of Python numbers and three times as fast; struct.error if one is not a number."""
        view = self.view(start, len(column))
        struct.pack_into(f"{len(column)}{view.dtype.char}", view.data, 0, *column)
        return view

    def finish(self, rows: int) -> NDArray[Any]:
        """The array of all rows, which is handed over and must not be written through this object any more."""
        self._array.resize(rows, refcheck=False)
        if self._end < rows and self.fill:
            self._array[self._end :] = self.fill
        return self._array


class FlagBuffer:
    """A growing array of flags, stored as a single flag while all rows are equal; rows never written are false."""

    def __init__(self) -> None:
        self._flag, self._alike = False, 0  # the flag of the first `_alike` rows
        self._array: Buffer | None = None  # used once the rows differ

    def put(self, start: int, size: int, flags: Bools | bool) -> None:
        """Write the flags of ``size`` rows from ``start`` on, or one flag for all of them."""
        if self._array is None and start == self._alike and (flags is self._flag or (not start and flags is True)):
            self._flag, self._alike = bool(flags), start + size
        else:
            self.view(start, size)[:] = flags

    def view(self, start: int, size: int) -> Bools:
        """A view of ``size`` rows from ``start`` on, to read and write."""
        return self._grown().view(start, size)

    def _grown(self) -> Buffer:
        if self._array is None:
            self._array = Buffer(np.bool_)
            self._array.view(0, self._alike)[:] = self._flag
        return self._array

    def finish(self, rows: int) -> Bools:
        """The flags of all rows; if all are equal, a shared read-only array."""
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


class LabelBuffer:
    """A growing column of labels: distinct values numbered by first appearance, and a code per row, -1 for None."""

    def __init__(self) -> None:
        self._codes, self._code = _Codes(), Buffer(np.int64, fill=-1)

    def put(self, start: int, column: Sequence[Any]) -> None:
        """Write the values of the rows from ``start`` on; None for a row without a value."""
        codes = self._codes
        if len(set(column)) == 1:  # as the model's name is in most blocks
            self._code.view(start, len(column))[:] = -1 if column[0] is None else codes[column[0]]
        else:
            self._code.pack(start, [-1 if value is None else codes[value] for value in column])

    def finish(self, rows: int) -> Labels:
        """The labels of all rows."""
        return Labels(self._code.finish(rows), list(self._codes))


class _Numbers:
    """A growing column of numbers, from one key or several; a row may have a number from only one of the keys."""

    def __init__(self) -> None:
        self.has_any = False  # whether any row has a number
        self.twice: int | None = None  # the first row with a number from two keys
        self._values, self._given = Buffer(np.float64), FlagBuffer()
        self._end = 0

    def take(self, start: int, column: Sequence[Any], mixed: bool) -> int:
        """Write the block's values from one key; with ``mixed``, a value that is not a number is a gap, like None.

        Returns the number of rows that have the key, including null.
        """
        second_key, self._end = start < self._end, start + len(column)  # whether another key gave these rows before
        if not second_key:
            try:
                self._values.pack(start, column)
            except struct.error:  # not every row has a number
                pass
            else:
                self._given.put(start, len(column), True)
                self.has_any = True
                return len(column)
        column, present = with_none(column)
        self._merge(start, *_parsed(column, mixed))
        return present

    def put(self, start: int, values: Floats, given: Bools) -> None:
        """As `take`, for an array of numbers."""
        second_key, self._end = start < self._end, start + len(values)
        if second_key or not given.all():
            self._merge(start, values, given)
        elif len(values):
            self._values.put(start, values)
            self._given.put(start, len(values), True)
            self.has_any = True

    def _merge(self, start: int, values: Floats, given: Bools) -> None:
        current, known = self._values.view(start, len(values)), self._given.view(start, len(values))
        twice = np.flatnonzero(known & given)
        if len(twice) and self.twice is None:
            self.twice = start + int(twice[0])
        current[given], known[given] = values[given], True
        self.has_any = self.has_any or bool(given.any())

    def finish(self, rows: int) -> Column:
        """The column of all rows."""
        return Column(self._values.finish(rows), self._given.finish(rows))


def count_given(column: Sequence[Any]) -> int:
    """The number of rows that have the key; null counts as a value."""
    if msgspec.UnsetType not in set(map(type, column)):
        return len(column)
    return len(column) - list(map(type, column)).count(msgspec.UnsetType)


def with_none(column: Sequence[Any]) -> tuple[Sequence[Any], int]:
    """A column with None for rows that lack the key, and the number of rows that have the key."""
    present = count_given(column)
    return (column if present == len(column) else [None if value is ABSENT else value for value in column]), present


def _parsed(column: Sequence[Any], mixed: bool) -> tuple[Floats, Bools]:
    if mixed:
        column = [value if isinstance(value, (float, bool)) else None for value in column]
    values = np.array(column, dtype=np.float64)  # None becomes NaN, which JSON cannot hold
    return values, ~np.isnan(values)


class PartBuilder:
    """The columns of a `Part`, filled a block of rows at a time. A column may start at any row."""

    def __init__(self) -> None:
        self.rows = 0
        self._tasks, self._task = _Codes(), Buffer(np.int64)
        self._whole = {
            "sample": Buffer(np.int64),
            "attempt": Buffer(np.int64, fill=1),
            "outcome": Buffer(np.uint8, fill=UNSTATED),
        }
        self._numbers = defaultdict[tuple[str, str], _Numbers](_Numbers)
        self._labels = defaultdict[str, LabelBuffer](LabelBuffer)
        self._before_answer: FlagBuffer | None = None  # None while it is true of no row

    def tasks(self, column: Sequence[int | str]) -> None:
        """Write the task ids of the block; an integer is read as its text."""
        self._task.pack(self.rows, [*map(self._tasks.__getitem__, column)])

    def whole(self, name: str, column: Sequence[Any]) -> int:
        """Write the block's integers of ``sample``, ``attempt`` or ``outcome``; returns the number of rows with it."""
        array = self._whole[name]
        try:
            array.pack(self.rows, column)
        except struct.error:
            column, present = with_none(column)
            array.pack(self.rows, [array.fill if value is None else value for value in column])
            return present
        return len(column)

    def numbers(self, kind: str, name: str, column: Sequence[Any], mixed: bool = False) -> int:
        """Write the block's values of a ``reward`` or a ``column``; None is a gap.

        With ``mixed``, any other value that is not a number is a gap, too. Returns the number of rows with the key.
        """
        return self._numbers[kind, name].take(self.rows, column, mixed)

    def floats(self, kind: str, name: str, values: Floats, given: Bools) -> None:
        """As `numbers`, for an array with a mask of the values that exist."""
        self._numbers[kind, name].put(self.rows, values, given)

    def before_answer(self, flags: Bools) -> None:
        """Write whether no request was accepted for each row of the block."""
        self._before_answer = self._before_answer or FlagBuffer()
        self._before_answer.put(self.rows, len(flags), flags)

    def labels(self, name: str, column: Sequence[Any]) -> None:
        """Write the block's values of a label; None for a row without a value."""
        self._labels[name].put(self.rows, column)

    def finish(self, places: Places, paths: Collection[str] = ()) -> Part:
        """Everything taken so far, as one `Part`; ``paths`` are the labels that the user requested."""
        columns: dict[str, dict[str, Column]] = {"reward": {}, "column": {}}
        for (kind, name), numbers in self._numbers.items():
            if numbers.twice is not None:
                raise BadRow(numbers.twice, f"{name} appears twice in one row", "expected it once")
            if numbers.has_any:
                columns[kind][name] = numbers.finish(self.rows)
        coded = {name: buffer.finish(self.rows) for name, buffer in self._labels.items()}
        labels = {name: coded[name] for name in coded if not name.startswith("raw:")}
        for path in paths:
            first, _, inner = path.partition(".")
            for name, raw, steps in ((path, f"raw:{path}", ""), (f"metadata.{path}", f"raw:metadata.{first}", inner)):
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
            before_answer=None if self._before_answer is None else self._before_answer.finish(self.rows),
        )


def _as_texts(ids: list[int | str], code: Ints) -> tuple[list[str], Ints]:
    """Ids as text, and the code of each row, [R]; 7 and "7" are one task."""
    codes = _Codes()
    table = [codes[str(task)] for task in ids]
    return list(codes), code if len(codes) == len(ids) else np.array(table)[code]


def _walk(raws: Labels, path: str) -> Labels:
    """Decode raw JSON labels and follow a dotted path into them; code -1 for a row without a value at the path."""
    values: list[Any] = []
    codes = np.full(len(raws.values) + 1, -1, dtype=np.int64)
    for code, raw in enumerate(raws.values):
        try:
            value = msgspec.json.decode(raw)
            if type(value) is int:
                float(value)
        except (msgspec.DecodeError, OverflowError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            problem = "a label is nested too deeply" if deep else "a number is out of range"
            raise BadRow(int((raws.code == code).argmax()), problem, "expected text or a number") from None
        for step in path.split(".") if path else ():
            if not isinstance(value, Mapping) or step not in value:
                break
            value = value[step]
        else:
            codes[code] = len(values)
            values.append(value)
    return Labels(codes[raws.code], values)


def _numbers(labels: Labels) -> Column | None:
    """The numbers among the labels as a column; None if no row has a number."""
    floats = [float(v) if isinstance(v, (int, float)) else np.nan for v in labels.values]
    values = np.array([*floats, np.nan])[labels.code]  # code -1 takes the last
    given = ~np.isnan(values)
    return Column(values, given) if given.any() else None
