"""Metrics of rewards: means, rates, the value of k drawn samples, and posterior means under a uniform prior."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import ceil, comb
from typing import Any

import numpy as np

from calipers.metrics import (
    PASS_THRESHOLD,
    SHORT,
    UNIT,
    Metric,
    Reduce,
    by_counts,
    mean,
    pass_counts,
    passed,
    pooled,
    share_without,
    task_mean,
)
from calipers.rollouts.column import Column, Floats, Groups, Ints, total

# Extremes: the smallest and the largest possible value of each task, over all possible rewards of its missing samples.
# Two kinds of samples are missing: planned rollouts without a reward, and samples up to k of a task that was planned
# with fewer. A task is filled up to its planned number of samples, or to k if that is larger, once with the lowest and
# once with the highest possible reward. Every metric here is non-decreasing in each reward, so these are its extremes.

Ends = tuple[float, float]

Worth = Callable[..., Floats]
"""``worth(passes, k, **params)``: the metric's value for exactly k samples with this many passes, [T] to [T]."""


def planned(by: Groups) -> Ints:
    """The number of planned samples of each task, including gaps, [T]."""
    return np.diff(by.starts)


def of_passes(
    reduce: Reduce, worth: Worth, rewards: Column, by: Groups, ends: Ends, k: int, threshold: float, **params: Any
) -> tuple[Column, Column]:
    """The extremes of a metric that counts passes among k samples, [T] each; it must be non-decreasing in passes.

    No samples up to k are missing if the metric judges tasks by fewer.
    """
    n, c = pass_counts(rewards, by, threshold)
    short = (planned(by) < k) & (params.get("short") != JUDGED)
    columns = []
    for end in ends:
        filled = reduce(rewards.filled(end), by=by, k=k, threshold=threshold, **params)
        passes = c + np.maximum(k - n, 0) * (end >= threshold)
        columns.append(Column(np.where(short, worth(passes, k=k, **params), filled.values), filled.given | short))
    return columns[0], columns[1]


def of_best(reduce: Reduce, rewards: Column, by: Groups, ends: Ends, k: int) -> tuple[Column, Column]:
    """The extremes of the best reward of k samples, [T] each."""
    best = np.full(by.size, -np.inf)
    np.maximum.at(best, by.code[rewards.given], rewards.kept())
    short = planned(by) < k
    columns = []
    for end in ends:
        filled = reduce(rewards.filled(end), by=by, k=k)
        columns.append(Column(np.where(short, np.maximum(best, end), filled.values), filled.given | short))
    return columns[0], columns[1]


def some_pass(passes: Ints, k: int, **params: Any) -> Floats:
    """1 if at least one of k samples passes."""
    return (passes > 0).astype(float)


def all_pass(passes: Ints, k: int) -> Floats:
    """1 if all k samples pass."""
    return (passes >= k).astype(float)


UNDEFINED, JUDGED = SHORT
"""How `any_of_first_k` treats a task with fewer than k samples and no pass among them."""


