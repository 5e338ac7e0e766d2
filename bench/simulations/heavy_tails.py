"""Rewards without a range: the coverage of the default interval, and the level and power of verdicts on long tails.

Without a range nothing bounds values that were not seen, and no interval or test is valid for every distribution
(Bahadur and Savage 1956). These are the laws for which both were measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from bench.simulations.cells import Cell, Simulate, Sums, Tally, simulated
from calipers.rollouts.column import Floats
from calipers.stats.claims import Evidence, decide, unseen
from calipers.stats.intervals import interval
from calipers.stats.paired import apart, judged, units_of

REPLICATES = 4_000
LEVEL = 0.025  # of each side
TASKS = (30, 100, 300)
BLOCK = 200
KEPT_FROM = 100  # tasks from which the level is promised, if variances are finite

Rng: TypeAlias = np.random.Generator
Law = Callable[[int, Rng], Floats]


def steady(tasks: int, rng: Rng, *, spread: float) -> Floats:
    """Normal values with the mean 1."""
    return 1 + spread * rng.standard_normal(tasks)


def exponential(tasks: int, rng: Rng) -> Floats:
    """Exponential values with the mean 1."""
    return rng.standard_exponential(tasks)


def log_normal(tasks: int, rng: Rng, *, spread: float) -> Floats:
    """Log-normal values with the mean 1; ``spread`` is the standard deviation of their logarithm."""
    return rng.lognormal(-spread * spread / 2, spread, tasks)


def pareto(tasks: int, rng: Rng, *, alpha: float) -> Floats:
    """Pareto values with the mean 1; their variance is infinite if alpha is 2 or less."""
    return (1 + rng.pareto(alpha, tasks)) * (alpha - 1) / alpha


LAWS: dict[str, Law] = {
    "normal, sd .2": partial(steady, spread=0.2),
    "normal, sd .3": partial(steady, spread=0.3),
    "exponential": exponential,
    "log-normal .5": partial(log_normal, spread=0.5),
    "log-normal 1": partial(log_normal, spread=1.0),
    "log-normal 1.5": partial(log_normal, spread=1.5),
    "Pareto 3": partial(pareto, alpha=3.0),
    "Pareto 1.5": partial(pareto, alpha=1.5),
}
SINGLE = ("exponential", "log-normal 1", "log-normal 1.5", "Pareto 3", "Pareto 1.5")
CONSTANT = "constant"
PAIRS = (
    ("exponential", "exponential"),
    ("log-normal 1.5", "log-normal 1.5"),
    ("Pareto 1.5", "Pareto 1.5"),
    (CONSTANT, "log-normal 1.5"),
    ("normal, sd .2", "exponential"),
    ("normal, sd .2", "log-normal 1"),
    ("normal, sd .3", "log-normal 1.5"),
    ("log-normal .5", "log-normal 1"),
    ("log-normal .5", "log-normal 1.5"),
    ("normal, sd .2", "Pareto 3"),
    ("normal, sd .3", "Pareto 1.5"),
    ("Pareto 3", "Pareto 1.5"),
)  # equal means, independent in both runs; the second has the longer tail
INFINITE = "Pareto 1.5"  # its variance is infinite, and no level is promised
EFFECT = 2.8  # standard errors of a difference of normal values


def normal_gain(tasks: int, rng: Rng) -> tuple[Floats, Floats]:
    """Independent normal values, the new ones higher."""
    old = rng.standard_normal(tasks)
    return rng.standard_normal(tasks) + EFFECT * math.sqrt(2 / tasks), old


def t_gain(tasks: int, rng: Rng) -> tuple[Floats, Floats]:
    """Differences with a t distribution of 5 degrees of freedom, higher."""
    old = rng.standard_normal(tasks)
    return old + rng.standard_t(5, tasks) + EFFECT * math.sqrt(5 / 3 / tasks), old


def longer_times(tasks: int, rng: Rng, *, law: Law) -> tuple[Floats, Floats]:
    """Independent values, the new ones longer by a factor."""
    factor = 1 + 1.6 * EFFECT / math.sqrt(tasks)
    return factor * law(tasks, rng), law(tasks, rng)


def paired_times(tasks: int, rng: Rng, *, law: Law) -> tuple[Floats, Floats]:
    """The tasks are equally long in both runs, with noise of 20 %, and the new ones longer by a factor."""
    lengths = law(tasks, rng)
    noise = rng.lognormal(0.0, 0.2, (2, tasks))
    return (1 + 0.28 * EFFECT / math.sqrt(tasks)) * lengths * noise[0], lengths * noise[1]


POWERS: dict[str, Callable[[int, Rng], tuple[Floats, Floats]]] = {
    "normal": normal_gain,
    "t, 5 degrees of freedom": t_gain,
    "exponential times": partial(longer_times, law=exponential),
    "log-normal 1 times": partial(longer_times, law=partial(log_normal, spread=1.0)),
    "exponential times of the same tasks": partial(paired_times, law=exponential),
    "log-normal 1 times of the same tasks": partial(paired_times, law=partial(log_normal, spread=1.0)),
}


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    tallies = simulated("heavy_tails", _cells(), seed, fewer)
    return "\n".join([*_coverage(tallies), "", *_levels(tallies), "", *_powers(tallies)]), _unkept(tallies)


def covered(rng: Rng, replicates: int, *, law: str, tasks: int) -> Sums:
    """How often the default interval without a range contains the mean, 1, or lies below or above it."""
    sums = dict.fromkeys(("covered", "below", "above"), 0.0)
    weights = np.ones(tasks)
    for _ in range(replicates):
        ends = interval(LAWS[law](tasks, rng), weights, 0.95).ends
        assert ends is not None  # the values differ
        sums["below"] += ends[1] < 1
        sums["above"] += ends[0] > 1
        sums["covered"] += ends[0] <= 1 <= ends[1]
    return sums


def equal_means(rng: Rng, replicates: int, *, new: str, old: str, tasks: int) -> Sums:
    """Words about two runs with the same mean."""
    sums = _no_words()
    for _ in range(replicates):
        first = np.ones(tasks) if new == CONSTANT else LAWS[new](tasks, rng)
        _add_words(sums, first, LAWS[old](tasks, rng))
    return sums


def gains(rng: Rng, replicates: int, *, name: str, tasks: int) -> Sums:
    """Words about a new run whose mean is higher."""
    sums = _no_words()
    for _ in range(replicates):
        _add_words(sums, *POWERS[name](tasks, rng))
    return sums


def _no_words() -> Sums:
    return dict.fromkeys(("better", "worse", "better as observed", "worse as observed"), 0.0)


def _add_words(sums: Sums, new: Floats, old: Floats) -> None:
    units = units_of(apart(new, old))
    difference = judged(units, None, 0.95)
    decision = decide(Evidence(difference, difference, unseen=unseen(new, old, units, None)))
    if decision.word != "undecided":
        sums[decision.word] += 1
    if decision.as_observed != "undecided":
        sums[f"{decision.as_observed} as observed"] += 1


def _cells() -> list[Cell]:
    cells = []
    for tasks in TASKS:
        worlds: dict[str, Simulate] = {}
        for law in SINGLE:
            worlds[f"{law}, {tasks}"] = partial(covered, law=law, tasks=tasks)
        for pair in PAIRS:
            worlds[_pair_key(pair, tasks)] = partial(equal_means, new=pair[0], old=pair[1], tasks=tasks)
        for name in POWERS:
            worlds[f"power: {name}, {tasks}"] = partial(gains, name=name, tasks=tasks)
        cells += [Cell(key, REPLICATES, simulate, BLOCK) for key, simulate in worlds.items()]
    return cells


def _heads(first: str) -> list[str]:
    """The heads of a table with a column for each number of tasks; ``first`` begins with the first column."""
    columns = " | ".join(f"{tasks} tasks" for tasks in TASKS)
    return ["", f"{first}{columns} |", "|---" * (1 + len(TASKS)) + "|"]


def _coverage(tallies: dict[str, Tally]) -> list[str]:
    replicates = tallies[f"{SINGLE[0]}, {TASKS[0]}"].replicates
    lines = [
        "Coverage in per cent of the default interval of one run, the t interval over tasks, and in brackets how often "
        f"it lies below the true mean; {replicates:,} replicates per cell, error {_error(0.95, replicates)} at 95.",
        *_heads("| task values | "),
    ]
    for law in SINGLE:
        cells = [tallies[f"{law}, {tasks}"] for tasks in TASKS]
        texts = [f"{100 * cell.share('covered'):.1f} ({100 * cell.share('below'):.1f})" for cell in cells]
        lines.append(f"| {law} | {' | '.join(texts)} |")
    return lines


def _levels(tallies: dict[str, Tally]) -> list[str]:
    replicates = tallies[_pair_key(PAIRS[0], TASKS[0])].replicates
    lines = [
        "False verdicts in per cent about runs with equal means, by the observed difference alone -> by all tests, on "
        f"the more frequent side; {replicates:,} replicates per cell, error {_error(LEVEL, replicates)} at 2.5.",
        *_heads("| | "),
    ]
    for pair in PAIRS:
        texts = []
        for tasks in TASKS:
            cell = tallies[_pair_key(pair, tasks)]
            alone = max(cell.share("better as observed"), cell.share("worse as observed"))
            texts.append(f"{100 * alone:.1f} -> {100 * max(cell.share('better'), cell.share('worse')):.1f}")
        lines.append(f"| {pair[0]} against {pair[1]} | {' | '.join(texts)} |")
    return lines


def _powers(tallies: dict[str, Tally]) -> list[str]:
    replicates = tallies[f"power: {next(iter(POWERS))}, {TASKS[0]}"].replicates
    lines = [
        f"Power in per cent, likewise; {replicates:,} replicates per cell, error {_error(0.8, replicates)} at 80.",
        *_heads("| | "),
    ]
    for name in POWERS:
        cells = [tallies[f"power: {name}, {tasks}"] for tasks in TASKS]
        texts = [f"{100 * cell.share('better as observed'):.1f} -> {100 * cell.share('better'):.1f}" for cell in cells]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return lines


def _unkept(tallies: dict[str, Tally]) -> list[str]:
    """From 100 tasks on, and if variances are finite, the level is kept."""
    unkept = []
    for pair in PAIRS:
        for tasks in TASKS:
            cell = tallies[_pair_key(pair, tasks)]
            most = LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / cell.replicates)
            promised = tasks >= KEPT_FROM and (INFINITE not in pair or pair[0] == pair[1])
            largest = max(cell.share("better"), cell.share("worse"))
            if promised and largest > most:
                unkept.append(f"heavy tails: {_pair_key(pair, tasks)}: {100 * largest:.1f} % false verdicts")
    return unkept


def _pair_key(pair: tuple[str, str], tasks: int) -> str:
    return f"{pair[0]} against {pair[1]}, {tasks}"


def _error(share: float, replicates: int) -> str:
    return f"{100 * 1.96 * math.sqrt(share * (1 - share) / replicates):.1f}"
