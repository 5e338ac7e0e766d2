"""Item analysis: which tasks are hard, which separate runs, and which contradict the others.

The two-parameter logistic model gives the information of a task about runs of a certain ability. A run of ability theta
passes a task of difficulty b and slope a with the chance ``1 / (1 + exp(-a (theta - b)))`` (Birnbaum 1968). One try has
the most information if the slope is large and the chance is near 1/2.
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
    """The logistic curve of each task, [T] each."""

    slope: Floats  # a, never below 0: a task that better runs fail has no information that a mean could use
    difficulty: Floats  # b; has no influence if the slope is 0


def chance(ability: Floats | float, slope: Floats | float, difficulty: Floats | float) -> Floats:
    """The chance that a run with this ability passes, ``1 / (1 + exp(-a (theta - b)))``.

    >>> round(float(chance(0.5, slope=1.5, difficulty=0.0)), 6)
    0.679179
    """
    return _chance(np.multiply(slope, np.subtract(ability, difficulty)))


def information(ability: Floats | float, slope: Floats | float, difficulty: Floats | float) -> Floats:
    """The information of one try about the ability, ``a^2 P (1 - P)``: 1 over the variance of its estimate.

    >>> round(float(information(0.5, slope=1.5, difficulty=0.0)), 6)
    0.490264
    """
    p = chance(ability, slope, difficulty)
    return np.asarray(np.square(slope) * p * (1 - p))


def abilities(values: Floats, given: Bools) -> Floats:
    """The logit of each run's mean over the tasks it has, [M], from task values on [0, 1], [M, T].

    Half a pass and half a failure are added, ``(sum + 1/2) / (n + 1)``, so that a run that solves everything has a
    finite ability.
    """
    count = given.sum(axis=1)
    mean = (np.where(given, values, 0.0).sum(axis=1) + 0.5) / (count + 1)
    return np.asarray(np.log(mean / (1 - mean)))


def fitted(values: Floats, given: Bools, ability: Floats) -> ItemCurves:
    """Fit the curve of each task to its values on [0, 1] and the abilities of the runs, [M, T] and [M].

    The maximum a posteriori level and slope of ``level + slope (theta - mean theta)``. The prior is normal around an
    average task, which each run passes with its own mean: the level around the mean ability with a standard deviation
    of 2, the slope around 1 with a standard deviation of 1. It is weak (at a mean of 1/2, the middle two thirds of
    tasks have chances from .12 to .88), keeps tasks finite that all runs pass, and prevents steep curves from few runs.
    A run counts once, however many samples it has, because it is one test-taker. Newton's method fits all tasks at
    once; the posterior has one peak.
    """
    centre = float(ability.mean())
    x = (ability - centre)[:, None]
    y, w = np.where(given, values, 0.0), given.astype(np.float64)
    level, slope = np.full(values.shape[1], centre), np.ones(values.shape[1])
    posterior = _log_posterior(level, slope, x, y, w, centre)
    for _ in range(MOST_STEPS):
        level_step, slope_step = _newton_step(level, slope, x, y, w, centre)
        for _ in range(MOST_STEPS):
            new = _log_posterior(level + level_step, slope + slope_step, x, y, w, centre)
            overshot = new < posterior - 1e-12 * np.abs(posterior)
            if not overshot.any():
                break
            level_step = np.where(overshot, level_step / 2, level_step)
            slope_step = np.where(overshot, slope_step / 2, slope_step)
        level, slope, posterior = level + level_step, slope + slope_step, new
        if max(np.abs(level_step).max(initial=0), np.abs(slope_step).max(initial=0)) < SAME:
            break
    rises = slope > 0
    shift = np.where(rises, level, 1.0) / np.where(rises, slope, 1.0)
    return ItemCurves(np.where(rises, slope, 0.0), np.where(rises, centre - shift, centre))


def _newton_step(level: Floats, slope: Floats, x: Floats, y: Floats, w: Floats, centre: float) -> tuple[Floats, Floats]:
    """Newton's step of level and slope, [T] each."""
    p = _chance(level + slope * x)
    residual, weight = w * (y - p), w * p * (1 - p)
    level_gradient = residual.sum(axis=0) - (level - centre) / LEVEL_SPREAD**2
    slope_gradient = (residual * x).sum(axis=0) - (slope - 1) / SLOPE_SPREAD**2
    # the negative Hessian is [[a, b], [b, c]]
    a = weight.sum(axis=0) + LEVEL_SPREAD**-2
    b = (weight * x).sum(axis=0)
    c = (weight * x * x).sum(axis=0) + SLOPE_SPREAD**-2
    determinant = a * c - b * b
    return (
        (c * level_gradient - b * slope_gradient) / determinant,
        (a * slope_gradient - b * level_gradient) / determinant,
    )


