from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards

from calipers.rollouts.column import CHUNK, FEW, sum_by, terms, total, total_of


def test_counts_and_sums_leave_gaps_out_and_keep_empty_tasks():
    column, by = rewards([1, GAP, 0.5], [], [GAP])
    assert by.count(column.given).tolist() == [2, 0, 0]
    assert by.sum(column).tolist() == [1.5, 0.0, 0.0]


def test_rank_counts_only_given_samples():
    column, by = rewards([GAP, 1, GAP, 0], [0, 1])
    assert by.rank(column.given).tolist() == [-1, 0, -1, 1, 0, 1]


def test_blocks_hold_every_task_with_values_once():
    column, by = rewards([1, 2], [], [3], [4, GAP, 5], [6])
    found = {int(task): row.tolist() for tasks, matrix in by.blocks(column) for task, row in zip(tasks, matrix)}
    assert found == {0: [1, 2], 2: [3], 3: [4, 5], 4: [6]}


def test_blocks_of_equal_tasks_are_one_matrix():
    column, by = rewards([1, 2], [3, 4])
    ((tasks, matrix),) = by.blocks(column)
    assert np.array_equal(tasks, [0, 1])
    assert matrix.tolist() == [[1, 2], [3, 4]]


FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


def both_ways(values):
    """The sum of a few values by `math.fsum`, and by folding, as a row of a matrix."""
    array = np.array(values, dtype=float)
    return [float(total(array)), float(total(array[np.newaxis])[0])]


@given(st.lists(FINITE, max_size=60))
def test_total_is_the_true_sum_rounded_once(values):
    assert both_ways(values) == [math.fsum(values)] * 2


@pytest.mark.parametrize("size", [FEW, FEW + 1, CHUNK + 1])
def test_total_of_few_and_of_many(size):
    values = np.random.default_rng(size).normal(size=size) ** 9
    assert float(total(values)) == math.fsum(values.tolist())


@given(st.lists(st.tuples(st.integers(0, 4), FINITE), max_size=60), st.randoms())
def test_sums_by_code_do_not_depend_on_order(rows, random):
    shuffled = random.sample(rows, len(rows))
    first, second = (
        sum_by(np.array([code for code, _ in some], dtype=np.int64), np.array([v for _, v in some], dtype=float), 5)
        for some in (rows, shuffled)
    )
    expected = [math.fsum(value for code, value in rows if code == task) for task in range(5)]
    assert first.tolist() == second.tolist() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0.0),
        ([1e16, 1.0, -1e16], 1.0),  # plain addition loses the 1
        ([0.1] * 10, 1.0),  # plain addition gives 0.9999999999999999
        ([-0.0], 0.0),  # never -0.0, so that equal sums have equal digests
        ([1e308, 1e308, -1e308], 1e308),  # no overflow on the way
        ([5e-324, 5e-324], 1e-323),  # the smallest numbers there are
        ([math.inf, 1.0], math.inf),
        ([2.0**-1074, 2.0**900], 2.0**900),
    ],
)
def test_total_at_the_edges(values, expected):
    assert both_ways(values) == [expected] * 2
    assert [math.copysign(1, found) for found in both_ways(values)] == [math.copysign(1, expected)] * 2


@pytest.mark.parametrize("values", [[math.nan, 1.0], [math.inf, -math.inf], [math.inf, math.nan]])
def test_total_of_what_has_no_sum(values):
    assert np.isnan(both_ways(values)).all()


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ([[1e16, 1.0], [-1e16]], 1.0),
        ([[1e308], [1e308], [-1e308]], 1e308),
        ([[1.7e308], [1.7e308]], math.inf),  # its sum is beyond all numbers
        ([[math.inf], [1.0]], math.inf),
        ([], 0.0),
    ],
)
def test_the_total_of_several_arrays(arrays, expected):
    with np.errstate(over="ignore"):
        assert total_of([term for array in arrays for term in terms(np.array(array))]) == expected


def test_nan_and_opposite_infinities_are_nan_where_they_stand_and_nowhere_else():
    sums = sum_by(np.array([0, 0, 1, 1, 2]), np.array([math.nan, 1, math.inf, -math.inf, 3.0]), 4)
    assert np.isnan(sums[:2]).all()
    assert sums[2:].tolist() == [3.0, 0.0]


def test_total_sums_the_last_axis_of_any_shape():
    values = np.array([[1e16, 1.0, -1e16], [0.1, 0.2, 0.3]])
    assert total(values).tolist() == [1.0, math.fsum([0.1, 0.2, 0.3])]
    assert total(np.zeros((2, 0))).tolist() == [0.0, 0.0]
