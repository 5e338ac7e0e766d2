"""Which rows belong to which task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.sums import CHUNK, exact_sum


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A partition of R rows into T tasks. Rows stand task by task, in the order of their samples."""

    code: Ints  # [R] the task of each row, ascending
    starts: Ints  # [T + 1] where each task's rows begin; a task may have none

    @classmethod
    def of(cls, code: Ints, size: int) -> Groups:
        """The partition of rows that carry these ascending codes into ``size`` tasks."""
        counts = np.bincount(code, minlength=size)
        return cls(code, np.concatenate([[0], np.cumsum(counts)]))

    @property
    def size(self) -> int:
        """T, the number of tasks."""
        return len(self.starts) - 1

    def count(self, mask: Bools) -> Ints:
        """How many rows of each task the mask marks, [T]."""
        if mask.all():
            return np.diff(self.starts)
        counts: Ints = _add(self.starts, mask).astype(np.int64)
        return counts

    def sum(self, column: Column) -> Floats:
        """The exact sum of each task's given values, [T]; 0 for a task without any."""
        values = column.values if column.given.all() else np.where(column.given, column.values, 0.0)
        most = int(np.diff(self.starts).max(initial=0))
        step = max(1, CHUNK // max(most, 1))  # tasks at a time; each task's sum stands for itself
        sums = np.empty(self.size)
        for first in range(0, self.size, step):
            starts = self.starts[first : first + step + 1]
            rows = values[starts[0] : starts[-1]]
            sums[first : first + step] = exact_sum(rows, most, partial(_add, starts - starts[0]))
        return sums

    def rank(self, mask: Bools) -> Ints:
        """For each marked row its place among the marked rows of its task, from 0; -1 elsewhere.

        >>> Groups.of(np.array([0, 0, 0, 1]), 2).rank(np.array([True, False, True, True])).tolist()
        [0, -1, 1, 0]
        """
        counts = self.count(mask)
        before = np.cumsum(counts) - counts  # marked rows in earlier tasks
        return np.where(mask, np.cumsum(mask) - 1 - before[self.code], -1)

    def blocks(self, column: Column) -> list[tuple[Ints, Floats]]:
        """The given values as matrices: for each number n of values a task has, the tasks that
        have it and their values, ``([t], [t, n])``. Tasks without values are left out.
        """
        counts = self.count(column.given)
        kept = column.kept()
        starts = np.cumsum(counts) - counts
        matrices = []
        for n in np.unique(counts[counts > 0]):
            tasks = np.flatnonzero(counts == n)
            matrices.append((tasks, kept[starts[tasks][:, None] + np.arange(n)]))
        return matrices


def _add(starts: Ints, values: Bools | Floats) -> Floats:
    """Plain sums of the stretches that begin at ``starts``, the last of which is the end."""
    sums = np.zeros(len(starts) - 1)
    filled = starts[:-1] < starts[1:]  # reduceat knows no empty stretches
    if filled.any():
        kind = np.int64 if values.dtype == bool else np.float64
        sums[filled] = np.add.reduceat(values, starts[:-1][filled], dtype=kind)
    return sums
