"""A known range of rewards: intervals, bounds and tests that need one."""

import numpy as np
import pytest
from making import rollouts

import calipers
from calipers.errors import InputError
from calipers.stats.intervals import interval

TASKS = [[-1, 2], [0, 2], [2, 2], [-1, -1], [0.5, 0]]


def test_rewards_outside_0_and_1_get_the_default_interval():
    means = np.array([np.mean(task) for task in TASKS])
    unknown, known = (calipers.score(TASKS, "mean_reward", range=ends)["mean_reward"] for ends in (None, (-1, 2)))
    assert (unknown.method, known.method) == ("t", "wilson_t")
    expected = interval(means, np.ones(5), 0.95, (-1.0, 2.0))
    assert (known.interval, known.stderr) == (pytest.approx(expected.ends), pytest.approx(expected.stderr))
    assert known.value == unknown.value
    assert "|range:-1,2|" in known.signature
    assert "range:" not in unknown.signature


def test_scaled_rewards_get_the_scaled_interval():
    unit = [[0.1, 0.4], [0.2, 0.9], [0.7, 1.0], [0.0, 0.3]]
    wide = [[10 * reward - 5 for reward in task] for task in unit]
    small, large = (
        calipers.score(tasks, "max@2", range=ends)["max@2"] for tasks, ends in ((unit, None), (wide, (-5, 5)))
    )
    assert large.interval == pytest.approx([10 * end - 5 for end in small.interval])


@pytest.mark.parametrize(("ends", "bound"), [((0, 1e151), "at most 1e\\+150"), ((0, 1e-280), "at least 1e-150")])
def test_a_range_whose_square_is_no_number_is_refused(ends, bound):
    """The strict test of two equal runs divided by the square."""
    with pytest.raises(InputError, match=f"expected ends that are {bound} apart"):
        calipers.compare([[0], [0]], [[0], [0]], metrics="mean_reward", range=ends, test="strict")


def test_methods_that_need_a_range_have_one():
    found = calipers.score(TASKS, "mean_reward", range=(-1, 2), interval="clopper-pearson")["mean_reward"]
    assert found.method == "clopper-pearson"


def test_bounds_fill_gaps_with_the_ends_of_the_range():
    rows = [{"task": "a", "reward": 2}, {"task": "b", "outcome": "not_run"}]
    assert calipers.score(rollouts(*rows), "mean_reward")["mean_reward"].bounds is None
    assert calipers.score(rollouts(*rows), "mean_reward", range=(-1, 2))["mean_reward"].bounds == (0.5, 2)
    assert calipers.score([[-1], [0.5]], "max@2", range=(-1, 2))["max@2"].bounds == (-0.25, 2)


def test_the_same_value_everywhere_has_an_interval_once_the_range_is_known():
    assert calipers.score([[3]] * 5, "mean_reward")["mean_reward"].interval is None
    low, high = calipers.score([[3]] * 5, "mean_reward", range=(0, 5))["mean_reward"].interval
    assert 0 < low < 3 < high < 5


def test_a_vote_without_votes_counts_0_whatever_the_range():
    rows = [
        {"task": "a", "reward": 2, "answer": 1},
        {"task": "b", "reward": 2},
        {"task": "c", "reward": 3, "answer": 1},
    ]
    found = calipers.score(rollouts(*rows, labels=["answer"]), "maj@1", range=(2, 5))["maj@1"]
    assert found.value == pytest.approx(5 / 3)
    assert 0 <= found.interval[0] < found.value < found.interval[1] <= 5


@pytest.mark.parametrize(
    ("tasks", "options", "said"),
    [
        (TASKS, {"range": (0, 2)}, "task '0' sample 0: reward is -1; expected 0 to 2, the given --range"),
        (TASKS, {"range": (2, 0)}, "range is 2,0; expected two numbers, the lower one first, such as -1,1"),
        (TASKS, {"range": (0, float("inf"))}, "range is 0,inf; expected two numbers"),
        (TASKS, {"range": (1, 2, 3)}, "range is (1, 2, 3); expected the lowest and the highest reward"),
        (TASKS, {"range": (-1e308, 1e308)}, "range is -1e+308,1e+308; expected two numbers"),
        (TASKS, {"range": 3}, "range is 3; expected the lowest and the highest reward"),
    ],
)
def test_what_cannot_be(tasks, options, said):
    with pytest.raises(InputError) as error:
        calipers.score(tasks, "mean_reward", **options)
    assert str(error.value).startswith(said)


def test_what_counts_0_must_lie_in_the_range_too():
    rows = [{"task": "a", "reward": 2}, {"task": "b", "outcome": "refused"}]
    with pytest.raises(InputError, match=r"task 'b' sample 0: reward is 0 \(it is refused\); expected 1 to 5"):
        calipers.score(rollouts(*rows), "mean_reward", range=(1, 5))


def test_a_reward_that_is_no_number_says_so_itself():
    assert calipers.score([[float("nan")], [1]], "mean_reward", range=(0, 5))["mean_reward"].why == "1 reward is NaN"


def test_differences_know_the_range():
    other = [[2, 2], [2, 2], [2, 2], [2, 2], [0.5, 1]]
    unknown, known = (
        calipers.compare(TASKS, other, test="strict", range=ends)["mean_reward"] for ends in (None, (-1, 2))
    )
    assert unknown.interval is None
    assert known.interval is not None
    with pytest.raises(InputError, match="task '0' sample 0: reward is -1; expected 0 to 2"):
        calipers.compare(TASKS, other, range=(0, 2))
