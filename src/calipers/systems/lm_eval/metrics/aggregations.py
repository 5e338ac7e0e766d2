"""lm-evaluation-harness' aggregations: from the values of all documents to one number.

Each is a pair of functions: ``prepare`` turns the documents' values into an array whose last axes are
documents (and parts), once; ``reduce`` takes that, or any selection of it, to a number. One call serves
the value and all draws of a bootstrap. BLEU, chrF and TER are sacrebleu's: counts for each segment are
extracted once; the value and every draw are sums of them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calipers.errors import CalipersError, InputError, PluginError, UnknownName
from calipers.rollouts.column import Floats, Ints
from calipers.rollouts.groups import total
from calipers.systems.lm_eval.scores.choice import squared_distance

OVERLAP: Final = ("bleu", "chrf", "chrf++", "ter")

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


Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How documents' values become a number, for N documents and B draws."""

    prepare: Callable[[Sequence[Any]], Array]  # -> [N] or [N, parts]
    reduce: Callable[..., Floats]  # [B, N] or [B, N, parts] -> [B]
    resampled: bool = True  # whether lm-eval bootstraps its standard error
    counted: bool = False  # documents alike may be counted: reduce(kinds [K, parts], how often each [B, K]) -> [B]


def mean(values: Array) -> Floats:
    """The mean, of the true sum."""
    return np.asarray(total(values) / values.shape[-1])


def nanmean(values: Array) -> Floats:
    """The mean of what is a number; NaN when nothing is."""
    there = ~np.isnan(values)
    count = there.sum(axis=-1)
    return np.asarray(np.where(count > 0, total(np.where(there, values, 0.0)) / np.maximum(count, 1), np.nan))


