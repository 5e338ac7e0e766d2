"""What a verifier raises: which of it is about one rollout, and which about the run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from calipers.clients import Completion
from calipers.errors import SandboxError, VerifierError
from calipers.tasks import Task
from calipers.text.patterns import RegexTimeout
from calipers.verifiers import LONGEST, Verdict, checked, judged, ready
from calipers.verifiers.user_code import AnswerText

TASK, TEXT = Task("a", "?"), Completion("text")


class Untellable(Exception):
    """An exception that cannot be told."""

    def __str__(self):
        return 1 / 0


class Raising:
    """A verifier that raises what it was given."""

    name = "mine"

    def __init__(self, error):
        self.error = error

    async def verify(self, task, completion):
        raise self.error


@pytest.mark.parametrize(
    ("error", "said", "outcome"),
    [
        (ValueError("not enough values to unpack"), "ValueError: not enough values to unpack", "verifier_failed"),
        (KeyError(), "KeyError", "verifier_failed"),
        (MemoryError(), "MemoryError", "verifier_failed"),
        (SystemExit(1), "SystemExit: 1", "verifier_failed"),
        (SandboxError("it broke"), "SandboxError: it broke", "verifier_failed"),
        (ExceptionGroup("two", [OSError(), OSError()]), "ExceptionGroup: two (2 sub-exceptions)", "verifier_failed"),
        (asyncio.CancelledError(), "something inside it was cancelled", "verifier_failed"),
        (Untellable(), "Untellable", "verifier_failed"),
    ],
)
def test_whatever_is_raised_is_about_this_rollout(error, said, outcome):
    with pytest.raises(VerifierError) as failed:
        asyncio.run(judged(Raising(error), TASK, TEXT))
    assert (str(failed.value), failed.value.outcome) == (f"verifier 'mine' failed: {said}", outcome)
    assert failed.value.__cause__ is error


def test_what_has_a_word_of_its_own_keeps_it():
    for error, outcome in ((RegexTimeout("too slow"), "filter_timeout"), (VerifierError("x", outcome="a"), "a")):
        with pytest.raises(VerifierError) as failed:
            asyncio.run(judged(Raising(error), TASK, TEXT))
        assert failed.value.outcome == outcome


@dataclass
class Parsed:
    """An answer that a grading function may return, which JSON encoders write as an object."""

    text: str


HUGE = 10**5000  # more digits than Python converts to text


@pytest.mark.parametrize(
    ("verdict", "problem"),
    [
        (Verdict(1.0, answer=HUGE), "answer is an int that cannot be shown; expected a JSON scalar or a list"),
        (Verdict(1.0, answer=[HUGE]), "answer is a list that cannot be shown; expected a JSON scalar or a list"),
        (Verdict(1.0, answer={"a": 1}), "answer is {'a': 1}; expected a JSON scalar or a list"),
        (Verdict(1.0, answer={"a": "\ud83d"}), "answer is {'a': '\\ud83d'}; expected a JSON scalar or a list"),
        (Verdict(1.0, answer=Parsed("b")), "answer is Parsed(text='b'); expected a JSON scalar or a list"),
        (Verdict(HUGE), "reward is an int that cannot be shown; expected a number"),
        (Verdict(1.0, fields={"x": HUGE}), "x is an int that cannot be shown; expected a number"),
    ],
)
def test_a_verdict_that_cannot_be_logged(verdict, problem):
    with pytest.raises(VerifierError) as failed:
        checked(verdict)
    assert str(failed.value) == problem


def test_integers_of_any_size_that_json_takes_are_answers():
    for answer in (7, 2**63 - 1, 2**64, -(10**300)):
        assert checked(Verdict(1.0, answer=answer)).answer == answer


def test_the_text_that_a_grading_function_gets_may_be_the_answer():
    answer = checked(Verdict(1.0, answer=AnswerText.of(TEXT))).answer
    assert (answer, type(answer)) == ("text", str)


def test_a_long_text_is_cut():
    with pytest.raises(VerifierError) as failed:
        asyncio.run(judged(Raising(ValueError("x" * 10_000)), TASK, TEXT))
    assert len(str(failed.value)) == LONGEST + len("verifier 'mine' failed: ")


def test_the_user_is_still_heard():
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(judged(Raising(KeyboardInterrupt()), TASK, TEXT))


def test_a_run_that_is_given_up_is_given_up():
    class Waiting:
        async def verify(self, task, completion):
            await asyncio.Event().wait()

    async def scene():
        asking = asyncio.create_task(judged(Waiting(), TASK, TEXT))
        await asyncio.sleep(0)
        asking.cancel()
        await asking

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scene())


def test_those_that_need_something_are_asked_for_it():
    class Needy:
        def ready(self):
            raise SandboxError("none here")

        async def verify(self, task, completion):
            return Verdict(1.0)

    ready([Raising(ValueError())])
    with pytest.raises(SandboxError, match="none here"):
        ready([Raising(ValueError()), Needy()])
