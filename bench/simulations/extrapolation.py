"""pass@k for k beyond the number of samples: how often its band covers the truth, and how often it is refused.

The chances of tasks come from a known law; each task has n samples, and pass@k and pass^k are estimated for a much
larger k. The rule is that of Calipers, on the same grids, with two simplifications that change nothing: the point
estimate of the law is the best one of the grid and is not refined, and draws of tasks are drawn as counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from bench.simulations.report import filled, listed, percent
from bench.simulations.rule import CONFIDENCE, Floats
from calipers.stats.extrapolation import (
    DRAWS,
    METRICS,
    REJECTED,
    Grid,
    Law,
    PassCounts,
    hull,
    pass_at,
    pearson,
    values_on_draws,
    zoomed,
)

REPLICATES = 4_000
PROMISED = 0.85
REACHES = ((4, 16), (8, 64))  # samples, and k
TASKS = (100, 300)
BETA = {
    "Beta(.3, .7)": (0.3, 0.7, 0.0),
    "Beta(.3, 3)": (0.3, 3.0, 0.0),
    "Beta(2, 2)": (2.0, 2.0, 0.0),
    "30 % never, else Beta(1, 1)": (1.0, 1.0, 0.3),
    "30 % never, else Beta(.3, .7)": (0.3, 0.7, 0.3),
}
TWO_KINDS = "half at .05, half at .9"
KINDS = (0.05, 0.9)


@dataclass(frozen=True, slots=True)
class Cell:
    """One world at one reach."""

    world: str
    samples: int
    k: int
    tasks: int
    replicates: int
    covered: dict[str, float]  # of the bands that were not refused, by metric
    bootstrap: float  # of pass@k, with the bootstrap only
    width: float  # mean width of the bands of pass@k
    bias: float  # of pass@k
    refused: float


@dataclass(frozen=True, slots=True)
class Banded:
    """The bands of pass@k and pass^k at one k, from one table of counts."""

    values: Floats  # [2]
    ends: Floats  # [2, 2]: the lower and the upper end of each
    bootstrap: Floats  # [2], the ends of pass@k with the bootstrap only


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and the cells whose coverage is too low."""
    cells = list(simulated(REPLICATES // fewer, seed))
    return _text(cells, seed), [
        f"{cell.world}, from {cell.samples} to {cell.k}, T = {cell.tasks}: the band of {name} covers {percent(held)} %"
        for cell in cells
        if cell.world in BETA
        for name, held in cell.covered.items()
        if held < PROMISED - error_of(held, cell)
    ]


def error_of(share: float, cell: Cell) -> float:
    """The Monte Carlo standard error of a share of the bands that were not refused."""
    return sqrt(share * (1 - share) / max(1.0, cell.replicates * (1 - cell.refused)))


def simulated(replicates: int, seed: int) -> Iterator[Cell]:
    """Every world at every reach, each with its own stream of random numbers."""
    worlds = [(name, *reach, tasks) for name in (*BETA, TWO_KINDS) for reach in REACHES for tasks in TASKS]
    for world, child in zip(worlds, np.random.SeedSequence(seed).spawn(len(worlds)), strict=True):
        yield _cell(*world, replicates, np.random.default_rng(child))


def _cell(world: str, samples: int, k: int, tasks: int, replicates: int, rng: np.random.Generator) -> Cell:
    truth, first = true_values(world, k), first_grid(samples)
    found = [banded(table, k, first, rng) for table in tables_of(world, samples, tasks, replicates, rng)]
    given = [one for one in found if one is not None]
    ends = np.array([one.ends for one in given]).reshape(-1, 2, 2)
    alone = np.array([one.bootstrap for one in given]).reshape(-1, 2)
    values = np.array([one.values for one in given]).reshape(-1, 2)
    return Cell(
        world,
        samples,
        k,
        tasks,
        replicates,
        {name: _covers(ends[:, place], truth[name]) for place, name in enumerate(METRICS)},
        _covers(alone, truth["pass@k"]),
        float((ends[:, 0, 1] - ends[:, 0, 0]).mean()) if given else 0.0,
        float(values[:, 0].mean()) - truth["pass@k"] if given else 0.0,
        1 - len(given) / replicates,
    )


def _covers(ends: Floats, truth: float) -> float:
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()) if len(ends) else 0.0


def true_values(world: str, k: int) -> dict[str, float]:
    """pass@k and pass^k of a world."""
    if world == TWO_KINDS:
        return {"pass@k": sum(1 - (1 - p) ** k for p in KINDS) / 2, "pass^k": sum(p**k for p in KINDS) / 2}
    a, b, never = BETA[world]
    return dict(zip(METRICS, ((1 - never) * pass_at([k], np.array([a]), np.array([b]))[0]).tolist(), strict=True))


def tables_of(world: str, samples: int, tasks: int, replicates: int, rng: np.random.Generator) -> Floats:
    """The numbers of tasks with 0 to n passes, [R, n + 1]."""
    if world == TWO_KINDS:
        chances = rng.choice(KINDS, (replicates, tasks))
    else:
        a, b, never = BETA[world]
        chances = rng.beta(a, b, (replicates, tasks)) * (rng.random((replicates, tasks)) >= never)
    passes = rng.binomial(samples, chances)
    return np.stack([(passes == c).sum(axis=1) for c in range(samples + 1)], axis=1).astype(float)


def banded(table: Floats, k: int, first: Grid, rng: np.random.Generator) -> Banded | None:
    """The bands from the numbers of tasks with 0 to n passes, [n + 1], starting with a grid; None if refused."""
    if table[0] == table.sum() or table[-1] == table.sum():
        return None
    grid = zoomed(first.counts, table, first)
    likelihood, shares = grid.profile(table)
    best = int(np.argmax(likelihood))
    law = Law(float(grid.a[best]), float(grid.b[best]), float(shares[best]), float(likelihood[best]))
    if pearson(law, first.counts, table) < REJECTED:
        return None
    drawn = rng.multinomial(int(table.sum()), table / table.sum(), DRAWS).astype(float)
    passing = pass_at([k], grid.a, grid.b)
    draws = values_on_draws(grid, passing, drawn)
    ends = np.stack(hull(grid, table, passing, draws, law.log_likelihood, CONFIDENCE, np.ones(2)), axis=1)
    tail = (1 - CONFIDENCE) / 2
    return Banded((1 - law.never_solved) * passing[best], ends, np.quantile(draws[:, 0], [tail, 1 - tail]))


def first_grid(samples: int) -> Grid:
    """The first grid of the search for tasks with this number of samples."""
    return Grid(PassCounts(np.full(samples + 1, samples), np.arange(samples + 1)))


def _text(cells: Sequence[Cell], seed: int) -> str:
    beta = [cell for cell in cells if cell.world in BETA]
    worst = min(beta, key=lambda cell: cell.covered["pass@k"])
    rarest = min(beta, key=lambda cell: cell.covered["pass^k"])
    bias = max(abs(cell.bias) for cell in beta)
    head = filled(
        f"Written by `make bench-statistics`: {len(cells)} cells, seed {seed}, {cells[0].replicates:,} replicates per "
        f'cell, {DRAWS} bootstrap resamples each. "{REACHES[0][0]} to {REACHES[0][1]}" extrapolates from '
        f"{REACHES[0][0]} samples to k = {REACHES[0][1]}. Each entry is the coverage of the 95 % bands of pass@k that "
        "are given, in per cent (in brackets, of the bootstrap alone); their mean width; and the share of refused "
        "extrapolations, in per cent:\n"
    )
    columns = [(samples, k, tasks) for samples, k in REACHES for tasks in TASKS]
    lines = [
        "| | " + " | ".join(f"{samples} to {k}, T = {tasks}" for samples, k, tasks in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for world in (*BETA, TWO_KINDS):
        row = [cell for cell in cells if cell.world == world]
        lines.append(f"| {world} | " + " | ".join(_shown(cell) for cell in row) + " |")
    odd = [cell for cell in cells if cell.world == TWO_KINDS]
    few = [cell for cell in odd if cell.samples == REACHES[0][0]]
    many = [cell for cell in odd if cell.samples == REACHES[1][0]]
    tail = filled(
        f"In the scenarios that follow the model, the band covers {percent(worst.covered['pass@k'])} % at worst "
        f"({worst.world}, from {worst.samples} to {worst.k}, T = {worst.tasks}), and that of pass^k "
        f"{percent(rarest.covered['pass^k'])} % ({rarest.world}, from {rarest.samples} to {rarest.k}, T = "
        f"{rarest.tasks}). The value is off by at most {bias:.3f} on average. The last row does not follow the model. "
        f"With {REACHES[1][0]} samples this is detected ({listed(percent(cell.refused) for cell in many)} % refused). "
        f"With {REACHES[0][0]} samples and {few[0].tasks} tasks, two kinds of tasks look like a beta distribution: "
        f"{percent(few[0].refused)} % are refused, and of the bands given {percent(few[0].covered['pass@k'])} % cover. "
        "No check can prevent that.\n"
    )
    return f"{head}\n" + "\n".join(lines) + f"\n\n{tail}"


def _shown(cell: Cell) -> str:
    if cell.refused > 0.999:
        return f"–; {percent(cell.refused)}"
    held = f"{percent(cell.covered['pass@k'])} ({percent(cell.bootstrap)})"
    return f"{held}; {cell.width:.2f}; {percent(cell.refused)}"
