"""Filters by name, and chains of filters."""

from __future__ import annotations

import pytest

from calipers.errors import InputError, PluginError
from calipers.names import FILTERS
from calipers.text.filters import WORTH, filtered, find_filter
from calipers.text.patterns import RegexTimeout


def chain(*asked):
    return [find_filter(one) for one in asked]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["after_marker", "lower"], "yes"),
        (["after_marker=>>", "strip"], None),  # no answer skips all later filters
        (["regex=is=([A-Z]+)"], "NO"),  # the setting is all that follows the first equals sign
        ([], "It is=NO #### YES"),
    ],
)
def test_a_row_of_filters(asked, expected):
    assert filtered(chain(*asked), ["It is=NO #### YES"]) == [expected]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("last_numbr", "no filter named 'last_numbr'; did you mean 'last_number'"),
        ("regex", "filter 'regex': no pattern; expected regex=PATTERN"),
        ("regex=", "filter 'regex': the setting is empty; expected regex=PATTERN"),
        ("tag=", "filter 'tag': the setting is empty; expected tag=NAME"),
        ("strip=x", "filter 'strip': takes no setting, but got 'x'; expected strip"),
        ("regex=(", "pattern '(': missing ), unterminated subpattern at position 0"),
    ],
)
def test_what_is_no_filter(asked, said):
    with pytest.raises(InputError) as caught:
        find_filter(asked)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("asked", sorted(FILTERS.entries))
def test_every_filter_takes_any_text(asked):
    one = find_filter(f"{asked}=(x)" if asked.startswith("regex") else asked)
    texts = ["", " ", "x", "\n", "{", "}{", "<answer>", "\\boxed{", "####", "\0", "é" * 300]
    assert all(answer is None or isinstance(answer, str) for answer in one.over(texts))


@pytest.mark.parametrize("name", ["regex", "regex_last"])
@pytest.mark.parametrize("pattern", [r"(\d+)|(x)", "([0-9]+)$", "[0-9]+"])
def test_many_texts_get_the_answers_that_each_gets_alone(name, pattern):
    one = find_filter(f"{name}={pattern}")
    texts = [f"{i} and {i * 7}" if i % 3 else f"٣ {i}" if i % 2 else "none" for i in range(2 * WORTH)]
    assert one.over(texts) == [one.find(text) for text in texts]


@pytest.mark.usefixtures("impatient")
def test_a_pattern_that_finds_no_end_is_no_answer_and_stops_nothing():
    slow, good = filtered(chain("regex=(a+)+$", "lower"), ["a" * 60 + "!", "aaa"])
    assert isinstance(slow, RegexTimeout)
    assert good == "aaa"


def test_a_filter_of_somebody_else():
    FILTERS.add("shout", lambda text: text.upper())
    FILTERS.add("broken", lambda text: text[99])
    try:
        assert filtered(chain("shout"), ["a"]) == ["A"]
        with pytest.raises(PluginError, match="filter 'broken' failed: IndexError: string index out of range"):
            filtered(chain("broken"), ["a"])
    finally:
        FILTERS.discard("shout")
        FILTERS.discard("broken")
