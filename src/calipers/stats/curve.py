"""Curves over k: the value of k samples, with a band for every k.

Up to a task's n samples every point is an estimate from draws without replacement. Beyond them only a model can
speak (`calipers.stats.extrapolation`); such points are marked, say what they assume, and are refused where the
samples cannot carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from calipers.metrics import PASS_THRESHOLD, UNIT, pass_counts, passed, task_mean
from calipers.metrics.rewards import max_at_k
from calipers.metrics.votes import ballots
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, total
from calipers.stats.estimate import NO_SEQUENCE, STOPPED_NO_RANGE
from calipers.stats.extrapolation import IF, Extrapolation, PassCounts, distinct_counts, extrapolate, farthest, too_far
from calipers.stats.intervals import interval
from calipers.stats.sequence import population

Ends = tuple[float, float]
CLUSTERED = "the run was stopped by what it showed, and a confidence sequence of clusters is not known"


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
    for name, table in (("pass@k", some_pass(pairs, most)), ("pass^k", all_fail(pairs.n, pairs.c, most))):
        points = [_point(k, Column(table[code, k - 1], n >= k), UNIT, clusters, confidence) for k in span(most)]
        curves.append(Curve(name, tuple(points)))
    return curves[0], curves[1]


def max_curve(
    rewards: Column, by: Groups, clusters: Ints | None = None, *, limits: Ends | None, confidence: float = 0.95
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
    beyond_samples = extrapolate(n, c, ks, clusters, confidence=confidence)
    there = n[n > 0]
    rows: list[list[Point]] = []
    for metric in ("pass@k", "pass^k"):
        points = []
        for k in ks:
            point = beyond_samples.points.get((metric, k))
            if point is None:
                why = beyond_samples.why or too_far(farthest(there))
                points.append(Point(k, None, None, None, len(there), model_based=True, why=why))
            else:
                points.append(Point(k, point.value, point.stderr, point.ends, len(there), model_based=True, assumes=IF))
        rows.append(points)
    return rows[0], rows[1], beyond_samples


def beyond(most: int, upto: int | None) -> list[int]:
    """The powers of two above ``most`` and below ``upto``, and ``upto``."""
    if upto is None or upto <= most:
        return []
    return [*(power for power in (1 << i for i in range(upto.bit_length())) if most < power < upto), upto]


def span(most: int) -> range:
    """Every k from 1 to ``most``."""
    return range(1, most + 1)


def some_pass(pairs: PassCounts, most: int) -> Floats:
    """pass@k of each pair (n, c) for every k, [P, most]; 0 where n < k."""
    return _shares(pairs.n, pairs.n - pairs.c, most, lambda whole, part: (whole - part) / whole)


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
    estimate = interval(kept, np.ones(len(kept)), confidence, limits, units)
    value = float(total(kept)) / len(kept)
    return Point(k, value, estimate.stderr, estimate.ends, len(kept), why=estimate.why)


MOST = 128
"""Samples per task up to which all draws are counted; their number grows with the third power."""

_CELLS = 1 << 19  # numbers in one table of ways: 4 MB, which a processor keeps at hand


def majority_curve(
    rewards: Column,
    answers: Column,
    by: Groups,
    clusters: Ints | None = None,
    *,
    limits: Ends | None,
    confidence: float = 0.95,
) -> Curve:
    """The expected worth of the majority's answer among k samples for every k, from rewards and answers, [R] each.

    The same numbers as `maj_at_k`, over the tasks with k samples or more. No points without samples.
    """
    n = by.count(rewards.given)
    worth = worth_of_votes(rewards, answers, by)
    columns = [Column(worth[:, k - 1], n >= k) for k in span(worth.shape[1])]
    points = [_point(k, values, limits, clusters, confidence) for k, values in enumerate(columns, 1)]
    return Curve("maj@k", tuple(points))


def worth_of_votes(rewards: Column, answers: Column, by: Groups) -> Floats:
    """maj@k of each task for every k up to the most samples, [T, most]; 0 where a task has fewer than k."""
    n = by.count(rewards.given)
    table = np.zeros((by.size, int(n.max(initial=0))))
    task, votes, worth = ballots(rewards, answers, by)
    kinds = np.bincount(task, minlength=by.size)  # distinct answers of each task
    starts = np.cumsum(kinds) - kinds
    silent = n - by.count(rewards.given & answers.given)
    alike = kinds * (table.shape[1] + 1) + n  # tasks with as many answers and samples are counted together
    for pair in np.unique(alike[n > 0]).tolist():
        tasks = np.flatnonzero((alike == pair) & (n > 0))
        samples = int(n[tasks[0]])
        step = max(1, _CELLS // (samples + 1) ** 2)
        for some in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            places = starts[some] + np.arange(int(kinds[some[0]]))[:, None]
            table[some, :samples] = _expected(votes[places], worth[places], silent[some], samples)
    return table


def _expected(votes: Ints, worth: Floats, silent: Ints, n: int) -> Floats:
    """The expectations of tasks with n samples, [t, n], from votes and worth of their answers, [m, t].

    Level by level: for a winner with c votes, ``ways[s, d]`` counts the draws of d votes in which s
    answers have c and the others fewer, ``gains`` adds up what those s are worth. For each k the
    silent fill a draw of d votes up to k.
    """
    tasks = votes.shape[1]
    choose = np.array([[float(comb(a, x)) for a in range(n + 1)] for x in range(n + 1)])  # [x, a]
    picks, quiet = choose[:, votes], choose[:, silent]
    wins = np.zeros((n + 1, tasks))
    highest = votes.max(axis=1, initial=0).tolist()
    for c in range(1, max(highest, default=0) + 1):
        ties = min(n // c, sum(most >= c for most in highest))
        ways = np.zeros((ties + 1, n + 1, tasks))
        gains = np.zeros_like(ways)
        ways[0, 0] = 1.0
        for answer, most in enumerate(highest):
            more, won = ways.copy(), gains.copy()
            for x in range(1, min(c, most + 1)):
                more[:, x:] += picks[x, answer] * ways[:, :-x]
                won[1:, x:] += picks[x, answer] * gains[1:, :-x]
            if most >= c:
                level = picks[c, answer] * ways[:-1, :-c]
                more[1:, c:] += level
                won[1:, c:] += picks[c, answer] * gains[:-1, :-c] + worth[answer] * level
            ways, gains = more, won
        shared = (gains[1:] / np.arange(1, ties + 1)[:, None, None]).sum(axis=0)  # [d, t]
        for d in range(1, n + 1):
            wins[d:] += shared[d] * quiet[: n + 1 - d]
    exact: Floats = (wins[1:] / choose[1:, n][:, None]).T
    return exact


@dataclass(frozen=True, slots=True)
class FirstSuccess:
    """Trying each task until its first pass, at most k times: means over tasks."""

    k: int
    solved: float  # share of tasks that pass within k tries
    tries: float  # per task
    cost: float | None  # per task; None where a cost that it needs is unknown
    cost_per_success: float | None  # cost over solved; None where nothing is solved
    tasks: int  # with k samples or more


def first_success(
    rewards: Column, costs: Column | None, by: Groups, *, threshold: float = PASS_THRESHOLD
) -> list[FirstSuccess]:
    """What it takes to reach a first pass for every k at which one may give up, from rewards and costs, [R] each.

    A try j + 1 is made with the chance that j samples drawn without replacement all fail, so the expected
    tries are the sum of ``C(n-c, j)/C(n, j)`` over j < k. A failed try costs the mean of the task's failed
    samples, a successful one that of its passes; gaps are left out of these means. Never giving up has no
    expected cost while one task has not been solved.
    """
    n, c = pass_counts(rewards, by, threshold)
    most = int(n.max(initial=0))
    pairs, code = distinct_counts(n, c)
    missed = all_fail(pairs.n, pairs.n - pairs.c, most)
    tries = np.cumsum(np.concatenate([np.ones((len(pairs.n), 1)), missed], axis=1), axis=1)
    good = passed(rewards, threshold)
    prices = None if costs is None else (_price(costs, by, ~good), _price(costs, by, good))
    rows = []
    for k in span(most):
        enough = n >= k
        solved, tried = 1 - missed[code[enough], k - 1], tries[code[enough], k - 1]
        share, count = float(total(solved)) / len(solved), len(solved)
        cost = None if prices is None else _mean_cost((tried - solved, solved), prices, enough)
        each = cost / share if cost is not None and share > 0 else None
        rows.append(FirstSuccess(k, share, float(total(tried)) / count, cost, each, count))
    return rows


def _price(costs: Column, by: Groups, which: Bools) -> Column:
    """The mean cost of each task's samples of one kind, [T]."""
    return task_mean(Column(costs.values, costs.given & which), by)


def _mean_cost(expected: tuple[Floats, Floats], prices: tuple[Column, Column], enough: Bools) -> float | None:
    """The mean over tasks of failed and successful tries at their prices; None where a needed price is a gap."""
    cost = np.zeros(len(expected[0]))
    for tries, price in zip(expected, prices, strict=True):
        needed = tries > 0
        if not price.given[enough][needed].all():
            return None
        cost += np.where(needed, tries * price.values[enough], 0.0)
    return float(total(cost)) / len(cost)


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
    why = NO_SEQUENCE if point.model_based else CLUSTERED if clustered else None if unit else STOPPED_NO_RANGE
    if why:
        return replace(point, interval=None, why=why)
    total = min(max(point.value * point.tasks, 0.0), float(point.tasks))
    return replace(point, interval=population(total, point.tasks, confidence))
