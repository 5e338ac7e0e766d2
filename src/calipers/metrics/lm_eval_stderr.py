"""lm-evaluation-harness' standard errors, its bootstrap to the last draw.

Chunk i of at most 1,000 replicates draws with Python's ``random.Random(i).choices``. Those draws are
``floor(random() * n)`` of a Mersenne Twister, and numpy has the same twister: it is brought to the same
state and drawn from in one go, which gives the same documents a hundred times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from calipers.errors import InputError
from calipers.metrics.lm_eval import How, known, numbers
from calipers.metrics.lm_eval_resample import AT_ONCE, resampler
from calipers.rollouts.column import Floats, Ints
from calipers.scores.overlap import NAMES as OVERLAP

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
    found = np.concatenate(list(_replicates(how, items, iterations)))
    return float(deviation(found[~np.isnan(found)] if how == "nanmean" else found))


def drawn(seed: int, rows: int, count: int) -> Ints:
    """The places that ``random.Random(seed).choices(range(count), k=count)`` gives, called ``rows`` times.

    >>> drawn(0, 2, 4).tolist()  # random.Random(0).choices(range(4), k=4), twice
    [[3, 3, 1, 1], [2, 1, 3, 1]]
    """
    return _places(_twister(seed), rows, count)


def deviation(values: Floats) -> Floats:
    """The standard deviation with n - 1; NaN for a single value."""
    if len(values) < 2:
        return np.asarray(np.nan)
    centred = values - values.mean()
    return np.asarray(np.sqrt((centred * centred).sum() / (len(values) - 1)))


def _replicates(how: str, items: Sequence[Any], iterations: int) -> Iterator[Floats]:
    reduced, size = resampler(how, items), min(CHUNK, iterations)
    for seed in range(iterations // size):
        twister = _twister(seed)
        left = size
        while left:
            rows = min(left, max(1, AT_ONCE // len(items)))
            yield reduced(_places(twister, rows, len(items)))
            left -= rows


def _twister(seed: int) -> np.random.RandomState:
    """A twister in the very state of ``random.Random(seed)``: seeded with a list, numpy's is set up as Python's is."""
    return np.random.RandomState([seed])


def _places(twister: np.random.RandomState, rows: int, count: int) -> Ints:
    lots = twister.random_sample((rows, count))
    lots *= float(count)
    return lots.astype(np.int64)  # which is their floor, as none is below 0
