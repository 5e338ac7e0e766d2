"""Verifiers tried on answers whose worth is known."""

from __future__ import annotations

import json

import pytest
from running.scene import sums

from calipers.analyses.selftest import checked, gold, selftest
from calipers.errors import InputError, VerifierError
from calipers.names import VERIFIERS
from calipers.tasks import Suite, Task
from calipers.tasks.store import load_suite
from calipers.verifiers import Verdict


def tried(*tasks, **more):
    return selftest(checked(Suite("made", tasks)), **more)


def wrong(test):
    return {probe.what: list(probe.wrong) for probe in test.probes if probe.wrong}


def test_a_good_benchmark_is_clean(tmp_path):
    test = selftest(checked(load_suite(sums(tmp_path, 12))))
    assert test.clean
    assert [(probe.what, probe.asked, probe.share) for probe in test.probes] == [
        ("gold", 12, 0.0),
        ("empty", 12, 0.0),
        ("echo", 12, 0.0),
        ("random", 12, 0.0),
        ("another's", 12, 0.0),
    ]
    low, high = test.probes[0].interval
    assert low == 0 < high < 0.3  # twelve good verdicts do not prove a rate of zero


@pytest.mark.parametrize(
    ("task", "faults"),
    [
        (Task("a", "Four or five?", "contains", "Four"), {"echo"}),  # the question holds the answer
        (Task("a", "Say four.", "regex_match", ".*"), {"echo", "empty", "random", "another's"}),
        (Task("a", "Say four.", "exact_match", None), {"empty"}),  # nothing said is what it wants
        (Task("a", [{"role": "user", "content": "four"}], "exact_match", "four"), {}),  # the echo is the gold answer
        (Task("a", [{"role": "user", "content": "four?"}], "contains", "four"), {"echo"}),
        (Task("a", "Say 4.", "regex_match", "[a-z]"), {"echo", "random", "another's"}),
    ],
)
def test_faults_are_found_and_named(task, faults):
    found = wrong(tried(task, Task("b", "Say 77.", task.verifier, "a77z")))
    mine = {what: tasks for what, tasks in found.items() if "a" in tasks}
    assert set(mine) - {"gold"} == set(faults)


def test_another_answer_counts_only_where_it_is_another():
    letters = [Task(f"{i}", f"{i}?", "exact_match", letter) for i, letter in enumerate("AABAA")]
    probe = next(probe for probe in tried(*letters).probes if probe.what == "another's")
    assert (probe.asked, list(probe.wrong)) == (5, [])
    alike = [Task(f"{i}", f"{i}?", "exact_match", "A") for i in range(3)]
    assert "another's" not in [probe.what for probe in tried(*alike).probes]  # there is none to give


class Strict:
    """A verifier that passes nothing, and cannot judge the empty text."""

    async def verify(self, task, completion):
        if not completion.text:
            raise VerifierError("nothing to look at")
        return Verdict(0.0)

    def gold(self, task):
        return None if task.id == "b" else "the one"


def test_a_verifier_that_knows_better_and_one_that_rejects_its_own_gold():
    VERIFIERS.add("strict", Strict)
    try:
        test = tried(Task("a", "?", "strict"), Task("b", "?", "strict"), Task("c", "?", "strict"))
    finally:
        VERIFIERS.discard("strict")
    good, empty = test.probes[:2]
    assert (good.asked, list(good.wrong), good.rate, good.share) == (2, ["a", "c"], "false negatives", 1.0)
    assert [task for task, _ in empty.failed] == ["a", "b", "c"]
    assert (empty.share, empty.why) == (None, "no verdict")
    assert empty.clean  # what cannot be judged has not passed
    assert not test.clean
    assert test.notes == ["verifier 'strict': no gold answer is known for 1 task"]


class Elsewhere:
    rerunnable = False

    async def verify(self, task, completion):
        raise AssertionError("it may not be asked")


def test_what_is_not_tried_is_said():
    VERIFIERS.add("elsewhere", Elsewhere)
    try:
        tasks = [Task("a", "?", "elsewhere"), Task("b", "?"), Task("c", "?", "exact_match", "4")]
        assert tried(*tasks).notes == [
            "not tested: 1 task without a verifier",
            "not tested: verifier 'elsewhere', which needs more than a text",
        ]
        with pytest.raises(InputError, match="there is no verifier to test"):
            tried(*tasks[:2])
    finally:
        VERIFIERS.discard("elsewhere")


def test_random_text_is_the_same_every_time_and_another_with_another_seed():
    """A letter is in some random texts and not in others, so that the verdicts tell the texts apart."""
    tasks = [Task(f"{i}", "?", "contains", "qz") for i in range(400)]
    first, again, other = (wrong(tried(*tasks, seed=seed)) for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (Task("a", "?", target="4"), "4"),
        (Task("a", "?", target=4.5), "4.5"),
        (Task("a", "?", target=["4"]), None),
        (Task("a", "?", target=True), None),
        (Task("a", "?"), None),
    ],
)
def test_the_gold_answer_is_the_target_where_that_is_one(task, expected):
    assert gold(object(), task) == expected


def test_a_task_that_can_never_be_judged_is_an_error(tmp_path):
    with pytest.raises(InputError, match="task 'a': target is None; contains needs a text to look for"):
        checked(Suite("made", [Task("a", "?", "contains")]))
    with pytest.raises(InputError, match="made: no tasks"):
        checked(Suite("made", []))
    checked(Suite("made", [Task("b", "?"), Task("a", "?", "contains")]), limit=1)  # the second is not looked at
    assert json.dumps(tried(Task("a", "?", "exact_match", "4")).to_dict(), allow_nan=False)
