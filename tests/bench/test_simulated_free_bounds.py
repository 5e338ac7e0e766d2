"""The worlds of the bounds without a law, and what the bench says of them."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.cells import Tally
from bench.simulations.free_bounds import PROMISED, WORLDS, World, _replicates, _text, _unkept, steady


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.key)
def test_the_truth_of_a_world_is_that_of_its_chances(world):
    chances = world.law(np.random.default_rng(3), 200_000)
    assert (1 - (1 - chances) ** world.k).mean() == pytest.approx(world.truth, abs=0.005)


def test_the_bounds_hold_where_the_beta_law_does_not():
    (world,) = (world for world in WORLDS if world.key == "half at 0.02, half at 0.6, T = 100, 4 to 32")
    sums = _replicates(world, np.random.default_rng(4), 12)
    assert sums["held"] == sums["given"] == 12
    assert sums["law held"] < 0.8 * sums["law given"]


def test_a_promise_that_is_not_kept_is_said():
    wrong = World("wrong", partial(steady, 0.3), 50, 4, 16, truth=0.2)
    sums = _replicates(wrong, np.random.default_rng(5), 3)
    assert _unkept({"wrong": Tally(3, sums)}) == ["wrong: the bounds cover 0.0 %"]
    assert _unkept({"none": Tally(3, {})}) == ["none: no bounds at all"]
    assert PROMISED == 0.95


def test_the_table_has_a_row_for_each_world():
    found = {world.key: Tally(2, {"given": 2.0, "held": 2.0, "width": 0.5}) for world in WORLDS}
    text = _text(found, 20)
    assert text.count("\n|") == len(WORLDS) + 2
    assert "| 100.0; 0.25; 0.0 | –; 100.0 |" in text
