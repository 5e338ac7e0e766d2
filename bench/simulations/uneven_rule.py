"""The two rules that detect sample counts which depend on results, for many replicates at once.

They follow `calipers.stats.variance`, with counts in place of rollouts: n samples, c passes, and whether the last
sample is a pass, [R, T] each. tests/stats/test_uneven_levels.py compares the two.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from calipers.stats.variance import FEWEST_STOPPED, FEWEST_TASKS, LEVEL

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def retried(n: Ints, c: Ints, last: Bools) -> Bools:
    """Whether each replicate shows the pattern of retries, [R]."""
    most = n.max(axis=1, keepdims=True)
    short = (n > 0) & (n < most)
    enough = (short.sum(axis=1) >= FEWEST_STOPPED) & ((n > 1).sum(axis=1) >= FEWEST_STOPPED)
    found: Bools = enough & (c.max(axis=1) <= 1) & (~short | ((c == 1) & last)).all(axis=1)
    return found


def scores(n: Ints, c: Ints) -> Floats:
    """The z of the score test in every replicate, [R]; 0 if all counts or all means are equal."""
    there = n > 0
    tasks = there.sum(axis=1, keepdims=True)
    means = np.where(there, c / np.maximum(n, 1), 0.0)
    away = n - n.sum(axis=1, keepdims=True) / tasks
    off = means - means.sum(axis=1, keepdims=True) / tasks
    products = np.where(there, away * off, 0.0)
    spread = np.sqrt((products**2).sum(axis=1))
    return np.where(spread > 0, products.sum(axis=1) / np.where(spread > 0, spread, 1.0), 0.0)


def warned(n: Ints, c: Ints, last: Bools) -> Bools:
    """Whether either rule warns of each replicate, [R]."""
    enough = (n > 0).sum(axis=1) >= FEWEST_TASKS
    found: Bools = retried(n, c, last) | (enough & (2 * ndtr(-np.abs(scores(n, c))) < LEVEL))
    return found
