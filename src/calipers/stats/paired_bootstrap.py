"""The paired bootstrap: tasks resampled with replacement, with the same draw for both runs.

For whatever is no mean of task values: corpus metrics, medians, ratios. A metric that is a function of sums
(BLEU, F1, pooled rates) keeps a row of S sufficient statistics per task, of which 10,000 draws are gathers
and sums of integers: one seed, one answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from calipers.rollouts.column import Floats, Ints, sum_by, total
from calipers.stats.intervals import NOISE, ONE_CLUSTER, ONE_TASK, scaled_integers, t_quantile, unit_draws, upper_tail
from calipers.stats.paired import NO_COMMON, apart

DRAWS = 10_000
MOST_VALUES = 200_000_000
"""Values that all draws of a metric of task values may hold together; fewer draws where there are more."""
FEWEST_DRAWS = 1_000
UNDEFINED = "the metric is not a number on these tasks"
SOME_UNDEFINED = "the metric is not a number on some draws of these tasks"
NO_SPREAD = "every draw gives the same difference"

Combine = Callable[[Floats], Floats]
"""``[..., S] -> [...]``: a metric from the sums of its sufficient statistics over tasks."""
Aggregate = Callable[[Floats], Floats]
"""``[..., T] -> [...]``: a metric from its task values, as in `metrics.metric`."""


@dataclass(frozen=True, slots=True)
class Resampled:
    """A difference, and what became of it on every draw; or why there is none."""

    value: float | None  # first less second
    stderr: float | None  # the standard deviation of the draws
    interval: tuple[float, float] | None  # the middle draws, and more of them where units are few
    p: float | None  # two-sided: by the share of draws on the other side of 0
    draws: int
    units: int
    why: str | None = None
    found: Floats | None = field(default=None, compare=False, repr=False)  # [B] the difference on every draw


def paired_bootstrap(
    first: Floats,
    second: Floats,
    combine: Combine,
    clusters: Ints | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
) -> Resampled:
    """The difference of a metric of sums, from sufficient statistics of each task in both runs, [T, S] each.

    Whole clusters are drawn where tasks come in ``clusters``. A mean is quickest as the ratio of the
    differences, with zeros for the second run: columns of equal values are not drawn.
    """
    stacked = np.concatenate([first, second], axis=1)
    if clusters is not None and len(clusters):
        size = int(clusters.max()) + 1
        there = np.bincount(clusters, minlength=size) > 0
        stacked = np.stack([sum_by(clusters, column, size)[there] for column in stacked.T], axis=1)
    if not len(stacked):
        return Resampled(None, None, None, None, 0, 0, NO_COMMON)
    statistics = first.shape[1]
    sums = np.asarray(total(np.ascontiguousarray(stacked.T)))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(apart(combine(sums[:statistics]), combine(sums[statistics:])))
        if len(stacked) < 2:
            return _alone(value, len(first))
        drawn = resampled_sums(stacked, seed, draws)
        differences = apart(combine(drawn[:, :statistics]), combine(drawn[:, statistics:]))
    return by_draws(value, differences, confidence, len(stacked))


def paired_bootstrap_of_values(
    first: Floats,
    second: Floats,
    aggregate: Aggregate,
    clusters: Ints | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
) -> Resampled:
    """The difference of a metric of task values that no sums carry, as a median, from [T] each.

    Without clusters the draws go to ``aggregate`` in blocks, [b, T]; with them one by one, as no two draws
    of clusters have the same number of tasks. At most MOST_VALUES values in all, and at least 1,000 draws.
    """
    code = np.arange(len(first)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    units = int(code.max(initial=-1)) + 1
    if not units:
        return Resampled(None, None, None, None, 0, 0, NO_COMMON)
    value = float(apart(aggregate(first), aggregate(second)))
    if units < 2:
        return _alone(value, len(first))
    draws = min(draws, max(FEWEST_DRAWS, MOST_VALUES // len(first)))
    members = np.argsort(code, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(code))])
    differences = []
    for index in unit_draws(units, seed, draws):
        if clusters is None:
            differences.append(apart(aggregate(first[index]), aggregate(second[index])))
            continue
        for row in index:
            tasks = np.concatenate([members[starts[unit] : starts[unit + 1]] for unit in row.tolist()])
            differences.append(apart(aggregate(first[tasks]), aggregate(second[tasks])).reshape(1))
    return by_draws(value, np.concatenate(differences), confidence, units)


def ratio(sums: Floats) -> Floats:
    """A mean or a pooled rate as a metric of sums: the first over the second, ``[..., 2] -> [...]``."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def resampled_sums(columns: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """The sums of S columns over G units drawn with replacement, [draws, S], from [G, S].

    Every column sees the same draws. Units are put in order first, so that the order of tasks does not
    matter; a column of equal values needs no draws.
    """
    order = np.lexsort(columns.T[::-1])
    scaled = [scaled_integers(column[order]) for column in columns.T]
    units = len(columns)
    constant = [bool((whole == whole[0]).all()) for whole, _ in scaled]
    drawn = np.empty((draws, len(scaled)))
    start = 0
    for index in unit_draws(units, seed, draws):
        stop = start + len(index)
        for number, (whole, power) in enumerate(scaled):
            part = units * float(whole[0]) if constant[number] else whole.take(index, mode="clip").sum(axis=1)
            drawn[start:stop, number] = np.ldexp(part, -power)
        start = stop
    return drawn


def _alone(value: float, tasks: int) -> Resampled:
    """The difference of a single unit: there is nothing to draw from."""
    if not math.isfinite(value):
        return Resampled(None, None, None, None, 0, 1, UNDEFINED)
    return Resampled(value, None, None, None, 0, 1, ONE_TASK if tasks < 2 else ONE_CLUSTER)


def by_draws(value: float, differences: Floats, confidence: float, units: int) -> Resampled:
    """A difference by what it became on every draw of so many units, [B].

    Draws of few units vary too little: by the square root of (n - 1) / n, and as a normal distribution where the
    t distribution is right. So the interval reaches to the draws that are as rare under the normal distribution
    as sqrt(n / (n - 1)) t is (Hesterberg 2015, "What teachers should know about the bootstrap", expanded
    percentiles), and p is read the other way round. It is never below 2^(1 - n), the chance that n units all
    point one way; where that alone is more than 1 - confidence there is no interval.
    """
    draws = len(differences)
    if not math.isfinite(value):
        return Resampled(None, None, None, None, draws, units, UNDEFINED)
    if not np.isfinite(differences).all():
        return Resampled(value, None, None, None, draws, units, SOME_UNDEFINED)
    if differences.max() - differences.min() <= NOISE * abs(value):
        p = 1.0 if differences[0] == 0 else min(1.0, max(2 / (draws + 1), least_p(units)))
        return Resampled(value, 0.0, None, p, draws, units, NO_SPREAD)
    stderr = float(np.std(differences, ddof=1))
    below, above = int(np.count_nonzero(differences <= 0)), int(np.count_nonzero(differences >= 0))
    beyond = min(0.5, (min(below, above) + 1) / (draws + 1))
    shrunk = -NormalDist().inv_cdf(beyond) * math.sqrt((units - 1) / units)
    p = min(1.0, max(2 * upper_tail(shrunk, units - 1), least_p(units)))
    if least_p(units) > 1 - confidence:
        why = f"no interval at {100 * confidence:g} % from {units}, which may all point one way by chance"
        return Resampled(value, None, None, p, draws, units, why, differences)  # nor a spread to rely on
    tail = NormalDist().cdf(-t_quantile((1 + confidence) / 2, units - 1) * math.sqrt(units / (units - 1)))
    low, high = np.quantile(differences, [tail, 1 - tail]).tolist()
    return Resampled(value, stderr, (min(low, value), max(high, value)), p, draws, units, found=differences)


def least_p(units: int) -> float:
    """The chance that so many units all point one way, whichever, where neither way is likelier."""
    return float(2.0 ** (1 - units))
