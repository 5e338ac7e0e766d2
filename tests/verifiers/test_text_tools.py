import json

import pytest
from verifiers.judging import judge, task

from calipers.errors import InputError, VerifierError
from calipers.verifiers.text import TOOL_CALLS_MATCH, parse_action, tool_calls_match

FENCE = "```"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"a": 1}', {"a": 1}),
        (f'{FENCE}json\n{{"a": 1}}\n{FENCE}', {"a": 1}),
        (f'{FENCE}\n{{"a": 1}}{FENCE}', {"a": 1}),
        (f'{FENCE}json {{"a": 1}}', {"a": 1}),  # a fence that is never closed
        ('I say {"a": {"b": 2}} now', {"a": {"b": 2}}),
        ('[{"a": 1}]', {"a": 1}),  # from brace to brace
        ('{"a": 1} {"a": 1}', None),  # two objects are none
        ("}{", None),
        ("[1]", None),
        ("", None),
        (None, None),
        ('{"a": 1,}', None),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, None),  # too deep for the parser, and no crash
        ('{"a": ' + "9" * 5_000 + "}", None),  # too long for an integer
    ],
)
def test_the_object_in_a_text(text, action):
    assert parse_action(text) == action


@pytest.mark.parametrize(
    ("predicted", "expected", "reward"),
    [
        ({"tool": "t", "ref": "a"}, {"tool": "t"}, 1.0),  # what is not expected is not compared
        ({"tool": "t"}, {"tool": "t", "ref": "a"}, 0.0),
        ({"tool": "t"}, {"tool": "t", "ref": None}, 1.0),  # absent is null
        ({"tool": "t", "text": "A"}, {"tool": "t", "text": "a"}, 0.0),
        ({"tool": "t", "other": 1}, {"tool": "t", "other": 2}, 1.0),
        ({"coordinate": [1, 2, 3]}, {"coordinate": [1, 2]}, 0.0),
        ({"coordinate": "1,2"}, {"coordinate": [1, 2]}, 0.0),
        ({}, {"coordinate": [1, 2]}, 0.0),
        ({"coordinate": ["a", "b"]}, {"coordinate": [1, 2]}, 0.0),  # a model's slip is no error of ours
        ({"coordinate": [1.5, 27.0]}, {"coordinate": [1, 2]}, 1.0),
        ({"coordinate": [10**400, 2]}, {"coordinate": [1.5, 2]}, 0.0),  # more than a float holds
    ],
)
def test_compared(predicted, expected, reward):
    assert tool_calls_match(json.dumps(predicted), expected, {}) == reward


def test_not_a_number_is_not_near():
    assert tool_calls_match('{"coordinate": [NaN, 2]}', {"coordinate": [1, 2]}, {}) == 0.0


def test_verdict():
    right = judge(TOOL_CALLS_MATCH, 'so: {"tool": "t", "a": 1}', {"tool": "t"})
    assert (right.reward, right.answer, right.outcome) == (1.0, '{"a": 1, "tool": "t"}', "")
    none = judge(TOOL_CALLS_MATCH, "no idea", {"tool": "t"})
    assert (none.reward, none.answer, none.outcome) == (0.0, None, "unparsed")


@pytest.mark.parametrize(
    ("target", "params", "said"),
    [
        (None, {}, "target is None; expected a JSON object, or text that contains one"),
        ([1], {}, "target is [1]; expected"),
        ("click", {}, "target is 'click'; expected"),
        ({"coordinate": [1]}, {}, "target's coordinate is [1]; expected two numbers"),
        ({"coordinate": None}, {}, "target's coordinate is None; expected two numbers"),
        ({}, {"coordinate_tolerance": "near"}, "coordinate_tolerance is 'near'; expected a whole number"),
        ({}, {"coordinate_tolerance": None}, "coordinate_tolerance is None; expected a whole number"),
        ({}, {"tolerance": 3}, "no param of tool_calls_match named 'tolerance'; did you mean 'coordinate_tolerance'?"),
    ],
)
def test_a_task_that_is_refused(target, params, said):
    with pytest.raises(InputError) as caught:
        TOOL_CALLS_MATCH.check(task(target, "tool_calls_match", **params))
    assert str(caught.value).startswith(f"task 't1': {said}")


@pytest.mark.parametrize("target", [{}, '{"tool": "t"}', {"coordinate": [1, 2.5]}])
def test_a_task_that_is_fine(target):
    TOOL_CALLS_MATCH.check(task(target, "tool_calls_match", coordinate_tolerance="9"))


def test_what_was_not_refused_in_time_is_an_error_of_the_verifier():
    with pytest.raises(VerifierError, match="tool_calls_match: AttributeError"):
        judge(TOOL_CALLS_MATCH, "{}", [1])
    with pytest.raises(VerifierError, match="tool_calls_match: ValueError"):
        judge(TOOL_CALLS_MATCH, '{"coordinate": [1, 2]}', {"coordinate": [1, 2]}, coordinate_tolerance="near")
