"""Rewards above 1 need a threshold before passes are counted, in every verb."""

from __future__ import annotations

import pytest
from making import rollouts

import calipers
from calipers.errors import InputError

LIKERT = [[float(1 + (task * 3 + sample) % 5) for sample in range(4)] for task in range(10)]
SAID = r"rewards reach 5; say what passes, such as --threshold 4"


def test_metrics_of_passes_leave_the_default_list():
    result = calipers.score(LIKERT)
    assert list(result.groups[0].metrics) == ["mean_reward"]
    assert [remark.code for remark in result.groups[0].remarks] == ["passes_left_out"]
    assert result.notes == ["rewards reach 5, so no passes are counted; --threshold says what passes"]
    assert list(calipers.score(LIKERT, threshold=4).groups[0].metrics) == ["mean_reward", "pass_rate"]


@pytest.mark.parametrize("metric", ["pass_rate", "pass@2", "pass^2", "any_of_first_2", "all_of_first_2", "solved_rate"])
def test_a_metric_of_passes_that_is_asked_for_needs_one(metric):
    with pytest.raises(InputError, match=SAID):
        calipers.score(LIKERT, metric)
    with pytest.raises(InputError, match=SAID):
        calipers.compare(LIKERT, LIKERT[::-1], metrics=metric)
    with pytest.raises(InputError, match=SAID):
        calipers.gate(LIKERT, require=f"{metric} >= 0.1")
    settled = metric + "(threshold=4)"
    asked = calipers.score(LIKERT, metric, threshold=4)[metric]
    assert asked.value == calipers.score(LIKERT, settled)[settled].value
    assert asked.threshold == 4
    assert calipers.score(LIKERT, settled, threshold=2)[settled].threshold == 4  # its own comes first
    assert calipers.gate(LIKERT, require=f"{metric} >= 0", threshold=4).word == "passed"
    assert calipers.compare(LIKERT, LIKERT[::-1], metrics=metric, threshold=4)[metric].delta is not None


def test_max_at_k_counts_no_passes():
    assert calipers.score(LIKERT, "max@2")["max@2"].threshold is None


def test_a_threshold_other_than_1_stands_in_the_document():
    def keys(**settings):
        group = calipers.score([[1, 0], [0.5, 1]], ["mean_reward", "pass_rate"], **settings).to_dict()["groups"][0]
        return group["metrics"]["pass_rate"].get("threshold")

    assert (keys(), keys(threshold=1), keys(threshold=0.5)) == (None, None, 0.5)


@pytest.mark.parametrize(
    ("rewards", "metrics"),
    [
        ([[-3, 1], [0.5, -1]], ["mean_reward", "pass_rate"]),  # from below 0 up to 1
        ([[1 + 1e-12, 0], [0, 0]], ["mean_reward", "pass_rate"]),  # a rounded 1
        ([[1 + 1e-6, 0], [0, 0]], ["mean_reward"]),
    ],
)
def test_rewards_up_to_1_keep_the_default(rewards, metrics):
    assert list(calipers.score(rewards).groups[0].metrics) == metrics


@pytest.mark.parametrize(
    ("rewards", "code"),
    [
        ([[0, 0.5], [0.25, 0.75]], ["no_reward_reaches_one"]),
        ([[0, 0], [0, 0]], []),  # all failed
        ([[0, 1], [0.25, 0.75]], []),
        ([[0.5, 0.5], [0.5, 0.5]], []),
    ],
)
def test_it_is_said_that_no_reward_reaches_1(rewards, code):
    assert [remark.code for remark in calipers.score(rewards).groups[0].remarks] == code
    assert not calipers.score(rewards, threshold=0.5).groups[0].remarks


def test_another_dialect_keeps_its_rule_and_says_it():
    result = calipers.score(LIKERT, dialect="evsys")
    assert "pass: reward >= 1" in result.notes
    assert result["pass_rate"].value == 1.0
    with pytest.raises(InputError, match="the dialect evsys has its own rule for passes"):
        calipers.score(LIKERT, dialect="evsys", threshold=4)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), "high", True])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(InputError, match="expected a number that a reward can reach"):
        calipers.score(LIKERT, threshold=threshold)


def test_prices_per_solved_task_are_left_out_too():
    rows = [{"task": f"t{n}", "reward": n, "usage": {"cost_usd": 0.5}} for n in range(6)]
    assert "cost_per_solved" not in calipers.score(rollouts(*rows)).groups[0].economics
    solved = calipers.score(rollouts(*rows), threshold=4).groups[0].economics["cost_per_solved"]
    assert solved.value == 1.5  # 3 dollars for two tasks


def test_groups_of_one_result_are_judged_by_themselves():
    rows = [
        {"task": f"t{n}", "dataset": name, "reward": n % 2 * most}
        for name, most in (("a", 1), ("b", 5))
        for n in range(8)
    ]
    metrics = {group.dataset: list(group.metrics) for group in calipers.score(rollouts(*rows)).groups}
    assert metrics == {"a": ["mean_reward", "pass_rate"], "b": ["mean_reward"]}


def test_the_leaderboard_and_the_items_ask_for_one():
    with pytest.raises(InputError, match=SAID):
        calipers.leaderboard(LIKERT, LIKERT[::-1], metrics="pass@1")
    assert calipers.leaderboard(LIKERT, LIKERT[::-1], metrics="pass@1", threshold=4).boards[0].places
    with pytest.raises(InputError, match=SAID):
        calipers.items(LIKERT)
    assert calipers.items(LIKERT, threshold=4).threshold == 4
