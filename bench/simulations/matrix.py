"""Two equal models on several benchmarks: how often their mean, or any single benchmark, is called different.

The formulas are those of `stats.paired` and `stats.suite`, for all replicates at once; a test compares them. What a
claim on the mean must survive, missing rollouts and unseen losses on some of the benchmarks, is decided by the
program's own function, replicate by replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from scipy.special import stdtr

from bench.simulations.cells import Cell, Sums, simulated
from bench.simulations.paired_rule import LEVEL
from bench.simulations.report import filled, percent
from bench.simulations.rule import Floats
from calipers.stats.claims import Evidence, decide, unseen
from calipers.stats.paired import paired, units_of
from calipers.stats.suite import joined_evidence

DECISIONS = 4_000  # replicates of each cell of the decided mean
SUITES = ((100, 100, 100), (30, 30, 30), (50, 200, 500))
LOST = 0.5  # the share of the new model's failures that are lost on the first benchmark
STEADY = 0.95  # the reward that the old model has on every task of a lopsided benchmark
UNIT = (0.0, 1.0)
DECIDED_KEPT = 0.006  # above 2.5 %, as for the mean on complete data

REPLICATES = 8_000
SIZES = (
    (100,) * 5,
    (20,) * 5,
    (10,) * 5,
    (10, 20, 50, 200, 500),
    (10, 10, 500),
    (5,) * 8,
    (2, 3, 100, 100),
    (30, 30),
    (1000, 10),
)
SAMPLES = 4
# tolerances above the level: the excess of the floored t and of the t test themselves in fair worlds
MEAN_KEPT, SINGLE_KEPT = 0.0065, 0.0115

Draw = Callable[[int, int, np.random.Generator], Floats]
"""Differences of task values, [R, T], of so many replicates and tasks."""


@dataclass(frozen=True, slots=True)
class World:
    """The laws from which the values of both models are drawn; the benchmarks use them in turn."""

    name: str
    laws: tuple[Draw, ...]
    fair: bool = True  # both models draw from the same law


def passes(chance: float) -> Draw:
    """One sample per task, which both models pass with this chance."""

    def draw(replicates: int, tasks: int, rng: np.random.Generator) -> Floats:
        first, second = (rng.random((replicates, tasks)) < chance for _ in range(2))
        return second.astype(np.float64) - first

    return draw


def sampled(a: float, b: float) -> Draw:
    """Four samples per task, whose chance is Beta(a, b)."""

    def draw(replicates: int, tasks: int, rng: np.random.Generator) -> Floats:
        chance = rng.beta(a, b, (replicates, tasks))
        return (rng.binomial(SAMPLES, chance) - rng.binomial(SAMPLES, chance)) / SAMPLES

    return draw


def graded(replicates: int, tasks: int, rng: np.random.Generator) -> Floats:
    """Normal rewards around 0.5, clipped to [0, 1]."""
    first, second = (np.clip(rng.normal(0.5, 0.2, (replicates, tasks)), 0, 1) for _ in range(2))
    return second - first


def steady_and_sharp(replicates: int, tasks: int, rng: np.random.Generator) -> Floats:
    """Both pass with chance 0.98: one in four samples per task, the other in one, so that it passes a task or not."""
    steady = rng.binomial(SAMPLES, 0.98, (replicates, tasks)) / SAMPLES
    return (rng.random((replicates, tasks)) < 0.98) - steady


WORLDS = (
    World("0/1, chance 0.5", (passes(0.5),)),
    World("0/1, chance 0.95", (passes(0.95),)),
    World("0/1, chance 0.99", (passes(0.99),)),
    World("0/1, chance 0.02", (passes(0.02),)),
    World("4 samples, Beta(2, 2)", (sampled(2, 2),)),
    World("4 samples, Beta(0.3, 0.3)", (sampled(0.3, 0.3),)),
    World("graded", (graded,)),
    World("mixed", (passes(0.5), passes(0.95), passes(0.02), sampled(2, 2), graded)),
    World("one steady, the other all or nothing, 0.98", (steady_and_sharp,), fair=False),
)


def p_values(differences: list[Floats]) -> tuple[Floats, Floats]:
    """The p-value of the mean over benchmarks, [R], and of each benchmark, [R, G], from its differences [R, T]."""
    count = len(differences)
    values = np.stack([some.mean(axis=1) for some in differences], axis=1)
    sizes = np.array([some.shape[1] for some in differences])
    squares = np.stack(
        [
            some.var(axis=1, ddof=1) / some.shape[1] + (np.abs(some).max(axis=1) / some.shape[1] / 2) ** 2
            for some in differences
        ],
        axis=1,
    )
    freedom = np.maximum(sizes - 1, 1)
    whole = squares.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = 2 * stdtr(freedom, -np.abs(values) / np.sqrt(squares))
        together = whole**2 / (squares**2 / freedom).sum(axis=1)
        mean = 2 * stdtr(together, -np.abs(values.mean(axis=1)) * count / np.sqrt(whole))
    return np.where(whole > 0, mean, 1.0), np.where(squares > 0, alone, 1.0)


def levels(world: World, sizes: tuple[int, ...], replicates: int, rng: np.random.Generator) -> tuple[float, float]:
    """How often the mean, and how often any single benchmark (after Holm), is called different."""
    differences = [world.laws[at % len(world.laws)](replicates, size, rng) for at, size in enumerate(sizes)]
    mean, alone = p_values(differences)
    return float((mean <= LEVEL).mean()), float((alone.min(axis=1) * len(sizes) <= LEVEL).mean())


def complete(tasks: int, rng: np.random.Generator) -> Evidence:
    """Two equal models with one sample a task, whose chance is Beta(0.8, 0.8); nothing is missing."""
    return _filled(*_two_equal(tasks, rng), lost=np.zeros(tasks, dtype=bool))


def losing(tasks: int, rng: np.random.Generator) -> Evidence:
    """The same, but half of the new model's failures are lost."""
    new, old = _two_equal(tasks, rng)
    return _filled(new, old, (new == 0) & (rng.random(tasks) < LOST))


