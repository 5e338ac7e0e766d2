from __future__ import annotations

import math
from math import comb

import pytest

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.entries import GENERATION, Entry, scorings
from calipers.systems.lm_eval.task_scores import (
    AnsweredDocument,
    ScoringSettings,
    aggregate_group,
    aggregate_task,
    base,
    check,
    default_ks,
    pass_at_k,
    reduced,
    score_documents,
)

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
    row = aggregate_group("g", ["a", "b", "c"], TASKS, [{"metric": "acc"}], "G")
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


@pytest.mark.parametrize(("n", "passes"), [(1, 0), (4, 1), (10, 3), (10, 10), (30, 1)])
def test_pass_at_k_is_the_codex_estimator(n, passes):
    scores = [1] * passes + [0] * (n - passes)
    expected = {f"pass@{k}": 1 - comb(n - passes, k) / comb(n, k) for k in range(1, n + 1)}
    assert pass_at_k(scores, range(1, n + 1)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, [1]), (4, [1, 3, 4]), (100, [1, 3, 5, 10, 20, 50, 100]), (250, [1, 3, 5, 10, 20, 50, 100, 158, 250])],
)
def test_the_k_that_are_worth_a_number(n, expected):
    assert default_ks(n) == expected


def test_k_beyond_the_repeats_is_known_only_where_something_passed():
    assert pass_at_k([1, 0], 5) == {"pass@5": 1.0}
    with pytest.raises(InputError, match="expected at most 2"):
        pass_at_k([0, 0], 5)  # there: 1.0


@pytest.mark.parametrize(
    ("how", "k", "expected"),
    [
        ("take_first", None, {"m": 0}),
        ("mean", None, {"m": 0.5}),
        ("majority", None, {"m": 0}),  # a tie: the first
        ("pass_at_k", 2, {"pass@2(m)": 5 / 6}),
        ("pass@k", [1, 4], {"pass@1(m)": 0.5, "pass@4(m)": 1.0}),
        (lambda reference, values: {"best": max(values)}, None, {"best(m)": 1}),
        (lambda reference, values: len(reference), None, {"m": 3}),
    ],
)
def test_reductions(how, k, expected):
    assert reduced("m", [0, 1, 1, 0], how, k, "ref") == pytest.approx(expected)


def test_a_single_score_is_passed_on_unless_a_k_was_asked_for():
    assert reduced("m", [1], "pass_at_k") == {"m": 1}
    assert reduced("m", [1], "pass_at_k", 1) == {"pass@1(m)": 1.0}


@pytest.mark.parametrize(("key", "expected"), [("pass@1(exact_match)", "exact_match"), ("acc", "acc"), ("(x)", "(x)")])
def test_the_metric_of_a_key(key, expected):
    assert base(key) == expected


@pytest.mark.parametrize(
    ("entry", "error", "said"),
    [
        (Entry("m", reduction="pas_at_k"), UnknownName, "pass_at_k"),
        (Entry("m", k=2), InputError, "reduction: pass_at_k"),
        (Entry("m", reduction="pass_at_k", k=9), InputError, "expected repeats: 9"),
        (Entry("m", reduction="pass_at_k", k=0), InputError, "positive"),
        (Entry("m", reduction="pass_at_k", k=[1, "2"]), InputError, "positive"),
    ],
)
def test_what_is_refused_before_anything_is_asked(entry, error, said):
    with pytest.raises(error, match=said):
        check(entry, repeats=4)


def test_a_reduction_that_fails_is_named():
    with pytest.raises(PluginError, match="of 'm' failed"):
        reduced("m", [0, 1], lambda reference, values: 1 / 0)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["exact_match", "bleu"], {"exact_match": 1.0, "bleu": ("7", "7")}),
        (["exact_match", "bleu", "bypass"], {"exact_match": 0.0, "bleu": (7, "7"), "bypass": None}),
    ],
)
def test_a_target_keeps_its_type_beside_bypass(names, expected):
    plan = scorings(GENERATION, metric_list=[{"metric": name} for name in names])
    scored = score_documents([AnsweredDocument({}, 7, [["7"]])], plan, ScoringSettings(GENERATION))
    assert scored.pipelines[0].scores == [expected]
