"""The tasks: which are hard, which separate runs, and which contradict the others.

The two-parameter logistic model: how much a task tells about runs of an ability.

A run of ability theta passes a task of difficulty b and slope a with the chance ``1 / (1 + exp(-a (theta - b)))``
(Birnbaum 1968). Where that chance turns quickly, and near 1/2, one try tells the most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Bools, Column, Floats, Ints

SLOPE_SPREAD = 1.0  # prior standard deviation of a task's slope, around 1
LEVEL_SPREAD = 2.0  # prior standard deviation of a task's logit at the mean ability, around the runs' mean logit
MOST_STEPS = 100
SAME = 1e-10  # a step this small changes no digit that is shown


@dataclass(frozen=True, slots=True)
class ItemCurves:
    """One curve per task, [T] each."""

    slope: Floats  # a, never below 0: a task that better runs fail tells nothing that a mean could use
    difficulty: Floats  # b; of no account where the slope is 0


def chance(ability: Floats | float, slope: Floats | float, difficulty: Floats | float) -> Floats:
    """The chance that a run of this ability passes, ``1 / (1 + exp(-a (theta - b)))``.

    >>> round(float(chance(0.5, slope=1.5, difficulty=0.0)), 6)
    0.679179
    """
    return _chance(np.multiply(slope, np.subtract(ability, difficulty)))


def information(ability: Floats | float, slope: Floats | float, difficulty: Floats | float) -> Floats:
    """What one try tells about an ability near this one, ``a^2 P (1 - P)``: 1 over the variance it would leave.

    >>> round(float(information(0.5, slope=1.5, difficulty=0.0)), 6)
    0.490264
    """
    p = chance(ability, slope, difficulty)
    return np.asarray(np.square(slope) * p * (1 - p))


def abilities(values: Floats, given: Bools) -> Floats:
    """The logit of each run's mean over the tasks it has, [M], from task values on [0, 1], [M, T].

    Half a pass and half a failure are added, ``(sum + 1/2) / (n + 1)``: a run that solves everything is no
    infinitely able one.
    """
    count = given.sum(axis=1)
    mean = (np.where(given, values, 0.0).sum(axis=1) + 0.5) / (count + 1)
    return np.asarray(np.log(mean / (1 - mean)))


def fitted(values: Floats, given: Bools, ability: Floats) -> ItemCurves:
    """The curve of each task through its values on [0, 1] over the abilities of the runs, [M, T] and [M].

    The most likely level and slope of ``level + slope (theta - mean theta)``, a priori normal around those of a
    task that is like the whole, which each run passes with its own mean: level around the mean ability with a
    standard deviation of 2, slope around 1 with 1. That is weak (the middle two thirds of tasks from .12 to .88
    at a mean of 1/2), and keeps tasks finite that all runs pass, and few runs from drawing cliffs. A run counts
    once however many samples it has: it is one test-taker. By Newton's method over all tasks at once; the
    posterior has one peak.
    """
    centre = float(ability.mean())
    x = (ability - centre)[:, None]
    y, w = np.where(given, values, 0.0), given.astype(np.float64)
    level, slope = np.full(values.shape[1], centre), np.ones(values.shape[1])
    at = _posterior(level, slope, x, y, w, centre)
    for _ in range(MOST_STEPS):
        up, turn = _step(level, slope, x, y, w, centre)
        for _ in range(MOST_STEPS):
            new = _posterior(level + up, slope + turn, x, y, w, centre)
            short = new < at - 1e-12 * np.abs(at)
            if not short.any():
                break
            up, turn = np.where(short, up / 2, up), np.where(short, turn / 2, turn)
        level, slope, at = level + up, slope + turn, new
        if max(np.abs(up).max(initial=0), np.abs(turn).max(initial=0)) < SAME:
            break
    rises = slope > 0
    apart = np.where(rises, level, 1.0) / np.where(rises, slope, 1.0)
    return ItemCurves(np.where(rises, slope, 0.0), np.where(rises, centre - apart, centre))


def _step(level: Floats, slope: Floats, x: Floats, y: Floats, w: Floats, centre: float) -> tuple[Floats, Floats]:
    """Newton's step of level and slope, [T] each."""
    p = _chance(level + slope * x)
    left, bend = w * (y - p), w * p * (1 - p)
    rise = left.sum(axis=0) - (level - centre) / LEVEL_SPREAD**2
    twist = (left * x).sum(axis=0) - (slope - 1) / SLOPE_SPREAD**2
    a = bend.sum(axis=0) + LEVEL_SPREAD**-2
    b = (bend * x).sum(axis=0)
    c = (bend * x * x).sum(axis=0) + SLOPE_SPREAD**-2
    size = a * c - b * b
    return (c * rise - b * twist) / size, (a * twist - b * rise) / size


def _posterior(level: Floats, slope: Floats, x: Floats, y: Floats, w: Floats, centre: float) -> Floats:
    """The log posterior of each task, but for a constant, [T]."""
    logit = level + slope * x
    fits = (w * (y * logit - np.logaddexp(0.0, logit))).sum(axis=0)
    off = ((level - centre) / LEVEL_SPREAD) ** 2 + ((slope - 1) / SLOPE_SPREAD) ** 2
    return np.asarray(fits - off / 2)


