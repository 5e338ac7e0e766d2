"""Which choice a text settles on."""

from __future__ import annotations

import asyncio
from time import process_time

import pytest

from calipers.clients import Completion
from calipers.errors import InputError
from calipers.tasks import Task
from calipers.verifiers.text import CHOICE, chosen_letter

CHOICES = ["Paris", "Rome", "the city of Bern", "A and B"]


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        (" (b). ", "B"),
        ("**B**", "B"),
        ("Option C", "C"),
        ("B) Rome", "B"),
        ("B. Rome is the capital of Italy, not A.", "B"),
        ("The answer is B.", "B"),
        ("At first I thought the answer is A. But no: the answer is (C).", "C"),
        ("Answer: **D**", "D"),
        (r"So \boxed{B}.", "B"),
        (r"So \boxed{\text{C}}", "C"),
        ("rome", "B"),
        ("The city of Bern.", "C"),
        ("A and B", "D"),  # the text of a choice comes before letters in it
        ("I would take B here.", "B"),
        ("A city such as Rome: B", "B"),  # an article is no letter
        ("A or B", None),
        ("Not A, not C; the rest is open", None),
        ("E", None),  # there are four
        ("Answer: a lot of things", None),
        ("It is Rome, I think", None),
        ("", None),
        ("I don't know", None),
    ],
)
def test_the_letter_of_a_text(text, letter):
    assert chosen_letter(text, CHOICES) == letter


def judged(text):
    task = Task("t", "?", "choice", "B", {"choices": CHOICES})
    return asyncio.run(CHOICE.verify(task, Completion(text)))


@pytest.mark.parametrize("text", ["answer" + "*" * 19_000, "answer:" + "`_" * 9_000, r"\boxed{" + " " * 19_000 + "x"])
def test_a_text_written_to_take_long_does_not(text):
    began = process_time()
    assert chosen_letter(text, ["x", "y"]) is None
    assert process_time() - began < 0.5  # all ways to share the marks took seconds


def test_a_verdict():
    assert (judged("B").reward, judged("B").answer) == (1.0, "B")
    assert (judged("C").reward, judged("C").outcome) == (0.0, "")
    assert (judged("hm").reward, judged("hm").outcome) == (0.0, "unparsed")


@pytest.mark.parametrize(
    ("target", "params", "wrong"),
    [
        ("E", {"choices": CHOICES}, "expected a letter from A to D"),
        (1, {"choices": CHOICES}, "expected a letter from A to D"),
        ("A", {"choices": "AB"}, "expected a list of texts"),
        ("A", {"choice": CHOICES}, "did you mean 'choices'"),
    ],
)
def test_a_task_that_nobody_could_pass_is_refused(target, params, wrong):
    with pytest.raises(InputError, match=wrong):
        CHOICE.check(Task("t", "?", "choice", target, params))
