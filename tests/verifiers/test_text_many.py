"""The text verifiers over many completions say what they say over one."""

from __future__ import annotations

import asyncio

import pytest

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.tasks import Task
from calipers.text.filters import WORTH
from calipers.verifiers.text import CONTAINS, EXACT_MATCH, REGEX_MATCH

TEXTS = ["", " ", "42", " 42\n", "The answer is 42.", "YES", "yes", "٤٢", "4 2", "ﬀ", "İ", "a+b", "-7,5", "x" * 300]
TARGETS = [None, "", "42", " 42 ", 42, 4.2, "yes", "Yes ", "ﬀ", "i̇", "a+b", True]
PATTERNS = [r"\d+", "[0-9]+", "yes|no", "^yes$", r"(\w+) is (\w+)", "a+b", "", "x{300}", "."]


@pytest.mark.parametrize("params", [{}, {"ignore_case": True}])
@pytest.mark.parametrize(
    ("verifier", "targets"), [(EXACT_MATCH, TARGETS), (CONTAINS, TARGETS), (REGEX_MATCH, PATTERNS)]
)
@pytest.mark.parametrize("times", [1, WORTH])  # few, and as many as are worth another engine
def test_many_at_once(verifier, targets, params, times):
    tasks = [Task(f"{i}", "?", verifier.name, target, params) for i, target in enumerate(targets)]
    cases = [(task, text) for task in tasks for text in TEXTS] * times

    async def one_by_one():
        return [await verifier.verify(task, Completion(text)) for task, text in cases]

    verdicts = asyncio.run(one_by_one())
    rewards, answers = verifier.verify_many([task for task, _ in cases], [text for _, text in cases])
    assert rewards == [verdict.reward for verdict in verdicts]
    assert answers == [verdict.answer or None for verdict in verdicts]


@pytest.mark.usefixtures("impatient")
def test_a_pattern_out_of_time_is_an_error_of_its_own_row():
    tasks = [Task("a", "?", "regex_match", "(a+)+$"), Task("b", "?", "regex_match", "a")]
    rewards, answers = REGEX_MATCH.verify_many(tasks, ["a" * 60 + "!", "a"])
    assert isinstance(rewards[0], VerifierError)
    assert rewards[0].outcome == "filter_timeout"
    assert (rewards[1], answers) == (1.0, [None, "a"])
