"""Numbers of samples that follow results: the level of verdicts, how often such runs are found, and pooled rates.

Every replicate draws two equally good runs on the same tasks, asks `calipers.stats.counts` whether the numbers of
samples of either follow its results, compares first samples if so, and takes the word from `calipers.stats.claims`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from bench.simulations.cells import Cell, Sums, Tally, simulated
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.stats.claims import Evidence, decide, unseen
from calipers.stats.counts import common_weights, follows
from calipers.stats.paired import apart, judged, paired, rate_units, units_of

REPLICATES, FALSE_REPLICATES, POOLED_REPLICATES = 1_500, 500, 1_000
RANGE = (0.0, 1.0)
LEVEL = 0.025  # of each side
LAWS = ((1.0, 2.0), (2.0, 2.0), (10.0, 0.5))
TASKS = (30, 60, 200)
DESIGNS = ((1, 3), (4, 4), (8, 8))  # samples of the fixed run, and the most tries of the other
FALSE_LAWS = ((1.0, 2.0), (0.3, 0.7), (2.0, 2.0), (0.5, 10.0), (10.0, 0.5))
FALSE_TASKS = (30, 200)
POOLED_TASKS = (60, 150)
LOST = 0.1  # share of samples that are lost at random where two pooled rates are compared for power
GAIN = 0.08  # true difference of the chances there

NOT_PROMISED = ("pooled power", "stopped after a pass with a chance of .5, at most 4, 30")  # found in half of the runs

Rng: TypeAlias = np.random.Generator


@dataclass(frozen=True, slots=True)
class Run:
    """The samples of a run, sorted by task."""

    task: Ints  # [R]
    passed: Bools  # [R]

    @property
    def counts(self) -> Ints:
        """The number of samples of each task, [T]."""
        return np.bincount(self.task)

    @property
    def sums(self) -> Floats:
        """The number of passes and of samples of each task, [T, 2]."""
        sums: Floats = np.stack([np.bincount(self.task, self.passed), self.counts], axis=1)
        return sums

    @property
    def means(self) -> Floats:
        """The share of passes of each task, [T]."""
        means: Floats = self.sums[:, 0] / self.sums[:, 1]
        return means

    @property
    def firsts(self) -> Floats:
        """The first sample of each task, [T]."""
        starts = np.cumsum(self.counts) - self.counts
        firsts: Floats = self.passed[starts].astype(np.float64)
        return firsts

    @property
    def follows(self) -> bool:
        """Whether its numbers of samples are found to follow its results."""
        return follows(self.passed, np.ones(len(self.task), dtype=bool), self.task) is not None


def fixed(chances: Floats, rng: Rng, *, samples: int) -> Run:
    """The same number of samples of every task."""
    return _sampled(np.full(len(chances), samples), chances, rng)


def retried(chances: Floats, rng: Rng, *, most: int) -> Run:
    """Samples until the first pass, at most ``most``."""
    run = _sampled(np.full(len(chances), most), chances, rng)
    passed = run.passed.reshape(-1, most)
    before: Ints = np.cumsum(passed, axis=1) - passed
    kept: Bools = (before == 0).ravel()
    return Run(run.task[kept], run.passed[kept])


def batches(chances: Floats, rng: Rng) -> Run:
    """Two samples at a time until one passes, at most 4."""
    run = fixed(chances, rng, samples=4)
    first_passes = run.passed.reshape(-1, 4)[:, :2].any(axis=1)
    return _cut(run, np.where(first_passes, 2, 4))


def stopped_half(chances: Floats, rng: Rng) -> Run:
    """At most 4 samples; after each pass the task stops with a chance of one half."""
    run = fixed(chances, rng, samples=4)
    stops = (run.passed & (rng.random(len(run.passed)) < 0.5)).reshape(-1, 4)
    return _cut(run, np.where(stops.any(axis=1), stops.argmax(axis=1) + 1, 4))


def second_pass(chances: Floats, rng: Rng) -> Run:
    """Samples until the second pass, at most 6."""
    run = fixed(chances, rng, samples=6)
    reached = np.cumsum(run.passed.reshape(-1, 6), axis=1) >= 2
    return _cut(run, np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, 6))


def another_round(chances: Floats, rng: Rng) -> Run:
    """3 samples, and 3 more of the tasks where none passes."""
    run = fixed(chances, rng, samples=6)
    return _cut(run, np.where(run.passed.reshape(-1, 6)[:, :3].any(axis=1), 3, 6))


def until_half(chances: Floats, rng: Rng) -> Run:
    """2 samples or more, until at least half of them pass, at most 6."""
    run = fixed(chances, rng, samples=6)
    means = np.cumsum(run.passed.reshape(-1, 6), axis=1) / np.arange(1, 7)
    reached = means[:, 1:] >= 0.5
    return _cut(run, np.where(reached.any(axis=1), reached.argmax(axis=1) + 2, 6))


def one_to_eight(chances: Floats, rng: Rng) -> Run:
    """1 to 8 samples of each task, with equal probability."""
    return _sampled(rng.integers(1, 9, len(chances)), chances, rng)


def lost_at_random(chances: Floats, rng: Rng, *, samples: int, share: float) -> Run:
    """Samples of which a share is lost at random, and not in the file; of each task one remains."""
    return _without(fixed(chances, rng, samples=samples), np.full(len(chances), share), rng)


def hard_tasks_lost(chances: Floats, rng: Rng) -> Run:
    """8 samples, each lost with half of its task's chance of a failure; of each task one remains."""
    return _without(fixed(chances, rng, samples=8), (1 - chances) / 2, rng)


