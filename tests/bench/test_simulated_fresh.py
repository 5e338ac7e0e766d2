"""The fresh grid: its worlds have the means they say, and its page reads the first grid's figures."""

import numpy as np
import pytest

from bench.simulations.fresh import (
    CHANCES,
    MEANS,
    SAMPLES,
    TASKS,
    Fresh,
    kinds,
    mixed_joint,
    mixed_outcomes,
    part,
    shapes,
    task_chances,
)
from bench.simulations.fresh_report import _joined, _row, unkept
from bench.simulations.grid import MEANS as FIRST_MEANS
from bench.simulations.grid import SAMPLES as FIRST_SAMPLES
from bench.simulations.grid import TASKS as FIRST_TASKS
from bench.simulations.paired import MEANS as PAIRED_MEANS
from bench.simulations.paired import TASKS as PAIRED_TASKS
from bench.simulations.paired import Test as Level


def test_nothing_of_it_was_in_the_first_grid():
    assert not set(TASKS) & {*FIRST_TASKS, *PAIRED_TASKS}
    assert not set(MEANS) & {*FIRST_MEANS, *PAIRED_MEANS}
    assert set(SAMPLES) & set(FIRST_SAMPLES) == {"1"}  # one sample is one sample
    assert CHANCES[1:] == (10.0, 1.5)


@pytest.mark.parametrize("mean", MEANS)
def test_two_kinds_of_tasks_have_the_mean(mean):
    assert sum(share * chance for share, chance in kinds(mean)) == pytest.approx(mean)
    assert all(0 < chance < 1 for _, chance in kinds(mean))
    n, c, law = mixed_outcomes((8,), mean)
    assert law @ (c / n) == pytest.approx(mean)
    both = mixed_joint(8, mean)
    assert both.sum() == pytest.approx(1)
    assert both.sum(axis=1) == pytest.approx(law)  # one run of a pair is one run
    assert both == pytest.approx(both.T)


@pytest.mark.parametrize("mean", MEANS)
def test_real_rewards_have_the_mean_and_the_range(mean):
    rng = np.random.default_rng(3)
    for chances in task_chances(mean, rng).values():
        for rewards in shapes(chances, rng).values():
            assert rewards.min() >= 0
            assert rewards.max() <= 1
            assert rewards.mean() == pytest.approx(mean, abs=0.006)


def test_the_first_grid_is_read_from_the_page():
    page = "| fair: strict | 0.1 / 2.7 | 0.5 / 4.8 |\n| other | 1 |\n"
    assert _joined(_row(page, "fair: strict")) == "0.3 / 4.8"
    with pytest.raises(SystemExit, match="no row 'fair: t'"):
        _row(page, "fair: t")


def test_a_level_above_what_is_promised_is_told():
    def level(world, floored, strict):
        return Level(world, "binary", 7, 0.3, "1", 5.0, 0.05, floored, strict)

    tests = [level("fair", 0.07, 0.05), level("skewed", 0.5, 0.05), level("fair", 0.061, 0.05)]
    found = unkept(Fresh([], tests, {"levels": 10_000}, 1))
    assert found == ["fresh fair, binary, T = 7, mean 0.3, n = 1: floored rejects 7.0 %"]  # 6.1 is within one error
    assert len(unkept(Fresh([], [level("skewed", 0.5, 0.08)], {"levels": 10_000}, 1))) == 1


def test_the_page_says_what_was_found(monkeypatch):
    """The words of the page, not its figures: a small population will do."""
    monkeypatch.setattr("bench.simulations.fresh.POPULATION", 1 << 10)
    text, _ = part(400, 5)
    assert "| rewards of 0 and 1, T >= 30 | 1,020 |" in text
    assert "| skewed: strict |" in text
    assert "25 replicates per cell" in " ".join(text.split())
