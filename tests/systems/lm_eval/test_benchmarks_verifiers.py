import asyncio
import importlib.util

import pytest
from systems.lm_eval.tasks.given import DOCS, task

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.systems.lm_eval.benchmarks import judge_of
from calipers.tasks import Task

REGEX = {"function": "regex", "regex_pattern": r"is (\w+)"}
FIRST = {"function": "take_first"}


def verdict(text, target="a0", **fields):
    made = task(**fields)
    return asyncio.run(judge_of(made).verify(Task("0", "?", "lm_eval", target), Completion(text)))


def test_every_pipeline_is_a_column_and_the_first_is_the_reward():
    pipelines = [{"name": "strict", "filter": [REGEX, FIRST]}, {"name": "loose", "filter": [FIRST]}]
    found = verdict("it is a0", filter_list=pipelines)
    assert found.fields == {"exact_match,strict": 1.0, "exact_match,loose": 0.0}
    assert (found.reward, found.answer, found.outcome) == (1.0, "a0", "")


def test_no_answer_is_unparsed_and_worth_what_lm_eval_gives_it():
    found = verdict("no idea", filter_list=[{"name": "strict", "filter": [REGEX, FIRST]}])
    assert (found.reward, found.outcome, found.answer) == (0.0, "unparsed", "[invalid]")


@pytest.mark.parametrize(
    ("text", "fields", "columns"),
    [
        ("a0", {}, {"exact_match,none": 1.0}),
        ("A0.", {"metric_list": [{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}]}, 1.0),
        ("x", {"target": ["x", "y"], "doc_to_target": "c"}, 1.0),  # any of several targets
        ("0", {"target": 0, "doc_to_target": "n"}, 1.0),  # the target in the answer's type
        ("it is a0", {"scorer": {"type": "regex_extraction", "kwargs": {"regex_pattern": "is (.*)"}}}, 1.0),
        # a vote of one, and a mean over one
        ("is a0", {"filter_list": [{"name": "none", "filter": [REGEX, {"function": "majority_vote"}, FIRST]}]}, 1.0),
        ("is a0", {"filter_list": [{"name": "none", "filter": [REGEX]}]}, 1.0),
        (
            "a0",
            {"process_results": lambda doc, results: {"right": results[0] == doc["a"], "n": doc["n"]}},
            {"right,none": 1.0, "n,none": 0.0},
        ),
    ],
)
def test_what_a_response_is_worth(text, fields, columns):
    expected = columns if isinstance(columns, dict) else {"exact_match,none": columns}
    assert verdict(text, **fields).fields == expected


def test_a_pipeline_that_needs_more_responses_waits_for_the_whole():
    first_two = {"name": "two", "filter": [{"function": "take_first_k", "k": 2}, FIRST]}
    found = verdict("a0", repeats=2, filter_list=[first_two, {"name": "one", "filter": [FIRST]}])
    assert found.fields == {"exact_match,one": 1.0}


@pytest.mark.skipif(importlib.util.find_spec("sacrebleu") is None, reason="sacrebleu is not installed")
def test_a_metric_of_all_documents_is_taken_over_this_one():
    found = verdict("a b c d e", target="a b c d e", metric_list=[{"metric": "bleu"}])
    assert found.fields == {"bleu,none": pytest.approx(100.0)}


@pytest.mark.usefixtures("impatient")
def test_a_pattern_that_does_not_end_is_a_gap():
    steps = [{"function": "regex", "regex_pattern": "answer: ((?:z|z)*)!"}, FIRST]  # one that no probe finds out
    with pytest.raises(VerifierError) as caught:
        verdict("answer: " + "z" * 40, filter_list=[{"name": "none", "filter": steps}])
    assert caught.value.outcome == "filter_timeout"


def test_a_function_that_fails_leaves_the_answer_unjudged():
    def broken(doc, results):
        raise KeyError("x")

    with pytest.raises(VerifierError, match="process_results failed: KeyError"):
        verdict("a0", process_results=broken)
    assert DOCS[0]["a"] == "a0"


def test_scores_that_the_dialect_knows_are_rewards_by_their_names():
    pipelines = [{"name": "strict", "filter": [REGEX, FIRST]}, {"name": "loose", "filter": [FIRST]}]
    metrics = [{"metric": "exact_match"}, {"metric": lambda references, predictions: 0.5, "aggregation": "mean"}]
    assert verdict("it is a0", filter_list=pipelines).rewards == {"exact_match": 1.0}  # --metric exact_match; the first
    assert list(verdict("a0", metric_list=metrics).rewards) == ["exact_match"]


@pytest.mark.parametrize(("how", "said"), [("nanmean", "excludes it, too"), ("mean", "includes it")])
def test_a_score_that_is_nan_is_no_reward_and_says_what_the_number_makes_of_it(how, said):
    def odd(references, predictions):
        return float("nan")

    with pytest.raises(VerifierError, match=f"^odd,none is nan for this document, .* number {said}$"):
        verdict("a0", metric_list=[{"metric": odd, "aggregation": how, "higher_is_better": True}])
