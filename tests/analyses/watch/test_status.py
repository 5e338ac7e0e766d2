"""The sentences about alarms: their numbers say no more than what is known."""

import pytest

from calipers.analyses.watch import parse
from calipers.analyses.watch.status import AlarmStatus, raised_remark, remark_of, sentence_of
from calipers.reports.remark_texts import text_of

DROP = parse("drop(reward) > 0")


def opened(**values):
    """An open alarm of night 9."""
    usual = {"since": 8, "raised": 9, "evidence": 95.0, "needed": 80.0, "reference": 0.5312, "now": 0.412}
    return AlarmStatus("open", 12, **{**usual, "close_at": 0.5, "recovery_evidence": 0.6, **values})


@pytest.mark.parametrize(
    ("alarm", "status", "expected"),
    [
        (
            "drop(reward) > 0",
            AlarmStatus("quiet", 8, evidence=2.12, needed=40.0),
            "No alarm (night 8; evidence 2.1 of 40).",
        ),
        (
            "drop(reward) > 0",
            opened(),
            "Failed: open since night 9. Mean 0.41 now, at least 0.53 before; recovery not shown (evidence 0.6 of 20).",
        ),
        (
            "drop(reward) > 0",
            AlarmStatus("closed", 17, 8, 9, 95.0, 80.0, 0.53, 0.55, 0.5, 33.8, 17),
            "Closed on night 17: above 0.50 again (evidence 34 of 20).",
        ),
        (  # a reference with an allowed drop is below what the mean was before
            "drop(reward) > 0.02",
            opened(),
            "Failed: open since night 9. Mean 0.41 now, at least 0.53 allowed; "
            "recovery not shown (evidence 0.6 of 20).",
        ),
        (
            "rise(cost) > 0",
            opened(reference=0.412, now=0.5312),
            "Failed: open since night 9. Mean 0.53 now, at most 0.42 before; recovery not shown (evidence 0.6 of 20).",
        ),
        (
            "rate(truncated) > 0.05",
            opened(reference=0.05, now=0.12, measure="rate"),
            "Failed: open since night 9. Rate 0.12 now, at most 0.05 allowed; recovery not shown (evidence 0.6 of 20).",
        ),
        (
            "mean(tokens) > 1200",
            opened(reference=1200.0, now=1340.4),
            "Failed: open since night 9. Mean 1,340 now, at most 1,200 allowed; "
            "recovery not shown (evidence 0.6 of 20).",
        ),
        (
            "rise(cost) > 0",
            AlarmStatus("closed", 17, 8, 9, 95.0, 80.0, 0.4, 0.3, 0.4312, 20.4, 17),
            "Closed on night 17: below 0.44 again (evidence 20 of 20).",
        ),
        (
            "drop(reward) > 0",
            opened(now=None),
            "Failed: open since night 9. There is no value to show recovery by (evidence 0.6 of 20).",
        ),
        (
            "drop(reward) > 0",
            opened(close_at=None, recovery_evidence=None),
            "Failed: open since night 9. Recovery cannot be tested, because there is no bound on the values before; "
            "--accept NIGHT makes a night the new reference.",
        ),
        ("drop(reward) > 0", AlarmStatus("accepted", 12, closed=9), "Accepted: night 9 is the new reference."),
        (
            "drop(reward) > 0",
            AlarmStatus("quiet", 3, p=0.034, p_level=0.0012345),
            "No alarm (night 3; p = 0.03, level 0.00123).",
        ),
        ("drop(reward) > 0", AlarmStatus("quiet", 1), "No alarm (night 1; not tested)."),
    ],
)
def test_the_state_of_an_alarm_in_words(alarm, status, expected):
    assert sentence_of(status, parse(alarm), "night") == expected


@pytest.mark.parametrize(
    ("now", "reference", "shown"),
    [
        (0.529, 0.5387, "Mean 0.529 now, at least 0.538 before"),  # 0.53 and 0.53 would contradict each other
        (0.41, 0.5399, "Mean 0.41 now, at least 0.53 before"),  # rounded down, as more is not known
        (0.0012, 0.0034, "Mean 0.0012 now, at least 0.0034 before"),
        (-1.5, 0.25, "Mean −1.50 now, at least 0.25 before"),
        (0.5, 0.5, "Mean 0.50 now, at least 0.50 before"),
    ],
)
def test_a_mean_beside_its_bound_has_the_digits_that_tell_them_apart(now, reference, shown):
    assert shown in sentence_of(opened(now=now, reference=reference), DROP, "night")


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        (79.96, "79.9 of 80"),
        (0.0416, "0.042 of 80"),
        (9.996, "10 of 80"),
        (0.0, "0 of 80"),
        (3.456e9, "3,500,000,000 of 80"),
    ],
)
def test_evidence_is_not_rounded_up_to_what_is_needed(evidence, shown):
    status = AlarmStatus("quiet", 8, evidence=evidence, needed=80.0)
    assert f"evidence {shown})" in sentence_of(status, DROP, "night")


def test_what_raised_an_alarm_stays_with_it():
    raised = raised_remark(opened(), DROP, "night")
    assert text_of(raised) == "Raised on night 9 with evidence 95 of 80; lower since night 8."
    assert raised_remark(AlarmStatus("quiet", 2), DROP, "night") is None
    assert remark_of(opened(), DROP, "night").values["evidence"] == 0.6
