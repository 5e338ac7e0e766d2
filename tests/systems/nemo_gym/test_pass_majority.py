import math
from itertools import combinations
from statistics import fmean, stdev

import pytest

from calipers.systems.nemo_gym.pass_majority import (
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
        ([("x", 1.0), ("y", 0.0)], [100, 50, 50]),  # a tie is averaged
        ([("x", 1.0), ("x", 0.0), ("x", 0.0)], [100, 50, 0]),  # one answer, two scores: two candidates
        ([(None, 1.0), ("y", 0.0), (None, 1.0)], [0, 0, 0]),  # a rollout without an answer has no vote
        ([(None, 1.0)], [0, 0, 0]),  # without any answer it is 0, although the reward is 1
        ([(["x", 1], 1.0), (["x", 1], 1.0), (["x", 2], 0.0)], [100, 100, 100]),  # lists are compared by their content
        ([({"p": [1], "q": 2}, 0.0), ({"q": 2, "p": [1]}, 0.0), ({"p": []}, 1.0)], [0, 0, 0]),
        ([(["x"], 0.0), (("x",), 1.0), (("x",), 1.0)], [0, 50, 100]),  # as in Python, a list does not equal a tuple
    ],
)
def test_majority_votes_on_answer_and_score(votes, expected):
    filler = [[{"reward": 0.0, "a": "z"}] * 3]  # so that k goes up to 3; it adds 0
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


def test_the_first_k_are_the_first_rollouts_whatever_they_score():
    """Numbers of nemo_gym 0.4.0: a rollout without the score counts as one of the first k, but adds nothing."""
    metrics, *scores = compute_pass_majority_metrics(
        [[{}, {"s": 0.5}, {"s": 1.0}], [{"s": 0.25}, {}, {}], [{}, {}]], score_fn=dict
    )
    add_avg_sample_std_dev(metrics, *scores)
    assert metrics == {
        "pass@1/s": 37.5,
        "pass@1[avg-of-1]/s": 25.0,
        "pass@2/s": 100.0,
        "pass@1[avg-of-2]/s": 37.5,
        "pass@1[avg-of-3]/s": 50.0,
        "per_sample_aggregate": {"s": [25.0, 50.0, 100.0]},
        "pass@1[avg-of-2]/s/std_dev_across_runs": 17.67766952966369,
        "pass@1[avg-of-2]/s/std_err_across_runs": 12.5,
        "pass@1[avg-of-3]/s/std_dev_across_runs": 38.18813079129867,
        "pass@1[avg-of-3]/s/std_err_across_runs": 22.047927592204925,
        "pass@1[avg-of-3]/s/avg_sample_std_dev": 0.3535533905932738,
    }


def test_a_place_where_no_rollout_has_the_score_is_no_run():
    """As in nemo_gym 0.4.0: with two runs, the standard deviation of the first three is that of the two."""
    metrics = compute_pass_majority_metrics([[{}, {"s": 0.5}, {"s": 1.0}], [{}, {}, {"s": 0}]], score_fn=dict)[0]
    assert "pass@1[avg-of-1]/s" not in metrics
    assert metrics["per_sample_aggregate"] == {"s": [50.0, 50.0]}
    assert [metrics[f"pass@1[avg-of-{k}]/s/std_err_across_runs"] for k in (2, 3)] == [0.0, 0.0]


def test_scores_at_the_end_of_what_a_float_holds():
    metrics = compute_pass_majority_metrics(tasks((1e308, 1e308), (1e308,)))[0]
    assert (metrics["pass@1/accuracy"], metrics["per_sample_aggregate"]) == (math.inf, {"accuracy": [math.inf] * 2})
    metrics = compute_pass_majority_metrics(tasks((math.inf,), (-math.inf,)))[0]
    assert math.isnan(metrics["pass@1[avg-of-1]/accuracy"])


@pytest.mark.parametrize("reward", [None, "1.0"])
def test_a_score_that_is_no_number_is_an_error(reward):
    with pytest.raises(TypeError):
        compute_pass_majority_metrics(tasks((reward, 0.5)))


def test_an_answer_key_may_be_empty():
    metrics = compute_pass_majority_metrics([[{"reward": 1, "": "A"}], [{"reward": 1}]], answer_key="")[0]
    assert (metrics["majority@1/accuracy"], metrics["pass@1/no_answer"]) == (50.0, 50.0)


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
    assert compute_pass_majority_metrics([[]]) == ({"per_sample_aggregate": {}}, [[]], [], 0)
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
        ({"pattern": "pass@{k}"}, {"pass@10/accuracy": 3, "pass@10/f1": 4}),  # numbers are compared, not texts
        ({"pattern": "pass@{k}", "score_names": ["f1"]}, {"pass@10/f1": 4}),
        ({"pattern": "pass@{k}", "exclude_names": ["f1"]}, {"pass@10/accuracy": 3}),
        ({"pattern": "pass@1[avg-of-{k}]"}, {"pass@1[avg-of-2]/accuracy": 5}),  # standard deviations are not scores
        ({"pattern": "majority@{k}"}, {}),
    ],
)
def test_the_largest_k(asked, expected):
    metrics = {"pass@2/accuracy": 1, "pass@2/only": 2, "pass@10/accuracy": 3, "pass@10/f1": 4}
    metrics |= {"pass@1[avg-of-2]/accuracy": 5, "pass@1[avg-of-3]/accuracy/std_dev_across_runs": 6}
    metrics |= {"pass@12/my_std_dev_across_runs": 7}
    assert highest_k_metrics(metrics, **asked) == expected
