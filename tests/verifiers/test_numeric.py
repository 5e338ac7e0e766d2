import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifiers.judging import judge, task

from calipers.errors import InputError, VerifierError
from calipers.verifiers.numeric import NUMERIC_MATCH, as_number, last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 + 4 = 7.", 7),  # a full stop is not a decimal point
        ("it costs $1,234.50", 1234.5),
        ("-$5", -5),
        ("$-5", -5),
        ("€ 5", 5),
        ("50%", 50),  # a unit
        ("\u22123", -3),  # the typographer's minus
        ("\u20133", -3),  # an en dash
        ("3\u20135", 5),  # but here it is a range
        ("5-3", 3),
        ("step-3", 3),
        ("+7", 7),
        ("-0", 0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("6.02e23", 6.02e23),
        ("1E\u22123", 0.001),
        ("1e5", 100_000),
        ("1e+5", 100_000),
        ("2e^3", 3),  # only a sign stands between e and the exponent
        ("2ex1", 2),
        ("2e,5", 5),
        ("7.0", 7),  # the same vote as 7
        ("so 3/4.", 0.75),
        ("-1/2", -0.5),
        ("6/3", 2),
        ("3/4/2024", 2024),  # a date
        ("3/4.5", 4.5),  # nor is this one
        ("1/0", None),
        ("1,234,567", 1_234_567),
        ("1\u202f234\u202f567", 1_234_567),
        ("1'000", 1_000),
        ("1_000_000", 1_000_000),
        ("[1,2,3]", 3),  # a comma that parts no thousands parts numbers
        ("3,14", 14),
        ("1,2345", 2345),
        ("3.11.7", 3.11),
        ("**42**", 42),
        (r"$\boxed{42}$", 42),
        ("_42_", 42),
        ("答案是42", 42),
        ("４２", 42),  # full-width digits
        ("42km", 42),
        ("x2", None),  # a name
        ("CO2 weighs 44", 44),
        ("½", None),
        ("1e999", None),  # no float holds it
        ("9" * 400, None),
        ("9" * 300, int("9" * 300)),
        ("no", None),
        ("", None),
    ],
)
def test_the_last_number(text, number):
    assert last_number(text) == number
    assert isinstance(last_number(text), type(number))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 42 apples, 3 pears", 42),  # the first after it
        ("#### 1 no: #### 2", 2),  # after the last one
        ("42", None),
        ("42 ####", None),
    ],
)
def test_the_number_after_a_marker(text, number):
    assert last_number(text, "####") == number


@given(st.text("0123456789.,-/e$% \u2212x^", max_size=40))
def test_any_text_has_a_finite_number_or_none(text):
    number = last_number(text)
    assert number is None or math.isfinite(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_python_writes_it(number):
    assert last_number(f"it is {number!r}") == number == as_number(number) == as_number(repr(number))


def test_long_texts_are_read_in_one_pass():
    """Texts that make a careless pattern start over at every character."""
    for unit in ("1", "1,111,", "1.", "1/", "1e", "-", "$", "1/1", ",111"):
        last_number(unit * (200_000 // len(unit)))  # squared, minutes


@pytest.mark.parametrize(
    ("value", "number"),
    [("42", 42), (" $1,000 ", 1_000), ("50 %", 50), ("3/4", 0.75), (3.0, 3.0), (-1, -1)],
)
def test_a_target(value, number):
    assert as_number(value) == number
    NUMERIC_MATCH.check(task(value, "numeric_match", marker="####", rel_tol=0.1, abs_tol=0))


@pytest.mark.parametrize("value", [None, True, "", "five", "2e^3", "4 2", "5 apples", [1], math.nan, math.inf, "1/0"])
def test_a_target_that_is_no_number(value):
    assert as_number(value) is None
    said = r"; expected a number, or text that is a number"
    with pytest.raises(InputError, match=f"^task 't1': target is .*{said}$"):
        NUMERIC_MATCH.check(task(value, "numeric_match"))
    with pytest.raises(VerifierError, match=said):
        judge(NUMERIC_MATCH, "5", value)


@pytest.mark.parametrize(
    ("text", "target", "params", "reward", "answer"),
    [
        ("= 42", "42.0", {}, 1.0, 42),
        ("= 0.333333333", 1 / 3, {}, 1.0, 0.333333333),
        ("= 0.3333", 1 / 3, {}, 0.0, 0.3333),
        ("= 0.3333", 1 / 3, {"rel_tol": 1e-3}, 1.0, 0.3333),
        ("= 1000000001", 1_000_000_000, {}, 0.0, 1_000_000_001),  # whole numbers are equal or not
        ("= 1000000001", 1_000_000_000, {"rel_tol": 1e-9}, 1.0, 1_000_000_001),  # unless one asks for it
        ("= 11", 10, {"abs_tol": 1}, 1.0, 11),
        ("= 0.1", 0, {}, 0.0, 0.1),
        ("= " + "9" * 300, 10**300, {"rel_tol": 0.1}, 1.0, int("9" * 300)),
        ("#### 5 (of 6)", 5, {"marker": "####"}, 1.0, 5),
    ],
)
def test_verdict(text, target, params, reward, answer):
    verdict = judge(NUMERIC_MATCH, text, target, **params)
    assert (verdict.reward, verdict.answer, verdict.outcome) == (reward, answer, "")


def test_no_number_is_unparsed():
    verdict = judge(NUMERIC_MATCH, "I cannot say", 5)
    assert (verdict.reward, verdict.answer, verdict.outcome) == (0.0, None, "unparsed")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"rel_tol": "1%"}, "rel_tol is '1%'; expected a number of at least 0"),
        ({"abs_tol": -1}, "abs_tol is -1; expected a number of at least 0"),
        ({"abs_tol": math.nan}, "abs_tol is nan; expected a number of at least 0"),
        ({"marker": ""}, "marker is ''; expected the text before the number"),
        ({"marker": None}, "marker is None; expected the text before the number"),
        ({"tol": 1}, "no param of numeric_match named 'tol'; did you mean 'rel_tol' or 'abs_tol'?"),
    ],
)
def test_params_that_are_refused(params, said):
    with pytest.raises(InputError) as caught:
        NUMERIC_MATCH.check(task(5, "numeric_match", **params))
    assert str(caught.value) == f"task 't1': {said}"


def test_a_tolerance_that_was_not_refused_in_time():
    with pytest.raises(VerifierError, match="numeric_match: could not convert"):
        judge(NUMERIC_MATCH, "5", 5, rel_tol="1%")
    with pytest.raises(VerifierError, match="numeric_match: tolerances must be non-negative"):
        judge(NUMERIC_MATCH, "5", 5, rel_tol=-1)
