"""The grid of worlds in which the default interval is tested, and its coverage in each.

A world defines how tasks are drawn; its true value is known. A replicate is one evaluation in that world: a number of
tasks, sampled, and an interval. The coverage is the share of replicates whose interval contains the true value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import betabinom, binom

from bench.simulations.rule import CONFIDENCE, Floats, Ints, Spreads, default_ends, of_clusters, of_tallies

Bools: TypeAlias = NDArray[np.bool_]

TASKS = (5, 10, 30, 100, 300, 1000)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.98)
UNEVEN = "1 to 8"
SAMPLES: dict[str, tuple[int, ...]] = {"1": (1,), "4": (4,), "16": (16,), UNEVEN: tuple(range(1, 9))}
CHANCES = (None, 4.0, 0.5)  # a + b of the beta law of the tasks' chances; None: all tasks have the same chance
FINE = (4.0, 50.0)  # a + b of the beta law of one task's real rewards
POPULATION = 1 << 16  # tasks in place of infinitely many, if a law has no closed form


@dataclass(frozen=True, slots=True)
class World:
    """The coordinates of a cell; ``chance`` is a + b, or the ICC of clusters."""

    kind: str  # binary, real, even clusters, uneven clusters
    metric: str
    units: int  # tasks, or clusters
    mean: float
    samples: str
    chance: float | None
    fine: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """The coverage of the interval in one world."""

    world: World
    truth: float
    replicates: int  # those with an interval: two defined tasks or more
    coverage: float
    width: float  # mean width, relative to the interval with the true standard error
    zero_width: int
    outside: int

    @property
    def rare(self) -> float:
        """The expected number of passes or of failures, whichever is smaller."""
        return self.world.units * min(self.truth, 1 - self.truth)


@dataclass(frozen=True, slots=True)
class Law:
    """All possible outcomes of a task, [C], with their chance, value and weight in the metric."""

    chance: Floats
    values: Floats
    weights: Floats
    defined: Bools

    @property
    def truth(self) -> float:
        """The metric over infinitely many tasks."""
        share = self.chance * self.weights * self.defined
        return float(share @ self.values / share.sum())

    @property
    def deviation(self) -> float:
        """The true standard error for one task; for T tasks, it is divided by the square root of T."""
        share = self.chance * self.weights * self.defined
        return sqrt(float((share * self.weights) @ (self.values - self.truth) ** 2)) / float(share.sum())

    def spreads(self, tallies: Ints) -> Spreads:
        """The statistics of the replicates with two defined tasks or more; others have no interval."""
        kept = tallies[:, self.defined]
        return of_tallies(kept[kept.sum(axis=1) >= 2], self.values[self.defined], self.weights[self.defined])


def binary_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Cells with rewards of 0 and 1."""
    for units in TASKS:
        for mean in MEANS:
            for samples, counts in SAMPLES.items():
                for chance in CHANCES:
                    world = World("binary", "", units, mean, samples, chance)
                    yield from tallied_cells(
                        world, metrics_of(samples), outcomes(counts, mean, chance), replicates, rng
                    )


def tallied_cells(
    world: World,
    metrics: Sequence[str],
    possible: tuple[Ints, Ints, Floats],
    replicates: int,
    rng: np.random.Generator,
) -> Iterator[Cell]:
    """A cell for each metric. Tasks are drawn as counts of their outcomes, which is all that the metrics need."""
    n, c, probability = possible
    tallies = rng.multinomial(world.units, probability, size=replicates)
    for metric in metrics:
        law = law_of(metric, n, c, probability)
        stderr = law.deviation / sqrt(world.units)
        yield judged(replace(world, metric=metric), law.truth, stderr, law.spreads(tallies))


def real_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Cells with rewards between 0 and 1."""
    for mean in MEANS:
        for chance in CHANCES:
            for fine in FINE:
                rewards = real_population(mean, chance, fine, rng)
                for samples in ("1", "4", "16"):
                    world = World("real", "mean_reward", 0, mean, samples, chance, fine)
                    yield from drawn_cells(world, rewards[:, : int(samples)].mean(axis=1), TASKS, replicates, rng)


def drawn_cells(
    world: World, values: Floats, tasks: Sequence[int], replicates: int, rng: np.random.Generator
) -> Iterator[Cell]:
    """A cell for each number of tasks, drawn with replacement from a large population of task values."""
    truth, deviation = float(values.mean()), float(values.std())
    for units in tasks:
        drawn = values[rng.integers(0, len(values), size=(replicates, units))]
        spreads = of_clusters(drawn, np.ones(units, dtype=np.int64))
        yield judged(replace(world, units=units), truth, deviation / sqrt(units), spreads)


def judged(world: World, truth: float, stderr: float, spreads: Spreads) -> Cell:
    """The cell of a world, from its true value, its true standard error and its replicates."""
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
    """The metrics that differ from each other for this number of samples."""
    more = ("pass@2", "pass^2", "pass@4", "pass^4") if samples != "1" else ()
    return ("mean_reward", *more, *(("pass_rate",) if samples == UNEVEN else ()))


def outcomes(counts: tuple[int, ...], mean: float, chance: float | None) -> tuple[Ints, Ints, Floats]:
    """The samples, the passes and the chance of each outcome of a task, [C] each."""
    n = np.concatenate([np.full(count + 1, count) for count in counts])
    c = np.concatenate([np.arange(count + 1) for count in counts])
    law = np.asarray(binom.pmf(c, n, mean) if chance is None else betabinom.pmf(c, n, *_ab(mean, chance)))
    return n, c, law / law.sum()


def law_of(metric: str, n: Ints, c: Ints, probability: Floats) -> Law:
    """The law of a metric's task values for these outcomes."""
    everything = np.ones(len(n), dtype=np.bool_)
    if metric in ("mean_reward", "pass_rate"):
        return Law(probability, c / n, (n if metric == "pass_rate" else everything).astype(np.float64), everything)
    k, failing = int(metric[-1]), "@" in metric
    drawn = n - c if failing else c
    share = np.array([comb(int(d), k) / max(comb(int(m), k), 1) for d, m in zip(drawn, n, strict=True)])
    return Law(probability, 1 - share if failing else share, np.ones(len(n)), n >= k)


def _ab(mean: float, size: float) -> tuple[float, float]:
    return mean * size, (1 - mean) * size


def real_population(mean: float, chance: float | None, fine: float, rng: np.random.Generator) -> Floats:
    """Rewards of a whole population, [tasks, 16]."""
    drawn = np.full(POPULATION, mean) if chance is None else rng.beta(*_ab(mean, chance), size=POPULATION)
    chances = np.clip(drawn, 1e-12, 1 - 1e-12)[:, None]  # a beta law needs both parameters above 0
    return rng.beta(fine * chances, fine * (1 - chances), size=(POPULATION, 16))
