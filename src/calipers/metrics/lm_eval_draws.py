"""A metric of all documents together over documents drawn again: how much it would vary.

These are our own draws, by a generator that is handed in; lm-evaluation-harness' are in `lm_eval_stderr`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from calipers.errors import InputError
from calipers.metrics.lm_eval import How, aggregate
from calipers.metrics.lm_eval_resample import AT_ONCE, resampler
from calipers.rollouts.column import Floats, Ints
from calipers.scores.overlap import NAMES as OVERLAP

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
        return np.array([aggregate(how, [items[place] for place in row]) for block in every for row in block.tolist()])
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
