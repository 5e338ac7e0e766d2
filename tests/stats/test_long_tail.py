"""Intervals of values with a long tail and no range: a page says how often such intervals held the mean."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers.reports import terminal
from calipers.stats.estimate import COVERAGE_WITH_LONG_TAIL

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
LAWS = ("log-normal 1", "log-normal 1.5", "Pareto 3", "Pareto 1.5")


def score(values):
    return calipers.score([[float(value)] for value in values], "mean_reward")


def codes(result):
    return [remark.code for remark in result.groups[0].remarks]


def test_the_coverage_is_that_of_the_table():
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").partition("<!-- heavy_tails -->")[2].splitlines():
        law, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if law in LAWS and law not in rows:
            rows[law] = [float(re.match(r"[\d.]+", cell)[0]) / 100 for cell in cells]
    assert set(rows) == set(LAWS)
    for place, (low, high) in enumerate(COVERAGE_WITH_LONG_TAIL.values()):
        column = [rows[law][place] for law in LAWS]
        assert (low, high) == (round(min(column), 2), round(max(column), 2))


def test_a_long_tail_is_warned_of_on_the_page():
    result = score(np.random.default_rng(3).lognormal(0, 2, 100))
    assert "long_tail" in codes(result)
    page = " ".join(terminal.render(result.page()).replace("\xa0", " ").split())
    assert "95 % intervals held the mean in 70 % to 92 % of simulations" in page


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(1).normal(10, 3, 300),
        np.random.default_rng(2).exponential(5, 300),
        np.random.default_rng(4).random(300) ** 8,  # within 0 to 1, so the interval has a range
        np.full(30, 7.0),
        np.array([1e308, -1e308] * 20),
    ],
)
def test_ordinary_values_are_not_warned_of(values):
    assert "long_tail" not in codes(score(values))
