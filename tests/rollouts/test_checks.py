"""A system's own number and ours: when they agree, and what is said when they do not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.reports.remark_texts import text_of
from calipers.rollouts.checks import Check, compared, decimals_apart, disagreements, failed_checks, printed_decimals


def agrees(theirs, ours, beside=()):
    [check] = compared("x", [("score", theirs, ours)], beside)
    return check.agrees


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (0.4583, 0.45833333, True),
        (0.4583, 0.45834, True),
        (0.4583, 0.45836, False),
        (0.4583333333333333, 0.4583333333333333, True),
        (0.4583333333333333, 0.4583333343, True),  # 1e-9 in any case
        (0.4583333333333333, 0.45833334, False),
        (45.83, 45.834, True),
        (1, 0.75, False),  # a whole number is not rounded: JavaScript writes 1.0 as 1
        (1, 1.0, True),
        (26, 26, True),
        (26, 25, False),
        (1e-05, 1.4e-05, True),
        (1e-05, 1.6e-05, False),
        (1234567.123456789, 1234567.1234567, True),  # nearer than a float can be told apart at this size
        (-0.25, 0.25, False),
    ],
)
def test_numbers_agree_within_half_a_unit_of_the_last_printed_decimal(theirs, ours, expected):
    assert agrees(theirs, ours) is expected


def test_a_system_that_does_not_round_one_number_rounds_none():
    assert agrees(0.5, 0.46)
    assert not agrees(0.5, 0.46, beside=[0.3333333333333333])
    checks = compared("x", [("a", 0.5, 0.46), ("b", 0.3333333333333333, 1 / 3)])
    assert [check.agrees for check in checks] == [False, True]


@pytest.mark.parametrize("theirs", [math.nan, math.inf, -math.inf, None, "0.5", True, 10**400, [0.5]])
def test_a_number_that_is_none_is_not_compared(theirs):
    assert compared("x", [("score", theirs, 0.5)]) == []


@pytest.mark.parametrize("ours", [None, math.nan, math.inf])
def test_a_number_that_we_do_not_have_is_not_compared(ours):
    assert compared("x", [("score", 0.5, ours)]) == []


@given(value=st.floats(-1e6, 1e6), places=st.integers(1, 8))
def test_a_rounded_number_agrees_with_itself(value, places):
    assert agrees(round(value, places), value)


@given(value=st.floats(-1e6, 1e6))
def test_printed_decimals_print_the_number(value):
    assert float(f"{value:.{printed_decimals(value)}f}") == pytest.approx(value, rel=1e-15)


def test_the_warning_shows_as_many_decimals_as_the_difference_needs():
    def text(theirs, ours):
        return text_of(Check("skyrl", "avg_score", theirs, ours, False).remark)

    end = ": the rollouts may be read wrong"
    assert text(0.4583333333, 0.2840) == f"skyrl's own avg_score is 0.4583, ours is 0.284{end}"
    assert text(0.4583333333, 0.4583323) == f"skyrl's own avg_score is 0.458333, ours is 0.458332{end}"
    assert decimals_apart(0.5, 0.5) == 12


def test_of_many_differences_a_few_are_named():
    checks = [Check("x", f"m{n}", 0.5, 0.25, n == 0) for n in range(8)]
    assert len(failed_checks(checks)) == 7
    *first, last = disagreements(checks)
    assert [remark.values["metric"] for remark in first] == ["m1", "m2", "m3"]
    assert text_of(last) == "4 more numbers of x differ from ours"
    assert disagreements(checks[:1]) == []
