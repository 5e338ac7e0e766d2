"""A curve over training steps: intervals that hold at all planned steps together, and the best of the steps.

A curve is read as a whole, and an interval made for a single look misses the truth somewhere on nearly every curve of
200 steps. Here each step has the confidence ``1 - (1 - confidence)/steps``, so that by Bonferroni's inequality all
steps hold together. The target is the mean over tasks like these; therefore the task is the unit, and pairing narrows
the difference to a base step but not the band of a mean.

The highest of S noisy means on the same tasks is too high on average, the more so the more similar the steps are. Its
optimism is estimated by drawing new noise around the observed means, after these have been shrunk towards each other,
because observed means lie further apart than the true means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.rollouts.column import Floats, Ints
from calipers.stats.intervals import (
    METHODS,
    NOISE,
    ONE_TASK,
    Interval,
    Spread,
    Weighted,
    named_interval,
    spread_of,
    t_quantile,
    wilson_ends,
)
from calipers.stats.paired import Difference, apart, paired
from calipers.stats.ranks import standard_normals

BAND = "simultaneous_band"


def step_confidence(confidence: float, steps: int) -> float:
    """The confidence of each step that lets all ``steps`` hold together."""
    return 1 - (1 - confidence) / max(steps, 1)


def band(
    values: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: Ints | None = None,
) -> Interval:
    """The interval of a step's mean of task values, [T], that holds at all planned ``steps`` together.

    The Clopper-Pearson interval on the default rule's effective number of tasks; Student's interval if the range is
    unknown. One task gives no interval.
    """
    weighted = Weighted(values, np.ones(len(values)), limits, clusters, step_confidence(confidence, steps))
    return named_interval("default" if limits is None else "clopper-pearson", weighted)


def look_and_band(
    values: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: Ints | None = None,
) -> tuple[Interval, Interval]:
    """The interval for a single look and the `band` of a step's task values, [T], from one computed spread."""
    size = len(values)
    weighted = Weighted(values, np.ones(size), limits, clusters, confidence)
    if size < 2 or clusters is not None:
        simultaneous = band(values, steps, confidence=confidence, limits=limits, clusters=clusters)
        return named_interval("default", weighted), simultaneous
    low, high = limits or (0.0, 1.0)
    scaled = (values - low) / (high - low)
    variance = float(scaled.var(ddof=1)) / size
    if math.sqrt(variance * size) <= NOISE * float(np.abs(scaled).max()):
        variance = 0.0
    spread = Spread(float(scaled.mean()), variance, size, float(size), 1.0, (low, high))
    names = ("t", "t") if limits is None else ("wilson", "clopper-pearson")
    levels = (confidence, step_confidence(confidence, steps))
    look, simultaneous = (
        METHODS[name](name, replace(weighted, confidence=level), spread)
        for name, level in zip(names, levels, strict=True)
    )
    return look, simultaneous


def paired_change(
    now: Floats,
    base: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: Ints | None = None,
) -> Difference:
    """The change since a base step on the same tasks, [T] each in one order, by the floored t at all steps together."""
    return paired(apart(now, base), None, clusters, limits=limits, confidence=step_confidence(confidence, steps))


def unpaired_change(
    now: Floats,
    base: Floats,
    steps: int,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] | None = (0.0, 1.0),
    clusters: tuple[Ints, Ints] | None = None,
) -> tuple[float, tuple[float, float] | None]:
    """The change since a base step on other tasks, [T] each, and its interval at all steps together.

    ``m_s - m_0 +- t(nu) sqrt(se_s^2 + se_0^2)``, clipped to the range of a difference, with Welch's degrees of freedom
    ``nu = (se_s^2 + se_0^2)^2 / (se_s^4/(G_s - 1) + se_0^4/(G_0 - 1))`` (Welch 1947), which is near that of the step
    with few tasks. None if a step has one task, or if neither step has any spread.
    """
    if len(now) == 0 or len(base) == 0:
        return math.nan, None
    change = float(apart(now.mean(), base.mean()))
    if min(len(now), len(base)) < 2:
        return change, None
    variances = [float(values.var(ddof=1)) / len(values) for values in (now, base)]
    units = [float(len(now)), float(len(base))]
    if clusters is not None:
        pairs = zip((now, base), clusters, strict=True)
        spreads = [spread_of(values, np.ones(len(values)), None, code) for values, code in pairs]
        variances, units = [spread.variance for spread in spreads], [spread.effective_units for spread in spreads]
    largest = max(float(np.abs(now).max()), float(np.abs(base).max()))
    stderr = math.sqrt(sum(variances))
    if min(units) <= 1 or stderr <= NOISE * largest:  # a smaller spread is the rounding of the means
        return change, None
    shares = [variance / sum(variances) for variance in variances]
    freedom = 1 / sum(share * share / max(count - 1, 1.0) for share, count in zip(shares, units, strict=True))
    half = -t_quantile((1 - step_confidence(confidence, steps)) / 2, freedom) * stderr
    low, high = change - half, change + half
    if limits is not None:
        width = limits[1] - limits[0]
        low, high = max(low, -width), min(high, width)
    return change, (low, high)


BEST_STEP = "best_step"
DRAWS = 1_000  # of the noise of all step means together
AGAIN = 5  # the most steps of the set that another evaluation is recommended for


