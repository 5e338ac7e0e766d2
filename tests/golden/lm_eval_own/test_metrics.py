"""Scores of choices, a function that answers with several keys, and the bootstrap."""

from __future__ import annotations

import random

import pytest
from golden.lm_eval_own.ported import ported

from calipers.systems.lm_eval.aggregations import bootstrap, choices, mersenne_twister, resampler, stderr
from calipers.systems.lm_eval.entries import GENERATION, Scoring, entries
from calipers.systems.lm_eval.pipelines import pipeline
from calipers.systems.lm_eval.task_scores import (
    AnsweredDocument,
    Choices,
    ScoringSettings,
    score_choices,
    score_documents,
)

BOTH = ["acc", "acc_mutual_info"]


@ported(
    "test_metrics.py",
    "lls, names, expected",
    {
        "test_acc_mutual_info_slicing": [
            ([-2.0, -1.0, -3.0, -2.5, -2.0, -2.5], BOTH, {"acc": 1.0, "acc_mutual_info": 1.0})
        ],
        "test_acc_mutual_info_different_predictions": [
            ([-1.0, -2.0, -3.0, -0.5, -2.0, -3.0], BOTH, {"acc": 0.0, "acc_mutual_info": 1.0})
        ],
        "test_acc_mutual_info_without_metric": [([-2.0, -1.0, -3.0], ["acc"], {"acc": 1.0})],
    },
)
def test_accuracy_of_three_choices_where_the_second_is_right(lls, names, expected):
    results = [(ll, place == 1) for place, ll in enumerate(lls)]
    of = Choices.of(["A", "B", "C"], results, 1, mutual="acc_mutual_info" in names)
    assert score_choices(of, names) == expected


@ported("test_metrics.py", "items, draws, close", {"test_bootstrap_internal_no_mp": [([1, 2, 3, 4, 5], 100, 0.5)]})
def test_resampled_means_lie_around_the_mean(items, draws, close):
    found = resampler("mean", items)(choices(mersenne_twister(0), draws, len(items)))
    assert found.shape == (draws,)
    assert found.mean() == pytest.approx(sum(items) / len(items), abs=close)


@ported("test_misc.py", "seed, count, iterations, close", {"test_bootstrapping": [(42, 1000, 100_000, 1e-4)]})
def test_the_bootstrap_of_a_mean_is_its_closed_form(seed, count, iterations, close):
    dice = random.Random(seed)
    items = [dice.random() for _ in range(count)]
    assert bootstrap("mean", items, iterations) == pytest.approx(stderr("mean", items), abs=close)


@ported(
    "test_metrics.py",
    "answer, documents, expected",
    {
        "test_dict_metric_uses_custom_aggregation": [
            ({"pass@1": 1.0, "pass@3": 0.5}, 3, {"pass@1,none": 3.0, "pass@3,none": 1.5})
        ]
    },
)
def test_every_key_of_an_answer_is_added_up_as_its_metric_is(answer, documents, expected):
    def passes(references, predictions):
        return answer

    metrics = entries([{"metric": passes, "aggregation": sum}], GENERATION)
    scoring = Scoring(pipeline({"name": "none", "filter": [{"function": "take_first"}]}), metrics)
    asked = [AnsweredDocument({"target": "hello"}, "hello", [["hello"]])] * documents
    found = score_documents(asked, [scoring], ScoringSettings()).numbers(0).metrics
    assert {key: found[key] for key in expected} == expected
