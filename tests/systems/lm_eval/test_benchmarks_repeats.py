"""Verifying one of several responses during a run, and errors that are found before the run."""

import asyncio

import pytest
from systems.lm_eval.tasks.given import task

from calipers.clients import Completion
from calipers.errors import InputError
from calipers.systems.lm_eval.benchmarks import judge_of
from calipers.tasks import Task

FIRST = {"function": "take_first"}


def verdict(text, target="a0", **fields):
    made = task(**fields)
    return asyncio.run(judge_of(made).verify(Task("0", "?", "lm_eval", target), Completion(text)))


@pytest.mark.parametrize(("said", "score"), [("a0", 1.0), ("x", 0.0)])
def test_where_every_pipeline_needs_more_responses_all_are_taken_to_say_the_same(said, score):
    two = {"name": "two", "filter": [{"function": "take_first_k", "k": 2}, {"function": "majority_vote"}, FIRST]}
    found = verdict(said, repeats=2, filter_list=[two])
    assert (found.reward, found.fields, found.answer) == (score, {"exact_match,two": score}, said)


def test_a_metric_that_wants_all_repeats_is_not_called_a_failure():
    def both(references, predictions):
        first, second = predictions[0]
        return float(first == second == references[0])

    metrics = [{"metric": both, "aggregation": "mean"}]
    pipelines = [{"name": "all", "filter": [{"function": "noop"}]}]
    assert verdict("a0", repeats=2, filter_list=pipelines, metric_list=metrics).fields == {"both,all": 1.0}


def test_a_function_that_adds_up_documents_is_taken_over_this_one():
    def share(items):
        return sum(gold == said for gold, said in items) / len(items)

    found = verdict("a0", metric_list=[{"metric": "acc", "aggregation": share}])
    assert found.fields == {"acc,none": 1.0}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"metric_list": [{"metric": "exact_match", "reduction": "meen"}]}, "no reduction named 'meen'; did you mean"),
        (
            {"metric_list": [{"metric": "exact_match", "reduction": "pass_at_k", "k": 3}], "repeats": 2},
            "metric_list: k is 3, but repeats is 2; expected repeats: 3 or more",
        ),
        (
            {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["(a+)+$"]}]},
            "metric_list: pattern .* does not finish matching 40 times 'a'",
        ),
        (
            {"scorer": {"type": "regex", "kwargs": {"regex_pattern": "(a+)+$"}}},
            ("scorer: pattern .* does not finish matching"),
        ),
        (
            {"metric_list": [{"metric": "acc"}]},
            ("^inline task: metric_list: metric 'acc' is not a metric of generate_until"),
        ),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_what_would_fail_after_the_run_is_refused_before_it(fields, said):
    with pytest.raises(InputError, match=said):
        verdict("a0", **fields)
