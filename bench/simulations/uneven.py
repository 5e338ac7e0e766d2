"""Sample counts that depend on results: how often they are detected, false warnings, and the validity of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias

import numpy as np

from bench.simulations.rule import Floats, Ints, default_ends, of_clusters
from calipers.rollouts.column import Bools
from calipers.stats.counts import Samples, Tries, dependence_of
from calipers.stats.intervals import interval
from calipers.stats.sequence import population

LEVEL_RUNS, FOUND_RUNS = 10_000, 4_000
TASKS = (30, 60, 200)
CHANCES = ((1.0, 2.0), (0.3, 0.7), (2.0, 2.0), (0.5, 10.0), (10.0, 0.5))
MOST = 8  # maximum samples of a task
FALSE = 0.02  # maximum share of warnings if counts do not depend on results
CELLS = 400_000  # replicates times tasks that are computed together
# mean and deviation of the ordinary tasks, and the share of tasks with the value 0
GRADED, DEVIATION, LOST = 0.92, 0.02, 0.01
WITNESSES = 4_000  # runs with the product's own interval, which is slow

Rng: TypeAlias = np.random.Generator
Counts: TypeAlias = tuple[Ints, Ints, Bools]
"""Samples, passes, and whether the last sample is a pass, [R, T] each."""


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page: false warnings, due warnings, coverage after retries, and rare catastrophes."""
    streams = [np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(4)]
    false, unkept = _false_warnings(LEVEL_RUNS // fewer, streams[0])
    found = _found(FOUND_RUNS // fewer, streams[1])
    right, biased = _after_retries(LEVEL_RUNS // fewer, streams[2])
    rare = _catastrophes(LEVEL_RUNS // fewer, WITNESSES // fewer, streams[3])
    return "\n\n".join([false, found, right, rare]), [*unkept, *biased]


def at_random(chances: Floats, rng: Rng) -> Counts:
    """1 to 8 samples, with equal probability."""
    return _passes(rng.integers(1, MOST + 1, chances.shape), chances, rng)


def one_or_two(chances: Floats, rng: Rng) -> Counts:
    """1 or 2 samples."""
    return _passes(rng.integers(1, 3, chances.shape), chances, rng)


def lost_at_random(chances: Floats, rng: Rng) -> Counts:
    """8 samples, a fifth of which are lost."""
    return _passes(rng.binomial(MOST, 0.8, chances.shape), chances, rng)


def cut_short(chances: Floats, rng: Rng) -> Counts:
    """8 samples, but 5 % of the tasks have 1 to 7."""
    short = rng.random(chances.shape) < 0.05
    return _passes(np.where(short, rng.integers(1, MOST, chances.shape), MOST), chances, rng)


def retries(chances: Floats, rng: Rng, most: int = MOST) -> Counts:
    """Samples until the first pass, at most ``most``."""
    tries = rng.geometric(np.maximum(chances, 1e-12))
    done = tries <= most
    return np.where(done, tries, most), done.astype(np.int64), done


def hard_lost(chances: Floats, rng: Rng) -> Counts:
    """8 samples, each lost with half of the task's chance of a failure."""
    return _passes(rng.binomial(MOST, 1 - (1 - chances) / 2), chances, rng)


def failures_lost(chances: Floats, rng: Rng) -> Counts:
    """8 samples; a fifth of the failures are lost."""
    passes = rng.binomial(MOST, chances)
    n = passes + rng.binomial(MOST - passes, 0.8)
    return n, passes, rng.random(n.shape) * np.maximum(n, 1) < passes


def _passes(n: Ints, chances: Floats, rng: Rng) -> Counts:
    """Passes that do not depend on the number of samples; the last sample is a random one."""
    passes = rng.binomial(n, chances)
    return n, passes, rng.random(n.shape) * np.maximum(n, 1) < passes


Draw: TypeAlias = Callable[[Floats, Rng], Counts]
INDEPENDENT: dict[str, Draw] = {
    "1 to 8 at random": at_random,
    "1 or 2": one_or_two,
    "8, a fifth lost at random": lost_at_random,
    "8, 5 % of the tasks cut short": cut_short,
}
DEPENDENT: dict[str, Draw] = {
    "retries, at most 8": retries,
    "retries, at most 3": lambda chances, rng: retries(chances, rng, 3),
    "8, lost with half the probability of failing": hard_lost,
    "8, a fifth of the failures lost": failures_lost,
}


def warned(n: Ints, c: Ints, last: Bools) -> Bools:
    """Whether the program warns of each replicate, [R], of n samples, c passes and whether the last passes, [R, T]."""
    means = c / np.maximum(n, 1)
    warnings = np.zeros(len(n), dtype=bool)
    for run in range(len(n)):
        tries = Tries(n[run], n[run], c[run], last[run])
        warnings[run] = dependence_of(Samples(tries, means[run])) is not None
    return warnings


def warning_rate(draw: Draw, law: tuple[float, float], tasks: int, runs: int, rng: Rng) -> float:
    """The share of runs with a warning."""
    hits, done = 0, 0
    while done < runs:
        batch = min(runs - done, max(1, CELLS // tasks))
        hits += int(warned(*draw(rng.beta(*law, (batch, tasks)), rng)).sum())
        done += batch
    return hits / runs


def _false_warnings(runs: int, rng: Rng) -> tuple[str, list[str]]:
    rows, unkept = [], []
    allowed = FALSE + sqrt(FALSE * (1 - FALSE) / runs)
    for name, draw in INDEPENDENT.items():
        cells = []
        for law in CHANCES:
            rates = [warning_rate(draw, law, tasks, runs, rng) for tasks in TASKS]
            cells.append(" / ".join(f"{100 * rate:.1f}" for rate in rates))
            unkept += [
                f"{name}, {_law(law)}, {tasks} tasks: {100 * rate:.2f} % false warnings"
                for tasks, rate in zip(TASKS, rates, strict=True)
                if rate > allowed
            ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    head = f"| samples of a task | {' | '.join(_law(law) for law in CHANCES)} |"
    said = (
        f"**False warnings** in per cent, if sample counts do not depend on results, at {_tasks()} tasks; {runs:,} "
        f"runs per cell, at most {100 * FALSE:g} is promised:"
    )
    return "\n".join([said, "", head, "|---|" + "---|" * len(CHANCES), *rows]), unkept


def _found(runs: int, rng: Rng) -> str:
    rows = []
    for name, draw in DEPENDENT.items():
        cells = [
            " / ".join(f"{100 * warning_rate(draw, law, tasks, runs, rng):.0f}" for tasks in TASKS) for law in CHANCES
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    head = f"| samples of a task | {' | '.join(_law(law) for law in CHANCES)} |"
    said = (
        f"**Correct warnings** in per cent, at {_tasks()} tasks; {runs:,} runs per cell. The absence of a warning does "
        "not prove that counts are independent of results:"
    )
    return "\n".join([said, "", head, "|---|" + "---|" * len(CHANCES), *rows])


@dataclass(frozen=True, slots=True)
class Kept:
    """The bias and the coverage of an estimator over many runs."""

    bias: float
    coverage: float


def after_retries(tasks: int, k: int, runs: int, rng: Rng) -> dict[str, Kept]:
    """any_of_first_k, the mean of all samples and pass@k after up to 8 retries, with chances Beta(1, 2)."""
    truth = 1 - 2 / (k + 2)  # 1 - E[(1 - p)^k] with E[(1 - p)^k] = 2 / (k + 2)
    n, c, _ = retries(rng.beta(1.0, 2.0, (runs, tasks)), rng)
    first = (c == 1) & (n <= k)
    found = {f"any_of_first_{k}": _kept(first.astype(float), np.ones(n.shape, dtype=bool), truth)}
    if k == 1:
        return {**found, "mean_reward": _kept(c / n, np.ones(n.shape, dtype=bool), truth)}
    # of n samples with c of 0 or 1 passes: 1 - C(n - c, k) / C(n, k) = c k / n
    return {**found, f"pass@{k}": _kept(c * k / n, n >= k, truth)}


def _kept(values: Floats, defined: Bools, truth: float) -> Kept:
    """The bias and the coverage over replicates of task values [R, T], of which some are undefined."""
    means, covered = [], []
    for size in np.unique(defined.sum(axis=1)):
        rows = defined.sum(axis=1) == size
        if size < 2:
            continue  # no interval
        kept = values[rows][defined[rows]].reshape(-1, size)
        low, high = default_ends(of_clusters(kept, np.ones(size, dtype=np.int64)))
        means.append(kept.mean(axis=1))
        covered.append((low <= truth) & (truth <= high))
    return Kept(float(np.concatenate(means).mean()) - truth, float(np.concatenate(covered).mean()))


def _after_retries(runs: int, rng: Rng) -> tuple[str, list[str]]:
    rows, unkept = [], []
    for tasks in (20, 100):
        for k in (1, 4):
            found = after_retries(tasks, k, runs, rng)
            for name, kept in found.items():
                rows.append(f"| {tasks} | `{name}` | {kept.bias:+.4f} | {100 * kept.coverage:.1f} |")
            right = found[f"any_of_first_{k}"]
            if right.coverage + sqrt(0.05 * 0.95 / runs) < 0.93:
                unkept.append(f"any_of_first_{k} covers {100 * right.coverage:.1f} % at {tasks} tasks after retries")
    said = (
        "**After retries**, at most 8, with pass probabilities from Beta(1, 2): bias, and coverage of the default "
        f"interval in per cent; {runs:,} runs per row. `any_of_first_k` covers at least 93, as promised:"
    )
    head = ["| tasks | metric | bias | coverage |", "|---:|---|---:|---:|"]
    return "\n".join([said, "", *head, *rows]), unkept


def catastrophes(tasks: int, share: float, runs: int, rng: Rng) -> Floats:
    """Task values near .92, except for this share of tasks with the value 0, [R, T]."""
    near = np.clip(GRADED + DEVIATION * rng.standard_normal((runs, tasks)), 0.0, 1.0)
    return np.where(rng.random((runs, tasks)) < share, 0.0, near)


def _catastrophes(runs: int, witnesses: int, rng: Rng) -> str:
    rows = []
    for tasks in (50, 100, 200, 500, 1000):
        values = catastrophes(tasks, LOST, runs, rng)
        truth = (1 - LOST) * GRADED
        low, high = default_ends(of_clusters(values, np.ones(tasks, dtype=np.int64)))
        ends = [population(float(row.sum()), tasks, 0.95) for row in values[:witnesses]]
        below, above = np.array(ends).T
        covered = [((a <= truth) & (truth <= b)).mean() for a, b in ((low, high), (below, above))]
        unseen = (values > 0).all(axis=1).mean()
        calm = catastrophes(tasks, 0.0, 1, rng)[0]
        half = (lambda e: (e[1] - e[0]) / 2)(interval(calm, np.ones(tasks), 0.95, (0.0, 1.0)).ends or (0.0, 0.0))
        needed = GRADED * (1 - 0.025 ** (1 / tasks))
        rows.append(
            f"| {tasks} | {100 * unseen:.1f} | {100 * covered[0]:.1f} | {100 * covered[1]:.1f} | {half:.4f} | "
            f"{needed:.4f} |"
        )
    said = (
        f"**Rare catastrophes**: 99 % of the tasks near {GRADED:g} (standard deviation {DEVIATION:g}), 1 % at 0; "
        f"{runs:,} runs per row ({witnesses:,} for `beta_mixture`), in per cent. A run without a loss does not show "
        "that losses are possible. The last columns are half the width of the default interval of a run without a "
        "loss, and how far its lower end would have to reach to allow for losses that 2.5 % of such runs never see:"
    )
    head = [
        "| tasks | runs without a loss | default covers | `--interval beta_mixture` covers | half width | needed |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([said, "", *head, *rows])


def _law(law: tuple[float, float]) -> str:
    return f"Beta({law[0]:g}, {law[1]:g})"


def _tasks() -> str:
    return " / ".join(map(str, TASKS))
