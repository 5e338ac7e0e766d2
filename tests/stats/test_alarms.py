"""E-processes: reference values, laws, and simulations in which fixed thresholds and repeated tests fail."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.alarms import (
    Process,
    Recovery,
    RunningBest,
    closed,
    drop_units,
    e_lond,
    e_of_z,
    gap_units,
    group_variance,
    held_out_units,
    jitter,
    log_factors,
    lord_plus_plus,
    lower_bound,
    mean_units,
    rate_units,
    recovery_level,
    recovery_units,
    segment_level,
    upper_bound,
    within_variance,
)


def path(units_of, steps, planned=1_000):
    process, values = Process.begin(planned), []
    for step in steps:
        process = process.step(units_of(np.array(step, dtype=float)).logs)
        values.append(float(process.value))
    return values


def test_factor_reference_value():
    values, expected = np.array([1, 0.5, 0.25, 0]), np.array([0.75, 0.5, 0.5, 0.25])
    units = drop_units(values, expected, 0.45, expected.mean())
    assert units.centred.tolist() == pytest.approx([-0.3, -0.05, 0.2, 0.2])
    assert float(log_factors(units.centred, np.array([0.4]))[0]) == pytest.approx(0.005886, abs=6e-7)
    room = 1 - expected.min() + expected.mean() - 0.45
    assert 0.9 / room == pytest.approx(0.9 / 0.8)  # the cap of the stakes, 1.125


@pytest.mark.parametrize(
    ("units", "steps", "expected"),
    [
        (
            lambda shares: rate_units(shares, 0.05),
            [(0, 0, 0, 0.125), (0, 0.25, 0, 0), (0.25, 0.25, 0.125, 0), (0.5, 0.25, 0.25, 0.5)],
            [0.778883, 0.761055, 1.148307, 27.213842],
        ),
        (
            lambda lengths: mean_units(lengths, 1200),
            [(900, 1100, 1500, 800), (1500, 1600, 2900, 1400), (2500, 2600, 2000, 9000)],
            [0.933905, 1.277292, 8.106339],
        ),
        (
            lambda values: drop_units(values, np.full(4, 0.5), 0.55, 0.5),
            [(0.5, 0.75, 0.25, 1), (0.25, 0.5, 0, 0.75), (0, 0.25, 0, 0.5), (0, 0, 0.25, 0.25)],
            [0.944389, 1.031067, 1.347604, 2.231062],
        ),
    ],
)
def test_process_reference_values(units, steps, expected):
    assert path(units, steps) == pytest.approx(expected, abs=6e-7)


def test_running_best_reference_values():
    best, bounds = RunningBest.begin(0.025, 1_000), []
    for mean in (0.50, 0.53, 0.52, 0.55, 0.51):
        best = best.step(mean, 0.02**2, 400)
        bounds.append(float(best.best))
    assert bounds == pytest.approx([0.412548, 0.441917, 0.441917, 0.481071, 0.483558], abs=6e-7)


def test_base_bound_reference_values():
    passes = np.array([0, 1, 1, 2, 3, 4, 4, 4], dtype=float)
    mean, variance, units = within_variance(passes, passes, np.full(8, 4.0))
    assert variance**0.5 == pytest.approx(0.065052, abs=6e-7)
    assert float(lower_bound(mean, variance, units, 0.025)) == pytest.approx(0.454950, abs=6e-7)
    assert float(upper_bound(mean, variance, units, 0.025)) == pytest.approx(0.722388, abs=6e-7)


def test_divergence_reference_value():
    units = gap_units(np.array([1, 0.75, 0.5, 1]), np.array([0.75, 0.75, 0.25, 0.5]), 0.1)
    assert float(log_factors(units.centred, np.array([0.4]))[0]) == pytest.approx(0.224136, abs=6e-7)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([30, 0.4, 2, 900], [10.8, 0.4, 1.2, 233.1]), ([200, 150, 1, 0.5], [67.166667, 50.5, 0.75, 0.5])],
)
def test_combination_reference_values(values, expected):
    assert closed(np.array(values)).tolist() == pytest.approx(expected, abs=6e-7)


def test_lord_plus_plus_reference_values():
    levels, rejected = lord_plus_plus([0.0001, 0.04, 0.9, 0.001, 0.2, 0.5, 0.0002, 0.03])
    expected = [0.00133792, 0.00162887, 0.000538768, 0.000453903, 0.000380812, 0.000325869, 0.000284134, 0.00292746]
    assert levels.tolist() == pytest.approx(expected, rel=4e-6)
    assert np.flatnonzero(rejected).tolist() == [0, 6]


def test_e_lond_reference_values():
    levels, rejected = e_lond([2, 5000, 0.3, 900, 1, 40, 20000, 3])
    expected = [0.00267584, 0.00058191, 0.00099125, 0.000824361, 0.000698887, 0.00060459, 0.000531944, 0.000711784]
    assert levels.tolist() == pytest.approx(expected, rel=4e-6)
    assert np.flatnonzero(rejected).tolist() == [1, 6]
    assert e_of_z(np.array([0.0, 2.0, 4.0])).tolist() == pytest.approx([0.0927042, 3.94129, 1590.03], rel=2e-6)


def test_held_out_units_by_hand():
    train, held_out = np.array([1, 0.5, 0.25]), np.array([0.5, 0.75, 0])
    expected = np.array([0.5, 0.5, 0.25])
    units = held_out_units(train, held_out, expected, 0.4, 0.1)
    assert units.centred.tolist() == pytest.approx([0.0, -0.5, -0.125])
    assert units.stakes.tolist() == pytest.approx([0.9 / 1.25, 0.4, 0.2, 0.1, 0.05])
    assert (1 + units.stakes[:, None] * -1.25 > 0.0999).all()  # the worst that a pair can bring


def test_held_out_gains_of_half_are_the_edge_of_the_null():
    """Training gains 30 points and held-out tasks 15: the mean of E over many runs is at most 1 but for chance."""
    rng = np.random.default_rng(8)
    chances = np.broadcast_to(rng.beta(2, 2, 24), (4_000, 24))
    edge = 0.5 * 0.5 - float(chances[0].mean())  # a/2 - b of the base steps
    process = Process.begin(20, (4_000,))
    for step in range(20):
        gain = 0.3 * step / 19
        train = rng.binomial(4, 0.5 + gain, (4_000, 24)) / 4
        held_out = rng.random((4_000, 24)) < np.minimum(chances + gain / 2, 1)
        expected = np.minimum(chances + gain / 2, 1)
        units = held_out_units(train, held_out.astype(float), expected, expected.mean(axis=1), edge)
        process = process.step(units.logs)
    assert float(process.value.mean()) < 1 + 4 * float(process.value.std()) / 4_000**0.5


def test_levels_of_segments():
    assert [segment_level(0.025, k, k - 1) for k in (1, 2, 3)] == pytest.approx([0.0125, 0.025 / 3, 0.00625])


@given(
    values=st.lists(st.integers(0, 8), min_size=2, max_size=20),
    expected=st.lists(st.floats(0, 1), min_size=20, max_size=20),
    level=st.floats(-0.1, 1),
    centre=st.floats(0, 1),
)
def test_no_stake_can_lose_all(values, expected, level, centre):
    """Whatever a step brings, every term of the product stays positive."""
    scores = np.array(values) / 8
    h = np.array(expected[: len(values)])
    for units in (
        drop_units(scores, h, level, centre),
        rate_units(scores, 0.05),
        mean_units(scores * 1e6, 10.0),
        gap_units(scores, 1 - scores, max(level, 0.0)),
    ):
        assert np.isfinite(units.logs).all()
        assert (1 + units.stakes[:, None] * units.centred > 0.0999).all()


@pytest.mark.parametrize(("even", "left"), [(False, 0.5 - 19 / 40), (True, 0.0)])
def test_capital_is_at_most_one_on_average_under_the_null(even, left):
    """Exactly on the edge of the null the mean of E over many runs is at most 1 but for chance."""
    rng = np.random.default_rng(4)
    process = Process.begin(20, (4_000,), even=even)
    for _ in range(20):
        values = rng.binomial(4, rng.beta(2, 2, (4_000, 16))) / 4
        process = process.step(drop_units(values, np.full((4_000, 16), 0.5), np.full(4_000, 0.5), 0.5).logs)
    assert float(process.value.mean()) < 1 + 4 * float(process.value.std()) / 4_000**0.5
    assert float(process.cash.max()) == pytest.approx(left, abs=1e-12)


def test_a_pooled_reference_is_seldom_above_the_best_mean():
    """Of 2,000 histories whose nights all have one mean, at most 5 % ever have a bound above it."""
    rng = np.random.default_rng(5)
    best = RunningBest.begin(0.05, 30, (2_000,), pooled=True)
    windows = RunningBest.begin(0.05, 30, (2_000,))
    above = np.zeros(2_000, dtype=bool)
    for night in range(30):
        passes = rng.binomial(100, 0.7, 2_000)
        mean = passes / 100
        best, windows = (some.step(mean, mean * (1 - mean) / 100, 100) for some in (best, windows))
        above |= best.best > 0.7
        if night == 11:
            assert float(best.best.mean()) > float(windows.best.mean())
    assert above.mean() <= 0.05


def nightly_finds(even, runs=200):
    """The share of runs in which 5 points that are lost for five nights, from the 15th on, are found within them."""
    rng = np.random.default_rng(6)
    chances = rng.beta(0.8, 0.8, (runs, 200))
    worse = chances - 0.05 * chances * (1 - chances) / 0.154
    process = Process.begin(180, (runs,), even=even)
    best = RunningBest.begin(0.025, 180, (runs,), pooled=even)
    sums, found = np.zeros((runs, 200)), np.zeros(runs, dtype=bool)
    for night in range(19):
        passes = rng.binomial(4, worse if night >= 14 else chances)
        values = passes / 4
        if night:
            expected = (sums + 0.5) / (night + 1)
            process = process.step(drop_units(values, expected, best.best, expected.mean(axis=1)).logs)
            found |= process.value >= 80
            assert night >= 14 or not found.any()
        within = (passes * (4 - passes) / 12).sum(axis=1) / 4 / 200**2
        best, sums = best.step(values.mean(axis=1), within, 800.0), sums + values
    return found.mean()


def test_an_even_process_finds_more_regressions_of_a_few_nights():
    assert nightly_finds(even=True) > nightly_finds(even=False) + 0.1


def test_runs_side_by_side_are_the_same_as_one_by_one():
    rng = np.random.default_rng(1)
    values = rng.random((3, 5, 8))
    together, best = Process.begin(100, (3,)), RunningBest.begin(0.025, 100, (3,))
    for step in range(5):
        best = best.step(values[:, step].mean(axis=1), values[:, step].var(axis=1) / 8, 8)
        together = together.step(drop_units(values[:, step], np.full((3, 8), 0.5), best.best, 0.5).logs)
    for run in range(3):
        alone, alone_best = Process.begin(100), RunningBest.begin(0.025, 100)
        for step in range(5):
            row = values[run, step]
            alone_best = alone_best.step(row.mean(), row.var() / 8, 8)
            alone = alone.step(drop_units(row, np.full(8, 0.5), alone_best.best, 0.5).logs)
        assert float(alone.value) == pytest.approx(float(together.value[run]), rel=1e-12)


def test_since_is_the_step_of_the_change():
    rng = np.random.default_rng(8)
    process = Process.begin(200)
    for step in range(60):
        rate = 0.02 if step < 40 else 0.3
        process = process.step(rate_units(rng.binomial(8, rate, 64) / 8, 0.05).logs, step)
    assert abs(int(process.since) - 40) <= 1
    assert float(process.value) > 1e6


def test_jitter_is_what_noise_does_not_explain():
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.01, 400)
    assert jitter(0.5 + noise, np.full(400, 1e-4)) < 0.005
    assert jitter(0.5 + noise + rng.normal(0, 0.03, 400), np.full(400, 1e-4)) == pytest.approx(0.03, rel=0.15)
    assert jitter(np.array([0.1, 0.2]), np.zeros(2)) == 0.0


def test_one_sample_a_task_has_the_largest_variance():
    ones = np.array([1.0, 0, 1, 0])
    assert within_variance(ones, ones, np.ones(4)) == pytest.approx((0.5, 0.25 / 4, 4))
    assert group_variance(np.array([0.5]))[1] == pytest.approx(0.25)


def watched(rng, runs, steps, tasks, samples, drop=0.0, at=50):
    """Steps until the running-best alarm of each run, 0 where there is none: the same tasks at every step."""
    chances = rng.beta(0.8, 0.8, (runs, tasks))
    process, best = Process.begin(1_000, (runs,)), RunningBest.begin(0.025, 1_000, (runs,))
    totals, weight, previous = np.zeros((runs, tasks)), 0.0, np.zeros(runs)
    first = np.zeros(runs, dtype=int)
    for step in range(steps):
        p = chances - (drop * chances * (1 - chances) / 0.154 if step >= at else 0)
        passes = rng.binomial(samples, np.clip(p, 0, 1, out=p)).astype(float)
        y = passes / samples
        if step:
            h = (totals + previous[:, None]) / (weight + 1)
            process = process.step(drop_units(y, h, best.best, h.mean(axis=1)).logs)
            first[(first == 0) & (process.value >= 40)] = step + 1
        within = (passes * (samples - passes) / samples / (samples - 1) / samples).sum(axis=1) / tasks**2
        best = best.step(y.mean(axis=1), within, tasks * samples)
        totals, weight, previous = 0.97 * (totals + y), 0.97 * (weight + 1), y.mean(axis=1)
    return first


def test_no_false_alarm_where_thresholds_and_repeated_tests_always_alarm():
    """60 runs of 100 steps without a change, d = 0."""
    assert np.count_nonzero(watched(np.random.default_rng(29), 60, 100, 100, 4, at=999)) <= 3


def test_a_drop_of_five_points_is_found_soon():
    found = watched(np.random.default_rng(30), 20, 70, 200, 4, drop=0.05)
    assert np.count_nonzero(found) >= 19
    assert np.median(found[found > 0]) - 50 <= 6


PREDICTED = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.6, 0.5])


def test_recovery_reference_values():
    recovery, found = Recovery.begin(0.5), []
    for night in ("1110100010", "1111110011", "1111111011"):
        recovery = recovery.step(np.array([float(each) for each in night]), PREDICTED, PREDICTED.mean())
        found.append(recovery.value)
    assert found == pytest.approx([0.946542, 1.922300, 12.527709], abs=6e-7)
    assert not recovery.closes
    assert recovery.step(np.ones(10), PREDICTED, PREDICTED.mean()).closes


def test_the_level_of_recovery_is_a_quarter_of_the_change_below_the_bound():
    assert float(recovery_level(0.53, 0.41)) == pytest.approx(0.5)
    assert float(recovery_level(0.53, 0.6)) == 0.53  # a false alarm: the mean is above the bound


def test_the_stakes_of_recovery_never_lose_all():
    """The worst step has a 0 for the task of which the most was expected."""
    units = recovery_units(np.zeros(10), PREDICTED, 0.99, PREDICTED.mean())
    assert units.stakes[0] == pytest.approx(0.9 / (0.9 + 0.99 - PREDICTED.mean()))
    assert 1 + units.stakes[0] * units.centred.min() == pytest.approx(0.1)


def test_without_a_step_the_evidence_of_recovery_is_one():
    assert Recovery.begin(0.3).value == 1.0


def closed_within(mean, level, *, runs=400, steps=40, tasks=60):
    """The share of alarms that close within so many steps, for tasks with chances around a mean."""
    rng = np.random.default_rng(17)
    closed_runs = 0
    for _ in range(runs):
        chances = np.clip(rng.beta(0.8, 0.8, tasks) + mean - 0.5, 0, 1)
        chances *= mean / chances.mean()  # exactly the mean, so that the null is at its edge
        chances = np.clip(chances, 0, 1)
        recovery = Recovery.begin(level + chances.mean() - mean)
        total, weight, closed_here = np.zeros(tasks), 0.0, False
        for _ in range(steps):
            values = (rng.random(tasks) < chances).astype(float)
            expected = (total + 0.5) / (weight + 1)
            recovery = recovery.step(values, expected, float(expected.mean()))
            closed_here |= recovery.closes
            total, weight = 0.97 * (total + values), 0.97 * (weight + 1)
        closed_runs += closed_here
    return closed_runs / runs


def test_an_alarm_does_not_close_while_the_mean_is_at_the_level():
    """The worst world of the promise: the mean is as high as the null of recovery allows."""
    assert closed_within(0.5, 0.5) <= 0.05
    assert closed_within(0.5, 0.4) >= 0.8
