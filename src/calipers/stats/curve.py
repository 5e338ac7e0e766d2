"""Curves over k: the value of k samples, with a band for every k.

Up to a task's n samples every point is an estimate from draws without replacement. Points beyond n come from a model
(`calipers.stats.extrapolation`): they are marked, state their assumption, and are refused if the samples do not
determine them.
"""

from __future__ import annotations

import math
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
from calipers.stats.sequence import Ends, population

CLUSTERED = "the run was stopped by what it showed, and a confidence sequence of clusters is not known"


@dataclass(frozen=True, slots=True)
class Point:
    """A curve at one k."""

    k: int
    value: float | None  # None: the point lies beyond the samples, and they do not determine it
    stderr: float | None
    interval: Ends | None
    tasks: int  # with k samples or more; if fewer tasks have k + 1 samples, that alone may bend the curve
    model_based: bool = False  # beyond the samples
    why: str | None = None  # why there is no interval, or no value
    assumes: str | None = None  # the assumption of a model-based value


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric for several k."""

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

    ``1 - C(n-c, k)/C(n, k)`` and ``C(c, k)/C(n, k)``, computed in integers for each distinct (n, c); each k is the mean
    over the tasks with k samples or more. No points without samples.
    """
    n, c = pass_counts(rewards, by, threshold)
    most = int(n.max(initial=0))
    pairs, code = distinct_counts(n, c)
    curves = []
    # "all k pass" is "none of the k fails", hence the same table with passes and failures exchanged
    for name, table in (("pass@k", some_pass(pairs, most)), ("pass^k", all_fail(pairs.n, pairs.c, most))):
        points = [_point(k, Column(table[code, k - 1], n >= k), UNIT, clusters, confidence) for k in range(1, most + 1)]
        curves.append(Curve(name, tuple(points)))
    return curves[0], curves[1]


def max_curve(
    rewards: Column, by: Groups, clusters: Ints | None = None, *, limits: Ends | None, confidence: float = 0.95
) -> Curve:
    """max@k for every k, the expected best reward of k samples; ``limits`` is the range of rewards, if known."""
    most = int(by.count(rewards.given).max(initial=0))
    points = [_point(k, max_at_k(rewards, by, k), limits, clusters, confidence) for k in range(1, most + 1)]
    return Curve("max@k", tuple(points))


def later_points(
    n: Ints, c: Ints, ks: Sequence[int], clusters: Ints | None = None, *, confidence: float = 0.95
) -> tuple[list[Point], list[Point], Extrapolation]:
    """pass@k and pass^k at ``ks`` beyond the samples, from c passes of n samples, [T] each; and the fitted model.

    A refused point has no value, and ``why`` is the reason.
    """
    beyond_samples = extrapolate(n, c, ks, clusters, confidence=confidence)
    sampled = n[n > 0]
    rows: list[list[Point]] = []
    for metric in ("pass@k", "pass^k"):
        points = []
        for k in ks:
            point = beyond_samples.points.get((metric, k))
            if point is None:
                why = beyond_samples.why or too_far(farthest(sampled))
                points.append(Point(k, None, None, None, len(sampled), model_based=True, why=why))
            else:
                value, stderr, ends = point.value, point.stderr, point.ends
                points.append(Point(k, value, stderr, ends, len(sampled), model_based=True, assumes=IF))
        rows.append(points)
    return rows[0], rows[1], beyond_samples


def beyond(most: int, upto: int | None) -> list[int]:
    """The powers of two above ``most`` and below ``upto``, and ``upto``."""
    if upto is None or upto <= most:
        return []
    return [*(power for power in (1 << i for i in range(upto.bit_length())) if most < power < upto), upto]


def some_pass(pairs: PassCounts, most: int) -> Floats:
    """pass@k of each pair (n, c) for every k, [P, most]; 0 where n < k."""
    return _shares(pairs.n, pairs.n - pairs.c, most, lambda draws, failing_draws: (draws - failing_draws) / draws)


def all_fail(n: Ints, failing: Ints, most: int) -> Floats:
    """C(failing, k) / C(n, k) of each pair for every k, [P, most], rounded once; 0 where n < k."""
    return _shares(n, failing, most, lambda draws, failing_draws: failing_draws / draws)


def _shares(n: Ints, failing: Ints, most: int, share: Callable[[int, int], float]) -> Floats:
    """``share(C(n, k), C(failing, k))`` of each pair for every k, [P, most]; 0 where n < k."""
    table = np.zeros((len(n), most))
    for row, (samples, failures) in enumerate(zip(n.tolist(), failing.tolist(), strict=True)):
        draws = failing_draws = 1
        for k in range(1, samples + 1):  # C(n, k) from C(n, k - 1), in exact integers
            draws = draws * (samples - k + 1) // k
            failing_draws = failing_draws * (failures - k + 1) // k if k <= failures else 0
            table[row, k - 1] = share(draws, failing_draws)
    return table


def _point(k: int, values: Column, limits: Ends | None, clusters: Ints | None, confidence: float) -> Point:
    """The mean over the tasks that have a value at k, with the default interval."""
    kept = values.kept()
    units = None if clusters is None else np.unique(clusters[values.given], return_inverse=True)[1]
    estimate = interval(kept, np.ones(len(kept)), confidence, limits, units)
    value = float(total(kept)) / len(kept)
    return Point(k, value, estimate.stderr, estimate.ends, len(kept), why=estimate.why)


MOST = 128
"""Samples per task up to which maj@k counts all draws; the work grows with the third power of the samples."""

_CELLS = 1 << 19  # numbers in one table of ways: 4 MB, which fits into a processor's cache


