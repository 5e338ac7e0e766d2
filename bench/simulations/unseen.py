"""Losses not yet seen: the level and the power of verdicts where one run is steady and the other all or nothing.

Every replicate takes its word from `calipers.stats.claims`, with the score against unseen losses where the pair is
lopsided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from bench.simulations.cells import Cell, Sums, Tally, simulated
from calipers.rollouts.column import Floats
from calipers.stats.claims import Evidence, decide, unseen
from calipers.stats.paired import apart, judged, units_of

REPLICATES, LARGE_REPLICATES, CEILING_REPLICATES = 4_000, 2_000, 3_000
LARGE = 500  # tasks from which on fewer replicates are enough
RANGE = (0.0, 1.0)
LEVEL = 0.025  # of each side
TASKS = (30, 50, 100, 300, 1000)
CEILING_TASKS = (30, 100, 300)
BLOCK = 100  # replicates: a verdict on 1,000 tasks takes a few milliseconds

Rng: TypeAlias = np.random.Generator
Draw = Callable[[int, Rng], tuple[Floats, Floats]]
"""``draw(tasks, rng)``: the task values of the new and of the old run, [T] each."""


def against_steady(tasks: int, rng: Rng, *, mean: float, steady: float) -> tuple[Floats, Floats]:
    """A run of passes and failures against one with the same value in every task."""
    return (rng.random(tasks) < mean).astype(np.float64), np.full(tasks, steady)


def sampled(
    tasks: int, rng: Rng, *, law: tuple[float, float], new: int, old: int, gain: float = 0.0
) -> tuple[Floats, Floats]:
    """Two runs with the same chances, so many samples a task, the new one's chances higher by ``gain/sqrt(T)``."""
    chances = rng.beta(*law, tasks)
    higher = np.minimum(chances + gain / math.sqrt(tasks), 1.0)
    return rng.binomial(new, higher) / new, rng.binomial(old, chances) / old


def near_ceiling(tasks: int, rng: Rng, *, share: float) -> tuple[Floats, Floats]:
    """4 samples against 4: chances from Beta(49, 1), of which the old run has a share."""
    chances = rng.beta(49.0, 1.0, tasks)
    return rng.binomial(4, chances) / 4, rng.binomial(4, share * chances) / 4


GAIN = 2.8 * math.sqrt(0.3) * 0.8  # about 75 % power
LEVELS: dict[str, Draw] = {
    "steady .95": partial(against_steady, mean=0.95, steady=0.95),
    "steady .98": partial(against_steady, mean=0.98, steady=0.98),
    "steady .9": partial(against_steady, mean=0.9, steady=0.9),
    "Beta(19, 1), 16 samples against 1": partial(sampled, law=(19.0, 1.0), new=16, old=1),
    "Beta(49, 1), 4 samples against 16": partial(sampled, law=(49.0, 1.0), new=4, old=16),
}  # equally good runs
POWERS: dict[str, Draw] = {
    "Beta(2, 2), 4 samples against 1": partial(sampled, law=(2.0, 2.0), new=4, old=1, gain=GAIN),
    "Beta(2, 2), 1 sample against 16": partial(sampled, law=(2.0, 2.0), new=1, old=16, gain=GAIN),
    "0/1 at .97 against steady .9": partial(against_steady, mean=0.97, steady=0.9),
    "0/1 at .8 against steady .6": partial(against_steady, mean=0.8, steady=0.6),
}  # the new run is better
CEILING: dict[str, Draw] = {
    ".98 against .98": partial(near_ceiling, share=1.0),
    ".98 against .94": partial(near_ceiling, share=0.96),
    ".98 against .90": partial(near_ceiling, share=0.92),
}


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    tallies = simulated("unseen", _cells(), seed, fewer)
    return "\n".join([*_table(tallies), "", *_near_ceiling(tallies)]), _unkept(tallies)


