"""Nightly gates after a drop: whether an alarm stays open while the drop lasts, and when it closes after a repair.

A history has 60 nights of the same tasks with chances Beta(0.8, 0.8). From night 7 on every chance is lower by the
drop, but not below 0. In some worlds the drop is repaired five nights after the alarm, wholly, by 80 % or by a half.
The settings are those of ``calipers gate --history``: drop(reward) > 0, 180 planned nights, 5 % false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from bench.simulations.cells import Cell, Sums, Tally, simulated
from bench.simulations.report import filled
from calipers.rollouts.column import Floats
from calipers.stats.alarms import (
    CLOSE_AT,
    FORGETTING,
    Process,
    Recovery,
    RunningBest,
    drop_units,
    recovery_level,
    segment_level,
    within_variance,
)

HISTORIES: Final = 200
NIGHTS: Final = 60
PLANNED: Final = 180
ALPHA: Final = 0.05
FIRST_LOW: Final = 6  # the first night of the drop, counted from 0
REPAIRED_AFTER: Final = 5  # nights from the alarm to the repair
FORCED: Final = 8  # the night of a forced false alarm, counted from 0
BLOCK: Final = 20
MOST_FALSE: Final = 0.05
QUIET, OPEN, CLOSED = "quiet", "open", "closed"


@dataclass(slots=True)
class NightlyGate:
    """The gate of a history, for nights of the same tasks with the same number of samples."""

    samples: int
    stays_open: bool = True  # without it an alarm ends with its night, as it did before
    process: Process = field(default_factory=lambda: Process.begin(PLANNED, even=True))
    best: RunningBest = field(default_factory=lambda: RunningBest.begin(ALPHA / 2, PLANNED, pooled=True))
    recovery: Recovery | None = None
    sums: Floats | None = None  # of each task's values, with the weight of earlier nights
    weight: float = 0.0
    means: list[float] = field(default_factory=list)
    segment: int = 1

    def night(self, passes: Floats, *, forced: bool = False) -> str:
        """Add a night with the passes of each task, [T]: quiet, open, or closed by this night."""
        values = passes / self.samples
        mean = float(values.mean())
        first = self.sums is None
        sums = np.zeros(len(values)) if self.sums is None else self.sums
        expected = (sums + self.means[-1]) / (self.weight + 1) if self.means else np.zeros(len(values))
        centre = float(expected.mean())
        decay = 1.0 if first else FORGETTING
        self.sums, self.weight = decay * (sums + values), decay * (self.weight + 1)
        self.means.append(mean)
        if self.recovery is not None:
            self.recovery = self.recovery.step(values, expected, centre)
            if not self.recovery.closes:
                return OPEN
            self.recovery = None
            return CLOSED
        number = len(self.means) - 1
        bound = float(self.best.best)
        if not first:
            self.process = self.process.step(drop_units(values, expected, bound, centre).logs, number)
        needed = 1 / segment_level(ALPHA / 2, self.segment, self.segment - 1)
        raised = forced or (not first and float(self.process.log_value) >= math.log(needed))
        if raised:
            since = number if forced else int(self.process.since)
            self.segment += 1
            self.process = Process.begin(PLANNED, even=True)
            if self.stays_open:
                self.recovery = Recovery.begin(float(recovery_level(bound, float(np.mean(self.means[since:])))))
                return OPEN
        variance, units = self._noise(passes, mean)
        self.best = self.best.step(mean, variance, units)
        return OPEN if raised else QUIET

    def _noise(self, passes: Floats, mean: float) -> tuple[float, float]:
        """The squared standard error of a night's mean over these tasks, and its units."""
        counts = np.full(len(passes), float(self.samples))
        _, variance, units = within_variance(passes, passes, counts)
        return variance, units


def history(
    rng: np.random.Generator, replicates: int, *, tasks: int, samples: int, drop: float, repaired: float | None
) -> Sums:
    """Histories with a drop, of which a share ``repaired`` goes away after the alarm; None: it stays."""
    sums: Sums = {"alarms": 0, "closed": 0, "early": 0, "later": 0, "green": 0}
    for _ in range(replicates):
        before = rng.beta(0.8, 0.8, tasks)
        low = np.clip(before - drop, 0.0, 1.0)
        gate, today = NightlyGate(samples), NightlyGate(samples, stays_open=False)
        alarm, closed = None, None
        for night in range(NIGHTS):
            chances = before if night < FIRST_LOW else low
            is_repaired = repaired is not None and alarm is not None and night >= alarm + REPAIRED_AFTER
            if repaired is not None and is_repaired:
                chances = low + repaired * (before - low)
            passes = rng.binomial(samples, chances).astype(np.float64)
            state = gate.night(passes)
            if night > FIRST_LOW and repaired is None:
                sums["later"] += 1
                sums["green"] += today.night(passes) != OPEN
            elif repaired is None:
                today.night(passes)
            if alarm is None and state == OPEN:
                alarm = night
            if alarm is not None and closed is None and state == CLOSED:
                closed = night
        _count(sums, alarm, closed, 0 if repaired is None else REPAIRED_AFTER)
    return sums