@dataclass(frozen=True, slots=True)
class BestStep:
    """The step with the highest mean, and an estimate of its true mean, corrected for the selection."""

    step: int  # its index among the S steps
    observed: float  # the mean by which it was selected
    optimism: float  # the estimated part of the mean that is luck
    value: float  # observed less optimism
    interval: Interval  # around the value
    members: Sequence[int]  # indices of the steps that may be the best, the highest mean first
    tasks: int  # M, the tasks that all steps have
    second: int | None  # the second-highest member of the set
    deviation: float  # the standard deviation over tasks of the difference between the best and the second step


def best_step(
    values: Floats, *, confidence: float = 0.95, seed: int = 0, draws: int = DRAWS, multipliers: Floats | None = None
) -> BestStep:
    """The best of S steps by their task values on [0, 1], [S, M], with an interval that is valid after the selection.

    One task gives no interval, and every step may then be the best. ``multipliers``, [M, B], are drawn with ``seed``
    if they are not given.
    """
    means = values.mean(axis=1)
    best = int(means.argmax())
    luck = optimism(values, seed=seed, draws=draws, multipliers=multipliers)
    members = may_be_best(values, confidence=confidence)
    second = members[1] if len(members) > 1 else None
    lead = np.zeros(values.shape[1]) if second is None else apart(values[best], values[second])
    deviation = float(lead.std(ddof=1)) if len(lead) > 1 else math.nan
    interval = interval_after_picking(values[best], luck, confidence)
    observed = float(means[best])
    return BestStep(best, observed, luck, observed - luck, interval, members, values.shape[1], second, deviation)


def shrinkage(values: Floats) -> float:
    """The share f of the spread of S step means that is not noise, [S, M]; 0 if noise alone explains the spread.

    ``f = max(0, 1 - (tr V - sum V / S) / sum (m - mean of m)^2)``, where V is the covariance matrix of the step means.
    """
    steps, tasks = values.shape
    means = values.mean(axis=1)
    scatter = float(((means - means.mean()) ** 2).sum())
    if scatter == 0 or tasks < 2:
        return 0.0
    residuals = values - means[:, None]
    scale = tasks * (tasks - 1)
    trace = float((residuals**2).sum()) / scale
    covariance_sum = float((residuals.sum(axis=0) ** 2).sum()) / scale
    return float(max(0.0, 1 - (trace - covariance_sum / steps) / scatter))


def optimism(
    values: Floats, *, shrunk: bool = True, seed: int = 0, draws: int = DRAWS, multipliers: Floats | None = None
) -> float:
    """The expected error of the highest of S step means, [S, M], estimated over draws of the noise.

    ``o = mean of Z at argmax(m' + Z)``, where Z is a draw of the noise of all step means together (normal multipliers
    of the tasks' residuals) and ``m' = mean of m + sqrt(f) (m - mean of m)`` with f from `shrinkage`.
    """
    steps, tasks = values.shape
    if tasks < 2 or steps < 2:
        return 0.0
    means = values.mean(axis=1)
    residuals = values - means[:, None]
    pull = math.sqrt(shrinkage(values)) if shrunk else 1.0
    centre = float(means.mean()) + pull * (means - means.mean())
    normals = standard_normals(seed, tasks, draws) if multipliers is None else multipliers
    noise = residuals @ normals / math.sqrt(tasks * (tasks - 1))  # [S, B]
    picked = (centre[:, None] + noise).argmax(axis=0)
    return max(0.0, float(noise[picked, np.arange(noise.shape[1])].mean()))


def interval_after_picking(values: Floats, luck: float, confidence: float = 0.95) -> Interval:
    """The default interval of the selected step's task values, [M], around its mean less the optimism."""
    if len(values) < 2:
        return Interval(None, None, None, ONE_TASK)
    spread = spread_of(values, np.ones(len(values)), (0.0, 1.0))
    return Interval(math.sqrt(spread.variance), wilson_ends(spread, confidence, spread.mean - luck), BEST_STEP)


def may_be_best(values: Floats, *, confidence: float = 0.95) -> list[int]:
    """The indices of the steps that no other step is shown to beat, the highest mean first, [S, M].

    Step s is kept if ``(m_u - m_s) / sd_us`` is at most the one-sided t quantile at ``(1 - confidence)/(S - 1)`` for
    every u, where ``sd_us^2`` is the paired variance plus ``(max |d| / 2M)^2``. The set contains the best step with the
    given confidence, but not every good step.
    """
    steps, tasks = values.shape
    means = values.mean(axis=1)
    order: list[int] = np.argsort(-means, kind="stable").tolist()
    if steps < 2 or tasks < 2:
        return order
    limit = max(0.0, -t_quantile((1 - confidence) / (steps - 1), tasks - 1))  # the highest mean is always kept
    return [step for step in order if float(advantages(values, step).max()) <= limit]


def advantages(values: Floats, step: int) -> Floats:
    """The floored t of the difference of every step to ``step``, [S]; 0 where no task differs."""
    tasks = values.shape[1]
    gaps = apart(values, values[step])
    mean = gaps.mean(axis=1)
    variance = gaps.var(axis=1, ddof=1) / tasks + (np.abs(gaps).max(axis=1) / (2 * tasks)) ** 2
    return np.asarray(np.divide(mean, np.sqrt(variance), out=np.zeros(len(values)), where=variance > 0))
