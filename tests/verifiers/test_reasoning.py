"""Verifiers see the answer of a completion, and not the reasoning before it."""

from __future__ import annotations

import asyncio

import pytest
from verifiers.judging import judge

from calipers.clients import Completion
from calipers.errors import InputError
from calipers.names import VERIFIERS
from calipers.tasks import Task
from calipers.verifiers import Verdict, judged
from calipers.verifiers.maths import WORKERS
from calipers.verifiers.reasoning import answer_of, keeping, splits
from calipers.verifiers.text import CONTAINS, FORMAT_ONLY, ExactMatchOfRun
from calipers.verifiers.user_code import find_verifier, register, unregister, wrap

CASE = "<think>could be 4, no</think>It is 9"


def verdict(name, text, target="4", **params):
    return asyncio.run(find_verifier(name).verify(Task("t", "?", name, target, params), Completion(text)))


def test_a_number_that_the_reasoning_rejects_is_not_the_answer():
    assert verdict("contains", CASE).reward == 0
    assert verdict("contains", CASE, target="9").reward == 1
    assert asyncio.run(judged(CONTAINS, Task("t", "?", "contains", "4"), Completion(CASE))).reward == 0


@pytest.mark.parametrize(
    ("name", "text", "target", "params"),
    [
        ("exact_match", "<think>4</think>\n\n9", "9", {}),
        ("exact_match", "reasoning</think>9", "9", {}),
        ("regex_match", "<think>4</think>\n9", r"^9$", {}),
        ("numeric_match", "<think>9</think>It is 9 <think>4</think> 9", "9", {}),
        ("numeric_match", "<think>#### 4</think>#### 9", "9", {"marker": "####"}),
        ("choice", "<think>The answer is B</think>A", "A", {"choices": ["x", "y"]}),
        ("tool_calls_match", '<think>{"tool": "a"}</think>{"tool": "b"}', {"tool": "b"}, {}),
    ],
)
def test_text_verifiers_see_the_answer_alone(name, text, target, params):
    assert verdict(name, text, target, **params).reward == 1


@pytest.mark.skipif(bool(WORKERS.missing()), reason="math-verify is not installed: calipers[math]")
def test_mathematics_in_the_reasoning_is_no_answer():
    text = r"<think>\boxed{4} or so</think>The answer is 9."
    assert [verdict("math", text, target).reward for target in ("4", "9")] == [0, 1]


def test_reasoning_that_never_ends_is_truncated_and_counts_zero():
    assert verdict("contains", "<think>It is 4") == Verdict(0.0, outcome="truncated")
    assert verdict("exact_match", "<think>", target="") == Verdict(0.0, outcome="truncated")  # "" would be right
    assert verdict("exact_match", "<think></think>", target="").reward == 1


@pytest.mark.parametrize(
    ("verifier", "target", "params", "expected"),
    [
        ("contains", "4", {}, True),
        ("contains", None, {}, True),
        ("contains", "4", {"reasoning": "keep"}, False),
        ("regex_match", "</think>4", {}, False),
        ("regex_match", "</think>4", {"reasoning": "split"}, True),
        ("numeric_match", "4", {"marker": "</think>"}, False),
        ("format_only", None, {}, False),
        ("json_schema", {"a": ["<reasoning>"]}, {}, False),
        ("python_tests", [{"input": "<thought>", "output": "4"}], {}, False),
    ],
)
def test_tasks_that_are_about_reasoning_keep_it(verifier, target, params, expected):
    task = Task("t", "?", verifier, target, params)
    assert splits(task) is expected
    assert answer_of(task, CASE) == ("It is 9" if expected else CASE)
    assert not splits(keeping(task))


def test_tags_are_looked_for_in_the_whole_completion():
    found = judge(FORMAT_ONLY, "<think>so</think><answer>4</answer>", None)
    assert found.fields == {"has_think": 1.0, "has_answer": 1.0}


@pytest.mark.parametrize("name", sorted(VERIFIERS.entries))
def test_every_verifier_accepts_the_choice_and_no_other_value(name):
    found = find_verifier(name)
    with pytest.raises(InputError, match="reasoning is 'both'; expected split or keep"):
        found.check(Task("t", "?", name, "4", {"reasoning": "both"}))


def test_user_code_sees_the_answer_and_its_own_params_alone():
    seen = []

    def grade(task, completion):
        seen.append((str(completion), completion.finish_reason))
        return 1

    class Old:
        class Config:
            def __init__(self, least):
                self.least = least

        def __init__(self, config):
            self.config = config

        def verify(self, *, prompt, completion, target):
            seen.append((completion, self.config.least))
            return 1

    asyncio.run(wrap("g", grade).verify(Task("t", "?", "g"), Completion(CASE, "stop")))
    params = {"least": 3, "reasoning": "keep"}
    asyncio.run(wrap("o", Old).verify(Task("t", "?", "o", None, params), Completion(CASE)))
    assert seen == [("It is 9", "stop"), (CASE, 3)]
    unfinished = asyncio.run(wrap("g", grade).verify(Task("t", "?", "g"), Completion("<think>4")))
    assert unfinished == Verdict(None, outcome="truncated")  # it may have other rewards, each of which is 0 then
    assert len(seen) == 2


def test_a_function_of_evsys_sees_the_answer_with_its_params():
    seen = []

    def fn(model_output, expected, params):
        seen.append((model_output, dict(params)))
        return 1.0

    register("fn_of_the_test", fn)
    try:
        verdict("fn_of_the_test", CASE, least=1, reasoning="split")
        verdict("fn_of_the_test", CASE, reasoning="mine")  # not ours
    finally:
        unregister("fn_of_the_test")
    assert seen == [("It is 9", {"least": 1}), ("It is 9", {"reasoning": "mine"})]


def test_advice_on_exact_match_is_about_answers():
    verifier = ExactMatchOfRun()
    for _ in range(20):
        asyncio.run(verifier.verify(Task("t", "?", "exact_match", "4"), Completion(CASE)))
    assert verifier.notes == []
