from __future__ import annotations

import math

import pytest

from calipers.errors import InputError, UnknownName
from calipers.systems.lm_eval.metrics.task import aggregate_group, aggregate_task, leaves

TASKS = {
    "a": {"sample_len": 10, "acc,none": 0.5, "acc_stderr,none": 0.2},
    "b": {"sample_len": 30, "acc,none": 0.9, "acc_stderr,none": 0.1},
    "c": {"sample_len": 5, "f1,none": 0.1, "f1_stderr,none": None},
}


def test_a_task():
    found = aggregate_task({"acc,none": [1, 0], "len,none": [3], "pass@1(em),x": [1, 1]}, {"em": "median"}, 100)
    assert found.metrics == {
        "acc,none": 0.5,
        "acc_stderr,none": 0.5,
        "len,none": 3.0,  # nobody said how: averaged
        "len_stderr,none": None,
        "pass@1(em),x": 1.0,  # as the metric in parentheses
        "pass@1(em)_stderr,x": 0.0,
    }
    assert found.sample_len == 2


def test_text_metrics_are_resampled_a_hundred_times_at_most():
    pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")
    pairs = [("the cat sat on the mat", "a cat sat on a mat"), ("hello you there now", "hello you there then")]
    assert aggregate_task({"bleu,n": pairs}, {"bleu": "bleu"}, 100_000) == aggregate_task(
        {"bleu,n": pairs}, {"bleu": "bleu"}, 100
    )


def test_a_group_pools_its_tasks_or_counts_them_alike():
    row = aggregate_group("g", ["a", {"inner": ["b", "c"]}], TASKS, [{"metric": "acc"}], "G")
    pooled = math.sqrt((9 * 10 * 0.04 + 29 * 30 * 0.01) / 38 / 40)
    assert row == {
        "alias": "G",
        "name": "g",
        "sample_len": 45,
        "acc,none": pytest.approx(0.8),
        "acc_stderr,none": pytest.approx(pooled),
        "sample_count": {"acc,none": 40},
    }
    alike = aggregate_group("g", ["a", "b"], TASKS, [{"metric": "acc", "weight_by_size": False}])
    assert alike["acc,none"] == pytest.approx(0.7)
    assert alike["acc_stderr,none"] == pytest.approx(math.sqrt(0.05) / 2)


def test_a_standard_error_that_one_task_lacks_the_group_lacks():
    assert aggregate_group("g", ["c"], TASKS, [{"metric": "f1"}])["f1_stderr,none"] is None
    one = {"a": {"sample_len": 1, "acc,none": 1.0, "acc_stderr,none": 0.0}}  # nothing to pool
    assert aggregate_group("g", ["a"], one, [{"metric": "acc"}])["acc_stderr,none"] is None


def test_a_group_that_adds_nothing_up_has_a_name_only():
    assert aggregate_group("g", ["a"], TASKS) == {"alias": "g", "name": "g"}


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"metric": "acc", "aggregation": "median"}, InputError),
        ({"metric": "acc", "weight": True}, UnknownName),
        ({"aggregation": "mean"}, InputError),
    ],
)
def test_what_a_group_cannot_do(entry, error):
    with pytest.raises(error):
        aggregate_group("g", ["a"], TASKS, [entry])


def test_leaves_of_a_tree():
    assert list(leaves(["a", {"x": ["b", {"y": ["c"]}]}])) == ["a", "b", "c"]