HONEST: dict[str, Callable[[Floats, Rng], Run]] = {
    "1 to 8 at random": one_to_eight,
    "8, 20 % lost": partial(lost_at_random, samples=8, share=0.2),
    "2, 10 % lost": partial(lost_at_random, samples=2, share=0.1),
}


OTHER_STOPS: dict[str, Callable[[Floats, Rng], Run]] = {
    "2 at a time until one passes, at most 4": batches,
    "stopped after a pass with a chance of .5, at most 4": stopped_half,
    "until the second pass, at most 6": second_pass,
    "3, and 3 more if none passes": another_round,
    "until half of at least 2 pass, at most 6": until_half,
}  # rules that the order of samples hardly shows


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    tallies = simulated("counts", _cells(), seed, fewer)
    parts = [*_levels(tallies), *_other_stops(tallies), *_honest(tallies), *_pooled(tallies)]
    return "\n".join(parts), _unkept(tallies)


def against_tries(rng: Rng, replicates: int, *, law: tuple[float, float], tasks: int, samples: int, most: int) -> Sums:
    """Words about a run that stops at its first pass, compared with one that does not."""
    return _words(rng, replicates, partial(retried, most=most), law=law, tasks=tasks, samples=samples)


def against_other_stops(rng: Rng, replicates: int, *, tasks: int, stop: str) -> Sums:
    """Words about a run that stops by another rule, compared with 4 samples of every task."""
    return _words(rng, replicates, OTHER_STOPS[stop], law=LAWS[0], tasks=tasks, samples=4)


def _words(
    rng: Rng,
    replicates: int,
    stopping: Callable[[Floats, Rng], Run],
    *,
    law: tuple[float, float],
    tasks: int,
    samples: int,
) -> Sums:
    sums = dict.fromkeys(("better", "worse", "as observed", "found"), 0.0)
    for _ in range(replicates):
        chances = rng.beta(*law, tasks)
        old, new = fixed(chances, rng, samples=samples), stopping(chances, rng)
        found, evidence = evidence_of(new, old)
        decision = decide(evidence)
        sums["better"] += decision.word == "better"
        sums["worse"] += decision.word == "worse"
        sums["as observed"] += decision.as_observed == "better"
        sums["found"] += found
    return sums


def evidence_of(new: Run, old: Run) -> tuple[bool, Evidence]:
    """Whether counts follow results in one of the runs, and the evidence about the difference of their means."""
    observed = paired(apart(new.means, old.means), limits=RANGE)
    found = new.follows or old.follows
    values = (new.firsts, old.firsts) if found else (new.means, old.means)
    units = units_of(apart(*values))
    compared = judged(units, RANGE, 0.95)
    return found, Evidence(observed, compared, counts=found, unseen=unseen(*values, units, RANGE))


def falsely_found(rng: Rng, replicates: int, *, law: tuple[float, float], tasks: int, draw: str) -> Sums:
    """Pairs of runs whose counts follow nothing, one of which is found to follow its results."""
    found = 0.0
    for _ in range(replicates):
        chances = rng.beta(*law, tasks)
        found += HONEST[draw](chances, rng).follows or HONEST[draw](chances, rng).follows
    return {"found": found}


