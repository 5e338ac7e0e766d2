"""The true sum, rounded once: the same in any row order, shard layout or interpreter.

A float sum depends on the order of its terms. Here every value is split by folding: adding and
subtracting a large ``sigma`` leaves the part of it that lies on a coarse grid. Numbers on one grid
add up without rounding, so their sum is exact in any order; what the fold left over is folded
again, until nothing is left (two folds in practice). The float sum of two exact fold sums is the
correctly rounded total; more folds go through `math.fsum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from calipers.rollouts.column import Floats, Ints

_HUGE = 2.0**1000  # above this, sigma itself would overflow: scale down by a power of two first


def sum_by(code: Ints, values: Floats, size: int) -> Floats:
    """The exact sum of the values that carry each code, [size]; 0 where none does.

    NaN and infinities spread as in ordinary addition, inside their own code only.
    """
    most = int(np.bincount(code, minlength=1).max()) if len(code) else 0
    return exact_sum(
        values, most, lambda part: np.bincount(code, weights=part, minlength=size).astype(np.float64, copy=False)
    )


def total(values: Floats) -> Floats:
    """The exact sum along the last axis, ``[..., N] -> [...]``; 0 of nothing.

    >>> float(total(np.array([1e16, 1.0, -1e16])))
    1.0
    """
    return exact_sum(values, values.shape[-1], lambda part: np.asarray(part.sum(axis=-1)))


def exact_sum(values: Floats, most: int, add: Callable[[Floats], Floats]) -> Floats:
    """Fold ``values``, ``add`` up each fold (at most ``most`` terms a sum), join the fold sums."""
    if values.size == 0:
        return add(values) + 0.0
    biggest = float(np.abs(values).max())
    if not math.isfinite(biggest):
        return _with_infinities(values, most, add)
    if biggest > _HUGE:
        return np.ldexp(exact_sum(np.ldexp(values, -64), most, add), 64)
    if biggest == 0.0:
        return add(values) + 0.0
    bits = max(most - 1, 1).bit_length() + 1
    folds: list[Floats] = []
    rest = values
    while biggest > 0.0:
        sigma = math.ldexp(1.5, math.frexp(biggest)[1] + bits)
        high = (rest + sigma) - sigma
        rest = rest - high
        folds.append(add(high))
        biggest = float(np.abs(rest).max())
    if len(folds) <= 2:
        return sum(folds[1:], start=folds[0]) + 0.0
    stacked = np.stack(folds, axis=-1).reshape(-1, len(folds))
    joined = np.array([math.fsum(row) for row in stacked.tolist()])
    return joined.reshape(folds[0].shape) + 0.0


def _with_infinities(values: Floats, most: int, add: Callable[[Floats], Floats]) -> Floats:
    """Sum the finite part exactly; NaN and infinities only decide the sums they belong to."""
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, as it should be
        odd = add(np.where(finite, 0.0, values))
        return exact_sum(np.where(finite, values, 0.0), most, add) + odd
