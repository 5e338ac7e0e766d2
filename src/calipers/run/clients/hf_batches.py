"""Rows for a model, cut into batches: as many at once as fit, fewer where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Row = TypeVar("Row")
Done = TypeVar("Done")


def in_batches(
    rows: Sequence[Row],
    most: int,
    fits: Callable[[Sequence[Row]], bool],
    work: Callable[[Sequence[Row]], Sequence[Done]],
) -> list[Done]:
    """What the work makes of the rows, in their order. One row alone always goes in.

    Where the device has too little memory for a batch, it is halved, and so are those after it; what
    was done of it is done again, so the work may leave no trace.

    >>> in_batches([3, 4, 5, 6], 8, lambda batch: sum(batch) <= 7, lambda batch: [batch])
    [[3, 4], [5], [6]]
    """
    done: list[Done] = []
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and stop - start < most and fits(rows[start : stop + 1]):
            stop += 1
        try:
            done += work(rows[start:stop])
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError" or stop - start == 1:
                raise
            most = (stop - start) // 2
        else:
            start = stop
    return done
