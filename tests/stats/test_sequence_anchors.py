"""Published and recomputed values of the confidence sequences, and what looking often costs without one."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.looking import normal_mixture, tuned_to
from calipers.stats.sequence import _population_keeps, _threshold, population


@pytest.mark.parametrize(
    ("passes", "tasks", "ends"),
    [
        (40, 50, (0.590947, 0.934622)),
        (80, 100, (0.651792, 0.907231)),
        (400, 500, (0.732952, 0.857363)),
        (30, 30, (0.807087, 1)),
    ],
)
def test_the_beta_mixture(passes, tasks, ends):
    assert population(passes, tasks, 0.95) == pytest.approx(ends, abs=1e-6)


TUNED = tuned_to(500, 0.95)


@pytest.mark.parametrize(
    ("settled", "r", "half", "one_look"),
    [
        (100, 1.0, 0.163651, 0.098),
        (100, TUNED, 0.168194, 0.098),
        (500, TUNED, 0.067869, 0.0438),
        (1000, TUNED, 0.048406, 0.0310),
    ],
)
def test_robbins_normal_mixture(settled, r, half, one_look):
    assert normal_mixture(settled, 0.5, 0.95, r) == pytest.approx(half, abs=5e-7)
    assert 1.96 * 0.5 / settled**0.5 == pytest.approx(one_look, abs=5e-5)  # the price of looking is the difference


def test_robbins_mixture_tuned_to_a_time():
    assert tuned_to(500, 0.95) == pytest.approx(0.125985, abs=5e-7)


RUNS = 10_000
LOOKS = np.arange(30, 1_001, 10)


@pytest.fixture(scope="module")
def passes():
    """Passes of a fair coin at every look, [RUNS, looks]: 30 tasks, then ten more and ten more."""
    return np.cumsum(np.random.default_rng(3).binomial(np.diff(LOOKS, prepend=0), 0.5, (RUNS, len(LOOKS))), axis=1)


def ever(outside, runs=RUNS):
    """The share of runs that threw the truth out at any look, and four of its standard errors."""
    share = float(outside.any(axis=1).mean())
    return share, 4 * (share * (1 - share) / runs) ** 0.5


def test_looking_every_ten_tasks_at_an_interval_for_one_look(passes):
    rate = passes / LOOKS
    missed, error = ever(np.abs(rate - 0.5) > 1.96 * np.sqrt(rate * (1 - rate) / LOOKS))
    assert missed == pytest.approx(0.37, abs=error)


@pytest.mark.parametrize(
    ("learnt", "measured"),
    [
        (False, 0.020),
        (True, 0.024),  # the coin's own deviation in place of 1/2: harmless at a mean of 1/2, not near 0 and 1
    ],
)
def test_looking_every_ten_tasks_at_robbins_mixture(passes, learnt, measured):
    """2.6 % was found elsewhere, in fewer runs: nearer to what is asked for than to nothing, and below 5 %."""
    rate = passes / LOOKS
    half = np.array([normal_mixture(t, 1.0, 0.95, TUNED) for t in LOOKS.tolist()])
    missed, error = ever(np.abs(rate - 0.5) > half * (np.sqrt(rate * (1 - rate)) if learnt else 0.5))
    assert missed == pytest.approx(measured, abs=error)
    assert missed == pytest.approx(0.026, abs=0.008)


def test_looking_every_ten_tasks_at_the_beta_mixture(passes):
    some = passes[:1_500]
    outside = [
        [
            not _population_keeps(0.5, total=float(s), settled=int(t), threshold=_threshold(float(s), int(t), 0.95))
            for s, t in zip(row, LOOKS)
        ]
        for row in some
    ]
    missed, error = ever(np.array(outside), len(some))
    assert missed == pytest.approx(0.014, abs=error)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("settled", [1, 10, 500])
def test_tuned_is_within_a_hair_of_the_narrowest(settled, confidence):
    r = tuned_to(settled, confidence)
    around = [normal_mixture(settled, 1.0, confidence, r * by) for by in np.linspace(0.5, 2, 301).tolist()]
    assert normal_mixture(settled, 1.0, confidence, r) < min(around) * 1.0001


def test_nothing_settled_rules_nothing_out():
    assert normal_mixture(0, 0.5, 0.95, 1.0) == float("inf")
    assert normal_mixture(5, 0.0, 0.95, 1.0) == 0.0  # values that cannot differ


@pytest.mark.parametrize(
    "wrong", [(-1, 0.5, 0.95, 1.0), (1, -0.5, 0.95, 1.0), (1, 0.5, 1.0, 1.0), (1, 0.5, 0.95, 0.0), (1, 0.5, 0.95, -1.0)]
)
def test_what_no_run_can_have_is_refused(wrong):
    with pytest.raises(ValueError, match="r above 0"):
        normal_mixture(*wrong)


@pytest.mark.parametrize("wrong", [(0, 0.95), (10, 0.0), (10, float("nan"))])
def test_no_time_to_tune_to(wrong):
    with pytest.raises(ValueError, match="expected one or more"):
        tuned_to(*wrong)
