"""Pipelines beyond the golden vectors: outcomes, errors, and exponential patterns that are found before a run."""

from __future__ import annotations

import random
import re

import pytest

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.pipelines import (
    FILTERS,
    MARKED,
    Each,
    check_ends,
    filtered,
    patterns_of,
    pipeline,
    step_of,
)

EXPLODING = {"function": "regex", "regex_pattern": "(a+)+$"}
FATAL = "a" * 60 + "!"
FIRST = {"function": "take_first"}


def run(steps, resps, docs=None):
    return filtered(pipeline({"name": "p", "filter": steps}), resps, docs or [{}] * len(resps))


def words(found):
    return [found.outcomes(document) for document in range(len(found.values))]


@pytest.mark.parametrize(
    ("steps", "resps", "values", "outcomes"),
    [
        ([{"function": "regex"}, FIRST], [["#### 7"], ["seven"]], ["7", "[invalid]"], ["scored", "unparsed"]),
        # an answer that happens to be the fallback was found all the same
        ([{"function": "regex", "regex_pattern": ".+"}, FIRST], [["[invalid]"]], ["[invalid]"], ["scored"]),
        # a second filter may find something in the fallback: the number is lm-eval's, the answer still lost
        ([{"function": "regex"}, {"function": "regex", "regex_pattern": "[a-z]"}, FIRST], [["x"]], ["i"], ["unparsed"]),
        ([{"function": "map", "mapping_dict": {"A": 1}}, FIRST], [["A"], ["B"]], [1, None], ["scored", "unparsed"]),
        ([{"function": "map", "mapping_dict": {"A": None}}, FIRST], [["A"]], [None], ["scored"]),  # said to be nothing
        # the vote of the lost wins, and is lost
        (
            [{"function": "regex"}, {"function": "majority_vote"}, FIRST],
            [["x", "#### 1", "y"]],
            ["[invalid]"],
            ["unparsed"],
        ),
        ([], [["a", "b"]], [["a", "b"]], ["scored"]),
        ([FIRST, FIRST], [["a", "b"]], ["a"], ["scored"]),
        # after take_first a filter sees a list of one, not of characters
        ([FIRST, {"function": "lowercase"}, FIRST], [["YES"]], ["yes"], ["scored"]),
        ([FIRST, {"function": "lowercase"}], [["YES"]], [["yes"]], ["scored"]),
        (
            [{"function": "regex", "group_select": 3}, FIRST],
            [["#### 1"]],
            ["[invalid]"],
            ["unparsed"],
        ),  # there: IndexError
    ],
)
def test_answers_and_what_the_ledger_says(steps, resps, values, outcomes):
    found = run(steps, resps)
    assert found.values == values
    assert found.all_outcomes() == outcomes


@pytest.mark.usefixtures("impatient")
def test_a_pattern_without_end_leaves_a_gap_and_spares_the_others():
    found = run([EXPLODING, {"function": "lowercase"}], [[FATAL, "aa"], ["aaa"]])
    assert found.values == [[None, "aa"], ["aaa"]]
    assert words(found) == [["filter_timeout", "scored"], ["scored"]]


@pytest.mark.usefixtures("impatient")
def test_what_ran_out_of_time_does_not_vote():
    found = run([EXPLODING, {"function": "majority_vote"}, FIRST], [[FATAL, FATAL, "a"], [FATAL]])
    assert found.values == ["a", None]
    assert found.all_outcomes() == ["scored", "filter_timeout"]


