"""The bench's boards with missing rollouts and with steady runs."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.ranks_verdicts import (
    EQUAL_3,
    MISSING_CELLS,
    STEADY_WORLDS,
    missing,
    missing_boards,
    scores_of,
    steady,
    steady_boards,
)


def test_a_run_that_loses_its_failures_is_first_before_and_not_now():
    found = missing_boards(EQUAL_3, 500, np.random.default_rng(1), 20)
    assert found["before alone"] > 10
    assert found["now alone"] == 0
    assert found["now joint"] >= 18


def test_a_steady_run_is_ordered_before_and_not_now():
    found = steady_boards(STEADY_WORLDS[0], 30, np.random.default_rng(2), 30)
    assert found["before joint"] < 20
    assert found["now joint"] >= 27


@pytest.mark.parametrize("world", STEADY_WORLDS, ids=lambda world: world.title)
def test_the_worlds_have_the_true_values_that_they_name(world):
    values = world.drawn(200_000, np.random.default_rng(3))
    assert values.mean(axis=1) == pytest.approx(world.truth, abs=0.005 if world.limits else 0.1)


def test_only_pairs_of_a_steady_run_have_a_score():
    values = STEADY_WORLDS[0].drawn(60, np.random.default_rng(4))
    scores = scores_of(values, (0.0, 1.0))
    assert np.isnan(scores[1:, 1:]).all()
    assert np.isfinite(scores[0, 1:]).any()


@pytest.mark.parametrize(
    ("part", "rows"), [(missing, len(MISSING_CELLS)), (steady, sum(len(world.tasks) for world in STEADY_WORLDS))]
)
def test_the_parts_have_a_row_for_each_world(part, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.simulations.cells.KEPT", tmp_path)
    text, _ = part(500, 20)
    assert text.count("\n| ") == rows + 1
