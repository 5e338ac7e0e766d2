"""Posterior means for these tasks, under a uniform prior."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np

from calipers.metrics.metric import PASS_THRESHOLD, UNIT, Metric, by_counts, mean, pass_counts
from calipers.rollouts.column import Column, Floats, Groups, total

MOST_LEVELS = 32  # more distinct rewards than this are no levels of a rubric


def posterior_mean(rewards: Column, by: Groups) -> Column:
    """Posterior mean and variance of each task's expected reward, [T, 2].

    A Dirichlet(1, ..., 1) over the levels a reward takes (Hariri et al. 2026): 0, 1 and every other
    reward that occurs. A gap for every task when the rewards leave [0, 1], are NaN, or take more than
    MOST_LEVELS values.
    """
    kept = rewards.kept()
    levels = np.unique(np.concatenate([kept, [0.0, 1.0]]))
    moments, given = np.zeros((by.size, 2)), by.count(rewards.given) > 0
    if len(levels) > MOST_LEVELS or not bool(((levels >= 0) & (levels <= 1)).all()):
        return Column(moments, np.zeros(by.size, dtype=bool))
    level_of = np.searchsorted(levels, rewards.values)
    counts = [by.count(rewards.given & (level_of == level)) for level in range(len(levels))]
    seen = np.stack(counts, axis=1) + 1.0  # [T, L] nu
    trials = seen.sum(axis=1)
    share = seen / trials[:, None]
    first, second = (share * levels).sum(axis=1), (share * levels**2).sum(axis=1)
    return Column(np.stack([first, (second - first**2) / (trials + 1)], axis=1), given)


def posterior_pass_at_k(rewards: Column, by: Groups, k: int, threshold: float) -> Column:
    """Posterior mean and variance of each task's chance of a pass in k samples, [T, 2].

    ``1 - B(c + 1, n - c + 1 + k) / B(c + 1, n - c + 1)`` under Beta(1, 1); k may exceed n, and then
    the prior speaks, not the data.
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


BAYES_MEAN = Metric("bayes_mean", posterior_mean, posterior, range=UNIT, interval="posterior")
BAYES_PASS_AT_K = Metric(
    "bayes_pass@{k}",
    posterior_pass_at_k,
    posterior,
    params={"k": int, "threshold": PASS_THRESHOLD},
    range=UNIT,
    interval="posterior",
)
