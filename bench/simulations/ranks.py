"""Whether all rank sets hold simultaneously, and whether the interval of the picked winner covers its true value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.simulations.ranks_rule import Singles, rank_sets, winners
from bench.simulations.report import filled, percent
from bench.simulations.rule import CONFIDENCE, Floats
from calipers.stats.ranks import ERROR_DRAWS, FLIPS

REPLICATES = 4_000
BATCH = 20  # replicates that share signs and draws
RUNS, TASKS = (3, 10, 40), (100, 500)
PICKED_FROM = (3, 10)
JOINT, COVERED = 0.94, 0.93  # promises: the coverage of all rank sets, and of the interval of the best of ten


@dataclass(frozen=True, slots=True)
class World:
    """Runs whose chance of passing a task is ``shared u + base + own``, with u uniform over tasks."""

    title: str
    base: float
    shared: float
    own: Floats  # [M]

    @property
    def truth(self) -> Floats:
        """The true values of the runs, [M]."""
        return self.base + self.shared / 2 + self.own

    def passes(self, replicates: int, tasks: int, rng: np.random.Generator) -> Singles:
        """One sample of 0 or 1 for every run and task, [R, M, T]."""
        chances = self.base + self.shared * rng.random((replicates, 1, tasks), dtype=np.float32)
        drawn = rng.random((replicates, len(self.own), tasks), dtype=np.float32)
        return (drawn < chances + self.own[:, None].astype(np.float32)).astype(np.float32)


def worlds(runs: int) -> dict[str, World]:
    """The worlds with this number of runs."""
    gap = 0.005 if runs > 10 else 0.01
    step = np.linspace(0.0, gap * (runs - 1), runs)
    return {
        "equal": World("equal, uniform probabilities", 0.0, 1.0, np.zeros(runs)),
        "high": World("equal, mean .95", 0.9, 0.1, np.zeros(runs)),
        "gaps": World("means .01 apart (40 runs: .005)", 0.0, 1 - float(step[-1]), step),
        "groups": World("two groups .1 apart", 0.0, 0.9, np.where(np.arange(runs) % 2, 0.1, 0.0)),
    }


@dataclass(frozen=True, slots=True)
class RankCell:
    """How often all rank sets of a world hold, and the mean number of ranks in them."""

    world: str
    title: str
    runs: int
    tasks: int
    joint: float
    size: float


@dataclass(frozen=True, slots=True)
class WinnerCell:
    """How often the picked winner's intervals contain its true value; their width relative to the plain interval."""

    world: str
    title: str
    runs: int
    tasks: int
    plain: float
    bare: float
    covered: float
    width: float


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    replicates = max(BATCH, REPLICATES // fewer // BATCH * BATCH)
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence([seed, 10]).spawn(2)]
    ranks = [
        _rank_cell(key, world, tasks, replicates, streams[0])
        for runs in RUNS
        for key, world in worlds(runs).items()
        for tasks in TASKS
    ]
    picked = [
        _winner_cell(key, world, tasks, replicates, streams[1])
        for runs in PICKED_FROM
        for key, world in worlds(runs).items()
        if key != "groups"
        for tasks in TASKS
    ]
    return _text(ranks, picked, replicates, seed), _broken(ranks, picked, replicates)


