import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards

from calipers.rollouts.column import Column
from calipers.stats.curve import first_success


def test_one_task_by_hand():
    """One pass of three: it comes first, second or third alike, and giving up after two misses it once in three."""
    found = first_success(rewards([1, 0, 0])[0], Column.of([5.0, 1, 3]), rewards([1, 0, 0])[1])
    assert [point.solved for point in found] == pytest.approx([1 / 3, 2 / 3, 1])
    assert [point.tries for point in found] == pytest.approx([1, 5 / 3, 2])
    assert found[2].cost == pytest.approx(5 + 1 * 2)  # the pass, and one failure at the mean of 1 and 3
    assert found[0].cost == pytest.approx(1 / 3 * 5 + 2 / 3 * 2)
    assert found[0].cost_per_success == pytest.approx(3 * found[0].cost)


def test_a_task_that_is_never_solved_costs_every_try():
    column, by = rewards([0, 0], [1, 1])
    found = first_success(column, Column.of([1.0, 1, 1, 1]), by)
    assert (found[1].solved, found[1].tries, found[1].cost, found[1].cost_per_success) == (0.5, 1.5, 1.5, 3)
    hopeless = first_success(*(rewards([0, 0])[0], Column.of([1.0, 1])), rewards([0, 0])[1])
    assert (hopeless[1].cost, hopeless[1].cost_per_success) == (2, None)


def test_a_cost_that_is_needed_must_be_known():
    column, by = rewards([1, 0], [1, 1])
    known = Column.of([1.0, 0, 1, 1], [True, False, True, True])
    assert [point.cost for point in first_success(column, known, by)] == [None, None]  # what does a failure cost?
    assert first_success(column, None, by)[0].cost is None
    extra = Column.of([0.0, 2, 1, 1], [False, True, True, True])
    assert first_success(rewards([0, 0], [1, 1])[0], extra, by)[0].cost == 1.5  # a mean without the gap


@pytest.mark.parametrize("cost", [np.nan, np.inf, 1.7e308])
def test_a_cost_that_is_no_finite_number_is_none(cost):
    """A Parquet file may have one; the digest of its curves ended as a bug."""
    column, by = rewards([0, 0], [1, 1])
    with np.errstate(over="ignore"):
        found = first_success(column, Column.of([cost, cost, 1, 1]), by)
    assert [(point.cost, point.cost_per_success) for point in found] == [(None, None)] * 2


def test_tasks_with_fewer_samples_leave():
    column, by = rewards([1], [0, 1])
    assert [point.tasks for point in first_success(column, None, by)] == [2, 1]
    assert first_success(*(rewards([GAP])[0], None), rewards([GAP])[1]) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=6))
def test_by_trying_in_every_order(samples):
    passes, costs = ([float(column) for column in part] for part in zip(*samples))
    found = first_success(*(rewards(passes)[0], Column.of(costs)), rewards(passes)[1])
    for point in found:
        spent, tries = [], []
        for order in itertools.permutations(range(len(samples))):
            until = next((place + 1 for place, row in enumerate(order) if passes[row]), len(order))
            tried = order[: min(until, point.k)]
            spent.append(sum(costs[row] for row in tried))
            tries.append(len(tried))
        assert (point.tries, point.cost) == pytest.approx((np.mean(tries), np.mean(spent)))
