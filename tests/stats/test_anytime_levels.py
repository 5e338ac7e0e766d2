"""The anytime test keeps its level at every look: a small, seeded part of ``make bench-statistics``."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.anytime import Advice, Cost, Law, Level, _text, _unkept, first_claims, followed, looked_too_often
from bench.simulations.paired_rule import LEVEL
from calipers.stats.anytime import bets_of

SKEWED = Law("+0.01 or -0.49", np.array([0.01, -0.49]), np.array([0.98, 0.02]))
FAIR = Law("0 and 1", np.array([1.0, -1.0, 0.0]), np.array([0.1, 0.1, 0.8]))
BETTER = Law("better", np.array([1.0, -1.0, 0.0]), np.array([0.3, 0.1, 0.6]))


@pytest.mark.parametrize("law", [SKEWED, FAIR, BETTER])
@pytest.mark.parametrize("sizes", [None, [1, 4, 2, 7, 3] * 20])
def test_the_bench_and_the_test_agree(law, sizes):
    rng = np.random.default_rng(3)
    counts = np.ones(100, dtype=int) if sizes is None else np.array(sizes)
    drawn = law.drawn((40, int(counts.sum())), rng)
    clusters = np.repeat(np.arange(len(counts)), counts)
    sums = np.add.reduceat(drawn, np.cumsum(counts) - counts, axis=1).T
    found = first_claims(sums, None if sizes is None else counts.astype(float))
    for run, claimed in zip(drawn, found.tolist(), strict=True):
        enough = bets_of(run, None if sizes is None else clusters).against(0.0) >= -np.log(LEVEL)
        assert claimed == (int(np.argmax(enough)) + 1 if enough.any() else len(counts) + 1)


@pytest.mark.parametrize("law", [SKEWED, FAIR])
def test_false_claims_at_any_look(law):
    drawn = law.drawn((500, 2_000), np.random.default_rng(4))
    assert (first_claims(drawn) <= 500).mean() < LEVEL
    assert looked_too_often(drawn).mean() > 3 * LEVEL  # what the default test does when it is read 25 times


def test_following_the_old_advice_made_false_claims():
    found = list(followed(2_000, np.random.default_rng(5)))
    assert min(one.claimed[1] for one in found) > 1.5 * LEVEL
    assert min(one.claimed[-1] for one in found) > 2 * LEVEL


def test_broken_promises_are_said():
    levels = [
        Level("fair", "kept", 0.052, 0.3),
        Level("fair", "broken", 0.06, 0.3),
        Level("clusters", "few", 0.01, None),
    ]
    costs = [
        Cost("kept", 0.4, 100, 0.8, 0.4355, 1.86, False, 0.797),
        Cost("weak", 0.4, 100, 0.8, 0.42, 1.8, False, 0.82),
        Cost("slow", 0.4, 100, 0.8, 0.5, 1.9, False, 0.78),
        Cost("fine", 0.1, 100, 0.8, 0.2, 1.9, True, 0.82),  # less is promised where rewards are finely graded
        Cost("fine and slow", 0.1, 100, 0.8, 0.2, 2.1, True, 0.78),
    ]
    said = _unkept(levels, costs, 10_000)
    assert [line.partition(":")[0] for line in said] == ["fair, broken", "weak", "slow", "fine and slow"]
    page = _text(levels, costs, [Advice("a world", 100, [0.04, 0.11, 0.16])], 10_000, 20)
    assert "| fair | 2 | 5.6 / 6.0 | 30.0 / 30.0 |" in page
    assert "| a world | 100 | 4.0 | 11.0 | 16.0 |" in page
