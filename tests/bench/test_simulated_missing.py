"""The bench's test of one pass or fail a task is the product's."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.missing import World, better, part, simulated
from calipers.stats.paired import paired


def test_the_rule_of_many_replicates_is_that_of_one():
    rng = np.random.default_rng(1)
    tasks = rng.integers(2, 60, 400)
    wins = rng.binomial(tasks, 0.3)
    losses = rng.binomial(tasks - wins, 0.1)
    found = better(wins, losses, tasks)
    for at in range(400):
        differences = np.zeros(tasks[at])
        differences[: wins[at]] = 1
        differences[wins[at] : wins[at] + losses[at]] = -1
        one = paired(differences)
        assert found[at] == (one.value > 0 and one.p <= 0.05)
    assert 0.2 < found.mean() < 0.9


def test_lost_failures_make_a_run_better_and_the_worst_filling_takes_that_back():
    found = simulated(World("half of the failures", 100, failures_lost=0.5), 2_000, np.random.default_rng(2))
    assert found.seen > 0.3
    assert found.kept < 0.04
    assert found.warned == 1


def test_the_part_tells_each_world():
    text, _ = part(100, 20)
    assert text.count("\n|") == 13
    assert "100 pairs of runs each" in text
