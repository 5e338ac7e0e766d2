"""The sentences of reports on the terminal and in the HTML report."""

from __future__ import annotations

import pytest

from calipers.reports import sentences
from calipers.reports.sentences import Answer
from calipers.rollouts.ledger import Ledger
from calipers.stats.estimate import NO_SUM, Estimate, Signature


def estimate(
    value=0.4402, interval=(0.3391, 0.5465), bounds=None, metric="mean_reward", k=None, tasks=40, why=None, filled=None
):
    """An estimate of 40 tasks."""
    made = Signature(metric, k)
    return Estimate(value, 0.05, interval, "wilson_t", tasks, 303, 0, bounds, True, why, made, filled_intervals=filled)


def ledger_of(missing=0, samples=8, tasks=40, not_filled=None):
    """The ledger of a run of tasks with a number of samples each."""
    planned = tasks * samples
    scored, passed = planned - missing, (tasks - 11, 3)
    each = (samples, samples)
    return Ledger(
        *(planned, "rows", tasks, scored, missing, planned, {"scored": scored}),
        samples_per_task=each,
        tasks_passed=passed,
        not_filled=not_filled,
    )


def said(number: Estimate, *, solved: bool = True, name: str = "mean_reward", **of_ledger) -> Answer:
    """The answer of a run of 320 rollouts, or of another ledger."""
    answer = sentences.of_run("tiny", "arith", name, number, ledger_of(**of_ledger), confidence=0.95, solved=solved)
    return Answer(answer.sentence.replace("\xa0", " "), answer.detail.replace("\xa0", " "))


@pytest.mark.parametrize(
    ("number", "settings", "expected"),
    [
        (
            estimate(),
            {},
            Answer(
                "tiny passes 44 % of its samples on arith.",
                "95 % interval: 34 to 55 %; mean over 40 tasks, 8 each; 72 % of the tasks are passed at least once, "
                "8 % always",
            ),
        ),
        (
            estimate(),
            {"samples": 1},
            Answer("tiny passes 44 % of the tasks of arith.", "95 % interval: 34 to 55 %"),
        ),
        (
            estimate(metric="pass_rate"),
            {"name": "pass_rate"},
            Answer(
                "tiny passes 44 % of its samples on arith.",
                "95 % interval: 34 to 55 %; of all 303 samples of 40 tasks; 72 % of the tasks are passed at least "
                "once, 8 % always",
            ),
        ),
        (
            estimate(0.618, (0.571, 0.663)),
            {"solved": False},
            Answer("tiny scores 0.618 on arith.", "95 % interval: 0.571 to 0.663"),
        ),
        (
            estimate(0.711, (0.57, 0.82), metric="pass@{k}", k=4),
            {"name": "pass@4"},
            Answer("tiny passes 71 % of the tasks of arith within 4 samples.", "95 % interval: 57 to 82 %"),
        ),
        (
            estimate(1.0, None, tasks=1, why="one task"),
            {},
            Answer("tiny scored 1.000 on one task of arith.", "One task gives no interval"),
        ),
        (  # the ends are not known
            estimate(),
            {"missing": 4, "samples": 1},
            Answer(
                "tiny passes 44 % of the tasks of arith.", "95 % interval: 34 to 55 %; 4 of 40 rollouts are missing"
            ),
        ),
        (  # few are missing
            estimate(bounds=(0.43, 0.45), filled=((0.33, 0.54), (0.35, 0.56))),
            {"missing": 2, "samples": 1},
            Answer("tiny passes 44 % of the tasks of arith.", "95 % interval: 34 to 55 %"),
        ),
        (
            estimate(bounds=(0.40, 0.50), filled=((0.31, 0.51), (0.39, 0.61))),
            {"missing": 4, "samples": 1},
            Answer(
                "tiny passes 44 % of the tasks of arith; with the 4 missing rollouts, anything from 31 to 61 %.",
                "95 % interval without them: 34 to 55 %",
            ),
        ),
        (  # one of them matters more than chance
            estimate(bounds=(0.30, 0.50), filled=((0.21, 0.41), (0.39, 0.61))),
            {"missing": 1, "samples": 1, "solved": False},
            Answer(
                "tiny scores 0.440 on arith; with the missing rollout, anything from 0.210 to 0.610.",
                "95 % interval without them: 0.339 to 0.546",
            ),
        ),
        (  # two of the four were lost before the model was asked
            estimate(bounds=(0.40, 0.50), filled=((0.31, 0.51), (0.39, 0.61))),
            {"missing": 5, "not_filled": 2, "samples": 1},
            Answer(
                "tiny passes 44 % of the tasks of arith; with the 3 missing rollouts, anything from 31 to 61 %.",
                "95 % interval without them: 34 to 55 %",
            ),
        ),
        (  # 0.3 % of unsolved tasks are not none
            estimate(0.9971, (0.9912, 0.9996)),
            {"samples": 1},
            Answer("tiny passes 99.7 % of the tasks of arith.", "95 % interval: 99 to 99.96 %"),
        ),
        (
            estimate(None, None, why="no task has a value"),
            {},
            Answer("tiny has no mean_reward on arith.", "No task has a value"),
        ),
        (
            estimate(0.5, (0.4, 0.6), metric="maj@{k}", k=4),
            {"name": "maj@4"},
            Answer("tiny has a maj@4 of 0.500 on arith.", "95 % interval: 0.400 to 0.600"),
        ),
    ],
)
def test_a_run(number, settings, expected):
    assert said(number, **settings) == expected


