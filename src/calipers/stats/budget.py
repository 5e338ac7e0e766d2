"""How to spend a budget on tasks and on samples of them, and when more samples are wasted.

Samples shrink the noise of each task's difference, tasks shrink that and the variance of the differences
themselves. So tasks come first, until they are scarce or dear (Miller 2024, section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.stats.power import APART, CONFIDENCE, MOST_TASKS, POWER, Clusters, PairVariance, smallest_difference
from calipers.stats.wilson import t_quantile

ENOUGH = 0.75
"""The share of what samples can do for the interval after which more of them are called wasted."""


def samples_worth(pair: PairVariance) -> int | None:
    """How many samples per task bring three quarters of all the narrowing that samples can bring.

    More are wasted: tasks narrow the interval faster. None where samples are all there is (every task
    alike, so each sample counts in full), 1 where they do nothing.

    >>> samples_worth(PairVariance(1 / 12, 1 / 6, 0.0))  # chances of success uniform on [0, 1]
    6
    """
    if pair.tasks == 0:
        return None if pair.first + pair.second > 0 else 1
    one, most = math.sqrt(pair.of(1)), math.sqrt(pair.of(math.inf))
    aim = one - ENOUGH * (one - most)
    spare = aim * aim - pair.tasks
    return max(1, math.ceil((pair.first + pair.second) / spare - 1e-9)) if spare > 0 else 1


def samples_at_price(pair: PairVariance, per_sample: float, per_task: float) -> int | None:
    """How many samples per task show most for their price, ``sqrt(s^2 per_task / (w^2 2 per_sample))``.

    None where every task is alike, so that one task with all the samples is best.

    >>> samples_at_price(PairVariance(1 / 9, 1 / 6, 1 / 6), per_sample=0.05, per_task=1.0)
    5
    """
    if pair.tasks == 0:
        return None
    return max(1, round(math.sqrt((pair.first + pair.second) * per_task / (pair.tasks * 2 * per_sample))))


@dataclass(frozen=True, slots=True)
class Design:
    """So many tasks, with so many samples each in both runs, at this price."""

    tasks: int
    samples: int
    cost: float
    smallest: float  # the smallest difference it shows


def best_split(
    pair: PairVariance,
    budget: float,
    *,
    per_sample: float,
    per_task: float = 0.0,
    most_tasks: int | None = None,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    clusters: Clusters = APART,
) -> Design | None:
    """The tasks and samples that show the smallest difference for a budget; None when two units are too dear.

    A task costs ``per_task`` once and ``per_sample`` for each of K samples in each of two runs. Where tasks
    cost nothing and never run out, one sample each is best; else about ``K = sqrt(s^2 per_task / (w^2 2
    per_sample))``. Of equal designs the one with fewer samples. Tasks are bought in whole ``clusters``.
    """
    if not per_sample > 0:
        raise ValueError(f"{per_sample} a sample; expected a price above 0")
    best: tuple[float, int, int, float] | None = None
    limit = MOST_TASKS if most_tasks is None else most_tasks
    for samples in _candidates(int((budget / 2 - per_task) / (2 * per_sample))):
        price = per_task + 2 * samples * per_sample
        tasks = _whole(min(int(budget / price * (1 + 1e-12)), limit), limit, clusters)
        if tasks >= 2 and clusters.units(tasks) > 1:
            shown = _about_shown(pair.of(samples), tasks, power, confidence, clusters)
            if best is None or shown < best[0] * (1 - 1e-9):
                best = shown, tasks, samples, tasks * price
    if best is None:
        return None
    _, tasks, samples, cost = best
    smallest = smallest_difference(pair.of(samples), tasks, power, confidence, clusters=clusters)
    return Design(tasks, samples, cost, smallest or 0.0)


def _whole(tasks: int, limit: int, clusters: Clusters) -> int:
    """So many tasks in whole clusters, rounded down; all there are stay all."""
    return tasks if tasks == limit else clusters.tasks(clusters.count(tasks))


def _about_shown(variance: float, tasks: int, power: float, confidence: float, clusters: Clusters) -> float:
    """Miller's smallest difference with a t quantile: near enough to tell designs apart, and quick."""
    freedom = max(1.0, clusters.units(tasks) - 1.0)
    needed = t_quantile((1 + confidence) / 2, freedom) + t_quantile(power, math.inf)
    return needed * math.sqrt(variance / tasks)


def _candidates(most: int) -> list[int]:
    """Every number of samples up to 64, and ever coarser steps beyond: no design turns on one sample in 64."""
    found, samples = [], 1
    while samples <= most:
        found.append(samples)
        samples += max(1, samples // 64)
    return found
