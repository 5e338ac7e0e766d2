"""A judge's score put right by labels, with tasks as units: where a task has several samples, labelled or not.

Where every task is labelled wholly or not at all, this is `calipers.stats.prediction_powered.ppi` of task means.
Where some samples of a task have a label and others have none, both halves speak of the same task; their
covariance then belongs into the variance, and into how far the judge is leant on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calipers.rollouts.column import Bools, Floats, Ints
from calipers.stats.interval import ONE_TASK
from calipers.stats.prediction_powered import NO_JUDGED, NO_LABELS, UNIT, Corrected, ppi, rogan_gladen, with_interval

UNSTEADY = "one task alone decides whether the judge can tell good from bad"


def ppi_by_task(
    labels: Floats,
    labelled: Bools,
    judged: Floats,
    task: Ints,
    *,
    trust: float | None = None,
    limits: tuple[float, float] | None = UNIT,
    confidence: float = 0.95,
) -> Corrected:
    """The mean over tasks, from the judge's scores of R samples and labels of some of them, [R] each.

    ``l mean_t(G) + mean_t(y - l f)``: G is a task's mean judgement without a label, y and f the mean label and
    judgement of its labelled samples. Its variance is ``l^2 Var(G)/N + Var(y - l f)/n + 2 l c Cov(G, y - l f)``
    with c = (tasks that have both) / (n N); without ``trust``, l makes it smallest. 0 is the labels alone.
    """
    y, f, some = _means(labels, labelled, task), _means(judged, labelled, task), _counts(labelled, task) > 0
    g, rest = _means(judged, ~labelled, task), _counts(~labelled, task) > 0
    both = some & rest
    if trust == 0.0 or not both.any():
        return ppi(y[some], f[some], g[rest], trust=trust, limits=limits, confidence=confidence)
    n, many = int(some.sum()), int(rest.sum())
    method = "ppi++" if trust is None else "ppi"
    if n < 2 or many < 2:
        why = NO_LABELS if not n else ONE_TASK if n < 2 else NO_JUDGED
        return Corrected(None, None, None, method, trust or 0.0, n, many, why)
    shared = int(both.sum()) / (n * many)
    if trust is None:
        above = _covariance(y[some], f[some]) / n - shared * _covariance(g[both], y[both])
        below = _variance(g[rest]) / many + _variance(f[some]) / n - 2 * shared * _covariance(g[both], f[both])
        trust = above / below if below > 1e-12 else 0.0
    away = y - trust * f
    variance = trust**2 * _variance(g[rest]) / many + _variance(away[some]) / n
    variance += 2 * trust * shared * _covariance(g[both], away[both])
    value = trust * float(g[rest].mean()) + float(away[some].mean())
    return with_interval(value, max(variance, 0.0), method, trust, n, many, limits, confidence)


def rogan_gladen_by_task(
    labels: Floats, labelled: Bools, judged: Floats, task: Ints, *, confidence: float = 0.95
) -> Corrected:
    """The share of passes by the judge's share and his errors on the labelled samples; all of 0 and 1, [R] each.

    As `rogan_gladen`; where a task has several samples, the error is a jackknife over tasks.
    """
    plain = rogan_gladen(labels[labelled], judged[labelled], judged[~labelled], confidence=confidence)
    if plain.value is None or int(np.bincount(task).max(initial=0)) < 2:
        return plain
    good = labels >= 1
    marks = (
        np.where(labelled, 0.0, judged),
        (~labelled).astype(float),
        np.where(labelled & good, judged, 0.0),
        (labelled & good).astype(float),
        np.where(labelled & ~good, judged, 0.0),
        (labelled & ~good).astype(float),
    )
    by_task = np.stack([np.bincount(task, mark) for mark in marks], axis=1)  # [T, 6]
    by_task = by_task[np.bincount(task) > 0]
    rest = by_task.sum(axis=0) - by_task
    with np.errstate(divide="ignore", invalid="ignore"):
        share, hits, alarms = (rest[:, i] / rest[:, i + 1] for i in (0, 2, 4))
        values = (share - alarms) / (hits - alarms)
    units = int((np.bincount(task, labelled.astype(float)) > 0).sum())
    if not np.isfinite(values).all() or bool((hits <= alarms).any()):
        return Corrected(plain.value, None, None, plain.method, 1.0, plain.labelled, plain.judged, UNSTEADY)
    tasks = len(values)
    variance = (tasks - 1) / tasks * float(((values - values.mean()) ** 2).sum())
    found = with_interval(plain.value, variance, plain.method, 1.0, units, tasks, UNIT, confidence)
    return replace(found, labelled=plain.labelled, judged=plain.judged)


def _counts(which: Bools, task: Ints) -> Floats:
    return np.asarray(np.bincount(task, which.astype(float)), dtype=np.float64)


def _means(values: Floats, which: Bools, task: Ints) -> Floats:
    """The mean of each task's marked values, [T]; 0 without any."""
    return np.bincount(task, np.where(which, values, 0.0)) / np.maximum(_counts(which, task), 1.0)


def _variance(values: Floats) -> float:
    return float(np.var(values, ddof=1)) if len(values) > 1 else 0.0


def _covariance(one: Floats, two: Floats) -> float:
    return float(((one - one.mean()) * (two - two.mean())).sum()) / (len(one) - 1) if len(one) > 1 else 0.0