def words(rng: Rng, replicates: int, *, draw: Draw, tasks: int) -> Sums:
    """How often a difference is claimed, by the observed difference and by the verdict, and pairs are lopsided."""
    sums = dict.fromkeys(("better", "worse", "better as observed", "worse as observed", "lopsided"), 0.0)
    for _ in range(replicates):
        new, old = draw(tasks, rng)
        units = units_of(apart(new, old))
        difference = judged(units, RANGE, 0.95)
        score = unseen(new, old, units, RANGE)
        decision = decide(Evidence(difference, difference, unseen=score))
        sums["lopsided"] += score is not None
        if decision.word != "undecided":
            sums[decision.word] += 1
        if decision.as_observed != "undecided":
            sums[f"{decision.as_observed} as observed"] += 1
    return sums


def _cells() -> list[Cell]:
    cells = []
    for name, draw in {**LEVELS, **POWERS}.items():
        for tasks in TASKS:
            replicates = LARGE_REPLICATES if tasks >= LARGE else REPLICATES
            cells.append(Cell(f"{name}, {tasks}", replicates, partial(words, draw=draw, tasks=tasks), BLOCK))
    for name, draw in CEILING.items():
        for tasks in CEILING_TASKS:
            simulate = partial(words, draw=draw, tasks=tasks)
            cells.append(Cell(f"{name}, {tasks}", CEILING_REPLICATES, simulate, BLOCK))
    return cells


def _table(tallies: dict[str, Tally]) -> list[str]:
    few, many = (tallies[f"{next(iter(LEVELS))}, {tasks}"].replicates for tasks in (TASKS[0], TASKS[-1]))
    lines = [
        "Verdicts in per cent, by the observed difference alone -> by all tests: false claims on the more frequent "
        f"side for equally good runs, and power; {few:,} replicates per cell, {many:,} from {LARGE} tasks on, error "
        f"{_error(LEVEL, many)} at 2.5 and {_error(0.8, many)} at 80.",
        "",
        "| | " + " | ".join(f"{tasks:,} tasks" for tasks in TASKS) + " |",
        "|---" * (1 + len(TASKS)) + "|",
    ]
    for name in LEVELS:
        texts = [_level(tallies[f"{name}, {tasks}"]) for tasks in TASKS]
        lines.append(f"| level: {name} | {' | '.join(texts)} |")
    for name in POWERS:
        texts = [_power(tallies[f"{name}, {tasks}"]) for tasks in TASKS]
        lines.append(f"| power: {name} | {' | '.join(texts)} |")
    return lines


def _near_ceiling(tallies: dict[str, Tally]) -> list[str]:
    replicates = tallies[f"{next(iter(CEILING))}, {CEILING_TASKS[0]}"].replicates
    lines = [
        f"The price near the ceiling, 4 samples of each task in both runs; {replicates:,} replicates per cell, error "
        f"{_error(0.8, replicates)} at 80.",
        "",
        "| | " + " | ".join(f"{tasks:,} tasks" for tasks in CEILING_TASKS) + " |",
        "|---" * (1 + len(CEILING_TASKS)) + "|",
    ]
    for number, name in enumerate(CEILING):
        cells = [tallies[f"{name}, {tasks}"] for tasks in CEILING_TASKS]
        texts = [_power(cell) if number else _level(cell) for cell in cells]
        lines.append(f"| {'power' if number else 'level'}: {name} | {' | '.join(texts)} |")
    return lines


def _unkept(tallies: dict[str, Tally]) -> list[str]:
    equal = [f"{name}, {tasks}" for name in LEVELS for tasks in TASKS]
    equal += [f"{next(iter(CEILING))}, {tasks}" for tasks in CEILING_TASKS]
    unkept = []
    for key in equal:
        cell = tallies[key]
        largest = max(cell.share("better"), cell.share("worse"))
        if largest > LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / cell.replicates):
            unkept.append(f"unseen: {key}: {100 * largest:.1f} % false verdicts on one side")
    return unkept


def _level(cell: Tally) -> str:
    alone = max(cell.share("better as observed"), cell.share("worse as observed"))
    return f"{100 * alone:.1f} -> {100 * max(cell.share('better'), cell.share('worse')):.1f}"


def _power(cell: Tally) -> str:
    return f"{100 * cell.share('better as observed'):.0f} -> {100 * cell.share('better'):.0f}"


def _error(share: float, replicates: int) -> str:
    return f"{100 * 1.96 * math.sqrt(share * (1 - share) / replicates):.1f}"
