"""Generalised pass metrics: at least a share tau of k drawn samples must pass."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import ceil, comb

import numpy as np

from calipers.metrics.aggregate import mean
from calipers.metrics.extremes import of_passes
from calipers.metrics.metric import PASS_THRESHOLD, UNIT, Metric
from calipers.metrics.reduce import by_counts, pass_counts
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups


def gpass_at_k(rewards: Column, by: Groups, k: int, tau: float, threshold: float) -> Column:
    """Chance that at least ``ceil(tau k)`` of k samples drawn without replacement pass, per task, [T].

    The tail of the hypergeometric distribution (Liu et al. 2024); a gap where a task has fewer than
    k samples.
    """
    n, c = pass_counts(rewards, by, threshold)
    least = needed(tau, k)
    return by_counts(n, c, lambda n, c: at_least(least, n, c, k), at_least=k)


def mgpass_at_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """Mean of G-Pass@k over tau from one half to one, per task, [T].

    ``(2/k) sum of P(at least i pass)`` over i from ``ceil(k/2) + 1`` to k.
    """
    n, c = pass_counts(rewards, by, threshold)
    return by_counts(n, c, lambda n, c: float(Fraction(2, k) * _beyond(ceil(k / 2), n, c, k)), at_least=k)


def needed(tau: float, k: int) -> int:
    """How many of k samples must pass: at least one, and at least the share tau, which is read as a decimal.

    >>> needed(0.55, 100), needed(0.14, 50), needed(0.28, 25)  # as binary floats: 56, 8 and 8
    (55, 7, 7)
    """
    return max(1, ceil(Fraction(repr(tau)) * k))


def at_least(least: int, n: int, c: int, k: int) -> float:
    """Chance of at least ``least`` passes among k of n samples, c of which pass, rounded once."""
    return float(_tail(least, n, c, k))


def _beyond(half: int, n: int, c: int, k: int) -> Fraction:
    """The expected number of passes above ``half``: the sum of the tails beyond it, each draw looked at once."""
    ways = sum((i - half) * comb(c, i) * comb(n - c, k - i) for i in range(half + 1, min(c, k) + 1))
    return Fraction(ways, comb(n, k))


def _tail(least: int, n: int, c: int, k: int) -> Fraction:
    return Fraction(sum(comb(c, i) * comb(n - c, k - i) for i in range(least, min(c, k) + 1)), comb(n, k))


def _enough(passes: Ints, k: int, tau: float) -> Floats:
    return (passes >= needed(tau, k)).astype(float)


def _above_half(passes: Ints, k: int) -> Floats:
    return 2 / k * np.maximum(passes - ceil(k / 2), 0)


GPASS_AT_K = Metric(
    "gpass@{k}",
    gpass_at_k,
    mean,
    params={"k": int, "tau": 0.5, "threshold": PASS_THRESHOLD},
    range=UNIT,
    extremes=partial(of_passes, gpass_at_k, _enough),
)
MGPASS_AT_K = Metric(
    "mgpass@{k}",
    mgpass_at_k,
    mean,
    params={"k": int, "threshold": PASS_THRESHOLD},
    range=UNIT,
    extremes=partial(of_passes, mgpass_at_k, _above_half),
)
