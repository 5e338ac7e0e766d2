"""Whether all rank sets hold at once when rollouts are missing, and when a steady run meets all-or-nothing runs.

Every board is ranked by `calipers.stats.ranks.rank_sets`, each pair with its own critical value; the scores of lopsided
pairs are those of `calipers.stats.claims.unseen`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from bench.simulations.cells import Cell, Sums, Tally, simulated
from bench.simulations.report import filled, percent
from calipers.rollouts.column import Floats
from calipers.stats.claims import unseen
from calipers.stats.paired import apart, units_of
from calipers.stats.ranks import RankSets, own_critical, rank_sets

CONFIDENCE = 0.95
JOINT = 0.93  # promised: the share of boards on which all rank sets are right
SAME_SET = 0.05  # the most by which the mean set of a fair board may grow
MISSING_REPLICATES, STEADY_REPLICATES = 300, 500
BLOCK = 25
SHAPE = 0.8  # chances follow Beta(.8, .8) where rollouts are missing
UNIT = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class MissingWorld:
    """Runs with one sample of 0 or 1 per task, whose chances are ``p + offset (1 - p)``."""

    title: str
    offsets: tuple[float, ...]
    failures_lost: float = 0.0  # share of the first run's failures
    lost: float = 0.0  # share of every run's rollouts, at random
    short: int = 0  # the only tasks of the last run, if not 0

    @property
    def truth(self) -> Floats:
        """The true values, [M]."""
        offsets = np.array(self.offsets)
        return 0.5 + 0.5 * offsets


EQUAL_3 = MissingWorld("3 equal, one loses half its failures", (0.0,) * 3, failures_lost=0.5)
EQUAL_5 = MissingWorld("5 equal, complete", (0.0,) * 5)
APART = (0.4, 0.3, 0.2, 0.1, 0.0)
MISSING_CELLS = (
    *((EQUAL_3, tasks) for tasks in (100, 200, 500)),
    *((EQUAL_5, tasks) for tasks in (100, 200)),
    (MissingWorld("5 at .7 to .5, complete", APART), 200),
    *((MissingWorld(f"5 at .7 to .5, {100 * lost:g} % lost in each", APART, lost=lost), 200) for lost in (0.01, 0.02)),
    (MissingWorld("5 at .7 to .5, 5 % lost in each", APART, lost=0.05), 200),
    (MissingWorld("5 at .7 to .5, the last ran 10 tasks", APART, short=10), 200),
)


def missing(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The rank sets of boards with missing rollouts, and of boards whose runs have different tasks."""
    cells = [
        Cell(f"missing|{world.title}|{tasks}", MISSING_REPLICATES, partial(missing_boards, world, tasks), BLOCK)
        for world, tasks in MISSING_CELLS
    ]
    tallies = simulated("ranks_verdicts", cells, seed, fewer)
    said = []
    for world, tasks in MISSING_CELLS:
        said += _below(f"{world.title}, T = {tasks}", tallies[f"missing|{world.title}|{tasks}"])
    return _missing_text(tallies, seed), said


def missing_boards(world: MissingWorld, tasks: int, rng: np.random.Generator, replicates: int) -> Sums:
    """Joint coverage, mean set size and how often the first run is alone first: on common tasks, and now."""
    found = _Counts()
    for _ in range(replicates):
        chances = rng.beta(SHAPE, SHAPE, tasks)
        offsets = np.array(world.offsets)[:, None]
        values = (rng.random((len(offsets), tasks)) < chances + offsets * (1 - chances)).astype(np.float64)
        gaps = rng.random(values.shape) < world.lost
        gaps[0] |= (values[0] == 0) & (rng.random(tasks) < world.failures_lost)
        known = np.ones(values.shape, dtype=np.bool_)
        if world.short:
            known[-1] = False
            known[-1, rng.choice(tasks, world.short, replace=False)] = True
        common = (known & ~gaps).all(axis=0)
        found.add("before", rank_sets(values[:, common], confidence=CONFIDENCE), world.truth)
        low, high = np.where(gaps, 0.0, values), np.where(gaps, 1.0, values)
        sets = rank_sets(low, high=high, known=known, own=own_critical(known, CONFIDENCE), confidence=CONFIDENCE)
        found.add("now", sets, world.truth)
    return found.sums


