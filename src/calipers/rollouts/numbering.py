"""Whole numbers that stand for rows: packed close, joined in pairs, put in order, without sorting where that can be.

None of the numbers is negative.
"""

from __future__ import annotations

import numpy as np

from calipers.rollouts.column import Ints

_SPARSE = 4  # so many times as many numbers as rows: then a table of all numbers costs more than sorting


def renumbered(numbers: Ints) -> Ints:
    """The same numbers without those that nobody has, in their order.

    >>> renumbered(np.array([7, 2, 7])).tolist()
    [1, 0, 1]
    """
    most = int(numbers.max(initial=0))
    if most > _SPARSE * len(numbers):
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    there = np.zeros(most + 1, dtype=bool)
    there[numbers] = True
    return (np.cumsum(there) - 1).take(numbers)


def paired(first: Ints, second: Ints) -> Ints:
    """Numbers that sort as the pairs do, and are equal where the pairs are."""
    width = int(second.max(initial=0)) + 1
    if int(first.max(initial=0)) >= 2**62 // width:
        return np.unique(np.stack([first, second]), axis=1, return_inverse=True)[1].reshape(-1)
    found = first * width
    found += second
    return found


def order_of(numbers: Ints) -> Ints | None:
    """The rows by ascending number, where no two rows share one and few numbers are left out; else None.

    A plan of so many samples for each task leaves none out, and then nothing has to be compared.

    >>> order_of(np.array([2, 0, 3])).tolist()
    [1, 0, 2]
    """
    most = int(numbers.max(initial=0))
    if most > _SPARSE * len(numbers):
        return None
    row_of = np.full(most + 1, -1, dtype=np.int64)
    row_of[numbers] = np.arange(len(numbers))
    there = row_of >= 0
    if np.count_nonzero(there) < len(numbers):
        return None
    return row_of if len(row_of) == len(numbers) else row_of[there]
