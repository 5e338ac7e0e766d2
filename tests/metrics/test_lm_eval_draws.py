import numpy as np
import pytest

from calipers.systems.lm_eval.metrics.aggregations import aggregate
from calipers.systems.lm_eval.metrics.bootstrap import count, resampled

PAIRS = [(-3.0 * n, n) for n in range(1, 30)] + [(-9.0, 2)]
CLASSES = [(n % 2, (n * 7 % 5) % 2) for n in range(40)]


def rng(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def one_by_one(how, items, seed=0):
    """The plainest way: each draw a list of documents, added up by itself."""
    raw = rng(seed).bit_generator.random_raw(count(how, len(items)) * len(items)) % np.uint64(len(items))
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
    assert len(found) == count(how, len(items))
    assert found[:50] == pytest.approx(one_by_one(how, items), rel=1e-12)


def test_a_seed_is_one_answer_and_another_seed_another():
    first, second, other = (resampled("bits_per_byte", PAIRS, rng(seed)).tolist() for seed in (1, 1, 2))
    assert first == second != other


def test_the_draws_spread_as_the_standard_error_says():
    values = [float(n % 7) for n in range(200)]
    draws = resampled("nanmean", values, rng())
    assert draws.std() == pytest.approx(np.std(values) / np.sqrt(200), rel=0.05)


def test_many_documents_have_fewer_draws():
    assert [count("perplexity", size) for size in (1, 1_000, 4_000, 1_000_000)] == [10_000, 10_000, 2_500, 1_000]
