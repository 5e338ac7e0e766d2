from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.aggregations import (
    AGGREGATIONS,
    aggregate,
    bootstrap,
    choices,
    draw_count,
    mersenne_twister,
    resampled,
    resampler,
    stderr,
)

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
    assert choices(mersenne_twister(seed), 3, count).tolist() == [rng.choices(range(count), k=count) for _ in range(3)]


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
    monkeypatch.setattr("calipers.systems.lm_eval.aggregations._BLOCK", 20)
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


PAIRS = [(-3.0 * n, n) for n in range(1, 30)] + [(-9.0, 2)]
CLASSES = [(n % 2, (n * 7 % 5) % 2) for n in range(40)]


def rng(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def one_by_one(how, items, seed=0):
    """The reference implementation: each draw is a list of documents, aggregated by itself."""
    raw = rng(seed).bit_generator.random_raw(draw_count(how, len(items)) * len(items)) % np.uint64(len(items))
    rows = raw.astype(int).reshape(-1, len(items))[:50]
    return [aggregate(how, [items[place] for place in row]) for row in rows.tolist()]


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("perplexity", [-0.5 * n for n in range(20)]),
        ("weighted_perplexity", PAIRS),
        ("bits_per_byte", PAIRS),
        ("f1", CLASSES),
        ("matthews_corrcoef", CLASSES),
        ("brier_score", [(n % 2, [0.25, 0.75]) for n in range(9)]),
        ("median", [float(n) for n in range(7)]),
        ("bleu", [("the cat sat on the mat", "the cat sat"), ("a b c d e", "a b c d e"), ("x y z", "x")]),
        ("ter", [(["the cat", "a cat"], "the cat"), ("a b c d e", "a b c d"), ("x y z", "x")]),  # not as many each
        (lambda values: max(values) - min(values), [1.0, 4.0, 2.0, 8.0]),
    ],
)
def test_all_draws_at_once_are_each_by_itself(how, items):
    found = resampled(how, items, rng())
    assert len(found) == draw_count(how, len(items))
    assert found[:50] == pytest.approx(one_by_one(how, items), rel=1e-12)


def test_a_seed_is_one_answer_and_another_seed_another():
    first, second, other = (resampled("bits_per_byte", PAIRS, rng(seed)).tolist() for seed in (1, 1, 2))
    assert first == second != other


def test_the_draws_spread_as_the_standard_error_says():
    values = [float(n % 7) for n in range(200)]
    draws = resampled("nanmean", values, rng())
    assert draws.std() == pytest.approx(np.std(values) / np.sqrt(200), rel=0.05)


def test_many_documents_have_fewer_draws():
    assert [draw_count("perplexity", size) for size in (1, 1_000, 4_000, 1_000_000)] == [10_000, 10_000, 2_500, 1_000]


ROWS = np.random.Generator(np.random.PCG64(3)).integers(0, 30, (40, 30))


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("f1", [(n % 2, n % 3 == 0) for n in range(30)]),
        ("f1", [(0, 0)] * 30),  # one kind, and no positive among it
        ("matthews_corrcoef", [(n % 2, n % 3 % 2) for n in range(30)]),
        ("matthews_corrcoef", [("abc"[n % 3], "cab"[n % 7 % 3]) for n in range(30)]),
        ("matthews_corrcoef", [(n, n) for n in range(30)]),  # as many kinds as documents
        ("perplexity", [-0.1 * n for n in range(30)]),
        ("nanmean", [float("nan") if n % 4 else n for n in range(30)]),
    ],
)
def test_counting_documents_alike_gives_the_very_numbers_of_the_rows_themselves(how, items):
    held = AGGREGATIONS[how]
    plainly = [held.reduce(held.prepare(items)[row]) for row in ROWS]
    assert resampler(how, items)(ROWS).tolist() == [float(number) for number in plainly]
