"""Worlds in which two runs are compared: how often the tests find a difference if there is none, and if there is one.

In fair worlds both runs draw from one law: each task has a chance, and both runs sample it. In skewed worlds the means
are equal, but one run is steady and the other passes tasks (nearly) always or never. In clustered worlds each run has
its own effect for every cluster. In worlds with a difference, the share of replicates that find it is compared with the
power that the plan promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.simulations.clusters import cluster_sizes
from bench.simulations.grid import CHANCES, FINE, POPULATION, SAMPLES, UNEVEN, real_population
from bench.simulations.paired_rule import (
    LEVEL,
    Pairs,
    floored_p,
    mid_p,
    of_cluster_sums,
    of_differences,
    of_rates,
    plain_p,
    strict_rejects,
)
from bench.simulations.paired_worlds import binomial, cluster_values, joint, shifted, wild_passes, wild_rewards
from bench.simulations.rule import Floats, Ints
from calipers.stats.power import power_of, tasks_needed

TASKS = (10, 30, 100, 1000)
MEANS = (0.1, 0.5, 0.9, 0.98)
REPEATS = (1, 4)
CLUSTERS = 50
MANY_DIFFER = 20
POWERS = (0.5, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Test:
    """How often each test rejects at the 5 % level, in one world without a difference."""

    world: str  # fair, skewed, split, clusters
    kind: str  # binary, real, pass_rate
    tasks: int
    mean: float
    samples: str
    differing: float  # mean number of differing pairs or clusters; for rates, of pairs that differ as rates
    t: float
    floored: float
    strict: float
    weighed: float = 0.0  # the same, weighted by size: the mean of (sum |d|)^2 / sum d^2
    exact: float | None = None  # McNemar, one binary sample per task
    mid: float | None = None
    naive: float | None = None  # the t test over tasks, if clusters are the units


@dataclass(frozen=True, slots=True)
class Promise:
    """The power that a plan promises, and the share of replicates that found the difference."""

    tasks: int
    samples: int
    difference: float
    promised: float
    found: float


def fair_tests(replicates: int, rng: np.random.Generator) -> Iterator[Test]:
    """Tests of two runs from the same law."""
    for tasks in TASKS:
        for mean in MEANS:
            for samples in REPEATS:
                for chance in CHANCES:
                    yield binary_test(tasks, mean, samples, joint(samples, mean, chance), replicates, rng)
            for chance in CHANCES:
                yield rate_test(tasks, mean, chance, replicates // 4, rng)
    for mean in MEANS:
        for chance in CHANCES:
            for fine in FINE:
                rewards = real_population(mean, chance, fine, rng)
                for samples in REPEATS:
                    runs = rewards[:, :samples], rewards[:, samples : 2 * samples]
                    differences = runs[0].mean(axis=1) - runs[1].mean(axis=1)
                    # the law is symmetric, so its finite sample is made symmetric
                    both = np.concatenate([differences, -differences])
                    for tasks in TASKS:
                        yield drawn_test("fair", both, tasks, mean, samples, replicates // 4, rng)


def skewed_tests(replicates: int, rng: np.random.Generator) -> Iterator[Test]:
    """Tests with equal means: one chance for all tasks in the first run, and chances near 0 or 1 in the second.

    In the skewed world the chances come from a beta law with a + b = 0.5; in the split world they are 0 and 1.
    """
    for world in ("skewed", "split"):
        for tasks in TASKS:
            for mean in MEANS:
                for samples in REPEATS:
                    law = np.outer(binomial(samples, mean), wild_passes(samples, mean, world))
                    yield binary_test(tasks, mean, samples, law, replicates, rng, world)
        for mean in MEANS:
            for fine in FINE:
                size = (POPULATION, max(REPEATS))
                steady = rng.beta(fine * mean, fine * (1 - mean), size=size)
                wild = wild_rewards(mean, fine, world, size, rng)
                for samples in REPEATS:
                    differences = steady[:, :samples].mean(axis=1) - wild[:, :samples].mean(axis=1)
                    for tasks in TASKS:
                        yield drawn_test(
                            world, differences - differences.mean(), tasks, mean, samples, replicates // 4, rng
                        )


def cluster_tests(replicates: int, rng: np.random.Generator) -> Iterator[Test]:
    """50 clusters of 10 tasks, or of 1 to 22 tasks, whose tasks share an effect in each run."""
    for kind in ("even clusters", "uneven clusters"):
        sizes = cluster_sizes(CLUSTERS, kind)
        for mean in (0.5, 0.9):
            for samples in REPEATS:
                for fine in (None, FINE[0]):
                    yield cluster_test(sizes, mean, samples, fine, replicates, rng)


def promises(replicates: int, rng: np.random.Generator) -> Iterator[Promise]:
    """A plan asks for a number of tasks; then the default test is tried with that number."""
    for samples in REPEATS:
        for difference in (0.03, 0.1, 0.2):
            law, values, variance = shifted(samples, difference)
            largest = float(np.abs(values[law > 0]).max())
            for power in POWERS:
                tasks = tasks_needed(variance, difference, power, largest=largest)
                if tasks is None or not 30 <= tasks <= 20_000:
                    continue
                tally = rng.multinomial(tasks, law, size=replicates)
                found = float((floored_p(of_differences(values, tally)) <= LEVEL).mean())
                promised = power_of(variance, difference, tasks, largest=largest)
                yield Promise(tasks, samples, difference, promised, found)


def binary_test(
    tasks: int,
    mean: float,
    samples: int,
    law: Floats,
    replicates: int,
    rng: np.random.Generator,
    world: str = "fair",
) -> Test:
    """Tasks as counts of their outcomes (c_1, c_2), with the chances ``law`` [n + 1, n + 1]."""
    passes = np.arange(samples + 1)
    values = ((passes[:, None] - passes) / samples).ravel()
    tally = rng.multinomial(tasks, law.ravel() / law.sum(), size=replicates)
    pairs = of_differences(values, tally)
    exact = mid = None
    if samples == 1:
        both = mid_p(tally[:, 2], tally[:, 1])
        exact, mid = (float((p <= LEVEL).mean()) for p in both)
    return _test(world, "binary", tasks, mean, str(samples), pairs, exact, mid)


def drawn_test(
    world: str, differences: Floats, tasks: int, mean: float, samples: int, replicates: int, rng: np.random.Generator
) -> Test:
    """Tasks drawn with replacement from a large population of differences."""
    drawn = differences[rng.integers(0, len(differences), size=(replicates, tasks))]
    return _test(world, "real", tasks, mean, str(samples), of_differences(drawn))


def rate_test(
    tasks: int,
    mean: float,
    chance: float | None,
    replicates: int,
    rng: np.random.Generator,
    samples: str = UNEVEN,
    counts: Sequence[int] = SAMPLES[UNEVEN],
) -> Test:
    """The pooled pass_rate with 1 to 8 samples, or with other counts, in each run."""
    rows, law = [], []
    for n in counts:
        for m in counts:
            together = joint(n, mean, chance, m)
            for c, d in np.ndindex(*together.shape):
                rows.append((c, n, d, m))
                law.append(together[c, d])
    outcomes, weights = np.array(rows, dtype=np.float64), np.array(law)
    tally = rng.multinomial(tasks, weights / weights.sum(), size=replicates)
    return _test("fair", "pass_rate", tasks, mean, samples, of_rates(outcomes[:, :2], outcomes[:, 2:], tally))


def cluster_test(
    sizes: Ints, mean: float, samples: int, fine: float | None, replicates: int, rng: np.random.Generator
) -> Test:
    """Both runs draw the chances of clusters, the chances of tasks, and the samples from the same law."""
    step, tasks = 500, int(sizes.sum())
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    kept = []
    naive = 0
    for first in range(0, replicates, step):
        some = min(step, replicates - first)
        runs = [cluster_values(sizes, mean, samples, fine, some, rng) for _ in range(2)]
        differences = runs[0] - runs[1]
        kept.append(np.add.reduceat(differences, starts, axis=1))
        naive += int((plain_p(of_differences(differences)) <= LEVEL).sum())
    pairs = of_cluster_sums(np.concatenate(kept), sizes)
    even = "even" if len(set(sizes.tolist())) == 1 else "uneven"
    kind = f"{even}, {'binary' if fine is None else 'real'}"
    return _test("clusters", kind, tasks, mean, str(samples), pairs, naive=naive / replicates)


def _test(
    world: str,
    kind: str,
    tasks: int,
    mean: float,
    samples: str,
    pairs: Pairs,
    exact: float | None = None,
    mid: float | None = None,
    naive: float | None = None,
) -> Test:
    differing, weighed = (
        0.0 if counted is None else float(counted.mean()) for counted in (pairs.differing, pairs.weighed)
    )
    plain, floored = (float((p <= LEVEL).mean()) for p in (plain_p(pairs), floored_p(pairs)))
    strict = float(strict_rejects(pairs).mean())
    return Test(world, kind, tasks, mean, samples, differing, plain, floored, strict, weighed, exact, mid, naive)


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of all comparisons."""

    tests: Sequence[Test]
    promises: Sequence[Promise]
    replicates: int  # with rewards of 0 and 1; real rewards, pooled rates and clusters have a quarter of it
    seed: int


def compared(replicates: int, seed: int) -> Compared:
    """Simulate all worlds; each part has its own stream of random numbers."""
    fair, skewed, clusters, planned = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(4))
    tests = [
        *fair_tests(replicates, fair),
        *skewed_tests(replicates, skewed),
        *cluster_tests(replicates // 4, clusters),
    ]
    return Compared(tests, list(promises(replicates, planned)), replicates, seed)
