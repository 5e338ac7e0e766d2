"""Metrics of answers: the reward of a majority vote over k samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import comb

import numpy as np

from calipers.metrics import Metric, mean
from calipers.metrics.rewards import Ends, planned
from calipers.rollouts.column import Column, Floats, Groups, Ints, sum_by

MOST_COUNTED = 1000  # samples of a task whose binomial coefficients are floats; C(1000, 500) is 2.7e299
CELLS = 1 << 19  # numbers in one table of ways: 4 MB, which fit into a processor's cache


def maj_at_k(rewards: Column, answers: Column, by: Groups, k: int) -> Column:
    """Expected worth of the majority's answer among k samples drawn without replacement, per task, [T].

    The mean over all k-subsets of a task's samples. The answer with the most votes wins; if several
    tie, their mean counts. An answer is worth the mean reward of its samples. A sample without an
    answer does not vote; a subset without votes counts 0. A gap for a task with fewer than k samples.
    """
    n = by.count(rewards.given)
    task, votes, worth = ballots(rewards, answers, by)
    distinct = np.bincount(task, minlength=by.size)  # distinct answers of each task
    silent = n - by.count(rewards.given & answers.given)
    starts = np.cumsum(distinct) - distinct
    values, given = np.zeros(by.size), n >= k
    # large tasks are grouped by their number of samples as well, because it determines their table of chances
    large = np.where(n > MOST_COUNTED, n, 0)
    for width, size in sorted({*zip(distinct[given].tolist(), large[given].tolist(), strict=True)}):
        tasks = np.flatnonzero(given & (distinct == width) & (large == size))
        step = max(1, CELLS // (k + 1) ** 2)
        for block in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            indices = starts[block] + np.arange(width)[:, None]
            values[block] = expected(votes[indices], worth[indices], silent[block], k)
    return Column(values, given)


def ballots(rewards: Column, answers: Column, by: Groups) -> tuple[Ints, Ints, Floats]:
    """The task, the votes and the mean reward of each distinct answer of each task, in the order of the tasks."""
    voting = rewards.given & answers.given
    codes = int(answers.values.max(initial=0)) + 1
    pair, code = np.unique(by.code[voting] * codes + answers.values[voting].astype(np.int64), return_inverse=True)
    votes = np.bincount(code, minlength=len(pair))
    worth = sum_by(code, rewards.values[voting], len(pair)) / np.maximum(votes, 1)
    task = pair // codes
    order = np.lexsort((worth, votes, task))  # not by the codes of the answers, which depend on the order of rows
    return task[order], votes[order], worth[order]


def expected(votes: Ints, worth: Floats, silent: Ints, k: int) -> Floats:
    """The expected worth of the majority for tasks with m distinct answers each, [t], from votes and worth [m, t].

    ``silent`` is the number of samples without an answer, [t]. A dynamic program for each number c of votes of the
    winner: ``ways[s, d]`` counts the draws of d votes in which s answers have c votes and all others fewer, and
    ``gains[s, d]`` is the sum of the worth of those s answers over these draws. Answers are added one at a time; at the
    end, samples without an answer fill the draw up to k.
    """
    answers, tasks = votes.shape
    n = votes.sum(axis=0) + silent
    choose = _choices(int(n.max()), k)
    picks, silent_picks = choose[:, votes], choose[:, silent]
    total = np.zeros(tasks)
    for c in range(1, min(k, int(votes.max(initial=0))) + 1):
        ties = min(k // c, answers)
        ways = np.zeros((ties + 1, k + 1, tasks))
        gains = np.zeros_like(ways)
        reach = min(k, int(votes[0].max(initial=0)))  # the most votes of all answers so far; beyond it all ways are 0
        fewer = min(c, reach + 1)
        ways[0, :fewer] = picks[:fewer, 0]  # draws with fewer than c votes for the first answer, and no other votes
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
        mean_worth = (gains[1:] / np.arange(1, ties + 1)[:, None, None]).sum(axis=0)  # [k + 1, t]
        total += (mean_worth * silent_picks[::-1]).sum(axis=0)
    # an expectation lies between the smallest and the largest value, also after rounding
    low, high = worth.min(axis=0, initial=np.inf), worth.max(axis=0, initial=-np.inf)
    may_be_silent = silent >= k  # a draw without votes counts 0
    low, high = np.where(may_be_silent, np.minimum(low, 0.0), low), np.where(may_be_silent, np.maximum(high, 0.0), high)
    clipped: Floats = np.clip(total / choose[k, n], low, high)
    return clipped


def _choices(most: int, k: int) -> Floats:
    """The binomial coefficients C(a, x), [x from 0 to k, a from 0 to most], or numbers in proportion to them.

    For many samples they exceed the range of a float. Then they are weighted by p^x (1 - p)^(a - x) with
    p = k / most, which makes them binomial probabilities. The product of these weights is the same for all draws of
    k, so it cancels.
    """
    if most <= MOST_COUNTED:
        return np.array([[float(comb(a, x)) for a in range(most + 1)] for x in range(k + 1)])
    p = k / most
    table = np.zeros((k + 1, most + 1))
    table[0, 0] = 1.0
    for a in range(1, most + 1):
        table[:, a] = (1 - p) * table[:, a - 1]
        table[1:, a] += p * table[:-1, a - 1]
    return table


MOST_FILLINGS = 2_000  # ways for the missing samples of one task to vote; with more, its bounds are not exact
MOST_TRIED = 100_000  # the same for all tasks together, which takes some seconds


def majority_extremes(rewards: Column, answers: Column, by: Groups, ends: Ends, k: int) -> tuple[Column, Column]:
    """The smallest and the largest possible maj@k of each task, [T] each.

    A task is filled up to its planned number of samples, or to k if that is larger. Exact for tasks with few ways to
    vote. If there are too many, the bounds are wider: every draw that includes a missing sample may be worth either
    end of the range of rewards.
    """
    n = by.count(rewards.given)
    task, votes, worth = ballots(rewards, answers, by)
    distinct = np.bincount(task, minlength=by.size)  # distinct answers of each task
    starts = np.cumsum(distinct) - distinct
    silent = n - by.count(rewards.given & answers.given)
    missing_samples = np.maximum(planned(by), k) - n
    least, most = np.zeros(by.size), np.zeros(by.size)
    sizes = np.where(n + missing_samples > MOST_COUNTED, n + missing_samples, 0)
    shapes = {*zip(distinct.tolist(), missing_samples.tolist(), sizes.tolist(), strict=True)}
    tried = 0
    for ways, width, missing, size in sorted((_ways(*shape[:2]), *shape) for shape in shapes):  # cheapest first
        tasks = np.flatnonzero((distinct == width) & (missing_samples == missing) & (sizes == size))
        tried += ways * len(tasks) * (missing > 0)
        exact = missing == 0 or (ways <= MOST_FILLINGS and tried <= MOST_TRIED)
        fillings = _fillings(width, missing) if exact else None
        step = max(1, CELLS // ((k + 1) ** 2 * (1 if fillings is None else len(fillings[0]))))
        for block in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            indices = starts[block] + np.arange(width)[:, None]
            ballot = votes[indices], worth[indices], silent[block]
            least[block], most[block] = (
                _outer(*ballot, missing, ends, k) if fillings is None else _exact(*ballot, fillings, ends, k)
            )
    given = np.ones(by.size, dtype=bool)
    return Column(least, given), Column(most, given)


def _exact(
    votes: Ints, worth: Floats, silent: Ints, fillings: tuple[Ints, Ints, Ints], ends: Ends, k: int
) -> tuple[Floats, Floats]:
    """The extremes over all fillings, [t] each, for tasks with votes and worth [m, t] and silent samples [t]."""
    joining, new_votes, new_silent = fillings  # [F, m], [F, g], [F]
    size, tasks = len(new_silent), votes.shape[1]
    joined_votes = votes[:, :, None] + joining.T[:, None, :]  # [m, t, F]
    fresh = np.broadcast_to(new_votes.T[:, None, :], (new_votes.shape[1], tasks, size))
    all_votes = np.concatenate([joined_votes, fresh]).reshape(-1, tasks * size)
    all_silent = (silent[:, None] + new_silent).reshape(-1)
    expectations = []
    for end in ends:
        sums = votes[:, :, None] * worth[:, :, None] + joining.T[:, None, :] * end
        joined_worth = sums / np.maximum(joined_votes, 1)
        all_worth = np.concatenate([joined_worth, np.full(fresh.shape, end)]).reshape(-1, tasks * size)
        expectations.append(expected(all_votes, all_worth, all_silent, k).reshape(tasks, size))
    return expectations[0].min(axis=1), expectations[1].max(axis=1)


def _outer(votes: Ints, worth: Floats, silent: Ints, missing: int, ends: Ends, k: int) -> tuple[Floats, Floats]:
    """Bounds on the extremes over all fillings, [t] each, if there are too many fillings to try.

    A draw that includes a missing sample may be worth either end. In a draw without one, the winner is known, and its
    worth changes most if all missing samples join that answer.
    """
    n = votes.sum(axis=0) + silent
    # the chance that a draw includes no missing sample
    complete = np.array([comb(size, k) / comb(size + missing, k) for size in n.tolist()])
    known_and_end = []
    for end in ends:
        moved = (votes * worth + missing * end) / (votes + missing)
        known = np.zeros(len(n))
        if (enough := n >= k).any():
            known[enough] = expected(votes[:, enough], moved[:, enough], silent[enough], k)
        known_and_end.append((known, end))
    (low, least), (high, most) = known_and_end
    return complete * low + (1 - complete) * min(least, 0.0), complete * high + (1 - complete) * max(most, 0.0)


def _ways(answers: int, missing: int) -> int:
    """The number of ways in which missing samples can join known answers, have new answers, or not vote."""
    if missing > 20:  # certainly more than MOST_FILLINGS; the number of partitions alone is hundreds
        return MOST_FILLINGS + 1
    return sum(len(_partitions(new)) * comb(missing - new + answers, answers) for new in range(missing + 1))


@cache
def _fillings(answers: int, missing: int) -> tuple[Ints, Ints, Ints]:
    """All these ways: the added votes for each answer [F, m], for new answers [F, g], and samples without vote [F]."""
    rows = [
        (joining, (*parts, *[0] * (missing - len(parts))), missing - new - sum(joining))
        for new in range(missing + 1)
        for parts in _partitions(new)
        for joining in _distributions(answers, missing - new)
    ]
    joining_votes, new_votes, silent = zip(*rows, strict=True)
    size = len(rows)
    return (
        np.array(joining_votes, dtype=np.int64).reshape(size, answers),
        np.array(new_votes, dtype=np.int64).reshape(size, missing),
        np.array(silent, dtype=np.int64),
    )


def _distributions(answers: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every way to distribute at most ``most`` votes among the answers."""
    if not answers:
        yield ()
        return
    for first in range(most + 1):
        for others in _distributions(answers - 1, most - first):
            yield (first, *others)


@cache
def _partitions(number: int, largest: int | None = None) -> tuple[tuple[int, ...], ...]:
    """The partitions of a number: all ways to write it as a sum, the largest part first.

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