def passes(rewards: Column, by: Groups, threshold: float) -> Column:
    """The number of passes and of samples of each task, [T, 2]."""
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

    A task with fewer than k samples is 1 if one of them passes, because no further sample can change that. So a
    run that stops each task at its first pass, or after R samples, has a value for every k up to R. A task
    without a pass among fewer than k samples is a gap, or 0 if ``short`` is "judged".
    """
    early = first_samples(rewards, by, k)
    n, c = pass_counts(early, by, threshold)
    return Column((c > 0).astype(float), (n > 0) if short == JUDGED else (n >= k) | (c > 0))


def all_of_first_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """1 for a task whose first k samples all pass, else 0, [T]; of fewer samples, all must pass."""
    early = first_samples(rewards, by, k)
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
            best = slice(k - 1, n)  # smaller rewards are never the best of k, so an infinity among them has no effect
            values[tasks] = total(np.sort(matrix, axis=1)[:, best] * _chances_of_best(n, k))
            given[tasks] = True
    return Column(values, given)


def _chances_of_best(n: int, k: int) -> Floats:
    """The chance that the i-th smallest of n is the best of k draws, ``C(i - 1, k - 1) / C(n, k)``, for i = k to n."""
    ways, draws, chances = 1, comb(n, k), []
    for i in range(k, n + 1):
        chances.append(ways / draws)
        ways = ways * i // (i - k + 1)  # C(i, k - 1) from C(i - 1, k - 1), which is n times faster than from scratch
    return np.array(chances)


def first_samples(rewards: Column, by: Groups, k: int) -> Column:
    """The rewards of the first k samples of each task that have one; all other rewards become gaps."""
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
_FIRST = partial(Metric, aggregate=mean, range=UNIT, uses=first_samples, breaks=frozenset({"sample order"}))
ANY_OF_FIRST_K = _FIRST(
    "any_of_first_{k}",
    reduce=any_of_first_k,
    params={**_K, "short": UNDEFINED},
    extremes=partial(of_passes, any_of_first_k, some_pass),
)
ALL_OF_FIRST_K = _FIRST("all_of_first_{k}", reduce=all_of_first_k, params=_K)


def gpass_at_k(rewards: Column, by: Groups, k: int, tau: float, threshold: float) -> Column:
    """Chance that at least ``ceil(tau k)`` of k samples drawn without replacement pass, per task, [T].

    The tail of the hypergeometric distribution (Liu et al. 2024); a gap where a task has fewer than
    k samples.
    """
    n, c = pass_counts(rewards, by, threshold)
    least = needed(tau, k)
    return by_counts(n, c, lambda n, c: at_least(least, n, c, k), at_least=k)


def mgpass_at_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """Mean of G-Pass@k over tau from one half to one, per task, [T].

    ``(2/k) sum of P(at least i pass)`` over i from ``ceil(k/2) + 1`` to k.
    """
    n, c = pass_counts(rewards, by, threshold)
    return by_counts(n, c, lambda n, c: float(Fraction(2, k) * _beyond(ceil(k / 2), n, c, k)), at_least=k)


def needed(tau: float, k: int) -> int:
    """The number of k samples that must pass: the share tau, rounded up, and at least one. tau is taken as a decimal.

    >>> needed(0.55, 100), needed(0.14, 50), needed(0.28, 25)  # as binary floats: 56, 8 and 8
    (55, 7, 7)
    """
    return max(1, ceil(Fraction(repr(tau)) * k))


def at_least(least: int, n: int, c: int, k: int) -> float:
    """Chance of at least ``least`` passes among k of n samples, c of which pass, rounded once."""
    return float(Fraction(sum(comb(c, i) * comb(n - c, k - i) for i in range(least, min(c, k) + 1)), comb(n, k)))


def _beyond(half: int, n: int, c: int, k: int) -> Fraction:
    """The expected excess of passes over ``half`` in k draws, E[max(passes - half, 0)], the sum of the tails above."""
    ways = sum((i - half) * comb(c, i) * comb(n - c, k - i) for i in range(half + 1, min(c, k) + 1))
    return Fraction(ways, comb(n, k))


def _enough(passes: Ints, k: int, tau: float) -> Floats:
    return (passes >= needed(tau, k)).astype(float)


def _above_half(passes: Ints, k: int) -> Floats:
    return 2 / k * np.maximum(passes - ceil(k / 2), 0)


GPASS_AT_K = Metric(
    "gpass@{k}",
    gpass_at_k,
    mean,
    params={"k": int, "tau": 0.5, "threshold": PASS_THRESHOLD},
    range=UNIT,
    extremes=partial(of_passes, gpass_at_k, _enough),
)
MGPASS_AT_K = Metric(
    "mgpass@{k}", mgpass_at_k, mean, params=_K, range=UNIT, extremes=partial(of_passes, mgpass_at_k, _above_half)
)

MOST_LEVELS = 32  # more distinct rewards than this are not the levels of a rubric


def posterior_mean(rewards: Column, by: Groups) -> Column:
    """Posterior mean and variance of each task's expected reward, [T, 2].

    The prior is Dirichlet(1, ..., 1) over the levels of the reward (Hariri et al. 2026): 0, 1 and every other
    reward that occurs. A gap for every task if a reward is outside [0, 1] or NaN, or if there are more than
    MOST_LEVELS levels.
    """
    kept = rewards.kept()
    levels = np.unique(np.concatenate([kept, [0.0, 1.0]]))
    moments, given = np.zeros((by.size, 2)), by.count(rewards.given) > 0
    if len(levels) > MOST_LEVELS or not bool(((levels >= 0) & (levels <= 1)).all()):
        return Column(moments, np.zeros(by.size, dtype=bool))
    level_of = np.searchsorted(levels, rewards.values)
    counts = [by.count(rewards.given & (level_of == level)) for level in range(len(levels))]
    concentration = np.stack(counts, axis=1) + 1.0  # [T, L], nu in the paper
    trials = concentration.sum(axis=1)
    share = concentration / trials[:, None]
    first, second = (share * levels).sum(axis=1), (share * levels**2).sum(axis=1)
    return Column(np.stack([first, (second - first**2) / (trials + 1)], axis=1), given)


def posterior_pass_at_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """Posterior mean and variance of each task's chance of a pass in k samples, [T, 2].

    ``1 - B(c + 1, n - c + 1 + k) / B(c + 1, n - c + 1)`` under Beta(1, 1). k may exceed n; then the prior
    determines much of the result.
    """
    n, c = pass_counts(rewards, by, threshold)
    means = by_counts(n, c, lambda n, c: float(1 - _all_fail(n, c, k)), at_least=1)
    spread = by_counts(n, c, lambda n, c: float(_all_fail(n, c, 2 * k) - _all_fail(n, c, k) ** 2), at_least=1)
    return Column(np.stack([means.values, spread.values], axis=1), means.given)


def _all_fail(n: int, c: int, k: int) -> Fraction:
    """Posterior chance that k more samples all fail: E[(1 - p)^k] for p ~ Beta(c + 1, n - c + 1)."""
    return Fraction(comb(n - c + k, k), comb(n + 1 + k, k))


def posterior(moments: Floats) -> Floats:
    """The mean of posterior means, ``[..., T, 2] -> [...]``."""
    return mean(moments[..., 0])


def posterior_variance(moments: Floats) -> float:
    """The variance of the mean of T independent posteriors, from [T, 2]."""
    return float(total(moments[:, 1])) / len(moments) ** 2


BAYES_MEAN = Metric("bayes_mean", posterior_mean, posterior, range=UNIT, interval="posterior", across_tasks=True)
BAYES_PASS_AT_K = Metric("bayes_pass@{k}", posterior_pass_at_k, posterior, params=_K, range=UNIT, interval="posterior")
