"""lm-evaluation-harness' aggregations: from the values of all documents to one number, its standard error and interval.

Each is a pair of functions: ``prepare`` turns the documents' values into an array whose last axes are
documents (and parts), once; ``reduce`` takes that, or any selection of it, to a number. One call serves
the value and all draws of a bootstrap. BLEU, chrF and TER are sacrebleu's: counts for each segment are
extracted once; the value and every draw are sums of them. Standard errors are by its exact bootstrap; intervals over
documents are ours.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calipers.cards import DEFAULT
from calipers.errors import CalipersError, InputError, PluginError, UnknownName
from calipers.rollouts.column import Floats, Ints, total
from calipers.stats.intervals import Weighted, named_interval

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
            if isinstance(label, (list, tuple, dict)):
                raise InputError(f"a class is {label!r}; expected one class per document")
            code.setdefault(label, len(code))
    return np.array([[code[label] for label in _two(item)] for item in items], dtype=np.int64).reshape(-1, 2)


def binary(items: Sequence[Any]) -> Array:
    """(gold, found) of two classes, one of them 1, [N, 2]."""
    met = {label for item in items for label in _two(item) if not isinstance(label, (list, tuple, dict))}
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


def squared_distance(chances: Sequence[float], gold: int) -> float:
    """How far some choices' chances are from the truth, which gives one of them all: 0 to 2."""
    return math.fsum((chance - (choice == gold)) ** 2 for choice, chance in enumerate(chances))


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

    >>> import calipers
    >>> calipers.lm_eval_aggregate("mean", [1, 0, 1, 1]), calipers.lm_eval_aggregate("median", [1, 2, 3, 4])
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

AT_ONCE: Final = 1 << 14
"""Documents drawn at a time: so few that memory is used again, and need not be asked of the system for each."""


def resampler(how: str, items: Sequence[Any]) -> Callable[[Ints], Floats]:
    """From places of documents, [B, N], to the numbers of those resamples, [B].

    >>> resampler("f1", [(1, 1), (0, 1)])(np.array([[0, 0], [0, 1], [1, 1]])).round(3).tolist()
    [1.0, 0.667, 0.0]
    """
    if how in OVERLAP:
        return Overlap(how, items).scores
    aggregation = known(how)
    values = aggregation.prepare(items)
    if aggregation.counted:
        kinds, code = np.unique(values, axis=0, return_inverse=True)
        return lambda places: aggregation.reduce(kinds, _counts(code.reshape(-1), places, len(kinds)))

    def reduced(places: Ints) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return aggregation.reduce(values[places])

    return reduced


def _counts(code: Ints, places: Ints, kinds: int) -> Ints:
    """How many documents of each kind each row holds, [B, K]."""
    rows = len(places)
    cells = code.take(places)
    cells += np.arange(rows)[:, None] * kinds
    return np.bincount(cells.ravel(), minlength=rows * kinds).reshape(rows, kinds)


MOST, FEWEST = 10_000, 1_000
CALLS: Final = 200
"""Draws for somebody's own function, which is called once for each."""

_IN_ALL: Final = 10_000_000  # documents drawn, beyond which fewer draws are made


