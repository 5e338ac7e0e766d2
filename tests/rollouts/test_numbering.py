import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.rollouts.table import order_of, paired, renumbered

NUMBERS = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**40)), max_size=30)


def ints(values):
    return np.array(values, dtype=np.int64)


@given(NUMBERS)
def test_renumbered_as_sorting_would(values):
    known = sorted(set(values))
    assert renumbered(ints(values)).tolist() == [known.index(value) for value in values]


@given(NUMBERS)
def test_an_order_is_the_one_that_sorting_gives(values):
    found = order_of(ints(values))
    if found is not None:
        assert found.tolist() == sorted(range(len(values)), key=values.__getitem__)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([3, 1, 0, 2], [2, 1, 3, 0]),
        ([6, 0, 2], [1, 2, 0]),  # some are left out
        ([1, 0, 1], None),  # two rows share a number
        ([100, 0], None),  # hardly any number has a row
    ],
)
def test_which_rows_need_no_sorting(values, expected):
    found = order_of(ints(values))
    assert (None if found is None else found.tolist()) == expected


@given(st.lists(st.tuples(st.integers(0, 2**33), st.integers(0, 2**33)), min_size=1, max_size=20))
def test_pairs_sort_as_their_numbers_do(pairs):
    first, second = ints(pairs).T
    numbers = paired(first, second).tolist()
    assert [pairs[row] for row in np.argsort(numbers, kind="stable")] == sorted(pairs)
    assert len(set(numbers)) == len(set(pairs))
