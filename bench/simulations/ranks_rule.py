"""Rank sets and the picked winner for many replicates at once, as ``make bench-statistics`` simulates them.

It follows `calipers.stats.ranks` for one sample of 0 or 1 per task. Then everything about a pair of runs follows from
counts, which are exact in 32 bits. tests/stats/test_ranks.py compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bench.simulations.rule import CONFIDENCE, Floats, Ints

Singles: TypeAlias = NDArray[np.float32]
CERTAIN = 1e-14
Z = float(ndtri((1 + CONFIDENCE) / 2))


def rank_sets(passes: Singles, signs: Singles, confidence: float = CONFIDENCE) -> tuple[Ints, Ints]:
    """The simultaneous rank sets of replicates of M runs on T tasks, low and high [R, M], from passes [R, M, T].

    All replicates share the ``signs`` [T, B].
    """
    _, runs, tasks = passes.shape
    together = (passes @ passes.transpose(0, 2, 1)).astype(np.float64)  # [R, M, M] tasks that both runs pass
    own = np.diagonal(together, axis1=1, axis2=2)
    differing = own[:, :, None] + own[:, None] - 2 * together
    value = (own[:, :, None] - own[:, None]) / tasks
    variance = (differing - tasks * value**2) / tasks / (tasks - 1)
    any_differs = differing > 0
    error = np.sqrt(np.where(any_differs, variance + 1 / (4 * tasks**2), 1.0))
    t = np.where(any_differs, value / error, 0.0)
    flipped = passes @ signs  # [R, M, B]
    active, shown = any_differs.copy(), np.zeros_like(any_differs)
    for replicate in range(len(passes)):
        while active[replicate].any():
            scale = np.where(active[replicate], 1 / np.sqrt(np.maximum(differing[replicate], 1)), 0.0)
            largest = _largest(flipped[replicate], scale.astype(np.float32))
            critical = _critical(largest, tasks, confidence)
            more = active[replicate] & (np.abs(t[replicate]) > critical)
            if not more.any():
                break
            shown[replicate] |= more
            active[replicate] &= ~more
    better = shown & (t > 0)
    return 1 + better.sum(axis=1), runs - better.sum(axis=2)


def _largest(flipped: Singles, scale: Singles) -> Singles:
    """The largest squared s over all pairs, [B], from sums [M, B] and the divisor of each pair, [M, M]."""
    runs, draws = flipped.shape
    found = np.zeros(draws, dtype=np.float32)
    room = np.empty((runs - 1, draws), dtype=np.float32)
    for apart in range(1, runs):  # pairs of runs with this difference of indices, so that no sum is copied
        factors = np.diagonal(scale, apart)
        if not factors.any():
            continue
        part = room[: runs - apart]
        np.subtract(flipped[apart:], flipped[:-apart], out=part)
        part *= factors[:, None]
        np.multiply(part, part, out=part)
        np.maximum(found, part.max(axis=0), out=found)
    return found


def _critical(largest: Singles, tasks: int, confidence: float) -> float:
    place = math.ceil(round(confidence * len(largest), 6)) - 1
    squared = float(np.partition(largest, place)[place])
    rest = 1 - squared / tasks
    return math.inf if rest <= 1e-6 else math.sqrt(squared * (tasks - 1) / tasks / rest)


@dataclass(frozen=True, slots=True)
class Winners:
    """The picked winner of each replicate, [R] each."""

    run: Ints
    bias: Floats
    plain: tuple[Floats, Floats]  # X -+ z s, as if it had not been picked
    bare: tuple[Floats, Floats]  # X - q s and X - bias + z s
    ends: tuple[Floats, Floats]  # Calipers' own interval, which knows the range


def winners(passes: Singles, standard: Floats, confidence: float = CONFIDENCE) -> Winners:
    """The best of M runs in every replicate, from passes [R, M, T]; they share ``standard`` normal numbers [M, B]."""
    count, _, tasks = passes.shape
    means = passes.mean(axis=2, dtype=np.float64)
    together = (passes @ passes.transpose(0, 2, 1)).astype(np.float64) / tasks
    covariance = (together - means[:, :, None] * means[:, None]) / (tasks - 1)
    root = _roots(covariance)
    drawn = root @ standard  # [R, M, B]
    errors = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0))
    spread = errors > CERTAIN
    sizes = np.where(spread[:, :, None], drawn / np.where(spread, errors, 1.0)[:, :, None], -np.inf)
    most = np.where(spread.any(axis=1)[:, None], sizes.max(axis=1), 0.0)
    level = (1 + confidence) / 2
    z = float(ndtri(level))
    q = np.maximum(np.quantile(most, level, axis=1), z)
    picked = np.argmax(means[:, :, None] + drawn, axis=1)  # [R, B]
    best = np.argmax(means, axis=1)
    at = np.arange(count)
    bias = (np.take_along_axis(drawn, picked[:, None], axis=1)[:, 0] - drawn[at, best]).mean(axis=1)
    value, own = means[at, best], errors[at, best]
    low, high = value - q * own, np.maximum(value - bias + z * own, value)
    centre = (value + q**2 / (2 * tasks)) / (1 + q**2 / tasks)
    half = q / (1 + q**2 / tasks) * np.sqrt(value * (1 - value) / tasks + q**2 / (4 * tasks**2))
    ends = np.clip(np.minimum(low, centre - half), 0, 1), np.clip(high, 0, 1)
    return Winners(best, bias, (value - z * own, value + z * own), (low, value - bias + z * own), ends)


def _roots(covariance: Floats) -> Floats:
    """Cholesky roots of many matrices, [R, M, M]; a run that depends linearly on earlier runs gets zeros."""
    root = np.zeros_like(covariance)
    for column in range(covariance.shape[1]):
        rest = covariance[:, column:, column].copy()
        for before in range(column):
            rest -= root[:, column:, before] * root[:, column, before, None]
        there = rest[:, 0] > CERTAIN * covariance[:, column, column]
        divisor = np.sqrt(np.where(there, rest[:, 0], 1.0))
        root[:, column:, column] = np.where(there[:, None], rest / divisor[:, None], 0.0)
    return root
