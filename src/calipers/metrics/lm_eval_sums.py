"""Sufficient statistics of lm-evaluation-harness' metrics: numbers of each document whose sums give the metric.

BLEU keeps the n-grams that a document shares with its references, F1 its hits, a perplexity its log-likelihood
and its size. Sums of them over any documents, drawn once or several times, give the metric over those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.metrics.lm_eval import Array, known
from calipers.rollouts.column import Floats
from calipers.scores.overlap import NAMES as OVERLAP
from calipers.scores.overlap import Overlap


@dataclass(frozen=True, slots=True)
class Sums:
    """The statistics of N documents, and the metric of their sums."""

    statistics: Floats  # [N, S]
    combine: Callable[[Floats], Floats]  # [..., S] -> [...]


def sums(how: str, items: Sequence[Any]) -> Sums | None:
    """What the documents of one run, or of several that are to be compared, contribute to a metric.

    None where no sums give it, as of a median. Runs that are compared go in together, as their classes, and
    how many references count, must be the same.

    >>> found = sums("f1", [(1, 1), (0, 1), (1, 0)])
    >>> float(found.combine(found.statistics.sum(axis=0)))
    0.5
    """
    if how in OVERLAP:
        return _overlap(how, items)
    if how not in _OF_SUMS:
        return None
    statistics, combine = _OF_SUMS[how]
    return Sums(statistics(known(how).prepare(items)), combine)


def _overlap(how: str, items: Sequence[Any]) -> Sums:
    held = Overlap(how, items)
    fewest = min(held.most, default=0)  # references of the document that has fewest: no other counts more
    counts = [held.counts(place, fewest) for place in range(len(items))]
    compute = held.metric._compute_score_from_stats

    def combine(summed: Floats) -> Floats:
        rows = summed.reshape(-1, summed.shape[-1]).tolist()
        return np.array([compute(row).score for row in rows]).reshape(summed.shape[:-1])

    return Sums(np.array(counts, dtype=np.float64), combine)


def _with_ones(values: Array) -> Floats:
    return np.stack([values, np.ones(len(values))], axis=1)


def _numbers_alone(values: Array) -> Floats:
    there = ~np.isnan(values)
    return np.stack([np.where(there, values, 0.0), there], axis=1)


def _hits(values: Array) -> Floats:
    """(gold and found, gold plus found) of the positive class."""
    gold, found = values[:, 0] == 1, values[:, 1] == 1
    return np.stack([gold & found, gold.astype(float) + found], axis=1).astype(np.float64)


def _by_class(values: Array) -> Floats:
    """(right, one for its gold class, one for the class found), [N, 1 + 2K]."""
    classes = np.unique(values)
    gold, found = (values[:, side, None] == classes for side in (0, 1))
    return np.concatenate([(gold & found).any(axis=1)[:, None], gold, found], axis=1).astype(np.float64)


def _ratio(summed: Floats) -> Floats:
    return np.asarray(summed[..., 0] / summed[..., 1])


def _perplexity(summed: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-_ratio(summed)))


def _bits(summed: Floats) -> Floats:
    return np.asarray(-_ratio(summed) / math.log(2))


def _f1(summed: Floats) -> Floats:
    hits, either = summed[..., 0], summed[..., 1]
    return np.asarray(np.where(either > 0, 2 * hits / np.maximum(either, 1), 0.0))


def _correlation(summed: Floats) -> Floats:
    """Matthews' correlation, as `metrics.lm_eval.matthews_corrcoef` has it."""
    right, (gold, found) = summed[..., 0], np.split(summed[..., 1:], 2, axis=-1)
    n = gold.sum(axis=-1)
    above = right * n - (gold * found).sum(axis=-1)
    below = (n**2 - (gold**2).sum(axis=-1)) * (n**2 - (found**2).sum(axis=-1))
    return np.asarray(np.where(below > 0, above / np.sqrt(np.maximum(below, 1.0)), 0.0))


_OF_SUMS: Final[Mapping[str, tuple[Callable[[Array], Floats], Callable[[Floats], Floats]]]] = {
    "nanmean": (_numbers_alone, _ratio),
    "perplexity": (_with_ones, _perplexity),
    "weighted_perplexity": (np.asarray, _perplexity),
    "bits_per_byte": (np.asarray, _bits),
    "f1": (_hits, _f1),
    "matthews_corrcoef": (_by_class, _correlation),
}
