"""Many comparisons at once: p values adjusted for their number, and the correction for picking the best.

Among twenty tests of nothing one succeeds at 5 %, and the best of ten equal models looks better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Floats, Ints, sum_by, total
from calipers.stats.paired_bootstrap import DRAWS, resampled_sums


def holm(p: Floats) -> Floats:
    """Bonferroni step by step, [m]: the smallest p times m, the next times m - 1, never decreasing.

    It keeps what Bonferroni keeps and never says less (Holm 1979).
    """
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    return _in_place(order, np.minimum(1.0, np.maximum.accumulate(steps)))


def benjamini_hochberg(p: Floats) -> Floats:
    """Adjusted so that of all that is called a discovery the expected share of false ones is kept, [m].

    The i-th smallest p times m/i, and never more than what follows (Benjamini and Hochberg 1995); for tests
    that are independent or positively dependent.
    """
    order = np.argsort(p, kind="stable")[::-1]
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    return _in_place(order, np.minimum(1.0, np.minimum.accumulate(steps)))


def sidak(p: float, tests: int) -> float:
    """One p among so many tests in one step: ``1 - (1 - p)^m`` (Sidak 1967).

    Exact for independent tests, and enough for means that are normal, however they depend. An interval at
    confidence^(1/m) says the same.

    >>> [round(sidak(p, 3), 6) for p in (0.012, 0.03, 0.2)]
    [0.03557, 0.087327, 0.488]
    """
    return float(-np.expm1(tests * np.log1p(-p))) if p < 1 else 1.0


def _in_place(order: Ints, adjusted: Floats) -> Floats:
    restored = np.empty(len(order))
    restored[order] = adjusted
    return restored


@dataclass(frozen=True, slots=True)
class Ranking:
    """Several runs on the same tasks, [M]: their ranks, 1 the best, and how far the draws move them."""

    values: Floats  # [M] means over tasks
    ranks: Floats  # [M] of the values; equal values share the mean of their places
    low: Floats  # [M] best rank that is not ruled out
    high: Floats  # [M] worst
    chance_best: Floats  # [M] share of draws in which the run is the best; ties share
    optimism: float  # how much too good the best of M equal runs would look
    best: int  # place of the best run

    @property
    def corrected(self) -> float:
        """The best run's value less the optimism: what is left if the runs were all alike."""
        return float(self.values[self.best]) - self.optimism


def ranking(
    values: Floats,
    weights: Floats | None = None,
    clusters: Ints | None = None,
    *,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = DRAWS,
) -> Ranking:
    """Rank M runs by their means over T common tasks, from task values [M, T].

    Tasks, or whole clusters, are drawn again, the same for all runs. The interval of a rank holds the
    middle ``confidence`` of the draws. The optimism is the mean over draws of the largest of the M
    deviations from the runs' own means: what picking the best of M would add if all were equal. Where
    some run is clearly best it is less than that.
    """
    models = len(values)
    weights = np.ones(values.shape[1]) if weights is None else weights
    columns = np.concatenate([(values * weights).T, weights[:, None]], axis=1)  # [T, M + 1]
    if clusters is not None:
        size = int(clusters.max()) + 1
        columns = np.stack([sum_by(clusters, column, size) for column in columns.T], axis=1)
    columns = columns[columns[:, -1] > 0]
    if len(columns) < 2:
        raise ValueError(f"{len(columns)} common tasks or clusters; ranks take two or more")
    means = np.asarray(total(np.ascontiguousarray(columns.T)))
    means = means[:-1] / means[-1]
    sums = resampled_sums(columns, seed, draws)
    drawn = sums[:, :models] / sums[:, models:]  # [draws, M]
    sign = 1.0 if higher_is_better else -1.0
    places = _places(sign * drawn)
    tail = (1 - confidence) / 2
    low, high = np.quantile(places, [tail, 1 - tail], axis=0)
    first = sign * drawn == (sign * drawn).max(axis=1, keepdims=True)
    best = int(np.argmax(sign * means))
    away = sign * (drawn - means)
    # the mean over runs has no optimism: taking it off takes its noise off
    optimism = float((away.max(axis=1) - away.mean(axis=1)).mean())
    return Ranking(
        means,
        _places((sign * means)[None])[0],
        np.floor(low),
        np.ceil(high),
        (first / first.sum(axis=1, keepdims=True)).mean(axis=0),
        sign * optimism,
        best,
    )


def _places(values: Floats) -> Floats:
    """The rank of each value in its row, 1 the largest, ties sharing the mean of their places, [..., M]."""
    models = values.shape[-1]
    ranks = np.ones(values.shape)
    for other in range(models):
        rival = values[..., other : other + 1]
        ranks += (rival > values) + 0.5 * (rival == values)
    return ranks - 0.5  # each value ties with itself
