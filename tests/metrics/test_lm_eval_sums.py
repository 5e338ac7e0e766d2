"""Sums of what documents contribute give what the aggregation gives, over all documents and over any draw of them."""

import numpy as np
import pytest

from calipers.systems.lm_eval.metrics.aggregations import OVERLAP, aggregate, sums

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
    """Else a draw without the document that has fewest would be another metric."""
    pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")
    items = [(["a b c d", "something else stands here"], "something else stands here"), (["a b c d"], "a b c d")]
    found = sums("bleu", items)
    assert float(found.combine(found.statistics[0])) == aggregate("bleu", [("a b c d", "something else stands here")])
    assert aggregate("bleu", items[:1]) == pytest.approx(100)  # lm-eval's number of that document alone


def test_no_sums_give_a_median():
    assert sums("median", [1.0, 2.0]) is None