class _Counts:
    """Sums over boards, by rule."""

    def __init__(self) -> None:
        self.sums: Sums = {}

    def add(self, rule: str, sets: RankSets, truth: Floats) -> None:
        """Count a board: whether all sets are right, the mean size of a set, and whether the first run is alone."""
        best = 1 + (truth > truth[:, None] + 1e-9).sum(axis=1)
        worst = len(truth) - (truth < truth[:, None] - 1e-9).sum(axis=1)
        found = {
            "joint": float(((sets.low <= best) & (sets.high >= worst)).all()),
            "size": float((sets.high - sets.low + 1).mean()),
            "alone": float(sets.high[0] == 1),
        }
        for name, value in found.items():
            key = f"{rule} {name}"
            self.sums[key] = self.sums.get(key, 0.0) + value


Drawn = Callable[[int, np.random.Generator], Floats]
"""``drawn(tasks, rng)``: the task values of all runs, [M, T]."""


@dataclass(frozen=True, slots=True)
class SteadyWorld:
    """Runs of which some are steady, or which have different numbers of samples."""

    title: str
    drawn: Drawn
    truth: tuple[float, ...]
    tasks: tuple[int, ...]
    limits: tuple[float, float] | None = UNIT
    fair: bool = False  # no pair should be lopsided, so sets should stay as they are


def steady_against(mean: float, steady: int, tasks: int, rng: np.random.Generator) -> Floats:
    """Some runs whose every task value is the mean, and four with one sample of 0 or 1."""
    return np.concatenate([np.full((steady, tasks), mean), (rng.random((4, tasks)) < mean).astype(np.float64)])


def log_normal(tasks: int, rng: np.random.Generator) -> Floats:
    """A steady run and three log-normal ones with the same mean."""
    return np.concatenate([np.full((1, tasks), LOG_NORMAL_MEAN), np.exp(1.5 * rng.standard_normal((3, tasks)))])


def sampled(samples: Sequence[int], offsets: Sequence[float], tasks: int, rng: np.random.Generator) -> Floats:
    """Means of samples of 0 or 1, with chances ``p + offset (1 - p)`` and p uniform over tasks."""
    chances = rng.random(tasks)
    rows = [
        rng.binomial(count, chances + offset * (1 - chances)) / count
        for count, offset in zip(samples, offsets, strict=True)
    ]
    return np.array(rows, dtype=np.float64)


LOG_NORMAL_MEAN = math.exp(1.5**2 / 2)
GROUPS = (0.0,) * 5 + (0.2,) * 5
STEPS = (0.6, 0.5, 0.4, 0.3, 0.2)


def _fair(title: str, samples: tuple[int, ...], offsets: tuple[float, ...]) -> SteadyWorld:
    truth = tuple(0.5 + 0.5 * offset for offset in offsets)
    return SteadyWorld(title, partial(sampled, samples, offsets), truth, (50, 100, 500), fair=True)


STEADY_WORLDS = (
    SteadyWorld("one steady .95, four 0/1", partial(steady_against, 0.95, 1), (0.95,) * 5, (30, 50, 100, 200, 500)),
    SteadyWorld("two steady .98, four 0/1", partial(steady_against, 0.98, 2), (0.98,) * 6, (40, 100, 300, 500)),
    SteadyWorld("one steady .99, four 0/1", partial(steady_against, 0.99, 1), (0.99,) * 5, (100, 1_000)),
    SteadyWorld(
        "no range: a steady run, three log-normal(1.5)", log_normal, (LOG_NORMAL_MEAN,) * 4, (50, 200), limits=None
    ),
    _fair("two groups of 5, .1 apart, 1 sample", (1,) * 10, GROUPS),
    _fair("two groups of 5, .1 apart, 8 samples", (8,) * 10, GROUPS),
    _fair("5 runs at .8 to .6, 1 sample", (1,) * 5, STEPS),
    _fair("5 runs at .8 to .6, 8 samples", (8,) * 5, STEPS),
    _fair("two at .625 and two at .5, 1 and 8 samples each", (1, 8, 1, 8), (0.25, 0.25, 0.0, 0.0)),
)


