"""Numbers of a run that a stopping rule ended: the confidence sequence, or no interval and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from calipers.rollouts.stop import SEQUENCE
from calipers.stats.curve import Curve, Point
from calipers.stats.estimate import Estimate
from calipers.stats.intervals import needs_range
from calipers.stats.sequence import population
from calipers.stats.suite import Means, SuiteMeans

NO_RANGE = "the run was stopped by what it showed, and a confidence sequence needs values of a known range"
NO_MEAN = "a run was stopped by what it showed, and no confidence sequence is known for a mean over datasets"
CLUSTERED = "the run was stopped by what it showed, and a confidence sequence of clusters is not known"
NO_SEQUENCE = "the run was stopped by what it showed, and no confidence sequence is known for this metric"


def sequence_only(estimate: Estimate) -> Estimate:
    """An estimate without an interval that is made for a fixed number of tasks.

    Only a confidence sequence covers the truth when the number of tasks depends on the values (Ville 1939).
    """
    if estimate.why == needs_range(SEQUENCE):  # which names intervals that hold for a fixed number of tasks
        return replace(estimate, why=NO_RANGE)
    if estimate.method in (None, SEQUENCE):
        return estimate
    return _without_interval(estimate, NO_SEQUENCE)


def without_means(suites: Sequence[SuiteMeans], stopped: Collection[tuple[str | None, str | None]]) -> list[SuiteMeans]:
    """Suites without the intervals of means over datasets, where a run of that agent and model was stopped."""
    return [_unsure(suite) if (suite.agent, suite.model) in stopped else suite for suite in suites]


def _unsure(suite: SuiteMeans) -> SuiteMeans:
    metrics = {name: Means(_bare(means.macro), _bare(means.micro)) for name, means in suite.metrics.items()}
    return replace(suite, metrics=metrics)


def _bare(estimate: Estimate) -> Estimate:
    return estimate if estimate.interval is None else _without_interval(estimate, NO_MEAN)


def _without_interval(estimate: Estimate, why: str) -> Estimate:
    return replace(estimate, interval=None, method=None, why=why, made=replace(estimate.made, method=None))


def sequence_curve(curve: Curve, *, unit: bool, clustered: bool, confidence: float) -> Curve:
    """A curve with the confidence sequence at every k; ``unit`` says that its task values lie in [0, 1].

    The beta mixture needs the sum of the task values and their number alone. Beyond the samples, where a model
    speaks, it has none.
    """
    points = (_sequence_point(point, unit=unit, clustered=clustered, confidence=confidence) for point in curve.points)
    return replace(curve, points=tuple(points))


def _sequence_point(point: Point, *, unit: bool, clustered: bool, confidence: float) -> Point:
    if point.interval is None or point.value is None:
        return point
    why = NO_SEQUENCE if point.model_based else CLUSTERED if clustered else None if unit else NO_RANGE
    if why:
        return replace(point, interval=None, why=why)
    total = min(max(point.value * point.tasks, 0.0), float(point.tasks))
    return replace(point, interval=population(total, point.tasks, confidence))
