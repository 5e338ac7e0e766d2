"""pass@k beyond the samples: what is given, what is refused, and the bench's rule against this one."""

import numpy as np
import pytest
from scipy.stats import chi2

from bench.simulations.extrapolation import BETA, TWO_KINDS, banded, first_grid, tables_of, true_values
from calipers.stats.extrapolation import (
    DRAWS,
    design_effect,
    draw_tables,
    extrapolate,
    farthest,
    pass_at,
    pearson,
    refused,
)

SEEN = [40, 12, 10, 13, 25]  # tasks with 0 to 4 passes


def counted(seen):
    return np.full(sum(seen), len(seen) - 1), np.repeat(np.arange(len(seen)), seen)


def test_the_point_lies_in_its_band_and_bands_grow_with_k():
    found = extrapolate(*counted(SEEN), [8, 16, 64])
    ends = [found.points["pass@k", k].ends for k in (8, 16, 64)]
    assert found.points["pass@k", 16].value == pytest.approx(0.700337, abs=1e-6)
    assert all(low < found.points["pass@k", k].value < high for k, (low, high) in zip((8, 16, 64), ends, strict=True))
    assert np.diff([high - low for low, high in ends]).min() > 0
    sure = extrapolate(*counted(SEEN), [16], confidence=0.99).points["pass@k", 16].ends
    assert sure[0] < ends[1][0]
    assert sure[1] > ends[1][1]


def test_what_laws_say_of_k():
    """Beta(1, 1): the chance of a pass in k is k/(k+1), of k passes 1/(k+1)."""
    (found,) = pass_at([1, 4, 99], np.array([1.0]), np.array([1.0]))
    assert found == pytest.approx([1 / 2, 4 / 5, 0.99, 1 / 2, 1 / 5, 0.01])


def test_the_order_of_tasks_and_of_clusters_does_not_matter():
    rng = np.random.default_rng(2)
    n, c = counted(SEEN)
    clusters, order = rng.integers(0, 40, len(n)), rng.permutation(len(n))
    assert extrapolate(n, c, [16]) == extrapolate(n[order], c[order], [16])
    again = extrapolate(n[order], c[order], [16], 40 - clusters[order])
    assert extrapolate(n, c, [16], clusters) == again


def test_a_task_without_samples_is_no_task():
    n, c = counted(SEEN)
    more = extrapolate(np.append(n, 0), np.append(c, 0), [16])
    assert more == extrapolate(n, c, [16])


def test_different_numbers_of_samples_add_up():
    """Half of the tasks with twice the samples: the truth, 0.845, is covered, and better than from four each."""
    rng = np.random.default_rng(4)
    chances = rng.beta(1.0, 1.0, 600) * (rng.random(600) < 0.9)
    n = np.where(np.arange(600) % 2, 4, 8)
    found = extrapolate(n, rng.binomial(n, chances), [16]).points["pass@k", 16]
    four = extrapolate(np.full(600, 4), rng.binomial(4, chances), [16]).points["pass@k", 16]
    assert found.ends[0] < 0.9 * 16 / 17 < found.ends[1]
    assert np.ptp(found.ends) < np.ptp(four.ends)


