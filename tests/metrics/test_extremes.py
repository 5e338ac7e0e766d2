"""The bounds contain the value for every filling of the missing samples; small cases try all fillings."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import GAP, rewards

import calipers
from calipers.metrics.rewards import ANY_OF_FIRST_K, GPASS_AT_K, MAX_AT_K, MGPASS_AT_K, PASS_AT_K, PASS_HAT_K, planned

PARAMS = {"threshold": 1.0, "tau": 0.5, "short": "undefined"}
METRICS = [PASS_AT_K, PASS_HAT_K, MAX_AT_K, ANY_OF_FIRST_K, GPASS_AT_K, MGPASS_AT_K]


def settled(metric, k):
    return {"k": k, **{key: PARAMS[key] for key in metric.params if key != "k"}}


def extremes(metric, task, k, ends=(0.0, 1.0)):
    column, by = rewards(task)
    least, most = metric.extremes(column, by=by, ends=ends, **settled(metric, k))
    assert least.given.all()
    assert most.given.all()
    return float(least.values[0]), float(most.values[0])


def every_filling(metric, task, k, levels):
    """The metric of one task for every filling, up to its planned number of samples or to k."""
    whole = [*task, *[GAP] * (k - len(task))]
    holes = [place for place, reward in enumerate(whole) if reward is GAP]
    for chosen in product(levels, repeat=len(holes)):
        filled = list(whole)
        for place, reward in zip(holes, chosen, strict=True):
            filled[place] = reward
        column, by = rewards(filled)
        yield float(metric.reduce(column, by=by, **settled(metric, k)).values[0])


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@settings(max_examples=60, deadline=None)
@given(task=st.lists(st.sampled_from([GAP, 0.0, 0.5, 1.0]), max_size=4), k=st.integers(1, 4))
def test_no_filling_leaves_the_extremes_and_some_reach_them(metric, task, k):
    low, high = extremes(metric, task, k)
    found = list(every_filling(metric, task, k, (0.0, 0.5, 1.0)))
    assert (low, high) == (pytest.approx(min(found), abs=1e-12), pytest.approx(max(found), abs=1e-12))


@pytest.mark.parametrize(
    ("metric", "task", "k", "expected"),
    [
        (PASS_AT_K, [0, 1], 4, (1, 1)),  # one pass is enough, whatever the missing samples are
        (PASS_AT_K, [0, 0], 4, (0, 1)),
        (PASS_AT_K, [], 4, (0, 1)),
        (PASS_HAT_K, [1, 0], 4, (0, 0)),
        (PASS_HAT_K, [1, 1], 4, (0, 1)),
        (PASS_AT_K, [1, GAP, 0, GAP], 2, (0.5, 1)),  # planned and lost: four samples, not two
        (PASS_AT_K, [1, GAP], 4, (1, 1)),
        (MAX_AT_K, [0.3], 2, (0.3, 1)),
        (GPASS_AT_K, [1, 0], 4, (0, 1)),
        (GPASS_AT_K, [1, 1, 0], 4, (1, 1)),  # half of four samples have already passed
        (ANY_OF_FIRST_K, [0], 2, (0, 1)),
    ],
)
def test_extremes_of_one_task(metric, task, k, expected):
    assert extremes(metric, task, k) == pytest.approx(expected)


def test_an_end_of_the_range_below_the_threshold_is_no_pass():
    assert extremes(PASS_AT_K, [0.1], 2, ends=(-1.0, 0.5)) == (0, 0)


def test_many_more_samples_than_there_are_cost_nothing():
    assert extremes(PASS_AT_K, [0, 0], 10**9) == (0, 1)


def test_what_was_planned():
    assert planned(rewards([1, GAP], [], [0])[1]).tolist() == [2, 0, 1]


def test_bounds_are_over_all_tasks():
    found = calipers.score([[0, 0, 1, 0], [1], [0]], "pass@4")["pass@4"]
    assert (found.value, found.tasks, found.undefined_tasks) == (1, 1, 2)
    assert found.bounds == pytest.approx((2 / 3, 1))
    assert calipers.score([[0, 1], [0, 0]], "pass@4")["pass@4"].bounds == (0.5, 1)  # also if there is no value
    assert calipers.score([[0, 1], [0, 0]], "pass@2")["pass@2"].bounds is None


def test_a_task_that_is_judged_by_fewer_samples_lacks_none():
    """EvSys' pass@3 fails a task whose only sample failed; its bounds said that the task might pass."""
    tasks = [[0, GAP, 0], [0]]
    assert calipers.score(tasks, "pass@3", dialect="evsys")["pass@3"].bounds == (0, 0.5)
    assert calipers.score(tasks, "any_of_first_3")["any_of_first_3"].bounds == (0, 1)


def test_retried_tasks_are_bounded_by_what_they_are_known_to_be():
    stopped = [[0] * (n - 1) + [1] for n in (*[1] * 15, *[2] * 10, *[3] * 6, 4, 4, 4, 5, 5, 6, 7)]
    tasks = [*stopped, *[[0] * 7 + [1]] * 12, *[[0] * 8] * 10]
    found = calipers.score(tasks, "pass@4")["pass@4"]
    assert (found.tasks, found.undefined_tasks) == (29, 31)
    assert found.value == pytest.approx(0.408, abs=5e-4)
    assert found.bounds == pytest.approx((0.714, 0.714), abs=5e-4)