def upper_median(values: Array) -> Floats:
    """The middle value, of two the larger.

    >>> float(upper_median(np.array([4.0, 1.0, 3.0, 2.0])))
    3.0
    """
    return np.asarray(np.partition(values, values.shape[-1] // 2, axis=-1)[..., values.shape[-1] // 2])


def perplexity(values: Array) -> Floats:
    """``exp(-mean)`` of log-likelihoods."""
    return np.asarray(np.exp(-mean(values)))


def weighted_perplexity(values: Array) -> Floats:
    """``exp(-sum of log-likelihoods / sum of weights)``."""
    return _perplexity(_totals(values))


def bits_per_byte(values: Array) -> Floats:
    """``-sum of log-likelihoods / sum of bytes / ln 2``."""
    return _bits(_totals(values))


def _totals(values: Array) -> Floats:
    return np.stack([total(values[..., 0]), total(values[..., 1])], axis=-1)


def f1(values: Array, counts: Array | int = 1) -> Floats:
    """``2 TP / (2 TP + FP + FN)`` with class 1 as the positive; 0 when there is none of it."""
    gold, predicted = values[..., 0] == 1, values[..., 1] == 1
    hits = (counts * (gold & predicted)).sum(axis=-1)
    either = (counts * gold).sum(axis=-1) + (counts * predicted).sum(axis=-1)
    return _f1(hits, either)


def matthews_corrcoef(values: Array, counts: Array | int = 1) -> Floats:
    """Matthews' correlation of classes, however many (Gorodkin 2004); 0 where it is undefined."""
    gold, predicted = values[..., 0], values[..., 1]
    right = (counts * (gold == predicted)).sum(axis=-1).astype(np.float64)
    labels = np.unique(values)
    sums_by_class = (
        np.stack([(counts * (side == label)).sum(axis=-1) for label in labels], axis=-1).astype(np.float64)
        for side in (gold, predicted)
    )
    return _correlation(right, *sums_by_class)


def numbers(items: Sequence[Any]) -> Array:
    """Values as numbers, [N]."""
    odd = [item for item in items if not isinstance(item, (int, float, np.number, np.bool_))]
    if odd:
        raise InputError(f"a document's value is {odd[0]!r}; expected a number")
    return np.array(items, dtype=np.float64)


def pairs(items: Sequence[Any]) -> Array:
    """(log-likelihood, weight) as numbers, [N, 2]."""
    return np.array([_two(item) for item in items], dtype=np.float64).reshape(-1, 2)


def classes(items: Sequence[Any]) -> Array:
    """(gold, found) as numbers of classes, [N, 2]."""
    code: dict[Any, int] = {}
    for gold, predicted in map(_two, items):
        for label in (gold, predicted):
            if isinstance(label, (list, tuple)):
                raise InputError(f"a class is {label!r}; expected one class per document")
            code.setdefault(label, len(code))
    return np.array([[code[label] for label in _two(item)] for item in items], dtype=np.int64).reshape(-1, 2)


def binary(items: Sequence[Any]) -> Array:
    """(gold, found) of two classes, one of them 1, [N, 2]."""
    met = {label for item in items for label in _two(item) if not isinstance(label, (list, tuple))}
    if len(met) > 2 or (len(met) == 2 and 1 not in met) or classes(items).size == 0:
        shown = ", ".join(sorted(map(repr, met)))
        raise InputError(
            f"f1 over the classes {shown}; expected two, with 1 as the positive class, or use another aggregation"
        )
    return np.array([[label == 1 for label in _two(item)] for item in items], dtype=np.int64)


def distances(items: Sequence[Any]) -> Array:
    """The squared distance of each document's chances from the truth, [N]."""
    squared = []
    for _, chances in map(_two, items):
        if not isinstance(chances, (list, tuple)) or not all(isinstance(chance, (int, float)) for chance in chances):
            raise InputError(f"brier_score: the probabilities are {chances!r}; expected a list of numbers")
    sizes = {len(_two(item)[1]) for item in items}
    if len(sizes) > 1:
        raise InputError(
            f"brier_score over documents of {sorted(sizes)} choices; expected the same number for each document"
        )
    for gold, chances in map(_two, items):
        if not isinstance(gold, int) or not 0 <= gold < len(chances):
            raise InputError(f"brier_score: the target is {gold!r}; expected the index of one choice")
        squared.append(squared_distance(chances, gold))
    return np.array(squared, dtype=np.float64)


AGGREGATIONS: Final[Mapping[str, Aggregation]] = {
    "mean": Aggregation(numbers, mean, resampled=False),  # its standard error has a closed form
    "nanmean": Aggregation(numbers, nanmean),
    "median": Aggregation(numbers, upper_median),
    "perplexity": Aggregation(numbers, perplexity),
    "weighted_perplexity": Aggregation(pairs, weighted_perplexity, resampled=False),
    "bits_per_byte": Aggregation(pairs, bits_per_byte, resampled=False),
    "f1": Aggregation(binary, f1, counted=True),
    "matthews_corrcoef": Aggregation(classes, matthews_corrcoef, counted=True),
    "brier_score": Aggregation(distances, mean, resampled=False),
}
NAMES: Final = (*AGGREGATIONS, *OVERLAP, "bypass")

How = str | Callable[[list[Any]], Any]
"""An aggregation by name, or somebody's own function of the list of values."""


def aggregate(how: How, items: Sequence[Any]) -> Any:
    """The aggregated value of the documents' values; InputError if there is none.

    >>> aggregate("mean", [1, 0, 1, 1]), aggregate("median", [1, 2, 3, 4])
    (0.75, 3.0)
    """
    if not isinstance(how, str):
        try:
            return how(list(items))
        except Exception as error:
            name = getattr(how, "__name__", repr(how))
            raise PluginError(f"aggregation {name!r} failed: {type(error).__name__}: {error}") from error
    if how == "bypass":
        return 999
    if how in OVERLAP:
        if not items:
            raise InputError.at(how, "no documents", "expected at least one")
        return Overlap(how, items).score(range(len(items)))
    aggregation = known(how)
    if not items:
        if how == "nanmean":
            return math.nan
        raise InputError.at(how, "no documents", "expected at least one")
    values = aggregation.prepare(items)
    if aggregation.prepare is pairs and not values[:, 1].any():
        raise InputError.at(how, "all weights are 0", "expected documents with words or bytes in them")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return float(aggregation.reduce(values))


def known(how: str) -> Aggregation:
    """An aggregation by its name; UnknownName says the nearest."""
    if how not in AGGREGATIONS:
        raise UnknownName.of("lm_eval aggregation", how, NAMES)
    return AGGREGATIONS[how]


def _two(item: Any) -> Sequence[Any]:
    if isinstance(item, (list, tuple)) and len(item) == 2:
        return item
    raise InputError(f"a document's value is {item!r}; expected a pair")


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
    overlap = Overlap(how, items)
    fewest = min(overlap.most, default=0)  # references of the document that has fewest: no other counts more
    counts = [overlap.counts(document, fewest) for document in range(len(items))]
    compute = overlap.metric._compute_score_from_stats

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
    gold, predicted = values[:, 0] == 1, values[:, 1] == 1
    return np.stack([gold & predicted, gold.astype(float) + predicted], axis=1).astype(np.float64)


def _by_class(values: Array) -> Floats:
    """(right, one for its gold class, one for the class found), [N, 1 + 2K]."""
    classes = np.unique(values)
    gold, predicted = (values[:, side, None] == classes for side in (0, 1))
    return np.concatenate([(gold & predicted).any(axis=1)[:, None], gold, predicted], axis=1).astype(np.float64)


def _ratio(summed: Floats) -> Floats:
    return np.asarray(summed[..., 0] / summed[..., 1])


def _perplexity(summed: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-_ratio(summed)))


def _bits(summed: Floats) -> Floats:
    return np.asarray(-_ratio(summed) / math.log(2))


def _f1(hits: Array, either: Array) -> Floats:
    return np.asarray(np.where(either > 0, 2 * hits / np.maximum(either, 1), 0.0))


def _correlation(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Matthews' correlation from the documents that are right, [...], and those of each class, [..., K]."""
    n = gold.sum(axis=-1)
    above = right * n - (gold * predicted).sum(axis=-1)
    below = (n**2 - (gold**2).sum(axis=-1)) * (n**2 - (predicted**2).sum(axis=-1))
    return np.asarray(np.where(below > 0, above / np.sqrt(np.maximum(below, 1.0)), 0.0))


_OF_SUMS: Final[Mapping[str, tuple[Callable[[Array], Floats], Callable[[Floats], Floats]]]] = {
    "nanmean": (_numbers_alone, _ratio),
    "perplexity": (_with_ones, _perplexity),
    "weighted_perplexity": (np.asarray, _perplexity),
    "bits_per_byte": (np.asarray, _bits),
    "f1": (_hits, lambda summed: _f1(summed[..., 0], summed[..., 1])),
    "matthews_corrcoef": (
        _by_class,
        lambda summed: _correlation(summed[..., 0], *np.split(summed[..., 1:], 2, axis=-1)),
    ),
}