def _log_posterior(level: Floats, slope: Floats, x: Floats, y: Floats, w: Floats, centre: float) -> Floats:
    """The log posterior of each task, without a constant, [T]."""
    logit = level + slope * x
    log_likelihood = (w * (y * logit - np.logaddexp(0.0, logit))).sum(axis=0)
    penalty = ((level - centre) / LEVEL_SPREAD) ** 2 + ((slope - 1) / SLOPE_SPREAD) ** 2
    return np.asarray(log_likelihood - penalty / 2)


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
    """The item analysis of each task, [T] each."""

    difficulty: Column  # 1 less the mean value over runs with equal weights; a gap if no run has the task
    discrimination: Column  # correlation over runs of the task with the mean of all other tasks
    contradiction: Column  # one-sided p of that correlation being negative by chance
    information: Column  # about a run as able as the best run, from the two-parameter logistic curve
    everyone: Bools  # every sample of every run passes
    nobody: Bools  # no sample of any run passes
    runs: Ints  # number of runs that have the task
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
    """The item analysis of M runs over T tasks, from mean values, passes and samples, [M, T] each.

    ``samples`` is 0 if a run does not have a task.

    Discrimination is the item-rest correlation: the correlation over runs of a task's values with the runs' means over
    all their other tasks. A gap with fewer than three runs, or if one of the two does not vary. A single run has
    difficulties, and the tasks that it always or never passes.

    Information is the information of one try about a run as able as the best run: a smaller set that still separates
    good runs keeps the tasks with the most information. A gap with fewer than five runs, or if all runs have the same
    mean.
    """
    given = samples > 0
    runs = given.sum(axis=0)
    sample_counts = samples.sum(axis=0)
    passed = passes.sum(axis=0)
    filled = np.where(given, values, 0.0)
    mean = filled.sum(axis=0) / np.maximum(runs, 1)
    discrimination, contradiction = _item_rest(filled, given)
    informed = _information_at_best(filled, given)
    return Items(
        Column(1 - mean, runs > 0),
        discrimination,
        contradiction,
        informed if isinstance(informed, Column) else Column(np.zeros(len(runs)), np.zeros(len(runs), dtype=bool)),
        everyone=(sample_counts > 0) & (passed == sample_counts),
        nobody=(sample_counts > 0) & (passed == 0),
        runs=runs,
        samples=sample_counts,
        why=None if len(values) >= LEAST_RUNS else FEW_RUNS,
        why_information=None if isinstance(informed, Column) else informed,
    )


def _item_rest(filled: Floats, given: Bools) -> tuple[Column, Column]:
    """Item-rest correlations and their one-sided p, [T] each."""
    from scipy.special import comb, stdtr

    count = given.sum(axis=1, keepdims=True)
    rest = (filled.sum(axis=1, keepdims=True) - filled) / np.maximum(count - 1, 1)
    used = given & (count > 1)
    runs = used.sum(axis=0)
    item, others = _centred(filled, used, runs), _centred(rest, used, runs)
    scale = np.sqrt((item**2).sum(axis=0) * (others**2).sum(axis=0))
    defined = (runs >= LEAST_RUNS) & (scale > 1e-12)
    r = np.where(defined, np.clip((item * others).sum(axis=0) / np.where(defined, scale, 1.0), -1, 1), 0.0)
    freedom = np.maximum(runs - 2, 1)
    t = r * np.sqrt(freedom / np.maximum(1 - r * r, 1e-300))
    # with few runs, p cannot be below 1 over the number of ways to distribute the passes over the runs
    ways = comb(runs, np.minimum((item > 0).sum(axis=0), runs))
    p = np.maximum(stdtr(freedom, t), 1 / np.maximum(ways, 1))
    return Column(r, defined), Column(np.where(defined, p, 1.0), defined)


def _information_at_best(filled: Floats, given: Bools) -> Column | str:
    """The information of each task's curve at the ability of the best run, [T]; or why there is none.

    The best run is taken, not the mean of all, because the next run to be evaluated is more like the best, and tasks
    that separate weak runs are solved by every run that matters then.
    """
    has_tasks = given.any(axis=1)
    ability = abilities(filled[has_tasks], given[has_tasks])
    if len(ability) < LEAST_CURVE:
        return FEW_CURVE
    best = float(ability.max())
    if best - float(ability.min()) < 1e-9:
        return ONE_ABILITY
    curves = fitted(filled[has_tasks], given[has_tasks], ability)
    values = information(best, curves.slope, curves.difficulty)
    enough = given.sum(axis=0) >= LEAST_CURVE
    return Column(np.where(enough, values, 0.0), enough)


def _centred(values: Floats, used: Bools, runs: Ints) -> Floats:
    mean = np.where(used, values, 0.0).sum(axis=0) / np.maximum(runs, 1)
    return np.where(used, values - mean, 0.0)
