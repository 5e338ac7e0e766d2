"""Laws of the matrix: it concludes what a comparison of the same files concludes, or less."""

from __future__ import annotations

from itertools import combinations

import pytest
from analyses.matrix.worlds import KINDS, random_rows

import calipers

SEEDS = range(12 * len(KINDS))


def of(rows, *models):
    """The rows of each of these models."""
    return [[row for row in rows if row["model"] == model] for model in models]


def compared(rows, first, second, **settings):
    """The finding of a comparison of two models' rows."""
    return calipers.compare(*of(rows, first, second), metrics="mean_reward", **settings)["mean_reward"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_matrix_of_two_models_on_one_benchmark_says_what_compare_says(seed):
    settings = {"cluster": "group"} if KINDS[seed % len(KINDS)] == "clustered" else {}
    settings |= {"margin": 0.3} if seed % 3 == 0 else {}
    rows = random_rows(seed)
    (pair,) = calipers.matrix(rows, **settings)["x"].pairs
    finding = compared(rows, "a", "b", **settings)
    assert (pair.verdict, pair.undecided_by) == (finding.verdict, finding.undecided_by)
    assert (pair.as_observed, pair.compared_on) == (finding.as_observed, finding.compared_on)
    assert (pair.delta, pair.p) == (pytest.approx(finding.delta), pytest.approx(finding.p))
    assert pair.worst_interval == (finding.worst_interval and pytest.approx(finding.worst_interval))
    assert pair.interval == (finding.interval and pytest.approx(finding.interval))


def test_the_random_worlds_have_every_conclusion():
    """Otherwise the law above would say nothing about it."""
    pairs = [calipers.matrix(random_rows(seed))["x"].pairs[0] for seed in SEEDS]
    assert {pair.verdict for pair in pairs} == {"better", "worse", "undecided"}
    assert {pair.undecided_by for pair in pairs} >= {None, "data", "missing", "counts"}


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_a_matrix_never_orders_a_pair_that_compare_leaves_undecided(seed):
    rows = [*random_rows(seed, "abc", "x"), *random_rows(seed + 1, "abc", "y")]
    found = calipers.matrix(rows)
    for row in found.benchmarks:
        of_benchmark = [each for each in rows if each["dataset"] == row.benchmark]
        assert [(pair.first, pair.second) for pair in row.pairs] == [*combinations("abc", 2)]
        for pair in row.pairs:
            finding = compared(of_benchmark, pair.first, pair.second)
            if pair.verdict != "undecided":
                assert pair.verdict == finding.verdict
            elif finding.verdict == "undecided":
                assert pair.undecided_by == finding.undecided_by
            else:
                assert pair.undecided_by == "family"
