import asyncio
import re

import pytest
from verifiers.judging import judge, task

from calipers.clients import Completion
from calipers.errors import InputError, UnknownName, VerifierError
from calipers.text.patterns import RegexTimeout
from calipers.verifiers.text import CONTAINS, EXACT_MATCH, REGEX_MATCH, ExactMatchOfRun, regex_match

CASE = {"ignore_case": True}
ALL = [EXACT_MATCH, CONTAINS, REGEX_MATCH]
BAD = ("a" * 60 + "!", "(a+)+$")


@pytest.mark.parametrize(
    ("verifier", "text", "target", "params", "reward", "answer"),
    [
        (EXACT_MATCH, "  42\n", "42", {}, 1.0, "42"),
        (EXACT_MATCH, "42", 42, {}, 1.0, "42"),  # a number is compared as its text
        (EXACT_MATCH, "1", 1.0, {}, 0.0, "1"),
        (EXACT_MATCH, "YES ", "yes", {}, 0.0, "YES"),
        (EXACT_MATCH, "YES ", "yes", CASE, 1.0, "yes"),  # votes for "yes" and "YES" are votes for the same
        (EXACT_MATCH, "", None, {}, 1.0, ""),
        (EXACT_MATCH, "x", "", {}, 0.0, "x"),
        (CONTAINS, "the needle is", "needle", {}, 1.0, "needle"),
        (CONTAINS, "the NEEDLE is", "needle", CASE, 1.0, "needle"),
        (CONTAINS, "the hay", "needle", {}, 0.0, None),
        (CONTAINS, "x", " x", {}, 0.0, None),  # nothing is trimmed
        (REGEX_MATCH, "answer: 42", r"\b\d+$", {}, 1.0, "42"),
        (REGEX_MATCH, "abc", "B", CASE, 1.0, "b"),
        (REGEX_MATCH, "abc", "B", {}, 0.0, None),
        (REGEX_MATCH, "abc", "x*", {}, 1.0, ""),  # an empty match is one
    ],
)
def test_verdict(verifier, text, target, params, reward, answer):
    verdict = judge(verifier, text, target, **params)
    assert (verdict.reward, verdict.answer, verdict.outcome) == (reward, answer, "")
    verifier.check(task(target, verifier.name, **params))


@pytest.mark.parametrize("verifier", ALL)
@pytest.mark.parametrize(
    ("target", "params", "said"),
    [
        (0, {}, "target is 0, which {} reads as empty text; write '0'"),
        (False, {}, "target is False, which {} reads as empty text; write 'False'"),
        (0.0, {}, "target is 0.0, which {} reads as empty text; write '0.0'"),
        ([], {}, "target is []; expected text or a number"),
        ({"a": 1}, {}, "target is {{'a': 1}}; expected text or a number"),
        ("a", {"ignore_cas": True}, "no param of {} named 'ignore_cas'; did you mean 'ignore_case'?"),
        ("a", {"zzz": True}, "no param of {} named 'zzz'; known: ignore_case"),
        ("a", {"ignore_case": "false"}, "ignore_case is 'false'; expected true or false"),
        ("a", {"ignore_case": None}, "ignore_case is None; expected true or false"),
    ],
)
def test_a_task_that_is_refused(verifier, target, params, said):
    with pytest.raises(InputError) as caught:
        verifier.check(task(target, verifier.name, **params))
    assert str(caught.value) == f"task 't1': {said.format(verifier.name)}"


@pytest.mark.parametrize("verifier", [CONTAINS, REGEX_MATCH])
@pytest.mark.parametrize("target", [None, ""])
def test_nothing_to_look_for_is_refused(verifier, target):
    """EvSys gives 0 to every answer, and so does `verify`; a run that knows it beforehand says so."""
    with pytest.raises(InputError, match=f"task 't1': target is {target!r}; {verifier.name} needs a text to look for"):
        verifier.check(task(target, verifier.name))
    assert judge(verifier, "anything", target).reward == 0.0


def test_an_unknown_param_is_an_unknown_name():
    with pytest.raises(UnknownName):
        EXACT_MATCH.check(task("a", case=True))


def test_params_do_not_change_what_verify_does_with_others():
    """An EvSys benchmark may carry params that mean nothing; only `check` minds."""
    assert judge(EXACT_MATCH, "a", "a", note="from the old set").reward == 1.0


def test_a_bad_pattern_is_refused_before_and_an_error_after():
    said = r"pattern '\(a': missing \), unterminated subpattern at position 0; expected a regular expression"
    with pytest.raises(InputError, match=f"task 't1': {said}"):
        REGEX_MATCH.check(task("(a", "regex_match"))
    with pytest.raises(VerifierError, match=said) as caught:
        judge(REGEX_MATCH, "a", "(a")
    assert caught.value.outcome == "verifier_failed"
    with pytest.raises(re.error):  # as EvSys' function does
        regex_match("a", "(a", {})


def test_a_pattern_that_runs_out_of_time_is_no_verdict():
    text, pattern = BAD
    REGEX_MATCH.check(task(pattern, "regex_match"))
    with pytest.raises(VerifierError, match=r"took longer than 1 s") as caught:
        judge(REGEX_MATCH, text, pattern)
    assert caught.value.outcome == "filter_timeout"
    with pytest.raises(RegexTimeout):
        regex_match(text, pattern, {})


@pytest.mark.parametrize("verifier", ALL)
def test_stored_completions_may_be_judged_again(verifier):
    assert verifier.rerunnable


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["the answer is 4"] * 10, True),
        (["the answer is 4"] * 9, False),  # too few to say
        (["the answer is 4"] * 10 + ["4"], False),  # one is right, so the form is
        (["the answer is 5"] * 10, False),  # wrong answers are no reason
    ],
)
def test_a_run_is_told_that_exact_match_fits_no_answer(texts, told):
    used = ExactMatchOfRun()
    question = task("4", "exact_match")
    for text in texts:
        asyncio.run(used.verify(question, Completion(text)))
    assert [note.partition(":")[0] for note in used.notes] == ["exact_match"] * told
