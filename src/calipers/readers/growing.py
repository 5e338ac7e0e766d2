"""Arrays in the making: they grow in place, a block of rows at a time, so that no row is copied twice."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.rollouts.column import Bools, alike


class Growing:
    """An array that grows in place; rows that nobody wrote hold ``fill``."""

    def __init__(self, kind: type, fill: int = 0) -> None:
        self._held: NDArray[Any] = np.zeros(0, dtype=kind)
        self.fill = fill
        self._end = 0  # the first row that nobody wrote to, nor to any after it

    def room(self, start: int, size: int) -> NDArray[Any]:
        """So many rows from there on, to be written to before anything else is asked for."""
        end = start + size
        if end > len(self._held):
            self._held.resize(end + end // 4 + 4096, refcheck=False)  # nobody else holds it
        if start > self._end:
            self._held[self._end : start] = self.fill
        self._end = max(self._end, end)
        return self._held[start:end]

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
        self._held.resize(rows, refcheck=False)
        if self._end < rows and self.fill:
            self._held[self._end :] = self.fill
        return self._held


class GrowingFlags:
    """Flags in the making: as long as all rows are alike, a single one. Rows that nobody wrote are false."""

    def __init__(self) -> None:
        self._flag, self._alike = False, 0  # so many rows from the first hold this flag
        self._held: Growing | None = None  # once they are not alike

    def put(self, start: int, size: int, flags: Bools | bool) -> None:
        """The flags of so many rows from there on, or the flag of all of them."""
        if self._held is None and start == self._alike and (flags is self._flag or (not start and flags is True)):
            self._flag, self._alike = bool(flags), start + size
        else:
            self.room(start, size)[:] = flags

    def room(self, start: int, size: int) -> Bools:
        """So many rows from there on, to be looked at and written to."""
        return self._grown().room(start, size)

    def _grown(self) -> Growing:
        if self._held is None:
            self._held = Growing(np.bool_)
            self._held.room(0, self._alike)[:] = self._flag
        return self._held

    def finish(self, rows: int) -> Bools:
        """All rows; those of one kind are shared, and nobody may write to them."""
        if self._held is None and (self._alike == rows or not self._flag):
            return alike(rows, self._flag)
        found = self._grown().finish(rows)
        if found.all():
            return alike(rows, True)
        return found if found.any() else alike(rows, False)
