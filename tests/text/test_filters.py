"""Which patterns are searched by Rust, and that it finds the same as Python's `re`."""

from __future__ import annotations

import random
import re

import pytest

from calipers.text.filters import answers, first_matches, plain, regex, regex_last

TEXTS = [
    "",
    "a",
    "b#4",
    "ab,ba.",
    "-12.5",
    "aaabbb",
    "The answer is 42.\nx",
    "##",
    "[a]",
    "a-b_c 7",
    "0,0",
    "{2}",
    "\x1c \t",
]


@pytest.mark.parametrize(
    "pattern",
    [
        r"#### (\-?[0-9\.\,]+)",
        r"(-?[$0-9.,]{2,})|(-?[0-9]+)",
        "[[]",  # as text, Rust would take the bracket for the begin of a class in the class
        "x{",
        "a{,2}b",
        "[a&&b]",  # an ampersand, not an intersection
        "[^a-c]+?d",
        r"\d+\s\w*?z",
        "(?:ab|a)(c|bcd)(d*)",
        "[\\x00-\\uffff]",  # a class around the surrogates
        "(?P<n>[0-9])",
        "((a)b*)",
        "(a)|((b)b)|([0-9])",
        "(?:a(b))|(1)",  # a match that is no group
    ],
)
@pytest.mark.filterwarnings("ignore:Possible")  # of Python's, that some day a bracket in a class may mean more
def test_plain_patterns_find_the_same(pattern):
    found = plain(pattern)
    assert found is not None
    _check(pattern, found, TEXTS)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("^a", "an anchor"),
        ("a$", "Python's $ also stands before a last newline"),
        (r"\bx", "a word is another thing to each"),
        ("(?=a)b", "a look-around"),
        (r"(a)\1", "a back-reference"),
        ("(?i)a", "a flag"),
        ("(?s:.)", "a flag for a part"),
        ("a*", "it can match nothing"),
        ("(a|b*)+c", "it repeats what can be empty"),
        ("a++b", "a possessive repeat"),
        ("(?>a)b", "an atomic group"),
        ("\\ud800", "half a character"),
        ("(", "no pattern"),
        ("a{500}{500}{500}", "too large for Rust"),
    ],
)
def test_others_do_not(pattern, why):
    assert plain(pattern) is None, why


def test_beyond_ascii_categories_differ():
    digits, letters = plain(r"\d+"), plain("[0-9]+")
    assert (digits.fits("3"), digits.fits("٣")) == (True, False)  # a digit to both, but not in our words for Rust
    assert letters.fits("٣")


def test_random_plain_patterns_find_the_same():
    rng, tried = random.Random(5), 0
    while tried < 300:
        pattern = _random(rng, 3)
        found = plain(pattern)
        if found is None:
            continue
        tried += 1
        texts = ["".join(rng.choices("ab1-., #\n", k=rng.randint(0, 14))) for _ in range(12)]
        _check(pattern, found, texts)


def _check(pattern, found, texts):
    expected = [match[0] if (match := re.search(pattern, text)) else None for text in texts]
    assert first_matches(found, texts) == expected, pattern
    assert answers(found, texts, last=False) == [regex(text, pattern=pattern) for text in texts], pattern
    assert answers(found, texts, last=True) == [regex_last(text, pattern=pattern) for text in texts], pattern


def _random(rng: random.Random, depth: int) -> str:
    parts = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(6 if depth else 3)
        if kind < 2:
            part = rng.choice(["a", "b", "1", "-", r"\.", ",", "#", ".", r"\d", r"\s", r"\w", r"\W", r"\n"])
        elif kind == 2:
            part = rng.choice(["[ab]", "[^a]", "[0-9.,]", r"[\d-]", r"[^\s#]", "[a-b1]"])
        else:
            inner = _random(rng, depth - 1)
            part = rng.choice(["({})", "(?:{})", "({}|b)", "(?:a|{})"]).format(inner)
        parts.append(part + rng.choice(["", "", "", "+", "*", "?", "+?", "*?", "{2}", "{1,3}", "{1,2}?"]))
    return "".join(parts)
