"""The best step: reference values, and coverage after picking where the plain interval fails."""

import math

import numpy as np
import pytest

from calipers.stats.best_step import advantages, best_step, interval_after_picking, may_be_best, optimism, shrinkage
from calipers.stats.intervals import interval, spread_of, strength_of

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