def steady(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The rank sets of boards on which a steady run meets all-or-nothing runs, and of fair boards."""
    cells = [
        Cell(f"steady|{world.title}|{tasks}", STEADY_REPLICATES, partial(steady_boards, world, tasks), BLOCK)
        for world in STEADY_WORLDS
        for tasks in world.tasks
    ]
    tallies = simulated("ranks_verdicts", cells, seed, fewer)
    said = []
    for world in STEADY_WORLDS:
        for tasks in world.tasks:
            tally = tallies[f"steady|{world.title}|{tasks}"]
            said += _below(f"{world.title}, T = {tasks}", tally)
            if world.fair and tally.share("now size") > tally.share("before size") + SAME_SET:
                sizes = f"{tally.share('before size'):.2f} to {tally.share('now size'):.2f}"
                said.append(f"{world.title}, T = {tasks}: the mean set of a fair board grows from {sizes}")
    return _steady_text(tallies, seed), said


def steady_boards(world: SteadyWorld, tasks: int, rng: np.random.Generator, replicates: int) -> Sums:
    """Joint coverage and mean set size, without and with the scores of lopsided pairs."""
    found = _Counts()
    truth = np.array(world.truth)
    own = own_critical(np.ones((len(truth), tasks), dtype=np.bool_), CONFIDENCE)
    for _ in range(replicates):
        values = world.drawn(tasks, rng)
        found.add("before", rank_sets(values, confidence=CONFIDENCE), truth)
        scores = scores_of(values, world.limits)
        found.add("now", rank_sets(values, own=own, scores=scores, confidence=CONFIDENCE), truth)
    return found.sums


def scores_of(values: Floats, limits: tuple[float, float] | None) -> Floats:
    """The score of each lopsided pair in the direction "row better", [M, M]; NaN for other pairs."""
    scores = np.full((len(values), len(values)), np.nan)
    for row, column in combinations(range(len(values)), 2):
        differences = apart(values[row], values[column])
        found = unseen(values[row], values[column], units_of(differences), limits)
        if found is not None:  # it is in the direction of the difference; the other direction has no claim
            scores[row, column] = scores[column, row] = found.score
    return scores


def _below(name: str, tally: Tally) -> list[str]:
    """A sentence if fewer boards than promised have right sets, by more than one Monte Carlo standard error."""
    share = tally.share("now joint")
    if share >= JOINT - math.sqrt(JOINT * (1 - JOINT) / tally.replicates):
        return []
    return [f"{name}: all rank sets are right in {percent(share)} %, {percent(JOINT)} promised"]


def _head(tally: Tally, seed: int, said: str) -> str:
    error = math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / tally.replicates)
    return filled(
        f"Written by `make bench-statistics`: {tally.replicates:,} boards per row (a standard error of "
        f"{percent(error)} points at 95 %), seed {seed}. {said}\n"
    )


def _missing_text(tallies: dict[str, Tally], seed: int) -> str:
    first = tallies[f"missing|{EQUAL_3.title}|100"]
    head = _head(
        first,
        seed,
        "One sample per task, pass probabilities from Beta(.8, .8). Before: rank sets on the tasks that all runs have "
        "a value on. Now: each pair on its own tasks, missing rollouts filled against every claim. How often all sets "
        "are right at once, in per cent (target 95), the mean number of ranks in a set, and how often the first run, "
        "the one that loses its failures, is alone first, in per cent:",
    )
    rows = ["| runs | T | all right | mean set | alone first |", "|---|---|---|---|---|"]
    for world, tasks in MISSING_CELLS:
        tally = tallies[f"missing|{world.title}|{tasks}"]
        alone = "–" if not world.failures_lost else _percents(tally, "alone")
        rows.append(f"| {world.title} | {tasks} | {_percents(tally, 'joint')} | {_sizes(tally)} | {alone} |")
    return "\n".join([head, *rows, ""])


def _steady_text(tallies: dict[str, Tally], seed: int) -> str:
    first = tallies[f"steady|{STEADY_WORLDS[0].title}|{STEADY_WORLDS[0].tasks[0]}"]
    head = _head(
        first,
        seed,
        "Before: the largest t alone. Now: a lopsided pair must also reach the critical value with its score against "
        "unseen losses. How often all sets are right at once, in per cent (target 95), and the mean number of ranks in "
        "a set. The last rows are fair boards, which should keep their sets:",
    )
    rows = ["| runs | T | all right | mean set |", "|---|---|---|---|"]
    for world in STEADY_WORLDS:
        for tasks in world.tasks:
            tally = tallies[f"steady|{world.title}|{tasks}"]
            rows.append(f"| {world.title} | {tasks:,} | {_percents(tally, 'joint')} | {_sizes(tally)} |")
    return "\n".join([head, *rows, ""])


def _percents(tally: Tally, name: str) -> str:
    return f"{percent(tally.share(f'before {name}'))} → {percent(tally.share(f'now {name}'))}"


def _sizes(tally: Tally) -> str:
    return f"{tally.share('before size'):.2f} → {tally.share('now size'):.2f}"
