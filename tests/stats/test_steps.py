"""Bands over steps and the best step: reference values, and simulations in which one look's interval fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from calipers.stats.intervals import interval, spread_of, strength_of
from calipers.stats.steps import (
    advantages,
    band,
    best_step,
    interval_after_picking,
    look_and_band,
    may_be_best,
    optimism,
    paired_change,
    shrinkage,
    step_confidence,
    unpaired_change,
)

PASSES = np.array([0, 1, 1, 2, 3, 4, 4, 4]) / 4
EIGHTY = np.repeat([1.0, 0.0], [80, 20])


@pytest.mark.parametrize(
    ("values", "steps", "ends"),
    [
        (PASSES, 200, (0.070970, 0.979846)),
        (PASSES, 1_000, (0.042208, 0.990444)),
        (EIGHTY, 1, (0.708157, 0.873344)),
        (EIGHTY, 200, (0.624933, 0.919540)),
        (EIGHTY, 1_000, (0.604967, 0.928347)),
    ],
)
def test_band_reference_values(values, steps, ends):
    assert band(values, steps).ends == pytest.approx(ends, abs=6e-7)


def test_difference_reference_values():
    change = np.repeat([1.0, -1.0, 0.0], [10, 2, 88])
    one, many = (paired_change(change, np.zeros(100), steps) for steps in (1, 200))
    assert one.stderr == pytest.approx(0.034241, abs=6e-7)
    assert one.interval == pytest.approx((0.012058, 0.147942), abs=6e-7)
    assert many.interval == pytest.approx((-0.050117, 0.210117), abs=6e-7)


def test_a_band_is_never_narrower_than_the_interval_of_one_look():
    for steps in (1, 20, 1_000):
        low, high = band(PASSES, steps).ends
        plain = interval(PASSES, np.ones(8), 0.95, (0.0, 1.0)).ends
        assert low <= plain[0]
        assert high >= plain[1]


def test_without_a_range_a_band_is_students():
    assert band(np.array([100.0, 300.0, 250.0]), 10, limits=None).method == "t"
    assert band(np.array([0.5]), 10).ends is None


def test_other_tasks_are_compared_unpaired():
    now, base = np.array([1.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0])
    change, ends = unpaired_change(now, base, 50)
    assert change == pytest.approx(0.75 - 1 / 3)
    assert ends is not None
    assert -1 <= ends[0] < change < ends[1] <= 1
    assert unpaired_change(np.ones(1), np.ones(3), 50)[1] is None


@pytest.mark.parametrize(
    ("sizes", "deviations"), [((128, 5), (1.0, 1.0)), ((8, 64), (2.0, 1.0)), ((30, 30), (0.1, 2.0))]
)
def test_a_base_of_few_tasks_decides_how_wide_the_change_is(sizes, deviations):
    """With G_s + G_0 - 2 degrees of freedom the first of them misses 10 % where 5 are meant; scipy has Welch's test."""
    rng = np.random.default_rng(8)
    missed = 0
    for _ in range(1_500):
        now, base = (rng.normal(0.0, sd, size) for size, sd in zip(sizes, deviations, strict=True))
        ends = unpaired_change(now, base, 1, limits=None)[1]
        missed += not ends[0] <= 0 <= ends[1]
    assert missed <= 0.068 * 1_500
    assert ends == pytest.approx(stats.ttest_ind(now, base, equal_var=False).confidence_interval(), abs=1e-12)


def test_step_confidence_splits_what_may_be_wrong():
    assert step_confidence(0.95, 200) == pytest.approx(1 - 0.05 / 200)


def test_bands_hold_at_all_steps_where_the_interval_of_one_look_does_not():
    """60 curves of 100 steps of fresh prompts: the band holds on nearly all, one look's interval on nearly none."""
    rng = np.random.default_rng(29)
    steps, held, held_once = 100, 0, 0
    for _ in range(60):
        chances = rng.beta(0.8, 0.8, (steps, 60))
        values = rng.binomial(4, chances) / 4
        inside = [(band(row, steps).ends, interval(row, np.ones(60), 0.95, (0.0, 1.0)).ends) for row in values]
        held += all(low <= 0.5 <= high for (low, high), _ in inside)
        held_once += all(low <= 0.5 <= high for _, (low, high) in inside)
    assert held >= 54
    assert held_once <= 10


def test_one_spread_gives_both_intervals():
    for values, limits in (
        (PASSES, (0.0, 1.0)),
        (EIGHTY, (0.0, 1.0)),
        (10 * PASSES, (0.0, 10.0)),  # a range other than 0 to 1
        (np.array([3.0, 5.5, 4.0]), None),
    ):
        looked, banded = look_and_band(values, 200, limits=limits)
        assert looked.stderr == pytest.approx(interval(values, np.ones(len(values)), 0.95, limits).stderr, rel=1e-12)
        assert looked.ends == pytest.approx(interval(values, np.ones(len(values)), 0.95, limits).ends, rel=1e-12)
        assert banded.ends == pytest.approx(band(values, 200, limits=limits).ends, rel=1e-12)
    assert look_and_band(np.array([0.5]), 200)[1].ends is None


