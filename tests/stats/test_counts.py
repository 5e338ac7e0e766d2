"""Numbers of samples that follow results: the rules, the tails of the Poisson-binomial law, and common weights."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calipers.stats.counts import (
    LEVEL,
    Follows,
    Samples,
    Tries,
    common_weights,
    count_tails,
    follows,
    follows_of,
    joined_tries,
)
from calipers.stats.paired import judged, rate_units

LOST = None


def found(*tasks, ordered=True):
    """What `follows` says of the samples of these tasks: 1 a pass, 0 a failure, None lost."""
    return follows(*columns(*tasks), ordered=ordered)


def columns(*tasks):
    rows = [(sample, number) for number, samples in enumerate(tasks) for sample in samples]
    passed = np.array([sample == 1 for sample, _ in rows], dtype=bool)
    has_value = np.array([sample is not LOST for sample, _ in rows], dtype=bool)
    return passed, has_value, np.array([number for _, number in rows], dtype=np.int64)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[1], [0, 1], [0, 0, 0], [0, 0, 1]], Follows("stops_at_pass", 2, 4, 3, None)),
        ([[0], [1, 0], [1, 1, 1], [1, 1, 0]], Follows("stops_at_failure", 2, 4, 3, None)),
        ([[0, LOST, 1], [1], [0, 0, 0, LOST]], Follows("stops_at_pass", 2, 3, 4, None)),
        ([[1], [0, 0, 1], [0]], Follows("stops_at_pass", 1, 3, 3, None)),  # one task was cut short without a pass
        ([[1], [0, 0], [LOST, LOST, LOST]], Follows("stops_at_pass", 1, 2, 3, None)),  # a task of lost rollouts
    ],
)
def test_a_run_that_stops_at_a_result_is_found(tasks, expected):
    assert found(*tasks) == expected


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [[LOST], [LOST, LOST]],
        [[1, 0], [0, 1], [0, 0]],  # equal numbers
        [[1, LOST, LOST], [0, 1, LOST], [0, 0, 0]],  # losses alone do not make numbers differ
        [[1, 0], [0, 1], [0]],  # goes on after a pass, and after a failure
        [[0], [0, 0], [0, 0, 0]],  # nothing passes, so nothing can have stopped at a pass
        [[1], [0], [LOST, 1], [0, LOST]],  # no task has two samples, so none has stopped after one
    ],
)
def test_a_run_without_the_pattern_is_not_found(tasks):
    assert found(*tasks) is None


def test_the_last_sample_is_a_pass_too_often():
    tasks = [[0, 1, 0, 1], [1, 0, 1]] * 6 + [[0, 0, 1]] * 4  # they stop at a second pass, or at the third try
    chances = np.array([1 / 2, 2 / 3] * 6 + [1 / 3] * 4)
    at_least = float(np.prod(chances))  # all 16 end in a pass
    assert at_least < LEVEL
    assert found(*tasks) == Follows("last_is_pass", 16, 16, 4, pytest.approx(at_least, rel=1e-6))
    mirrored = [[1 - sample for sample in task] for task in tasks]
    assert found(*mirrored) == Follows("last_is_failure", 16, 16, 4, pytest.approx(at_least, rel=1e-6))
    assert found(*tasks, ordered=False) is None


def test_tasks_with_one_result_only_say_nothing_about_the_last_sample():
    mixed = [[0, 1], [1, 0]] * 10 + [[1, 1, 0], [0, 0, 1]]
    assert found(*mixed) is None
    assert found(*mixed, *[[1, 1, 1, 1], [0, 0, 0, 0]] * 250) is None


def test_more_samples_of_hard_tasks_are_found_by_the_score_test():
    """Batches of two samples until one passes: neither a last sample nor a sample after a pass shows it."""
    tasks = [[1, 0], [0, 1], [1, 1]] * 8 + [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] * 6
    expected = Follows("more_is_lower", 0, 42, 4, pytest.approx(1e-7, abs=1e-6))
    assert found(*tasks) == expected
    assert found(*tasks, ordered=False) == expected
    padded = [[*task, *[LOST] * (4 - len(task))] for task in tasks]
    assert found(*padded) is None  # equal plans, and losses alone


def test_graded_rewards_are_read_by_the_score_test():
    samples = np.repeat([2, 4], 15)
    task = np.repeat(np.arange(30), samples)
    rewards = np.where(samples[task] == 2, 0.8, 0.3)
    nothing, everything = np.zeros(len(task), dtype=bool), np.ones(len(task), dtype=bool)
    assert follows(nothing, everything, task) is None
    assert follows(nothing, everything, task, rewards=rewards).rule == "more_is_lower"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[1], [1, 0], [0, 0, 0], [0, 1, 0]], Follows("stops_at_pass", 2, 4, 3, None)),
        ([[0], [0, 1], [1, 1, 1], [1, 0, 1]], Follows("stops_at_failure", 2, 4, 3, None)),
        ([[1], [1, 0], [0], [0, 0, 0]], None),  # a short task without a pass, and two failures in another
        ([[1], [1, 1, 0], [0, 0, 1]], None),
    ],
)
def test_without_an_order_numbers_of_passes_decide(tasks, expected):
    assert found(*tasks, ordered=False) == expected


def test_the_numbers_of_a_large_run_are_those_of_its_tasks():
    rng = np.random.default_rng(3)
    tries = rng.geometric(rng.beta(1, 2, 3000).clip(1e-3))
    most, stopped = 8, int((tries < 8).sum())
    samples = np.minimum(tries, most)
    task = np.repeat(np.arange(3000), samples)
    last = np.cumsum(samples) - 1
    passed = np.zeros(len(task), dtype=bool)
    passed[last[tries <= most]] = True
    assert follows(passed, np.ones(len(task), dtype=bool), task) == Follows("stops_at_pass", stopped, 3000, 8, None)


SAMPLES = st.lists(st.sampled_from([0, 1, LOST]), min_size=1, max_size=4)
TASKS = st.lists(SAMPLES, min_size=1, max_size=12)


@given(TASKS, st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_tasks_does_not_matter(tasks, random, ordered):
    shuffled = random.sample(tasks, len(tasks))
    assert found(*shuffled, ordered=ordered) == found(*tasks, ordered=ordered)


@given(TASKS, st.booleans())
def test_passes_and_failures_are_mirror_images(tasks, ordered):
    mirrored = [[LOST if sample is LOST else 1 - sample for sample in task] for task in tasks]
    there, back = found(*tasks, ordered=ordered), found(*mirrored, ordered=ordered)
    assert (there is None) == (back is None)
    if there is not None and back is not None and not _both_ways(tasks):
        swap = {"pass": "failure", "failure": "pass"}
        start, _, result = there.rule.rpartition("_")
        assert back.rule == f"{start}_{swap[result]}"
        assert back.stopped == there.stopped


def _both_ways(tasks):
    """Whether every short task has one pass and one failure, so that without an order both patterns hold."""
    return all(task.count(1) <= 1 and task.count(0) <= 1 for task in tasks)


@given(TASKS)
def test_a_task_with_a_single_failure_does_not_hide_a_stop_at_passes(tasks):
    before = found(*tasks)
    if before is not None and before.rule == "stops_at_pass":
        after = found(*tasks, [0])
        assert (after.rule, after.stopped) == (before.rule, before.stopped)


@given(TASKS, st.integers(0, 12))
def test_parts_together_are_the_whole(tasks, cut):
    parts = [Tries.of(*columns(*tasks[:cut]), min(cut, len(tasks))), Tries.of(*columns(*tasks[cut:]))]
    joined = joined_tries(parts)
    assert follows_of(Samples(joined, joined.passes / np.maximum(joined.n, 1))) == found(*tasks)


@given(TASKS)
def test_rows_of_different_tasks_may_alternate(tasks):
    passed, has_value, task = columns(*tasks)
    position = np.concatenate([np.arange(len(samples)) for samples in tasks])
    rows = np.lexsort((task, position))
    assert follows(passed[rows], has_value[rows], task[rows]) == follows(passed, has_value, task)


@given(st.lists(st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 0.9]), min_size=1, max_size=8), st.data())
@settings(deadline=None)
def test_the_tails_are_those_of_all_outcomes(chances, data):
    seen = data.draw(st.integers(0, len(chances)))
    at_least = at_most = 0.0
    for outcome in product([0, 1], repeat=len(chances)):
        chance = np.prod([p if success else 1 - p for p, success in zip(chances, outcome, strict=True)])
        at_least += chance * (sum(outcome) >= seen)
        at_most += chance * (sum(outcome) <= seen)
    assert count_tails(np.array(chances), seen) == (
        pytest.approx(at_least, abs=1e-12),
        pytest.approx(at_most, abs=1e-12),
    )


@pytest.mark.parametrize("count", [10, 300, 3000])
def test_the_tails_are_those_of_the_convolved_law(count):
    rng = np.random.default_rng(count)
    chances = rng.integers(1, 16, count) / 16
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    mean, spread = chances.sum(), np.sqrt((chances * (1 - chances)).sum())
    for seen in {0, count, *(int(mean + z * spread) for z in (-6, -2.6, 0, 2.6, 6) if 0 <= mean + z * spread <= count)}:
        expected = law[seen:].sum(), law[: seen + 1].sum()
        assert count_tails(chances, seen) == pytest.approx(expected, abs=1e-11)


def test_the_tails_of_a_million_tasks_are_normal():
    chances = np.full(1_000_000, 0.5)
    at_least, at_most = count_tails(chances, 501_288)  # 2.576 standard deviations above the mean
    assert at_least == pytest.approx(0.005, abs=2e-5)
    assert at_least + at_most == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("beta", "draw"), [((1, 2), "1 to 8"), ((2, 2), "1 to 8"), ((0.3, 0.7), "lost")])
def test_numbers_at_random_are_rarely_found(beta, draw):
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        samples = rng.integers(1, 9, 60) if draw == "1 to 8" else rng.binomial(8, 0.8, 60)
        task = np.repeat(np.arange(60), samples)
        passed = rng.random(len(task)) < rng.beta(*beta, 60)[task]
        hits += follows(passed, np.ones(len(task), dtype=bool), task) is not None
    assert hits / 400 < 0.01 + 3 * np.sqrt(0.01 * 0.99 / 400)


def test_on_common_weights_equal_task_means_do_not_differ():
    means = np.array([0.1, 0.5, 0.9])
    new, old = np.array([1.0, 4.0, 8.0]), np.array([8.0, 4.0, 2.0])  # hard tasks of the new run lost samples
    units = common_weights(np.stack([means * new, new], 1), np.stack([means * old, old], 1))
    assert units.pulls == pytest.approx(np.zeros(3), abs=1e-12)
    assert rate_units(np.stack([means * new, new], 1), np.stack([means * old, old], 1)).pulls.sum() > 0.2


def test_common_weights_are_the_sums_of_both_counts():
    new, old = np.array([[2.0, 4.0], [1.0, 1.0], [3.0, 3.0]]), np.array([[1.0, 4.0], [1.0, 3.0], [0.0, 0.0]])
    units = common_weights(new, old)
    assert units.shares == pytest.approx([8 / 12, 4 / 12])  # the third task has no samples of the old run
    assert units.pulls.sum() == pytest.approx((8 * 0.25 + 4 * 2 / 3) / 12)
    clustered = common_weights(new, old, np.array([0, 0, 1]))
    assert clustered.pulls == pytest.approx([units.pulls.sum()])


def test_with_equal_numbers_common_weights_are_those_of_the_rates():
    rng = np.random.default_rng(2)
    counts = np.full(40, 4.0)
    new, old = (np.stack([rng.binomial(4, 0.6, 40).astype(float), counts], 1) for _ in range(2))
    ours, rates = (judged(units, (0.0, 1.0), 0.95) for units in (common_weights(new, old), rate_units(new, old)))
    assert ours.value == pytest.approx(rates.value)
    assert ours.p == pytest.approx(rates.p)


def test_tasks_without_common_samples_have_no_difference():
    units = common_weights(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert judged(units, (0.0, 1.0), 0.95).value is None
