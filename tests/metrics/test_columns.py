import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import rollouts

import calipers
from calipers.metrics import largest, mean, median, percentile, pooled, smallest, spread


@pytest.mark.parametrize(("q", "expected"), [(50, 10.5), (90, 18.1), (95, 19.05), (99, 19.81), (0, 1), (100, 20)])
def test_percentiles_interpolate_linearly(q, expected):
    assert float(percentile(np.arange(1.0, 21.0), q=q)) == pytest.approx(expected)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_spread_is_the_standard_deviation_with_n_minus_1(values):
    assert float(spread(np.array(values))) == pytest.approx(statistics.stdev(values), abs=1e-9)


def test_spread_of_a_constant_is_zero_and_of_one_value_undefined():
    assert float(spread(np.full(1000, 0.1))) == 0.0  # without rounding errors
    assert math.isnan(float(spread(np.array([3.0]))))


def test_statistics_are_pooled_over_rollouts_and_leave_gaps_out():
    table = rollouts(
        {"task": "a", "sample": 0, "reward": 1, "f1": 0.5},
        {"task": "a", "sample": 1, "reward": 0, "f1": 1.5},
        {"task": "b", "reward": 1, "f1": 4},
        {"task": "c", "reward": 1},
    )
    asked = ["mean(column=f1)", "median(column=f1)", "min(column=f1)", "max(column=f1)", "sum(column=f1)"]
    result = calipers.score(table, [*asked, "std(column=f1)", "percentile(column=f1, q=75)", "mean(column=reward)"])
    found = {name: estimate.value for name, estimate in result.groups[0].metrics.items()}
    assert found == {
        "mean(column=f1)": 2.0,  # over three rollouts, not over two tasks
        "median(column=f1)": 1.5,
        "min(column=f1)": 0.5,
        "max(column=f1)": 4.0,
        "sum(column=f1)": 6.0,
        "std(column=f1)": pytest.approx(statistics.stdev([0.5, 1.5, 4])),
        "percentile(column=f1, q=75)": 2.75,
        "mean(column=reward)": 0.75,
    }
    mean = result["mean(column=f1)"]
    assert (mean.tasks, mean.samples, mean.undefined_tasks) == (2, 3, 1)


def test_a_column_nobody_has_is_an_error_with_the_nearest_name():
    with pytest.raises(calipers.InputError, match="no column of numbers named 'f2'; did you mean 'f1'"):
        calipers.score(rollouts({"task": "a", "reward": 1, "f1": 1}), "mean(column=f2)")


def test_aggregates_work_along_the_last_axis():
    rows = np.array([[1.0, 3.0, 8.0], [2.0, 2.0, 5.0]])
    assert largest(rows).tolist() == [8, 5]
    assert smallest(rows).tolist() == [1, 2]
    assert median(rows).tolist() == [3, 2]
    assert percentile(rows, q=50).tolist() == [3, 2]
    assert mean(rows).tolist() == [4, 3]
    assert spread(rows).tolist() == [
        pytest.approx(statistics.stdev([1, 3, 8])),
        pytest.approx(statistics.stdev([2, 2, 5])),
    ]
    assert np.isnan(spread(np.ones((2, 1)))).tolist() == [True, True]
    assert pooled(np.array([[[1.0, 2.0], [3.0, 2.0]], [[0.0, 1.0], [1.0, 3.0]]])).tolist() == [1.0, 0.25]


def test_a_sum_is_rounded_once_however_the_rollouts_are_shared_among_tasks():
    values = [1e16, 1.0, -1e16, 1.0]  # sums by task would lose the 1 in 1e16 + 1
    rows = [{"task": "ab"[n // 2], "sample": n % 2, "reward": 0, "x": value} for n, value in enumerate(values)]
    found = calipers.score(rollouts(*rows, {"task": "c", "reward": 0}), "sum(column=x)")["sum(column=x)"]
    assert (found.value, found.tasks, found.samples, found.undefined_tasks) == (2.0, 2, 4, 1)
