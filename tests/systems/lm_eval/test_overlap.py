from __future__ import annotations

import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.aggregations import OVERLAP, Overlap, aggregate

metrics = pytest.importorskip("sacrebleu.metrics", reason="sacrebleu comes with calipers[text]")

PAIRS = [
    ("the quick brown fox jumps over the lazy dog", "the quick brown fox jumped over the lazy dog"),
    (["hello world how are you", "hi all"], ["hello there how are you"]),
    ("nothing alike", ""),
]


@pytest.mark.parametrize("name", OVERLAP)
def test_added_up_counts_are_sacrebleus_corpus_score(name):
    theirs = {
        "bleu": metrics.BLEU(),
        "chrf": metrics.CHRF(),
        "chrf++": metrics.CHRF(word_order=2),
        "ter": metrics.TER(),
    }
    said = [PAIRS[0][1], PAIRS[1][1][0], PAIRS[2][1]]
    references = [[PAIRS[0][0], PAIRS[1][0][0], PAIRS[2][0]]]  # as many for each as the one with the fewest
    assert aggregate(name, PAIRS) == pytest.approx(theirs[name].corpus_score(said, references).score, rel=1e-12)


def test_a_draw_may_hold_a_document_twice():
    overlap = Overlap("bleu", PAIRS)
    assert overlap.score([0, 0, 0]) == pytest.approx(overlap.score([0]))
    assert overlap.score([0, 1]) != overlap.score([0, 2])


@pytest.mark.parametrize("pairs", [[], [("a", ["x", "y"])], [(5, "x")], [([], "x")], [0.5], [("a", "b", "c")]])
def test_what_is_no_pair_of_texts(pairs):
    with pytest.raises(InputError):
        aggregate("bleu", pairs)
