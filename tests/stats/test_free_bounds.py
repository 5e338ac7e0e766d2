"""Bounds of pass@K beyond the samples that need no law of chances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from calipers.rollouts.column import Column, Groups
from calipers.stats.free_bounds import (
    FEWEST_TASKS,
    ends_of_counts,
    free_bounds,
    grid_of_chances,
    share_ends,
    shares_at_most,
)


@pytest.mark.parametrize(
    ("counts", "k", "expected"),
    [
        ([40, 12, 10, 13, 25], 16, (0.4704, 0.9863)),
        ([45, 5, 4, 4, 5, 5, 6, 8, 18], 64, (0.4093, 0.9986)),
        ([45, 5, 4, 4, 5, 5, 6, 8, 18], 16, (0.4093, 0.8577)),
        ([2, 10, 25, 38, 25], 16, (0.9146, 1.0)),
        ([100, 0, 0, 0, 0], 16, (0.0, 0.1837)),  # no pass: the beta law is refused
        ([0, 0, 0, 0, 100], 16, (0.9505, 1.0)),  # no failure, too
    ],
)
def test_reference_values(counts, k, expected):
    assert ends_of_counts(np.array(counts), [k], 0.95) == [pytest.approx(expected, abs=0.001)]


def rollouts(*tasks):
    """The rewards of each task, as a column and its partition."""
    rewards = Column.of(np.array([reward for task in tasks for reward in task], dtype=float))
    return rewards, Groups.of(np.repeat(np.arange(len(tasks)), [len(task) for task in tasks]), len(tasks))


def test_the_grid_of_chances():
    grid = grid_of_chances()
    assert len(grid) == 95  # .02 and .98 are in two parts
    assert (grid[0], grid[1], grid[-1]) == (0.0, pytest.approx(1e-4), 1.0)
    assert grid[-2] == pytest.approx(1 - 1e-4)


def test_ends_of_shares_are_those_of_clopper_and_pearson():
    low, high = share_ends(np.array([40, 12, 10, 13, 25]), 0.95)
    tail = 0.05 / 4 / 2
    assert low == pytest.approx(beta.ppf(tail, [40, 52, 62, 75], [61, 49, 39, 26]))
    assert high == pytest.approx(beta.ppf(1 - tail, [41, 53, 63, 76], [60, 48, 38, 25]))
    low, high = share_ends(np.array([100, 0, 0]), 0.95)
    assert high.tolist() == [1.0, 1.0]
    low, high = share_ends(np.array([0, 0, 100]), 0.95)
    assert low.tolist() == [0.0, 0.0]


def test_shares_are_those_of_the_binomial_distribution():
    chances = np.array([0.0, 0.3, 1.0])
    assert shares_at_most(3, chances) == pytest.approx(binom.cdf(np.arange(3)[:, None], 3, chances))


def test_only_the_first_samples_that_all_tasks_have_are_used():
    """Counts that differ by plan: tasks with eight samples count with their first four."""
    four = [[1] * c + [0] * (4 - c) for c in (0, 0, 0, 1, 2, 3, 4, 4, 4, 2, 1, 3)]
    plain = free_bounds(*rollouts(*four), [16])
    longer = [[*task, 0, 1, 1, number % 4 // 2] if number % 2 else task for number, task in enumerate(four)]
    mixed = free_bounds(*rollouts(*longer), [16])
    assert plain.why is None
    assert (mixed.samples, mixed.tasks, mixed.ends) == (4, 12, plain.ends)


def test_a_task_without_samples_is_left_out():
    tasks = [[1, 0]] * 8 + [[0, 0]] * 6
    assert free_bounds(*rollouts(*tasks, []), [8]) == free_bounds(*rollouts(*tasks), [8])


def test_a_threshold_decides_what_passes():
    tasks = [[0.5, 0.0]] * 8 + [[0.0, 0.0]] * 6
    passes = [[1.0, 0.0]] * 8 + [[0.0, 0.0]] * 6
    assert free_bounds(*rollouts(*tasks), [8], threshold=0.5) == free_bounds(*rollouts(*passes), [8])


@pytest.mark.parametrize(
    ("tasks", "how", "code"),
    [
        ([[1, 0]] * (FEWEST_TASKS - 1), {}, "free_bounds_few_tasks"),
        ([], {}, "free_bounds_few_tasks"),
        ([[1]] * 30, {}, "free_bounds_few_samples"),
        ([[1, 0], [0, 1]] * 15 + [[1]], {}, "free_bounds_few_samples"),
        ([[1, 0]] * 30, {"clustered": True}, "free_bounds_clusters"),
        ([[1, 0]] * 30, {"stopped": True}, "free_bounds_stopped"),
        # exactly two passes of four in every task: no independent samples do that
        ([[1, 0, 1, 0]] * 100, {}, "free_bounds_impossible"),
    ],
)
def test_what_has_no_bounds(tasks, how, code):
    found = free_bounds(*rollouts(*tasks), [16], **how)
    assert found.ends == {}
    assert found.why.code == code


def test_counts_that_follow_results_have_no_bounds():
    """Tasks are tried until their first pass: first samples alone would do, but the rest of each task is chosen."""
    tasks = [[1]] * 10 + [[0, 1]] * 10 + [[0, 0, 1]] * 5 + [[0, 0, 0]] * 10
    found = free_bounds(*rollouts(*tasks), [16])
    assert (found.ends, found.why.code) == ({}, "free_bounds_counts")


counts = st.lists(st.integers(0, 30), min_size=3, max_size=8).filter(lambda table: sum(table) >= FEWEST_TASKS)


@given(table=counts, k=st.integers(10, 2_000))
@settings(max_examples=40, deadline=None)
def test_bounds_grow_with_k_and_with_confidence(table, k):
    found = ends_of_counts(np.array(table), [k, 2 * k], 0.95)
    if found is None:
        return
    (low, high), (low_later, high_later) = found
    assert 0 <= low <= high <= 1
    assert (low, high) <= (low_later + 1e-4, high_later + 1e-4)
    wider = ends_of_counts(np.array(table), [k], 0.99)
    assert wider is not None
    assert wider[0][0] <= low + 1e-4
    assert wider[0][1] >= high - 1e-4


@pytest.mark.parametrize("world", ["steady", "beta", "two kinds"])
def test_the_truth_lies_within(world):
    rng = np.random.default_rng(7)
    chances = {"steady": np.full(60, 0.001), "beta": rng.beta(0.3, 0.7, 60), "two kinds": np.repeat([0.02, 0.6], 30)}
    found = ends_of_counts(np.bincount(rng.binomial(4, chances[world]), minlength=5), [32], 0.95)
    truth = (1 - (1 - chances[world]) ** 32).mean()
    assert found[0][0] <= truth <= found[0][1]


def test_missing_rollouts_count_as_failures_below_and_as_passes_above():
    """The gap of one rollout took a sample from all tasks, and the bounds took the loss for chance."""
    tasks = [[1] * c + [0] * (4 - c) for c in (0, 0, 0, 1, 2, 3, 4, 4, 4, 2, 1, 3)]
    rewards, by = rollouts(*tasks)
    given = np.ones(len(rewards.values), dtype=bool)
    given[[5, 17, 46]] = False
    found = free_bounds(Column(np.where(given, rewards.values, 0.0), given), by, [16])
    failed, passed = (np.where(given, rewards.values, end) for end in (0.0, 1.0))
    low, high = (free_bounds(Column.of(values), by, [16]).ends[16] for values in (failed, passed))
    assert (found.samples, found.missing) == (4, 3)
    assert found.ends == {16: (low[0], high[1])}
    assert low[0] < high[0]


def test_losses_that_follow_results_are_no_retries():
    """Every task was planned with four samples; only failures were lost, and the worst filling allows for that."""
    rng = np.random.default_rng(2)
    values = (rng.random((80, 4)) < rng.random((80, 1))).astype(float)
    given = (values == 1) | (rng.random((80, 4)) < 0.5)
    by = Groups.of(np.repeat(np.arange(80), 4), 80)
    found = free_bounds(Column(np.where(given, values, 0.0).ravel(), given.ravel()), by, [16])
    assert found.why is None
