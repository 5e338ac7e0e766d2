import itertools

import numpy as np
import pytest
from making import GAP, rewards, rollouts

import calipers
from calipers.rollouts.column import Column, Groups
from calipers.stats import variance
from calipers.stats.estimate import NO_TASKS
from calipers.stats.intervals import ONE_CLUSTER, ONE_TASK
from calipers.stats.variance import ALL_ALIKE, NO_REPEATS, NOT_FINITE, Split, Unsplit, split


@pytest.mark.parametrize(("samples", "expected"), [(1, 1), (2, 2 / 3), (4, 1 / 2), (6, 4 / 9), (10, 0.4)])
def test_what_repeats_do_for_a_uniform_chance_of_success(samples, expected):
    uniform = Split(1 / 12, 1 / 6, 1)  # Var(x) and E[x (1 - x)] for x uniform on [0, 1]
    assert uniform.variance(samples) / uniform.variance(1) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[1, 0], [1, 0]], Split(0, 0.5, 2)),  # the tasks agree more than chance lets them: no less than 0
        ([[1, 1], [0, 0]], Split(0.5, 0, 2)),
        ([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], Split(5 / 27 - 1 / 18, 1 / 6, 3)),
        ([[1, 0], [1, 1, 1, 1]], Split(0, 0.25, 2)),  # sigma^2 of 1/2 and 0, the first over 2 samples
        ([[1, 1], [0]], Split(0.5, 0, 4 / 3)),
        ([[4, 0], [8]], Split(12, 8, 4 / 3)),  # one sample: taken to vary as much as the others do
        ([[1, GAP, 1], [0, 0, GAP], [GAP, GAP]], Split(0.5, 0, 2)),  # a gap is no sample
        ([[0.1] * 3, [0.1] * 3], Split(0, 0, 3)),  # though three times 0.1, divided by 3, is not 0.1
    ],
)
def test_worked_examples(tasks, expected):
    found = split(*rewards(*tasks))
    assert isinstance(found, Split)
    parts = (found.tasks, found.sampling, found.samples_per_task)
    assert parts == pytest.approx((expected.tasks, expected.sampling, expected.samples_per_task))


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([], NO_TASKS),
        ([[GAP, GAP], []], NO_TASKS),
        ([[1, 0, 1]], ONE_TASK),
        ([[1], [0], [1]], NO_REPEATS),
        ([[1, GAP], [0, GAP]], NO_REPEATS),
        ([[1, float("nan")], [0, 1]], NOT_FINITE),
        ([[1, float("-inf")], [0, 1]], NOT_FINITE),
        ([[1e300, -1e300], [0, 1]], NOT_FINITE),
    ],
)
def test_what_cannot_be_known_says_why(tasks, why):
    assert split(*rewards(*tasks)) == Unsplit(why)


def test_the_parts_are_recovered_from_samples():
    draw = np.random.default_rng(0)
    chance = np.repeat(draw.random(20_000), 5)
    by = Groups.of(np.repeat(np.arange(20_000), 5), 20_000)
    found = split(Column.of(draw.random(100_000) < chance), by)
    assert isinstance(found, Split)
    assert found.tasks == pytest.approx(1 / 12, abs=0.002)
    assert found.sampling == pytest.approx(1 / 6, abs=0.002)
    assert found.samples_per_task == pytest.approx(5)


def test_the_parts_add_up_to_the_squared_standard_error():
    draw = np.random.default_rng(1)
    tasks = [list(draw.normal(mean, 1, draw.integers(1, 6))) for mean in draw.normal(0, 2, 40)]
    found = split(*rewards(*tasks))
    stderr = calipers.score(tasks, "mean_reward")["mean_reward"].stderr
    assert isinstance(found, Split)
    assert found.variance(found.samples_per_task) / len(tasks) == pytest.approx(stderr**2)


