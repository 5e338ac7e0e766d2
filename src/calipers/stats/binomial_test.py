"""The exact binomial test: whether so few passes are too few for a rate."""

from __future__ import annotations

import numpy as np

from calipers.rollouts.column import Floats, Ints


def below(passes: Ints, samples: Ints, rate: float) -> Floats:
    """One-sided p of each task's rate being at least ``rate``, [T]: the chance of as few passes or fewer.

    ``P(X <= c)`` for X binomial with n samples and this rate (Clopper and Pearson 1934). Small means: the task has
    been shown to lie below. A rate above 1 nobody reaches, p is 0; of 0 or less everybody does, p is 1.

    >>> below(np.array([0, 3]), np.array([4, 4]), 0.5).tolist()
    [0.0625, 0.9375]
    """
    from scipy.special import bdtr

    if rate > 1 or rate <= 0:
        return np.full(len(passes), 0.0 if rate > 1 else 1.0)
    return np.asarray(bdtr(passes.astype(float), samples, rate))
