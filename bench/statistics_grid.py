"""The grid of worlds in which the default interval is tried, and what became of it in each.

A world says how tasks come about; its true value is known. A replicate is one evaluation in that world: so many
tasks, sampled, and an interval. Coverage is the share of replicates whose interval holds the true value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import betabinom, binom

from bench.statistics_rule import CONFIDENCE, Floats, Ints, Spreads, default_ends, of_clusters, of_tallies, t_ends

Bools: TypeAlias = NDArray[np.bool_]

TASKS = (5, 10, 30, 100, 300, 1000)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.98)
UNEVEN = "1 to 8"
SAMPLES: dict[str, tuple[int, ...]] = {"1": (1,), "4": (4,), "16": (16,), UNEVEN: tuple(range(1, 9))}
CHANCES = (None, 4.0, 0.5)  # a + b of the beta law of the tasks' chances; None: all tasks alike
FINE = (4.0, 50.0)  # a + b of the beta law of one task's real rewards
CLUSTERS = (5, 10, 20, 50)
MEAN_SIZE, LARGEST = 10, 22  # tasks in an even cluster; in the largest of the uneven ones
ICCS = (0.0, 0.2, 0.5)
WITHIN = 0.2  # share of a task's chance in the variance that its cluster leaves over
POPULATION = 1 << 16  # tasks that stand for endlessly many, where a law has no closed form


@dataclass(frozen=True, slots=True)
class World:
    """The address of a cell; ``chance`` is a + b, or the ICC of clusters."""

    kind: str  # binary, real, even clusters, uneven clusters
    metric: str
    units: int  # tasks, or clusters
    mean: float
    samples: str
    chance: float | None
    fine: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of the interval in one world."""

    world: World
    truth: float
    replicates: int  # with an interval: two defined tasks or more
    coverage: float
    width: float  # mean width; the oracle, who knows the true standard error, has 1
    zero_width: int
    outside: int

    @property
    def rare(self) -> float:
        """Expected passes or failures, whichever are fewer."""
        return self.world.units * min(self.truth, 1 - self.truth)


@dataclass(frozen=True, slots=True)
class Law:
    """Every outcome a task can have, [C]: its chance, value and weight in the metric."""

    chance: Floats
    values: Floats
    weights: Floats
    defined: Bools

    @property
    def truth(self) -> float:
        """The metric over endlessly many tasks."""
        share = self.chance * self.weights * self.defined
        return float(share @ self.values / share.sum())

    @property
    def deviation(self) -> float:
        """The true standard error of one task; of T tasks, this over the root of T."""
        share = self.chance * self.weights * self.defined
        return sqrt(float((share * self.weights) @ (self.values - self.truth) ** 2)) / float(share.sum())

    def spreads(self, tallies: Ints) -> Spreads:
        """Of the replicates with two defined tasks or more; the others have no interval."""
        kept = tallies[:, self.defined]
        return of_tallies(kept[kept.sum(axis=1) >= 2], self.values[self.defined], self.weights[self.defined])


def binary_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Rewards of 0 and 1. Tasks are drawn as tallies of their outcomes, which is all the metrics read."""
    for units in TASKS:
        for mean in MEANS:
            for samples, counts in SAMPLES.items():
                for chance in CHANCES:
                    n, c, probability = outcomes(counts, mean, chance)
                    tallies = rng.multinomial(units, probability, size=replicates)
                    for metric in metrics_of(samples):
                        law = law_of(metric, n, c, probability)
                        world = World("binary", metric, units, mean, samples, chance)
                        yield judged(world, law.truth, law.deviation / sqrt(units), law.spreads(tallies))


def real_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Rewards between 0 and 1. Tasks are drawn with replacement from a large population with a mean of its own."""
    for mean in MEANS:
        for chance in CHANCES:
            for fine in FINE:
                rewards = real_population(mean, chance, fine, rng)
                for samples in ("1", "4", "16"):
                    values = rewards[:, : int(samples)].mean(axis=1)
                    truth, deviation = float(values.mean()), float(values.std())
                    for units in TASKS:
                        drawn = values[rng.integers(0, POPULATION, size=(replicates, units))]
                        spreads = of_clusters(drawn, np.ones(units, dtype=np.int64))
                        world = World("real", "mean_reward", units, mean, samples, chance, fine)
                        yield judged(world, truth, deviation / sqrt(units), spreads)


