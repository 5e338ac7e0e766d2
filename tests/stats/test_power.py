import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards

from calipers.rollouts.column import Column, Groups
from calipers.stats.paired import NO_COMMON
from calipers.stats.power import (
    Clusters,
    PairVariance,
    assumed_pair,
    difference_by_formula,
    pair_variance,
    power_of,
    quantiles,
    smallest_difference,
    tasks_by_formula,
    tasks_needed,
)
from calipers.stats.variance import Split, Unsplit

MILLER = PairVariance(1 / 9, 1 / 6, 1 / 6)


@pytest.mark.parametrize(
    ("difference", "samples", "tasks"),
    [(0.03, 1, 3876), (0.03, 2, 2423), (0.03, 5, 1551), (0.03, 10, 1260), (0.03, math.inf, 969), (0.01, 1, 34_884)],
)
def test_tasks_by_the_formula(difference, samples, tasks):
    assert tasks_by_formula(MILLER.of(samples), difference) == tasks


@pytest.mark.parametrize(("tasks", "samples", "difference"), [(198, 1, 0.1327), (198, 10, 0.0757), (1000, 1, 0.0591)])
def test_differences_by_the_formula(tasks, samples, difference):
    assert difference_by_formula(MILLER.of(samples), tasks) == pytest.approx(difference, abs=5e-5)


def test_two_sided_is_not_one_sided():
    """2.8 is the sum for a two-sided test, 2.49 for a one-sided one; a gate that mixes them asks for too much."""
    assert quantiles() == pytest.approx(2.801585, abs=1e-6)


@pytest.mark.parametrize(("power", "confidence"), [(1, 0.95), (0, 0.95), (0.8, 1), (80, 0.95)])
def test_nothing_is_certain(power, confidence):
    for ask in (tasks_needed, smallest_difference):
        with pytest.raises(ValueError, match="between 0 and 1"):
            ask(0.4, 10, power, confidence)


@pytest.mark.parametrize(("samples", "variance"), [(1, 1), (2, 2 / 3), (4, 1 / 2), (6, 4 / 9), (10, 0.4)])
def test_what_repeats_bring(samples, variance):
    """Chances of success uniform on [0, 1], relative to one sample each."""
    uniform = Split(1 / 12, 1 / 6, 1)
    assert uniform.variance(samples) / uniform.variance(1) == pytest.approx(variance)


def test_the_test_that_ships_needs_a_few_tasks_more():
    for samples in (1, 10):
        variance = MILLER.of(samples)
        needed = tasks_needed(variance, 0.03)
        assert 0 < needed - tasks_by_formula(variance, 0.03) <= 3
        assert power_of(variance, 0.03, needed) >= 0.8 > power_of(variance, 0.03, needed - 1)
    assert tasks_needed(MILLER.of(1), 0.3, confidence=1 - 2**-53) is None  # its quantile is infinite
    floored = tasks_needed(MILLER.of(1), 0.3, largest=1.0)
    assert floored > tasks_needed(MILLER.of(1), 0.3)


@given(st.floats(0.01, 1), st.integers(2, 5_000), st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from([0.0, 1.0]))
def test_the_smallest_difference_has_the_wished_power(variance, tasks, power, largest):
    found = smallest_difference(variance, tasks, power, largest=largest)
    assert power_of(variance, found, tasks, largest=largest) == pytest.approx(power, abs=1e-6)
    assert found >= difference_by_formula(variance, tasks, power) * (1 - 2e-3)


@pytest.mark.parametrize("tasks", [5, 20, 200, 1500])
@pytest.mark.parametrize("shift", [0.5, 2.8, 5])
def test_the_power_is_that_of_the_noncentral_t(tasks, shift):
    from scipy.special import nctdtr, stdtrit

    critical = stdtrit(tasks - 1, 0.975)
    expected = 1 - nctdtr(tasks - 1, shift, critical) + nctdtr(tasks - 1, shift, -critical)
    assert power_of(1.0, shift / math.sqrt(tasks), tasks) == pytest.approx(expected, abs=2e-5)


def test_the_ends():
    assert power_of(0.5, 0.1, 1) == 0
    assert power_of(0.0, 0.1, 30) == 1
    assert power_of(0.5, 0.0, 3000) == pytest.approx(0.05, abs=1e-3)  # the level
    assert tasks_needed(0.5, 0.0) is None
    assert tasks_needed(1.0, 1e-6) is None  # more than 10^9
    assert smallest_difference(0.5, 1) is None


@pytest.mark.parametrize("largest", [0.0, 0.4])
def test_clusters_of_one_size_are_units_of_a_variance_of_their_own(largest):
    """Clusters of 10 whose mean has a variance of 0.02: ten times that for each task, and the test is that of units."""
    tens = Clusters(size=10.0)
    for units in (3, 30):
        expected = power_of(0.02, 0.1, units, largest=largest)
        assert power_of(0.2, 0.1, 10 * units, largest=largest, clusters=tens) == pytest.approx(expected)
        shown = smallest_difference(0.02, units, largest=largest)
        assert smallest_difference(0.2, 10 * units, largest=largest, clusters=tens) == pytest.approx(shown)
    needed = tasks_needed(0.02, 0.1, largest=largest)
    assert tasks_needed(0.2, 0.1, largest=largest, clusters=tens) == 10 * needed


