"""What a pilot knows of the variance of a task's difference, and the bench's rule against this one."""

import math

import numpy as np
import pytest
from making import GAP, rewards

from bench.simulations.pilots import PILOTS, WORLDS, pilots, true_parts
from calipers.stats.power import pair_variance, pilot_of_pair, pilot_of_run, variance_ends
from calipers.stats.variance import split

NEW = [[1, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, 0], [0, 0], [1, 1]]
OLD = [[0, 1], [0, 0], [0, 0], [1, 1], [0, 0], [1, 1], [1, 0], [0, 1]]


def pair(new, old, clusters=None, **more):
    (one, by_one), (two, by_two) = rewards(*new), rewards(*old)
    return pilot_of_pair(one, two, by_one, by_two, clusters, **more)


@pytest.mark.parametrize(
    ("samples", "value", "ends"),
    [
        (1, 0.383929, (0.168177, 1.008709)),
        (2, 0.196429, (0.057295, 0.813672)),
        (16, 0.032366, (-0.106883, 0.655388)),
        (math.inf, 0.008929, (-0.137987, 0.633709)),
    ],
)
def test_reference(samples, value, ends):
    found = pair(NEW, OLD)
    assert found.variance(samples) == pytest.approx(value, abs=1e-6)
    assert found.interval(samples) == pytest.approx(ends, abs=1e-6)


def test_the_value_is_that_of_the_plan():
    """As `pair_variance` divides it, where nothing is cut off at 0; for one run, as `split` does."""
    (one, by_one), (two, by_two) = rewards(*NEW), rewards(*OLD)
    parts = pair_variance(one, two, by_one, by_two)
    assert [pair(NEW, OLD).variance(k) for k in (1, 2, 7)] == pytest.approx([parts.of(k) for k in (1, 2, 7)])
    alone, run = split(one, by_one), pilot_of_run(one, by_one, 0.25)
    for k in (1, 2, 7, math.inf):
        assert run.variance(k) == pytest.approx(1.5 * alone.tasks + 2 * alone.sampling / k)


def test_without_repeats_only_the_pilots_own_samples_are_known():
    found = pair([[1], [0], [1], [1]], [[0], [0], [1], [0]])
    assert found.variance(1) == pytest.approx(np.var([1, 0, 0, 1], ddof=1))
    assert found.interval(1) == found.interval(16)  # nothing says what samples do: a plan asks for one only


def test_tasks_of_one_run_only_are_left_out_and_gaps_are_no_samples():
    more = pair([*NEW, [1, 1], [GAP, GAP]], [*OLD, [GAP, GAP], [1, 0]])
    assert more.interval(4) == pair(NEW, OLD).interval(4)
    assert pair([[1, 0]], [[0, 0]]) is None


def test_unpaired_runs_have_the_variance_of_both():
    found = pair(NEW, OLD, paired=False)
    means = [np.mean(run, axis=1) for run in (NEW, OLD)]
    assert found.variance(2) == pytest.approx(sum(np.var(one, ddof=1) for one in means))


def test_clusters_are_the_units():
    """Every task for itself is a cluster of one; two copies of each task are one unit, with half the doubt apiece."""
    plain, single = pair(NEW, OLD), pair(NEW, OLD, np.arange(8))
    assert single.interval(4) == pytest.approx(plain.interval(4))
    double = pair([one for one in NEW for _ in range(2)], [one for one in OLD for _ in range(2)], np.arange(16) // 2)
    assert (len(double.squares), double.freedom) == (8, 7)
    assert double.squares == pytest.approx(2 * plain.squares)
    assert double.single == pytest.approx(plain.single)
    assert pair(NEW, OLD, np.zeros(8, dtype=int)) is None
    uneven = pair(NEW, OLD, np.array([0, 0, 0, 0, 0, 1, 2, 3]))
    assert uneven.freedom == pytest.approx(64 / 28 - 1)


def test_a_pilot_of_many_tasks_knows_its_variance():
    rng = np.random.default_rng(3)
    chances = WORLDS["uniform probabilities, task effects of sd .12"](rng, (20_000,))
    passes = [(rng.random((20_000, 4)) < one[:, None]).astype(float).tolist() for one in chances]
    between, one = true_parts("uniform probabilities, task effects of sd .12")
    found = pair(passes[1], passes[0])
    for k in (1, 4, 16, math.inf):
        low, high = found.interval(k)
        assert low < between + one / k < high
        assert high - low < 0.02


@pytest.mark.parametrize(("tasks", "samples"), PILOTS)
def test_the_bench_uses_the_rule_that_is_printed(tasks, samples):
    rng = np.random.default_rng(4)
    first = rng.random((2, tasks))
    differences, single = pilots((first, first), samples, rng)
    assert single.mean() == pytest.approx(1 / 3, abs=0.12)
    away = differences - differences.mean(axis=1, keepdims=True)
    sampling = (1 / 16 - 1 / samples) * single
    low, high = variance_ends(away**2 * tasks / (tasks - 1), sampling, tasks - 1.0)
    rng = np.random.default_rng(4)
    first = rng.random((2, tasks))
    passes = [rng.binomial(samples, first) for _ in range(2)]
    for row in range(2):
        runs = [[[1.0] * c + [0.0] * (samples - c) for c in one[row].tolist()] for one in passes]
        assert pair(runs[1], runs[0]).interval(16) == pytest.approx((low[row], high[row]))
