import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards

from calipers.metrics.rewards import pass_at_k, pass_hat_k
from calipers.stats.curve import beyond, later_points, max_curve, pass_curves
from calipers.stats.extrapolation import IF, extrapolate
from calipers.stats.intervals import interval


def task(n, c):
    return [1.0] * c + [0.0] * (n - c)


def values(curve):
    return [point.value for point in curve.points]


@pytest.mark.parametrize(
    ("n", "c", "k", "at", "hat"),
    [
        (10, 3, 5, 0.916667, 0),
        (200, 10, 10, 0.4085478661, None),
        (200, 10, 100, 0.9992289739, None),
        (8, 3, 4, 0.928571, 0),
        (5, 2, 3, 0.9, 0),
        (100, 1, 10, 0.1, 0),
        (64, 32, 8, None, 0.0023763911),
        (10, 7, 4, None, 0.166667),
    ],
)
def test_anchors(n, c, k, at, hat):
    found = pass_curves(*rewards(task(n, c)))
    for curve, expected in zip(found, (at, hat)):
        if expected is not None:
            assert curve.points[k - 1].value == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), min_size=1, max_size=12))
def test_every_point_is_the_metric_itself_to_the_last_bit(pairs):
    made = rewards(*(task(n, c) for c, n in pairs))
    for curve, metric in zip(pass_curves(*made), (pass_at_k, pass_hat_k)):
        assert len(curve.points) == max(n for _, n in pairs)
        for point in curve.points:
            reduced = metric(*made, k=point.k, threshold=1.0)
            assert point.value == math.fsum(reduced.kept()) / len(reduced.kept())
            assert point.tasks == reduced.given.sum()
            expected = interval(reduced.kept(), np.ones(point.tasks), 0.95, (0.0, 1.0))
            assert (point.interval, point.why) == (expected.ends, expected.why)


def test_a_task_with_fewer_samples_leaves():
    """It is not solved for want of failures: with two failures of two, pass@3 is unknown, not 1."""
    at, hat = pass_curves(*rewards([0, 0], [1, 0, 0], [0, 1, 1, GAP]))
    assert [point.tasks for point in at.points] == [3, 3, 2]
    assert (at.points[2].value, hat.points[2].value) == (1, 0)


def test_nothing_sampled_has_no_points():
    for curve in pass_curves(*rewards([GAP], [GAP])):
        assert curve.points == ()


def test_one_task_has_a_line_and_no_band():
    point = pass_curves(*rewards([1, 0]))[0].points[1]
    assert (point.value, point.interval, point.why) == (1, None, "one task says nothing about others")


def test_clusters_widen_the_band():
    made = rewards(*[task(4, 2 * (number // 5 % 2)) for number in range(30)])
    tasks, whole = (pass_curves(*made, clusters)[0].points[0] for clusters in (None, np.arange(30) // 5))
    assert whole.interval[1] - whole.interval[0] > tasks.interval[1] - tasks.interval[0]


def test_beyond_the_samples_the_law_speaks_and_says_what_it_assumes():
    n, c = np.full(100, 4), np.repeat(np.arange(5), [40, 12, 10, 13, 25])
    at, hat, found = later_points(n, c, [8, 16, 64])
    assert [point.k for point in at] == [8, 16, 64]
    assert at[1].value == pytest.approx(0.700337, abs=1e-6)
    assert all(point.model_based and point.assumes == IF and point.tasks == 100 for point in (*at, *hat))
    assert all(point.interval[0] < point.value < point.interval[1] for point in (*at, *hat))
    assert [point.value for point in at] == sorted(point.value for point in at)  # more samples, more passes
    assert [point.value for point in hat] == sorted((point.value for point in hat), reverse=True)
    assert at[2].interval == extrapolate(n, c, [64]).points["pass@k", 64].ends
    assert found.law.never_solved == pytest.approx(0.189912, abs=1e-5)


@pytest.mark.parametrize(
    ("tasks", "k", "why"),
    [
        ([(5, 2), (5, 0), (5, 5)], 20, "3 tasks; at least 30 are needed to fit a law of chances"),
        ([(4, c) for c in range(5)] * 6 + [(0, 0)], 65, "k is above 64, 16 times the 4 samples of a task"),
    ],
)
def test_a_refused_point_has_no_value_and_says_why(tasks, k, why):
    n, c = np.array(tasks).T
    for points in later_points(n, c, [k])[:2]:
        (point,) = points
        assert (point.value, point.stderr, point.interval) == (None, None, None)
        assert (point.model_based, point.assumes, point.why) == (True, None, why)


def test_the_curve_goes_on_at_powers_of_two():
    assert beyond(5, 20) == [8, 16, 20]
    assert beyond(5, 64) == [8, 16, 32, 64]
    assert beyond(5, 5) == []
    assert beyond(5, None) == []


def test_max_at_k():
    """The expected best, not the best of those that came first."""
    made = rewards([0.1, 0.4, 0.4, 0.9], [0.9, 0.4, 0.4, 0.1])
    assert values(max_curve(*made, limits=(0.0, 1.0))) == pytest.approx([0.45, 0.65, 0.775, 0.9])
    free = max_curve(*rewards([1, 5], [2, 3]), limits=None).points
    assert (free[0].value, free[1].value) == (2.75, 4)
    assert free[1].interval[1] > 5  # no range, no clipping
