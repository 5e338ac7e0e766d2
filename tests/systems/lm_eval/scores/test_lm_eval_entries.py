"""Entries of a metric_list in the shapes that shipped tasks have, odd ones among them."""

import pytest

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.scores.entries import entries, score_answer


def only(entry):
    [found] = entries([entry], "generate_until")
    return found


def add_up(items):
    return len(items)


def test_k_belongs_to_a_function_that_counts_passes_itself():
    def pass_at_k(references, predictions, k):
        return {f"pass@{one}": float(len(predictions[0]) >= one) for one in k}

    entry = only({"metric": pass_at_k, "aggregation": "mean", "k": [1, 3]})
    assert (entry.k, entry.settings) == (None, {"k": [1, 3]})
    assert score_answer([entry], "x", ["x", "y"]) == {"pass@1": 1.0, "pass@3": 0.0}
    reduced = only({"metric": pass_at_k, "aggregation": "mean", "k": 2, "reduction": "pass_at_k"})
    assert (reduced.k, reduced.settings) == (2, {})  # unless the task reduces by it


@pytest.mark.parametrize("k", ["many", 0, [1, "two"], True, 1.5])
def test_a_k_that_is_none(k):
    with pytest.raises(InputError, match="expected a positive integer, or a list of them"):
        only({"metric": "exact_match", "reduction": "pass_at_k", "k": k})


@pytest.mark.parametrize("name", ["acc", "f1", "brier_score"])
def test_a_metric_that_a_function_adds_up_keeps_pairs(name):
    entry = only({"metric": name, "aggregation": add_up, "ignore_case": True, "regexes_to_ignore": [","]})
    assert score_answer([entry], "A", ["a"]) == {name: ("A", ["a"])}


def test_exact_match_is_a_number_whatever_adds_it_up():
    assert score_answer([only({"metric": "exact_match", "aggregation": add_up})], "A", "A") == {"exact_match": 1.0}


@pytest.mark.parametrize(
    ("entry", "error", "said"),
    [
        ({"metric": "acc"}, InputError, "metric 'acc' is none of generate_until"),  # a mean of pairs is nothing
        ({"metric": "acc", "aggregation": add_up, "ignore_cas": True}, UnknownName, "'ignore_cas'"),
        ({"metric": "f1", "ignore_case": True}, UnknownName, "setting of metric 'f1' named 'ignore_case'"),
        ({"metric": "exact_match", "ignore_case": "yes"}, InputError, "ignore_case is 'yes'; expected true or false"),
    ],
)
def test_what_is_still_refused(entry, error, said):
    with pytest.raises(error, match=said):
        only(entry)


def test_a_flag_above_a_list_of_nobody():
    entry = only({"metric": "exact_match", "ignore_punctuation": 'true - "." - ","'})
    assert score_answer([entry], "a.", "a") == {"exact_match": 1.0}


def test_the_reason_that_is_told_is_the_first():
    def broken(references, predictions, **more):
        return 1 + references[0]

    def strict(items, *, needed):
        return 0.0

    with pytest.raises(PluginError, match="metric 'broken' failed: TypeError: unsupported operand"):
        score_answer([only({"metric": broken, "aggregation": "mean"})], "a", "b")
    with pytest.raises(PluginError, match=r"metric 'strict' failed: TypeError: .*unexpected keyword argument"):
        score_answer([only({"metric": strict, "aggregation": "mean"})], "a", "b")
