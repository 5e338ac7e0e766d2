import json

import pytest
from making import rollouts

import calipers
from calipers.reports.figures import RewardMetric, depends, heavy
from calipers.stats.counts import Follows

RETRIED = [[0] * (n - 1) + [1] for n in (1, 1, 1, 2, 2, 3, 3, 4)] + [[0] * 4] * 4
RETRIES = Follows("stops_at_pass", 38, 60, 8, None)
LATER = "because a stopped task is known to have passed"


@pytest.mark.parametrize(
    ("asked", "outright", "said"),
    [
        (
            [RewardMetric("mean_reward", "mean_reward"), RewardMetric("pass@4", "pass@{k}", 4)],
            True,
            f"mean_reward and pass@4 are biased; any_of_first_1 and any_of_first_4 are not, {LATER}",
        ),
        ([RewardMetric("pass@1", "pass@{k}", 1)], True, f"pass@1 is biased; any_of_first_1 is not, {LATER}"),
        (  # a mean of graded rewards is not a pass rate
            [RewardMetric("mean_reward", "mean_reward")],
            False,
            f"mean_reward is biased; any_of_first_k, for k up to 8, is not, {LATER}",
        ),
        (
            [RewardMetric("pass@9", "pass@{k}", 9)],
            True,
            f"pass@9 is biased; any_of_first_k, for k up to 8, is not, {LATER}",
        ),
    ],
)
def test_after_retries_what_is_right_is_named(asked, outright, said):
    found = depends(RETRIES, asked, outright)
    assert found == f"38 of 60 tasks stop at their first pass: sample counts depend on results, so {said}"


def test_where_only_what_is_right_was_asked_for_nothing_is_said():
    assert depends(RETRIES, [RewardMetric("any_of_first_4", "any_of_first_{k}", 4)], True) == ""


def test_a_run_that_stops_at_failures_is_said_with_what_is_known_of_it():
    found = Follows("stops_at_failure", 38, 60, 8, None)
    asked = [RewardMetric("pass_rate", "pass_rate"), RewardMetric("all_of_first_4", "all_of_first_{k}", 4)]
    assert depends(found, asked, True) == (
        "38 of 60 tasks stop at their first failure: sample counts depend on results, so pass_rate is biased; "
        "all_of_first_k, for k up to 8, is not, because a stopped task is known to have failed"
    )


def test_last_samples_that_pass_too_often_are_said():
    found = Follows("last_is_pass", 48, 60, 8, 0.0004)
    asked = [RewardMetric(name, "any_of_first_{k}", k) for name, k in (("any_of_first_1", 1), ("any_of_first_2", 2))]
    assert depends(found, asked, True) == (
        "the last sample is a pass in 48 of 60 tasks with both results (p = 0.0004): sample counts depend on results, "
        "so any_of_first_2 is biased; any_of_first_1 is not"
    )


def test_a_score_is_said_with_its_numbers():
    text = depends(Follows("more_is_lower", 0, 60, 8, 1.6e-7), [RewardMetric("pass_rate", "pass_rate")], True)
    assert text == (
        "sample counts depend on results: tasks with more samples have lower rewards (score test over 60 tasks: "
        "p = 2e-07), so pass_rate may be biased"
    )


def test_the_warning_is_in_the_document_and_not_in_the_digest():
    result = calipers.score(RETRIED, ["pass@2", "mean_reward", "any_of_first_2"])
    (group,) = json.loads(result.to_json())["groups"]
    assert group["warnings"] == list(result.groups[0].warnings)
    assert group["warnings"][0].startswith("7 of 12 tasks stop at their first pass")
    assert group["metrics"]["pass@2"]["samples_per_task"] == [1, 4]
    assert result.groups[0]["any_of_first_2"].value == pytest.approx(5 / 12)
    silent = calipers.score([[1, 0]] * 6, "mean_reward")
    (group,) = json.loads(silent.to_json())["groups"]
    assert "warnings" not in group
    assert "samples_per_task" not in group["metrics"]["mean_reward"]


def test_what_the_variance_is_made_of_cannot_be_said_then():
    assert calipers.score(RETRIED, "mean_reward").to_dict()["groups"][0]["variance"] == {"reward": None}


def test_missing_rollouts_that_count_0_are_samples():
    rows = [
        {"task": str(task), "sample": sample, **({"outcome": "not_run"} if reward is None else {"reward": reward})}
        for task, rewards in enumerate(RETRIED)
        for sample, reward in enumerate([*rewards, *[None] * (4 - len(rewards))])
    ]
    assert calipers.score(rollouts(*rows), "mean_reward").groups[0].warnings
    assert not calipers.score(rollouts(*rows), "mean_reward", missing="zero").groups[0].warnings


def test_one_task_that_decides_is_named():
    graded = {f"t{n}": 0.9 + 0.002 * n for n in range(9)}
    rows = [{"task": task, "reward": reward} for task, reward in {**graded, "lost": 0.0}.items()]
    result = calipers.score(rollouts(*rows), ["mean_reward", "max@1"])
    task, share = result["mean_reward"].heaviest
    pulls = [(reward - result["mean_reward"].value) ** 2 for reward in [*graded.values(), 0.0]]
    assert (task, share) == ("lost", pytest.approx(pulls[-1] / sum(pulls)))
    assert list(result.groups[0].warnings) == [
        f"task lost has {100 * share:.0f} % of the variance of mean_reward and max@1: the interval depends mostly on it"
    ]
    assert result.to_dict()["groups"][0]["metrics"]["mean_reward"]["heaviest"] == {"task": "lost", "share": share}


@pytest.mark.parametrize(
    "tasks",
    [
        [[1]] + [[0]] * 20,  # a single pass always has most of the variance
        [[0.0]] + [[0.9]] * 8,  # one of nine tasks often has half of the variance by chance
        [[0.4], [0.6]] * 6,
        [[0.5]] * 12,
    ],
)
def test_no_task_decides(tasks):
    assert calipers.score(tasks, "mean_reward")["mean_reward"].heaviest is None


def test_a_cluster_that_decides_is_named_by_its_first_task():
    rows = [{"task": f"t{n}", "reward": 0.5 + 0.01 * (n % 9), "metadata": {"book": f"b{n % 9}"}} for n in range(18)]
    rows += [{"task": f"u{n}", "reward": 1.0, "metadata": {"book": "c"}} for n in range(3)]
    result = calipers.score(rollouts(*rows, labels=["book"]), "mean_reward", cluster="book")
    assert result["mean_reward"].heaviest[0] == "u0"
    assert next(heavy(result.groups[0].metrics, True)).startswith("the cluster of task u0 has ")
