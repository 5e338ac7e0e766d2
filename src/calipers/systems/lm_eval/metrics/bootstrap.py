"""lm-evaluation-harness' standard errors with its exact bootstrap; and our intervals over documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.errors import CalipersError, InputError
from calipers.rollouts.column import Floats, Ints
from calipers.stats.cards import DEFAULT
from calipers.stats.intervals import Weighted, named_interval
from calipers.systems.lm_eval.metrics.aggregations import OVERLAP, How, Overlap, aggregate, known, numbers

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

    >>> stderr("mean", [0, 1]), stderr("mean", [1])
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
