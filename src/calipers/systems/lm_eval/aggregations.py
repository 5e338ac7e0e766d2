"""lm-evaluation-harness' aggregations: they reduce the values of all documents to one number.

Also the number's standard error and its interval. Each aggregation is a pair of functions: ``prepare`` turns the
documents' values into an array whose last axes are documents (and parts), once; ``reduce`` maps that array, or any
selection of its documents, to a number. One call computes the value and all draws of a bootstrap. BLEU, chrF and TER
are computed by sacrebleu: the counts of each segment are extracted once, and the value and every draw are computed
from sums of these counts. Standard errors reproduce lm-evaluation-harness' bootstrap draw for draw; the intervals over
documents are our own.
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
    """A corpus of pairs, and the metric's score over any selection of them, which may repeat pairs."""

    def __init__(self, name: str, pairs: Sequence[Pair]) -> None:
        self.metric = _metric(name)
        self._pairs = [
            (_references(reference), _prediction(name, prediction)) for reference, prediction in map(_pair, pairs)
        ]
        self.reference_counts = [len(references) for references, _ in self._pairs]  # of each document
        self._counts: dict[tuple[int, int], list[float]] = {}

    def score(self, documents: Sequence[int]) -> float:
        """The score of the pairs of these documents.

        As in lm-eval, the document with the fewest references sets how many references of every document are
        used; further references are ignored.
        """
        n_references = min(self.reference_counts[document] for document in documents)
        counts = [self.counts(document, n_references) for document in documents]
        return float(self.metric._aggregate_and_compute(counts).score)

    def scores(self, selections: Ints) -> Floats:
        """The scores of many selections of documents at once, [B, N] -> [B].

        If all documents have the same number of references, numpy adds up their counts.
        """
        distinct = set(self.reference_counts)
        if len(distinct) > 1:  # which references are used depends on the selection
            return np.array([self.score(row) for row in selections.tolist()])
        counts = np.array([self.counts(document, max(distinct)) for document in range(len(self._pairs))])
        summed = [counts[row].sum(axis=0).tolist() for row in selections]
        return np.array([self.metric._compute_score_from_stats(statistics).score for statistics in summed])

    def counts(self, document: int, n_references: int) -> list[float]:
        """The sufficient statistics of one pair, with only the first ``n_references`` of its references."""
        key = document, n_references
        if key not in self._counts:
            references, prediction = self._pairs[document]
            streams = [[reference] for reference in references[:n_references]]
            self._counts[key] = self.metric._extract_corpus_statistics([prediction], streams)[0]
        return self._counts[key]


