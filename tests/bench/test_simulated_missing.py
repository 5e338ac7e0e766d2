"""The bench's worlds of missing rollouts, and its exact power, against the product's test."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.missing import NOTHING, Loss, better, gain_for, level, lost, power, verdict, verdicts
from calipers.stats.paired import paired


def test_the_rule_of_many_tables_is_that_of_one():
    rng = np.random.default_rng(1)
    for tasks in (12, 40):
        wins = rng.binomial(tasks, 0.3, 200)
        losses = rng.binomial(tasks - wins, 0.1)
        found = better(wins, losses, tasks)
        for at in range(200):
            differences = np.zeros(tasks)
            differences[: wins[at]] = 1
            differences[wins[at] : wins[at] + losses[at]] = -1
            one = paired(differences)
            assert found[at] == (one.value > 0 and one.p <= 0.05)
        assert 0.1 < found.mean() < 0.95


def test_lost_failures_make_a_run_better_and_the_worst_filling_takes_that_back():
    loss = Loss("B's failures", of_b=0.25, by_outcome=True)
    found = verdicts(loss, 200, 0.0, np.random.default_rng(2), 300)
    assert found["seen"] > 0.5 * 300
    assert found["kept"] < 0.07 * 300


def test_the_share_that_is_lost_is_of_all_rollouts():
    outcomes = np.arange(100_000) % 4 == 0
    gaps = lost(outcomes, 0.1, np.random.default_rng(3))
    assert not (gaps & ~outcomes).any()
    assert gaps.mean() == pytest.approx(0.1, abs=0.005)


def test_every_missing_rollout_is_filled_against_the_claim():
    a, b, gaps = np.zeros(12), np.ones(12), np.arange(12) >= 8
    assert verdict(a, b, gaps & False, gaps).word == "better"
    found = verdict(a, b, np.arange(12) < 6, np.arange(12) >= 9)
    assert (found.word, found.undecided_by, found.as_observed) == ("undecided", "missing", "better")


def test_the_gain_gives_complete_runs_the_wanted_power():
    gain = gain_for(100, 0.8)
    found = verdicts(NOTHING, 100, gain, np.random.default_rng(4), 600)
    assert found["kept"] == pytest.approx(0.8 * 600, abs=40)
    assert found["kept"] == found["seen"]


@pytest.mark.parametrize(("part", "rows"), [(level, 5), (power, 8)])
def test_the_parts_tell_each_loss(part, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.simulations.cells.KEPT", tmp_path)
    text, _ = part(2_000, 20)
    assert text.count("\n| ") == rows + 1
    assert "2 pairs of runs per cell" in text