def test_clusters_of_unlike_sizes_are_worth_fewer():
    mixed = Clusters.of(np.repeat(np.arange(4), [1, 2, 3, 10]))
    assert (mixed.size, mixed.units(16)) == pytest.approx((4, 16**2 / (1 + 4 + 9 + 100)))
    assert (mixed.count(16), mixed.count(15), mixed.tasks(5)) == (4, 3, 20)
    thirds = Clusters(size=10 / 3)
    assert [thirds.count(thirds.tasks(count)) for count in range(1, 50)] == list(range(1, 50))
    assert power_of(0.2, 5.0, 10, clusters=Clusters(size=10.0)) == 0  # one cluster
    assert smallest_difference(0.2, 10, clusters=Clusters(size=10.0)) is None


def test_a_pilot_by_hand():
    """Differences 1/2, -1/2, 0: variance 1/4. Within: 1/2, 0, 0 and 0, 1/2, 0, a mean of 1/6 in each run."""
    first, second = rewards([1, 0], [0, 0], [1, 1]), rewards([0, 0], [1, 0], [1, 1])
    found = pair_variance(first[0], second[0], first[1], second[1])
    assert (found.first, found.second) == pytest.approx((1 / 6, 1 / 6))
    assert found.tasks == pytest.approx(1 / 4 - 1 / 12 - 1 / 12)
    assert found.of(2) == pytest.approx(1 / 4)


def test_a_pilot_in_clusters_by_hand():
    """Differences 1/2, 1/2 | -1/2, 0: pulls of 1/4 and -1/8 around 1/16 and 1/16, so 2 (9/256 + 9/256) x 4 tasks."""
    first, second = rewards([1, 0], [1, 0], [0, 0], [1, 1]), rewards([0, 0], [0, 0], [1, 0], [1, 1])
    clusters = np.array([0, 0, 1, 1])
    found = pair_variance(first[0], second[0], first[1], second[1], clusters)
    assert found.of(2) == pytest.approx(4 * 2 * 2 * 9 / 256)
    assert (found.first, found.second) == pytest.approx((1 / 4, 1 / 8))  # sampling knows no clusters
    one = pair_variance(first[0], second[0], first[1], second[1], np.zeros(4, dtype=int))
    assert one == Unsplit("one cluster says nothing about others")


def test_a_pilot_without_repeats_is_not_divided():
    first, second = rewards([1], [0], [1]), rewards([0], [0], [1])
    found = pair_variance(first[0], second[0], first[1], second[1])
    assert (found.tasks, found.first, found.second, found.divided) == (pytest.approx(1 / 3), 0, 0, False)


def test_a_pilot_keeps_to_common_tasks():
    first, second = rewards([1, 0], [0, 0], [1, 1], [1, 0]), rewards([0, 0], [1, 0], [1, 1], [GAP])
    assert pair_variance(first[0], second[0], first[1], second[1]).of(2) == pytest.approx(1 / 4)
    alone = rewards([GAP], [GAP], [1], [GAP])
    assert pair_variance(first[0], alone[0], first[1], alone[1]) == Unsplit("one task says nothing about others")
    nothing = rewards([GAP], [GAP], [GAP], [GAP])
    assert pair_variance(first[0], nothing[0], first[1], nothing[1]) == Unsplit(NO_COMMON)


def test_a_pilot_finds_the_parts_it_was_made_of():
    random = np.random.default_rng(0)
    chances = random.uniform(0.2, 0.8, 40_000)
    apart = chances + random.choice([-0.2, 0.2], 40_000)
    by = Groups.of(np.repeat(np.arange(40_000), 4), 40_000)
    runs = [Column.of((random.random(160_000) < np.repeat(p, 4)).astype(float)) for p in (apart, chances)]
    found = pair_variance(runs[0], runs[1], by, by)
    assert found.tasks == pytest.approx(float((apart - chances).var()), abs=0.005)
    assert found.first == pytest.approx(float((apart * (1 - apart)).mean()), abs=0.005)
    assert found.second == pytest.approx(float((chances * (1 - chances)).mean()), abs=0.005)


def test_one_run_and_a_correlation():
    """1/12 between tasks: a second run that finds other tasks hard, by a third alike, has Miller's 1/9."""
    found = assumed_pair(Split(1 / 12, 1 / 6, 1), 1 / 3)
    assert (found.tasks, found.first, found.second) == pytest.approx((1 / 9, 1 / 6, 1 / 6))
    assert assumed_pair(Split(1 / 12, 1 / 6, 1), 1.0).tasks == 0
    with pytest.raises(ValueError, match="-1 to 1"):
        assumed_pair(Split(1 / 12, 1 / 6, 1), 1.1)


@pytest.mark.parametrize("difference", [1e-155, 1e-160, 1e-200, 5e-324])
def test_a_difference_whose_square_is_no_number_takes_more_tasks_than_there_are(difference):
    assert tasks_needed(0.1, difference) is None
    assert tasks_needed(0.0, difference) == 2  # without variance every difference is sure
