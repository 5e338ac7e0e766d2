"""Extremes of a majority vote: what maj@k can be, whatever the samples that are not there answer and earn.

The worth of a vote is a sum over answers of the chance to win times the mean reward of the answer's samples,
so with the votes settled no reward between the ends of the range reaches further than the ends. Which votes do
is found by trying all: each missing sample joins an answer, brings a new one, or does not vote.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import comb

import numpy as np

from calipers.metrics.extremes import Ends, planned
from calipers.metrics.votes import CELLS, MOST_COUNTED, ballots, expected
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups

MOST_FILLINGS = 2_000  # ways to vote that are tried for one task
MOST_TRIED = 100_000  # and for all tasks together, some seconds; above either the bounds are wider than they need be


def majority_extremes(rewards: Column, answers: Column, by: Groups, ends: Ends, k: int) -> tuple[Column, Column]:
    """The least and the most that maj@k can be for each task, [T] each.

    A task is filled up to its plan, or to k samples where that is more. Exact for tasks with few ways to
    vote; where there are too many to try, a draw with a missing sample in it may be worth either end.
    """
    n = by.count(rewards.given)
    task, votes, worth = ballots(rewards, answers, by)
    kinds = np.bincount(task, minlength=by.size)  # distinct answers of each task
    starts = np.cumsum(kinds) - kinds
    silent = n - by.count(rewards.given & answers.given)
    gaps = np.maximum(planned(by), k) - n
    least, most = np.zeros(by.size), np.zeros(by.size)
    sizes = np.where(n + gaps > MOST_COUNTED, n + gaps, 0)
    shapes = {*zip(kinds.tolist(), gaps.tolist(), sizes.tolist(), strict=True)}
    tried = 0
    for ways, width, missing, size in sorted((_ways(*shape[:2]), *shape) for shape in shapes):  # the cheapest first
        tasks = np.flatnonzero((kinds == width) & (gaps == missing) & (sizes == size))
        tried += ways * len(tasks) * (missing > 0)
        exact = missing == 0 or (ways <= MOST_FILLINGS and tried <= MOST_TRIED)
        fillings = _fillings(width, missing) if exact else None
        step = max(1, CELLS // ((k + 1) ** 2 * (1 if fillings is None else len(fillings[0]))))
        for some in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            places = starts[some] + np.arange(width)[:, None]
            held = votes[places], worth[places], silent[some]
            least[some], most[some] = (
                _outer(*held, missing, ends, k) if fillings is None else _exact(*held, fillings, ends, k)
            )
    given = np.ones(by.size, dtype=bool)
    return Column(least, given), Column(most, given)


def _exact(
    votes: Ints, worth: Floats, silent: Ints, fillings: tuple[Ints, Ints, Ints], ends: Ends, k: int
) -> tuple[Floats, Floats]:
    """The extremes over all fillings, [t] each, of tasks with votes and worth [m, t]."""
    joined, brought, quiet = fillings  # [F, m], [F, g], [F]
    size, tasks = len(quiet), votes.shape[1]
    more = votes[:, :, None] + joined.T[:, None, :]  # [m, t, F]
    fresh = np.broadcast_to(brought.T[:, None, :], (brought.shape[1], tasks, size))
    every = np.concatenate([more, fresh]).reshape(-1, tasks * size)
    none = (silent[:, None] + quiet).reshape(-1)
    found = []
    for end in ends:
        mixed = (votes[:, :, None] * worth[:, :, None] + joined.T[:, None, :] * end) / np.maximum(more, 1)
        values = np.concatenate([mixed, np.full(fresh.shape, end)]).reshape(-1, tasks * size)
        found.append(expected(every, values, none, k).reshape(tasks, size))
    return found[0].min(axis=1), found[1].max(axis=1)


def _outer(votes: Ints, worth: Floats, silent: Ints, missing: int, ends: Ends, k: int) -> tuple[Floats, Floats]:
    """Ends that no filling leaves, [t] each: a draw with a missing sample in it may be worth anything.

    In a draw without one the winner is known, and its worth is at most moved by all missing samples at once.
    """
    n = votes.sum(axis=0) + silent
    seen = np.array([comb(size, k) / comb(size + missing, k) for size in n.tolist()])
    found = []
    for end in ends:
        moved = (votes * worth + missing * end) / (votes + missing)
        known = np.zeros(len(n))
        if (enough := n >= k).any():
            known[enough] = expected(votes[:, enough], moved[:, enough], silent[enough], k)
        found.append((known, end))
    (low, least), (high, most) = found
    return seen * low + (1 - seen) * min(least, 0.0), seen * high + (1 - seen) * max(most, 0.0)


def _ways(answers: int, missing: int) -> int:
    """How many ways there are for so many samples to join answers, bring new ones, or not to vote."""
    if missing > 20:  # more than any limit; the partitions alone are hundreds
        return MOST_FILLINGS + 1
    return sum(len(_partitions(new)) * comb(missing - new + answers, answers) for new in range(missing + 1))


@cache
def _fillings(answers: int, missing: int) -> tuple[Ints, Ints, Ints]:
    """All of them: votes for each answer [F, m], for new answers [F, g], and for none [F]."""
    rows = [
        (joined, (*parts, *[0] * (missing - len(parts))), missing - new - sum(joined))
        for new in range(missing + 1)
        for parts in _partitions(new)
        for joined in _shared(answers, missing - new)
    ]
    joined, brought, quiet = zip(*rows, strict=True)
    size = len(rows)
    return (
        np.array(joined, dtype=np.int64).reshape(size, answers),
        np.array(brought, dtype=np.int64).reshape(size, missing),
        np.array(quiet, dtype=np.int64),
    )


def _shared(answers: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every way for at most so many votes to join the answers."""
    if not answers:
        yield ()
        return
    for first in range(most + 1):
        for rest in _shared(answers - 1, most - first):
            yield (first, *rest)


@cache
def _partitions(number: int, largest: int | None = None) -> tuple[tuple[int, ...], ...]:
    """The ways to write a number as a sum, the largest part first.

    >>> _partitions(3)
    ((3,), (2, 1), (1, 1, 1))
    """
    if number == 0:
        return ((),)
    top = number if largest is None else min(number, largest)
    return tuple((part, *rest) for part in range(top, 0, -1) for rest in _partitions(number - part, part))
