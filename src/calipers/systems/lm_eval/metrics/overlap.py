"""BLEU, chrF and TER over a corpus, by sacrebleu: counts for each segment, added up, and divided last.

The counts of a segment are extracted once; the value and every draw of a bootstrap are sums of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from calipers.errors import CalipersError, InputError
from calipers.rollouts.column import Floats, Ints

NAMES: Final = ("bleu", "chrf", "chrf++", "ter")

Pair = tuple[Any, Any]
"""(reference or references, prediction)."""


class Overlap:
    """A corpus of pairs, and its score over any selection of them, repeats included."""

    def __init__(self, name: str, pairs: Sequence[Pair]) -> None:
        self.metric = _metric(name)
        self._pairs = [(_references(reference), _prediction(name, prediction)) for reference, prediction in pairs]
        self.most = [len(references) for references, _ in self._pairs]  # references that each document has
        self._counts: dict[tuple[int, int], list[float]] = {}

    def score(self, places: Sequence[int]) -> float:
        """The score of the pairs at these places.

        As in lm-eval, every document has as many references as the one with the fewest: the rest are
        left out.
        """
        fewest = min(self.most[document] for document in places)
        counts = [self.counts(document, fewest) for document in places]
        return float(self.metric._aggregate_and_compute(counts).score)

    def scores(self, places: Ints) -> Floats:
        """The scores of many selections at once, [B, N] -> [B]: counts are added up by numpy where all have as many."""
        fewest = set(self.most)
        if len(fewest) > 1:  # which references count depends on the selection
            return np.array([self.score(row) for row in places.tolist()])
        counts = np.array([self.counts(document, max(fewest)) for document in range(len(self._pairs))])
        summed = [counts[row].sum(axis=0).tolist() for row in places]
        return np.array([self.metric._compute_score_from_stats(statistics).score for statistics in summed])

    def counts(self, document: int, fewest: int) -> list[float]:
        """What one pair adds to the sums the score is made of, by the first ``fewest`` of its references."""
        counts = self._counts.get((document, fewest))
        if counts is None:
            references, prediction = self._pairs[document]
            streams = [[reference] for reference in references[:fewest]]
            counts = self._counts[document, fewest] = self.metric._extract_corpus_statistics([prediction], streams)[0]
        return counts


def corpus(name: str, pairs: Sequence[Pair]) -> float:
    """The score of all pairs together: BLEU and chrF from 0 to 100, TER in percent, which may exceed 100."""
    if not pairs:
        raise InputError.at(name, "no documents", "expected at least one")
    return Overlap(name, pairs).score(range(len(pairs)))


@lru_cache(maxsize=8)
def _metric(name: str) -> Any:
    try:
        made = importlib.import_module("sacrebleu.metrics")
    except ImportError:
        raise CalipersError(f"{name} needs sacrebleu; install calipers[text]") from None
    makers: dict[str, Any] = {
        "bleu": made.BLEU,
        "chrf": made.CHRF,
        "chrf++": partial(made.CHRF, word_order=2),
        "ter": made.TER,
    }
    return makers[name]()


def _references(reference: Any) -> list[str]:
    texts = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    if texts and all(isinstance(text, str) for text in texts):
        return texts
    raise InputError(f"a reference is {reference!r}; expected text or a list of texts")


def _prediction(name: str, prediction: Any) -> str:
    text = prediction[0] if isinstance(prediction, (list, tuple)) and len(prediction) == 1 else prediction
    if isinstance(text, str):
        return text
    raise InputError.at(name, f"a prediction is {prediction!r}", "expected one text (end the pipeline with take_first)")
