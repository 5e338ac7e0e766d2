import json
import re

import pytest

from calipers.verifiers import user_code
from calipers.verifiers import user_code as fns
from calipers.verifiers.user_code import find_verifier

CASE = {"ignore_case": True}
CLICK = {"tool": "click", "action": "left", "coordinate": [100, 100]}
TA = {"tool": "t", "action": "a"}


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch):
    monkeypatch.setattr(user_code, "_registered", {})


def clicked(*coordinate):
    return json.dumps({**CLICK, "coordinate": coordinate})


@pytest.mark.parametrize(
    ("name", "output", "expected", "params", "reward"),
    [
        ("exact_match", "  42\n", "42", {}, 1.0),
        ("exact_match", "42", 42, {}, 1.0),
        ("exact_match", "True", True, {}, 1.0),
        ("exact_match", "0", 0, {}, 0.0),  # a false value becomes the empty text
        ("exact_match", "", 0, {}, 1.0),
        ("exact_match", "", None, {}, 1.0),
        ("exact_match", "False", False, {}, 0.0),
        ("exact_match", "", [], {}, 1.0),
        ("exact_match", None, "", {}, 1.0),  # a client without an answer
        ("exact_match", "1", 1.0, {}, 0.0),  # numbers are compared as text
        ("exact_match", "YES", "yes", {}, 0.0),
        ("exact_match", "YES", "yes", CASE, 1.0),
        ("exact_match", "YES", "yes", {"ignore_case": "false"}, 1.0),  # any text is true
        ("exact_match", "YES", "yes", {"ignore_case": 0}, 0.0),
        ("exact_match", "STRASSE", "straße", CASE, 0.0),  # lower case, not case folding
        ("contains", "the needle is", "needle", {}, 1.0),
        ("contains", "anything", "", {}, 0.0),
        ("contains", "10", 0, {}, 0.0),
        ("contains", "x", " x", {}, 0.0),
        ("contains", "10", 1, {}, 1.0),
        ("contains", None, "x", {}, 0.0),
        ("contains", "the NEEDLE is", "Needle", CASE, 1.0),
        ("regex_match", "a\nb", "^b", {}, 0.0),
        ("regex_match", "a\nb", "(?m)^b", {}, 1.0),
        ("regex_match", "a\nb", "a.b", {}, 0.0),
        ("regex_match", "abc", "", {}, 0.0),
        ("regex_match", "abc", None, {}, 0.0),
        ("regex_match", "abc", "B", CASE, 1.0),
        ("regex_match", "answer: 42", r"\b42$", {}, 1.0),
        ("tool_calls_match", clicked(125, 75), CLICK, {}, 1.0),  # 25 either way, inclusive
        ("tool_calls_match", clicked(126, 100), CLICK, {}, 0.0),
        ("tool_calls_match", clicked(110, 100), CLICK, {"coordinate_tolerance": "9"}, 0.0),
        ("tool_calls_match", clicked(109, 100), CLICK, {"coordinate_tolerance": "9"}, 1.0),
        ("tool_calls_match", 'Sure: {"tool":"t","action":"a","x":1} done', TA, {}, 1.0),
        ("tool_calls_match", '[{"tool":"t","action":"a"}]', TA, {}, 1.0),  # from brace to brace
        ("tool_calls_match", '{"tool":"t"} {"tool":"t"}', {"tool": "t"}, {}, 0.0),
        ("tool_calls_match", "{}", {}, {}, 1.0),
        ("tool_calls_match", "hi", {}, {}, 0.0),
        ("tool_calls_match", json.dumps(TA), json.dumps(TA), {}, 1.0),
        ("tool_calls_match", json.dumps(TA), None, {}, 0.0),
        ("tool_calls_match", json.dumps(TA), "", {}, 0.0),
    ],
)
def test_reward(name, output, expected, params, reward):
    answer = fns.get(name)(output, expected, params)
    assert (answer, type(answer)) == (reward, float)
    assert fns.get(name) is getattr(fns, name)


def test_an_expected_action_that_is_none():
    with pytest.raises(AttributeError):
        fns.tool_calls_match(json.dumps(TA), [1], {})


def test_a_bad_pattern_is_an_error_of_re():
    with pytest.raises(re.error, match="unterminated subpattern") as caught:
        fns.regex_match("a", "(a", {})
    assert caught.value.pos == 0


def test_an_unknown_name_lists_those_there_are():
    said = r"Unknown verifier fn 'nope'; registered: \['contains', 'exact_match', 'regex_match', 'tool_calls_match'\]"
    with pytest.raises(ValueError, match=said):
        fns.get("nope")


def test_what_is_registered_here_judges_runs():
    @fns.register_fn("mine")
    def mine(model_output, expected, params):
        return 1

    assert fns.get("mine") is find_verifier("mine").fn is mine
    fns.register("mine", fns.contains)
    assert fns.get("mine") is find_verifier("mine").fn is fns.contains
    assert "mine" in fns.list_fns()


def test_all_that_is_lent_is_there():
    assert fns.__all__ == sorted(fns.__all__)
    assert all(getattr(fns, name) for name in fns.__all__)
