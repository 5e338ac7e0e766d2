import math
from itertools import combinations
from statistics import fmean, stdev

import pytest

from calipers.systems.nemo_gym.lent.reward_profile import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)


def tasks(*lists):
    return [[{"reward": reward} for reward in one] for one in lists]


def test_pass_at_k_is_the_share_of_subsets_with_a_pass():
    rewards = [(1, 0, 0, 1, 0), (0, 0, 0, 0, 0), (1, 1, 1, 1, 0)]
    metrics = compute_pass_majority_metrics(tasks(*rewards))[0]
    for k in range(1, 6):
        drawn = [fmean(max(some) for some in combinations(one, k)) for one in rewards]
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * fmean(drawn), abs=1e-12)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([("x", 1.0), ("x", 1.0), ("y", 0.0)], [100, 100, 100]),
        ([("x", 1.0), ("y", 0.0)], [100, 50, 50]),  # a tie is shared
        ([("x", 1.0), ("x", 0.0), ("x", 0.0)], [100, 50, 0]),  # one answer, two scores: two candidates
        ([(None, 1.0), ("y", 0.0), (None, 1.0)], [0, 0, 0]),  # who does not answer does not vote
        ([(None, 1.0)], [0, 0, 0]),  # nobody answered: 0, though the reward is 1
        ([(["x", 1], 1.0), (["x", 1], 1.0), (["x", 2], 0.0)], [100, 100, 100]),  # a list counts by what it holds
        ([({"p": [1], "q": 2}, 0.0), ({"q": 2, "p": [1]}, 0.0), ({"p": []}, 1.0)], [0, 0, 0]),
        ([(["x"], 0.0), (("x",), 1.0), (("x",), 1.0)], [0, 50, 100]),  # as in Python, a list is no tuple
    ],
)
def test_majority_votes_on_answer_and_score(votes, expected):
    filler = [[{"reward": 0.0, "a": "z"}] * 3]  # so that k goes to 3; adds 0
    rows = [[{"reward": score, "a": answer} for answer, score in votes], *filler]
    metrics = compute_pass_majority_metrics(rows, answer_key="a")[0]
    assert [2 * metrics[f"majority@{k}/accuracy"] for k in (1, 2, 3)] == expected
    assert metrics["majority@3/no_answer"] == 0


def test_a_score_that_some_rollouts_lack():
    rows = [[{"s": True}, {}, {"s": 0}], [{}, {}, {}]]
    metrics, scores, names, most = compute_pass_majority_metrics(rows, score_fn=lambda one: dict(one))
    assert (names, most, scores[0]) == (["s"], 3, [{"s": 1}, {}, {"s": 0}])
    assert (metrics["pass@1/s"], metrics["pass@2/s"], "pass@3/s" in metrics) == (50.0, 100.0, False)
    assert metrics["pass@1[avg-of-3]/s"] == 50.0


def test_spreads_across_runs_and_within_tasks():
    rewards = [(0.0, 0.5, 1.0), (1.0, 0.25, 0.75)]
    metrics, scores, names, most = compute_pass_majority_metrics(tasks(*rewards))
    runs = [100 * fmean(column) for column in zip(*rewards)]
    assert metrics["per_sample_aggregate"] == {"accuracy": pytest.approx(runs)}
    deviation = metrics["pass@1[avg-of-3]/accuracy/std_dev_across_runs"]
    assert deviation == pytest.approx(stdev(runs))
    assert metrics["pass@1[avg-of-3]/accuracy/std_err_across_runs"] == pytest.approx(deviation / math.sqrt(3))
    add_avg_sample_std_dev(metrics, scores, names, most)
    assert metrics["pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(
        fmean(stdev(one[:2]) for one in rewards)
    )


def test_nothing():
    assert compute_pass_majority_metrics([]) == ({}, [], [], 0)
    assert compute_pass_majority_metrics([[]]) == ({}, [[]], [], 0)
    metrics = {}
    add_avg_sample_std_dev(metrics, [], [], 0)
    assert metrics == {}
    assert highest_k_metrics({}, "pass@{k}") == {}


def test_subsets_go_by_the_first_rollout():
    rows = [[{"d": "x", "reward": 1}, {"d": "y", "reward": 1}], [{"d": ""}], [{}], [{"d": "x", "reward": 0}], []]
    metrics = compute_subset_metrics(rows, "d")
    assert {name.partition("/")[0] for name in metrics} == {"x"}
    assert (metrics["x/pass@1/accuracy"], metrics["x/pass@2/accuracy"]) == (50.0, 100.0)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"pattern": "pass@{k}"}, {"pass@10/accuracy": 3, "pass@10/f1": 4}),  # ten is more than two
        ({"pattern": "pass@{k}", "score_names": ["f1"]}, {"pass@10/f1": 4}),
        ({"pattern": "pass@{k}", "exclude_names": ["f1"]}, {"pass@10/accuracy": 3}),
        ({"pattern": "pass@1[avg-of-{k}]"}, {"pass@1[avg-of-2]/accuracy": 5}),  # its spreads are no scores
        ({"pattern": "majority@{k}"}, {}),
    ],
)
def test_the_largest_k(asked, expected):
    metrics = {"pass@2/accuracy": 1, "pass@2/only": 2, "pass@10/accuracy": 3, "pass@10/f1": 4}
    metrics |= {"pass@1[avg-of-2]/accuracy": 5, "pass@1[avg-of-3]/accuracy/std_dev_across_runs": 6}
    assert highest_k_metrics(metrics, **asked) == expected
