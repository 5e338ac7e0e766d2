"""Columns (numbers with a mask of the values that exist), groups (the rows of each task), and exact sums.

The sums are the same for any row order, split into files or interpreter, although a float sum depends on the order of
its terms. Every value is split by folding: adding and subtracting a large ``sigma`` leaves the part of the value that
lies on a coarse grid. Numbers on one grid add up without rounding, so their sum is exact in any order. The remainder
of the fold is folded again, until it is zero (two folds in practice). The float sum of two exact fold sums is the
correctly rounded total; more than two are added with `math.fsum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


_ALIKE = WeakValueDictionary[tuple[int, bool], Bools]()


def alike(size: int, flag: bool) -> Bools:
    """A read-only mask of ``size`` equal flags. Masks of equal size and flag share one array while one is in use."""
    mask = _ALIKE.get((size, flag))
    if mask is None:
        _ALIKE[size, flag] = mask = np.full(size, flag)
        mask.flags.writeable = False
    return mask


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers with a mask of the ones that exist.

    A gap is a row where ``given`` is false; its value does not matter. A NaN where ``given`` is true is a value from
    the input and is kept.
    """

    values: Floats  # [N] or [N, S]
    given: Bools  # [N]

    @classmethod
    def of(cls, values: ArrayLike, given: ArrayLike | None = None) -> Column:
        """A column of these values; without ``given``, all of them exist."""
        numbers = np.asarray(values, dtype=np.float64)
        mask = alike(len(numbers), True) if given is None else np.asarray(given, dtype=bool)
        return cls(numbers, mask)

    @classmethod
    def gaps(cls, rows: int) -> Column:
        """A column of gaps."""
        return cls(np.zeros(rows), alike(rows, False))

    @classmethod
    def joined(cls, pieces: Sequence[Column], buffer: Floats | None = None) -> Column:
        """Columns laid end to end, in new memory, or in a buffer for their values, [N]."""
        values = np.concatenate([piece.values for piece in pieces], out=buffer)
        if all(piece.given.all() for piece in pieces):
            return cls(values, alike(len(values), True))
        return cls(values, np.concatenate([piece.given for piece in pieces]))

    def __len__(self) -> int:
        return len(self.given)

    def kept(self) -> Floats:
        """The values without gaps."""
        return self.values if self.given.all() else self.values[self.given]

    def take(self, rows: slice | Ints | Bools) -> Column:
        """The column restricted to these rows."""
        if isinstance(rows, np.ndarray) and rows.dtype != bool:  # several times as fast as indexing
            given = alike(len(rows), True) if self.given.all() else self.given.take(rows)
            axis = 0 if self.values.ndim > 1 else None  # None is faster, and flattens
            return Column(self.values.take(rows, axis=axis), given)
        return Column(self.values[rows], self.given[rows])

    def filled(self, value: float) -> Column:
        """The column with every gap replaced by ``value``."""
        return Column(np.where(self.given, self.values, value), alike(len(self), True))


CHUNK = 1 << 17  # values folded at once, so that they stay in the processor's cache
FEW = 256  # up to this many values, `math.fsum` is faster than folding; it also rounds the true sum once
_HUGE = 2.0**1000  # above this, sigma itself would overflow, so values are first scaled by a power of two
Add = Callable[[Floats], Floats]
"""A function that adds a fold up with plain sums, in total or per task."""


def sum_by(code: Ints, values: Floats, size: int) -> Floats:
    """The exact sum of the values of each code, [size]; 0 for a code without values.

    NaN and infinities propagate as in ordinary addition, within their own code only.
    """
    most = int(np.bincount(code, minlength=1).max()) if len(code) else 0
    return total(values, most, lambda part: np.bincount(code, part, size).astype(np.float64, copy=False))


_ADD_LAST: Add = partial(np.sum, axis=-1)


def terms(values: Floats) -> list[float]:
    """A few numbers with the same exact sum as the values, [N]; `total_of` adds the terms of several arrays."""
    folds = _folds_of_chunks(values)
    return [float(total(values))] if folds is None else folds


def total_of(sums: Sequence[float]) -> float:
    """The exact sum of numbers from `terms`, rounded once; NaN and infinities propagate as in ordinary addition."""
    return float(total(np.asarray(sums)))


def total(values: Floats, most: int | None = None, add: Add = _ADD_LAST) -> Floats:
    """The exact sum along the last axis, ``[..., N] -> [...]``; 0 if there are no values.

    ``values`` are folded, ``add`` adds each fold up (by default along the last axis), and the sums of the folds are
    added. ``most`` is the largest number of terms in one of the sums of ``add``.

    >>> float(total(np.array([1e16, 1.0, -1e16])))
    1.0
    """
    if add is _ADD_LAST and values.ndim == 1 and values.size <= FEW:
        try:
            return np.asarray(math.fsum(values.tolist()) + 0.0)
        except (ValueError, OverflowError):  # infinities of both signs; an intermediate sum beyond the largest float
            pass
    if add is _ADD_LAST and values.ndim == 1 and values.size > CHUNK:
        sums = _folds_of_chunks(values)
        if sums is not None:
            return np.asarray(math.fsum(sums) + 0.0)
    biggest = _size(values)
    most = values.shape[-1] if most is None else most
    if not math.isfinite(biggest):
        return _with_infinities(values, most, add)
    if biggest > _HUGE:
        return np.ldexp(total(np.ldexp(values, -64), most, add), 64)
    folds = _folds(values, most, add, biggest)
    if len(folds) <= 2:
        return sum(folds[1:], start=folds[0]) + 0.0
    stacked = np.stack(folds, axis=-1).reshape(-1, len(folds))
    joined = np.array([math.fsum(row) for row in stacked.tolist()])
    return joined.reshape(folds[0].shape) + 0.0