def pooled_level(rng: Rng, replicates: int, *, tasks: int) -> Sums:
    """Words about pooled rates of equally good runs, if hard tasks of the new run lose samples."""
    words = dict.fromkeys(("better", "as observed"), 0.0)
    for _ in range(replicates):
        chances = rng.beta(1.0, 2.0, tasks)
        _add_pooled(words, hard_tasks_lost(chances, rng), fixed(chances, rng, samples=8))
    return words


def pooled_power(rng: Rng, replicates: int, *, tasks: int) -> Sums:
    """Words about pooled rates of a better run, if both lose the same share of samples at random."""
    words = dict.fromkeys(("better", "as observed"), 0.0)
    for _ in range(replicates):
        chances = rng.beta(1.0, 2.0, tasks)
        new = lost_at_random(np.minimum(chances + GAIN, 1.0), rng, samples=8, share=LOST)
        _add_pooled(words, new, lost_at_random(chances, rng, samples=8, share=LOST))
    return words


def _add_pooled(words: Sums, new: Run, old: Run) -> None:
    observed = judged(rate_units(new.sums, old.sums), RANGE, 0.95)
    weighted = judged(common_weights(new.sums, old.sums), RANGE, 0.95)
    decision = decide(Evidence(observed, observed, weighted=weighted))
    words["better"] += decision.word == "better"
    words["as observed"] += decision.as_observed == "better"


def _sampled(samples: Ints, chances: Floats, rng: Rng) -> Run:
    task = np.repeat(np.arange(len(chances)), samples)
    return Run(task, rng.random(len(task)) < chances[task])


def _cut(run: Run, samples: Ints) -> Run:
    """The run with only the first samples of each task, so many as given, [T]."""
    starts = np.cumsum(run.counts) - run.counts
    kept = np.arange(len(run.task)) - starts[run.task] < samples[run.task]
    return Run(run.task[kept], run.passed[kept])


def _without(run: Run, shares: Floats, rng: Rng) -> Run:
    """The run without a share of each task's samples, [T]; a task that would lose all of them keeps its first."""
    kept = rng.random(len(run.task)) >= shares[run.task]
    left = np.bincount(run.task[kept], minlength=len(shares))
    starts = np.cumsum(run.counts) - run.counts
    kept[starts[left == 0]] = True
    return Run(run.task[kept], run.passed[kept])


def _cells() -> list[Cell]:
    cells = []
    for law in LAWS:
        for samples, most in DESIGNS:
            for tasks in TASKS:
                simulate = partial(against_tries, law=law, tasks=tasks, samples=samples, most=most)
                cells.append(Cell(_key(law, samples, most, tasks), REPLICATES, simulate))
    for stop in OTHER_STOPS:
        for tasks in TASKS:
            simulate = partial(against_other_stops, tasks=tasks, stop=stop)
            cells.append(Cell(f"{stop}, {tasks}", REPLICATES, simulate))
    for draw in HONEST:
        for law in FALSE_LAWS:
            for tasks in FALSE_TASKS:
                simulate = partial(falsely_found, law=law, tasks=tasks, draw=draw)
                cells.append(Cell(f"{draw}, {_law(law)}, {tasks}", FALSE_REPLICATES, simulate))
    for tasks in POOLED_TASKS:
        cells.append(Cell(f"pooled level, {tasks}", POOLED_REPLICATES, partial(pooled_level, tasks=tasks)))
        cells.append(Cell(f"pooled power, {tasks}", POOLED_REPLICATES, partial(pooled_power, tasks=tasks)))
    return cells


def _levels(tallies: dict[str, Tally]) -> list[str]:
    replicates = tallies[_key(LAWS[0], *DESIGNS[0], TASKS[0])].replicates
    lines = [
        f"Verdicts on equally good runs, in per cent: better / worse, at {_listed(TASKS)} tasks, and in brackets how "
        f"often a comparison of all samples says better; {replicates:,} replicates per cell, error "
        f"{_error(LEVEL, replicates)} at 2.5.",
        "",
        "| chances | " + " | ".join(f"{samples} against at most {most} tries" for samples, most in DESIGNS) + " |",
        "|---" * (1 + len(DESIGNS)) + "|",
    ]
    for law in LAWS:
        texts = []
        for design in DESIGNS:
            cells = [tallies[_key(law, *design, tasks)] for tasks in TASKS]
            words = "; ".join(f"{_percent(cell, 'better')} / {_percent(cell, 'worse')}" for cell in cells)
            texts.append(f"{words} ({'; '.join(_percent(cell, 'as observed', 0) for cell in cells)})")
        lines.append(f"| {_law(law)} | {' | '.join(texts)} |")
    found = []
    for law in LAWS:
        shares = []
        for tasks in TASKS:
            cells = [tallies[_key(law, *design, tasks)] for design in DESIGNS]
            shares.append(f"{min(100 * cell.share('found') for cell in cells):.0f}")
        found.append(f"{_law(law)} {', '.join(shares)}")
    return [*lines, "", f"Found in per cent, at least over the three designs: {'; '.join(found)}.", ""]


