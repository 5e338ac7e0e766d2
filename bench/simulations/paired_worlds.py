"""The laws of the tasks of two runs, for the worlds in which the runs are compared."""

from __future__ import annotations

from math import comb

import numpy as np
from scipy.special import betaln

from bench.simulations.clusters import WITHIN
from bench.simulations.rule import Floats, Ints

ICC = 0.5  # share of the cluster's chance in the variance of one sample
WILD = 0.5  # a + b of the chances in a run that passes tasks nearly always or nearly never


def joint(samples: int, mean: float, chance: float | None, others: int | None = None) -> Floats:
    """The chance of c passes in one run and d in the other on the same task, [n + 1, m + 1]."""
    others = samples if others is None else others
    if chance is None:
        return np.outer(binomial(samples, mean), binomial(others, mean))
    a, b = mean * chance, (1 - mean) * chance
    c, d = np.arange(samples + 1)[:, None], np.arange(others + 1)[None]
    ways = np.outer([comb(samples, i) for i in range(samples + 1)], [comb(others, i) for i in range(others + 1)])
    return np.asarray(ways * np.exp(betaln(a + c + d, b + samples + others - c - d) - betaln(a, b)))


def binomial(samples: int, mean: float) -> Floats:
    """The chances of 0 to n passes, [n + 1]."""
    return np.array([comb(samples, c) * mean**c * (1 - mean) ** (samples - c) for c in range(samples + 1)])


def wild_passes(samples: int, mean: float, world: str) -> Floats:
    """The chances of 0 to n passes of a task in the run that is not steady, [n + 1]."""
    if world == "skewed":
        return joint(samples, mean, WILD, 0)[:, 0]
    law = np.zeros(samples + 1)
    law[[0, -1]] = 1 - mean, mean
    return law


def wild_rewards(mean: float, fine: float, world: str, size: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Real rewards of a whole population in the run that is not steady."""
    if world == "split":
        passing = rng.permutation(size[0]) < round(mean * size[0])
        return np.repeat(passing[:, None].astype(np.float64), size[1], axis=1)
    return beta(beta(np.full((size[0], 1), mean), WILD, rng) * np.ones(size[1]), fine, rng)


def cluster_values(
    sizes: Ints, mean: float, samples: int, fine: float | None, replicates: int, rng: np.random.Generator
) -> Floats:
    """The task values of one run, [R, T]: draws the clusters' chances, the tasks' chances, and the samples."""
    chances = beta(np.full((replicates, len(sizes)), mean), 1 / ICC - 1, rng)
    by_task = beta(np.repeat(chances, sizes, axis=1), 1 / WITHIN - 1, rng)
    if fine is None:
        return np.asarray(rng.binomial(samples, by_task) / samples)
    whole: Floats = np.mean([beta(by_task, fine, rng) for _ in range(samples)], axis=0)
    return whole


def shifted(samples: int, difference: float) -> tuple[Floats, Floats, float]:
    """The chances of the differences [C] in a law with this mean, the differences, and their variance.

    The tasks of one run have chances spread evenly from 0.1 to 0.9 minus the difference. Those of the first run are
    higher by the difference, plus or minus a tenth in alternating tasks.
    """
    law = np.zeros((samples + 1, samples + 1))
    second = np.linspace(0.1, 0.9 - difference, 65)
    for chance in second:
        for more in (-0.1, 0.1):
            law += np.outer(binomial(samples, chance + difference + more), binomial(samples, chance))
    law = law.ravel() / law.sum()
    passes = np.arange(samples + 1)
    values = ((passes[:, None] - passes) / samples).ravel()
    return law, values, float(law @ values**2 - (law @ values) ** 2)


def beta(mean: Floats, size: float, rng: np.random.Generator) -> Floats:
    """Draws from beta laws with these means and a + b = ``size``."""
    mean = np.clip(mean, 1e-12, 1 - 1e-12)
    return rng.beta(mean * size, (1 - mean) * size)
