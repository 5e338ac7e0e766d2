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


RIGHT = [  # as models print it
    "B",
    "(B)",
    "b",
    "**B**",
    "B)",
    "B.",
    "Option B",
    "The answer is B.",
    "Answer: B",
    "Answer: (B) Rome",
    "B) Rome",
    "B. Rome is the capital of Italy, not A.",
    r"\boxed{B}",
    r"So the final answer is $\boxed{\text{B}}$.",
    "Rome",
    "**Answer:** B",
    "The correct answer is **B**.",
    "I would choose B.",
    "It isn't A. The answer is B.",
    "A is wrong, C is wrong, so the answer is B.",
    "Not A, not C, not D: B.",
    "B rather than A",
    "B, not A",
    "The answer is B, not C or D.",
    "The answer is B, since A or C would be too far north.",
    "A is incorrect. B is correct.",
    "At first I thought A, but A is wrong. The answer is B.",
    "Anything but A, C or D, so B.",
    "The answer is B. A, C and D are wrong.",
    "It can't be A. It must be B.",
    "B (Rome)",
    "Answer: B) Rome",
    "The answer is (B) Rome, not (A) Paris.",
    "Let me check. A is not the capital. The answer is B",
    "I'd go with B instead of C.",
    "Neither A nor C nor D; B.",
    "The answer is not A. The answer is B.",
    "B is the right choice; C doesn't work.",
    "The answer is B. B is not a coastal city.",
    "I first ruled out B. But no: the answer is B.",
    "The best option is B",
    "Therefore, the answer is: **B. Rome**",
    "B is not wrong.",
    "Answer: B. A is wrong because Paris is in France.",
    "We can eliminate A and then C. Answer: B",
    "Let's analyze each option:\nA) Paris – incorrect.\nB) Rome – correct.\nC) Bern – incorrect.\n\n"
    "The correct answer is **B) Rome**.",
    "The answer is B) Rome, and A) Paris is the capital of France.",
    "The answer is B, C would be too far.",
    "The answer is B. A, C and D are incorrect.",
    "Step 1: A is not it.\nStep 2: C isn't it either.\nAnswer: B",
    "**B. Rome**\n\nOption A is incorrect because...",
    "Based on the text, the answer is (B).",
    "I choose B because it is the only city in Italy.",
    "My answer: B",
    "Final answer: B",
    "Correct answer: B",
    'The answer is "B".',
    "Answer:B",
    "ANSWER: B",
    "The best answer is B: Rome.",
    "It has to be B, not A.",
    "Since A and C are not Italian, the answer is B.",
    "The answer is not A, C, or D. Therefore, the answer is B.",
    "A person would say B.",
    "Answer: B\nConfidence: 90%",
    "The answer is B, as opposed to A.",
    "The answer is $B$.",
    "$\\boxed{B}$",
    "\\boxed{B. Rome}",
    "B, since Rome is the capital.",
    "Rome (B)",
    "The answer is choice B, Rome.",
    "So, B is correct and A is wrong.",
    "Neither A nor C is right, so B.",
    "Not C. B.",
    "The answer must be B",
    "Therefore B.",
    "The capital is Rome, so the correct choice is B.",
    "A: no. B: yes. Answer: B",
    "I'm torn between A and B, but the answer is B.",
    "The answer is B and not A.",
    "Both A and C are wrong. The answer is B.",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_form_passes(text):
    assert chosen_letter(text, CHOICES) == "B"


FALSE_OR_HEDGED = [
    "not B",
    "It's not B.",
    "It isn't B",
    "The answer isn't B.",
    "The answer is not B.",
    "B is wrong",
    "B is wrong.",
    "Option B is wrong.",
    "B is incorrect.",
    "B is not correct.",
    "B isn't right.",
    "B isn't the answer",
    "rather than B",
    "Anything but B.",
    "Everything except B",
    "I would choose A rather than B.",
    "A, not B",
    "A instead of B",
    "The answer is A, not B.",
    "Not (B)",
    "Not **B**",
    "not option B",
    "B is not the answer.",
    "B cannot be right.",
    "B can't be the answer",
    "B doesn't work.",
    "Neither A nor B",
    "not A or B",
    "The answer is B? No, B is wrong.",
    "The answer is B or C.",
    "B or C",
    "(B) or (C)",
    "The answer is A or B",
    r"\boxed{B} or \boxed{C}",
    r"\boxed{C} or \boxed{B}",
    "B) Rome or C) the city of Bern",
    "The answer is B, or maybe C.",
    "Answer: B, C",
    "Answer: A and B are both right",
    "The answer is B/C",
    "B isn’t right",
    "The answer is never B.",
    "I eliminated B.",
    "B is ruled out.",
    "B (Rome) is wrong",
    "The answer is B (Rome) or C (Bern).",
    "The answer cannot be B",
    "It was B, but actually B is incorrect.",
    "All but B",
    "B is false.",
]


@pytest.mark.parametrize("text", FALSE_OR_HEDGED)
def test_a_negated_or_hedged_letter_does_not_pass(text):
    assert chosen_letter(text, CHOICES) != "B"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("A, not B", "A"),
        ("A rather than B", "A"),
        ("The answer is A, not B.", "A"),
        ("Neither A nor B", None),
        ("It isn't A. It isn't B. So C or D.", None),
        ("Not A; B or C", None),
        ("Nothing but B", "B"),
    ],
)
def test_what_remains_must_be_one_letter(text, letter):
    assert chosen_letter(text, CHOICES) == letter


@pytest.mark.parametrize("text", ["B. False", "Answer: B. False", "B) False", "False", "The answer is B. False."])
def test_a_choice_that_is_called_false_is_no_negation(text):
    assert chosen_letter(text, ["True", "False"]) == "B"


def judged(text):
    task = Task("t", "?", "choice", "B", {"choices": CHOICES})
    return asyncio.run(CHOICE.verify(task, Completion(text)))


@pytest.mark.parametrize(
    "text",
    [
        *("answer" + "*" * 19_000, "answer:" + "`_" * 9_000, r"\boxed{" + " " * 19_000 + "x"),
        *("not " * 5_000, "not E, " * 2_800 + "?", "E is " * 4_000, "E (" * 6_000, "E, " * 6_000 + "?"),
    ],
)
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
