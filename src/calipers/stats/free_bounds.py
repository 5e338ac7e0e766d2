"""Bounds of pass@K beyond the samples that hold whatever the law of the tasks' chances.

With n samples of each of T tasks, the shares F_c of tasks with at most c passes, c = 0 to n - 1, are known up to an
interval each. A mixture of chances, a weight for each point of a grid, is possible if it gives shares within all of
these intervals. The lowest and the highest pass@K of a possible mixture are two linear programs. Nothing is assumed of
the law of chances; the samples of a task must be independent, and the tasks drawn independently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from calipers.metrics import PASS_THRESHOLD, pass_counts, passed
from calipers.metrics.rewards import first_samples
from calipers.remarks import Remark
from calipers.rollouts.column import Column, Floats, Groups, Ints
from calipers.stats.counts import follows
from calipers.stats.sequence import Ends

FEWEST_SAMPLES = 2  # with one sample, only the mean chance is known, and the bounds are nearly 0 and 1
FEWEST_TASKS = 10
PLACES = 4  # decimals of the ends, which are rounded outward


@dataclass(frozen=True, slots=True)
class FreeBounds:
    """The bounds of pass@K whatever the law of chances, for several K; or why there are none."""

    samples: int  # of each task that are used: those that were planned for all tasks
    tasks: int
    missing: int  # rollouts among them; they count as failures for the lower end, and as passes for the upper end
    ends: Mapping[int, Ends] = field(default_factory=dict)  # by K; empty if ``why`` is given
    why: Remark | None = None


def free_bounds(
    rewards: Column,
    by: Groups,
    ks: Sequence[int],
    *,
    threshold: float = PASS_THRESHOLD,
    confidence: float = 0.95,
    clustered: bool = False,
    stopped: bool = False,
) -> FreeBounds:
    """The bounds of pass@K for each K of ``ks``, from the first samples of each task that all tasks have, [R] rewards.

    The lower end is that of the rewards with every missing one failed, the upper end that with every missing one
    passed. ``clustered`` and ``stopped`` say that tasks are not independent draws: they belong to clusters, or their
    results ended the run.
    """
    planned = by.count(np.ones(len(rewards.given), dtype=bool))
    planned = planned[planned > 0]
    samples, tasks = int(planned.min(initial=planned.max(initial=0))), len(planned)
    fewest = _passes_of_first(rewards.filled(-np.inf), by, samples, threshold)
    most = _passes_of_first(rewards.filled(threshold), by, samples, threshold)
    found = FreeBounds(samples, tasks, int((most - fewest).sum()))
    follow = follows(passed(rewards, threshold), rewards.given, by.code) is not None
    if why := _refused(samples, tasks, follow=follow, clustered=clustered, stopped=stopped):
        return replace(found, why=why)
    low = ends_of_counts(np.bincount(fewest, minlength=samples + 1), ks, confidence)
    high = low
    if found.missing:
        high = ends_of_counts(np.bincount(most, minlength=samples + 1), ks, confidence)
    if low is None or high is None:
        return replace(found, why=Remark("free_bounds_impossible", {"samples": samples}, "no_answer"))
    return replace(found, ends={k: (low[index][0], high[index][1]) for index, k in enumerate(ks)})


def _passes_of_first(rewards: Column, by: Groups, samples: int, threshold: float) -> Ints:
    """The passes of each task among its first samples, for the tasks that have any, from rewards without gaps."""
    n, c = pass_counts(first_samples(rewards, by, samples), by, threshold)
    return c[n > 0]


def _refused(samples: int, tasks: int, *, follow: bool, clustered: bool, stopped: bool) -> Remark | None:
    """Why there are no bounds; None if there are. ``follow`` says that the numbers of samples follow the results."""
    if stopped:
        return Remark("free_bounds_stopped", {}, "no_answer")
    if clustered:
        return Remark("free_bounds_clusters", {}, "no_answer")
    if tasks < FEWEST_TASKS:
        return Remark("free_bounds_few_tasks", {"tasks": tasks, "needed": FEWEST_TASKS}, "no_answer")
    if follow:
        return Remark("free_bounds_counts", {}, "no_answer")
    if samples < FEWEST_SAMPLES:
        return Remark("free_bounds_few_samples", {"samples": samples, "needed": FEWEST_SAMPLES}, "no_answer")
    return None


def ends_of_counts(table: Ints, ks: Sequence[int], confidence: float) -> list[Ends] | None:
    """The lowest and the highest pass@K for each K, from the numbers of tasks with 0 to n passes, [n + 1].

    None if no mixture of chances gives such shares, as for tasks that all have exactly two passes of four samples. The
    ends are rounded outward to four decimals.
    """
    from scipy.optimize import linprog  # 0.1 seconds

    samples = len(table) - 1
    chances = grid_of_chances()
    low, high = share_ends(table, confidence)
    shares = shares_at_most(samples, chances)
    rows = np.vstack([shares, -shares])
    limits = np.concatenate([high, -low])
    found = []
    for k in ks:
        some_pass = 1 - (1 - chances) ** k
        values = []
        for sign in (1, -1):
            best = linprog(
                sign * some_pass,
                A_ub=rows,
                b_ub=limits,
                A_eq=np.ones((1, len(chances))),
                b_eq=[1.0],
                bounds=(0, 1),
                method="highs",
            )
            if best.status != 0 or best.fun is None:
                return None
            values.append(sign * float(best.fun))
        found.append(_rounded_outward(values[0], values[1]))
    return found


def _rounded_outward(low: float, high: float) -> Ends:
    scale = 10**PLACES
    slack = 1e-7 * scale  # the accuracy of the linear program: 0.49999999 is 0.5
    low, high = max(low, 0.0), min(high, 1.0)
    return max(float(np.floor(low * scale + slack)) / scale, 0.0), min(
        float(np.ceil(high * scale - slack)) / scale, 1.0
    )


@cache
def grid_of_chances() -> Floats:
    """The chances of a mixture: 0, 1, 25 geometric from 1e-4 to .02, 60 even from .02 to .98, 10 mirrored geometric."""
    parts = [np.array([0.0, 1.0]), np.geomspace(1e-4, 0.02, 25), np.linspace(0.02, 0.98, 60)]
    parts.append(1 - np.geomspace(1e-4, 0.02, 10))
    return np.unique(np.concatenate(parts))


def share_ends(table: Ints, confidence: float) -> tuple[Floats, Floats]:
    """Clopper-Pearson ends of the share of tasks with at most c passes, c = 0 to n - 1, [n] each.

    Each at ``1 - (1 - confidence)/n``, so that all hold together at the confidence.
    """
    from scipy.special import betaincinv

    at_most = np.cumsum(table)[:-1].astype(float)
    tasks = float(np.sum(table))
    tail = (1 - confidence) / len(at_most) / 2
    low, high = np.zeros(len(at_most)), np.ones(len(at_most))
    some, others = at_most > 0, at_most < tasks
    low[some] = betaincinv(at_most[some], tasks - at_most[some] + 1, tail)
    high[others] = betaincinv(at_most[others] + 1, tasks - at_most[others], 1 - tail)
    return low, high


def shares_at_most(samples: int, chances: Floats) -> Floats:
    """The chance of at most c passes of n samples, c = 0 to n - 1, for each chance of a pass, [n, G]."""
    from scipy.special import bdtr

    return np.asarray(bdtr(np.arange(samples)[:, None], samples, chances))
