"""How sure a number of lm-evaluation-harness' table is, from what its documents keep for it.

A mean has the interval that every mean has here. A metric of all documents together, such as a perplexity, F1
or BLEU, is worked out again on documents drawn with replacement, and the middle of what comes out is its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calipers.errors import CalipersError
from calipers.metrics.lm_eval import How
from calipers.metrics.lm_eval_draws import resampled
from calipers.rollouts.column import Floats
from calipers.stats.interval import interval


@dataclass(frozen=True, slots=True)
class Spread:
    """An interval, or why there is none."""

    ends: tuple[float, float] | None = None
    method: str | None = None
    draws: int = 0  # it is the middle of
    why: str | None = None


def spread(how: How, held: Sequence[Any], value: float, confidence: float, seed: Sequence[int]) -> Spread:
    """How sure a number is that these documents' values come to."""
    if math.isnan(value):
        return Spread(why="some documents are NaN")
    found = _of_mean(held, confidence) if how == "mean" else None
    if found is not None:
        return found
    if len(held) < 2:
        return Spread(why="one document")
    try:
        return middle(resampled(how, held, np.random.Generator(np.random.PCG64(seed))), confidence)
    except CalipersError as error:  # of somebody's own function
        return Spread(why=str(error) if getattr(how, "undrawn", "") else f"a draw has no number: {error}")


def middle(found: Floats, confidence: float) -> Spread:
    """The interval that the middle of some draws is, [B]; why there is none, where they say nothing."""
    if not np.isfinite(found).all():
        return Spread(why="some draws give no finite number")
    if (found == found[0]).all():
        return Spread(why="every draw gives the same number")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(found, [tail, 100 - tail]).tolist()
    return Spread((low, high), "bootstrap", len(found))


def _of_mean(held: Sequence[Any], confidence: float) -> Spread | None:
    """The interval of a mean of numbers; None for what is none."""
    if not all(isinstance(value, (int, float)) for value in held):
        return None
    values = np.array(held, dtype=np.float64)
    limits = (0.0, 1.0) if bool(((values >= 0) & (values <= 1)).all()) else None
    found = interval(values, np.ones(len(values)), confidence, limits)
    return Spread(found.ends, found.method, why=found.why)