def count(how: How, documents: int) -> int:
    """How many draws a metric of so many documents gets.

    >>> count("perplexity", 100), count("perplexity", 5_000), count(len, 100)
    (10000, 2000, 200)
    """
    if not isinstance(how, str):
        return CALLS
    return FEWEST if how in OVERLAP else max(FEWEST, min(MOST, _IN_ALL // max(1, documents)))


def resampled(how: How, items: Sequence[Any], rng: np.random.Generator) -> Floats:
    """The metric on each of `count` draws of as many documents as there are, [B].

    ``items`` are the documents' values as `aggregate` takes them. InputError for a function that is not to be repeated.
    """
    if undrawn := getattr(how, "undrawn", ""):
        raise InputError(undrawn)
    every = _places(rng, count(how, len(items)), len(items))
    if not isinstance(how, str):
        return np.array(
            [aggregate(how, [items[document] for document in row]) for block in every for row in block.tolist()]
        )
    reduced = resampler(how, items)
    return np.concatenate([reduced(block) for block in every])


def _places(rng: np.random.Generator, draws: int, documents: int) -> Iterator[Ints]:
    """Rows of places, drawn with replacement, in blocks of [rows, documents].

    Of the generator only its raw output is used, which no version of numpy may change.
    """
    rows = max(1, AT_ONCE // documents)
    for start in range(0, draws, rows):
        here = min(rows, draws - start)
        raw = rng.bit_generator.random_raw(here * documents)
        yield (raw % np.uint64(documents)).astype(np.int64).reshape(here, documents)


ITERATIONS: Final = 100_000
CHUNK: Final = 1_000


def stderr(how: How, items: Sequence[Any], iterations: int = ITERATIONS) -> float | None:
    """The standard error of an aggregation; None where lm-eval has none.

    A mean has the closed form, the standard deviation with n - 1 over the square root of n; others are
    bootstrapped. None for a single document, without iterations, and for what lm-eval leaves out:
    weighted_perplexity, bits_per_byte, brier_score, bypass and functions of one's own.

    >>> import calipers
    >>> calipers.lm_eval_stderr("mean", [0, 1]), calipers.lm_eval_stderr("mean", [1])
    (0.5, None)
    """
    if iterations <= 0 or len(items) <= 1 or not isinstance(how, str) or how == "bypass":
        return None
    if how == "mean":
        return float(deviation(numbers(items)) / math.sqrt(len(items)))
    if how not in OVERLAP and not known(how).resampled:
        return None
    return bootstrap(how, items, iterations)


def bootstrap(how: str, items: Sequence[Any], iterations: int) -> float:
    """The standard deviation of an aggregation over resampled documents; draws that give no number are left out."""
    if iterations < 2:
        raise InputError.at("bootstrap_iters", f"is {iterations}", "expected 0 for none, or at least 2")
    replicates = np.concatenate(list(_replicates(how, items, iterations)))
    return float(deviation(replicates[~np.isnan(replicates)] if how == "nanmean" else replicates))


def deviation(values: Floats) -> Floats:
    """The standard deviation with n - 1; NaN for a single value."""
    if len(values) < 2:
        return np.asarray(np.nan)
    centred = values - values.mean()
    return np.asarray(np.sqrt((centred * centred).sum() / (len(values) - 1)))


def _replicates(how: str, items: Sequence[Any], iterations: int) -> Iterator[Floats]:
    reduced, size = resampler(how, items), min(CHUNK, iterations)
    for seed in range(iterations // size):
        generator = twister(seed)
        left = size
        while left:
            rows = min(left, max(1, AT_ONCE // len(items)))
            yield reduced(drawn(generator, rows, len(items)))
            left -= rows


def twister(seed: int) -> np.random.RandomState:
    """A twister in the very state of ``random.Random(seed)``: seeded with a list, numpy's is set up as Python's is."""
    return np.random.RandomState([seed])


def drawn(generator: np.random.RandomState, rows: int, count: int) -> Ints:
    """The documents that ``random.Random(seed).choices(range(count), k=count)`` gives, called ``rows`` times.

    >>> drawn(twister(0), 2, 4).tolist()  # random.Random(0).choices(range(4), k=4), twice
    [[3, 3, 1, 1], [2, 1, 3, 1]]
    """
    lots = generator.random_sample((rows, count))
    lots *= float(count)
    return lots.astype(np.int64)  # which is their floor, as none is below 0


BOOTSTRAP: Final = "bootstrap"  # the method of what is no mean


@dataclass(frozen=True, slots=True)
class DocumentSpread:
    """An interval, or why there is none."""

    ends: tuple[float, float] | None = None
    method: str | None = None
    draws: int = 0  # it is the middle of
    why: str | None = None


def spread(
    how: How, items: Sequence[Any], value: float, confidence: float, seed: Sequence[int], method: str = DEFAULT
) -> DocumentSpread:
    """How sure a number is that these documents' values come to; ``method`` is that of a mean."""
    if math.isnan(value):
        return DocumentSpread(why="some documents are NaN")
    interval_of_mean = _of_mean(items, confidence, method, seed[0]) if how == "mean" else None
    if interval_of_mean is not None:
        return interval_of_mean
    if len(items) < 2:
        return DocumentSpread(why="one document")
    try:
        return middle(resampled(how, items, np.random.Generator(np.random.PCG64(seed))), confidence)
    except CalipersError as error:  # of somebody's own function
        return DocumentSpread(why=str(error) if getattr(how, "undrawn", "") else f"a draw has no number: {error}")


def middle(replicates: Floats, confidence: float) -> DocumentSpread:
    """The interval that the middle of some draws is, [B]; why there is none, where they say nothing."""
    if not np.isfinite(replicates).all():
        return DocumentSpread(why="some draws give no finite number")
    if (replicates == replicates[0]).all():
        return DocumentSpread(why="every draw gives the same number")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(replicates, [tail, 100 - tail]).tolist()
    return DocumentSpread((low, high), BOOTSTRAP, len(replicates))


def _of_mean(items: Sequence[Any], confidence: float, method: str, seed: int) -> DocumentSpread | None:
    """The interval of a mean of numbers; None for what is none."""
    if not all(isinstance(value, (int, float)) for value in items):
        return None
    values = np.array(items, dtype=np.float64)
    limits = (0.0, 1.0) if bool(((values >= 0) & (values <= 1)).all()) else None
    estimate = named_interval(method, Weighted(values, np.ones(len(values)), limits, None, confidence, seed))
    return DocumentSpread(estimate.ends, estimate.method, why=estimate.why)