@lru_cache(maxsize=8)
def _metric(name: str) -> Any:
    try:
        sacrebleu = importlib.import_module("sacrebleu.metrics")
    except ImportError:
        raise CalipersError(f"{name} needs sacrebleu; install calipers[text]") from None
    makers: dict[str, Any] = {
        "bleu": sacrebleu.BLEU,
        "chrf": sacrebleu.CHRF,
        "chrf++": partial(sacrebleu.CHRF, word_order=2),
        "ter": sacrebleu.TER,
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
    """How the documents' values are reduced to a number, for N documents and B draws."""

    prepare: Callable[[Sequence[Any]], Array]  # -> [N] or [N, parts]
    reduce: Callable[..., Floats]  # [B, N] or [B, N, parts] -> [B]
    resampled: bool = True  # whether lm-eval bootstraps the standard error
    counted: bool = False  # whether ``reduce(distinct [K, parts], counts [B, K]) -> [B]`` accepts counts of equal rows


def mean(values: Array) -> Floats:
    """The mean, from the exactly rounded sum."""
    return np.asarray(total(values) / values.shape[-1])


def nanmean(values: Array) -> Floats:
    """The mean of the values that are not NaN; NaN if all are."""
    is_number = ~np.isnan(values)
    count = is_number.sum(axis=-1)
    return np.asarray(np.where(count > 0, total(np.where(is_number, values, 0.0)) / np.maximum(count, 1), np.nan))


def upper_median(values: Array) -> Floats:
    """The median; for an even number of values, the larger of the two middle ones.

    >>> float(upper_median(np.array([4.0, 1.0, 3.0, 2.0])))
    3.0
    """
    return np.asarray(np.partition(values, values.shape[-1] // 2, axis=-1)[..., values.shape[-1] // 2])


def perplexity(values: Array) -> Floats:
    """``exp(-mean of log-likelihoods)``."""
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
    """``2 TP / (2 TP + FP + FN)``, where class 1 is the positive class; 0 if class 1 does not occur."""
    gold, predicted = values[..., 0] == 1, values[..., 1] == 1
    hits = (counts * (gold & predicted)).sum(axis=-1)
    either = (counts * gold).sum(axis=-1) + (counts * predicted).sum(axis=-1)
    return _f1(hits, either)


def matthews_corrcoef(values: Array, counts: Array | int = 1) -> Floats:
    """Matthews' correlation for any number of classes (Gorodkin 2004); 0 where it is undefined."""
    gold, predicted = values[..., 0], values[..., 1]
    correct = (counts * (gold == predicted)).sum(axis=-1).astype(np.float64)
    labels = np.unique(values)
    sums_by_class = (
        np.stack([(counts * (side == label)).sum(axis=-1) for label in labels], axis=-1).astype(np.float64)
        for side in (gold, predicted)
    )
    return _correlation(correct, *sums_by_class)


def numbers(items: Sequence[Any]) -> Array:
    """The documents' values as an array, [N]; InputError for a value that is not a number."""
    for item in items:
        if not isinstance(item, (int, float, np.number, np.bool_)):
            raise InputError(f"a document's value is {item!r}; expected a number")
    try:
        return np.array(items, dtype=np.float64)
    except OverflowError:  # an integer of hundreds of digits
        raise InputError("a document's value is too large; expected a number that a double can hold") from None


def pairs(items: Sequence[Any]) -> Array:
    """The documents' (log-likelihood, weight) pairs as an array, [N, 2]."""
    return numbers([number for item in items for number in _pair(item)]).reshape(-1, 2)


def classes(items: Sequence[Any]) -> Array:
    """The documents' (gold, predicted) classes as integer codes, [N, 2]."""
    codes: dict[Any, int] = {}
    for pair in map(_pair, items):
        for label in pair:
            if isinstance(label, (list, tuple, dict)):
                raise InputError(f"a class is {label!r}; expected one class per document")
            codes.setdefault(label, len(codes))
    return np.array([[codes[label] for label in item] for item in items], dtype=np.int64).reshape(-1, 2)


def binary(items: Sequence[Any]) -> Array:
    """Whether each document's (gold, predicted) class is 1, [N, 2]; InputError unless there are two classes at most."""
    labels = {label for item in items for label in _pair(item) if not isinstance(label, (list, tuple, dict))}
    if len(labels) > 2 or (len(labels) == 2 and 1 not in labels) or classes(items).size == 0:
        shown = ", ".join(sorted(map(repr, labels)))
        raise InputError(
            f"f1 over the classes {shown}; expected two, with 1 as the positive class, or use another aggregation"
        )
    return np.array([[label == 1 for label in item] for item in items], dtype=np.int64)


def distances(items: Sequence[Any]) -> Array:
    """Each document's Brier score: the squared distance of its probabilities from the truth, [N]."""
    for _, chances in map(_pair, items):
        if not isinstance(chances, (list, tuple)) or not all(isinstance(chance, (int, float)) for chance in chances):
            raise InputError(f"brier_score: the probabilities are {chances!r}; expected a list of numbers")
    sizes = {len(chances) for _, chances in items}
    if len(sizes) > 1:
        raise InputError(
            f"brier_score over documents of {sorted(sizes)} choices; expected the same number for each document"
        )
    for gold, chances in items:
        if not isinstance(gold, int) or not 0 <= gold < len(chances):
            raise InputError(f"brier_score: the target is {gold!r}; expected the index of one choice")
    try:
        return np.array([squared_distance(chances, gold) for gold, chances in items], dtype=np.float64)
    except OverflowError:  # such as the square of 1e200
        raise InputError("brier_score: a probability is too large; expected at most 1") from None


def squared_distance(chances: Sequence[float], gold: int) -> float:
    """The squared distance of the choices' probabilities from the truth (1 for ``gold``, 0 for the others): 0 to 2."""
    return math.fsum((chance - (choice == gold)) ** 2 for choice, chance in enumerate(chances))


AGGREGATIONS: Final[Mapping[str, Aggregation]] = {
    "mean": Aggregation(numbers, mean, resampled=False),  # the standard error has a closed form
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
"""The name of an aggregation, or a user's function of the list of values."""


def aggregate(how: How, items: Sequence[Any]) -> Any:
    """Aggregate the documents' values; InputError if they have no aggregate, as when there are no documents.

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
    """The aggregation of this name; UnknownName, with the nearest name, if there is no such aggregation."""
    if how not in AGGREGATIONS:
        raise UnknownName.of("lm_eval aggregation", how, NAMES)
    return AGGREGATIONS[how]


def _pair(item: Any) -> Sequence[Any]:
    if isinstance(item, (list, tuple)) and len(item) == 2:
        return item
    raise InputError(f"a document's value is {item!r}; expected a pair")


@dataclass(frozen=True, slots=True)
class Sums:
    """The statistics of N documents, and the function that computes the metric from their sums."""

    statistics: Floats  # [N, S]
    combine: Callable[[Floats], Floats]  # [..., S] -> [...]


def sums(how: str, items: Sequence[Any]) -> Sums | None:
    """The statistics whose sums determine a metric, for the documents of one run or of several runs to compare.

    None for a metric that no sums determine, such as a median. Runs to compare must be passed together, because
    they need the same class codes and the same number of references per document.

    >>> f1_sums = sums("f1", [(1, 1), (0, 1), (1, 0)])
    >>> float(f1_sums.combine(f1_sums.statistics.sum(axis=0)))
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
    n_references = min(overlap.reference_counts, default=0)  # the same for every document, as in `Overlap.score`
    counts = [overlap.counts(document, n_references) for document in range(len(items))]
    compute = overlap.metric._compute_score_from_stats

    def combine(summed: Floats) -> Floats:
        rows = summed.reshape(-1, summed.shape[-1]).tolist()
        return np.array([compute(row).score for row in rows]).reshape(summed.shape[:-1])

    return Sums(np.array(counts, dtype=np.float64), combine)


def _with_ones(values: Array) -> Floats:
    return np.stack([values, np.ones(len(values))], axis=1)


def _without_nan(values: Array) -> Floats:
    is_number = ~np.isnan(values)
    return np.stack([np.where(is_number, values, 0.0), is_number], axis=1)


def _hits(values: Array) -> Floats:
    """(gold and predicted, gold plus predicted) of the positive class, [N, 2]."""
    gold, predicted = values[:, 0] == 1, values[:, 1] == 1
    return np.stack([gold & predicted, gold.astype(float) + predicted], axis=1).astype(np.float64)


def _by_class(values: Array) -> Floats:
    """(1 if correct, one-hot gold class, one-hot predicted class), [N, 1 + 2K]."""
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


def _correlation(correct: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Matthews' correlation from counts of documents: correct ones, [...], and those of each class, [..., K]."""
    n = gold.sum(axis=-1)
    numerator = correct * n - (gold * predicted).sum(axis=-1)
    squared_denominator = (n**2 - (gold**2).sum(axis=-1)) * (n**2 - (predicted**2).sum(axis=-1))
    defined = squared_denominator > 0
    return np.asarray(np.where(defined, numerator / np.sqrt(np.maximum(squared_denominator, 1.0)), 0.0))


_OF_SUMS: Final[Mapping[str, tuple[Callable[[Array], Floats], Callable[[Floats], Floats]]]] = {
    "nanmean": (_without_nan, _ratio),
    "perplexity": (_with_ones, _perplexity),
    "weighted_perplexity": (np.asarray, _perplexity),
    "bits_per_byte": (np.asarray, _bits),
    "f1": (_hits, lambda summed: _f1(summed[..., 0], summed[..., 1])),
    "matthews_corrcoef": (
        _by_class,
        lambda summed: _correlation(summed[..., 0], *np.split(summed[..., 1:], 2, axis=-1)),
    ),
}

_BLOCK: Final = 1 << 14
"""Documents drawn at a time: few enough that the allocator reuses the same memory for each block."""


def resampler(how: str, items: Sequence[Any]) -> Callable[[Ints], Floats]:
    """The function from resamples, as indices of documents [B, N], to their aggregated values [B].

    >>> resampler("f1", [(1, 1), (0, 1)])(np.array([[0, 0], [0, 1], [1, 1]])).round(3).tolist()
    [1.0, 0.667, 0.0]
    """
    if how in OVERLAP:
        return Overlap(how, items).scores
    aggregation = known(how)
    values = aggregation.prepare(items)
    if aggregation.counted:
        distinct, code = np.unique(values, axis=0, return_inverse=True)
        return lambda resamples: aggregation.reduce(distinct, _counts(code.reshape(-1), resamples, len(distinct)))

    def reduced(resamples: Ints) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return aggregation.reduce(values[resamples])

    return reduced


def _counts(code: Ints, resamples: Ints, n_codes: int) -> Ints:
    """The number of documents of each code in each resample, [B, K]."""
    rows = len(resamples)
    cells = code.take(resamples)
    cells += np.arange(rows)[:, None] * n_codes
    return np.bincount(cells.ravel(), minlength=rows * n_codes).reshape(rows, n_codes)


_MAX_DRAWS, _MIN_DRAWS = 10_000, 1_000
_CALLABLE_DRAWS: Final = 200
"""Draws for a user's function, which is called once per draw."""

_MAX_DOCUMENTS_DRAWN: Final = 10_000_000  # in all draws together; beyond it fewer draws are made


def draw_count(how: How, documents: int) -> int:
    """The number of bootstrap draws for a metric of this many documents.

    >>> draw_count("perplexity", 100), draw_count("perplexity", 5_000), draw_count(len, 100)
    (10000, 2000, 200)
    """
    if not isinstance(how, str):
        return _CALLABLE_DRAWS
    if how in OVERLAP:
        return _MIN_DRAWS
    return max(_MIN_DRAWS, min(_MAX_DRAWS, _MAX_DOCUMENTS_DRAWN // max(1, documents)))


def resampled(how: How, items: Sequence[Any], rng: np.random.Generator) -> Floats:
    """The metric of each of `draw_count` bootstrap resamples of the documents, [B].

    ``items`` are the documents' values, as `aggregate` takes them. InputError for a function that must not be called
    repeatedly.
    """
    if undrawn := getattr(how, "undrawn", ""):
        raise InputError(undrawn)
    blocks = _resamples(rng, draw_count(how, len(items)), len(items))
    if not isinstance(how, str):
        return np.array(
            [aggregate(how, [items[document] for document in row]) for block in blocks for row in block.tolist()]
        )
    reduced = resampler(how, items)
    return np.concatenate([reduced(block) for block in blocks])


def _resamples(rng: np.random.Generator, draws: int, documents: int) -> Iterator[Ints]:
    """Document indices drawn with replacement, a row per draw, in blocks of [rows, documents].

    Only the generator's raw output is used, because numpy guarantees that it stays the same in every version.
    """
    block_rows = max(1, _BLOCK // documents)
    for start in range(0, draws, block_rows):
        rows = min(block_rows, draws - start)
        raw = rng.bit_generator.random_raw(rows * documents)
        yield (raw % np.uint64(documents)).astype(np.int64).reshape(rows, documents)


ITERATIONS: Final = 100_000
_CHUNK: Final = 1_000  # draws per seed


def stderr(how: How, items: Sequence[Any], iterations: int = ITERATIONS) -> float | None:
    """The standard error of an aggregation; None where lm-eval has none.

    A mean has a closed form, the standard deviation with n - 1 divided by the square root of n; other aggregations
    are bootstrapped. None for a single document, for 0 iterations, and for the aggregations to which lm-eval gives
    no standard error: weighted_perplexity, bits_per_byte, brier_score, bypass and user functions.

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
    """The standard deviation of an aggregation over resampled documents; nanmean's NaN draws are excluded."""
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
    reduced, size = resampler(how, items), min(_CHUNK, iterations)
    block_rows = max(1, _BLOCK // len(items))
    for seed in range(iterations // size):
        generator = mersenne_twister(seed)
        for start in range(0, size, block_rows):
            yield reduced(choices(generator, min(block_rows, size - start), len(items)))


def mersenne_twister(seed: int) -> np.random.RandomState:
    """A generator in the same state as ``random.Random(seed)``: numpy seeds from a list exactly as Python does."""
    return np.random.RandomState([seed])


def choices(generator: np.random.RandomState, rows: int, count: int) -> Ints:
    """The results of ``rows`` calls of ``random.Random(seed).choices(range(count), k=count)``.

    >>> choices(mersenne_twister(0), 2, 4).tolist()  # random.Random(0).choices(range(4), k=4), twice
    [[3, 3, 1, 1], [2, 1, 3, 1]]
    """
    uniform = generator.random_sample((rows, count))
    uniform *= float(count)
    return uniform.astype(np.int64)  # the floor, because no value is negative


BOOTSTRAP: Final = "bootstrap"  # the interval method of an aggregation other than the mean


@dataclass(frozen=True, slots=True)
class DocumentSpread:
    """An interval over documents, or why there is none."""

    ends: tuple[float, float] | None = None
    method: str | None = None
    draws: int = 0  # of the bootstrap
    why: str | None = None


def spread(
    how: How, items: Sequence[Any], value: float, confidence: float, seed: Sequence[int], method: str = DEFAULT
) -> DocumentSpread:
    """The interval of the aggregated ``value`` of these documents; ``method`` applies to a mean only."""
    if math.isnan(value):
        return DocumentSpread(why="some documents are NaN")
    if how == "mean" and all(isinstance(item, (int, float)) for item in items):
        return _interval_of_mean(items, confidence, method, seed[0])
    if len(items) < 2:
        return DocumentSpread(why="one document")
    try:
        return percentile_interval(resampled(how, items, np.random.Generator(np.random.PCG64(seed))), confidence)
    except CalipersError as error:  # raised by a user's function
        return DocumentSpread(why=str(error) if getattr(how, "undrawn", "") else f"a draw has no number: {error}")


def percentile_interval(replicates: Floats, confidence: float) -> DocumentSpread:
    """The percentile interval of bootstrap replicates, [B]; none if some are not finite or all are equal."""
    if not np.isfinite(replicates).all():
        return DocumentSpread(why="some draws give no finite number")
    if (replicates == replicates[0]).all():
        return DocumentSpread(why="every draw gives the same number")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(replicates, [tail, 100 - tail]).tolist()
    return DocumentSpread((low, high), BOOTSTRAP, len(replicates))


def _interval_of_mean(items: Sequence[float], confidence: float, method: str, seed: int) -> DocumentSpread:
    values = np.array(items, dtype=np.float64)
    limits = (0.0, 1.0) if bool(((values >= 0) & (values <= 1)).all()) else None
    estimate = named_interval(method, Weighted(values, np.ones(len(values)), limits, None, confidence, seed))
    return DocumentSpread(estimate.ends, estimate.method, why=estimate.why)
