"""What missing rollouts do to the verdict on two runs: its level when failures are lost, and its power.

Two runs with one sample of 0 or 1 per task. Some rollouts are lost at random, or because of their outcome, as when a
client gives up on the long rollouts that would have failed. The verdict is that of `calipers.stats.claims.decide`,
which a difference must survive with every missing rollout filled against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from scipy.special import betaincinv, gammaln, stdtr, xlogy

from bench.simulations.cells import Cell, Sums, Tally, simulated
from bench.simulations.report import filled, percent
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.stats.claims import Decision, Evidence, decide
from calipers.stats.paired import apart, paired

RANGE = (0.0, 1.0)
SHAPE = 0.8  # the chances of passing follow Beta(.8, .8)
LEVEL = 0.025  # one side of the test
MOST_FALSE = 0.03  # promised: "better" in one direction among equal runs
POWER = 0.8
LEAST_POWER = 0.73  # promised where complete data have 80 % and B lost 1 % at random, up to 200 tasks
MANY_TASKS, MANY_APART = 10_000, 0.0175
NODES = 20_000  # of the beta law, for the chances of a win and a loss
HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """The share of a run's planned rollouts that are lost."""

    name: str
    of_a: float = 0.0
    of_b: float = 0.0
    by_outcome: bool = False  # lost are A's passes and B's failures; else any rollout

    @property
    def nothing(self) -> bool:
        """Whether no rollout is lost."""
        return not (self.of_a or self.of_b)


NOTHING = Loss("nothing")
FALSE_LOSSES = (
    NOTHING,
    Loss("B's failures, 1 %", of_b=0.01, by_outcome=True),
    Loss("B's failures, 5 %", of_b=0.05, by_outcome=True),
    Loss("B's failures, 25 %", of_b=0.25, by_outcome=True),
    Loss("A's passes and B's failures, 5 % each", 0.05, 0.05, by_outcome=True),
)
FALSE_TASKS = (100, 200, 500, 1_000)
RANDOM_LOSSES = (
    NOTHING,
    *(Loss(f"B only, {100 * share:g} %", of_b=share) for share in (0.005, 0.01, 0.02)),
    *(Loss(f"both, {100 * share:g} %", share, share) for share in (0.005, 0.01, 0.02, 0.05)),
)
POWER_TASKS = (100, 200, 1_000)
PROMISED = RANDOM_LOSSES[2]
MANY_LOSS = Loss("both, 1 %", 0.01, 0.01)


def level(fewer: int, seed: int) -> tuple[str, list[str]]:
    """How often equal runs are called different, as observed and with the worst filling."""
    cells = [
        Cell(f"level|{loss.name}|{tasks}", _replicates(tasks), partial(verdicts, loss, tasks, 0.0))
        for loss in FALSE_LOSSES
        for tasks in FALSE_TASKS
    ]
    tallies = simulated("missing", cells, seed, fewer)
    return _level_text(tallies, seed), _false_too_often(tallies)


def power(fewer: int, seed: int) -> tuple[str, list[str]]:
    """How often a true difference is found when rollouts are lost at random."""
    gains = {tasks: gain_for(tasks, POWER) for tasks in POWER_TASKS}
    cells = [
        Cell(f"power|{loss.name}|{tasks}", _replicates(tasks), partial(verdicts, loss, tasks, gains[tasks]))
        for loss in RANDOM_LOSSES
        for tasks in POWER_TASKS
    ]
    cells += [
        Cell(f"many|{loss.name}", 150, partial(verdicts, loss, MANY_TASKS, MANY_APART), block=10)
        for loss in (NOTHING, MANY_LOSS)
    ]
    tallies = simulated("missing", cells, seed, fewer)
    return _power_text(tallies, gains, seed), _found_too_rarely(tallies)


def _replicates(tasks: int) -> int:
    return 4_000 if tasks < 500 else 2_000