PATTERNS = [
    r"#### (\-?[0-9\.\,]+)",
    r"(-?[$0-9.,]{2,})|(-?[0-9]+)",
    r"([A-D])\)|is ([A-D])",
    r"x(a)?(b)?",
    r"x(a)?",
    r"\d+",
    r"is\s*(\w+)",
    r"[^a]b",
    r" (.) ",
]
PIECES = [
    "#### ",
    "12",
    "-3,400.",
    "A)",
    "is B",
    "xa",
    "xb",
    "x",
    " é ",
    "\u2007",
    "\x1c",
    "\n",
    "б",
    "$5",
    " ",
    "",
    "٣",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("select", [0, -1])
@pytest.mark.parametrize("fallback", ["[invalid]", " pad ", None])
def test_many_at_once_are_as_one_by_one(pattern, select, fallback):
    rng = random.Random(f"{pattern}{select}")
    texts = ["".join(rng.choices(PIECES, k=rng.randint(0, 8))) for _ in range(300)]
    texts[7] = None  # what is no text has no answer
    step = {"function": "regex", "regex_pattern": pattern, "group_select": select, "fallback": fallback}
    together = run([step, FIRST], [[text] for text in texts])
    singly = [run([step, FIRST], [[text]]) for text in texts]
    assert together.values == [one.values[0] for one in singly]
    assert together.all_outcomes() == [one.outcome(0) for one in singly]


def test_a_lone_surrogate_among_many_is_no_trouble():
    found = run([{"function": "regex", "regex_pattern": "[0-9]"}, FIRST], [["1 \ud800"]] * 100)
    assert found.values == ["1"] * 100


@pytest.mark.parametrize(
    ("step", "kind", "said"),
    [
        ({"function": "regx"}, UnknownName, "did you mean 'regex'"),
        ({"function": "regex", "pattern": "x"}, UnknownName, "did you mean 'regex_pattern'"),
        ({"function": "take_first", "k": 2}, UnknownName, "it takes none"),
        ({"function": "take_first_k"}, InputError, "has no k"),
        ({"function": "take_first_k", "k": 0}, InputError, "positive"),
        ({"function": "take_first_k", "k": "2"}, InputError, "an integer"),
        ({"function": "regex", "regex_pattern": "("}, InputError, "pattern"),
        ({"function": "regex", "regex_pattern": 5}, InputError, "a pattern as text"),
        ({"function": "regex", "group_select": "first"}, InputError, "an integer"),
        ({"function": "multi_choice_regex", "ignore_case": "yes"}, InputError, "true or false"),
        ({"function": "map", "mapping_dict": ["A"]}, InputError, "a mapping"),
        ({"function": "custom"}, InputError, "has no filter_fn"),
        ({"function": "custom", "filter_fn": "f"}, InputError, "expected a function"),
        ({"regex_pattern": "x"}, InputError, "'function'"),
    ],
)
def test_a_step_that_cannot_be_is_refused_with_what_could(step, kind, said):
    with pytest.raises(kind, match=re.escape(said)):
        step_of(step)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"regex_pattern": "x"}], "filter_list: a step is {'regex_pattern': 'x'}; expected a key 'function'"),
        (5, "filter_list: filter is 5; expected a list"),
        ("take_first", "filter_list: filter is 'take_first'; expected a list"),
    ],
)
def test_a_pipeline_that_is_no_list_of_steps_is_refused(steps, said):
    with pytest.raises(InputError, match=re.escape(said)):
        pipeline({"filter": steps})


def test_a_choice_with_a_blank_at_its_end_without_punctuation_is_itself_the_answer():
    step = {"function": "multi_choice_regex", "regex_pattern": "#([0-9])", "ignore_punctuation": True}
    doc = {"choices": ["yes", "– no"]}
    assert run([step], [["I say – no.", "I say yes."]], [doc]).values == [["no", "(A)"]]  # as in lm-eval


def test_settings_may_also_stand_under_kwargs():
    assert step_of({"function": "regex", "kwargs": {"regex_pattern": "b"}}).answer("abc", {}) == ("b", True)


@pytest.mark.parametrize(
    ("steps", "resps", "docs", "said"),
    [
        ([{"function": "take_first_k", "k": 2}], [["a", "b"], ["c"]], None, "expected repeats: 2"),
        ([{"function": "lowercase"}], [[3]], None, "expected text"),
        ([{"function": "majority_vote"}], [[["a"], ["a"]]], None, "compared"),
        ([{"function": "multi_choice_regex"}], [["x"]], [{"options": []}], "no 'choices'"),
        ([FIRST], [[]], None, "at least one"),
    ],
)
def test_responses_that_a_filter_cannot_take(steps, resps, docs, said):
    with pytest.raises(InputError, match=said):
        run(steps, resps, docs)


class Shout:
    """A user's filter class in lm-eval's form."""

    def __init__(self, mark="!"):
        self.mark = mark

    def apply(self, resps, docs):
        return [[f"{one}{self.mark}{doc['n']}" for one in held] for held, doc in zip(resps, docs, strict=True)]


def test_a_class_of_ones_own():
    assert run([{"function": Shout, "mark": "?"}], [["a"], ["b"]], [{"n": 1}, {"n": 2}]).values == [["a?1"], ["b?2"]]


def test_a_function_of_ones_own_sees_bare_answers_after_take_first():
    def bare(resps, docs):
        return [held * 2 for held in resps]

    assert run([FIRST, {"function": "custom", "filter_fn": bare}], [["ab"]]).values == ["abab"]


@pytest.mark.parametrize("bad", [lambda resps, docs: 1 / 0, lambda resps, docs: []])
def test_a_function_that_fails_or_forgets_a_document(bad):
    with pytest.raises(PluginError):
        run([{"function": "custom", "filter_fn": bad}], [["a"]])


def test_a_plugin_takes_one_text(monkeypatch):
    def last_word(text, *, marker=" "):
        return text.rpartition(marker)[2] or None

    FILTERS.add("last_word", last_word)
    try:
        found = run([{"function": "last_word"}, FIRST], [["the end"], [""]])
        assert isinstance(step_of({"function": "last_word"}), Each)
    finally:
        FILTERS.discard("last_word")
    assert found.values == ["end", "[invalid]"]
    assert found.all_outcomes() == ["scored", "unparsed"]


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
@pytest.mark.usefixtures("impatient")
def test_a_repetition_in_a_repetition(pattern, character):
    if character is None:
        check_ends(pattern)
        return
    with pytest.raises(InputError, match=(f"does not finish matching 40 times '{character}'; expected no nested")):
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
