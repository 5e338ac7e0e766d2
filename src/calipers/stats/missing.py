"""Missing rollouts: how far they could change a difference, and how many of them would change a verdict.

The outcome of a missing rollout is unknown. If all of them are filled with the worst outcome, they bound the difference
(Manski 1990). If they are filled one after another, the number at which the verdict changes is its tipping point (Yan,
Lee and Li 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from calipers.rollouts.column import Floats, Ints

MOST_MISSING: Final = 0.05
"""A warning is given above this share of missing rollouts, and above this difference between two shares."""

MOST_PLACEMENTS: Final = 10_000
"""The placements of a number of adverse outcomes are all tried up to this many; above, only the worst by value.

From FEW_TASKS on the limit is on the placements of all numbers together, because other placements hardly matter there.
"""

FEW_TASKS: Final = 20
"""Below it, a placement that widens the spread may undo a verdict one outcome earlier than the worst by value."""

MOST_COUNTED: Final = 200
"""Above this many missing rollouts only the worst placement by value is tried, because the others are too many."""

MOST_CELLS: Final = 1_000_000
"""The largest table with a row for each number of adverse outcomes; above, the tipping point is found by bisection."""

MOST_EXACT: Final = 2_000
"""The most missing rollouts that the exact knapsack places, which is needed if outcomes of a task reinforce each
other."""

Intact = Callable[[Ints], bool]
"""``intact(counts)``: whether the verdict holds with the given number of adverse outcomes in each task, [T]."""

_NOISE: Final = 1e-12  # rounding of effects, which are differences of rounded values


@dataclass(frozen=True, slots=True)
class TippingPoint:
    """The number of missing rollouts that may be adverse without a change of the verdict."""

    most: int  # the verdict holds for every number from 0 to this one; -1: not even for 0
    missing: int
    exact: bool  # every placement was tried; else only the worst by value for some numbers


@dataclass(frozen=True, slots=True)
class Fillings:
    """The contribution of each task to the difference, by the number of its missing rollouts that are adverse.

    Larger contributions are better for the verdict.
    """

    own: Floats  # [J, t] of the run whose missing rollouts are counted, with j of them adverse
    other: Floats  # [t] of the other run
    shares: tuple[Floats, Floats]  # [t] each task's share of the samples of the run, and of the other run
    gaps: Ints  # [t] missing rollouts of the run
    kinds: Ints | None = None  # [t] equal for tasks that are interchangeable; None: their order matters

    @property
    def effects(self) -> Floats:
        """The loss of the difference by j adverse outcomes in a task, [J, t]."""
        return np.asarray(self.own[0] - self.own)

    @property
    def ties(self) -> Floats:
        """The contribution of each task without adverse outcomes, [t]; lowering the lowest widens the spread most."""
        return np.asarray(self.own[0] - self.other)

    def statistic(self, placements: Ints) -> Floats:
        """The floored t of each placement, counts of adverse outcomes [p, t]; the smallest is nearest to a change."""
        values = self.own[placements, np.arange(len(self.gaps))]
        pulls = values - self.other
        rates = values.sum(axis=1, keepdims=True), self.other.sum()
        residuals = pulls - (self.shares[0] * rates[0] - self.shares[1] * rates[1])
        units = len(self.gaps)
        spread = units / max(units - 1, 1) * (residuals**2).sum(axis=1) + (np.abs(pulls).max(axis=1) / 2) ** 2
        return np.asarray(pulls.sum(axis=1) / np.sqrt(np.maximum(spread, np.finfo(float).tiny)))


def worst_placements(filling: Fillings) -> Callable[[int], Ints]:
    """The function from a number x of adverse outcomes to their worst placement by value, as counts by task, [t].

    The worst placement lowers the difference most; at a tie the task with the smallest contribution goes first. If a
    second outcome in a task never costs more than the first, as in means and pooled rates, the costliest single
    outcomes go first. Otherwise (pass@k losing its passes, pass^k gaining them) a knapsack over tasks places the
    outcomes; above MOST_EXACT outcomes whole tasks are filled, the costliest per outcome first.
    """
    effects, gaps, ties = filling.effects, filling.gaps, filling.ties
    steps = np.diff(effects, axis=0)  # [J - 1, t]
    within = np.arange(1, len(effects))[:, None] <= gaps
    if not ((np.diff(steps, axis=0) > _NOISE) & within[1:]).any():
        task = np.broadcast_to(np.arange(len(gaps)), steps.shape)[within]
        rank = np.broadcast_to(np.arange(len(steps))[:, None], steps.shape)[within]
        order = task[np.lexsort((rank, ties[task], -_rounded(steps[within])))]
    elif int(gaps.sum()) > MOST_EXACT:
        per_outcome = effects[gaps, np.arange(len(gaps))] / np.maximum(gaps, 1)
        costliest = np.lexsort((ties, -_rounded(per_outcome)))
        order = np.repeat(costliest, gaps[costliest])
    else:
        return _knapsack(effects, gaps, ties)
    return lambda x: np.bincount(order[:x], minlength=len(gaps))


def _knapsack(effects: Floats, gaps: Ints, ties: Floats) -> Callable[[int], Ints]:
    """The worst placement of x outcomes by a knapsack over tasks, solved for every x at once: O(T G max g)."""
    size = int(gaps.sum())
    tasks = [t for t in np.argsort(-ties, kind="stable").tolist() if gaps[t]]  # at a tie the last task gets more
    best = np.full(size + 1, -np.inf)
    best[0] = 0.0
    chosen = np.zeros((len(tasks), size + 1), dtype=np.int64)
    for index, task in enumerate(tasks):
        better = best.copy()
        for count in range(1, int(gaps[task]) + 1):
            candidate = best[: size + 1 - count] + effects[count, task]
            taken = candidate >= better[count:] - _NOISE
            taken &= np.isfinite(candidate)
            better[count:] = np.where(taken, candidate, better[count:])
            chosen[index, count:] = np.where(taken, count, chosen[index, count:])
        best = better

    def placement(x: int) -> Ints:
        counts, left = np.zeros(len(gaps), dtype=np.int64), x
        for index in range(len(tasks) - 1, -1, -1):
            counts[tasks[index]] = chosen[index, left]
            left -= int(chosen[index, left])
        return counts

    return placement


def _rounded(values: Floats) -> Floats:
    """Effects rounded, so that those that differ by rounding errors alone are equal."""
    return np.asarray(np.round(values, 12))


def tipping_point(filling: Fillings, intact: Intact) -> TippingPoint:
    """The largest x such that the verdict is intact for every number of adverse outcomes from 0 to x.

    For each number the worst placement by value is tried and, if there are few enough placements, also the placement
    with the smallest statistic of all.
    """
    size = int(filling.gaps.sum())
    placement = worst_placements(filling)
    most = _most_by_value(filling, placement, intact, size)
    if filling.kinds is None or size > MOST_COUNTED:
        return TippingPoint(most, size, size <= 1)
    placements, exact, tried = _Placements(filling.gaps, filling.kinds), True, 0
    for x in range(1, min(most, size - 1) + 1):  # for 0 and for ``size`` adverse outcomes there is one placement
        number = placements.number(x)
        if number > MOST_PLACEMENTS or (len(filling.gaps) >= FEW_TASKS and tried + number > MOST_PLACEMENTS):
            exact = False
            continue
        tried += number
        candidates = placements.of(x)
        if not intact(candidates[np.argmin(filling.statistic(candidates))]):
            return TippingPoint(x - 1, size, exact)
    return TippingPoint(most, size, exact)


def _most_by_value(filling: Fillings, placement: Callable[[int], Ints], intact: Intact, size: int) -> int:
    """The tipping point by the worst placements by value, by bisection unless their statistic is known to rise."""
    if (size + 1) * len(filling.gaps) <= MOST_CELLS:
        statistics = filling.statistic(np.array([placement(x) for x in range(size + 1)]))
        if bool((np.diff(statistics) > _NOISE * np.abs(statistics[1:])).any()):
            return next((x for x in range(size + 1) if not intact(placement(x))), size + 1) - 1
    if intact(placement(size)):
        return size
    low, high = -1, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if intact(placement(middle)) else (low, middle)
    return low


class _Placements:
    """All distinct placements of adverse outcomes; tasks of a kind with equally many gaps are interchangeable."""

    def __init__(self, gaps: Ints, kinds: Ints) -> None:
        self._size = len(gaps)
        open_tasks = np.flatnonzero(gaps)
        pairs, code = np.unique(np.stack([kinds, gaps], axis=1)[open_tasks], axis=0, return_inverse=True)
        self._members = [open_tasks[code.reshape(-1) == kind] for kind in range(len(pairs))]
        self._most = [int(most) for most in pairs[:, 1]]
        ways = [1]
        for tasks, most in zip(self._members, self._most, strict=True):
            ways_of_kind = [_shapes(count, len(tasks), most) for count in range(len(tasks) * most + 1)]
            ways = np.convolve(np.array(ways, dtype=object), np.array(ways_of_kind, dtype=object)).tolist()
        self._ways = ways

    def number(self, x: int) -> int:
        """The number of placements of x outcomes."""
        return int(self._ways[x])

    def of(self, x: int) -> Ints:
        """All placements of x outcomes, as counts by task, [p, t], sorted by the shares of the kinds, then by splits.

        Kinds are added one after another: each placement so far is continued with every share for the next kind that
        leaves no more than the remaining kinds have gaps, and with every split of the share over the kind's tasks.
        """
        later_gaps = sum(len(tasks) * most for tasks, most in zip(self._members, self._most, strict=True))
        left = np.array([x])  # [p] outcomes that the placements so far have not placed
        shares: list[Ints] = []  # [p] outcomes in each kind so far
        splits: list[Ints] = []  # [p] a row of the kind's table
        tables: list[Ints] = []
        for tasks, most in zip(self._members, self._most, strict=True):
            kind_gaps = len(tasks) * most
            later_gaps -= kind_gaps
            low, high = np.maximum(0, left - later_gaps), np.minimum(left, kind_gaps)
            possible = range(int(low.min()), int(high.max()) + 1)
            parts = [_splits(share, len(tasks), most) for share in possible]
            starts = np.cumsum([0, *map(len, parts)])
            first = starts[low - possible.start]
            number = starts[high - possible.start + 1] - first
            way = np.repeat(np.arange(len(left)), number)
            split = np.arange(len(way)) + np.repeat(first - (np.cumsum(number) - number), number)
            share = np.repeat(np.array(possible), [*map(len, parts)])[split]
            shares = [*(earlier[way] for earlier in shares), share]
            splits = [*(earlier[way] for earlier in splits), split]
            tables.append(np.concatenate(parts))
            left = left[way] - share
        order = np.lexsort([*splits[::-1], *shares[::-1]])
        counts = np.zeros((len(order), self._size), dtype=np.int64)
        for tasks, table, split in zip(self._members, tables, splits, strict=True):
            counts[:, tasks] = table[split[order]]
        return counts


def _splits(x: int, tasks: int, most: int) -> Ints:
    """All ways to distribute x over interchangeable tasks, at most ``most`` each, [p, tasks]."""
    parts = list(_partitions(x, tasks, most))
    return np.array([(*part, *[0] * (tasks - len(part))) for part in parts], dtype=np.int64).reshape(-1, tasks)


def _partitions(x: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """All ways to write x as a falling sum of at most ``parts`` positive integers, none above ``largest``."""
    if x == 0:
        yield ()
        return
    if parts == 0:
        return
    for first in range(min(x, largest), 0, -1):
        for rest in _partitions(x - first, parts - 1, first):
            yield first, *rest


@lru_cache(maxsize=100_000)
def _shapes(x: int, parts: int, largest: int) -> int:
    """The number of `_partitions` of x."""
    if x == 0:
        return 1
    if x < 0 or parts == 0 or largest == 0:
        return 0
    # partitions with a part of the largest size, and without such a part
    return _shapes(x - largest, parts - 1, largest) + _shapes(x, parts, largest - 1)
