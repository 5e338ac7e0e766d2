from __future__ import annotations

import math
import random
import statistics

import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.metrics.aggregations import aggregate
from calipers.systems.lm_eval.metrics.bootstrap import bootstrap, drawn, stderr

ITEMS = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]


def slowly(how, items, iterations):
    """The bootstrap as lm-eval runs it, draw by draw in Python."""
    size = min(1000, iterations)
    values = []
    for seed in range(iterations // size):
        rng = random.Random(seed)
        values += [aggregate(how, rng.choices(items, k=len(items))) for _ in range(size)]
    return statistics.stdev(values)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 624, 1000])
@pytest.mark.parametrize("seed", [0, 1, 99])
def test_the_draws_are_pythons_own(count, seed):
    rng = random.Random(seed)
    assert drawn(seed, 3, count).tolist() == [rng.choices(range(count), k=count) for _ in range(3)]


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("median", ITEMS),
        ("perplexity", [-value for value in ITEMS]),
        ("nanmean", ITEMS),
        ("f1", [(1, 1), (0, 1), (1, 0), (1, 1), (0, 0), (1, 1)]),
        ("matthews_corrcoef", [(1, 1), (0, 1), (1, 0), (2, 1), (0, 0), (2, 2)]),
    ],
)
@pytest.mark.parametrize("iterations", [50, 2500])  # 2500: two chunks, the rest is dropped
def test_the_bootstrap_is_lm_evals_to_the_last_draw(how, items, iterations):
    assert bootstrap(how, items, iterations) == pytest.approx(slowly(how, items, iterations), rel=1e-9)


def test_many_documents_come_in_pieces_of_a_chunk(monkeypatch):
    monkeypatch.setattr("calipers.systems.lm_eval.metrics.bootstrap.AT_ONCE", 20)
    assert bootstrap("median", ITEMS, 50) == pytest.approx(slowly("median", ITEMS, 50))


def test_a_mean_has_a_closed_form():
    assert stderr("mean", ITEMS) == pytest.approx(statistics.stdev(ITEMS) / math.sqrt(len(ITEMS)))


@pytest.mark.parametrize(
    ("how", "items", "iterations"),
    [
        ("mean", [1.0], 1000),
        ("mean", ITEMS, 0),
        ("weighted_perplexity", [(-1.0, 2), (-2.0, 3)], 1000),
        ("bits_per_byte", [(-1.0, 2), (-2.0, 3)], 1000),
        ("brier_score", [(0, [0.5, 0.5])] * 2, 1000),
        ("bypass", [None, None], 1000),
        (sum, ITEMS, 1000),
    ],
)
def test_where_there_is_none(how, items, iterations):
    assert stderr(how, items, iterations) is None


def test_a_draw_of_nothing_but_nan_is_left_out():
    assert bootstrap("nanmean", [1.0, math.nan, 0.0, 0.5], 1000) > 0  # there: NaN


def test_one_draw_has_no_spread():
    with pytest.raises(InputError, match="at least 2"):
        stderr("median", ITEMS, 1)
