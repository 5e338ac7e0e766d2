"""Trying until it works: how many tries, and what they cost, when one gives up after k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.metrics.metric import PASS_THRESHOLD
from calipers.metrics.reduce import pass_counts, passed, task_mean
from calipers.rollouts.column import Bools, Column, Floats
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import total
from calipers.stats.curve import all_fail, distinct_counts, span


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
    missed = all_fail(pairs[:, 0], pairs[:, 0] - pairs[:, 1], most)
    tries = np.cumsum(np.concatenate([np.ones((len(pairs), 1)), missed], axis=1), axis=1)
    good = passed(rewards, threshold)
    prices = None if costs is None else (_price(costs, by, ~good), _price(costs, by, good))
    found = []
    for k in span(most):
        enough = n >= k
        solved, tried = 1 - missed[code[enough], k - 1], tries[code[enough], k - 1]
        share, count = float(total(solved)) / len(solved), len(solved)
        cost = None if prices is None else _mean_cost((tried - solved, solved), prices, enough)
        each = cost / share if cost is not None and share > 0 else None
        found.append(FirstSuccess(k, share, float(total(tried)) / count, cost, each, count))
    return found


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