def lopsided(tasks: int, rng: np.random.Generator) -> Evidence:
    """The old model has 0.95 on every task, and the new one passes a task with that chance."""
    new, old = (rng.random(tasks) < STEADY).astype(np.float64), np.full(tasks, STEADY)
    difference = paired(new - old, limits=UNIT)
    return Evidence(difference, difference, unseen=unseen(new, old, units_of(new - old), UNIT))


def _two_equal(tasks: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    chance = rng.beta(0.8, 0.8, tasks)
    return (rng.random(tasks) < chance).astype(np.float64), (rng.random(tasks) < chance).astype(np.float64)


def _filled(new: Floats, old: Floats, lost: np.ndarray) -> Evidence:
    """The evidence if these rollouts of the new model are lost."""
    observed = paired((new - old)[~lost], limits=UNIT)
    if not lost.any():
        return Evidence(observed, observed)
    against, favour = (paired(np.where(lost, end, new) - old, limits=UNIT) for end in UNIT)
    return Evidence(observed, observed, (against, favour))


Law = Callable[[int, np.random.Generator], Evidence]
MEANS: dict[str, tuple[Law, ...]] = {
    "complete": (complete,) * 3,
    "half of B's failures lost on one": (losing, complete, complete),
    "half of B's failures lost on all": (losing,) * 3,
    "A steady at 0.95 on one": (lopsided, complete, complete),
    "A steady at 0.95 on all": (lopsided,) * 3,
}  # the worlds of the decided mean: the law of each of three benchmarks


def decided(rng: np.random.Generator, replicates: int, laws: tuple[Law, ...], sizes: tuple[int, ...]) -> Sums:
    """How often the mean of equal models is called better, as observed and by the program's decision."""
    sums = {"observed": 0.0, "better": 0.0, "worse": 0.0}
    for _ in range(replicates):
        parts = {str(at): law(size, rng) for at, (law, size) in enumerate(zip(laws, sizes, strict=True))}
        decision = decide(joined_evidence(parts))
        sums["observed"] += decision.as_observed == "better"
        sums["better"] += decision.word == "better"
        sums["worse"] += decision.word == "worse"
    return sums


def means_decided(fewer: int, seed: int) -> tuple[list[str], list[str]]:
    """The lines of the table of decided means, and a sentence for each promise that was not kept."""
    cells = [
        Cell(f"{name} {sizes}", DECISIONS, partial(decided, laws=laws, sizes=sizes))
        for name, laws in MEANS.items()
        for sizes in SUITES
    ]
    tallies = simulated("matrix", cells, seed, fewer)
    replicates = max(tally.replicates for tally in tallies.values())
    nominal = LEVEL / 2
    error = 1.96 * sqrt(nominal * (1 - nominal) / replicates)
    said = (
        "What a claim on the mean of three benchmarks must survive is decided on their joined evidence. Equal models, "
        f'false "better" in per cent of {replicates:,} replicates (nominal 2.5, error {percent(error)}), as observed '
        "-> decided:\n"
    )
    titles = [" + ".join(map(str, sizes)) for sizes in SUITES]
    lines = [filled(said), f"| world | {' | '.join(titles)} tasks |", f"|---|{'---|' * len(SUITES)}"]
    unkept = []
    for name in MEANS:
        shown = []
        for sizes in SUITES:
            tally = tallies[f"{name} {sizes}"]
            shown.append(f"{percent(tally.share('observed'))} -> {percent(tally.share('better'))}")
            worst = max(tally.share("better"), tally.share("worse"))
            if worst > nominal + DECIDED_KEPT + error:
                unkept.append(f"matrix: {name}, {sizes}: {percent(worst)} %")
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return lines, unkept


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    replicates = REPLICATES // fewer
    rng = np.random.default_rng([seed, 15])
    said = (
        "In a matrix of two models, the mean over benchmarks is one test (`satterthwaite_t`), and the tests of single "
        f"benchmarks are adjusted below it (Holm). The table has false claims in per cent of {replicates:,} replicates "
        "with equal models, on average / at worst over nine sets of two to eight benchmarks with 2 to 1,000 tasks "
        "each, of equal and of unequal size:\n"
    )
    lines = [filled(said), "| models | the mean | any single benchmark |", "|---|---|---|"]
    unkept = []
    error = sqrt(LEVEL * (1 - LEVEL) / replicates)
    for world in WORLDS:
        found = np.array([levels(world, sizes, replicates, rng) for sizes in SIZES])
        mean, single = (f"{percent(float(some.mean()))} / {percent(float(some.max()))}" for some in found.T)
        lines.append(f"| {world.name} | {mean} | {single} |")
        for what, worst, kept in zip(("mean", "single"), found.max(axis=0), (MEAN_KEPT, SINGLE_KEPT), strict=True):
            if world.fair and worst > LEVEL + kept + error:
                unkept.append(f"{world.name}: {what} {percent(float(worst))} %")
    lines += ["", filled(
        "The last row is the limit of the paired test alone: a loss that is not in the data widens nothing. A claim "
        "must also survive unseen losses (below), and a note names benchmarks where one more task, lost outright, "
        "would undo a verdict.\n"
    ).rstrip("\n")]  # fmt: skip
    of_means, unkept_means = means_decided(fewer, seed)
    return "\n".join([*lines, "", *of_means]) + "\n", [*unkept, *unkept_means]