def test_clusters_widen_the_band():
    """Five tasks of one chance say little more than one."""
    rng = np.random.default_rng(6)
    n, c = np.full(300, 8), rng.binomial(8, np.repeat(rng.beta(0.3, 0.7, 60), 5))
    alone, together = (extrapolate(n, c, [64], of).points["pass@k", 64] for of in (None, np.arange(300) // 5))
    assert alone.value == together.value
    assert np.ptp(together.ends) > 1.4 * np.ptp(alone.ends)
    apart = extrapolate(n, c, [64], np.arange(300)).points["pass@k", 64]  # a cluster of one is a task
    assert apart.ends == pytest.approx(alone.ends, abs=0.01)


@pytest.mark.parametrize(
    ("n", "c", "why"),
    [
        ([4] * 40, [0] * 40, "no task has a pass: nothing says how rare passes are"),
        ([4] * 40, [4] * 40, "no task has a failure: nothing says how rare failures are"),
        ([4] * 29, [0, *[2] * 28], "29 tasks; at least 30 are needed to fit a law of chances"),
        ([8], [3], "1 task; at least 30 are needed to fit a law of chances"),
        ([3] * 40, [0, 3] * 20, "0 tasks have 4 samples or more; at least 30 are needed to fit a law of chances"),
        (
            [8] * 29 + [3] * 40,
            [1] * 69,
            "29 tasks have 4 samples or more; at least 30 are needed to fit a law of chances",
        ),
        ([4] * 30, [0, 4] * 15, None),
    ],
)
def test_what_is_refused(n, c, why):
    assert refused(np.array(n), np.array(c)) == why
    found = extrapolate(np.array(n), np.array(c), [64])
    assert found.why == why
    assert bool(found.points) == (why is None)


def test_few_clusters_are_refused():
    n, c = counted(SEEN)
    found = extrapolate(n, c, [16], np.arange(100) % 29)
    assert found.why == "29 clusters; at least 30 are needed to fit a law of chances"


def test_two_kinds_of_tasks_are_no_beta_law():
    """Half at .05, half at .9, with 8 samples: counts in the middle are missing, and that is seen."""
    rng = np.random.default_rng(8)
    c = rng.binomial(8, np.repeat([0.05, 0.9], 100))
    found = extrapolate(np.full(200, 8), c, [64])
    assert found.points == {}
    assert found.why.startswith("the counts of passes do not look like a beta law with a share never solved (Pearson")
    assert found.fit_p < 0.01


def test_how_far_it_goes():
    assert farthest(np.array([8] * 30 + [2] * 70 + [64])) == 128  # 30 tasks have 8 samples or more
    assert farthest(np.array([8] * 29)) == 0
    found = extrapolate(*counted(SEEN), [64, 65])
    assert {k for _, k in found.points} == {64}


def test_pearsons_test_by_hand():
    n, c = counted(SEEN)
    found = extrapolate(n, c, [16])
    a, b, never = found.law.a, found.law.b, found.law.never_solved
    from scipy.stats import betabinom

    expected = 100 * ((1 - never) * betabinom.pmf(np.arange(5), 4, a, b) + never * (np.arange(5) == 0))
    squares = ((np.array(SEEN) - expected) ** 2 / np.maximum(expected, 0.5)).sum()
    assert found.fit_p == pytest.approx(chi2.sf(squares, 1), abs=1e-9)
    counts, table = first_grid(4).counts, np.array(SEEN, dtype=float)
    assert pearson(found.law, counts, table, 2.0) == pytest.approx(chi2.sf(squares / 2, 1), abs=1e-9)


def test_design_effects():
    """Ten equal tasks to a cluster count ten times; tasks on their own once."""
    rng = np.random.default_rng(9)
    each = rng.integers(0, 5, 2000)
    assert design_effect(np.repeat(each, 10), np.arange(20_000) // 10) == pytest.approx(10, rel=0.05)
    assert design_effect(each, np.arange(2000)) == pytest.approx(1, abs=0.01)


def test_draws_are_of_whole_units():
    code = np.array([0, 1, 1, 2, 2, 2])
    tables = draw_tables(code, np.arange(6), 3, 0)
    assert tables.shape == (DRAWS, 3)
    assert (tables.sum(axis=1) == 6).all()
    assert tables.mean(axis=0) == pytest.approx([1, 2, 3], abs=0.3)
    whole = draw_tables(code, code, 3, 0)  # three units of one, two and three tasks
    assert (whole % (1, 2, 3) == 0).all()


@pytest.mark.parametrize("world", BETA)
def test_the_bench_uses_the_rule_that_is_printed(world):
    """Its law is the best of a grid and its draws are others: the ends differ by little."""
    rng = np.random.default_rng(10)
    for table in tables_of(world, 8, 200, 3, rng):
        seen = banded(table, 64, first_grid(8), rng)
        found = extrapolate(*counted(table.astype(int)), [64])
        assert (seen is None) == bool(found.why)
        if seen is not None:
            for place, metric in enumerate(("pass@k", "pass^k")):
                one = found.points[metric, 64]
                assert seen.values[place] == pytest.approx(one.value, abs=0.02)
                assert seen.ends[place] == pytest.approx(one.ends, abs=0.04)


def test_the_worlds_of_the_bench_have_the_values_they_are_said_to_have():
    rng = np.random.default_rng(11)
    for world in (*BETA, TWO_KINDS):
        tables = tables_of(world, 4, 1000, 100, rng)
        passed = 1 - tables[:, 0].mean() / 1000
        assert passed == pytest.approx(true_values(world, 4)["pass@k"], abs=0.006)
        assert tables[:, -1].mean() / 1000 == pytest.approx(true_values(world, 4)["pass^k"], abs=0.006)
