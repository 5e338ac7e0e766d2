"""Curves over k: what k samples are worth, with a band at every k.

Up to a task's n samples every point is an estimate from draws without replacement. Beyond them only a model can
speak (`calipers.stats.extrapolation`); such points are marked, say what they assume, and are refused where the
samples cannot carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.metrics.metric import PASS_THRESHOLD, UNIT
from calipers.metrics.reduce import pass_counts
from calipers.metrics.rewards import max_at_k
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import total
from calipers.stats.extrapolation import IF, Extrapolation, extrapolate, farthest, too_far
from calipers.stats.interval import interval

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """A curve at one k."""

    k: int
    value: float | None  # None: beyond the samples, and they cannot carry a value so far
    stderr: float | None
    interval: Ends | None
    tasks: int  # with k samples or more; where tasks leave, the curve may bend for that alone
    model_based: bool = False  # beyond the samples there are
    why: str | None = None  # why there is no interval, or no value
    assumes: str | None = None  # what a model-based value holds for


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric for a row of k."""

    metric: str  # "pass@k", "pass^k", "maj@k", "max@k"
    points: tuple[Point, ...]


def pass_curves(
    rewards: Column,
    by: Groups,
    clusters: Ints | None = None,
    *,
    threshold: float = PASS_THRESHOLD,
    confidence: float = 0.95,
) -> tuple[Curve, Curve]:
    """pass@k and pass^k for every k up to the most samples a task has, from rewards [R].

    ``1 - C(n-c, k)/C(n, k)`` and ``C(c, k)/C(n, k)``, worked out in whole numbers for each distinct (n, c);
    at each k over the tasks with k samples or more. No points without samples.
    """
    n, c = pass_counts(rewards, by, threshold)
    most = int(n.max(initial=0))
    pairs, code = distinct_counts(n, c)
    curves = []
    # that all k pass is that none fails: the same table with passes and failures exchanged
    for name, table in (("pass@k", some_pass(pairs, most)), ("pass^k", all_fail(pairs[:, 0], pairs[:, 1], most))):
        points = [_point(k, Column(table[code, k - 1], n >= k), UNIT, clusters, confidence) for k in span(most)]
        curves.append(Curve(name, tuple(points)))
    return curves[0], curves[1]


def max_curve(
    rewards: Column,
    by: Groups,
    clusters: Ints | None = None,
    *,
    limits: Ends | None,
    confidence: float = 0.95,
) -> Curve:
    """max@k for every k, the expected best reward of k samples; ``limits`` is the range of rewards, if known."""
    most = int(by.count(rewards.given).max(initial=0))
    points = [_point(k, max_at_k(rewards, by, k), limits, clusters, confidence) for k in span(most)]
    return Curve("max@k", tuple(points))


def later_points(
    n: Ints, c: Ints, ks: Sequence[int], clusters: Ints | None = None, *, confidence: float = 0.95
) -> tuple[list[Point], list[Point], Extrapolation]:
    """pass@k and pass^k beyond the samples there are, from c passes of n samples, [T] each; with the law behind them.

    A point that is refused has no value, and says why.
    """
    found = extrapolate(n, c, ks, clusters, confidence=confidence)
    there = n[n > 0]
    rows: list[list[Point]] = []
    for metric in ("pass@k", "pass^k"):
        points = []
        for k in ks:
            one = found.points.get((metric, k))
            if one is None:
                why = found.why or too_far(farthest(there))
                points.append(Point(k, None, None, None, len(there), model_based=True, why=why))
            else:
                points.append(Point(k, one.value, one.stderr, one.ends, len(there), model_based=True, assumes=IF))
        rows.append(points)
    return rows[0], rows[1], found


def beyond(most: int, upto: int | None) -> list[int]:
    """The powers of two above ``most`` and below ``upto``, and ``upto``."""
    if upto is None or upto <= most:
        return []
    return [*(power for power in (1 << i for i in range(upto.bit_length())) if most < power < upto), upto]


def span(most: int) -> range:
    """Every k from 1 to ``most``."""
    return range(1, most + 1)


def distinct_counts(n: Ints, c: Ints) -> tuple[Ints, Ints]:
    """The distinct (n, c) of tasks, [P, 2], and which of them each task has, [T]."""
    width = int(n.max(initial=0)) + 1
    pair, code = np.unique(n * width + c, return_inverse=True)
    return np.stack([pair // width, pair % width], axis=1), code


def some_pass(pairs: Ints, most: int) -> Floats:
    """pass@k of each pair (n, c) for every k, [P, most]; 0 where n < k."""
    return _shares(pairs[:, 0], pairs[:, 0] - pairs[:, 1], most, lambda whole, part: (whole - part) / whole)


def all_fail(n: Ints, failing: Ints, most: int) -> Floats:
    """C(failing, k) / C(n, k) of each pair for every k, [P, most], rounded once; 0 where n < k."""
    return _shares(n, failing, most, lambda whole, part: part / whole)


def _shares(n: Ints, some: Ints, most: int, share: Callable[[int, int], float]) -> Floats:
    table = np.zeros((len(n), most))
    for row, (samples, chosen) in enumerate(zip(n.tolist(), some.tolist(), strict=True)):
        whole = part = 1
        for k in range(1, samples + 1):  # C(n, k) from C(n, k - 1): whole numbers of any size, no rounding
            whole, part = whole * (samples - k + 1) // k, part * (chosen - k + 1) // k if k <= chosen else 0
            table[row, k - 1] = share(whole, part)
    return table


def _point(k: int, values: Column, limits: Ends | None, clusters: Ints | None, confidence: float) -> Point:
    """The mean over the tasks that are defined at k, with the default interval."""
    kept = values.kept()
    units = None if clusters is None else np.unique(clusters[values.given], return_inverse=True)[1]
    found = interval(kept, np.ones(len(kept)), confidence, limits, units)
    value = float(total(kept)) / len(kept)
    return Point(k, value, found.stderr, found.ends, len(kept), why=found.why)
