"""The cause of a failed verification: the answer, the verifier or a server."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.running.rollout import NEUTRAL, Blame, neutral
from calipers.tasks import Task
from calipers.verifiers import Verdict
from calipers.verifiers import judged as verdict

TASK = Task("t", "q", "fussy", "42")
USED = {"cost_usd": 1.0, "input_tokens": 10.0}


class Fussy:
    """A verifier that fails for given texts a number of times, with a given error, and records the texts."""

    def __init__(self, fails, error=None):
        self.left, self.error, self.seen = dict(fails), error, []

    async def verify(self, task, completion):
        text = completion.text
        self.seen.append(text)
        await asyncio.sleep(0)
        if self.left.get(text, 0):
            self.left[text] -= 1
            raise self.error or VerifierError("no idea", outcome="judge_failed", usage=USED)
        return Verdict(1.0, usage=USED)


def judged(fussy, *texts, task=TASK):
    """The result for each text, verified one after the other."""

    async def scene():
        blame, found = Blame(), []
        for text in texts:
            try:
                found.append(await blame.judged(fussy, task, Completion(text)))
            except VerifierError as error:
                found.append(error)
        return found

    return asyncio.run(scene())


def test_an_answer_that_fails_twice_where_the_target_does_not_is_the_models_own():
    fussy = Fussy({"bad": 9})
    (error,) = judged(fussy, "bad")
    assert (error.outcome, str(error), fussy.seen) == ("broke_verifier", "no idea", ["bad", "42", "bad"])
    assert error.usage == {"cost_usd": 3.0, "input_tokens": 30.0}  # of all three calls
    assert error.tried == {"tries": 2, "neutral": "judged", "neutral_calls": 1, "failed_as": "judge_failed"}


def test_a_verifier_that_fails_on_the_target_too_is_no_answers_fault():
    fussy = Fussy({"bad": 9, "42": 9})
    first, second = judged(fussy, "bad", "bad")
    assert (first.outcome, second.outcome) == ("judge_failed", "judge_failed")
    assert fussy.seen == ["bad", "42", "bad"]  # the neutral answer once, and the first answer twice
    assert (first.usage["cost_usd"], second.usage["cost_usd"]) == (2.0, 1.0)
    assert second.tried == {"tries": 1, "neutral": "failed", "neutral_calls": 0}


def test_a_failure_that_passes_leaves_the_verdict():
    fussy = Fussy({"bad": 1})
    (found,) = judged(fussy, "bad")
    assert (found.reward, found.fields, found.usage["cost_usd"]) == (1.0, {"verifier_tries": 2.0}, 3.0)


def test_the_neutral_answer_is_judged_once_for_a_task_however_many_fail_at_once():
    fussy = Fussy({"bad": 99})

    async def scene():
        blame = Blame()
        calls = [blame.judged(fussy, TASK, Completion("bad")) for _ in range(10)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert {error.outcome for error in asyncio.run(scene())} == {"broke_verifier"}
    assert (fussy.seen.count("42"), fussy.seen.count("bad")) == (1, 20)


@pytest.mark.parametrize(
    "error",
    [
        VerifierError("HTTP 429", outcome="judge_failed", blameless=True),
        ConnectionRefusedError("there is no server"),
    ],
)
def test_what_is_plainly_the_machines_is_not_tried_again(error):
    fussy = Fussy({"bad": 9}, error)
    (found,) = judged(fussy, "bad")
    assert found.outcome == getattr(error, "outcome", "verifier_failed")
    assert fussy.seen == ["bad"]


SUSPECTS = [
    VerifierError("HTTP 503", outcome="judge_failed", blameless=True, suspect=True),
    VerifierError("a pattern did not end", outcome="filter_timeout", suspect=True),
    TimeoutError("a server is slow"),
    ConnectionResetError("a server is gone"),
]


@pytest.mark.parametrize("error", SUSPECTS)
def test_a_server_that_breaks_off_for_one_answer_only_is_that_answers_doing(error):
    fussy = Fussy({"bad": 9}, error)
    (found,) = judged(fussy, "bad")
    assert found.outcome == "broke_verifier"
    assert fussy.seen == ["bad", *["42", "bad"] * 3]  # in turn
    assert found.tried == {"blame": {"neutral": [True] * 3, "answer": [False] * 3}}


@pytest.mark.parametrize("error", SUSPECTS)
@pytest.mark.parametrize(
    ("fails", "blame"),
    [
        ({"bad": 9, "42": 9}, {"neutral": [False, None, None], "answer": [None] * 3}),
        ({"bad": 1}, {"neutral": [True, None, None], "answer": [True, None, None]}),
        ({"bad": 3}, {"neutral": [True] * 3, "answer": [False, False, True]}),
    ],
)
def test_any_other_result_of_the_tries_leaves_a_gap(error, fails, blame):
    fussy = Fussy(fails, error)
    (found,) = judged(fussy, "bad")
    assert found.outcome == getattr(error, "outcome", "verifier_failed")
    assert found.tried == {"blame": blame}


def test_a_server_that_fails_at_random_blames_hardly_any_answer():
    """With chance f, an answer is blamed with chance f^4 (1 - f)^3: 0.3 % at 0.3."""
    dice = random.Random(7)

    class Random:
        async def verify(self, task, completion):
            if dice.random() < 0.3:
                raise VerifierError("HTTP 500", outcome="judge_failed", blameless=True, suspect=True)
            return Verdict(1.0)

    outcomes = Counter(getattr(found, "outcome", "") for found in judged(Random(), *["any"] * 20_000))
    blamed = outcomes["broke_verifier"] / 20_000
    assert blamed == pytest.approx(0.3**4 * 0.7**3, abs=0.001)
    assert outcomes["judge_failed"] / 20_000 == pytest.approx(0.3 - 0.3**4 * 0.7**3, abs=0.02)


def test_whatever_a_verifier_raises_is_no_verdict():
    with pytest.raises(VerifierError, match=r"^verifier 'Fussy' failed: ZeroDivisionError: oh$"):
        asyncio.run(verdict(Fussy({"bad": 1}, ZeroDivisionError("oh")), TASK, Completion("bad")))
    (found,) = judged(Fussy({"bad": 9}, ZeroDivisionError("oh")), "bad")
    assert found.outcome == "broke_verifier"


class Knows:
    """A verifier that knows a gold answer, or does not, or fails to give it."""

    def __init__(self, says):
        self.gold = says


@pytest.mark.parametrize(
    ("judge", "target", "text"),
    [
        (object(), "42", "42"),
        (object(), 42, "42"),
        (object(), ["42"], NEUTRAL),
        (object(), None, NEUTRAL),
        (Knows(lambda task: "mine"), "42", "mine"),
        (Knows(lambda task: None), "42", NEUTRAL),
        (Knows(lambda task: 1 / 0), "42", NEUTRAL),
    ],
)
def test_a_neutral_answer(judge, target, text):
    assert neutral(judge, Task("t", "q", "v", target)) == text