@pytest.mark.parametrize(
    ("verdict", "delta", "interval", "settings", "expected"),
    [
        (
            "better",
            0.11,
            (0.052, 0.168),
            {},
            "B is better than A by 0.110. 95 % interval of the difference: +0.052 to +0.168.",
        ),
        (
            "equivalent",
            0.004,
            (-0.011, 0.019),
            {"margin": 0.03},
            "B and A are equivalent within 0.03. Difference +0.004, 95 % interval −0.011 to +0.019.",
        ),
        (
            "undecided",
            0.073,
            (-0.013, 0.159),
            {},
            "Not decided: B against A. Difference +0.073, 95 % interval −0.013 to +0.159.",
        ),
        (
            "better",
            0.0264,
            (0.0084, 0.0445),
            {"over": "five benchmarks"},
            "B is better than A by 0.026 over five benchmarks. 95 % interval of the mean difference: +0.008 to +0.044.",
        ),
        (  # an interval that excludes zero does not seem to touch it
            "better",
            0.05,
            (0.0003, 0.0997),
            {},
            "B is better than A by 0.050. 95 % interval of the difference: +0.0003 to +0.0997.",
        ),
        ("undecided", None, None, {"why": "no common task"}, "Not decided: B against A. No common task."),
    ],
)
def test_a_difference(verdict, delta, interval, settings, expected):
    answer = sentences.of_difference("A", "B", verdict, delta, interval, confidence=0.95, **settings)
    assert str(answer).replace("\xa0", " ") == expected


@pytest.mark.parametrize(("p", "text"), [(0.00048, "p = 0.0005"), (0.1, "p = 0.10"), (0.00001, "p < 0.0001")])
def test_p(p, text):
    assert sentences.p_value(p) == text


@pytest.mark.parametrize("seconds", [-1.0, 0.0])
def test_a_time_is_never_below_zero(seconds):
    assert sentences.duration(seconds) == "0 s"


def test_a_price_that_overflows_does_not_say_that_no_task_was_solved():
    none = Estimate(None, None, None, None, 40, 320, 0, None, False, NO_SUM, Signature("cost_per_solved"))
    assert sentences.spent({"cost_usd": float("inf")}, {"cost_per_solved": none}) == "$inf"


def test_a_sum_of_times_beyond_the_largest_number_is_said():
    assert sentences.spent({"latency_s": float("inf")}, {}) == "inf\N{NO-BREAK SPACE}s"


def test_usage_that_is_nan_in_a_table_is_said():
    totals = dict.fromkeys(("input_tokens", "cost_usd", "latency_s"), float("nan"))
    assert sentences.spent(totals, {}).replace("\N{NO-BREAK SPACE}", " ") == "nan tokens, $nan, nan s"


def price(value, metric="cost_per_solved"):
    return Estimate(value, None, None, None, 40, 320, 0, None, False, None, Signature(metric))


@pytest.mark.parametrize(
    ("totals", "economics", "said"),
    [
        ({}, {}, ""),
        ({"latency_s": 856.0}, {}, "14 min 16 s"),
        ({"cost_usd": 0.00001}, {}, "less than $0.0001"),  # no page has a row of zeros
        ({"cost_usd": 3.0}, {"c": price(None)}, "$3.00; no task was solved"),
        ({"cost_usd": 3.0}, {"c": price(0.5)}, "$3.00; per solved task $0.50"),
        (
            {"input_tokens": 1000.0, "output_tokens": 500.0, "cost_usd": 0.01},
            {"c": price(0.0002), "t": price(3.0, "time_per_solved")},
            "1,500 tokens, $0.010; $0.20 per 1,000 solved tasks, 3.0 s per solved task",
        ),
    ],
)
def test_what_a_run_took(totals, economics, said):
    assert sentences.spent(totals, economics).replace("\xa0", " ") == said


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (sentences.of_gate(4, 4), "Passed: 4 of 4 rules."),
        (sentences.of_gate(3, 4, "a > 1: it is 0.5"), "Failed: 1 of 4 rules. a > 1: it is 0.5."),
        (sentences.of_gate(3, 4, word="passed", failed=1), "Passed: 3 of 4 rules."),  # one failure is allowed
        (sentences.of_gate(2, 4, word="failed", failed=1), "Failed: 1 of 4 rules."),  # the other has no answer
        (sentences.of_gate(2, 4, word="undefined", failed=1), "No answer: 1 of 4 rules."),
    ],
)
def test_a_gate(answer, expected):
    assert str(answer) == expected


def test_how_sure_it_is_stands_in_brackets_and_the_rest_below():
    answer = sentences.of_run(
        "tiny", "arith", "mean_reward", estimate(), ledger_of(missing=4, samples=1), confidence=0.95, solved=True
    )
    assert answer.line.replace("\xa0", " ") == "tiny passes 44 % of the tasks of arith (95 % interval: 34 to 55 %)."
    assert answer.below == "4 of 40 rollouts are missing."


def test_a_retried_run_says_what_its_first_tries_pass():
    tries = {
        f"any_of_first_{k}": estimate(value, ends, metric="any_of_first_{k}", k=k)
        for k, value, ends in ((1, 0.33, (0.24, 0.43)), (4, 0.8, (0.7, 0.88)))
    }
    answer = sentences.of_run(
        "", "", "mean_reward", estimate(), ledger_of(), confidence=0.95, solved=True, first_tries=tries
    )
    said = str(answer).replace("\xa0", " ")
    assert said.startswith(
        "First tries pass 33 % (24 to 43 %); 80 % of the tasks are passed within 4 tries. The numbers"
    )
