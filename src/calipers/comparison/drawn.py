"""The paired bootstrap of what no value per task carries: percentiles over rollouts, somebody's own function.

Tasks, or whole clusters, are drawn with all their samples, the same for both runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calipers.comparison.matter import Matter, Measured
from calipers.dialects.dialect import Asked
from calipers.metrics.metric import Metric
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.stats.anytime import BETTING, NO_MEAN
from calipers.stats.interval import ONE_CLUSTER, ONE_TASK
from calipers.stats.paired import NO_COMMON, Difference, apart
from calipers.stats.paired_bootstrap import UNDEFINED, Resampled, by_draws

METHOD = "paired_bootstrap"
DRAWS = 1_000  # a call of Python each
FEWEST_DRAWS = 200
MOST_VALUES = 20_000_000

Compute = Callable[[Sequence[Any]], float]
"""A metric from what each task holds."""


def drawn(matter: Matter) -> Measured:
    """The difference of a metric that only all samples together have."""
    held = [_by_task(columns[0], side.by_task) for side, columns in zip(matter.sides, matter.columns, strict=True)]
    there = np.array([bool(len(one)) and bool(len(two)) for one, two in zip(*held, strict=True)], dtype=bool)
    there &= matter.counted
    first, second = ([task for task, filled in zip(side, there.tolist(), strict=True) if filled] for side in held)
    computes = _compute(matter.both.first), _compute(matter.both.second)
    samples = matter.samples(there)
    if not first:
        none = Difference(None, None, None, None, METHOD, 0, why=NO_COMMON)
        return Measured(matter.both, matter.higher_is_better, none, None, None, there, samples)
    ends = computes[0](first), computes[1](second)
    units = None if matter.clusters is None else matter.clusters[there]
    code = np.arange(len(first)) if units is None else np.unique(units, return_inverse=True)[1]

    def draw(tasks: Sequence[int]) -> float:
        one, two = computes[0]([first[task] for task in tasks]), computes[1]([second[task] for task in tasks])
        return _apart(two, one)

    difference = _judged(_apart(ends[1], ends[0]), draw, code, sum(samples), matter)
    shown = [end if math.isfinite(end) else None for end in ends]
    return Measured(matter.both, matter.higher_is_better, difference, shown[0], shown[1], there, samples)


def _judged(value: float, draw: Callable[[Sequence[int]], float], code: Ints, size: int, matter: Matter) -> Difference:
    """A difference by its draws; ``code`` is the unit of each task, [T], and ``size`` how much a draw handles."""
    units = int(code.max()) + 1
    if not math.isfinite(value):
        return Difference(None, None, None, None, METHOD, units, why=UNDEFINED)
    if matter.question.anytime:
        return Difference(value, None, None, None, BETTING, units, why=NO_MEAN)
    if units < 2:
        why = ONE_TASK if len(code) < 2 else ONE_CLUSTER
        return Difference(value, None, None, None, METHOD, units, why=why)
    draws = min(DRAWS, MOST_VALUES // max(size, 1))
    if draws < FEWEST_DRAWS:
        why = f"{size:,} samples are too many to draw them {FEWEST_DRAWS} times"
        return Difference(value, None, None, None, METHOD, units, why=why)
    members = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    rng = np.random.Generator(np.random.PCG64(matter.seed))
    found = np.array([draw(np.concatenate([members[u] for u in _units(rng, units)]).tolist()) for _ in range(draws)])
    return resampled_difference(by_draws(value, found, matter.confidence, units))


def resampled_difference(found: Resampled) -> Difference:
    """What the bootstrap found; for what is asked beyond that, the normal distribution with its spread."""
    return Difference(
        found.value, found.stderr, found.interval, found.p, METHOD, found.units, float(found.units),
        why=found.why, draws=found.found,
    )  # fmt: skip


def _units(rng: np.random.Generator, units: int) -> list[int]:
    """Units drawn with replacement, from raw bits: numpy may change how it makes numbers of them."""
    bits: Any = rng.bit_generator
    raw = bits.random_raw(units) >> np.uint64(32)
    return [int(number) for number in (raw * np.uint64(units)) >> np.uint64(32)]


def _apart(first: float, second: float) -> float:
    """First less second, rounding left out."""
    return float(apart(np.asarray(first), np.asarray(second)))


def _by_task(column: Column, by: Groups) -> list[Floats]:
    """What each task holds, [T] arrays of its given values."""
    return np.split(column.kept(), np.cumsum(by.count(column.given))[:-1]) if by.size else []


def _compute(asked: Asked) -> Compute:
    metric = asked.metric
    if isinstance(metric, Metric):
        settled = {key: asked.params[key] for key in metric.aggregated}
        return lambda tasks: float(metric.aggregate(np.concatenate(tasks), **settled))
    return lambda tasks: float(metric.compute([task.tolist() for task in tasks]))