def _chance(logit: Floats) -> Floats:
    return np.asarray((1 + np.tanh(logit / 2)) / 2)  # exp would overflow


LEAST_RUNS = 3
FEW_RUNS = "it needs at least three runs; more samples of one run do not help"
LEAST_CURVE = 5
FEW_CURVE = "it needs at least five runs"
ONE_ABILITY = "all runs have the same mean"
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Items:
    """One row per task, [T] each."""

    difficulty: Column  # 1 less the mean value over runs, each run alike; a gap where no run has the task
    discrimination: Column  # correlation over runs of the task with the mean of all others
    contradiction: Column  # one-sided p of that correlation being negative by chance
    information: Column  # about runs as able as the best one, of a two-parameter logistic curve
    everyone: Bools  # every sample of every run passes
    nobody: Bools  # none does
    runs: Ints  # that have the task
    samples: Ints
    why: str | None = None  # why no task has a discrimination
    why_information: str | None = None  # why no task has an information

    @property
    def contradicts(self) -> Bools:
        """Tasks that better runs fail and worse runs pass, by more than chance: their targets may be wrong.

        One in twenty of the tasks without discrimination is among them by chance alone.
        """
        return self.contradiction.given & (self.contradiction.values <= LEVEL)


def items(values: Floats, passes: Ints, samples: Ints) -> Items:
    """The table of tasks, from M runs over T tasks, [M, T] each: mean value, passes, samples (0: not there).

    Discrimination is the item-rest correlation: of a task's values over runs with the runs' means over
    all other tasks they have. A gap with fewer than three runs, or where either does not vary. One run
    has difficulties, and the tasks that it always or never passes.

    Information is what one try at the task tells about a run as able as the best of these: who wants fewer
    tasks that still tell good runs apart keeps those with the most. A gap with fewer than five runs, or where
    all have the same mean.
    """
    given = samples > 0
    runs = given.sum(axis=0)
    whole = samples.sum(axis=0)
    passed = passes.sum(axis=0)
    shown = np.where(given, values, 0.0)
    mean = shown.sum(axis=0) / np.maximum(runs, 1)
    discrimination, contradiction = _item_rest(shown, given)
    informed = _informed(shown, given)
    return Items(
        Column(1 - mean, runs > 0),
        discrimination,
        contradiction,
        informed if isinstance(informed, Column) else Column(np.zeros(len(runs)), np.zeros(len(runs), dtype=bool)),
        (whole > 0) & (passed == whole),
        (whole > 0) & (passed == 0),
        runs,
        whole,
        None if len(values) >= LEAST_RUNS else FEW_RUNS,
        None if isinstance(informed, Column) else informed,
    )


def _item_rest(shown: Floats, given: Bools) -> tuple[Column, Column]:
    """Item-rest correlations and their one-sided p, [T] each."""
    from scipy.special import comb, stdtr

    count = given.sum(axis=1, keepdims=True)
    rest = (shown.sum(axis=1, keepdims=True) - shown) / np.maximum(count - 1, 1)
    used = given & (count > 1)
    runs = used.sum(axis=0)
    item, others = _centred(shown, used, runs), _centred(rest, used, runs)
    scale = np.sqrt((item**2).sum(axis=0) * (others**2).sum(axis=0))
    there = (runs >= LEAST_RUNS) & (scale > 1e-12)
    r = np.where(there, np.clip((item * others).sum(axis=0) / np.where(there, scale, 1.0), -1, 1), 0.0)
    freedom = np.maximum(runs - 2, 1)
    t = r * np.sqrt(freedom / np.maximum(1 - r * r, 1e-300))
    # no order of a few runs is rarer than one in all the ways to arrange its passes
    ways = comb(runs, np.minimum((item > 0).sum(axis=0), runs))
    p = np.maximum(stdtr(freedom, t), 1 / np.maximum(ways, 1))
    return Column(r, there), Column(np.where(there, p, 1.0), there)


def _informed(shown: Floats, given: Bools) -> Column | str:
    """The information of each task's curve at the ability of the best run, [T]; or why there is none.

    At the best run and not at the mean of all: the next run to be judged is more like the best, and tasks that
    tell weak runs apart are solved by all that matter then.
    """
    there = given.any(axis=1)
    ability = abilities(shown[there], given[there])
    if len(ability) < LEAST_CURVE:
        return FEW_CURVE
    best = float(ability.max())
    if best - float(ability.min()) < 1e-9:
        return ONE_ABILITY
    curves = fitted(shown[there], given[there], ability)
    values = information(best, curves.slope, curves.difficulty)
    enough = given.sum(axis=0) >= LEAST_CURVE
    return Column(np.where(enough, values, 0.0), enough)


def _centred(values: Floats, used: Bools, runs: Ints) -> Floats:
    mean = np.where(used, values, 0.0).sum(axis=0) / np.maximum(runs, 1)
    return np.where(used, values - mean, 0.0)
