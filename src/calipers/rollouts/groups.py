"""Which rows belong to which task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.sums import sum_by


@dataclass(frozen=True, slots=True)
class Groups:
    """A partition of R rows into T tasks. Rows stand task by task, in the order of their samples."""

    code: Ints  # [R], ascending, in 0..size-1
    size: int  # T; a task may have no rows

    def count(self, mask: Bools) -> Ints:
        """How many rows of each task the mask marks, [T]."""
        rows = self.code if mask.all() else self.code[mask]
        return np.bincount(rows, minlength=self.size)

    def sum(self, column: Column) -> Floats:
        """The exact sum of each task's given values, [T]; 0 for a task without any."""
        if column.given.all():
            return sum_by(self.code, column.values, self.size)
        return sum_by(self.code[column.given], column.values[column.given], self.size)

    def rank(self, mask: Bools) -> Ints:
        """For each marked row its place among the marked rows of its task, from 0; -1 elsewhere.

        >>> Groups(np.array([0, 0, 0, 1]), 2).rank(np.array([True, False, True, True])).tolist()
        [0, -1, 1, 0]
        """
        counts = self.count(mask)
        before = np.cumsum(counts) - counts  # marked rows in earlier tasks
        place = np.cumsum(mask) - 1 - before[self.code]
        return np.where(mask, place, -1)

    def blocks(self, column: Column) -> list[tuple[Ints, Floats]]:
        """The given values as matrices: for each number n of values a task has, the tasks that
        have it and their values, ``([t], [t, n])``. Tasks without values are left out."""
        counts = self.count(column.given)
        kept = column.kept()
        starts = np.cumsum(counts) - counts
        found = []
        for n in np.unique(counts[counts > 0]):
            tasks = np.flatnonzero(counts == n)
            if len(tasks) == self.size:
                found.append((tasks, kept.reshape(-1, n)))
            else:
                found.append((tasks, kept[starts[tasks][:, None] + np.arange(n)]))
        return found