def verdicts(loss: Loss, tasks: int, gain: float, rng: np.random.Generator, replicates: int) -> Sums:
    """How many comparisons call B better: as observed, with the worst filling, and as observed alone."""
    seen = kept = changed = 0
    for _ in range(replicates):
        chances = rng.beta(SHAPE, SHAPE, tasks)
        a = (rng.random(tasks) < chances).astype(np.float64)
        b = (rng.random(tasks) < np.minimum(chances + gain, 1.0)).astype(np.float64)
        lost_a = lost(a == 1, loss.of_a, rng) if loss.by_outcome else rng.random(tasks) < loss.of_a
        lost_b = lost(b == 0, loss.of_b, rng) if loss.by_outcome else rng.random(tasks) < loss.of_b
        decision = verdict(a, b, lost_a, lost_b)
        seen += decision.as_observed == "better"
        kept += decision.word == "better"
        changed += decision.word != decision.as_observed and not (lost_a.any() or lost_b.any())
    return {"seen": seen, "kept": kept, "changed": changed}


def lost(outcomes: Bools, share: float, rng: np.random.Generator) -> Bools:
    """Which rollouts with an outcome are lost, [T], so that ``share`` of all rollouts is lost on average."""
    among = share / max(float(outcomes.mean()), 1e-9)
    return np.asarray(outcomes & (rng.random(len(outcomes)) < among))


def verdict(a: Floats, b: Floats, lost_a: Bools, lost_b: Bools) -> Decision:
    """The program's verdict on B against A, with one sample per task and some rollouts lost."""
    both = ~lost_a & ~lost_b
    observed = paired(apart(b, a)[both], limits=RANGE)
    worst = None
    if not both.all():
        lowest = apart(np.where(lost_b, 0.0, b), np.where(lost_a, 1.0, a))
        highest = apart(np.where(lost_b, 1.0, b), np.where(lost_a, 0.0, a))
        worst = paired(lowest, limits=RANGE), paired(highest, limits=RANGE)
    return decide(Evidence(observed, observed, worst))


def better(wins: Ints, losses: Ints, tasks: int) -> Bools:
    """Whether the floored t test calls the second run better, from its won and lost tasks."""
    value = (wins - losses) / tasks
    variance = tasks / (tasks - 1) * np.maximum((wins + losses) / tasks**2 - value**2 / tasks, 0.0)
    stderr = np.sqrt(variance + (wins + losses > 0) / (4 * tasks**2))
    p = 2 * stdtr(tasks - 1, -np.abs(value) / np.where(stderr > 0, stderr, np.inf))
    return np.asarray((value > 0) & (p <= 2 * LEVEL))


def gain_for(tasks: int, wanted: float) -> float:
    """The gain in the chances of B with which complete runs are called better with the wanted power."""
    wins = np.arange(tasks + 1)[:, None]
    losses = np.arange(tasks + 1)[None, :]
    possible = wins + losses <= tasks
    wins, losses = (np.broadcast_to(count, possible.shape)[possible] for count in (wins, losses))
    found = better(wins, losses, tasks)
    wins, losses = wins[found], losses[found]
    ties = tasks - wins - losses
    ways = gammaln(tasks + 1) - gammaln(wins + 1) - gammaln(losses + 1) - gammaln(ties + 1)
    chances = betaincinv(SHAPE, SHAPE, (np.arange(NODES) + 0.5) / NODES)
    low, high = 0.0, 0.5
    for _ in range(HALVINGS):
        gain = (low + high) / 2
        of_b = np.minimum(chances + gain, 1.0)
        won, missed = float(np.mean((1 - chances) * of_b)), float(np.mean(chances * (1 - of_b)))
        share = np.exp(ways + xlogy(wins, won) + xlogy(losses, missed) + xlogy(ties, 1 - won - missed)).sum()
        low, high = (gain, high) if share < wanted else (low, gain)
    return (low + high) / 2


def _false_too_often(tallies: dict[str, Tally]) -> list[str]:
    said = []
    for loss in FALSE_LOSSES:
        for tasks in FALSE_TASKS:
            tally = tallies[f"level|{loss.name}|{tasks}"]
            where = f"{loss.name} lost, {tasks} tasks"
            if tally.share("kept") > MOST_FALSE + sqrt(MOST_FALSE * (1 - MOST_FALSE) / tally.replicates):
                said.append(
                    f"{where}: better in {percent(tally.share('kept'))} %, at most {percent(MOST_FALSE)} wanted"
                )
            if tally.sums["changed"]:
                said.append(f"{where}: a verdict changed although nothing was missing")
    return said


