"""A metric of all documents together, over documents drawn again: from places to numbers.

What a document contributes is prepared once; a draw is a selection of those rows, and many are reduced in one
call. Where documents differ in their kind only, such as (gold, found) of two classes, a draw is told by how many
there are of each kind, which is quicker found than the rows are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from calipers.metrics.lm_eval import known
from calipers.rollouts.column import Floats, Ints
from calipers.scores.overlap import NAMES as OVERLAP
from calipers.scores.overlap import Overlap

AT_ONCE: Final = 1 << 14
"""Documents drawn at a time: so few that memory is used again, and need not be asked of the system for each."""


def resampler(how: str, items: Sequence[Any]) -> Callable[[Ints], Floats]:
    """From places of documents, [B, N], to the numbers of those resamples, [B].

    >>> resampler("f1", [(1, 1), (0, 1)])(np.array([[0, 0], [0, 1], [1, 1]])).round(3).tolist()
    [1.0, 0.667, 0.0]
    """
    if how in OVERLAP:
        return Overlap(how, items).scores
    held = known(how)
    values = held.prepare(items)
    if held.counted:
        kinds, code = np.unique(values, axis=0, return_inverse=True)
        return lambda places: held.reduce(kinds, _counts(code.reshape(-1), places, len(kinds)))

    def reduced(places: Ints) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return held.reduce(values[places])

    return reduced


def _counts(code: Ints, places: Ints, kinds: int) -> Ints:
    """How many documents of each kind each row holds, [B, K]."""
    rows = len(places)
    cells = code.take(places)
    cells += np.arange(rows)[:, None] * kinds
    return np.bincount(cells.ravel(), minlength=rows * kinds).reshape(rows, kinds)
