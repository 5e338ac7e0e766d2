import pytest
from reports.shown import estimate, ledger

from calipers.reports.figures import account, decimals, ends, figure, percent, reason, remarks, size, whole_account


@pytest.mark.parametrize(
    ("value", "stderr", "interval", "expected"),
    [
        (0.71875, 0.05, (0.6, 0.8), "0.7188"),
        (0.0049, 0.004, (0.001, 0.02), "0.0049"),  # as its neighbours, since its interval is of their size
        (0.000173, 0.000013, (0.00015, 0.0002), "0.0001730"),
        (107.3456, 6.6, (93.9, 120.6), "107.3"),
        (107.3456, 0.06, (107.2, 107.5), "107.346"),  # two digits of the standard error
        (12345.678, 100.0, (12000.0, 12700.0), "12,345.7"),
        (0.0, 0.0, None, "0.0000"),
        (1e300, None, None, "1e+300"),
        (None, None, None, "–"),
        (float("nan"), None, None, "nan"),
        (float("-inf"), None, None, "-inf"),
    ],
)
def test_digits(value, stderr, interval, expected):
    made = estimate(value, stderr=stderr, interval=interval)
    assert figure(made.value, decimals(made)) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.95, "95 %"), (0.999, "99.9 %"), (2 / 3, "66.6667 %")])
def test_percent(share, expected):
    assert percent(share) == expected


def test_an_interval():
    assert ends((0.1, 0.25), 2) == "[0.10, 0.25]"
    assert ends(None, 2) == ""


def test_one_is_not_many():
    assert size(estimate(tasks=1, samples=1)) == "1 task, 1 sample"
    assert size(estimate(tasks=1234, samples=0)) == "1,234 tasks, 0 samples"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"undefined_tasks": 2}, ["2 tasks have fewer than 3 samples"]),
        ({"bounds": (0.5, 1.0)}, ["0.5000 to 1.0000 if all missing rollouts failed / passed"]),
        (
            {"bounds": (0.5, 1.0), "undefined_tasks": 1},
            ["1 task has fewer than 3 samples", "0.5000 to 1.0000 if all missing samples failed / passed"],
        ),
        ({"bounds": (0.5, 0.5)}, ["0.5000 whether the missing rollouts failed or passed"]),
        ({"why": "one task says nothing about others"}, ["no interval: at least two tasks are needed"]),
        ({"value": None, "why": "3 rewards are NaN"}, ["no value: 3 rewards are NaN"]),
        ({"value": float("nan"), "why": "3 rewards are NaN"}, ["no value: 3 rewards are NaN"]),
        ({"value": None, "why": "no task has a value"}, ["no task has a value"]),  # says it already
    ],
)
def test_what_must_be_said(fields, said):
    assert remarks(estimate(**fields)) == said


@pytest.mark.parametrize(
    ("fields", "counts", "said"),
    [
        ({}, {}, "0.5000 to 1.0000 if all 2 missing rollouts failed / passed"),
        ({}, {"gaps": 1}, "0.5000 to 1.0000 if the 1 missing rollout failed / passed"),
        ({}, {"lacking": {"style": 3}}, "0.5000 to 1.0000 if all missing rollouts failed / passed"),
        ({"bounds": (0.5, 0.5)}, {}, "0.5000 whether the 2 missing rollouts failed or passed"),
        ({"signature": "maj@{k}|k:3"}, {}, "0.5000 to 1.0000 for every possible outcome of the 2 missing rollouts"),
        (
            {"signature": "mean_reward|range:-1,1"},
            {},
            "0.5000 to 1.0000 if all 2 missing rollouts had the lowest / the highest reward",
        ),
    ],
)
def test_the_bounds_say_how_many_rollouts_are_missing(fields, counts, said):
    assert remarks(estimate(**{"bounds": (0.5, 1.0), **fields}), ledger(**counts)) == [said]


def test_a_reason_is_only_given_where_something_is_missing():
    assert reason(estimate()) == []


def test_the_ledger_adds_up_on_one_line():
    text = account(ledger(), "gap").replace("\N{NO-BREAK SPACE}", " ")
    assert text == "12 planned = 9 scored + 1 refused + 2 client_failed; 2 missing (excluded)"


def test_where_the_plan_came_from():
    made = ledger(planned_from="inputs", gaps=0, outcomes={"scored": 12})
    text = whole_account(made, "gap").replace("\N{NO-BREAK SPACE}", " ")
    assert text == "4 tasks; 12 planned (from inputs) = 12 scored; none missing"
