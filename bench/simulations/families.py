"""Several questions on one page: the power of the primary question, and how often any line is a false claim.

One sample per task; 10 % of the tasks are won and 10 % lost, and in some slices more tasks are won.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import stdtr

from bench.simulations.margins import Bools
from bench.simulations.paired_rule import LEVEL
from bench.simulations.report import filled, percent
from bench.simulations.rule import Floats

REPLICATES = 10_000
SHARE = 0.1


@dataclass(frozen=True, slots=True)
class World:
    """Slices of the same number of tasks, with the true difference of each."""

    name: str
    tasks: int
    effects: Floats  # [S]


WORLDS = (
    World("5 slices of 40, no difference", 40, np.zeros(5)),
    World("5 of 40, +0.1 in all", 40, np.full(5, 0.1)),
    World("5 of 40, +0.2 in two", 40, np.array([0.2, 0.2, 0, 0, 0])),
    World("10 of 50, no difference", 50, np.zeros(10)),
    World("10 of 50, +0.2 in five", 50, np.repeat([0.2, 0.0], 5)),
    World("10 of 50, +0.2 in one", 50, np.array([0.2, *[0.0] * 9])),
    World("10 of 50, +0.2 in five, -0.2 in five", 50, np.repeat([0.2, -0.2], 5)),
)


def p_values(world: World, replicates: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The p of all tasks, [R], and of each slice, [R, S], by the floored t."""
    won = SHARE + np.maximum(world.effects, 0)
    lost = SHARE + np.maximum(-world.effects, 0)
    tally = np.stack(
        [rng.multinomial(world.tasks, [a, b, 1 - a - b], size=replicates) for a, b in zip(won, lost, strict=True)],
        axis=1,
    )
    wins, losses = tally[..., 0].astype(np.float64), tally[..., 1].astype(np.float64)
    return floored(wins.sum(axis=1), losses.sum(axis=1), world.tasks * len(world.effects)), floored(
        wins, losses, world.tasks
    )


def floored(wins: Floats, losses: Floats, tasks: int) -> Floats:
    """The two-sided p-values of the floored t test for tables with this number of tasks."""
    value = (wins - losses) / tasks
    spread = np.sqrt(((wins + losses) / tasks - value**2) / (tasks - 1) + (0.5 / tasks) ** 2)
    return np.where(wins + losses > 0, 2 * stdtr(tasks - 1, -np.abs(value) / spread), 1.0)


def holm_rejects(p: Floats) -> Bools:
    """Whether Holm's procedure rejects each test of a row, [R, m]."""
    order = np.argsort(p, axis=1)
    steps = np.take_along_axis(p, order, axis=1) * np.arange(p.shape[1], 0, -1)
    kept = np.maximum.accumulate(steps, axis=1) <= LEVEL
    found = np.zeros(p.shape, dtype=bool)
    np.put_along_axis(found, order, kept, axis=1)
    return found


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    replicates = REPLICATES // fewer
    rng = np.random.default_rng([seed, 9])
    said = (
        "The first metric on all tasks is the primary question. It is tested alone, at its full level. Slices and "
        "further metrics are adjusted together in one step (Sidak). They are claims only if the primary question is "
        f"decided, and hints otherwise. The table is in per cent of {replicates:,} replicates, with one sample per "
        "task; if there is no difference, 10 % of the tasks are won and 10 % lost. `before` is Holm's adjustment over "
        'all lines, including the primary one. "Any false claim" counts reports with a false claim on any line:\n'
    )
    lines = [
        filled(said),
        "| | primary found, before → now | any false claim | slices found: before / one step / now |",
    ]
    lines.append("|---|---|---|---|")
    unkept = []
    for world in WORLDS:
        first, slices = p_values(world, replicates, rng)
        before = holm_rejects(np.column_stack([first, slices]))
        now = first <= LEVEL
        one_step = slices <= 1 - (1 - LEVEL) ** (1 / slices.shape[1])
        behind = one_step & now[:, None]
        null = world.effects == 0
        wrong = behind[:, null].any(axis=1) | (now & bool(np.isclose(world.effects.sum(), 0)))
        error = sqrt(LEVEL * (1 - LEVEL) / replicates)
        if wrong.mean() > LEVEL + error + 0.0035:  # the floored t test itself rejects 5.4 % in fair worlds
            unkept.append(f"{world.name}: a false claim on {percent(float(wrong.mean()))} % of the pages")
        power = ["–"] * 3
        if not null.all():
            power = [percent(float(found[:, ~null].mean())) for found in (before[:, 1:], one_step, behind)]
        lines.append(
            f"| {world.name} | {percent(float(before[:, 0].mean()))} → {percent(float(now.mean()))} "
            f"| {percent(float(wrong.mean()))} | {' / '.join(power)} |"
        )
    lines += ["", filled(
        "The last two rows show the cost of this order: a change in one slice only, or changes that cancel. To test a "
        "slice first, make it the primary question: `--primary 'mean_reward[difficulty=hard]'`.\n"
    ).rstrip("\n")]  # fmt: skip
    return "\n".join(lines) + "\n", unkept