def _rank_cell(key: str, world: World, tasks: int, replicates: int, rng: np.random.Generator) -> RankCell:
    truth, runs = world.truth, len(world.own)
    best = 1 + (truth > truth[:, None] + 1e-9).sum(axis=1)
    worst = runs - (truth < truth[:, None] - 1e-9).sum(axis=1)
    held = size = 0
    for _ in range(replicates // BATCH):
        signs = (1 - 2 * rng.integers(0, 2, (tasks, FLIPS), dtype=np.int8)).astype(np.float32)
        low, high = rank_sets(world.passes(BATCH, tasks, rng), signs)
        held += int(((low <= best) & (high >= worst)).all(axis=1).sum())
        size += int((high - low + 1).sum())
    return RankCell(key, world.title, runs, tasks, held / replicates, size / replicates / runs)


def _winner_cell(key: str, world: World, tasks: int, replicates: int, rng: np.random.Generator) -> WinnerCell:
    runs = len(world.own)
    held = np.zeros(3)
    widths = np.zeros(2)
    for _ in range(replicates // BATCH):
        found = winners(world.passes(BATCH, tasks, rng), rng.standard_normal((runs, ERROR_DRAWS)))
        truth = world.truth[found.run]
        for place, (low, high) in enumerate((found.plain, found.bare, found.ends)):
            held[place] += int(((low <= truth) & (truth <= high)).sum())
        widths += [float((high - low).sum()) for low, high in (found.plain, found.ends)]
    plain, bare, covered = (held / replicates).tolist()
    return WinnerCell(key, world.title, runs, tasks, plain, bare, covered, float(widths[1] / widths[0]))


def _broken(ranks: Sequence[RankCell], picked: Sequence[WinnerCell], replicates: int) -> list[str]:
    """A sentence for each coverage that is below its promise by more than one Monte Carlo standard error."""
    said = [
        f"{cell.title}, {cell.runs} runs, T = {cell.tasks}: all rank sets hold in {percent(cell.joint)} %"
        for cell in ranks
        if cell.joint < JOINT - _error(JOINT, replicates)
    ]
    return said + [
        f"{cell.title}, best of {cell.runs}, T = {cell.tasks}: the interval covers {percent(cell.covered)} %"
        for cell in picked
        if cell.covered < COVERED - _error(COVERED, replicates)
    ]


def _error(share: float, replicates: int) -> float:
    return math.sqrt(share * (1 - share) / replicates)


def _text(ranks: Sequence[RankCell], picked: Sequence[WinnerCell], replicates: int, seed: int) -> str:
    worst = min(cell.joint for cell in ranks)
    head = filled(
        f"Written by `make bench-statistics`: seed {seed}, {replicates:,} replicates per cell (a standard error of "
        f"{percent(_error(CONFIDENCE, replicates))} points), one sample of 0 or 1 per task, {FLIPS:,} sign patterns "
        f"and {ERROR_DRAWS:,} draws as in the program; {BATCH} replicates share them. The table shows how often all "
        f"rank sets are correct at once, in per cent (target 95, promised {percent(JOINT)}, worst {percent(worst)}), "
        "and the mean number of ranks in a set:\n"
    )
    columns = [(runs, tasks) for runs in RUNS for tasks in TASKS]
    rows = [f"| | {' | '.join(f'{runs} runs, T = {tasks}' for runs, tasks in columns)} |", "|---" * 7 + "|"]
    for key, world in worlds(3).items():
        of_world = {(cell.runs, cell.tasks): cell for cell in ranks if cell.world == key}
        cells = [f"{percent(of_world[at].joint)} ({of_world[at].size:.1f})" for at in columns]
        rows.append(f"| {world.title} | {' | '.join(cells)} |")
    between = filled(
        "The next table shows how often the interval of the selected winner contains the winner's true value, in per "
        f'cent ({replicates:,} replicates per cell, at least {percent(COVERED)} promised). "Plain" is the value and '
        '1.96 standard errors, as if nothing had been selected. "Without the range" uses the largest t below and the '
        "bias above, with normal quantiles. The default also reaches down at least as far as the default interval with "
        "that largest t. "
        "\"Width\" is the default's width over the plain one's:\n"
    )
    table = [
        "| | plain | without the range | **default** | width |",
        "|---|---|---|---|---|",
        *(
            f"| best of {cell.runs}, {cell.title.partition(' (40')[0]}, T = {cell.tasks} | {percent(cell.plain)} | "
            f"{percent(cell.bare)} | {percent(cell.covered)} | {cell.width:.2f} |"
            for cell in picked
        ),
    ]
    high = [cell for cell in picked if cell.world == "high"]
    last = filled(
        "Runs with a mean of .95 are the reason to use the range: a winner with 99 passes in 100 has almost no "
        f"standard error. Without the range the worst cell covers {percent(min(cell.bare for cell in high))} %, with "
        f"it {percent(min(cell.covered for cell in high))} %.\n"
    )
    return "\n".join([head, *rows, "", between, *table, "", last])
