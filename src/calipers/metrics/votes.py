"""Metrics of answers: what a majority vote over k samples is worth."""

from __future__ import annotations

from math import comb

import numpy as np

from calipers.metrics.aggregate import mean
from calipers.metrics.metric import Metric
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import sum_by

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
    found = np.zeros(tasks)
    for c in range(1, min(k, int(votes.max(initial=0))) + 1):
        ties = min(k // c, answers)
        ways = np.zeros((ties + 1, k + 1, tasks))
        gains = np.zeros_like(ways)
        ways[0, 0] = 1.0
        for answer in range(answers):
            more, won = picks[0, answer] * ways, picks[0, answer] * gains
            for x in range(1, c):
                more[:, x:] += picks[x, answer] * ways[:, :-x]
                won[1:, x:] += picks[x, answer] * gains[1:, :-x]
            level = picks[c, answer] * ways[:-1, :-c]
            more[1:, c:] += level
            won[1:, c:] += picks[c, answer] * gains[:-1, :-c] + worth[answer] * level
            ways, gains = more, won
        shared = (gains[1:] / np.arange(1, ties + 1)[:, None, None]).sum(axis=0)  # [k + 1, t]
        found += (shared * quiet[::-1]).sum(axis=0)
    # an expectation lies between its values, and its rounding must not leave them
    low, high = worth.min(axis=0, initial=np.inf), worth.max(axis=0, initial=-np.inf)
    nobody = silent >= k  # a draw without votes counts 0
    low, high = np.where(nobody, np.minimum(low, 0.0), low), np.where(nobody, np.maximum(high, 0.0), high)
    within: Floats = np.clip(found / choose[k, n], low, high)
    return within


def _choices(most: int, k: int) -> Floats:
    """The ways to choose x of a, or numbers in the same proportion within each draw, [x from 0 to k, a from 0 to most].

    For many samples they exceed what a float can hold. The chance of x in a trials that succeed with
    p = k / most stands for them then: p^x (1 - p)^(a - x) is the same for all draws of k.
    """
    if most <= MOST_COUNTED:
        return np.array([[float(comb(a, x)) for a in range(most + 1)] for x in range(k + 1)])
    chance = k / most
    found = np.zeros((k + 1, most + 1))
    found[0, 0] = 1.0
    for a in range(1, most + 1):
        found[:, a] = (1 - chance) * found[:, a - 1]
        found[1:, a] += chance * found[:-1, a - 1]
    return found


def _extremes(rewards: Column, answers: Column, by: Groups, ends: tuple[float, float], k: int) -> tuple[Column, Column]:
    from calipers.metrics.vote_extremes import majority_extremes  # it counts votes as this file does

    return majority_extremes(rewards, answers, by, ends, k)


MAJ_AT_K = Metric(
    "maj@{k}", maj_at_k, mean, reads=("reward", "answer"), params={"k": int}, of_rewards=True, extremes=_extremes
)
