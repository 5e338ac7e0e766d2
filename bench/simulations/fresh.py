"""A fresh grid: the default interval and the default test in worlds that were not used for choosing any constant.

It has other numbers of tasks, means and samples, chances from other laws or of two kinds of tasks, and real rewards of
other shapes. The rules and the functions that simulate them are those of the first grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from bench.simulations.clusters import cluster_cells, cluster_sizes
from bench.simulations.fresh_report import fresh_text, unkept
from bench.simulations.grid import POPULATION, Cell, World, drawn_cells, outcomes, tallied_cells
from bench.simulations.paired import Test, binary_test, cluster_test, drawn_test, rate_test
from bench.simulations.paired_worlds import beta, binomial, joint
from bench.simulations.rule import Floats, Ints

TASKS = (7, 20, 60, 250)
MEANS = (0.05, 0.3, 0.7, 0.95)
CHANCES = (None, 10.0, 1.5)  # a + b of the beta law of the tasks' chances; None: all tasks have the same chance
TWO_KINDS = "two kinds of tasks"
REPEATS = (1, 2, 8)
UNEVEN = "1 to 5"
SAMPLES: dict[str, tuple[int, ...]] = {**{str(n): (n,) for n in REPEATS}, UNEVEN: tuple(range(1, 6))}
METRICS: dict[str, tuple[str, ...]] = {
    "1": ("mean_reward",),
    "2": ("mean_reward", "pass@2", "pass^2"),
    "8": ("mean_reward", "pass@3", "pass^3", "pass@8", "pass^8"),
    UNEVEN: ("mean_reward", "pass_rate", "pass@3", "pass^3"),
}
FINE = (1.5, 10.0)  # a + b of the beta law of one task's real rewards
CHECKS = 5  # a partial reward is the share of these checks that passed
CLUSTERS, ICCS = (7, 15, 30, 80), (0.1, 0.35, 0.7)
PAIRED_CLUSTERS = (15, 30)
REPLICATES = {"binary": 10_000, "real": 4_000, "clusters": 4_000, "levels": 10_000}


@dataclass(frozen=True, slots=True)
class Fresh:
    """The results of the fresh grid."""

    cells: Sequence[Cell]
    tests: Sequence[Test]
    replicates: dict[str, int]
    seed: int


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """Coverage and level compared with those of the first grid, and a sentence for each promise that was not kept."""
    found = simulated({name: count // fewer for name, count in REPLICATES.items()}, seed)
    return fresh_text(found), unkept(found)


def simulated(replicates: dict[str, int], seed: int) -> Fresh:
    """Simulate all worlds; each part has its own stream of random numbers."""
    streams = np.random.SeedSequence([seed, 1]).spawn(6)  # different from those of the first grid
    binary, real, clusters, fair, skewed, grouped = (np.random.default_rng(stream) for stream in streams)
    cells = [
        *binary_cells(replicates["binary"], binary),
        *real_cells(replicates["real"], real),
        *cluster_cells(replicates["clusters"], clusters, clusters=CLUSTERS, means=MEANS, repeats=(1, 2), iccs=ICCS),
    ]
    tests = [
        *fair_tests(replicates["levels"], fair),
        *skewed_tests(replicates["levels"], skewed),
        *cluster_tests(replicates["levels"], grouped),
    ]
    return Fresh(cells, tests, replicates, seed)


def kinds(mean: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Two kinds of tasks, (share, chance) each: two thirds pass a quarter as often as the mean, the rest 2.5 times.

    Mirrored above 1/2.
    """
    rarer = min(mean, 1 - mean)
    low, high = rarer / 4, 2.5 * rarer
    return ((2 / 3, low), (1 / 3, high)) if mean <= 0.5 else ((2 / 3, 1 - low), (1 / 3, 1 - high))


def binary_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Cells with rewards of 0 and 1."""
    for units in TASKS:
        for mean in MEANS:
            for samples, counts in SAMPLES.items():
                laws = {spread(chance): outcomes(counts, mean, chance) for chance in CHANCES}
                laws[TWO_KINDS] = mixed_outcomes(counts, mean)
                for tasks, law in laws.items():
                    world = World(f"binary, {tasks}", "", units, mean, samples, None)
                    yield from tallied_cells(world, METRICS[samples], law, replicates, rng)


def spread(chance: float | None) -> str:
    """How the chances of tasks vary, in words."""
    return "all tasks alike" if chance is None else f"a + b = {chance:g}"


def mixed_outcomes(counts: Sequence[int], mean: float) -> tuple[Ints, Ints, Floats]:
    """The samples, the passes and the chance of each outcome of a task that is of one of two kinds, [C] each."""
    n, c, _ = outcomes(tuple(counts), mean, None)
    law = np.asarray(sum(share * binom.pmf(c, n, chance) for share, chance in kinds(mean)))
    return n, c, law / law.sum()


def real_cells(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Cells with rewards between 0 and 1."""
    for mean in MEANS:
        for tasks, chances in task_chances(mean, rng).items():
            for shape, rewards in shapes(chances, rng).items():
                for samples in REPEATS:
                    world = World(f"real ({shape}), {tasks}", "mean_reward", 0, mean, str(samples), None)
                    yield from drawn_cells(world, rewards[:, :samples].mean(axis=1), TASKS, replicates, rng)


