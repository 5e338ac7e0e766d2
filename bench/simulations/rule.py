"""The default interval for many replicates at once, as ``make bench-statistics`` simulates it.

It follows `calipers.stats.intervals` step by step, with arrays of replicates in place of one set of tasks.
tests/stats/test_coverage.py checks that the two agree to twelve digits, so that the measured interval is the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit
from scipy.stats import binom

from calipers.stats.intervals import interval

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Ends: TypeAlias = tuple[Floats, Floats]
"""Lower and upper ends, [R] each."""

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Spreads:
    """The statistics of every replicate that the rule needs, [R] each; as in `calipers.stats.intervals.Spread`."""

    mean: Floats
    variance: Floats
    effective_units: Floats
    doubt: float


def of_tallies(tallies: Ints, values: Floats, weights: Floats) -> Spreads:
    """The statistics of replicates whose ``tallies`` [R, C] count tasks by value and weight, [C]; two tasks or more."""
    whole = tallies @ weights
    mean = (tallies @ (weights * values)) / whole
    tasks = tallies.sum(axis=1)
    pulls = (tallies * (weights * (values - mean[:, None])) ** 2).sum(axis=1) / whole**2
    return Spreads(mean, tasks / (tasks - 1) * pulls, whole**2 / (tallies @ weights**2), 1.0)


def of_clusters(sums: Floats, sizes: Ints) -> Spreads:
    """The statistics of replicates with clusters of ``sizes`` [G] tasks, whose values have the sums ``sums`` [R, G].

    Clusters of one task each are plain tasks.
    """
    units, tasks = len(sizes), int(sizes.sum())
    mean = sums.sum(axis=1) / tasks
    pulls = (((sums - sizes * mean[:, None]) / tasks) ** 2).sum(axis=1)
    effective = tasks**2 / float((sizes**2).sum())
    doubt = (1 + effective / tasks) / 2
    return Spreads(mean, units / (units - 1) * pulls, np.full(len(sums), effective), doubt)


def default_ends(spreads: Spreads, confidence: float = CONFIDENCE) -> Ends:
    """The default interval of values on [0, 1]."""
    m, units = spreads.mean, spreads.effective_units
    possible = np.maximum(m * (1 - m), 0.0)
    above = possible + spreads.variance + 1 / (4 * units)
    n = np.maximum(1.0, above / (spreads.variance + spreads.doubt / (4 * units**2)))
    steady = units / n
    normal = steady >= 1 - 1e-9
    freedom = np.maximum(1.0, (units - 1) / np.where(normal, 1.0, 1 - steady))
    q = np.where(normal, ndtri((1 + confidence) / 2), stdtrit(freedom, (1 + confidence) / 2))
    centre = (m + q**2 / (2 * n)) / (1 + q**2 / n)
    half = q / (1 + q**2 / n) * np.sqrt(possible / n + q**2 / (4 * n**2))
    low = np.where(m <= 0, 0.0, np.clip(centre - half, 0.0, m))
    high = np.where(m >= 1, 1.0, np.clip(centre + half, m, 1.0))
    return low, high


def t_ends(spreads: Spreads, confidence: float = CONFIDENCE) -> Ends:
    """The interval of values without a known range."""
    freedom = np.maximum(1.0, spreads.effective_units - 1)
    half = stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(spreads.variance)
    return spreads.mean - half, spreads.mean + half


@dataclass(frozen=True, slots=True)
class Known:
    """The coverage and the mean width of an interval over T tasks with values 0 or 1, computed without simulation."""

    coverage: float
    width: float


def known_default(tasks: int, truth: float) -> Known:
    """The default interval, computed with Calipers' own function for every possible number of passes."""
    ones = np.ones(tasks)
    values = np.tri(tasks + 1, tasks, -1)  # row i has i ones
    found = [interval(row, ones, CONFIDENCE, (0.0, 1.0)).ends for row in values]
    low, high = np.array([ends for ends in found if ends]).T
    return _known(low, high, tasks, truth)


def lower_end(passes: int, tasks: int) -> float:
    """The lower end of the default interval for this number of passes."""
    ends = interval((np.arange(tasks) < passes).astype(np.float64), np.ones(tasks), CONFIDENCE, (0.0, 1.0)).ends
    return ends[0] if ends else 0.0


def known_exact(tasks: int, truth: float) -> Known:
    """Clopper and Pearson's interval, which never has less coverage than its level, and is wider."""
    passes, tail = np.arange(tasks + 1), (1 - CONFIDENCE) / 2
    low, high = np.zeros(tasks + 1), np.ones(tasks + 1)
    low[1:] = betaincinv(passes[1:], tasks - passes[1:] + 1, tail)
    high[:-1] = betaincinv(passes[:-1] + 1, tasks - passes[:-1], 1 - tail)
    return _known(low, high, tasks, truth)


def _known(low: Floats, high: Floats, tasks: int, truth: float) -> Known:
    chance = binom.pmf(np.arange(tasks + 1), tasks, truth)
    return Known(float(chance @ ((low <= truth) & (truth <= high))), float(chance @ (high - low)))
