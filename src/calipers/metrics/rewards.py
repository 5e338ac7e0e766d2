"""Metrics of rewards: what share passes, how often, and how well."""

from __future__ import annotations

from functools import partial
from math import comb

import numpy as np

from calipers.metrics.aggregate import mean, pooled
from calipers.metrics.extremes import all_pass, of_best, of_passes, some_pass
from calipers.metrics.metric import PASS_THRESHOLD, SHORT, UNIT, Metric
from calipers.metrics.reduce import by_counts, pass_counts, passed, share_without, task_mean
from calipers.rollouts.column import Column, Floats
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import total

UNDEFINED, JUDGED = SHORT
"""What a task is that has fewer than k samples and no pass among them."""


def passes(rewards: Column, by: Groups, threshold: float) -> Column:
    """Each task's passes and samples, [T, 2]."""
    n, c = pass_counts(rewards, by, threshold)
    return Column(np.stack([c, n], axis=1).astype(float), n > 0)


def solved(rewards: Column, by: Groups, threshold: float) -> Column:
    """1 for a task whose mean reward reaches the threshold, else 0, [T]."""
    means = task_mean(rewards, by)
    return Column(passed(means, threshold).astype(float), means.given)


def pass_at_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """Chance that k samples drawn without replacement include a pass, per task, [T].

    ``1 - C(n - c, k) / C(n, k)`` for c passes in n samples (Chen et al. 2021, eq. 1);
    a gap where a task has fewer than k samples.
    """
    n, c = pass_counts(rewards, by, threshold)
    return by_counts(n, c, lambda n, c: (comb(n, k) - comb(n - c, k)) / comb(n, k), at_least=k)


def pass_hat_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """Chance that k samples drawn without replacement all pass, per task, [T].

    ``C(c, k) / C(n, k)`` (Yao et al. 2024); a gap where a task has fewer than k samples.
    """
    n, c = pass_counts(rewards, by, threshold)
    return by_counts(n, c, lambda n, c: share_without(n, n - c, k), at_least=k)


def any_of_first_k(rewards: Column, by: Groups, k: int, threshold: float, short: str = UNDEFINED) -> Column:
    """1 for a task with a pass among its first k samples, else 0, [T].

    A task with fewer than k samples is 1 when one of them passes: no further sample can change that, so a
    run that stops each task at its first pass, after R samples at most, is answered for every k up to R.
    Without a pass it is a gap, or 0 where ``short`` is "judged": then it is judged by the samples it has.
    """
    early = _first(rewards, by, k)
    n, c = pass_counts(early, by, threshold)
    return Column((c > 0).astype(float), (n > 0) if short == JUDGED else (n >= k) | (c > 0))


def all_of_first_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """1 for a task whose first k samples, or all if it has fewer, pass, [T]."""
    early = _first(rewards, by, k)
    n, c = pass_counts(early, by, threshold)
    return Column((c == n).astype(float), n > 0)


def max_at_k(rewards: Column, by: Groups, k: int) -> Column:
    """Expected best reward of k samples drawn without replacement, per task, [T].

    ``sum_i r_(i) C(i - 1, k - 1) / C(n, k)`` over the sorted rewards; a gap where a task has
    fewer than k samples.
    """
    values, given = np.zeros(by.size), np.zeros(by.size, dtype=bool)
    for tasks, matrix in by.blocks(rewards):
        n = matrix.shape[1]
        if n >= k:
            best = slice(k - 1, n)  # the others are never the best of k; an infinity among them does not matter
            values[tasks] = total(np.sort(matrix, axis=1)[:, best] * _chances_of_best(n, k))
            given[tasks] = True
    return Column(values, given)


def _chances_of_best(n: int, k: int) -> Floats:
    """The chance that the i-th smallest of n is the best of k drawn, ``C(i - 1, k - 1) / C(n, k)``, from i = k on."""
    ways, every, chances = 1, comb(n, k), []
    for i in range(k, n + 1):
        chances.append(ways / every)
        ways = ways * i // (i - k + 1)  # C(i, k - 1), from C(i - 1, k - 1): each from scratch takes n times as long
    return np.array(chances)


def _first(rewards: Column, by: Groups, k: int) -> Column:
    """The same rewards with all but each task's first k given samples turned into gaps."""
    return Column(rewards.values, rewards.given & (by.rank(rewards.given) < k))


_THRESHOLD = {"threshold": PASS_THRESHOLD}
_K = {"k": int, **_THRESHOLD}

MEAN_REWARD = Metric("mean_reward", reduce=task_mean, aggregate=mean, of_rewards=True)
PASS_RATE = Metric("pass_rate", reduce=passes, aggregate=pooled, params=_THRESHOLD, range=UNIT)
SOLVED_RATE = Metric("solved_rate", reduce=solved, aggregate=mean, params=_THRESHOLD, range=UNIT)
PASS_AT_K = Metric(
    "pass@{k}", pass_at_k, mean, params=_K, range=UNIT, extremes=partial(of_passes, pass_at_k, some_pass)
)
PASS_HAT_K = Metric(
    "pass^{k}", pass_hat_k, mean, params=_K, range=UNIT, extremes=partial(of_passes, pass_hat_k, all_pass)
)
MAX_AT_K = Metric("max@{k}", max_at_k, mean, params={"k": int}, of_rewards=True, extremes=partial(of_best, max_at_k))
_FIRST = partial(Metric, aggregate=mean, range=UNIT, uses=_first, breaks=frozenset({"sample order"}))
ANY_OF_FIRST_K = _FIRST(
    "any_of_first_{k}",
    reduce=any_of_first_k,
    params={**_K, "short": UNDEFINED},
    extremes=partial(of_passes, any_of_first_k, some_pass),
)
ALL_OF_FIRST_K = _FIRST("all_of_first_{k}", reduce=all_of_first_k, params=_K)
