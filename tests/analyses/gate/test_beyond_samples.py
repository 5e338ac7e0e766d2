"""lower(pass@K) for a K beyond the samples: the bounds that hold whatever the law of chances."""

import pytest

import calipers
from calipers import gate

SEEN = [40, 12, 10, 13, 25]  # tasks with 0 to 4 passes of 4 samples: pass@16 within 0.4704 and 0.9863
TASKS = [[1.0] * c + [0.0] * (4 - c) for c, tasks in enumerate(SEEN) for _ in range(tasks)]


def table(**levels):
    return [
        {"task": f"t{number}", "sample": sample, "reward": reward, "level": "ab"[number % 2], **levels}
        for number, task in enumerate(TASKS)
        for sample, reward in enumerate(task)
    ]


@pytest.mark.parametrize(
    ("require", "word"),
    [
        ("lower(pass@16) >= 0.47", "passed"),
        ("lower(pass@16) >= 0.48", "failed"),
        ("upper(pass@16) <= 0.99", "passed"),
        ("upper(pass@16) <= 0.98", "failed"),
        ("worst(lower(pass@16)) >= 0.47", "passed"),
        ("lower(pass@16(threshold=0.5)) >= 0.47", "passed"),
    ],
)
def test_an_end_beyond_the_samples_is_that_of_the_free_bounds(require, word):
    answer = gate(TASKS, require=require)
    assert answer.word == word
    (check,) = answer.checks
    assert check.interval == pytest.approx((0.4704, 0.9863), abs=0.001)
    assert check.remark == (
        "no task has 16 samples: bounds from 4 samples of each that hold whatever the law of chances"
    )


def test_within_the_samples_the_usual_interval_answers():
    (check,) = gate(TASKS, require="lower(pass@4) >= 0.4").checks
    assert (check.word, check.remark) == ("passed", None)
    assert check.estimate == pytest.approx(0.6)


def test_the_value_itself_has_no_answer():
    answer = gate(TASKS, require=["pass@16 >= 0.2", "lower(pass@16) >= 0.2"])
    assert [check.word for check in answer.checks] == ["undefined", "passed"]


def test_a_slice_has_bounds_of_its_own():
    answer = gate(table(), require=["lower(pass@16[level=a]) >= 0.3", "lower(pass@16[level=*]) >= 0.3"])
    assert [check.word for check in answer.checks] == ["passed", "passed"]
    assert answer.checks[0].tasks == 50
    assert answer.checks[0].value < 0.47  # half of the tasks say less


def test_a_step_without_missing_rollouts_was_said_to_have_some():
    """A task with fewer than K samples is undefined, which is no missing rollout."""
    rows = [{**row, "step": step, "sample": row["sample"] + 4 * (step == 20)} for step in (10, 20) for row in table()]
    answer = gate(rows, require="lower(pass@16[step=10]) >= 0.47")
    assert answer.check().checks[0].value == pytest.approx(0.4704, abs=0.001)


@pytest.mark.parametrize(
    ("rewards", "options", "why"),
    [
        (TASKS[:9], {}, "there are 9 tasks, and the bounds need 10"),
        (TASKS, {"cluster": "task"}, "the bounds are for independent tasks, and these belong to clusters"),
        ([[1, 0, 1, 0]] * 50, {}, "no distribution of chances gives such counts of passes"),
    ],
)
def test_without_bounds_there_is_no_answer_and_a_reason(rewards, options, why):
    answer = gate(rewards, require="lower(pass@16) >= 0", **options)
    assert (answer.word, answer.exit_code) == ("undefined", 3)
    assert why in answer.checks[0].why
    assert answer.checks[0].why.startswith("no value: no task has 16 samples, and there are no bounds from ")


def test_samples_that_follow_results_have_no_answer_beyond_them():
    answer = gate([[1]] * 10 + [[0, 1]] * 20 + [[0, 0]] * 10, require="lower(pass@16) >= 0")
    assert (answer.word, answer.exit_code) == ("undefined", 3)
    assert answer.checks[0].why.startswith("the number of samples follows the results, so pass@16 is not comparable")


def test_a_finished_result_says_that_rollouts_are_needed():
    answer = gate(calipers.score(TASKS, "pass@16"), require="lower(pass@16) >= 0.2")
    assert answer.word == "undefined"
    assert answer.checks[0].why.endswith("bounds beyond the samples need a file of rollouts, "
                                         "which a finished result and standard input are not")  # fmt: skip


@pytest.mark.parametrize(("number", "word"), [(0.46, "passed"), (0.48, "undefined"), (0.99, "failed")])
def test_missing_rollouts_may_decide(number, word):
    rows = table()
    for row in (3, 4, 5, 100, 200, 399):
        rows[row]["reward"] = None
    answer = gate(rows, require=f"lower(pass@16) >= {number}")
    assert answer.word == word
