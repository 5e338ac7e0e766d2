from __future__ import annotations

import pytest

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.pipelines import filtered
from calipers.systems.lm_eval.scores.entries import SCORERS, scorer_of, scorings


def answers(scorer, *texts):
    (one,) = scorings("generate_until", scorer=scorer)
    return [held[0] for held in filtered(one.pipeline, [[text] for text in texts], [{}] * len(texts)).values]


@pytest.mark.parametrize(
    ("scorer", "text", "expected"),
    [
        ("first_token", " b. because", "b."),
        ("first_token", "  ", "[invalid]"),
        ("choice_match", "(b)", "b"),
        ("choice_match", "I think it is C, not D's", "C"),  # I is a word
        ("choice_match", "A or (B)", "B"),  # the last counts
        ("choice_match", "Apples", "[invalid]"),
        ("regex", "so #### 12", "12"),
        ({"type": "regex_extraction", "kwargs": {"regex_pattern": r"is (\w+)"}}, "The answer is Paris", "Paris"),
        ({"type": "regex", "kwargs": {"regex_pattern": r"(\d)", "group_select": -1, "fallback": "?"}}, "1 2 3", "3"),
        ({"type": "regex", "kwargs": {"fallback": "?"}}, "none", "?"),
        ("gen", "as it is ", "as it is "),
        ("FirstTokenScorer", " b. because", "b."),  # by the names of their classes
        ("ChoiceMatchScorer", "A or (B)", "B"),
        ({"type": "RegexExtractionScorer", "kwargs": {"regex_pattern": r"is (\w+)"}}, "it is Paris", "Paris"),
        ("GenScorer", "as it is ", "as it is "),
    ],
)
def test_what_a_scorer_takes_for_the_answer(scorer, text, expected):
    assert answers(scorer, text) == [expected]


def test_without_a_scorer_the_first_repeat_is_taken_and_exact_match_asked():
    (one,) = scorings("generate_until")
    assert one.pipeline.functions == ("take_first",)
    assert [(entry.name, entry.settings) for entry in one.metrics] == [("exact_match", {})]


def test_what_the_task_says_comes_before_its_scorer():
    listed = [{"name": "n", "filter": [{"function": "lowercase"}]}]
    (one,) = scorings("generate_until", filter_list=listed, scorer="regex")
    assert one.pipeline.functions == ("lowercase",)
    assert one.metrics[0].settings == {"ignore_case": True, "ignore_punctuation": True}  # still the scorer's
    (one,) = scorings("generate_until", metric_list=[{"metric": "exact_match"}], scorer="regex")
    assert one.metrics[0].settings == {}


def test_a_pipeline_has_its_own_metrics_or_the_tasks():
    listed = [
        {"name": "a", "filter": [{"function": "take_first"}], "metric_list": [{"metric": "bleu"}]},
        {"name": "b", "filter": [{"function": "take_first"}]},
    ]
    found = scorings("generate_until", filter_list=listed, metric_list=[{"metric": "ter"}])
    assert [[entry.name for entry in one.metrics] for one in found] == [["bleu"], ["ter"]]


def test_a_scorer_of_ones_own_is_a_class_with_the_two_defaults():
    class Shouting:
        default_filter_cfg = ({"function": "uppercase"},)
        default_metric_cfg = ({"metric": "exact_match"},)

    SCORERS.add("shouting", Shouting)
    SCORERS.add("nothing", object)
    try:
        assert answers("shouting", "yes") == ["YES"]
        with pytest.raises(PluginError, match="default_filter_cfg"):
            scorer_of("nothing", "generate_until")
    finally:
        SCORERS.discard("shouting")
        SCORERS.discard("nothing")


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"scorer": "regexp"}, UnknownName, "'regex'"),
        ({"scorer": {"type": "regex", "kwargs": {"pattern": "x"}}}, UnknownName, "regex_pattern"),
        ({"scorer": {"type": "gen", "kwargs": {"x": 1}}}, UnknownName, "it takes none"),
        ({"scorer": {"kwargs": {}}}, InputError, "type: NAME"),
        ({"filter_list": [{"name": "a", "filter": []}, {"name": "a", "filter": []}]}, InputError, "two pipelines"),
        ({"filter_list": [{"name": "a", "filter": "regex"}]}, InputError, "a list of"),
    ],
)
def test_what_cannot_be_is_refused(asked, error, said):
    with pytest.raises(error, match=said):
        scorings("generate_until", **asked)


def test_likelihoods_by_the_name_of_their_scorers_class():
    (one,) = scorings("multiple_choice", scorer="LLScorer")
    assert [entry.name for entry in one.metrics] == ["acc", "acc_norm"]
