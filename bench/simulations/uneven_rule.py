"""The two rules that find sample counts which depend on results, for many replicates at once.

They follow `calipers.stats.variance` over counts in place of rollouts: n samples, c passes, and whether the last
sample is a pass, [R, T] each. tests/stats/test_uneven_levels.py holds the two together.
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
    """Which replicates show the pattern of retries, [R]."""
    most = n.max(axis=1, keepdims=True)
    short = (n > 0) & (n < most)
    enough = (short.sum(axis=1) >= FEWEST_STOPPED) & ((n > 1).sum(axis=1) >= FEWEST_STOPPED)
    found: Bools = enough & (c.max(axis=1) <= 1) & (~short | ((c == 1) & last)).all(axis=1)
    return found


def scores(n: Ints, c: Ints) -> Floats:
    """The z of the score test in every replicate, [R]; 0 where counts or means do not differ."""
    there = n > 0
    tasks = there.sum(axis=1, keepdims=True)
    means = np.where(there, c / np.maximum(n, 1), 0.0)
    away = n - n.sum(axis=1, keepdims=True) / tasks
    off = means - means.sum(axis=1, keepdims=True) / tasks
    products = np.where(there, away * off, 0.0)
    spread = np.sqrt((products**2).sum(axis=1))
    return np.where(spread > 0, products.sum(axis=1) / np.where(spread > 0, spread, 1.0), 0.0)


def warned(n: Ints, c: Ints, last: Bools) -> Bools:
    """Which replicates are warned of, by either rule, [R]."""
    enough = (n > 0).sum(axis=1) >= FEWEST_TASKS
    found: Bools = retried(n, c, last) | (enough & (2 * ndtr(-np.abs(scores(n, c))) < LEVEL))
    return found
