"""The numbers of NeMo Gym's rows, a key at a time: what stood there, whether it was whole, where it was none."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from msgspec import UNSET

from calipers.readers.growing import Growing, GrowingFlags
from calipers.rollouts.column import Bools, Floats, Ints, alike

REWARD: Final = "reward"
LEAST, MOST = -(2**63), 2**64 - 1  # what 64 bits hold, with a sign or without
_EXACT = 2.0**53  # whole numbers from here on are not all doubles


@dataclass(frozen=True, slots=True)
class Cells:
    """One key of R rows. NaN under a true ``given`` is a number somebody sent."""

    values: Floats  # [R]
    given: Bools  # [R] a number stands there; true and false are 1 and 0
    whole: Bools  # [R] it was written as an integer or a boolean
    present: Bools  # [R] the key stands there, whatever its value
    odd: Mapping[int, Any] = field(default_factory=dict)  # row -> what no double can say

    def take(self, rows: Ints) -> Cells:
        """The same key over some rows, in their order."""
        odd = {}
        if self.odd:
            odd = {new: self.odd[old] for new, old in enumerate(rows.tolist()) if old in self.odd}
        given, whole, present = (_taken(mask, rows) for mask in (self.given, self.whole, self.present))
        return Cells(self.values.take(rows), given, whole, present, odd)


def _taken(mask: Bools, rows: Ints) -> Bools:
    if mask.all():
        return alike(len(rows), True)
    return mask.take(rows) if mask.any() else alike(len(rows), False)


class _Key:
    """The cells of one key in the making."""

    def __init__(self) -> None:
        self._values = Growing(np.float64)
        self._masks = [GrowingFlags() for _ in range(3)]  # given, whole, present
        self._odd: dict[int, Any] = {}

    def put(self, start: int, piece: Cells) -> None:
        self._values.put(start, piece.values)
        self._mark(start, len(piece.values), piece.given, piece.whole, piece.present)
        if piece.odd:
            self._odd.update({start + row: value for row, value in piece.odd.items()})

    def put_plain(self, start: int, column: Sequence[Any], kind: type) -> bool:
        """Take a block in which every row has a value of this one kind; False for what doubles cannot say."""
        if kind not in (float, int, bool):
            self._values.room(start, len(column))[:] = 0
            self._mark(start, len(column), False, False, True)
            return True
        try:
            values = self._values.pack(start, column)
        except (OverflowError, struct.error):  # an integer that no float can hold
            return False
        if kind is int and np.abs(values).max() >= _EXACT:
            return False
        self._mark(start, len(column), True, kind is not float, True)
        return True

    def _mark(self, start: int, size: int, *flags: Bools | bool) -> None:
        for mask, part in zip(self._masks, flags, strict=True):
            mask.put(start, size, part)

    def finish(self, rows: int) -> Cells:
        given, whole, present = (mask.finish(rows) for mask in self._masks)
        return Cells(self._values.finish(rows), given, whole, present, self._odd)


class Filling:
    """Cells in the making: a block of rows at a time. A key may start at any row."""

    def __init__(self) -> None:
        self.rows = 0
        self._keys: dict[tuple[str, str], _Key] = {}

    def take(self, where: str, name: str, column: Sequence[Any]) -> None:
        """The block's values of a key, UNSET where a row has none. ValueError(row, value) beyond 64 bits."""
        kinds = set(map(type, column))
        keep = name == REWARD and where == "top"
        nothing = where == "top" or kinds == {type(UNSET)}  # in usage a null hides what the row itself says
        if nothing and not keep and not any(issubclass(kind, (int, float)) for kind in kinds):
            return
        if (where, name) not in self._keys:
            self._keys[where, name] = _Key()
        key = self._keys[where, name]
        kind = next(iter(kinds))
        if len(kinds) > 1 or not _is_plain(kind, keep) or not key.put_plain(self.rows, column, kind):
            key.put(self.rows, _mixed(column, keep))

    def finish(self, where: str, beside: Mapping[str, Cells]) -> dict[str, Cells]:
        """Every key of that place, over all rows; one without any number only where it hides one beside."""
        found = {name: key.finish(self.rows) for (place, name), key in self._keys.items() if place == where}
        return {
            name: cells
            for name, cells in found.items()
            if cells.given.any() or (name == REWARD and where == "top") or name in beside
        }


def _is_plain(kind: type, keep: bool) -> bool:
    """Whether a block of values of this one kind needs no look at each: a subclass of a number does."""
    return kind in (int, float) or (not keep and (kind is bool or not issubclass(kind, (int, float))))


def _mixed(column: Sequence[Any], keep: bool) -> Cells:
    """Any block, value by value; ``keep`` what is no number, as it is."""
    size = len(column)
    values = np.zeros(size)
    given, whole, present = (np.zeros(size, dtype=bool) for _ in range(3))
    odd: dict[int, Any] = {}
    for row, value in enumerate(column):
        if value is UNSET:
            continue
        present[row] = True
        if isinstance(value, float):
            values[row], given[row] = value, True
        elif isinstance(value, int):
            if not LEAST <= value <= MOST:
                raise ValueError(row, value)
            values[row], given[row], whole[row] = value, True, True
            if abs(value) >= _EXACT or (keep and isinstance(value, bool)):
                odd[row] = value
        elif keep:
            odd[row] = value
    return Cells(values, given, whole, present, odd)


def joined_cells(tables: Sequence[Mapping[str, Cells]], starts: Ints) -> dict[str, Cells]:
    """The keys of several tables laid end to end, the first row of each at ``starts``."""
    found = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        key = _Key()
        for start, table in zip(starts.tolist(), tables, strict=False):
            if name in table:
                key.put(start, table[name])
        found[name] = key.finish(int(starts[-1]))
    return found