def false_alarm(rng: np.random.Generator, replicates: int, *, tasks: int, samples: int) -> Sums:
    """Histories without a drop, and an alarm that is raised all the same."""
    sums: Sums = {"alarms": 0, "closed": 0, "early": 0}
    for _ in range(replicates):
        chances = rng.beta(0.8, 0.8, tasks)
        gate = NightlyGate(samples)
        closed = None
        for night in range(NIGHTS):
            passes = rng.binomial(samples, chances).astype(np.float64)
            state = gate.night(passes, forced=night == FORCED)
            if closed is None and state == CLOSED:
                closed = night
        _count(sums, FORCED, closed, 0)
    return sums


def _count(sums: Sums, alarm: int | None, closed: int | None, repaired_after: int) -> None:
    """Count an alarm, and after how many nights from its repair it was closed: 0 is the first repaired night."""
    if alarm is None:
        return
    sums["alarms"] += 1
    if closed is None:
        return
    sums["closed"] += 1
    waited = closed - alarm - repaired_after
    if waited < 0:
        sums["early"] += 1
    key = f"closed after {waited}"
    sums[key] = sums.get(key, 0) + 1


@dataclass(frozen=True, slots=True)
class World:
    """The size of a night, and the drop."""

    tasks: int
    samples: int
    drop: float

    @property
    def name(self) -> str:
        """``150 x 4, drop 0.2``."""
        return f"{self.tasks} x {self.samples}, drop {self.drop:g}"


WORLDS: Final = (World(150, 1, 0.2), World(150, 4, 0.2), World(150, 4, 0.1), World(500, 1, 0.1))
REPAIRS: Final[Mapping[str, float | None]] = {"stays": None, "full": 1.0, "80 %": 0.8, "half": 0.5}
FALSE: Final = ((150, 1), (150, 4))


def cells() -> list[Cell]:
    """Every world with every repair, and the forced false alarms."""
    found = []
    for world in WORLDS:
        for repair, share in REPAIRS.items():
            simulate = partial(history, tasks=world.tasks, samples=world.samples, drop=world.drop, repaired=share)
            found.append(Cell(f"{world.name}, {repair}", HISTORIES, simulate, BLOCK))
    for tasks, samples in FALSE:
        simulate = partial(false_alarm, tasks=tasks, samples=samples)
        found.append(Cell(f"{tasks} x {samples}, false", HISTORIES, simulate, BLOCK))
    return found


def quantile(tally: Tally, share: float) -> str:
    """The nights within which this share of all alarms was closed; a dash if fewer ever were."""
    waits = sorted(
        (int(key.removeprefix("closed after ")), count)
        for key, count in tally.sums.items()
        if key.startswith("closed after ")
    )
    total = 0.0
    for nights, count in waits:
        total += count
        if total >= share * tally.sums["alarms"]:
            return str(nights)
    return "–"


def closed_share(tally: Tally, key: str = "closed") -> float:
    """The share of alarms that were closed."""
    return tally.sums[key] / tally.sums["alarms"] if tally.sums["alarms"] else 0.0


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    found = simulated("recovery", cells(), seed, fewer)
    histories = next(iter(found.values())).replicates
    error = 100 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / histories)
    head = filled(
        f"Written by `make bench-statistics`: {histories} histories of {NIGHTS} nights in each cell, seed {seed}; the "
        f"standard error of a share of 5 % is {error:.1f} points. Tasks have chances Beta(0.8, 0.8); from night 7 on "
        "all are lower by the drop. Closed while it stays: alarms that closed although nothing was repaired. Nights to "
        f"close: from the repair, {REPAIRED_AFTER} nights after the alarm, median; 90 % of all alarms. Passed before: "
        "the nights after the drop that passed when an alarm ended with its night.\n"
    )
    lines = [
        head,
        "| nights | closed while it stays, % | after full recovery | after 80 % | half recovered: ever closed, % "
        "| passed before, % |",
        "|---|---|---|---|---|---|",
    ]
    unkept = []
    for world in WORLDS:
        stays, full, most, half = (found[f"{world.name}, {repair}"] for repair in REPAIRS)
        green = stays.sums["green"] / stays.sums["later"]
        row = [
            world.name,
            f"{100 * closed_share(stays):.1f}",
            f"{quantile(full, 0.5)}; {quantile(full, 0.9)}",
            f"{quantile(most, 0.5)}; {quantile(most, 0.9)}",
            f"{100 * closed_share(half):.0f}",
            f"{100 * green:.0f}",
        ]
        lines.append(f"| {' | '.join(row)} |")
        for repair, wrong in (("stays", closed_share(stays)), ("full", closed_share(full, "early"))):
            if 100 * (wrong - MOST_FALSE) > 2 * error:
                unkept.append(f"recovery: {100 * wrong:.1f} % of alarms close before a repair ({world.name}, {repair})")
    forced = []
    for tasks, samples in FALSE:
        tally = found[f"{tasks} x {samples}, false"]
        forced.append(f"{quantile(tally, 0.5)} nights (90 %: {quantile(tally, 0.9)}) on {tasks} x {samples}")
    lines += [
        "",
        filled(
            f"An alarm that was raised without any drop, in night {FORCED + 1}, closes after {', '.join(forced)} in "
            f"the median. Evidence of {CLOSE_AT:g} closes an alarm, so at most 5 % of alarms close falsely.\n"
        ).rstrip("\n"),
    ]
    return "\n".join(lines) + "\n", unkept
