"""The limits of intervals: worlds for which the default interval is not made."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, sqrt

import numpy as np
from scipy.stats import betabinom

from bench.simulations.grid import MEANS, SAMPLES, TASKS, UNEVEN, Cell, World, judged, law_of
from bench.simulations.rule import of_clusters, t_ends


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
    """Cells of pass_rate if easy tasks have more samples: 1 sample, and 7 more with the task's own chance."""
    counts, chance = SAMPLES[UNEVEN], 0.5
    n = np.concatenate([np.full(count + 1, count) for count in counts])
    c = np.concatenate([np.arange(count + 1) for count in counts])
    most = max(counts)
    for units in TASKS:
        for mean in MEANS:
            # n - 1 passes of 7 and c passes of n have the same chance: together n - 1 + c of 7 + n
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