def test_the_rounding_of_means_is_no_change():
    """A difference of one last digit on every task would be a significant one."""
    base = np.full(50, 0.3)
    now = np.nextafter(base, 1)
    assert paired_change(now, base, 1_000).value == 0
    assert paired_change(now, base, 1_000).p == 1
    assert unpaired_change(now, base[:30], 1_000) == (0.0, None)
    assert unpaired_change(np.full(3, 0.1), np.full(10, 0.1), 1_000) == (0.0, None)


ROWS = np.array(
    [(1, 1, 0, 1, 0, 1, 0.5, 1), (1, 0.5, 0, 1, 0, 0.5, 0.5, 1), (0, 0.5, 0, 0.5, 0, 0.5, 0, 1)], dtype=float
)


def test_set_reference_values():
    assert ROWS.mean(axis=1).tolist() == [0.6875, 0.5625, 0.3125]
    assert advantages(ROWS, 1)[0] == pytest.approx(1.427012, abs=6e-7)
    assert advantages(ROWS, 2)[0] == pytest.approx(2.683282, abs=6e-7)
    assert may_be_best(ROWS) == [0, 1]


def test_optimism_reference_values():
    """Of two steps it has a closed form, theta phi(delta/theta); the draws agree within their error."""
    two, theta, delta = ROWS[:2], 0.081832, 0.125
    assert shrinkage(two) == pytest.approx(0.571429, abs=6e-7)

    def closed_form(gap):
        return theta * math.exp(-((gap / theta) ** 2) / 2) / math.sqrt(2 * math.pi)

    assert closed_form(delta) == pytest.approx(0.010166, abs=6e-7)
    assert closed_form(delta * math.sqrt(shrinkage(two))) == pytest.approx(0.016761, abs=1e-6)
    many = 200_000
    # the picked noise has a standard deviation of about 0.17, so 4 standard errors of 200,000 draws are 0.0015
    assert optimism(two, shrunk=False, draws=many) == pytest.approx(0.010166, abs=1.5e-3)
    assert optimism(two, draws=many) == pytest.approx(0.016761, abs=1.5e-3)


def test_interval_reference_values():
    assert strength_of(spread_of(ROWS[0], np.ones(8), (0.0, 1.0))) == pytest.approx((9.037037, 61.0), abs=6e-7)
    assert interval_after_picking(ROWS[0], 0.016761).ends == pytest.approx((0.352876, 0.883858), abs=1.5e-6)


def test_one_step_has_no_luck():
    found = best_step(ROWS[:1])
    assert found.optimism == 0
    assert found.interval.ends == pytest.approx(interval(ROWS[0], np.ones(8), 0.95, (0.0, 1.0)).ends)
    assert found.members == [0]
    assert found.second is None


def test_one_task_says_nothing():
    found = best_step(np.array([[1.0], [0.5]]))
    assert found.interval.ends is None
    assert found.members == [0, 1]


def test_a_seed_gives_one_answer():
    assert optimism(ROWS, seed=3) == optimism(ROWS, seed=3) != optimism(ROWS, seed=4)


def test_coverage_after_picking_where_the_plain_interval_fails():
    """30 equal checkpoints on 60 tasks of one sample: the best mean is luck, and the plain interval forgets it."""
    rng = np.random.default_rng(29)
    covered = plain = 0
    runs = 80
    for _ in range(runs):
        chances = rng.beta(0.8, 0.8, 60)
        values = rng.binomial(1, np.broadcast_to(chances, (30, 60))).astype(float)
        found = best_step(values, draws=300)
        low, high = found.interval.ends
        covered += low <= 0.5 <= high
        low, high = interval(values[found.step], np.ones(60), 0.95, (0.0, 1.0)).ends
        plain += low <= 0.5 <= high
        assert 0.01 < found.optimism < 0.2
    assert covered >= 0.89 * runs
    assert plain <= 0.8 * runs


def test_the_rounding_of_means_beats_nobody():
    values = np.full((2, 50), 0.3)
    values[1] = np.nextafter(0.3, 1)
    assert sorted(may_be_best(values)) == [0, 1]
    assert best_step(values).deviation == 0


def test_the_step_with_the_highest_mean_may_always_be_the_best():
    values = np.array([[1.0, 0, 1, 1, 0], [0, 1, 1, 0, 0]])
    for confidence in (0.01, 0.3, 0.5):
        assert may_be_best(values, confidence=confidence)[0] == 0
