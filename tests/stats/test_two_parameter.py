from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.stats import rankdata

from calipers.stats.items import LEVEL_SPREAD, SLOPE_SPREAD, abilities, chance, fitted, information, items


@pytest.mark.parametrize(
    ("ability", "slope", "difficulty", "passes", "tells"),
    [
        (0.5, 1.5, 0.0, 0.679179, 0.490264),
        (2.0, 1.5, 1.5, 0.679179, 0.490264),  # only the distance counts
        (1.0, 2.0, 1.0, 0.5, 1.0),  # a^2 / 4, the most that a slope can tell
        (3.0, 0.0, 1.0, 0.5, 0.0),  # a coin
        (1e3, 1.0, 0.0, 1.0, 0.0),  # beyond doubt, and beyond what exp can hold
        (-1e3, 1.0, 0.0, 0.0, 0.0),
    ],
)
def test_chance_and_information(ability, slope, difficulty, passes, tells):
    assert chance(ability, slope, difficulty) == pytest.approx(passes, abs=5e-7)
    assert information(ability, slope, difficulty) == pytest.approx(tells, abs=5e-7)


def test_information_is_one_over_the_variance():
    """The curvature of the log-likelihood of one try: differences of its slope, by hand."""
    step = 1e-4
    p, q = chance(0.7, 1.3, 0.2), 1 - chance(0.7, 1.3, 0.2)
    for log_chance in (np.log, lambda found: np.log1p(-found)):
        before, at, after = (log_chance(chance(0.7 + by, 1.3, 0.2)) for by in (-step, 0, step))
        assert -(before - 2 * at + after) / step**2 == pytest.approx(1.3**2 * p * q, rel=1e-5)


EVERY = np.ones((3, 4), dtype=bool)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (EVERY, [np.log(9), 0.0, -np.log(9)]),  # (4 + 1/2) / 5: no run is infinitely able
        (EVERY & (np.arange(4) > 1), [np.log(5), np.log(5), -np.log(5)]),  # of the tasks it has
    ],
)
def test_abilities(given, expected):
    values = np.array([[1.0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]])
    assert abilities(values, given) == pytest.approx(expected)


def posterior(point, x, y, centre):
    level, slope = point
    logit = level + slope * x
    off = ((level - centre) / LEVEL_SPREAD) ** 2 + ((slope - 1) / SLOPE_SPREAD) ** 2
    return off / 2 - (y * logit - np.logaddexp(0, logit)).sum()


@pytest.mark.parametrize(
    "ability",
    [
        np.linspace(-2, 2, 12),
        np.linspace(0.9, 1.1, 5),  # runs so alike that the slope is the prior's
        np.array([-40.0, 0, 0, 0, 40]),  # a step of Newton's from the start would leave the page
    ],
)
def test_the_fit_is_the_peak(ability):
    values = np.random.default_rng(1).integers(0, 3, (len(ability), 40)) / 2
    values[:, 0], values[:, 1] = 1, 0  # what all pass, and none
    curves = fitted(values, np.ones(values.shape, dtype=bool), ability)
    centre = ability.mean()
    for task in range(40):
        x, y = ability - centre, values[:, task]
        level, slope = minimize(posterior, [centre, 1.0], (x, y, centre), method="BFGS", options={"gtol": 1e-7}).x
        if slope > 1e-6:
            assert curves.slope[task] == pytest.approx(slope, abs=1e-4)
            assert curves.slope[task] * (centre - curves.difficulty[task]) == pytest.approx(level, abs=1e-4)
        else:
            assert curves.slope[task] == pytest.approx(0, abs=1e-4)


def test_a_task_like_the_whole_is_what_no_data_leave():
    """No run has the task: each passes it with the chance of its own mean, and so does the prior."""
    ability = np.array([-1.0, 0.5, 2.0])
    curves = fitted(np.zeros((3, 1)), np.zeros((3, 1), dtype=bool), ability)
    assert chance(ability, curves.slope, curves.difficulty) == pytest.approx(chance(ability, 1.0, 0.0))


