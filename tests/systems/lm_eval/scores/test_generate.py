from __future__ import annotations

import pytest

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.scores.entries import Entry, entries, process, reference_of, score_answer

EXACT = entries([{"metric": "exact_match", "ignore_case": True}], "generate_until")


def half(references, predictions):
    return {"half": 0.5 if references[0] == predictions[0] else 0.0, "length": len(predictions[0])}


HALF = Entry("half", function=half)


@pytest.mark.parametrize(
    ("target", "answer", "several", "expected"),
    [
        (7, "7", False, {"exact_match": 1.0}),  # the target takes the answer's type
        ("2", 2, False, "no text"),  # and an answer that is no text cannot be folded
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
            score_answer(EXACT, target, answer, several=several)
    else:
        assert score_answer(EXACT, target, answer, several=several) == pytest.approx(expected)


def test_a_target_that_cannot_be_read_as_the_answer_is():
    assert reference_of("2", 2, several=False) == 2
    with pytest.raises(InputError, match="read as int"):
        reference_of("two", 2, several=False)


def test_corpus_metrics_keep_pairs_with_every_reference():
    found = entries([{"metric": "bleu"}, {"metric": "ter"}], "generate_until")
    assert score_answer(found, "the cat", "a cat") == {"bleu": ("the cat", "a cat"), "ter": ("the cat", "a cat")}
    assert score_answer(found, ["a", "b"], "c", several=True)["bleu"] == (["a", "b"], "c")  # there: 1.0, and a crash


def test_the_keys_of_a_functions_answer_are_metrics_and_the_best_target_counts():
    assert score_answer([HALF], "ab", "ab") == {"half": 0.5, "length": 2}
    assert score_answer([HALF], ["xx", "ab"], "ab", several=True) == {"half": 0.5, "length": 2}  # there: 1.0


def test_exact_match_does_not_spoil_what_comes_after_it():
    def is_text(references, predictions):
        return float(isinstance(predictions[0], str))

    assert score_answer([*EXACT, Entry("is_text", function=is_text)], ["a"], "a", several=True)["is_text"] == 1.0


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
