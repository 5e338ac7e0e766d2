"""Metrics of answers: the reward of a majority vote over k samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import comb

import numpy as np

from calipers.metrics import Metric, mean
from calipers.metrics.rewards import Ends, planned
from calipers.rollouts.column import Column, Floats, Groups, Ints, sum_by

MOST_COUNTED = 1000  # samples of a task; C(1000, 500) is 2.7e299
CELLS = 1 << 19  # numbers in one table of ways: 4 MB, which a processor keeps at hand


def maj_at_k(rewards: Column, answers: Column, by: Groups, k: int) -> Column:
    """Expected worth of the majority's answer among k samples drawn without replacement, per task, [T].

    The mean over all k-subsets of a task's samples. The answer with the most votes wins; several
    share. An answer is worth the mean reward of its samples; a sample without an answer does not
    vote; a subset without votes counts 0. A gap where a task has fewer than k samples.
    """
    n = by.count(rewards.given)
    task, votes, worth = ballots(rewards, answers, by)
    of_task = np.bincount(task, minlength=by.size)  # distinct answers of each task
    silent = n - by.count(rewards.given & answers.given)
    starts = np.cumsum(of_task) - of_task
    values, given = np.zeros(by.size), n >= k
    large = np.where(n > MOST_COUNTED, n, 0)  # these by their number of samples: one table of chances serves them
    for width, size in sorted({*zip(of_task[given].tolist(), large[given].tolist(), strict=True)}):
        tasks = np.flatnonzero(given & (of_task == width) & (large == size))
        step = max(1, CELLS // (k + 1) ** 2)
        for some in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            places = starts[some] + np.arange(width)[:, None]
            values[some] = expected(votes[places], worth[places], silent[some], k)
    return Column(values, given)


def ballots(rewards: Column, answers: Column, by: Groups) -> tuple[Ints, Ints, Floats]:
    """(task, votes, mean reward) of each distinct answer of each task, task by task."""
    voting = rewards.given & answers.given
    kinds = int(answers.values.max(initial=0)) + 1
    pair, code = np.unique(by.code[voting] * kinds + answers.values[voting].astype(np.int64), return_inverse=True)
    votes = np.bincount(code, minlength=len(pair))
    worth = sum_by(code, rewards.values[voting], len(pair)) / np.maximum(votes, 1)
    task = pair // kinds
    order = np.lexsort((worth, votes, task))  # not by the numbers of the answers, which the row order gave
    return task[order], votes[order], worth[order]


def expected(votes: Ints, worth: Floats, silent: Ints, k: int) -> Floats:
    """The expectation for tasks with as many distinct answers, [t], from votes and worth [m, t].

    Level by level: for a winner with c votes, ``ways[s, d]`` counts the draws of d votes in which s
    answers have c and the others fewer, ``gains`` adds up what those s are worth. Answers join one
    at a time; at the end the silent fill the draw up to k.
    """
    answers, tasks = votes.shape
    n = votes.sum(axis=0) + silent
    choose = _choices(int(n.max()), k)
    picks, quiet = choose[:, votes], choose[:, silent]
    wins = np.zeros(tasks)
    for c in range(1, min(k, int(votes.max(initial=0))) + 1):
        ties = min(k // c, answers)
        ways = np.zeros((ties + 1, k + 1, tasks))
        gains = np.zeros_like(ways)
        reach = min(k, int(votes[0].max(initial=0)))  # the most votes of the answers so far; beyond it all ways are 0
        fewer = min(c, reach + 1)
        ways[0, :fewer] = picks[:fewer, 0]  # of the first answer: a draw has so many of its votes, and no others yet
        ways[1, c] = picks[c, 0]
        gains[1, c] = worth[0] * picks[c, 0]
        for answer in range(1, answers):
            more, won = picks[0, answer] * ways, picks[0, answer] * gains
            most = min(c, int(votes[answer].max(initial=0)))
            for x in range(1, min(c, most + 1)):
                end = min(reach, k - x) + 1
                more[:, x : x + end] += picks[x, answer] * ways[:, :end]
                won[1:, x : x + end] += picks[x, answer] * gains[1:, :end]
            reach = min(k, reach + most)
            level = picks[c, answer] * ways[:-1, :-c]
            more[1:, c:] += level
            won[1:, c:] += picks[c, answer] * gains[:-1, :-c] + worth[answer] * level
            ways, gains = more, won
        shared = (gains[1:] / np.arange(1, ties + 1)[:, None, None]).sum(axis=0)  # [k + 1, t]
        wins += (shared * quiet[::-1]).sum(axis=0)
    # an expectation lies between its values, and its rounding must not leave them
    low, high = worth.min(axis=0, initial=np.inf), worth.max(axis=0, initial=-np.inf)
    nobody = silent >= k  # a draw without votes counts 0
    low, high = np.where(nobody, np.minimum(low, 0.0), low), np.where(nobody, np.maximum(high, 0.0), high)
    within: Floats = np.clip(wins / choose[k, n], low, high)
    return within


def _choices(most: int, k: int) -> Floats:
    """The ways to choose x of a, or numbers in the same proportion within each draw, [x from 0 to k, a from 0 to most].

    For many samples they exceed what a float can hold. The chance of x in a trials that succeed with
    p = k / most stands for them then: p^x (1 - p)^(a - x) is the same for all draws of k.
    """
    if most <= MOST_COUNTED:
        return np.array([[float(comb(a, x)) for a in range(most + 1)] for x in range(k + 1)])
    chance = k / most
    chances = np.zeros((k + 1, most + 1))
    chances[0, 0] = 1.0
    for a in range(1, most + 1):
        chances[:, a] = (1 - chance) * chances[:, a - 1]
        chances[1:, a] += chance * chances[:-1, a - 1]
    return chances


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
            ballot = votes[places], worth[places], silent[some]
            least[some], most[some] = (
                _outer(*ballot, missing, ends, k) if fillings is None else _exact(*ballot, fillings, ends, k)
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
    expectations = []
    for end in ends:
        mixed = (votes[:, :, None] * worth[:, :, None] + joined.T[:, None, :] * end) / np.maximum(more, 1)
        values = np.concatenate([mixed, np.full(fresh.shape, end)]).reshape(-1, tasks * size)
        expectations.append(expected(every, values, none, k).reshape(tasks, size))
    return expectations[0].min(axis=1), expectations[1].max(axis=1)


def _outer(votes: Ints, worth: Floats, silent: Ints, missing: int, ends: Ends, k: int) -> tuple[Floats, Floats]:
    """Ends that no filling leaves, [t] each: a draw with a missing sample in it may be worth anything.

    In a draw without one the winner is known, and its worth is at most moved by all missing samples at once.
    """
    n = votes.sum(axis=0) + silent
    seen = np.array([comb(size, k) / comb(size + missing, k) for size in n.tolist()])
    known_and_end = []
    for end in ends:
        moved = (votes * worth + missing * end) / (votes + missing)
        known = np.zeros(len(n))
        if (enough := n >= k).any():
            known[enough] = expected(votes[:, enough], moved[:, enough], silent[enough], k)
        known_and_end.append((known, end))
    (low, least), (high, most) = known_and_end
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


MAJ_AT_K = Metric(
    "maj@{k}", maj_at_k, mean, ("reward", "answer"), {"k": int}, of_rewards=True, extremes=majority_extremes
)