def _found_too_rarely(tallies: dict[str, Tally]) -> list[str]:
    said = []
    for tasks in POWER_TASKS:
        tally = tallies[f"power|{PROMISED.name}|{tasks}"]
        least = LEAST_POWER - sqrt(LEAST_POWER * (1 - LEAST_POWER) / tally.replicates)
        if tasks <= 200 and tally.share("kept") < least:
            found = f"found in {percent(tally.share('kept'))} %, at least {percent(LEAST_POWER)} promised"
            said.append(f"{PROMISED.name} lost at random, {tasks} tasks: {found}")
        complete = tallies[f"power|{NOTHING.name}|{tasks}"]
        if complete.sums["kept"] != complete.sums["seen"]:
            said.append(f"{tasks} tasks: power is lost although nothing is missing")
    return said


def _level_text(tallies: dict[str, Tally], seed: int) -> str:
    sizes = [tallies[f"level|{NOTHING.name}|{tasks}"].replicates for tasks in FALSE_TASKS]
    error = sqrt(LEVEL * (1 - LEVEL) / min(sizes))
    head = filled(
        f"Written by `make bench-statistics`: {max(sizes):,} pairs of runs per cell, {min(sizes):,} from 500 tasks on "
        f"(a standard error of at most {100 * error:.2f} points at a level of 2.5), seed {seed}, one sample per task, "
        "pass probabilities from Beta(.8, .8) and the same in both runs. In per cent: B is called better, as observed "
        "→ with every missing rollout filled against it (the verdict). Shares are of all rollouts of a run:\n"
    )
    rows = [f"| lost | {' | '.join(f'T = {tasks:,}' for tasks in FALSE_TASKS)} |", "|---" * 5 + "|"]
    for loss in FALSE_LOSSES:
        of_loss = [tallies[f"level|{loss.name}|{tasks}"] for tasks in FALSE_TASKS]
        rows.append(f"| {loss.name} | {' | '.join(_from_to(tally, loss) for tally in of_loss)} |")
    return "\n".join([head, *rows, ""])


def _from_to(tally: Tally, loss: Loss) -> str:
    if loss.nothing:
        return percent(tally.share("kept"))
    return f"{percent(tally.share('seen'))} → {percent(tally.share('kept'))}"


def _power_text(tallies: dict[str, Tally], gains: dict[int, float], seed: int) -> str:
    sizes = [tallies[f"power|{NOTHING.name}|{tasks}"].replicates for tasks in POWER_TASKS]
    error = sqrt(POWER * (1 - POWER) / min(sizes))
    listed_gains = ", ".join(f"{100 * gain:.1f} points at T = {tasks:,}" for tasks, gain in gains.items())
    head = filled(
        f"Written by `make bench-statistics`: {max(sizes):,} pairs of runs per cell, {min(sizes):,} at T = 1,000 (a "
        f"standard error of at most {100 * error:.1f} points), seed {seed}. The worlds of the table above, but B is "
        f"better by as much as complete runs show in 80 % ({listed_gains} in the pass probabilities). The share of "
        "comparisons that find it, in per cent, if rollouts are lost at random:\n"
    )
    rows = [f"| lost | {' | '.join(f'T = {tasks:,}' for tasks in POWER_TASKS)} |", "|---" * 4 + "|"]
    for loss in RANDOM_LOSSES:
        of_loss = [tallies[f"power|{loss.name}|{tasks}"] for tasks in POWER_TASKS]
        rows.append(f"| {loss.name} | {' | '.join(percent(tally.share('kept')) for tally in of_loss)} |")
    complete, gaps = tallies[f"many|{NOTHING.name}"], tallies[f"many|{MANY_LOSS.name}"]
    last = filled(
        f"At scale `--missing random` is needed: with {MANY_TASKS:,} tasks, a true difference of {100 * MANY_APART:g} "
        f"points and 1 % of both lost at random, the power is {percent(gaps.share('kept'))} %, with complete runs "
        f"{percent(complete.share('kept'))} %, and as observed {percent(gaps.share('seen'))} % ({gaps.replicates:,} "
        f"pairs, a standard error of at most {100 * max(gaps.error('kept'), complete.error('kept')):.1f} points).\n"
    )
    return "\n".join([head, *rows, "", last])
