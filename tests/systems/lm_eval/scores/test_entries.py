from __future__ import annotations

import pytest

from calipers.errors import CalipersError, InputError, UnknownName
from calipers.systems.lm_eval.scores.entries import DEFAULTS, entries, passed_by


def only(entry, kind="generate_until", **asked):
    (found,) = entries([entry], kind, **asked)
    return found


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_of_an_output_type(kind):
    assert tuple(entry.name for entry in entries(None, kind)) == DEFAULTS[kind]
    assert [entry.name for entry in entries([], kind)] == list(DEFAULTS[kind])


def test_what_an_entry_says_wins_over_what_is_known():
    entry = only({"metric": "exact_match", "aggregation": "median", "higher_is_better": False, "ignore_case": True})
    assert (entry.aggregation, entry.higher_is_better, entry.rules.ignore_case) == ("median", False, True)
    plain = only({"metric": "ter"})
    assert (plain.aggregation, plain.higher_is_better) == ("ter", False)


def test_settings_stand_flat_or_under_kwargs_and_k_goes_to_the_reduction():
    entry = only({"metric": "exact_match", "ignore_case": False, "kwargs": {"ignore_case": True}, "k": 2})
    assert entry.settings == {"ignore_case": True}
    assert entry.k == 2


def test_the_last_of_two_with_one_name_counts():
    found = entries([{"metric": "exact_match"}, {"metric": "exact_match", "ignore_case": True}], "generate_until")
    assert [entry.settings for entry in found] == [{"ignore_case": True}]


def test_a_function_is_named_after_itself():
    def overlap(references, predictions):
        return 1.0

    entry = only({"metric": overlap, "aggregation": "mean"})
    assert (entry.name, entry.function, entry.higher_is_better) == ("overlap", overlap, None)
    with pytest.raises(InputError, match="no aggregation"):
        only({"metric": overlap})


@pytest.mark.parametrize(
    ("entry", "kind", "error", "said"),
    [
        ({"metric": "exact_mach"}, "generate_until", UnknownName, "exact_match"),
        ({"metric": "exact_mach"}, "multiple_choice", UnknownName, "exact_match"),
        ({"metric": "exact_match", "ignore_cas": True}, "generate_until", UnknownName, "ignore_case"),
        ({"metric": "bleu", "lowercase": True}, "generate_until", UnknownName, "it takes none"),
        ({"metric": "exact_match", "ignore_case": 1}, "generate_until", InputError, "true or false"),
        ({"metric": "exact_match", "regexes_to_ignore": ["("]}, "generate_until", InputError, "pattern"),
        ({"metric": "acc"}, "generate_until", InputError, "expected one of exact_match"),
        ({"metric": 5}, "generate_until", InputError, "expected a name"),
        ({"metric": "exact_match", "hf_evaluate": True}, "generate_until", CalipersError, "evaluate"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(entry, kind, error, said):
    with pytest.raises(error, match=said):
        only(entry, kind)


def test_with_process_results_any_name_will_do():
    assert only({"metric": "rouge9", "higher_is_better": True}, scored=False).aggregation == "mean"


def test_log_likelihoods_pass_other_metrics_by():
    found = entries([{"metric": "bleu"}, {"metric": "acc"}, {"metric": "f1", "hf_evaluate": True}], "multiple_choice")
    assert passed_by(found, "multiple_choice") == ["bleu"]
    assert passed_by(entries(None, "generate_until"), "generate_until") == []
