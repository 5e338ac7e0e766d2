"""Tasks in clusters: the part of the grid in which the units are clusters, not tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

import numpy as np

from bench.simulations.grid import MEANS, Cell, World, judged
from bench.simulations.rule import Floats, Ints, of_clusters

CLUSTERS = (5, 10, 20, 50)
MEAN_SIZE, LARGEST = 10, 22  # tasks in an even cluster; in the largest uneven cluster
ICCS = (0.0, 0.2, 0.5)  # share of the cluster's chance in the variance of one sample
WITHIN = 0.2  # share of the task's chance in the remaining variance


def cluster_cells(
    replicates: int,
    rng: np.random.Generator,
    *,
    clusters: Sequence[int] = CLUSTERS,
    means: Sequence[float] = MEANS,
    repeats: Sequence[int] = (1, 4),
    iccs: Sequence[float] = ICCS,
) -> Iterator[Cell]:
    """Tasks in clusters that share a chance; binary rewards."""
    for units in clusters:
        for kind in ("even clusters", "uneven clusters"):
            sizes = cluster_sizes(units, kind)
            for mean in means:
                for samples in repeats:
                    for icc in iccs:
                        sums = cluster_sums(sizes, mean, samples, icc, replicates, rng)
                        world = World(kind, "mean_reward", units, mean, str(samples), icc)
                        stderr = true_stderr(sizes, mean, samples, icc)
                        yield judged(world, mean, stderr, of_clusters(sums, sizes))


def cluster_sizes(units: int, kind: str) -> Ints:
    """The number of tasks in each cluster: always ten, or evenly spread from 1 to 22."""
    if kind == "even clusters":
        return np.full(units, MEAN_SIZE)
    return np.rint(np.linspace(1, LARGEST, units)).astype(np.int64)


def true_stderr(sizes: Ints, mean: float, samples: int, icc: float) -> float:
    """The standard error of the mean over tasks; larger clusters do not reduce the clusters' part of it."""
    whole, tasks = mean * (1 - mean), float(sizes.sum())
    own = (1 - icc) * (WITHIN + (1 - WITHIN) / samples)
    return sqrt(whole * (icc * float((sizes**2).sum()) + own * tasks)) / tasks


def cluster_sums(
    sizes: Ints, mean: float, samples: int, icc: float, replicates: int, rng: np.random.Generator
) -> Floats:
    """The sum of the task values in each cluster, [R, G]: draws clusters' chances, tasks' chances, and passes."""
    same = np.full((replicates, len(sizes)), mean)
    chances = same if icc == 0 else _beta(same, 1 / icc - 1, rng)
    if samples == 1:  # the chance of a task and its only sample are a single Bernoulli draw
        return rng.binomial(sizes, chances).astype(np.float64)
    by_task = _beta(np.repeat(chances, sizes, axis=1), 1 / WITHIN - 1, rng)
    values = rng.binomial(samples, by_task) / samples
    return np.add.reduceat(values, np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=1)


def _beta(mean: Floats, size: float, rng: np.random.Generator) -> Floats:
    mean = np.clip(mean, 1e-12, 1 - 1e-12)
    return rng.beta(mean * size, (1 - mean) * size)
