import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.reports.untrusted_text import (
    BROKEN,
    LONGEST,
    TAIL,
    clean,
    plain,
    safe_json,
    width,
    within,
    without_middle,
)

ANYTHING = st.text(st.characters())  # with lone surrogates


@given(ANYTHING)
def test_nothing_harmful_is_left(text):
    kept = [unicodedata.category(character) for character in clean(text, None) if character not in "\u200c\u200d"]
    assert {"Cc", "Cf", "Cs", "Zl", "Zp"} & {*kept} == set()
    assert len(clean(text, None)) == len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("easy", "easy"),
        ("größe 🙂", "größe 🙂"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # a letter that needs its joiner
        ("a\x1b]0;title\x07b", f"a{BROKEN}]0;title{BROKEN}b"),
        ("a\u2028b\r\nc", "a b  c"),
        ("\ud800", BROKEN),
        ("x" * 100, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_clean(text, expected):
    assert clean(text) == expected


@given(st.dictionaries(ANYTHING, ANYTHING | st.floats(allow_nan=False, allow_infinity=False) | st.none()))
def test_safe_json_is_the_same_json(value):
    document = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    made = safe_json(document)
    assert json.loads(made) == value
    assert clean(made.replace("\n", ""), None) == made.replace("\n", "")
    made.encode()  # no lone surrogate is left


@given(ANYTHING)
def test_plain_is_ascii_of_the_same_length(text):
    longer = text.count("→") + 2 * len(re.findall(r"^… ", text, re.MULTILINE))  # "to" and "... "
    assert plain(text).isascii()
    assert len(plain(text)) == len(text) + longer


@pytest.mark.parametrize(("text", "expected"), [("abc", 3), ("é", 1), ("e\u0301", 1), ("漢字", 4), ("🙂", 2), ("", 0)])
def test_width(text, expected):
    assert width(text) == expected


@given(st.lists(st.text("abc-漢", min_size=1, max_size=40), min_size=1, max_size=8, unique=True), st.integers(12, 40))
def test_names_within_a_width_are_told_apart(names, most):
    short = within(names, most)
    assert max(map(width, short)) <= most
    assert len(set(short)) == len(names)
    assert all(a == b for a, b in zip(names, short, strict=True) if width(a) <= most and b.count("…") == 0)


@given(st.lists(st.text("ab中", max_size=30), max_size=4), st.integers(1, 25))
def test_names_without_their_middle_are_distinct_in_the_least_room(texts, most):
    short = without_middle(texts, most)
    assert len({*short}) == len({*texts})
    least = max(most, TAIL + 2)
    narrower = [
        without_middle([text], room)[0] for room in range(least, max(map(width, short), default=0)) for text in texts
    ]
    rooms = [narrower[at : at + len(texts)] for at in range(0, len(narrower), len(texts) or 1)]
    assert all(len({*each}) < len({*texts}) for each in rooms)


def test_long_names_that_differ_in_their_middle_are_cut_quickly():
    """A comparison of two models with such names took more than a minute."""
    first, second = ("x" * 50_000 + letter + "y" * 50_000 for letter in "ab")
    assert [len(name) for name in without_middle([first, second], 20)] == [50_001 + 1 + TAIL] * 2
