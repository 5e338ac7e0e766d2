"""Pairs that differ, each counted by the size of its difference: ``(sum |d|)^2 / sum d^2``."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.grid import real_population
from bench.simulations.paired import Compared, binary_test, drawn_test
from bench.simulations.paired_report import _timid, broken
from bench.simulations.paired_rule import of_cluster_sums, of_differences, of_rates
from bench.simulations.paired_worlds import joint


def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("differences", "plain", "weighed"),
    [
        ([1, -1, 0, 1], 3, 3),  # of one size: the plain count
        ([0.25, -0.25, 0.25, 0.25], 4, 4),
        ([1, 0.001, 0.001, 0.001], 4, 1.006),  # one carries all
        ([1, 0.5, 0, 0], 2, 1.8),
        ([0, 0, 0, 0], 0, 0),
    ],
)
def test_of_differences(differences, plain, weighed):
    values = np.array([differences], dtype=float)
    found = of_differences(values)
    assert (found.differing[0], found.weighed[0]) == (plain, pytest.approx(weighed, rel=1e-4))
    sizes, tally = np.unique(values, return_counts=True)
    assert of_differences(sizes, tally[None]).weighed[0] == pytest.approx(found.weighed[0])
    assert of_cluster_sums(values * 3, np.full(4, 3)).weighed[0] == pytest.approx(found.weighed[0])


def test_of_rates():
    """One sample each: the differences of 0 and 1. More samples of the same do not differ; more of another do more."""
    outcomes = np.array([(1, 1, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1), (8, 8, 1, 1), (8, 8, 0, 8)], dtype=float)
    tally = np.array([[3, 2, 20, 0, 0], [3, 2, 20, 9, 0], [3, 2, 20, 0, 1]])
    found = of_rates(outcomes[:, :2], outcomes[:, 2:], tally)
    assert found.differing.tolist() == [5, 5, 6]
    assert found.weighed[:2] == pytest.approx([5, 5], rel=0.3)
    assert found.weighed[0] == pytest.approx(5)
    assert found.weighed[2] < 4
    assert (found.weighed <= found.differing + 1e-9).all()


def test_a_cell_that_only_looks_as_if_many_pairs_differed():
    """Real rewards of mean 0.98: 30 of 30 pairs differ, as much as 6 would, and 1.8 % is no promise broken."""
    rewards = real_population(0.98, None, 4.0, rng())
    differences = rewards[:, 0] - rewards[:, 1]
    found = drawn_test("fair", np.concatenate([differences, -differences]), 30, 0.98, 1, 2_500, rng())
    assert found.differing > 29
    assert found.weighed == pytest.approx(6, abs=1)
    assert found.floored < 0.03
    coin = binary_test(100, 0.5, 1, joint(1, 0.5, None), 1_000, rng())
    assert coin.weighed == coin.differing
    both = Compared([found, coin], [], 2_500, 0)
    said = " ".join(_timid(both).split())
    assert "In 2 fair cells, 20 pairs or more differ on average" in said
    assert "rejects less than 3.0 % in 1 of them: " in said
    assert "(30 pairs, weighted 6)" in said
    assert "In 1 cells the weighted number is 20 or more; the test rejects less than 3.0 % in none of them." in said
    assert broken(both) == []
    timid = replace(coin, floored=0.02)
    assert broken(Compared([timid], [], 2_500, 0)) == [
        "fair, binary, T = 100, mean 0.5, n = 1: the default test rejects 2.0 %, which is timid"
    ]