def majority_curve(
    rewards: Column,
    answers: Column,
    by: Groups,
    clusters: Ints | None = None,
    *,
    limits: Ends | None,
    confidence: float = 0.95,
) -> Curve:
    """maj@k, the expected reward of the majority's answer among k samples, for every k, from rewards and answers, [R].

    The same numbers as `maj_at_k`, over the tasks with k samples or more. No points without samples.
    """
    n = by.count(rewards.given)
    worth = worth_of_votes(rewards, answers, by)
    columns = [Column(worth[:, k - 1], n >= k) for k in range(1, worth.shape[1] + 1)]
    points = [_point(k, values, limits, clusters, confidence) for k, values in enumerate(columns, 1)]
    return Curve("maj@k", tuple(points))


def worth_of_votes(rewards: Column, answers: Column, by: Groups) -> Floats:
    """maj@k of each task for every k up to the most samples, [T, most]; 0 where a task has fewer than k."""
    n = by.count(rewards.given)
    table = np.zeros((by.size, int(n.max(initial=0))))
    task, votes, worth = ballots(rewards, answers, by)
    answer_counts = np.bincount(task, minlength=by.size)  # distinct answers of each task
    starts = np.cumsum(answer_counts) - answer_counts
    unanswered = n - by.count(rewards.given & answers.given)
    # tasks with the same number of answers and of samples are computed together
    shapes = answer_counts * (table.shape[1] + 1) + n
    for shape in np.unique(shapes[n > 0]).tolist():
        tasks = np.flatnonzero((shapes == shape) & (n > 0))
        samples = int(n[tasks[0]])
        step = max(1, _CELLS // (samples + 1) ** 2)
        for block in (tasks[start : start + step] for start in range(0, len(tasks), step)):
            rows = starts[block] + np.arange(int(answer_counts[block[0]]))[:, None]
            table[block, :samples] = _expected_worth(votes[rows], worth[rows], unanswered[block], samples)
    return table


def _expected_worth(votes: Ints, worth: Floats, unanswered: Ints, n: int) -> Floats:
    """maj@k of tasks with n samples for k from 1 to n, [t, n], from votes and worth of their m answers, [m, t].

    For each number c of the winner's votes, ``ways[s, d]`` counts the draws of d votes in which s answers have c votes
    and the others fewer, and ``gains`` sums the worth of those s. Samples without an answer complete a draw of d votes
    to k samples.
    """
    tasks = votes.shape[1]
    choose = np.array([[float(comb(a, x)) for a in range(n + 1)] for x in range(n + 1)])  # [x, a]
    picks, fillers = choose[:, votes], choose[:, unanswered]
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
            wins[d:] += shared[d] * fillers[: n + 1 - d]
    exact: Floats = (wins[1:] / choose[1:, n][:, None]).T
    return exact


@dataclass(frozen=True, slots=True)
class FirstSuccess:
    """The expected result of trying each task until its first pass, at most k times, as means over tasks."""

    k: int
    solved: float  # share of tasks that pass within k tries
    tries: float  # per task
    cost: float | None  # per task; None if a cost that it needs is unknown, or no finite number
    cost_per_success: float | None  # cost over solved; None if no task is solved
    tasks: int  # with k samples or more


def first_success(
    rewards: Column, costs: Column | None, by: Groups, *, threshold: float = PASS_THRESHOLD
) -> list[FirstSuccess]:
    """Tries and costs until the first pass for every limit k on the tries, from rewards and costs, [R] each.

    Try j + 1 is made with the chance that j samples drawn without replacement all fail, so that the expected number of
    tries is the sum of ``C(n-c, j)/C(n, j)`` over j < k. A failed try costs the mean of the task's failed samples, a
    successful try the mean of its passes; missing costs are left out of these means. There is no expected cost without
    a limit on the tries as long as a task has not been solved.
    """
    n, c = pass_counts(rewards, by, threshold)
    most = int(n.max(initial=0))
    pairs, code = distinct_counts(n, c)
    unsolved = all_fail(pairs.n, pairs.n - pairs.c, most)
    tries = np.cumsum(np.concatenate([np.ones((len(pairs.n), 1)), unsolved], axis=1), axis=1)
    passes = passed(rewards, threshold)
    prices = None if costs is None else (_mean_price(costs, by, ~passes), _mean_price(costs, by, passes))
    rows = []
    for k in range(1, most + 1):
        enough = n >= k
        solved, tried = 1 - unsolved[code[enough], k - 1], tries[code[enough], k - 1]
        share, count = float(total(solved)) / len(solved), len(solved)
        cost = None if prices is None else _mean_cost((tried - solved, solved), prices, enough)
        cost_per_success = _finite(cost / share) if cost is not None and share > 0 else None
        rows.append(FirstSuccess(k, share, float(total(tried)) / count, cost, cost_per_success, count))
    return rows


def _mean_price(costs: Column, by: Groups, rows: Bools) -> Column:
    """The mean cost of each task over ``rows``, [T]."""
    return task_mean(Column(costs.values, costs.given & rows), by)


def _mean_cost(expected: tuple[Floats, Floats], prices: tuple[Column, Column], enough: Bools) -> float | None:
    """The mean cost over tasks of the expected failed and successful tries; None if a needed price is missing.

    Also None if a needed price, or the mean, is not a finite number.
    """
    cost = np.zeros(len(expected[0]))
    for tries, price in zip(expected, prices, strict=True):
        needed = tries > 0
        if not price.given[enough][needed].all():
            return None
        cost += np.where(needed, tries * price.values[enough], 0.0)
    return _finite(float(total(cost)) / len(cost))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def sequence_curve(curve: Curve, *, unit: bool, clustered: bool, confidence: float) -> Curve:
    """The curve with a confidence sequence at every k; ``unit`` says that its task values lie in [0, 1].

    The beta mixture needs only the sum of the task values and their number. Model-based points have no sequence.
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
