"""Pilots: how often the range of tasks that a plan prints contains the number of tasks that is needed.

A pilot has T tasks with K samples in each of two runs. The needed tasks are proportional to the variance V(k) of one
task's difference, and to nothing else that the pilot estimates. So the range contains the needed number if and only if
the interval of V(k) contains V(k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, sqrt

import numpy as np

from bench.simulations.report import filled, percent
from bench.simulations.rule import CONFIDENCE, Floats, Ints
from calipers.stats.power import Clusters, variance_ends

REPLICATES = 4_000
PROMISED = 0.9
PILOTS = ((30, 2), (60, 2), (60, 4), (200, 4))  # tasks and samples
CLUSTERED = ((30, 5), (60, 5))  # clusters, and tasks in each; uneven clusters have half of them 1 and half 9 tasks
SAMPLES = 4  # of each task in clusters
TRUTH = 4_000_000  # tasks for computing the true variances of a world
FAR = 10  # an interval whose ends differ by more than this factor says nothing

Chances = tuple[Floats, Floats]
World = Callable[[np.random.Generator, tuple[int, ...]], Chances]


@dataclass(frozen=True, slots=True)
class Cell:
    """The result for one world, one pilot, and one planned number of samples."""

    world: str
    units: int
    samples: int
    planned: float
    replicates: int
    covered: float
    untold: float  # share of pilots without a range
    ratio: float  # the median ratio of the upper to the lower end of V, where both are above 0


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and the cells whose coverage is too low."""
    plain, clustered, rare = (np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(3))
    cells = list(simulated(WORLDS, REPLICATES // fewer, plain))
    grouped = list(in_clusters(REPLICATES // fewer, clustered))
    limits = list(simulated(LIMITS, REPLICATES // fewer, rare))
    return _text(cells, grouped, limits, seed), [
        f"{cell.world}, {cell.units} x {cell.samples}, planned for {cell.planned:g}: the range holds the need in "
        f"{percent(cell.covered)} % of pilots"
        for cell in (*cells, *grouped)
        if cell.covered < PROMISED - sqrt(cell.covered * (1 - cell.covered) / cell.replicates)
    ]


def _uniform(effect: float) -> World:
    def chances(rng: np.random.Generator, shape: tuple[int, ...]) -> Chances:
        first = rng.random(shape)
        return first, np.clip(first + rng.normal(0, effect, shape), 0, 1) if effect else first

    return chances


def _ends(rng: np.random.Generator, shape: tuple[int, ...]) -> Chances:
    first = rng.beta(0.5, 0.5, shape)
    return first, np.clip(first + rng.normal(0, 0.3, shape), 0, 1)


def _rarely_broken(law: Callable[[np.random.Generator, tuple[int, ...]], Floats]) -> World:
    def chances(rng: np.random.Generator, shape: tuple[int, ...]) -> Chances:
        first = law(rng, shape)
        return first, np.where(rng.random(shape) < 0.05, 0.0, first)

    return chances


WORLDS: dict[str, World] = {
    "uniform probabilities, task effects of sd .12": _uniform(0.12),
    "uniform probabilities, no task effects": _uniform(0.0),
    "Beta(.5, .5), task effects of sd .3": _ends,
    "uniform probabilities, 5 % broken": _rarely_broken(lambda rng, shape: rng.random(shape)),
}
LIMITS: dict[str, World] = {  # rare and large losses among tasks that hardly vary, which a small pilot may not contain
    "Beta(9, 1), 5 % broken": _rarely_broken(lambda rng, shape: rng.beta(9, 1, shape)),
    "all at .98, 5 % broken": _rarely_broken(lambda rng, shape: np.full(shape, 0.98)),
}


@cache
def true_parts(world: str) -> tuple[float, float]:
    """``w^2`` and s of a world, from so many tasks that their error does not matter."""
    first, second = (WORLDS | LIMITS)[world](np.random.default_rng(1), (TRUTH,))
    return float((second - first).var()), float((first * (1 - first) + second * (1 - second)).mean())


def pilots(chances: Chances, samples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The differences of task means, and the variances of one sample of both runs together, for each task."""
    passes = [rng.binomial(samples, one) for one in chances]
    single = sum(c * (samples - c) / (samples * (samples - 1)) for c in passes)
    return (passes[1] - passes[0]) / samples, np.asarray(single)


def simulated(worlds: Mapping[str, World], replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Independent tasks: every world and pilot, planned for 1 sample, the pilot's number, 16, and infinitely many."""
    for world, chances in worlds.items():
        between, one = true_parts(world)
        for tasks, samples in PILOTS:
            differences, single = pilots(chances(rng, (replicates, tasks)), samples, rng)
            away = differences - differences.mean(axis=1, keepdims=True)
            for planned in (1, samples, 16, inf):
                sampling = (1 / planned - 1 / samples) * single
                ends = variance_ends(away**2 * tasks / (tasks - 1), sampling, tasks - 1.0, CONFIDENCE)
                yield _cell(world, tasks, samples, planned, ends, between + one / planned)


def in_clusters(replicates: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Tasks of a cluster that share an effect, and have a smaller one of their own."""
    for units, size in CLUSTERED:
        for kind in ("even", "uneven"):
            sizes = np.full(units, size) if kind == "even" else np.where(np.arange(units) % 2, 1, 2 * size - 1)
            of_task = np.repeat(np.arange(units), sizes)
            tasks, starts = len(of_task), np.concatenate([[0], np.cumsum(sizes)[:-1]])
            differences, single = pilots(_shared(rng, replicates, of_task), SAMPLES, rng)
            away = differences - differences.mean(axis=1, keepdims=True)
            pull = np.add.reduceat(away, starts, axis=1)
            squares = units / tasks * pull**2 * units / (units - 1)
            sums = units / tasks * np.add.reduceat(single, starts, axis=1)
            freedom = Clusters.of(of_task).units(tasks) - 1
            for planned in (1, SAMPLES, 16, inf):
                ends = variance_ends(squares, (1 / planned - 1 / SAMPLES) * sums, freedom, CONFIDENCE)
                truth = _shared_variance(sizes, planned)
                yield _cell(f"{kind} clusters", units, SAMPLES, planned, ends, truth)


EFFECT, OWN = 0.12, 0.06  # standard deviations of the effect that the tasks of a cluster share, and of each task's own


def _shared(rng: np.random.Generator, replicates: int, of_task: Ints) -> Chances:
    first = rng.random((replicates, len(of_task)))
    shared = rng.normal(0, EFFECT, (replicates, int(of_task.max()) + 1))[:, of_task]
    return first, np.clip(first + shared + rng.normal(0, OWN, first.shape), 0, 1)


@cache
def _shared_parts() -> tuple[float, float, float]:
    """The variance of a true difference, its covariance in a cluster, and the variance of one sample of both runs."""
    first, second = _shared(np.random.default_rng(1), TRUTH // 2, np.zeros(2, dtype=np.int64))
    covariance = np.cov((second - first).T)
    one = (first * (1 - first) + second * (1 - second)).mean()
    return float(covariance.diagonal().mean()), float(covariance[0, 1]), float(one)


def _shared_variance(sizes: Ints, planned: float) -> float:
    """T times the variance of the mean difference in the world of `_shared`."""
    whole, together, one = _shared_parts()
    heavy = float((sizes.astype(float) ** 2).sum()) / float(sizes.sum())
    return whole + together * (heavy - 1) + one / planned


def _cell(world: str, units: int, samples: int, planned: float, ends: tuple[Floats, Floats], truth: float) -> Cell:
    low, high = ends
    told = low > 0
    ratio = high[told] / low[told]
    return Cell(
        world,
        units,
        samples,
        planned,
        len(low),
        float(((low <= truth) & (truth <= high)).mean()),
        1 - float((ratio <= FAR).sum()) / len(low),
        float(np.median(ratio)) if len(ratio) else inf,
    )


def _text(cells: Sequence[Cell], grouped: Sequence[Cell], limits: Sequence[Cell], seed: int) -> str:
    head = filled(
        f"Written by `make bench-statistics`: {len(cells) + len(grouped) + len(limits)} cells, seed {seed}, "
        f'{cells[0].replicates:,} pilots per cell. "Covers" is how often the 95 % range contains the number of tasks '
        'needed, in per cent. "Undetermined" is the share of pilots that do not determine that number (a lower end '
        f"of 0, or ends that differ by a factor of more than {FAR}), in per cent. Each entry is for k = 1 / the "
        "pilot's / 16 / infinitely many samples per task:\n"
    )
    lines = [
        "| | " + " | ".join(f"{tasks} tasks x {samples}" for tasks, samples in PILOTS) + " |",
        "|---|" + "---|" * len(PILOTS),
    ]
    for world in WORLDS:
        for name, share in (("covers", "covered"), ("undetermined", "untold")):
            row = [
                " / ".join(
                    percent(getattr(cell, share))
                    for cell in cells
                    if (cell.world, cell.units, cell.samples) == (world, *pilot)
                )
                for pilot in PILOTS
            ]
            lines.append(f"| {world}: {name} | " + " | ".join(row) + " |")
    worst = min(cells, key=lambda cell: cell.covered)
    rarest = min(grouped, key=lambda cell: cell.covered)
    near = [cell.ratio for cell in cells if cell.planned <= cell.samples]
    tail = filled(
        f"The worst cell covers {percent(worst.covered)} %. For at most as many samples as the pilot has, the upper "
        f"end is {min(near):.1f} to {max(near):.1f} times the lower one (medians). For more samples, a small pilot "
        "usually does not determine the number of tasks. With clusters as units (30 and 60 of them, of 5 tasks each, "
        f"or of 1 and 9; {SAMPLES} samples, shared effects with an sd of {EFFECT:g}) the range covers "
        f"{percent(rarest.covered)} % at worst. **Rare and large losses** among tasks that otherwise hardly vary are "
        "the limit: a small pilot may not contain one. Coverage of the worst k, in per cent: "
        f"{'; '.join(_limit(name, limits) for name in LIMITS)}.\n"
    )
    return f"{head}\n" + "\n".join(lines) + f"\n\n{tail}"


def _limit(world: str, limits: Sequence[Cell]) -> str:
    held = {
        pilot: [cell.covered for cell in limits if (cell.world, cell.units, cell.samples) == (world, *pilot)]
        for pilot in PILOTS
    }
    return f"{world}: " + ", ".join(
        f"{percent(min(some))} ({tasks} x {samples})" for (tasks, samples), some in held.items()
    )
