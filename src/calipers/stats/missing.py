"""How far missing rollouts could change a difference, and how many of them change a verdict.

Nobody knows what a missing rollout would have been. Filled with the worst there is, they bound the difference
(Manski 1990); filled one after another, they say at how many the verdict ends: its tipping point (Yan, Lee and
Li 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from calipers.rollouts.column import Floats, Ints

MOST_MISSING: Final = 0.05
"""A share of missing rollouts above it is warned of, and a difference between two shares above it."""

MOST_PLACEMENTS: Final = 10_000
"""So many different placements of as many adverse outcomes are all tried; of more only the worst by value.

From FEW_TASKS on so many in all: there another placement hardly changes anything, and time is better spent.
"""

FEW_TASKS: Final = 20
"""Below it a placement that widens the spread may undo a verdict one outcome earlier than the worst by value."""

MOST_COUNTED: Final = 200
"""Above so many missing rollouts no placement but the worst by value is tried: hardly any number has few of them."""

MOST_CELLS: Final = 1_000_000
"""Of a table with a row for each number of adverse outcomes; larger ones are not made, and numbers are halved."""

MOST_EXACT: Final = 2_000
"""So many missing rollouts are shared out among tasks exactly, where outcomes of one task add to each other."""

Intact = Callable[[Ints], bool]
"""``intact(counts)``: whether the verdict holds with so many adverse outcomes in each task, [T]."""

_NOISE: Final = 1e-12  # of effects, which are differences of rounded values


@dataclass(frozen=True, slots=True)
class TippingPoint:
    """How many of the missing rollouts may be adverse with the verdict intact."""

    most: int  # for each number from 0 to this one it is; -1: not even with none of them
    missing: int
    exact: bool  # every placement was tried; else the worst by value at each number


@dataclass(frozen=True, slots=True)
class Fillings:
    """What each task adds to the difference, the more the better for the verdict, by how its gaps are filled."""

    own: Floats  # [J, t] of the run whose missing rollouts are counted, with j of them adverse
    other: Floats  # [t] of the other run
    shares: tuple[Floats, Floats]  # [t] of the samples that each task has in both, the run's own first
    gaps: Ints  # [t] missing rollouts of the run
    kinds: Ints | None = None  # [t] the same for tasks that no test can tell apart; None: their order matters

    @property
    def effects(self) -> Floats:
        """What j adverse outcomes in a task take from the difference, [J, t]."""
        return np.asarray(self.own[0] - self.own)

    @property
    def ties(self) -> Floats:
        """What each task adds to begin with, [t]: to lower the lowest widens the spread most."""
        return np.asarray(self.own[0] - self.other)

    def statistic(self, placements: Ints) -> Floats:
        """The floored t of each placement, counts of adverse outcomes [p, t]: how far it is from undoing a verdict."""
        values = self.own[placements, np.arange(len(self.gaps))]
        pulls = values - self.other
        rates = values.sum(axis=1, keepdims=True), self.other.sum()
        residuals = pulls - (self.shares[0] * rates[0] - self.shares[1] * rates[1])
        units = len(self.gaps)
        spread = units / max(units - 1, 1) * (residuals**2).sum(axis=1) + (np.abs(pulls).max(axis=1) / 2) ** 2
        return np.asarray(pulls.sum(axis=1) / np.sqrt(np.maximum(spread, np.finfo(float).tiny)))


def worst_placements(filling: Fillings) -> Callable[[int], Ints]:
    """For each number x of adverse outcomes the placement that moves the difference most, as counts by task, [t].

    Among equals the task that adds least goes first. Where a second outcome in a task never costs more than the
    first, as in means and pooled rates, the dearest single outcomes go first. Else (pass@k losing its passes, pass^k
    gaining them) outcomes are shared out by a knapsack over tasks; above MOST_EXACT of them by whole tasks, the
    dearest per outcome first.
    """
    effects, gaps, ties = filling.effects, filling.gaps, filling.ties
    steps = np.diff(effects, axis=0)  # [J - 1, t]
    within = np.arange(1, len(effects))[:, None] <= gaps
    if not ((np.diff(steps, axis=0) > _NOISE) & within[1:]).any():
        task = np.broadcast_to(np.arange(len(gaps)), steps.shape)[within]
        rank = np.broadcast_to(np.arange(len(steps))[:, None], steps.shape)[within]
        order = task[np.lexsort((rank, ties[task], -_rounded(steps[within])))]
    elif int(gaps.sum()) > MOST_EXACT:
        whole = effects[gaps, np.arange(len(gaps))] / np.maximum(gaps, 1)
        dearest = np.lexsort((ties, -_rounded(whole)))
        order = np.repeat(dearest, gaps[dearest])
    else:
        return _knapsack(effects, gaps, ties)
    return lambda x: np.bincount(order[:x], minlength=len(gaps))


def _knapsack(effects: Floats, gaps: Ints, ties: Floats) -> Callable[[int], Ints]:
    """The best of all ways to share x outcomes out among tasks, for every x at once: O(T G max g)."""
    size = int(gaps.sum())
    tasks = [t for t in np.argsort(-ties, kind="stable").tolist() if gaps[t]]  # at a tie the last one gets more
    best = np.full(size + 1, -np.inf)
    best[0] = 0.0
    chosen = np.zeros((len(tasks), size + 1), dtype=np.int64)
    for index, task in enumerate(tasks):
        better = best.copy()
        for count in range(1, int(gaps[task]) + 1):
            offered = best[: size + 1 - count] + effects[count, task]
            taken = offered >= better[count:] - _NOISE
            taken &= np.isfinite(offered)
            better[count:] = np.where(taken, offered, better[count:])
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
    """Effects that differ by rounding alone are equals."""
    return np.asarray(np.round(values, 12))


def tipping_point(filling: Fillings, intact: Intact) -> TippingPoint:
    """The largest x such that the verdict is intact for every number of adverse outcomes from 0 to x.

    At each number the worst placement by value is tried, and of all that differ, as far as they are few enough, the
    one with the smallest statistic.
    """
    size = int(filling.gaps.sum())
    placement = worst_placements(filling)
    most = _most(filling, placement, intact, size)
    if filling.kinds is None or size > MOST_COUNTED:
        return TippingPoint(most, size, size <= 1)
    every, exact, tried = _Placements(filling.gaps, filling.kinds), True, 0
    for x in range(1, min(most, size - 1) + 1):  # with none of them adverse, or all, there is one placement
        number = every.number(x)
        if number > MOST_PLACEMENTS or (len(filling.gaps) >= FEW_TASKS and tried + number > MOST_PLACEMENTS):
            exact = False
            continue
        tried += number
        some = every.of(x)
        if not intact(some[np.argmin(filling.statistic(some))]):
            return TippingPoint(x - 1, size, exact)
    return TippingPoint(most, size, exact)


def _most(filling: Fillings, placement: Callable[[int], Ints], intact: Intact, size: int) -> int:
    """The tipping point by the worst placements: by halving where their statistic falls with every outcome."""
    if (size + 1) * len(filling.gaps) <= MOST_CELLS:
        falling = filling.statistic(np.array([placement(x) for x in range(size + 1)]))
        if bool((np.diff(falling) > _NOISE * np.abs(falling[1:])).any()):
            return next((x for x in range(size + 1) if not intact(placement(x))), size + 1) - 1
    if intact(placement(size)):
        return size
    low, high = -1, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if intact(placement(middle)) else (low, middle)
    return low


class _Placements:
    """All ways to place x adverse outcomes that tell apart: tasks of a kind with as many gaps are alike."""

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
        """How many there are."""
        return int(self._ways[x])

    def of(self, x: int) -> Ints:
        """All of them, as counts by task, [p, t]: sorted by the shares of the kinds, then by how each is split up.

        Kind by kind: each of the ways so far goes on with every share that leaves no more than the others have room
        for, split up in every way.
        """
        rest = sum(len(tasks) * most for tasks, most in zip(self._members, self._most, strict=True))
        left = np.array([x])  # [p] outcomes that the ways so far have not placed
        shares: list[Ints] = []  # [p] of each kind so far
        splits: list[Ints] = []  # [p] a row of the kind's table
        tables: list[Ints] = []
        for tasks, most in zip(self._members, self._most, strict=True):
            room = len(tasks) * most
            rest -= room
            low, high = np.maximum(0, left - rest), np.minimum(left, room)
            given = range(int(low.min()), int(high.max()) + 1)
            parts = [_splits(share, len(tasks), most) for share in given]
            ends = np.cumsum([0, *map(len, parts)])
            first, number = ends[low - given.start], ends[high - given.start + 1] - ends[low - given.start]
            way = np.repeat(np.arange(len(left)), number)
            split = np.arange(len(way)) + np.repeat(first - (np.cumsum(number) - number), number)
            share = np.repeat(np.array(given), [*map(len, parts)])[split]
            shares, splits = [each[way] for each in shares] + [share], [each[way] for each in splits] + [split]
            tables.append(np.concatenate(parts))
            left = left[way] - share
        order = np.lexsort([*splits[::-1], *shares[::-1]])
        counts = np.zeros((len(order), self._size), dtype=np.int64)
        for tasks, table, split in zip(self._members, tables, splits, strict=True):
            counts[:, tasks] = table[split[order]]
        return counts


def _splits(x: int, tasks: int, most: int) -> Ints:
    """All partitions of x among tasks that are alike, at most so many each, [p, tasks]."""
    parts = list(_partitions(x, tasks, most))
    return np.array([(*part, *[0] * (tasks - len(part))) for part in parts], dtype=np.int64).reshape(-1, tasks)


def _partitions(x: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """All ways to write x as a sum of at most so many positive numbers, none above the largest, falling."""
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
    """How many partitions of x there are into at most so many parts, none above the largest."""
    if x == 0:
        return 1
    if x < 0 or parts == 0 or largest == 0:
        return 0
    # with a part of the largest size, or without one
    return _shapes(x - largest, parts - 1, largest) + _shapes(x, parts, largest - 1)
