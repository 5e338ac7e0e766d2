"""Aggregations of all documents; sums of statistics give the same number, also for bootstrap draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.aggregations import OVERLAP, aggregate, f1, matthews_corrcoef, sums


@pytest.mark.parametrize(
    ("how", "items", "expected"),
    [
        ("median", [1, 2, 3, 4], 3),  # the upper of the middle two
        ("median", [10, 1, 20, 5, 15], 10),
        ("nanmean", [1.0, math.nan, 0.0], 0.5),
        ("perplexity", [-1.0, -3.0], math.exp(2)),
        ("weighted_perplexity", [(-10.0, 5), (-30.0, 12)], math.exp(40 / 17)),
        ("bits_per_byte", [(-10.0, 25), (-30.0, 60)], 40 / 85 / math.log(2)),
        ("f1", [(1, 1), (0, 1), (1, 0), (1, 1), (0, 0)], 2 / 3),
        ("f1", [(0, 0), (0, 0)], 0.0),  # nothing positive
        ("f1", [(-100, 1), (1, 1)], 2 / 3),  # a gold that is no choice is a class of its own
        ("matthews_corrcoef", [("a", "a"), ("b", "c"), ("c", "c"), ("b", "b"), ("a", "b")], 0.4375),
        ("matthews_corrcoef", [(1, 1), (0, 1)], 0.0),  # undefined
        ("brier_score", [(0, [0.7, 0.2, 0.1]), (2, [0.1, 0.3, 0.6])], 0.2),
        ("bypass", [None, None], 999),
        (lambda items: len(items), ["a", "b"], 2),
    ],
)
def test_aggregate(how, items, expected):
    assert aggregate(how, items) == pytest.approx(expected)


@pytest.mark.parametrize("items", [[], [math.nan]])
def test_no_numbers_have_no_nanmean(items):
    assert math.isnan(aggregate("nanmean", items))


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("mean", []),
        ("mean", [(0, 1)]),  # what likelihood keeps is no number, and its mean none
        ("mean", ["1"]),
        ("median", [10**400]),  # larger than any double
        ("f1", [(0, 1), (1, 2)]),
        ("f1", [(0, 2), (0, 0)]),  # which of them is positive?
        ("f1", [([0, 1], 1)]),
        ("brier_score", [(0, [0.7, 0.3]), (2, [0.1, 0.3, 0.6])]),
        ("brier_score", [(-1, [0.7, 0.3])]),
        ("brier_score", [(0, "[0.7 0.3]")]),  # as lm-eval's own file has it
        ("brier_score", [(0, [10**400, 0.3])]),
        ("brier_score", [(0, [1e200, 0.3])]),  # so is its square
        ("weighted_perplexity", [-10.0]),
        ("weighted_perplexity", [("x", 3)]),
        ("weighted_perplexity", [([-1.0, -2.0], 3)]),
        ("bits_per_byte", [(-(10**400), 3)]),
        ("bits_per_byte", [(None, 3)]),  # no log-likelihood is not NaN
        ("bits_per_byte", [(0.0, 0)]),  # an empty text has no bytes to divide by
        ("bleu", []),
    ],
)
def test_what_has_no_number_is_refused(how, items):
    with pytest.raises(InputError):
        aggregate(how, items)


def test_an_unknown_name_and_a_function_that_fails():
    with pytest.raises(UnknownName, match="median"):
        aggregate("medain", [1])
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        aggregate(lambda items: 1 / 0, [1])


@pytest.mark.parametrize(("ours", "name"), [(f1, "f1_score"), (matthews_corrcoef, "matthews_corrcoef")])
def test_counts_agree_with_scikit_learn(ours, name):
    theirs = getattr(pytest.importorskip("sklearn.metrics", reason="scikit-learn comes with calipers[text]"), name)
    rng = np.random.default_rng(1)
    draws = rng.integers(0, 2, size=(50, 12, 2))
    expected = [theirs(draw[:, 0], draw[:, 1]) for draw in draws]
    assert ours(draws) == pytest.approx(np.array(expected), abs=1e-12)


TEXTS = [
    ("the cat sat on the mat", "the cat sat on a mat"),
    ("a dog ran", "a dog ran home"),
    ("blue house, red tree", ""),  # nothing was said
    ("x y z", "x y z"),
]
KINDS = [("a", "a"), ("b", "a"), ("c", "c"), ("a", "b"), ("b", "b")]


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("nanmean", [1.0, float("nan"), 0.0, 0.5]),
        ("perplexity", [-1.0, -2.5, -0.25]),
        ("weighted_perplexity", [(-10.0, 4), (-3.0, 2), (-30.0, 9)]),
        ("bits_per_byte", [(-10.0, 40), (-3.0, 20), (-30.0, 90)]),
        ("f1", [(1, 1), (0, 1), (1, 0), (0, 0), (1, 1)]),
        ("f1", [(0, 0), (0, 0)]),  # none of the positive class: 0, not an error
        ("matthews_corrcoef", KINDS),
        ("matthews_corrcoef", [("a", "a"), ("a", "a")]),  # one class only: 0
        ("bleu", TEXTS),
        ("chrf", TEXTS),
        ("chrf++", TEXTS),
        ("ter", TEXTS),
        ("bleu", [(["a b c d e", "a b c d"], "a b c d e"), (["f g h i j k", "f g"], "f g h x")]),  # two references
    ],
)
def test_sums_give_the_metric(how, items):
    if how in OVERLAP:
        pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")
    found = sums(how, items)
    drawn = np.random.default_rng(1).integers(0, len(items), (20, len(items)))
    drawn = np.concatenate([np.arange(len(items))[None], drawn])
    with np.errstate(invalid="ignore"):
        values = found.combine(found.statistics[drawn].sum(axis=1))
    expected = [aggregate(how, [items[place] for place in row]) for row in drawn.tolist()]
    assert values == pytest.approx(expected, nan_ok=True)


def test_the_references_that_count_are_those_that_every_document_has():
    """Otherwise a draw without the document with the fewest references would compute another metric."""
    pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")
    items = [(["a b c d", "something else stands here"], "something else stands here"), (["a b c d"], "a b c d")]
    found = sums("bleu", items)
    assert float(found.combine(found.statistics[0])) == aggregate("bleu", [("a b c d", "something else stands here")])
    assert aggregate("bleu", items[:1]) == pytest.approx(100)  # lm-eval's number of that document alone


def test_no_sums_give_a_median():
    assert sums("median", [1.0, 2.0]) is None
