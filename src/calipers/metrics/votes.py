"""Metrics of answers: what a majority vote over k samples is worth."""

from __future__ import annotations

from math import comb

import numpy as np

from calipers.metrics.aggregate import mean
from calipers.metrics.metric import Metric
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import sum_by

_CELLS = 1 << 19  # numbers in one table of ways: 4 MB, which a processor keeps at hand


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
    for width in np.unique(of_task[given]).tolist():
        tasks = np.flatnonzero(given & (of_task == width))
        step = max(1, _CELLS // (k + 1) ** 2)
        for some in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            places = starts[some] + np.arange(width)[:, None]
            values[some] = _expected(votes[places], worth[places], silent[some], k)
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


def _expected(votes: Ints, worth: Floats, silent: Ints, k: int) -> Floats:
    """The expectation for tasks with as many distinct answers, [t], from votes and worth [m, t].

    Level by level: for a winner with c votes, ``ways[s, d]`` counts the draws of d votes in which s
    answers have c and the others fewer, ``gains`` adds up what those s are worth. Answers join one
    at a time; at the end the silent fill the draw up to k.
    """
    answers, tasks = votes.shape
    n = votes.sum(axis=0) + silent
    choose = np.array([[float(comb(a, x)) for a in range(int(n.max()) + 1)] for x in range(k + 1)])  # [k + 1, n]
    picks, quiet = choose[:, votes], choose[:, silent]
    found = np.zeros(tasks)
    for c in range(1, min(k, int(votes.max(initial=0))) + 1):
        ties = min(k // c, answers)
        ways = np.zeros((ties + 1, k + 1, tasks))
        gains = np.zeros_like(ways)
        ways[0, 0] = 1.0
        for answer in range(answers):
            more, won = ways.copy(), gains.copy()
            for x in range(1, c):
                more[:, x:] += picks[x, answer] * ways[:, :-x]
                won[1:, x:] += picks[x, answer] * gains[1:, :-x]
            level = picks[c, answer] * ways[:-1, :-c]
            more[1:, c:] += level
            won[1:, c:] += picks[c, answer] * gains[:-1, :-c] + worth[answer] * level
            ways, gains = more, won
        shared = (gains[1:] / np.arange(1, ties + 1)[:, None, None]).sum(axis=0)  # [k + 1, t]
        found += (shared * quiet[::-1]).sum(axis=0)
    exact: Floats = found / choose[k, n]
    return exact


MAJ_AT_K = Metric("maj@{k}", maj_at_k, mean, reads=("reward", "answer"), params={"k": int}, of_rewards=True)