def task_chances(mean: float, rng: np.random.Generator) -> dict[str, Floats]:
    """The chances of a whole population of tasks, [tasks], by how they vary."""
    same = np.full(POPULATION, mean)
    found = {spread(chance): same if chance is None else beta(same, chance, rng) for chance in CHANCES}
    (share, one), (_, other) = kinds(mean)
    return {**found, TWO_KINDS: np.where(np.arange(POPULATION) < share * POPULATION, one, other)}


def shapes(chances: Floats, rng: np.random.Generator, samples: int = max(REPEATS)) -> dict[str, Floats]:
    """Real rewards of tasks with these mean rewards, [tasks, samples] each, by shape.

    The shapes: a grade from a beta law; the share of five checks that passed; and 0 in every fifth sample (at most in
    half of what the mean leaves), else a grade.
    """
    wanted = np.repeat(chances[:, None], samples, axis=1)
    nothing = np.minimum(0.2, (1 - wanted) / 2)
    zero = rng.random(wanted.shape) < nothing
    return {
        **{f"a + b = {fine:g}": beta(wanted, fine, rng) for fine in FINE},
        "checks": rng.binomial(CHECKS, wanted) / CHECKS,
        "0 or a grade": np.where(zero, 0.0, beta(wanted / (1 - nothing), FINE[1], rng)),
    }


def fair_tests(replicates: int, rng: np.random.Generator) -> Iterator[Test]:
    """Tests of two runs from the same law."""
    for tasks in TASKS:
        for mean in MEANS:
            for samples in REPEATS:
                for law in (*(joint(samples, mean, chance) for chance in CHANCES), mixed_joint(samples, mean)):
                    yield binary_test(tasks, mean, samples, law, replicates, rng)
            for chance in CHANCES:
                yield rate_test(tasks, mean, chance, replicates, rng, UNEVEN, SAMPLES[UNEVEN])
    for mean in MEANS:
        for chances in task_chances(mean, rng).values():
            one, two = (shapes(chances, rng) for _ in range(2))
            for shape in one:
                for samples in (1, 2):
                    differences = one[shape][:, :samples].mean(axis=1) - two[shape][:, :samples].mean(axis=1)
                    # the law is symmetric, so its finite sample is made symmetric
                    both = np.concatenate([differences, -differences])
                    for tasks in TASKS:
                        yield drawn_test("fair", both, tasks, mean, samples, replicates, rng)


def mixed_joint(samples: int, mean: float) -> Floats:
    """The chance of c passes in one run and d in the other on a task of one of two kinds, [n + 1, n + 1]."""
    laws = [share * np.outer(*[binomial(samples, chance)] * 2) for share, chance in kinds(mean)]
    return np.asarray(laws[0] + laws[1])


def skewed_tests(replicates: int, rng: np.random.Generator) -> Iterator[Test]:
    """Tests with equal means: all tasks have one chance in the first run, and widely varying ones in the second."""
    for tasks in TASKS:
        for mean in MEANS:
            for samples in REPEATS:
                steady = binomial(samples, mean)
                wild = joint(samples, mean, CHANCES[-1], 0)[:, 0]
                for law in (wild, mixed_joint(samples, mean).sum(axis=1)):
                    yield binary_test(tasks, mean, samples, np.outer(steady, law), replicates, rng, "skewed")
    for mean in MEANS:
        same = np.full(POPULATION, mean)
        calm = shapes(same, rng)
        wilder = shapes(beta(same, CHANCES[-1], rng), rng)
        for shape in calm:
            for samples in (1, 2):
                differences = calm[shape][:, :samples].mean(axis=1) - wilder[shape][:, :samples].mean(axis=1)
                for tasks in TASKS:
                    yield drawn_test("skewed", differences - differences.mean(), tasks, mean, samples, replicates, rng)


def cluster_tests(replicates: int, rng: np.random.Generator) -> Iterator[Test]:
    """Clusters whose tasks share an effect in each run, with fewer clusters than in the first grid."""
    for units in PAIRED_CLUSTERS:
        for kind in ("even clusters", "uneven clusters"):
            for samples in (1, 2):
                yield cluster_test(cluster_sizes(units, kind), MEANS[1], samples, None, replicates, rng)
