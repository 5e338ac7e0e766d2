"""Repeated comparison of two runs: a test with a valid level at any stopping time.

Tasks come one after another in an order that does not depend on their results. A candidate mean of their differences is
tested by betting against it, before each task, on the task's difference. If the candidate is the true mean, no bet
gains on average, and the capital is a nonnegative martingale that starts at 1. By Ville's inequality it ever reaches 20
with a chance of at most 5 %, for every distribution on the range, skewed or not. A candidate against which the capital
has reached 20 is ruled out for good; the candidates never ruled out are the confidence sequence (Waudby-Smith and
Ramdas 2024). The default test, read after each of 50 batches, reports a difference where there is none in 28 % of pairs
of runs drawn from one distribution, and in up to 73 % if one run is steady and the other all or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calipers.rollouts.column import Floats, Ints, sum_by
from calipers.stats.paired import Difference, judged, units_of

BETTING: Final = "betting"
NO_RANGE: Final = "an anytime test needs a known range, as 0 to 1 for passes: a bet must never lose more than there is"
NO_MEAN: Final = "no mean of task values, so that no sequence of tasks shows it"
UNEVEN: Final = "sample counts differ, and weigh earlier tasks anew with every later one; pass@1 is a mean over tasks"
CONTRADICTED: Final = "later tasks contradict earlier ones: no single mean fits them all; was the order random?"
# effect sizes in standard deviations: a grid of the differences that a fixed test detects on 50 to 3,000 tasks
SIZES: Final = 0.05 * 8 ** (np.arange(6) / 5)
MOST: Final = 0.98  # the largest share of the capital that a bet may lose
STEPS: Final = 30  # of the bisection, which determines an end to 2e-9 of the range


@dataclass(frozen=True, slots=True)
class Bets:
    """The differences of tasks in the order in which they came, summed over clusters, [G] each."""

    sums: Floats  # [G] over the tasks of a unit, in widths of the range: -1 to 1 for a single task
    sizes: Floats  # [G] tasks of each unit

    def sides(self, mean: float) -> tuple[Floats, Floats]:
        """The log capital of bets on a true mean above ``mean``, and below it, after each unit, [G] each.

        With y_t = d_t - mean and ``v_t = (1 + sum_{i<t} y_i^2) / (t + 3)`` the bets are ``min(delta / sqrt(v_t),
        0.98 / (1 + mean))`` upwards and ``min(delta / sqrt(v_t), 0.98 / (1 - mean))`` downwards, for six delta
        from 0.05 to 0.4; each side is the mean over delta of ``prod (1 + bet y)``, or of ``prod (1 - bet y)``.
        For a cluster, y is the sum over its tasks divided by the size of the largest cluster so far; sizes may be
        used because they are known before the results.
        """
        scale = np.maximum.accumulate(self.sizes)
        centred = self.sums - mean * self.sizes
        squares = np.cumsum(centred * centred)
        past = np.concatenate([[0.0], squares[:-1]])
        spread = np.sqrt((1 + past / (scale * scale)) / (np.arange(1, len(centred) + 1) + 3))
        bets = SIZES[:, None] / spread
        centred = centred / scale
        rises = np.log1p(np.minimum(bets, _largest_bet(1 + mean)) * centred)
        falls = np.log1p(np.minimum(bets, _largest_bet(1 - mean)) * -centred)
        return _log_mean(np.cumsum(rises, axis=1)), _log_mean(np.cumsum(falls, axis=1))

    def against(self, mean: float) -> Floats:
        """The log of E_t(mean), the evidence that the true mean is not ``mean``, after each unit, [G]."""
        return np.logaddexp(*self.sides(mean)) - math.log(2)

    def p(self, mean: float) -> float:
        """The anytime p of the hypothesis that the true mean is ``mean``: 1 / the largest evidence against it."""
        return _p(self.against(mean))

    def p_at_most(self, bound: float) -> float:
        """The anytime p of the hypothesis that the true mean is at most ``bound``."""
        return _p(self.sides(bound)[0])

    def p_at_least(self, bound: float) -> float:
        """The anytime p of the hypothesis that the true mean is at least ``bound``."""
        return _p(self.sides(bound)[1])

    def ends(self, mean: float, confidence: float) -> tuple[float, float] | None:
        """The ends of the means that have never been ruled out, around the observed ``mean``.

        None if ``mean`` itself has been ruled out. The ends are found by bisection and rounded outwards. If 0 is ruled
        out, it bounds the search, so that test and interval agree to the last digit.
        """
        limit = -math.log(1 - confidence)

        def kept(candidate: float) -> bool:
            return float(self.against(candidate).max()) < limit

        if not kept(mean):
            return None
        ruled_out = not kept(0.0)
        low = _last_kept(mean, 0.0 if ruled_out and mean > 0 else -1.0, kept)
        return low, _last_kept(mean, 0.0 if ruled_out and mean < 0 else 1.0, kept)


def bets_of(differences: Floats, clusters: Ints | None = None) -> Bets:
    """The `Bets` of differences of tasks on [-1, 1] in their order, [T].

    Clusters are in the order of their first tasks.
    """
    if clusters is None or len(clusters) == 0:
        return Bets(differences, np.ones(len(differences)))
    _, first, code = np.unique(clusters, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    code = rank[code]
    return Bets(sum_by(code, differences, len(first)), np.bincount(code).astype(np.float64))


def anytime(
    differences: Floats, clusters: Ints | None = None, *, limits: tuple[float, float] | None, confidence: float = 0.95
) -> Difference:
    """The mean of the differences of task values, [T] in their order, tested after every task.

    ``p = min(1, 1 / max_t E_t(0))``, and the interval contains every mean with ``E_t < 1 / (1 - confidence)`` at all
    t, so that it never widens, and excludes 0 if p is at most 1 - confidence. ``limits`` is the range of the values;
    without it there is no interval and no p. The same holds if the sequence has ruled out the observed mean, which
    happens if tasks do not come in a random order or change on the way.
    """
    units = units_of(differences, None, clusters)
    estimate = judged(units, limits, confidence)
    plain = Difference(estimate.value, None, None, None, BETTING, estimate.units, why=estimate.why)
    if estimate.value is None or (estimate.p is None and limits is not None):
        return plain
    plain = replace(
        plain,
        stderr=math.sqrt(units.variance),
        why=None,
        plain_stderr=math.sqrt(units.variance),
        effective_units=units.effective_units,
    )
    if limits is None:
        return replace(plain, why=NO_RANGE)
    width = limits[1] - limits[0]
    bets = bets_of(np.clip(differences / width, -1.0, 1.0), clusters)
    value = min(max(estimate.value / width, -1.0), 1.0)
    ends = bets.ends(value, confidence)
    if ends is None:
        return replace(plain, why=CONTRADICTED)
    low, high = (width * end for end in ends)
    return replace(plain, interval=(low, high), p=bets.p(0.0), width=width, sequence=bets)


def _largest_bet(loss: float) -> float:
    """The largest bet if a task may lose up to ``loss`` per unit of the bet."""
    return MOST / loss if loss > 0 else math.inf


def _log_mean(logs: Floats) -> Floats:
    """The log of the mean over bets, ``[6, G] -> [G]``."""
    highest = logs.max(axis=0)
    return np.asarray(highest + np.log(np.exp(logs - highest).mean(axis=0)))


def _p(logs: Floats) -> float:
    """The anytime p value of log evidence after each unit, [G]."""
    return math.exp(-max(0.0, float(logs.max(initial=0.0))))


def _last_kept(inside: float, edge: float, kept: Callable[[float], bool]) -> float:
    """The end of the interval of kept means between a kept mean and an edge, rounded outwards."""
    if inside == edge or kept(edge):
        return edge
    outside = edge
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if kept(middle) else (inside, middle)
    return outside
