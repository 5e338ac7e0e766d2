"""The output of a reader: the rows of one file, as columns, before they are joined and checked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.stop import Stop


class BadRow(Exception):
    """A row that cannot be: (its place among the rows, what is wrong, what would be right)."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of JSON values, each distinct one kept once."""

    code: Ints  # [R]; -1 where the row has none
    values: Sequence[Any]  # the distinct values, by code

    def take(self, rows: slice | Ints | Bools) -> Labels:
        """The same labels over some of the rows."""
        return Labels(self.code[rows], self.values)


@dataclass(frozen=True, slots=True)
class Places:
    """Where each row of a file stood, remembered a block at a time."""

    path: str
    unit: str = ""  # "" for text lines (path:17), else a word ("row": path:row 17)
    blocks: list[tuple[int, int | Ints]] = field(default_factory=list)  # (first row, first line | all lines)

    def add(self, first_row: int, lines: int | Ints) -> None:
        """Rows from here on stand on these lines, or on this line and the ones after it."""
        self.blocks.append((first_row, lines))

    def of(self, row: int) -> str:
        """``path:line`` of a row."""
        first, lines = self.blocks[bisect_right(self.blocks, row, key=lambda block: block[0]) - 1]
        line = lines + row - first if isinstance(lines, int) else int(lines[row - first])
        return f"{self.path}:{self.unit}{line}"

    def lines(self, rows: int) -> Ints:
        """The line of each of so many rows."""
        firsts = [*(first for first, _ in self.blocks), rows]
        each = [
            np.arange(lines, lines + firsts[at + 1] - first) if isinstance(lines, int) else lines
            for at, (first, lines) in enumerate(self.blocks)
        ]
        return np.concatenate(each) if each else np.zeros(0, dtype=np.int64)

    def shifted(self, lines: int) -> Places:
        """The same places when ``lines`` more lines stand before them."""
        return Places(self.path, self.unit, [(first, at + lines) for first, at in self.blocks])


@dataclass(frozen=True, slots=True)
class Part:
    """R rows of one file. Columns that a file does not have are simply absent here."""

    places: Places
    tasks: Sequence[str]  # the distinct ids, by code
    task: Ints  # [R] codes into tasks
    sample: Ints  # [R]
    attempt: Ints  # [R]
    outcome: NDArray[np.uint8]  # [R] codes of record.OUTCOMES, or UNSTATED
    rewards: dict[str, Column] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)  # agent, model, dataset and what was asked for
    planned_from: str = "rows"  # what says which rollouts were planned
    named: frozenset[str] = frozenset()  # of the keys that --columns names, those some row has
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (dataset, task) -> that of its content
    others: Sequence[str] = ()  # keys without a role, where no row has a reward: one of them may be it
    notes: Sequence[str] = ()  # what the reader passed over, for the user
    stop: Stop | None = None  # of the run that the file is of, where its own results ended it
    # [R] among all rows of all parts, where rows do not stand in the order in which their tasks were begun
    turn: Floats | None = None

    rollout_ids: Ints | None = None  # [R] a hash of the id that the file gives each rollout, -1 where it gives none
    headline: str = ""  # the reward to read where nobody picks one; "" for `reward`, or each
    unnumbered: bool = False  # the file has no sample numbers: they are given in order of appearance

    def __len__(self) -> int:
        return len(self.task)
