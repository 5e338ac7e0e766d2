"""A column: numbers, and a mask of which of them exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


_ALIKE = WeakValueDictionary[tuple[int, bool], Bools]()


def alike(size: int, flag: bool) -> Bools:
    """So many times the same flag. All masks of a size share one, as long as there are any; nobody may write to it."""
    mask = _ALIKE.get((size, flag))
    if mask is None:
        _ALIKE[size, flag] = mask = np.full(size, flag)
        mask.flags.writeable = False
    return mask


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers with a mask of the ones that exist.

    A gap is a row where ``given`` is false; its value does not matter. NaN where ``given`` is true is a number from the
    input, and stays a number.
    """

    values: Floats  # [N] or [N, S]
    given: Bools  # [N]

    @classmethod
    def of(cls, values: ArrayLike, given: ArrayLike | None = None) -> Column:
        """A column of these values; without ``given``, all of them exist."""
        numbers = np.asarray(values, dtype=np.float64)
        there = alike(len(numbers), True) if given is None else np.asarray(given, dtype=bool)
        return cls(numbers, there)

    @classmethod
    def gaps(cls, rows: int) -> Column:
        """A column with gaps only."""
        return cls(np.zeros(rows), alike(rows, False))

    @classmethod
    def joined(cls, pieces: Sequence[Column]) -> Column:
        """Columns laid end to end."""
        values = np.concatenate([piece.values for piece in pieces])
        if all(piece.given.all() for piece in pieces):
            return cls(values, alike(len(values), True))
        return cls(values, np.concatenate([piece.given for piece in pieces]))

    def __len__(self) -> int:
        return len(self.given)

    def kept(self) -> Floats:
        """The values without gaps."""
        return self.values if self.given.all() else self.values[self.given]

    def take(self, rows: slice | Ints | Bools) -> Column:
        """The same column over some of its rows."""
        if isinstance(rows, np.ndarray) and rows.dtype != bool:  # several times as fast as indexing
            given = alike(len(rows), True) if self.given.all() else self.given.take(rows)
            axis = 0 if self.values.ndim > 1 else None  # None is faster, and flattens
            return Column(self.values.take(rows, axis=axis), given)
        return Column(self.values[rows], self.given[rows])

    def filled(self, value: float) -> Column:
        """The same column with every gap turned into this value."""
        return Column(np.where(self.given, self.values, value), alike(len(self), True))