def _other_stops(tallies: dict[str, Tally]) -> list[str]:
    lines = [
        f"Other rules, against 4 samples of every task, with chances from {_law(LAWS[0])}: better / worse, in brackets "
        f"better by all samples, and how often the run is found, in per cent, at {_listed(TASKS)} tasks.",
        "",
        "| samples of a task | better / worse | found |",
        "|---|---|---|",
    ]
    for stop in OTHER_STOPS:
        cells = [tallies[f"{stop}, {tasks}"] for tasks in TASKS]
        words = "; ".join(f"{_percent(cell, 'better')} / {_percent(cell, 'worse')}" for cell in cells)
        observed = "; ".join(_percent(cell, "as observed", 0) for cell in cells)
        found = "; ".join(_percent(cell, "found", 0) for cell in cells)
        lines.append(f"| {stop} | {words} ({observed}) | {found} |")
    return [*lines, ""]


def _honest(tallies: dict[str, Tally]) -> list[str]:
    replicates = tallies[f"{next(iter(HONEST))}, {_law(FALSE_LAWS[0])}, {FALSE_TASKS[0]}"].replicates
    lines = [
        "Pairs in which a run is found although its numbers of samples follow nothing, in per cent, at "
        f"{_listed(FALSE_TASKS)} tasks; {replicates:,} replicates per cell. This costs power, but not level.",
        "",
        "| samples of a task | " + " | ".join(_law(law) for law in FALSE_LAWS) + " |",
        "|---" * (1 + len(FALSE_LAWS)) + "|",
    ]
    for draw in HONEST:
        texts = []
        for law in FALSE_LAWS:
            cells = [tallies[f"{draw}, {_law(law)}, {tasks}"] for tasks in FALSE_TASKS]
            texts.append("; ".join(_percent(cell, "found") for cell in cells))
        lines.append(f"| {draw} | {' | '.join(texts)} |")
    return [*lines, ""]


def _pooled(tallies: dict[str, Tally]) -> list[str]:
    lines = [
        'Pooled rates, "better" in per cent by the rates alone and also on common weights; '
        f"{tallies[f'pooled level, {POOLED_TASKS[0]}'].replicates:,} replicates per row. In the first rows hard tasks "
        "of one of two equally good runs lose up to half of their samples; in the others both runs lose 10 % at "
        f"random, and the chances of one are {GAIN:g} higher.",
        "",
        "| | tasks | rates alone | also on common weights |",
        "|---|---:|---:|---:|",
    ]
    for name, title in (("pooled level", "hard tasks lose samples"), ("pooled power", "10 % lost at random")):
        for tasks in POOLED_TASKS:
            cell = tallies[f"{name}, {tasks}"]
            lines.append(f"| {title} | {tasks} | {_percent(cell, 'as observed')} | {_percent(cell, 'better')} |")
    return lines


def _unkept(tallies: dict[str, Tally]) -> list[str]:
    unkept = []
    for key, cell in tallies.items():
        for word in ("better", "worse"):
            most = LEVEL + 3 * (LEVEL * (1 - LEVEL) / cell.replicates) ** 0.5
            if not key.startswith(NOT_PROMISED) and cell.share(word) > most:
                unkept.append(f"counts: {key}: {_percent(cell, word)} % {word} for equally good runs")
    return unkept


def _key(law: tuple[float, float], samples: int, most: int, tasks: int) -> str:
    return f"{samples} against {most} tries, {_law(law)}, {tasks}"


def _law(law: tuple[float, float]) -> str:
    return f"Beta({law[0]:g}, {law[1]:g})"


def _listed(numbers: tuple[int, ...]) -> str:
    return "; ".join(map(str, numbers))


def _percent(cell: Tally, name: str, digits: int = 1) -> str:
    return f"{100 * cell.share(name):.{digits}f}"


def _error(level: float, replicates: int) -> str:
    return f"{100 * 1.96 * (level * (1 - level) / replicates) ** 0.5:.1f}"
