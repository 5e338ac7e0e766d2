"""The paired tests for many replicates at once, as ``make bench-statistics`` simulates them.

It follows `calipers.stats.paired` step by step, with arrays of replicates in place of one pair of runs.
tests/stats/test_paired_levels.py checks that the two agree to twelve digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, gammaln, stdtr

from bench.simulations.rule import Floats, Ints, Spreads, default_ends

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Pairs:
    """The statistics of every replicate that the tests need, [R] each; as in `calipers.stats.paired.Units`."""

    value: Floats  # D
    variance: Floats  # squared standard error, n - 1 over units
    biggest: Floats  # the largest contribution of a unit
    effective_units: Floats  # U
    doubt: float = 1.0
    differing: Floats | None = None  # number of units whose difference is not 0
    weighed: Floats | None = None  # the same, weighted by size; never larger


def of_differences(differences: Floats, tally: Ints | None = None) -> Pairs:
    """The statistics of replicates of T tasks, from their differences [R, T], or from counts [R, C] of their values."""
    if tally is None:
        tasks = differences.shape[1]
        value = differences.mean(axis=1)
        pulls = ((differences - value[:, None]) ** 2).sum(axis=1) / tasks**2
        largest = np.abs(differences).max(axis=1)
        differing = np.count_nonzero(differences, axis=1)
        weighed = _weighed(np.abs(differences).sum(axis=1), (differences**2).sum(axis=1))
    else:
        tasks = int(tally[0].sum())
        value = tally @ differences / tasks
        pulls = (tally @ differences**2 - tasks * value**2) / tasks**2
        pulls = np.maximum(pulls, 0.0)
        largest = np.where(tally > 0, np.abs(differences), 0.0).max(axis=1)
        differing = tally @ (differences != 0)
        often = tally.astype(np.float64)
        weighed = _weighed(often @ np.abs(differences), often @ differences**2)
    effective = np.full(len(value), float(tasks))
    variance = tasks / (tasks - 1) * pulls
    return Pairs(value, variance, largest / tasks, effective, 1.0, differing.astype(np.float64), weighed)


def of_cluster_sums(sums: Floats, sizes: Ints) -> Pairs:
    """The statistics of replicates with clusters of ``sizes`` [G] tasks, from the sums of their differences [R, G]."""
    units, tasks = len(sizes), int(sizes.sum())
    value = sums.sum(axis=1) / tasks
    pulls = (((sums - sizes * value[:, None]) / tasks) ** 2).sum(axis=1)
    effective = tasks**2 / float((sizes**2).sum())
    biggest = np.abs(sums).max(axis=1) / tasks
    doubt = (1 + effective / tasks) / 2
    differing = np.count_nonzero(sums, axis=1).astype(np.float64)
    weighed = _weighed(np.abs(sums).sum(axis=1), (sums**2).sum(axis=1))
    return Pairs(value, units / (units - 1) * pulls, biggest, np.full(len(sums), effective), doubt, differing, weighed)


def of_rates(first: Floats, second: Floats, tally: Ints) -> Pairs:
    """The statistics of a difference of pooled rates: passes and samples [C, 2] of both runs, with counts [R, C].

    The difference of a task is the excess of its passes over the pooled rate in one run, minus that in the other. So
    more samples with the same rate are not a difference.
    """
    tasks = tally.sum(axis=1)
    one, two = tally @ first, tally @ second  # [R, 2]
    rates = one[:, 0] / one[:, 1], two[:, 0] / two[:, 1]
    moments = np.zeros(len(tally))
    columns = (first[:, 0], first[:, 1], second[:, 0], second[:, 1])
    factors = (1 / one[:, 1], -rates[0] / one[:, 1], -1 / two[:, 1], rates[1] / two[:, 1])
    for left, by in zip(columns, factors, strict=True):
        for right, times in zip(columns, factors, strict=True):
            moments += by * times * (tally @ (left * right))
    pulls = first[:, 0] / one[:, 1:] - second[:, 0] / two[:, 1:]
    shares = (first[:, 1] / one[:, 1:] + second[:, 1] / two[:, 1:]) / 2
    between = ((rates[0] + rates[1]) / 2)[:, None]
    unequal = first[:, 0] * second[:, 1] != second[:, 0] * first[:, 1]
    apart = unequal * (pulls - between * (first[:, 1] / one[:, 1:] - second[:, 1] / two[:, 1:]))
    return Pairs(
        rates[0] - rates[1],
        tasks / (tasks - 1) * np.maximum(moments, 0.0),
        np.where(tally > 0, np.abs(pulls), 0.0).max(axis=1),
        1 / (tally * shares**2).sum(axis=1),
        1.0,
        tally @ unequal.astype(np.float64),
        _weighed((tally * np.abs(apart)).sum(axis=1), (tally * apart**2).sum(axis=1)),
    )


def floored_p(pairs: Pairs) -> Floats:
    """The two-sided p-value of the default test."""
    return _t(pairs, np.sqrt(pairs.variance + (pairs.biggest / 2) ** 2))


def plain_p(pairs: Pairs) -> Floats:
    """The paired t test without a floor; p is 0 if all pairs have the same difference."""
    return _t(pairs, np.sqrt(pairs.variance))


def strict_rejects(pairs: Pairs, level: float = LEVEL) -> NDArray[np.bool_]:
    """Whether 0 is outside of the default interval of differences, which are values on [-1, 1]."""
    spreads = Spreads((pairs.value + 1) / 2, pairs.variance / 4, pairs.effective_units, pairs.doubt)
    low, high = default_ends(spreads, 1 - level)
    return (low > 0.5) | (high < 0.5)


def mid_p(first_only: Ints, second_only: Ints) -> tuple[Floats, Floats]:
    """The p-values of McNemar's test, exact and mid-p, [R] each."""
    n, fewer = first_only + second_only, np.minimum(first_only, second_only)
    exact = 2 * bdtr(fewer, n, 0.5)
    at = np.exp(gammaln(n + 1) - gammaln(fewer + 1) - gammaln(n - fewer + 1) - n * np.log(2))
    return np.minimum(exact, 1.0), np.minimum(exact - at, 1.0)


def _weighed(sizes: Floats, squares: Floats) -> Floats:
    """``(sum |d|)^2 / sum d^2``: the number of differing pairs, if all differences have the same size."""
    there = squares > 0
    return np.where(there, sizes**2 / np.where(there, squares, 1.0), 0.0)


def _t(pairs: Pairs, error: Floats) -> Floats:
    freedom = np.maximum(1.0, pairs.effective_units - 1)
    size = np.abs(pairs.value)
    flat = error <= 1e-12 * np.maximum(size, 1e-300)  # equal differences, up to rounding
    t = np.where(flat, np.inf, size / np.where(flat, 1.0, error))
    return np.where((size == 0) & flat, 1.0, 2 * stdtr(freedom, -t))
