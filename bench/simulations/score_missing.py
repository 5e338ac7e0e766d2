"""The ends of a score with missing rollouts: how often they hold the value of the complete run's source.

A task's chance follows Beta(.8, .8), and has one sample. Some share of the failures is lost. The ends are the lower end
of the interval with every missing rollout failed, and the upper end with every one passed. Beside them stand the bounds
alone (Manski 1990): the value itself under both fillings, without the error of sampling.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bench.simulations.cells import Cell, Sums, simulated
from calipers.metrics.rewards import MEAN_REWARD
from calipers.rollouts.column import Column, Groups
from calipers.stats.estimate import Settings, Signature, estimate_of, reduce_tasks

PART = "score_missing"
TASKS = (40, 120, 500)
LOST = (0.2, 0.5, 1.0)  # shares of the failures that are lost
SHAPE = 0.8  # of the beta distribution of chances
TRUTH = 0.5  # its mean
REPLICATES = 5_000
LEAST = 0.95  # coverage that is promised


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The table of coverages, and a sentence for each cell that covers too little."""
    worlds = [(tasks, lost) for tasks in TASKS for lost in LOST]
    cells = [Cell(_key(*world), REPLICATES, partial(replicates_of, *world)) for world in worlds]
    tallies = simulated(PART, cells, seed, fewer)
    lines = [
        "| tasks | failures lost | the ends | the bounds alone | error |",
        "|---|---|---|---|---|",
    ]
    broken = []
    for tasks, lost in worlds:
        tally = tallies[_key(tasks, lost)]
        ends, bounds, error = tally.share("ends"), tally.share("bounds"), tally.error("ends")
        lines.append(f"| {tasks} | {100 * lost:.0f} % | {100 * ends:.1f} | {100 * bounds:.1f} | {100 * error:.1f} |")
        if ends < LEAST - 2 * error:
            broken.append(f"the ends of a score of {tasks} tasks, {lost:g} of the failures lost: {ends:.3f}")
    number = tallies[_key(TASKS[0], LOST[0])].replicates
    lines += ["", f"{number:,} replicates a cell; the error is the Monte Carlo standard error of the ends' coverage."]
    return "\n".join(lines), broken


def replicates_of(tasks: int, lost: float, rng: np.random.Generator, number: int) -> Sums:
    """How many of that many runs have ends, and bounds, that hold the truth."""
    by = Groups(np.arange(tasks), np.arange(tasks + 1))
    settings = Settings(by=by)
    sums = {"ends": 0.0, "bounds": 0.0}
    for _ in range(number):
        chances = rng.beta(SHAPE, SHAPE, tasks)
        rewards = (rng.random(tasks) < chances).astype(np.float64)
        given = ~((rng.random(tasks) < lost) & (rewards == 0))
        reduced = reduce_tasks(MEAN_REWARD, {"reward": "reward"}, [Column(rewards, given)], settings)
        estimate = estimate_of(MEAN_REWARD, {"reward": "reward"}, reduced, settings, Signature("mean_reward"))
        ends = estimate.worst_interval or estimate.interval or (TRUTH, TRUTH)
        bounds = estimate.bounds or (estimate.value or 0.0, estimate.value or 0.0)
        sums["ends"] += ends[0] <= TRUTH <= ends[1]
        sums["bounds"] += bounds[0] <= TRUTH <= bounds[1]
    return sums


def _key(tasks: int, lost: float) -> str:
    return f"T={tasks} lost={lost:g}"
