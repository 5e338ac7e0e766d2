"""The paired tests keep their level, and plans their power: a small, seeded part of ``make bench-statistics``.

Seeds are fixed. The default test's level is at most 5.4 % in the whole grid: some binomial standard errors below
the 6 % that is asked for here, so that another stream of random numbers would hardly ever fail a row.
"""

import sys
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.clusters import cluster_sizes
from bench.simulations.grid import real_population
from bench.simulations.paired import Compared, Promise, binary_test, cluster_test, drawn_test, rate_test
from bench.simulations.paired_report import broken, comparison_text
from bench.simulations.paired_rule import (
    LEVEL,
    floored_p,
    mid_p,
    of_cluster_sums,
    of_differences,
    of_rates,
    strict_rejects,
)
from bench.simulations.paired_worlds import binomial, joint, shifted, wild_passes, wild_rewards
from calipers.stats.paired import STRICT, judged, mcnemar, paired, rate_units
from calipers.stats.power import power_of, tasks_needed

REPLICATES = 10_000
FEWER = 1_500
UNIT = (0.0, 1.0)


def rng():
    return np.random.default_rng(7)


def errors(level, replicates=REPLICATES):
    return 4 * sqrt(level * (1 - level) / replicates)


@pytest.mark.parametrize(
    ("tasks", "mean", "samples", "chance"),
    [
        (10, 0.5, 1, None),  # 5.3 %, the worst of the grid
        (10, 0.9, 4, 0.5),
        (30, 0.5, 4, 4.0),
        (30, 0.98, 1, None),  # a failure or two decide nothing: hardly ever rejected
        (100, 0.5, 1, 4.0),
        (100, 0.1, 4, None),
        (1000, 0.98, 4, 4.0),
        (1000, 0.5, 1, 0.5),
    ],
)
def test_the_default_test_keeps_its_level(tasks, mean, samples, chance):
    found = binary_test(tasks, mean, samples, joint(samples, mean, chance), REPLICATES, rng())
    assert found.floored <= 0.06
    assert found.strict <= 0.06
    if found.differing >= 20:
        assert found.floored >= 0.03


def test_the_worst_cell_is_known():
    """Ten tasks, two fair coins each."""
    found = binary_test(10, 0.5, 1, joint(1, 0.5, None), REPLICATES, rng())
    assert found.floored == pytest.approx(0.0532, abs=errors(0.0532))
    assert (found.exact, found.mid) == pytest.approx((0.0096, 0.0276), abs=errors(0.03))


