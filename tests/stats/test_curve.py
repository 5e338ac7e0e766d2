import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards

from calipers.metrics.rewards import pass_at_k, pass_hat_k
from calipers.stats.curve import beyond, max_curve, pass_curves, posterior_points
from calipers.stats.interval import interval


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
    for curve in pass_curves(*rewards([GAP], [GAP]), upto=8):
        assert curve.points == ()


def test_one_task_has_a_line_and_no_band():
    point = pass_curves(*rewards([1, 0]))[0].points[1]
    assert (point.value, point.interval, point.why) == (1, None, "one task says nothing about others")


def test_clusters_widen_the_band():
    made = rewards(*[task(4, 2 * (number // 5 % 2)) for number in range(30)])
    tasks, whole = (pass_curves(*made, clusters)[0].points[0] for clusters in (None, np.arange(30) // 5))
    assert whole.interval[1] - whole.interval[0] > tasks.interval[1] - tasks.interval[0]


@pytest.mark.parametrize(
    ("metric", "n", "c", "k", "value"),
    [
        ("pass@k", 10, 3, 5, 0.818681),
        ("pass@k", 10, 0, 5, 0.3125),  # not 0
        ("pass^k", 10, 10, 5, 0.6875),  # not 1
        ("pass@k", 10, 3, 100, 0.999945),
    ],
)
def test_beyond_the_samples_a_model_speaks(metric, n, c, k, value):
    (point,) = posterior_points(metric, np.array([n, n]), np.array([c, c]), [k])
    assert point.value == pytest.approx(value, abs=1e-6)
    assert point.model_based
    assert point.interval[0] < point.value < point.interval[1]


def test_the_curve_goes_on_and_says_so():
    at, hat = pass_curves(*rewards(task(5, 2), task(5, 0), task(5, 5)), upto=20)
    assert [point.k for point in at.points] == [1, 2, 3, 4, 5, 8, 16, 20]
    assert [point.model_based for point in at.points] == [False] * 5 + [True] * 3
    later = values(at)[5:]
    assert later == sorted(later)  # more samples, more passes
    assert values(hat)[5:] == sorted(values(hat)[5:], reverse=True)
    assert beyond(5, 5) == []
    assert beyond(5, None) == []


def test_the_posterior_adds_its_own_doubt():
    """Thirty tasks with two samples each: what a third would say is a guess, with two thousand it is not."""
    few, many = (posterior_points("pass@k", np.full(30, n), np.full(30, n // 2), [1])[0] for n in (2, 2000))
    assert (few.value, many.value) == pytest.approx((0.5, 0.5))
    assert few.stderr > 10 * many.stderr


def test_max_at_k():
    """The expected best, not the best of those that came first."""
    made = rewards([0.1, 0.4, 0.4, 0.9], [0.9, 0.4, 0.4, 0.1])
    assert values(max_curve(*made, limits=(0.0, 1.0))) == pytest.approx([0.45, 0.65, 0.775, 0.9])
    free = max_curve(*rewards([1, 5], [2, 3]), limits=None).points
    assert (free[0].value, free[1].value) == (2.75, 4)
    assert free[1].interval[1] > 5  # no range, no clipping