def _folds_of_chunks(values: Floats) -> list[float] | None:
    """Exact partial sums of values, [N], a chunk at a time; None if one of the values is not finite, or is huge."""
    chunks = [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]
    sizes = [*map(_size, chunks)]
    if not all(size <= _HUGE for size in sizes):
        return None
    each = zip(chunks, sizes, strict=True)
    return [float(fold) for chunk, size in each for fold in _folds(chunk, CHUNK, _ADD_LAST, size)]


def _folds(values: Floats, most: int, add: Add, biggest: float) -> list[Floats]:
    """Exact partial sums of finite values, one per fold, which add up to the true sum; ``biggest`` is their `_size`."""
    if biggest == 0.0:
        return [add(values)]
    bits = max(most - 1, 1).bit_length() + 1
    folds = []
    remainder = values
    while biggest > 0.0:
        sigma = math.ldexp(1.5, math.frexp(biggest)[1] + bits)
        high = remainder + sigma
        high -= sigma
        folds.append(add(high))
        remainder = remainder - high
        biggest = max(float(remainder.max(initial=0.0)), -float(remainder.min(initial=0.0)))
    return folds


def _size(values: Floats) -> float:
    """The largest absolute value; NaN if a value is NaN, 0 if there are no values."""
    least, most = values.min(initial=0.0), values.max(initial=0.0)  # np.abs would copy the array
    return float(np.maximum(most, -least))


def _with_infinities(values: Floats, most: int, add: Add) -> Floats:
    """As `total`: the exact sum of the finite values, plus the plain sum of NaN and infinities."""
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, as it should be
        nonfinite = add(np.where(finite, 0.0, values))
        return total(np.where(finite, values, 0.0), most, add) + nonfinite


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A partition of R rows into T tasks. Rows are sorted by task, then by sample."""

    code: Ints  # [R] the task of each row, ascending
    starts: Ints  # [T + 1] the first row of each task, then R; a task may have no rows

    @classmethod
    def of(cls, code: Ints, size: int) -> Groups:
        """The partition of rows into ``size`` tasks, by the ascending task code of each row."""
        counts = np.bincount(code, minlength=size)
        return cls(code, starts_of(counts))

    @property
    def size(self) -> int:
        """T, the number of tasks."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> Ints:
        """The number of rows of each task, [T]."""
        return self.starts[1:] - self.starts[:-1]

    def count(self, mask: Bools) -> Ints:
        """The number of marked rows of each task, [T]."""
        if mask.all():
            return self.sizes
        counts: Ints = _add(self.starts, mask).astype(np.int64)
        return counts

    def sum(self, column: Column) -> Floats:
        """The exact sum of each task's given values, [T]; 0 for a task without values."""
        values = column.values if column.given.all() else np.where(column.given, column.values, 0.0)
        most = int(self.sizes.max(initial=0))
        step = max(1, CHUNK // max(most, 1))  # tasks per chunk; the sum of a task does not depend on the others
        sums = np.empty(self.size)
        for first in range(0, self.size, step):
            starts = self.starts[first : first + step + 1]
            rows = values[starts[0] : starts[-1]]
            sums[first : first + step] = total(rows, most, partial(_add, starts - starts[0]))
        return sums

    def rank(self, mask: Bools) -> Ints:
        """The index of each marked row among the marked rows of its task, from 0; -1 for other rows.

        >>> Groups.of(np.array([0, 0, 0, 1]), 2).rank(np.array([True, False, True, True])).tolist()
        [0, -1, 1, 0]
        """
        counts = self.count(mask)
        before = np.cumsum(counts) - counts  # marked rows in earlier tasks
        return np.where(mask, np.cumsum(mask) - 1 - before[self.code], -1)

    def blocks(self, column: Column) -> list[tuple[Ints, Floats]]:
        """The given values as one matrix for each number of values per task.

        For each n that occurs, the pair ``([t], [t, n])``: the tasks that have n values, and their values. Tasks
        without values are excluded.
        """
        counts = self.count(column.given)
        kept = column.kept()
        starts = np.cumsum(counts) - counts
        matrices = []
        for n in np.unique(counts[counts > 0]):
            tasks = np.flatnonzero(counts == n)
            matrices.append((tasks, kept[starts[tasks][:, None] + np.arange(n)]))
        return matrices


def starts_of(sizes: Ints) -> Ints:
    """The start of each of N consecutive segments of these sizes, and the end of the last, [N + 1].

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])


NO_ROWS = Groups(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
"""The partition of no rows into no tasks."""


def _add(starts: Ints, values: Bools | Floats) -> Floats:
    """Plain sums of the segments given by ``starts`` (as `starts_of` returns them)."""
    filled = starts[:-1] < starts[1:]  # reduceat cannot handle empty segments
    kind = np.int64 if values.dtype == bool else np.float64
    if len(filled) and filled.all():
        return np.add.reduceat(values, starts[:-1], dtype=kind).astype(np.float64, copy=False)
    sums = np.zeros(len(starts) - 1)
    if filled.any():
        sums[filled] = np.add.reduceat(values, starts[:-1][filled], dtype=kind)
    return sums
