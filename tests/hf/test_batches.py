"""Batches by size, by room, and by the device's memory; these tests do not need torch."""

import pytest

from calipers.clients.huggingface.batches import in_batches
from calipers.clients.huggingface.score import windows


class OutOfMemoryError(RuntimeError):
    """An error with the name of torch's."""


def anything(first):
    """A batch that accepts every row."""
    return lambda row: True


@pytest.mark.parametrize(
    ("rows", "most", "largest", "sizes"),
    [
        ([], 4, 99, []),
        ([1] * 5, 2, 99, [2, 2, 1]),
        ([9, 1, 1], 3, 8, [1, 2]),  # a row that never fits is alone
    ],
)
def test_sizes(rows, most, largest, sizes):
    seen = []

    def begin(first):
        total = [first]
        return lambda row: total.append(row) or sum(total) <= largest

    assert in_batches(rows, most, begin, lambda batch: seen.append(len(batch)) or batch) == rows
    assert seen == sizes


def test_memory_that_runs_out_halves_the_batch():
    tried = []

    def work(batch):
        tried.append(len(batch))
        if len(batch) > 2:
            raise OutOfMemoryError("CUDA out of memory")
        return batch

    assert in_batches(list(range(9)), 8, anything, work) == list(range(9))
    assert tried == [8, 4, 2, 2, 2, 2, 1]  # a size that did not fit is not tried again


@pytest.mark.parametrize("error", [OutOfMemoryError("one row is too much"), RuntimeError("of another kind")])
def test_errors_that_halving_does_not_mend(error):
    def work(batch):
        raise error

    with pytest.raises(RuntimeError) as raised:
        in_batches([1], 8, anything, work)
    assert raised.value is error


@pytest.mark.parametrize(
    ("length", "longest", "expected"),
    [
        (1, 4, [((0,), (1,))]),
        (4, 4, [((0,), (1, 2, 3, 4))]),
        (5, 4, [((0,), (1, 2, 3, 4)), ((1, 2, 3, 4), (5,))]),  # the last window begins as early as possible
        (8, 4, [((0,), (1, 2, 3, 4)), ((4,), (5, 6, 7, 8))]),
        (3, 1, [((0,), (1,)), ((1,), (2,)), ((2,), (3,))]),
    ],
)
def test_windows(length, longest, expected):
    found = list(windows(range(1, length + 1), 0, longest))
    assert [(span.context, span.scored) for span in found] == expected
    assert all(len(span.read) <= longest for span in found)
