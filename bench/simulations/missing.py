"""The effect of lost failures on a comparison, and of the worst case for missing rollouts.

Two equal runs with one sample per task. Of the second run some failures are lost, as when a client gives up on the long
rollouts that would have failed. Then the same with nothing lost, with losses at random, and with a true difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.simulations.paired_rule import LEVEL
from bench.simulations.report import filled
from calipers.stats.missing import MOST_MISSING

REPLICATES = 10_000
MOST_FALSE = 0.033  # "better" in one direction, in equal runs whose missing rollouts all count as failed
LEAST_WARNED = 0.88  # share of the pairs of runs with lost failures that get a warning
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class World:
    """The law of the tasks' chances, the gain of the second run, and the rollouts that it loses."""

    name: str
    tasks: int
    gain: float = 0.0
    failures_lost: float = 0.0
    passes_lost: float = 0.0


WORLDS = (
    *(World("nothing lost", tasks) for tasks in (50, 200)),
    *(
        World(f"{100 * lost:g} % of B's failures lost", tasks, failures_lost=lost)
        for lost in (0.2, 0.5)
        for tasks in (50, 200)
    ),
    *(
        World(f"{100 * lost:g} % of B lost at random", tasks, failures_lost=lost, passes_lost=lost)
        for lost in (0.2,)
        for tasks in (50, 200)
    ),
    World("B better by .2, nothing lost", 200, gain=0.2),
    World("B better by .2, 3 % of B lost at random", 200, gain=0.2, failures_lost=0.03, passes_lost=0.03),
    World("B better by .2, 20 % of B's failures lost", 200, gain=0.2, failures_lost=0.2),
)


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of the replicates of one world."""

    world: World
    seen: float  # "better" on the observed rollouts
    kept: float  # still better if every missing rollout failed
    warned: float


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The table for the page, and a sentence for each promise that was not kept."""
    replicates = REPLICATES // fewer
    streams = np.random.SeedSequence([seed, 8]).spawn(len(WORLDS))
    found = [
        simulated(world, replicates, np.random.default_rng(one)) for world, one in zip(WORLDS, streams, strict=True)
    ]
    return _text(found, replicates, seed), _unkept(found, replicates)


def simulated(world: World, replicates: int, rng: np.random.Generator) -> Found:
    """Draw pairs of runs, lose rollouts of the second, and test both the observed and the filled rollouts."""
    chances = rng.beta(2, 2, (replicates, world.tasks))
    chances = (1 - world.gain) * chances  # so that chances with the gain stay below 1
    first = rng.random(chances.shape) < chances
    second = rng.random(chances.shape) < chances + world.gain
    missing = rng.random(chances.shape) < np.where(second, world.passes_lost, world.failures_lost)
    wins, losses = (second & ~first & ~missing).sum(axis=1), (~second & first & ~missing).sum(axis=1)
    seen = better(wins, losses, (~missing).sum(axis=1))
    kept = better(wins, losses + (first & missing).sum(axis=1), np.full(replicates, world.tasks))
    return Found(
        world, float(seen.mean()), float((seen & kept).mean()), float((missing.mean(axis=1) > MOST_MISSING).mean())
    )


def better(wins: Counts, losses: Counts, tasks: Counts) -> Flags:
    """Whether the floored t test calls the second run better, from its won, lost and observed tasks, [R] each."""
    from scipy.special import stdtr

    value = (wins - losses) / tasks
    variance = tasks / (tasks - 1) * np.maximum((wins + losses) / tasks**2 - value**2 / tasks, 0.0)
    stderr = np.sqrt(variance + (wins + losses > 0) / (4 * tasks**2))
    p = 2 * stdtr(tasks - 1, -np.abs(value) / np.where(stderr > 0, stderr, np.inf))
    return np.asarray((value > 0) & (p <= LEVEL))


def _unkept(found: list[Found], replicates: int) -> list[str]:
    said = []
    for one in found:
        name = f"{one.world.name}, {one.world.tasks} tasks"
        error = float(np.sqrt(MOST_FALSE * (1 - MOST_FALSE) / replicates))
        if not one.world.gain and one.kept > MOST_FALSE + error:
            said.append(f"{name}: still better in {100 * one.kept:.1f} %, at most {100 * MOST_FALSE:g} promised")
        error = float(np.sqrt(LEAST_WARNED * (1 - LEAST_WARNED) / replicates))
        if one.world.failures_lost >= 0.2 and not one.world.gain and one.warned < LEAST_WARNED - error:
            said.append(f"{name}: warned in {100 * one.warned:.1f} %, at least {100 * LEAST_WARNED:g} promised")
    return said


def _text(found: list[Found], replicates: int, seed: int) -> str:
    head = filled(
        f"Written by `make bench-statistics`: {replicates:,} pairs of runs each, seed {seed}, one sample per task. The "
        "pass probabilities follow Beta(2, 2), and are the same in both runs unless B is better. In per cent: runs "
        "called better on the observed rollouts; runs called better on the observed rollouts and also if every missing "
        "rollout of B failed; runs with a warning about the share of missing rollouts.\n"
    )
    rows = ["| scenario | tasks | better as observed | still better | warned |", "|---|---|---|---|---|"]
    rows += [
        f"| {one.world.name} | {one.world.tasks} | {shares[0]:.1f} | {shares[1]:.1f} | {shares[2]:.0f} |"
        for one in found
        for shares in [[100 * share for share in (one.seen, one.kept, one.warned)]]
    ]
    return "\n".join([head, *rows, ""])