def cluster_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Tasks in clusters that share a chance; binary rewards."""
    for units in CLUSTERS:
        for kind in ("even clusters", "uneven clusters"):
            sizes = cluster_sizes(units, kind)
            for mean in MEANS:
                for samples in (1, 4):
                    for icc in ICCS:
                        sums = cluster_sums(sizes, mean, samples, icc, replicates, rng)
                        world = World(kind, "mean_reward", units, mean, str(samples), icc)
                        value = mean * (1 - mean) * (WITHIN + (1 - WITHIN) / samples) * (1 - between(samples, icc))
                        shared = mean * (1 - mean) * between(samples, icc)
                        variance = (shared * float((sizes**2).sum()) + value * sizes.sum()) / float(sizes.sum()) ** 2
                        yield judged(world, mean, sqrt(variance), of_clusters(sums, sizes))


def judged(world: World, truth: float, stderr: float, spreads: Spreads) -> Cell:
    """The cell of a world, given its true value, its true standard error and its replicates."""
    low, high = default_ends(spreads)
    return Cell(
        world,
        truth,
        len(low),
        float(((low <= truth) & (truth <= high)).mean()),
        float((high - low).mean()) / (2 * float(ndtri((1 + CONFIDENCE) / 2)) * stderr),
        int((high <= low).sum()),
        int(((low < 0) | (high > 1) | (spreads.mean < low) | (spreads.mean > high)).sum()),
    )


def metrics_of(samples: str) -> tuple[str, ...]:
    """The metrics that say something of their own for that many samples."""
    more = ("pass@2", "pass^2", "pass@4", "pass^4") if samples != "1" else ()
    return ("mean_reward", *more, *(("pass_rate",) if samples == UNEVEN else ()))


def outcomes(counts: tuple[int, ...], mean: float, chance: float | None) -> tuple[Ints, Ints, Floats]:
    """Samples, passes and the chance of every outcome of a task, [C] each."""
    n = np.concatenate([np.full(count + 1, count) for count in counts])
    c = np.concatenate([np.arange(count + 1) for count in counts])
    if chance is None:
        law = binom.pmf(c, n, mean)
    else:
        law = betabinom.pmf(c, n, mean * chance, (1 - mean) * chance)
    return n, c, law / law.sum()


def law_of(metric: str, n: Ints, c: Ints, probability: Floats) -> Law:
    """What a metric makes of the outcomes of a task."""
    everything = np.ones(len(n), dtype=np.bool_)
    if metric in ("mean_reward", "pass_rate"):
        return Law(probability, c / n, (n if metric == "pass_rate" else everything).astype(np.float64), everything)
    k, failing = int(metric[-1]), "@" in metric
    drawn = n - c if failing else c
    share = np.array([comb(int(d), k) / max(comb(int(m), k), 1) for d, m in zip(drawn, n, strict=True)])
    return Law(probability, 1 - share if failing else share, np.ones(len(n)), n >= k)


def real_population(mean: float, chance: float | None, fine: float, rng: np.random.Generator) -> Floats:
    """Rewards of a whole population, [tasks, 16]."""
    if chance is None:
        chances = np.full(POPULATION, mean)
    else:
        chances = rng.beta(mean * chance, (1 - mean) * chance, size=POPULATION)
    chances = np.clip(chances, 1e-12, 1 - 1e-12)[:, None]  # a beta law needs both its numbers above 0
    return rng.beta(fine * chances, fine * (1 - chances), size=(POPULATION, 16))


def cluster_sizes(units: int, kind: str) -> Ints:
    """Tasks per cluster: ten each, or evenly spread from 1 to 22."""
    if kind == "even clusters":
        return np.full(units, MEAN_SIZE)
    return np.rint(np.linspace(1, LARGEST, units)).astype(np.int64)


def between(samples: int, icc: float) -> float:
    """Share of a cluster's chance in the variance of a sample, for that ICC of the task values."""
    within = WITHIN + (1 - WITHIN) / samples
    return icc * within / (1 - icc + icc * within)


def cluster_sums(
    sizes: Ints, mean: float, samples: int, icc: float, replicates: int, rng: np.random.Generator
) -> Floats:
    """Sums of the task values in each cluster, [R, G]: cluster chance, task chance, passes."""
    share, shape = between(samples, icc), (replicates, len(sizes))
    chances = np.full(shape, mean) if share == 0 else _beta(np.full(shape, mean), 1 / share - 1, rng)
    if samples == 1:  # the chance of a task and its only sample are one coin
        return rng.binomial(sizes, chances).astype(np.float64)
    by_task = _beta(np.repeat(chances, sizes, axis=1), 1 / WITHIN - 1, rng)
    values = rng.binomial(samples, by_task) / samples
    return np.add.reduceat(values, np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=1)


def _beta(mean: Floats, size: float, rng: np.random.Generator) -> Floats:
    mean = np.clip(mean, 1e-12, 1 - 1e-12)
    return rng.beta(mean * size, (1 - mean) * size)


def unbounded_coverage(law: str, units: int, replicates: int, rng: np.random.Generator) -> float:
    """Coverage of the t interval for rewards without a range, with a long right tail."""
    covered, done = 0, 0
    while done < replicates:
        batch = min(replicates - done, 4_000)
        exponential = law == "exponential"
        shape = (batch, units)
        drawn = rng.standard_exponential(shape) if exponential else np.exp(rng.standard_normal(shape))
        low, high = t_ends(of_clusters(drawn, np.ones(units, dtype=np.int64)))
        truth = 1.0 if exponential else float(np.exp(0.5))
        covered += int(((low <= truth) & (truth <= high)).sum())
        done += batch
    return covered / replicates


def following_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass_rate when easy tasks are sampled more: 1 sample, and 7 more with the task's own chance each."""
    counts, chance = SAMPLES[UNEVEN], 0.5
    n = np.concatenate([np.full(count + 1, count) for count in counts])
    c = np.concatenate([np.arange(count + 1) for count in counts])
    most = max(counts)
    for units in TASKS:
        for mean in MEANS:
            # n - 1 passes of 7 and c passes of n are draws with one chance: together n - 1 + c of 7 + n
            a, b = mean * chance, (1 - mean) * chance
            together = betabinom.pmf(n - 1 + c, most - 1 + n, a, b)
            ways = [
                comb(most - 1, m - 1) * comb(m, p) / comb(most - 1 + m, m - 1 + p)
                for m, p in zip(n.tolist(), c.tolist(), strict=True)
            ]
            probability = together * np.array(ways)
            law = law_of("pass_rate", n, c, probability / probability.sum())
            tallies = rng.multinomial(units, law.chance, size=replicates)
            world = World("following", "pass_rate", units, mean, UNEVEN, chance)
            yield judged(world, law.truth, law.deviation / sqrt(units), law.spreads(tallies))
