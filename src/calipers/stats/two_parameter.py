"""The two-parameter logistic model: how much a task tells about runs of an ability.

A run of ability theta passes a task of difficulty b and slope a with the chance ``1 / (1 + exp(-a (theta - b)))``
(Birnbaum 1968). Where that chance turns quickly, and near 1/2, one try tells the most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Bools, Floats

SLOPE_SPREAD = 1.0  # prior standard deviation of a task's slope, around 1
LEVEL_SPREAD = 2.0  # prior standard deviation of a task's logit at the mean ability, around the runs' mean logit
MOST_STEPS = 100
SAME = 1e-10  # a step this small changes no digit that is shown


@dataclass(frozen=True, slots=True)
class Curves:
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


def fitted(values: Floats, given: Bools, ability: Floats) -> Curves:
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
    return Curves(np.where(rises, slope, 0.0), np.where(rises, centre - apart, centre))


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
