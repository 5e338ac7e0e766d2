"""Patterns that explode are found out before a run, and no other is refused."""

import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.filters import MARKED
from calipers.systems.lm_eval.pipelines import check_ends, patterns_of


@pytest.mark.parametrize(
    ("pattern", "character"),
    [
        ("(a+)+$", "a"),
        (r"(\d+)*x", "0"),
        (r"(\w+\s?)*:", "0"),
        (r"answer: ((?:z|z)*)!", None),  # only after "answer: ", which nobody tries
        ("(Q|Q)*!", "Q"),  # the pattern's own letters are tried
    ],
)
def test_a_repetition_in_a_repetition(pattern, character):
    if character is None:
        check_ends(pattern)
        return
    with pytest.raises(InputError, match=f"does not end on 40 times '{character}'; expected no repetition"):
        check_ends(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        MARKED,
        r"(-?[$0-9.,]{2,})|(-?[0-9]+)",
        r"(?i)the (?:final )?answer is:?\s*\**\(?([A-J])\)?",
        r"^(.*?)(?=Q:|$)",
        r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}",  # nested, and every way through it is a different text
        r"((?<=The answer is )(.*)(?=\.)|(?<=the answer is )(.*)(?=\.))",
        "",
    ],
)
def test_patterns_of_real_tasks_end(pattern):
    check_ends(pattern)


def test_where_patterns_stand():
    step = {"function": "regex", "regex_pattern": "a", "kwargs": {"regexes_to_ignore": ["b", "c"]}}
    assert list(patterns_of(step)) == ["a", "b", "c"]
    assert list(patterns_of({"metric": "exact_match", "regexes_to_ignore": "d"})) == ["d"]
    assert list(patterns_of({"function": "take_first"})) == []
