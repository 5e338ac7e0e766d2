"""McNemar's test, which asks of the tasks that only one of two runs passes how many are the first run's.

Tasks that both pass or both fail say nothing about which is better. Of the others each is a fair coin if
neither is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Bools


@dataclass(frozen=True, slots=True)
class McNemar:
    """The test by the tasks that only one run passes."""

    first_only: int  # b
    second_only: int  # c
    exact: float  # two-sided p; 1 when no task differs
    mid_p: float  # two-sided, with half the chance of the table seen; less cautious, still near its level
    first_better: float  # exact one-sided p, small where the first run is better
    second_better: float  # exact one-sided p, small where the second run is
    chance_first: float  # posterior chance that the first run is better, uniform prior over the four outcomes


def mcnemar(first_only: int, second_only: int) -> McNemar:
    """The test of b tasks that only the first run passes and c that only the second does.

    ``exact = 2 P(X <= min(b, c))`` for X of b + c fair coins, at most 1; mid-p takes the chance of
    X = min(b, c) away once; the posterior chance is that of ``Beta(b + 1, c + 1) > 1/2``.

    >>> found = mcnemar(10, 2)
    >>> round(found.exact, 6), round(found.mid_p, 6)
    (0.038574, 0.022461)
    """
    from scipy.special import bdtr, betainc, betaln

    b, c = int(first_only), int(second_only)
    if b < 0 or c < 0:
        raise ValueError(f"{b} and {c} tasks; expected counts")
    n, fewer = b + c, min(b, c)
    at = float(np.exp(-betaln(fewer + 1, n - fewer + 1) - n * np.log(2))) / (n + 1)
    tail = float(bdtr(fewer, n, 0.5))
    return McNemar(
        b,
        c,
        min(1.0, 2 * tail),
        min(1.0, 2 * tail - at),
        float(bdtr(c, n, 0.5)),
        float(bdtr(b, n, 0.5)),
        float(betainc(c + 1, b + 1, 0.5)),
    )


def flips(first: Bools, second: Bools) -> McNemar:
    """The test of two runs with one verdict per task, [T] each, tasks in the same order."""
    return mcnemar(int(np.count_nonzero(first & ~second)), int(np.count_nonzero(second & ~first)))
