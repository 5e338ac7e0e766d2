"""The bounds of pass@K that need no law of chances: how often they hold the truth, and how wide they are.

In each world, T tasks have n samples each. Their chances follow a law that need not be the beta law that
`calipers curve` fits. The band of that law is given for comparison. Both come from functions that the program calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np

from bench.simulations.cells import Cell, Sums, Tally, simulated
from bench.simulations.report import filled, percent
from bench.simulations.rule import CONFIDENCE, Floats
from calipers.stats.extrapolation import extrapolate
from calipers.stats.free_bounds import ends_of_counts

REPLICATES = 300
BLOCK = 25
PROMISED = 0.95

Law = Callable[[np.random.Generator, int], Floats]
"""The chances of so many tasks."""


def beta(a: float, b: float, rng: np.random.Generator, tasks: int) -> Floats:
    """Chances from Beta(a, b)."""
    return rng.beta(a, b, tasks)


def logit_normal(mean: float, deviation: float, rng: np.random.Generator, tasks: int) -> Floats:
    """Chances whose logit is normal."""
    return 1 / (1 + np.exp(-rng.normal(mean, deviation, tasks)))


def halves(low: float, high: float, rng: np.random.Generator, tasks: int) -> Floats:
    """Each task is hard or easy by the toss of a coin."""
    return np.where(rng.random(tasks) < 0.5, low, high)


def steady(chance: float, rng: np.random.Generator, tasks: int) -> Floats:
    """All tasks have one chance."""
    return np.full(tasks, chance)


def never_or_even(share: float, rng: np.random.Generator, tasks: int) -> Floats:
    """A share of tasks is never solved; the chances of the others are even between 0 and 1."""
    return np.where(rng.random(tasks) < share, 0.0, rng.random(tasks))


@dataclass(frozen=True, slots=True)
class World:
    """A law of chances, and the samples from which pass@k is bounded."""

    name: str
    law: Law
    tasks: int
    samples: int
    k: int
    truth: float  # pass@k

    @property
    def key(self) -> str:
        """Its name with its sizes."""
        return f"{self.name}, T = {self.tasks}, {self.samples} to {self.k}"


def some_pass_of_beta(a: float, b: float, k: int) -> float:
    """pass@k of chances from Beta(a, b): 1 - B(a, b + k)/B(a, b)."""
    steps = np.arange(k)
    return float(1 - np.prod((b + steps) / (a + b + steps)))


def some_pass_of_logit_normal(mean: float, deviation: float, k: int) -> float:
    """pass@k of chances whose logit is normal, by Gauss-Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    chances = 1 / (1 + np.exp(-(mean + deviation * points)))
    return float((weights * (1 - (1 - chances) ** k)).sum() / weights.sum())


def some_pass_of(chances: Sequence[float], k: int) -> float:
    """pass@k of chances that are equally frequent."""
    return float(np.mean(1 - (1 - np.array(chances)) ** k))


def _beta_world(a: float, b: float, tasks: int, samples: int, k: int) -> World:
    return World(f"Beta({a:g}, {b:g})", partial(beta, a, b), tasks, samples, k, some_pass_of_beta(a, b, k))


def _halves_world(low: float, high: float, tasks: int, samples: int, k: int) -> World:
    name = f"half at {low:g}, half at {high:g}"
    return World(name, partial(halves, low, high), tasks, samples, k, some_pass_of([low, high], k))


WORLDS = (
    _beta_world(0.3, 0.7, 100, 4, 16),
    _beta_world(0.3, 0.7, 300, 8, 64),
    _beta_world(0.3, 3, 100, 8, 64),
    _beta_world(2, 2, 100, 4, 16),
    World("logit-normal(-2, 2)", partial(logit_normal, -2, 2), 100, 8, 64, some_pass_of_logit_normal(-2, 2, 64)),
    _halves_world(0.02, 0.6, 100, 4, 32),
    _halves_world(0.005, 0.7, 200, 8, 64),
    _halves_world(0.005, 0.7, 200, 8, 16),
    _halves_world(0.05, 0.9, 100, 4, 16),
    World("all at .001", partial(steady, 0.001), 100, 8, 64, some_pass_of([0.001], 64)),
    World("30 % never, else even", partial(never_or_even, 0.3), 30, 4, 16, 0.7 * some_pass_of_beta(1, 1, 16)),
)


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The table for the page, and a sentence for each promise that was not kept."""
    cells = [Cell(world.key, REPLICATES, partial(_replicates, world), BLOCK) for world in WORLDS]
    found = simulated("free_bounds", cells, seed, fewer)
    return _text(found, seed), _unkept(found)


def _replicates(world: World, rng: np.random.Generator, replicates: int) -> Sums:
    """How often the bounds, and the band of the beta law, hold the truth; and the sum of the widths of both."""
    sums = dict.fromkeys(("given", "held", "width", "law given", "law held", "law width"), 0.0)
    for _ in range(replicates):
        passes = rng.binomial(world.samples, world.law(rng, world.tasks))
        ends = ends_of_counts(np.bincount(passes, minlength=world.samples + 1), [world.k], CONFIDENCE)
        band = extrapolate(np.full(world.tasks, world.samples), passes, [world.k], confidence=CONFIDENCE)
        point = band.points.get(("pass@k", world.k))
        if ends is not None:
            (low, high) = ends[0]
            sums["given"] += 1
            sums["held"] += low <= world.truth <= high
            sums["width"] += high - low
        if point is not None:
            low, high = point.ends
            sums["law given"] += 1
            sums["law held"] += low <= world.truth <= high
            sums["law width"] += high - low
    return sums


def _unkept(found: Mapping[str, Tally]) -> list[str]:
    said = []
    for name, tally in found.items():
        given, held = tally.sums.get("given", 0.0), tally.sums.get("held", 0.0)
        if not given:
            said.append(f"{name}: no bounds at all")
            continue
        covered = held / given
        if covered < PROMISED - sqrt(PROMISED * (1 - PROMISED) / given):
            said.append(f"{name}: the bounds cover {percent(covered)} %")
    return said


def _text(found: Mapping[str, Tally], seed: int) -> str:
    replicates = next(iter(found.values())).replicates
    error = sqrt(PROMISED * (1 - PROMISED) / replicates)
    head = filled(
        f"Written by `make bench-statistics`: {len(WORLDS)} scenarios, seed {seed}, {replicates:,} replicates each "
        f"(Monte Carlo error {percent(error)} points at a coverage of {percent(PROMISED)} %). Each entry is the "
        "coverage of the 95 % bounds or bands that are given, in per cent; their mean width; and the share that is not "
        "given, in per cent:\n"
    )
    lines = ["| chances | tasks | samples to k | whatever the law | beta law |", "|---|---|---|---|---|"]
    for world in WORLDS:
        tally = found[world.key]
        shown = [_shown(tally, ""), _shown(tally, "law ")]
        lines.append(f"| {world.name} | {world.tasks} | {world.samples} to {world.k} | {' | '.join(shown)} |")
    return f"{head}\n" + "\n".join(lines) + "\n"


def _shown(tally: Tally, prefix: str) -> str:
    given = tally.sums.get(f"{prefix}given", 0.0)
    absent = percent(1 - given / tally.replicates)
    if not given:
        return f"–; {absent}"
    held, width = tally.sums[f"{prefix}held"] / given, tally.sums[f"{prefix}width"] / given
    return f"{percent(held)}; {width:.2f}; {absent}"
