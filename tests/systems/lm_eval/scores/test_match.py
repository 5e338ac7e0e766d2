from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.scores.entries import Rules, match_all, matches
from calipers.text.patterns import RegexTimeout

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


def test_an_exploding_pattern_is_stopped_in_a_thread_too():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(matches, "$1,200", ["1200"], Rules.of(regexes_to_ignore=[",", "\\$"])).result() == 1.0
        with pytest.raises(RegexTimeout):
            pool.submit(matches, "a" * 60 + "!", ["b"], Rules.of(regexes_to_ignore=["(a+)+$"])).result()
