"""The numbers of NeMo Gym's rows, a key at a time: what stood there, whether it was whole, where it was none."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from calipers.rollouts.column import Bools, Floats, Ints

REWARD: Final = "reward"
LEAST, MOST = -(2**63), 2**64 - 1  # what 64 bits hold, with a sign or without
_EXACT = 2.0**53  # whole numbers from here on are not all doubles


@lru_cache(maxsize=256)
def flags(size: int, value: bool) -> Bools:
    """That many times the same flag: most columns share these, which nobody may write to."""
    found = np.full(size, value)
    found.flags.writeable = False
    return found


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
        return flags(len(rows), True)
    return mask.take(rows) if mask.any() else flags(len(rows), False)


class Growing:
    """An array that grows in place, a block of rows at a time; rows that nobody wrote are zero."""

    def __init__(self, kind: type) -> None:
        self._held: NDArray[Any] = np.zeros(0, dtype=kind)

    def put(self, start: int, values: NDArray[Any]) -> None:
        """The values of the rows from there on."""
        end = start + len(values)
        if end > len(self._held):
            self._held.resize(end + end // 4 + 4096, refcheck=False)  # nobody else holds it
        self._held[start:end] = values

    def finish(self, rows: int) -> NDArray[Any]:
        """All rows; the array is no longer its own."""
        self._held.resize(rows, refcheck=False)
        return self._held


class _Key:
    """The cells of one key in the making."""

    def __init__(self) -> None:
        self._values = Growing(np.float64)
        self._masks = [Growing(np.bool_) for _ in range(3)]
        self._odd: dict[int, Any] = {}

    def put(self, start: int, piece: Cells) -> None:
        self._values.put(start, piece.values)
        for mask, part in zip(self._masks, (piece.given, piece.whole, piece.present), strict=True):
            mask.put(start, part)
        if piece.odd:
            self._odd.update({start + row: value for row, value in piece.odd.items()})

    def finish(self, rows: int) -> Cells:
        given, whole, present = (_shared(mask.finish(rows)) for mask in self._masks)
        return Cells(self._values.finish(rows), given, whole, present, self._odd)


def _shared(mask: Bools) -> Bools:
    if mask.all():
        return flags(len(mask), True)
    return mask if mask.any() else flags(len(mask), False)


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
        piece = _plain(column, kinds, keep) or _mixed(column, keep)
        if (where, name) not in self._keys:
            self._keys[where, name] = _Key()
        self._keys[where, name].put(self.rows, piece)

    def finish(self, where: str, beside: Mapping[str, Cells]) -> dict[str, Cells]:
        """Every key of that place, over all rows; one without any number only where it hides one beside."""
        found = {name: key.finish(self.rows) for (place, name), key in self._keys.items() if place == where}
        return {
            name: cells
            for name, cells in found.items()
            if cells.given.any() or (name == REWARD and where == "top") or name in beside
        }


def _plain(column: Sequence[Any], kinds: set[type], keep: bool) -> Cells | None:
    """A block in which every row has a number of one kind, or every row something else; None for any other."""
    size = len(column)
    if len(kinds) != 1 or (keep and kinds == {bool}):
        return None
    if kinds == {float} or kinds == {int} or kinds == {bool}:
        try:  # three times as fast as np.array
            values = np.frombuffer(struct.pack(f"{size}d", *column))
        except OverflowError:
            return None
        if kinds == {int} and np.abs(values).max() >= _EXACT:
            return None
        return Cells(values, flags(size, True), flags(size, kinds != {float}), flags(size, True))
    if keep or any(issubclass(kind, (int, float)) for kind in kinds):
        return None
    return Cells(np.zeros(size), flags(size, False), flags(size, False), flags(size, True))


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