def test_real_rewards_and_pooled_rates_keep_it_too():
    rewards = real_population(0.9, 4.0, 4.0, rng())
    differences = rewards[:, :4].mean(axis=1) - rewards[:, 4:8].mean(axis=1)
    both = np.concatenate([differences, -differences])
    for tasks in (10, 30, 100):
        found = drawn_test("fair", both, tasks, 0.9, 4, REPLICATES // 4, rng())
        assert (0.03 if found.differing >= 20 else 0) <= found.floored <= 0.06
    assert 0.03 <= rate_test(100, 0.5, 4.0, FEWER, rng()).floored <= 0.06


@pytest.mark.parametrize(("samples", "naive"), [(1, 0.42), (4, 0.49)])
def test_clusters_are_the_units(samples, naive):
    """50 clusters of 10 tasks: counted as 500 tasks, every other comparison of nothing is a discovery."""
    found = cluster_test(cluster_sizes(50, "even clusters"), 0.5, samples, None, FEWER, rng())
    assert found.naive == pytest.approx(naive, abs=0.05)
    assert found.floored <= 0.06
    assert found.floored >= 0.03


def test_a_steady_run_against_an_all_or_nothing_one():
    """What the default test cannot know: the rare failures that it has not seen. strict can."""
    size = (1 << 15, 1)
    differences = rng().beta(49, 1, size=size) - wild_rewards(0.98, 50.0, "skewed", size, rng())
    found = drawn_test("skewed", (differences - differences.mean())[:, 0], 30, 0.98, 1, REPLICATES // 4, rng())
    assert found.floored > 0.3
    assert found.strict <= 0.06
    law = np.outer(binomial(4, 0.5), wild_passes(4, 0.5, "skewed"))
    assert binary_test(100, 0.5, 4, law, REPLICATES, rng(), "skewed").strict <= 0.06


@pytest.mark.parametrize(
    ("samples", "difference", "power"), [(1, 0.1, 0.8), (1, 0.2, 0.9), (4, 0.03, 0.8), (4, 0.1, 0.5)]
)
def test_a_plan_keeps_its_promise(samples, difference, power):
    law, values, variance = shifted(samples, difference)
    assert law @ values == pytest.approx(difference)
    tasks = tasks_needed(variance, difference, power, largest=1.0)
    tally = rng().multinomial(tasks, law, size=REPLICATES)
    found = float((floored_p(of_differences(values, tally)) <= LEVEL).mean())
    assert found == pytest.approx(power_of(variance, difference, tasks, largest=1.0), abs=0.02)
    assert found == pytest.approx(power, abs=0.02)


SAME = {"rel": 1e-9, "abs": 1e-12}


def agree(expected, found, strict):
    assert found.p == pytest.approx(float(expected), **SAME)
    assert (strict.p <= LEVEL) == (strict.interval[0] > 0 or strict.interval[1] < 0)


def test_the_twin_equals_the_product_on_tasks_and_clusters():
    random = rng()
    for turn in range(100):
        sizes = random.integers(1, 8 if turn % 3 else 2, size=int(random.integers(2, 12)))
        code = np.repeat(np.arange(len(sizes)), sizes)
        differences = random.choice([0.0, 1.0, -1.0, *random.uniform(-1, 1, turn % 4)], size=(3, len(code)))
        pairs = of_cluster_sums(np.stack([np.bincount(code, row) for row in differences]), sizes)
        rejected = strict_rejects(pairs)
        for row, p, out in zip(differences, floored_p(pairs), rejected):
            strict = paired(row, clusters=code, limits=UNIT, test=STRICT)
            agree(p, paired(row, clusters=code, limits=UNIT), strict)
            assert abs(strict.p - LEVEL) < 1e-9 or (strict.p <= LEVEL) == out


def test_the_twin_equals_the_product_on_tallies():
    random = rng()
    values = np.array([-1, -0.5, 0, 0.25, 1])
    tally = random.multinomial(12, [0.1, 0.2, 0.3, 0.2, 0.2], size=60)
    pairs = of_differences(values, tally)
    for row, p, stderr in zip(tally, floored_p(pairs), np.sqrt(pairs.variance + (pairs.biggest / 2) ** 2)):
        found = paired(np.repeat(values, row), limits=UNIT)
        assert (found.p, found.stderr) == pytest.approx((float(p), float(stderr)), **SAME)


def test_the_twin_equals_the_product_on_pooled_rates():
    random = rng()
    outcomes = np.array(
        [(c, n, d, m) for n in (1, 3) for m in (2, 4) for c in range(n + 1) for d in range(m + 1)], float
    )
    tally = random.multinomial(20, np.full(len(outcomes), 1 / len(outcomes)), size=60)
    pairs = of_rates(outcomes[:, :2], outcomes[:, 2:], tally)
    for row, p, units in zip(tally, floored_p(pairs), pairs.effective_units):
        whole = np.repeat(outcomes, row, axis=0)
        found = judged(rate_units(whole[:, :2], whole[:, 2:]), UNIT, 0.95)
        assert (found.p, found.effective_units) == pytest.approx((float(p), float(units)), rel=1e-7, abs=1e-9)


def test_the_twin_of_mcnemar():
    counts = np.array([[10, 2], [3, 3], [0, 0], [1, 7]])
    exact, mid = mid_p(counts[:, 0], counts[:, 1])
    for (b, c), p, q in zip(counts.tolist(), exact, mid):
        assert (mcnemar(b, c).exact, mcnemar(b, c).mid_p) == pytest.approx((p, q), **SAME)


def compared():
    worlds = [("fair", tasks) for tasks in (10, 30, 100, 1000)] + [("skewed", 30), ("split", 30)]
    tests = [binary_test(tasks, 0.5, 1, joint(1, 0.5, None), 200, rng(), world) for world, tasks in worlds]
    tests += [cluster_test(cluster_sizes(50, kind), 0.5, 1, None, 20, rng()) for kind in ("even clusters", "uneven")]
    return Compared(tests, [Promise(100, 4, 0.1, 0.8, 0.77)], 200, 0)


def test_the_page_says_what_was_found_and_what_was_not_kept():
    found = compared()
    page = comparison_text(found)
    assert "| 100 | 4 | 0.1 | 80.0 | 77.0 |" in page
    assert all(len(line) <= 120 or line.startswith("|") for line in page.splitlines())
    assert "100 tasks: 77.0 % in place of 80.0 %" in broken(found)