def test_clusters_are_the_units_when_there_are_some():
    column, by = rewards([1, 0], [1, 1], [0, 0], [0, 1])
    alone, together = (split(column, by, np.array(units)) for units in ([0, 1, 2, 3], [0, 0, 1, 1]))
    assert alone == split(column, by)
    assert isinstance(together, Split)
    assert together == Split(pytest.approx(0.25 - 0.125), pytest.approx(0.25), pytest.approx(2))
    assert split(column, by, np.zeros(4, dtype=int)) == Unsplit(ONE_CLUSTER)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_tasks_may_be_taken_some_at_a_time(monkeypatch, rows):
    draw = np.random.default_rng(2)
    made = rewards(*[[GAP if x > 0.9 else x for x in draw.random(draw.integers(0, 7))] for _ in range(50)])
    whole = split(*made)
    monkeypatch.setattr(variance, "AT_A_TIME", rows)
    assert split(*made) == whole


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Split(0.77, 0.92, 4), ("23 % of the variance", "by at most 12 %, twice the tasks by 29 %")),
        (Split(1, 0, 4), ("0 % of the variance", "by at most 0 %, twice the tasks by 29 %")),
    ],
)
def test_advice(made, said):
    noise, narrower = said
    expected = f"sampling noise is an estimated {noise}: more samples per task can narrow the interval {narrower}"
    assert made.advice == expected


@pytest.mark.parametrize("between", [0.0, 0.0001])
def test_samples_without_a_limit_are_not_said_to_remove_the_interval(between):
    made = Split(between, 1, 4)
    assert made.narrowing is None
    assert made.advice == (
        "sampling noise is an estimated 100 % of the variance: twice the samples per task, or twice the tasks, narrow "
        "the interval by 29 %"
    )


def test_nothing_to_divide_is_said():
    assert Split(0, 0, 4).advice == ALL_ALIKE


def described(*records, **options):
    (group,) = calipers.score(rollouts(*records), **options).to_dict()["groups"]
    return group["variance"]


def records(**rewards):
    tries = itertools.product("ab", range(3))
    return [
        {"task": task, "sample": sample, "rewards": {key: values[number] for key, values in rewards.items()}}
        for number, (task, sample) in enumerate(tries)
    ]


def test_the_document_holds_the_parts_of_the_reward_that_is_read():
    found = described(*records(reward=[1, 1, 0, 0, 0, 0], other=[1, 0, 1, 0, 1, 0]))
    parts = {"tasks": pytest.approx(2 / 9 - 1 / 18), "sampling": pytest.approx(1 / 6), "samples_per_task": 3}
    assert found == {"reward": parts}  # numbers only: no words in the digest
    asked = {"metrics": "mean_reward(reward=other)"}
    assert described(*records(reward=[1] * 6, other=[1, 0, 1, 0, 1, 0]), **asked)["other"]["sampling"] == pytest.approx(
        1 / 3
    )
    assert described(*records(a=[1] * 6, b=[1, 0, 1, 0, 1, 0]), reward="b")["b"]["sampling"] == pytest.approx(1 / 3)


def test_several_rewards_have_their_parts_by_key():
    found = described(*records(a=[1] * 6, b=[1, 0, 1, 0, 1, 0]), metrics="pass@2")
    assert {key: parts["sampling"] for key, parts in found.items()} == {"a": 0, "b": pytest.approx(1 / 3)}


def test_one_sample_per_task_has_no_parts():
    result = calipers.score([[1], [0]])
    assert result.groups[0].variance == {"reward": Unsplit(NO_REPEATS)}
    assert result.to_dict()["groups"][0]["variance"] == {"reward": None}


def test_gaps_count_0_when_they_are_asked_to():
    rows = [{"task": t, "sample": s, "reward": 1 if s else None} for t in "ab" for s in range(3)]
    assert described(*rows)["reward"]["sampling"] == 0
    assert described(*rows, missing="zero")["reward"]["sampling"] == pytest.approx(1 / 3)