def test_a_run_without_the_task_is_left_out():
    ability, values = np.linspace(-1, 1, 8), np.random.default_rng(2).integers(0, 2, (8, 5)).astype(float)
    has = np.ones((8, 5), dtype=bool)
    has[3] = False
    other = values.copy()
    other[3] = 1 - other[3]
    assert fitted(values, has, ability).slope.tolist() == fitted(other, has, ability).slope.tolist()


def test_what_better_runs_fail_tells_nothing():
    ability = np.linspace(-2, 2, 10)
    values = np.stack([ability > 0, ability < 0], axis=1).astype(float)
    curves = fitted(values, np.ones(values.shape, dtype=bool), ability)
    rises, falls = information(2.0, curves.slope, curves.difficulty)
    assert rises > 0
    assert falls == 0


@given(arrays(np.float64, (6, 4), elements=st.floats(0, 1)), arrays(bool, (6, 4)))
def test_laws(values, has):
    curves = fitted(values, has, abilities(values, has))
    assert np.isfinite(curves.difficulty).all()
    assert (curves.slope >= 0).all()
    order = np.random.default_rng(3).permutation(6)
    again = fitted(values[order], has[order], abilities(values[order], has[order]))
    assert again.slope == pytest.approx(curves.slope, abs=1e-8)


def rank_correlations(scores, truth):
    """Spearman's correlation of each row of scores with the truth."""
    ranks = rankdata([*scores, truth], axis=1)
    assert (ranks.std(axis=1) > 0).all()
    return np.corrcoef(ranks)[-1, :-1]


@cache
def worlds(guess):
    """400 worlds of 300 tasks, known from 12 runs: the tasks, what picks 50 of them, and what becomes of new runs."""
    rng, made = np.random.default_rng(1), []
    for _ in range(400):
        slope, difficulty = np.exp(rng.normal(0, 0.5, 300)), rng.normal(0, 1.5, 300)
        known = rng.normal(0, 1, 12)
        passes = (rng.random((12, 300)) < guess + (1 - guess) * chance(known[:, None], slope, difficulty)).astype(int)
        new, luck = rng.normal(0, 1, 20), rng.random((20, 300))
        told = items(passes.astype(float), passes, np.ones_like(passes))
        assert told.information.given.all()
        apart = np.where(told.discrimination.given, told.discrimination.values, -2)
        picks = (
            np.argsort(-told.information.values)[:50],
            rng.permutation(300)[:50],
            np.argsort(-apart)[:50],
            slice(None),
        )
        made.append((slope, difficulty, known, new, luck, picks))
    return made


@pytest.mark.parametrize(
    ("newcomers", "guess", "expected"),
    [
        ("like the runs", 0.0, [0.930, 0.919, 0.947, 0.978]),
        ("like the better half", 0.0, [0.874, 0.803, 0.863, 0.943]),
        ("around the best", 0.0, [0.835, 0.729, 0.750, 0.922]),  # discrimination chooses for all runs alike
        ("like the better half", 0.25, [0.780, 0.723, 0.776, 0.914]),  # four choices: no curve of ours has that floor
    ],
)
def test_fifty_tasks_of_most_information_rank_new_runs(newcomers, guess, expected):
    """Of 300 tasks of a two-parameter world, known from 12 runs: better than 50 at random, and most so at the top.

    Rank correlation of the means of 20 new runs with their true abilities, the mean over 400 worlds: by information,
    at random, by discrimination, and with all tasks.
    """
    found = []
    for slope, difficulty, known, new, luck, picks in worlds(guess):
        if newcomers == "like the better half":
            new = np.abs(new)
        elif newcomers == "around the best":
            new = known.max() + new / 2
        marks = luck < guess + (1 - guess) * chance(new[:, None], slope, difficulty)
        found.append(rank_correlations([marks[:, pick].mean(axis=1) for pick in picks], new))
    assert np.mean(found, axis=0) == pytest.approx(expected, abs=0.015)
    better = np.array(found)[:, 0] - np.array(found)[:, 1]
    assert better.mean() > 3 * better.std() / 20  # three standard errors of the mean over worlds
