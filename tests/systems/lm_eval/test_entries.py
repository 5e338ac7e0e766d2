"""Entries of a metric_list, also odd ones from shipped tasks, and the scores of answers."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from calipers.errors import CalipersError, InputError, PluginError, UnknownName
from calipers.systems.lm_eval.entries import (
    DEFAULTS,
    Entry,
    Rules,
    entries,
    match_all,
    matches,
    process,
    reference_of,
    score_answer,
    score_loglikelihood,
    score_rolling,
    silently_ignored,
    words,
)
from calipers.text.patterns import RegexTimeout


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
        ({"metric": "acc", "higher_is_better": "no"}, "multiple_choice", InputError, "is 'no'; expected true or false"),
        ({"metric": "bleu", "higher_is_better": {}}, "generate_until", InputError, "is {}; expected true or false"),
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
    assert silently_ignored(found, "multiple_choice") == ["bleu"]
    assert silently_ignored(entries(None, "generate_until"), "generate_until") == []


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
        ({"metric": "acc"}, InputError, "metric 'acc' is not a metric of generate_until"),  # a mean of pairs is nothing
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


GSM = {"regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"]}


@pytest.mark.parametrize(
    ("prediction", "reference", "rules", "expected"),
    [
        ("B", "B", {}, 1.0),
        ("B ", "B", {}, 0.0),  # nothing is stripped
        ("B\0", "B", {}, 0.0),  # numpy would lose the NUL
        (3, "3", {}, 0.0),
        (3, 3.0, {}, 1.0),
        ("ΑΣ", "ας", {"ignore_case": True}, 1.0),
        ("STRASSE", "straße", {"ignore_case": True}, 0.0),  # lower case, not folded
        ("«B»", "B", {"ignore_punctuation": True}, 0.0),  # ASCII only
        ("a٣", "a", {"ignore_numbers": True}, 0.0),  # ASCII only
        ("$1,200.", "so\n#### 1200", GSM, 1.0),
        ("x", "x", {"regexes_to_ignore": "x"}, 1.0),  # one pattern may stand without a list
        (["5", "4", "5", "5"], "5", {}, 0.75),  # a list over repeats: their share
        (["A", "b."], "a", {"ignore_case": True}, 0.5),
    ],
)
def test_matches(prediction, reference, rules, expected):
    assert matches(prediction, [reference], Rules.of(**rules)) == expected


def test_no_predictions_are_no_number():
    assert math.isnan(matches([], ["x"]))


def test_an_empty_list_of_patterns_ignores_nothing():
    assert matches(["a", "b"], ["a"], Rules.of(regexes_to_ignore=[])) == 0.5  # there: lists as wholes


@pytest.mark.parametrize(
    ("prediction", "reference", "rules"),
    [
        (3, 3, {"ignore_case": True}),
        (["5"], "5", {"regexes_to_ignore": [","]}),
    ],
)
def test_what_cannot_be_normalised_is_refused(prediction, reference, rules):
    with pytest.raises(InputError):
        matches(prediction, [reference], Rules.of(**rules))


@pytest.mark.parametrize("rules", [{"ignore_case": "yes"}, {"regexes_to_ignore": [5]}, {"regexes_to_ignore": ["("]}])
def test_rules_of_the_wrong_kind(rules):
    with pytest.raises(InputError):
        Rules.of(**rules)


def test_any_of_several_references_is_right_and_no_answer_is_none():
    assert matches("b", ["a", "b"]) == 1.0
    assert matches(["a", "b", "c", None], ["a", "b"]) == 0.5
    assert matches(None, [None], Rules.of(ignore_case=True)) == 0.0


@pytest.mark.usefixtures("impatient")
def test_an_exploding_pattern_is_stopped():
    with pytest.raises(RegexTimeout):
        matches("a" * 60 + "!", ["b"], Rules.of(regexes_to_ignore=["(a+)+$"]))


@pytest.mark.parametrize("rules", [{}, GSM, {"ignore_case": True, "ignore_punctuation": True, "ignore_numbers": True}])
def test_many_at_once_are_as_one_by_one(rules):
    rng = random.Random(1)
    texts = [
        "".join(rng.choices(["a", "A", ".", "1", ",", "$", "#### ", "\n"], k=rng.randint(0, 5))) for _ in range(400)
    ]
    others = rng.sample(texts, len(texts))
    held = Rules.of(**rules)
    assert match_all(texts, others, held) == [matches(text, [other], held) for text, other in zip(texts, others)]


@pytest.mark.usefixtures("impatient")
def test_an_exploding_pattern_is_stopped_in_a_thread_too():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(matches, "$1,200", ["1200"], Rules.of(regexes_to_ignore=[",", "\\$"])).result() == 1.0
        with pytest.raises(RegexTimeout):
            pool.submit(matches, "a" * 60 + "!", ["b"], Rules.of(regexes_to_ignore=["(a+)+$"])).result()


EXACT = entries([{"metric": "exact_match", "ignore_case": True}], "generate_until")


def half(references, predictions):
    return {"half": 0.5 if references[0] == predictions[0] else 0.0, "length": len(predictions[0])}


HALF = Entry("half", function=half)


@pytest.mark.parametrize(
    ("target", "answer", "several", "expected"),
    [
        (7, "7", False, {"exact_match": 1.0}),  # the target takes the answer's type
        ("2", 2, False, "is not text"),  # and an answer that is no text cannot be folded
        ("x", None, False, {"exact_match": 0.0}),  # there: TypeError
        (["NYC", "New York"], "new york", True, {"exact_match": 1.0}),
        (["NYC"], ["nyc", "LA", None], True, {"exact_match": 1 / 3}),
        ([], "x", True, {"exact_match": 0.0}),
        ("a", ["A", "b"], False, {"exact_match": 0.5}),
        ("a", [None, "a"], False, {"exact_match": 0.5}),
    ],
)
def test_exact_match_of_a_document(target, answer, several, expected):
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            score_answer(EXACT, target, answer, multiple_targets=several)
    else:
        assert score_answer(EXACT, target, answer, multiple_targets=several) == pytest.approx(expected)


def test_a_target_that_cannot_be_read_as_the_answer_is():
    assert reference_of("2", 2, multiple_targets=False) == 2
    with pytest.raises(InputError, match="read as int"):
        reference_of("two", 2, multiple_targets=False)


def test_corpus_metrics_keep_pairs_with_every_reference():
    found = entries([{"metric": "bleu"}, {"metric": "ter"}], "generate_until")
    assert score_answer(found, "the cat", "a cat") == {"bleu": ("the cat", "a cat"), "ter": ("the cat", "a cat")}
    # lm-eval scores 1.0 here, and then crashes
    assert score_answer(found, ["a", "b"], "c", multiple_targets=True)["bleu"] == (["a", "b"], "c")


def test_the_keys_of_a_functions_answer_are_metrics_and_the_best_target_counts():
    assert score_answer([HALF], "ab", "ab") == {"half": 0.5, "length": 2}
    assert score_answer([HALF], ["xx", "ab"], "ab", multiple_targets=True) == {"half": 0.5, "length": 2}  # there: 1.0


def test_exact_match_does_not_spoil_what_comes_after_it():
    def is_text(references, predictions):
        return float(isinstance(predictions[0], str))

    metrics = [*EXACT, Entry("is_text", function=is_text)]
    assert score_answer(metrics, ["a"], "a", multiple_targets=True)["is_text"] == 1.0


def test_a_function_of_one_list():
    assert score_answer([Entry("same", function=lambda items: float(items[0] == items[1]))], "a", "a") == {"same": 1.0}


def test_a_function_that_fails_is_named():
    with pytest.raises(PluginError, match="'broken' failed: ZeroDivisionError"):
        score_answer([Entry("broken", function=lambda references, predictions: 1 / 0)], "a", "a")


def test_nothing_is_scored_where_nothing_is_to_be():
    assert score_answer(entries([{"metric": "bypass"}], "generate_until"), 5, "x") == {"bypass": None}


@pytest.mark.parametrize("function", [lambda doc, results: 1 / 0, lambda doc, results: 1.0])
def test_process_results_that_fails_or_gives_no_mapping(function):
    with pytest.raises(PluginError, match="process_results"):
        process(function, {}, ["x"])


@pytest.mark.parametrize(("text", "expected"), [("a b", 2), (" a", 2), ("a ", 2), ("", 1), ("a\u2003b\n\nc", 3)])
def test_words(text, expected):
    assert words(text) == expected


def test_a_continuation():
    assert score_loglikelihood([-1.25, True], ["acc", "perplexity", "bleu"]) == {"perplexity": -1.25, "acc": 1}
    with pytest.raises(InputError, match="is_greedy"):
        score_loglikelihood(-1.25, ["acc"])


def test_a_whole_text_by_words_and_by_bytes():
    names = ["bits_per_byte", "word_perplexity", "byte_perplexity"]
    found = score_rolling(-20.0, "naïve café  x\n", names)
    assert found == {"word_perplexity": (-20.0, 4), "byte_perplexity": (-20.0, 16), "bits_per_byte": (-20.0, 16)}


def test_the_perplexity_of_whole_texts_is_of_their_log_likelihoods():
    assert score_rolling(-20.0, "two words", ["perplexity"]) == {"perplexity": -20.0}
