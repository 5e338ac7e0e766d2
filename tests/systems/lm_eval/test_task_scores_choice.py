from __future__ import annotations

import math

import pytest

from calipers.errors import InputError, UnknownName
from calipers.systems.lm_eval.task_scores import (
    NO_CHOICE,
    Choices,
    argmax,
    gold_of,
    score_choices,
    score_newer_choices,
    softmax,
)

ALL = ["acc_mutual_info", "likelihood", "brier_score", "exact_match", "acc_bytes", "acc_norm", "mcc", "f1", "acc"]


def made(lls, gold=0, texts=None, greedy=None, alone=None):
    texts = texts or ["a", "bb", "ccc"][: len(lls)]
    return Choices(texts, lls, greedy or [False] * len(lls), gold, alone)


def test_the_order_is_lm_evals_and_not_the_askers():
    theirs = [
        "acc",
        "f1",
        "mcc",
        "acc_norm",
        "acc_bytes",
        "exact_match",
        "brier_score",
        "likelihood",
        "acc_mutual_info",
    ]
    assert list(score_choices(made([-1.0, -2.0], alone=[0.0, 0.0]), ALL)) == theirs


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, 1.0], 0), ([-math.inf, -2.0], 1), ([-2.0, math.nan, 3.0], 1), ([3.0], 0)],  # NaN wins, as numpy has it
)
def test_argmax(values, expected):
    assert argmax(values) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (1, 1),
        (2, NO_CHOICE),
        (-1, NO_CHOICE),
        ("no", 1),
        ("maybe", NO_CHOICE),
        ([0, 5], [0, NO_CHOICE]),
        (["no", "yes"], [1, 0]),
        (True, 1),
    ],
)
def test_gold(target, expected):
    assert gold_of(target, ["yes", "no"]) == expected


@pytest.mark.parametrize("target", [None, 1.0])
def test_a_gold_that_is_none_is_refused(target):
    with pytest.raises(InputError):
        gold_of(target, ["yes", "no"])


@pytest.mark.parametrize(
    ("lls", "texts", "gold", "expected"),
    [
        ([-4.0, -6.0], ["cat", "elephant"], 1, {"acc": 0.0, "acc_norm": 1.0, "acc_bytes": 1.0}),
        ([-3.0, -5.0], ["日本", "abcd"], 0, {"acc": 1.0, "acc_norm": 0.0, "acc_bytes": 1.0}),
        ([0.0, -4.0], ["", "bb"], 1, {"acc": 0.0, "acc_norm": 0.0, "acc_bytes": 0.0}),  # 0 / 0 is no number, and wins
        ([-1.0, -4.0], ["", "bb"], 1, {"acc": 0.0, "acc_norm": 1.0, "acc_bytes": 1.0}),  # -1 / 0
        ([-3.0, -2.0, -1.0], ["a", "b", "c"], [0, 2], {"acc": 1.0, "acc_norm": 1.0, "acc_bytes": 1.0}),
        ([-1.0, -2.0], ["a", "b"], NO_CHOICE, {"acc": 0.0, "acc_norm": 0.0, "acc_bytes": 0.0}),
    ],
)
def test_accuracies(lls, texts, gold, expected):
    assert score_choices(made(lls, gold, texts), list(expected)) == expected


def test_softmax_of_far_apart_values():
    assert softmax([-1e5, 0.0]) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("results", "mutual", "ok"),
    [
        ([[-1.0, True]] * 2, False, True),
        ([[-1.0, True]] * 4, True, True),
        ([[-1.0, True]] * 4, False, False),
        ([[-1.0, True]], False, False),
    ],
)
def test_as_many_results_as_choices(results, mutual, ok):
    if ok:
        assert Choices.of(["a", "b"], results, 0, mutual=mutual).lls == [-1.0, -1.0]
    else:
        with pytest.raises(InputError, match="for 2 choices"):
            Choices.of(["a", "b"], results, 0, mutual=mutual)


@pytest.mark.parametrize("of", [made([-1.0, -2.0]), made([-1.0, -2.0], [0, 1], alone=[0.0, 0.0])])
def test_mutual_information_needs_both_sides_and_one_target(of):
    with pytest.raises(InputError):
        score_choices(of, ["acc_mutual_info"])


def test_the_newer_names():
    of = made([-4.0, -6.0, -5.0, -3.5], 1, [" cat", " elephant", " dog", " a"])
    found = score_newer_choices(of, ["brier_score", "bpb"])
    assert found["brier_score"] == pytest.approx(1.303863860219726)
    assert found["bpb"] == pytest.approx(6 / 9 / math.log(2))
    with pytest.raises(UnknownName, match="choice_logprob"):
        score_newer_choices(of, ["choice_logprb"])
    with pytest.raises(InputError, match="multiple_targets"):
        score_newer_choices(made([-1.0, -2.0], [0, 1]), ["acc"])
