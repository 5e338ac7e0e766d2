"""maj@k for every k at once: the draws that decide the vote among n samples hold those among fewer.

`calipers.metrics.votes.maj_at_k` asks for one k at a time; a curve by it would count the same draws n times.
"""

from __future__ import annotations

from math import comb

import numpy as np

from calipers.metrics.votes import ballots
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import total
from calipers.stats.curve import Curve, Ends, Point, span
from calipers.stats.interval import interval

MOST = 128
"""Samples per task up to which all draws are counted; their number grows with the third power."""

_CELLS = 1 << 19  # numbers in one table of ways: 4 MB, which a processor keeps at hand


def majority_curve(
    rewards: Column,
    answers: Column,
    by: Groups,
    clusters: Ints | None = None,
    *,
    limits: Ends | None,
    confidence: float = 0.95,
) -> Curve:
    """The expected worth of the majority's answer among k samples for every k, from rewards and answers, [R] each.

    The same numbers as `maj_at_k`, over the tasks with k samples or more. No points without samples.
    """
    n = by.count(rewards.given)
    worth = worth_of_votes(rewards, answers, by)
    points = []
    for k in span(worth.shape[1]):
        there = n >= k
        kept = worth[there, k - 1]
        units = None if clusters is None else np.unique(clusters[there], return_inverse=True)[1]
        found = interval(kept, np.ones(len(kept)), confidence, limits, units)
        points.append(
            Point(k, float(total(kept)) / len(kept), found.stderr, found.ends, int(there.sum()), why=found.why)
        )
    return Curve("maj@k", tuple(points))


def worth_of_votes(rewards: Column, answers: Column, by: Groups) -> Floats:
    """maj@k of each task for every k up to the most samples, [T, most]; 0 where a task has fewer than k."""
    n = by.count(rewards.given)
    table = np.zeros((by.size, int(n.max(initial=0))))
    task, votes, worth = ballots(rewards, answers, by)
    kinds = np.bincount(task, minlength=by.size)  # distinct answers of each task
    starts = np.cumsum(kinds) - kinds
    silent = n - by.count(rewards.given & answers.given)
    alike = kinds * (table.shape[1] + 1) + n  # tasks with as many answers and samples are counted together
    for pair in np.unique(alike[n > 0]).tolist():
        tasks = np.flatnonzero((alike == pair) & (n > 0))
        samples = int(n[tasks[0]])
        step = max(1, _CELLS // (samples + 1) ** 2)
        for some in (tasks[at : at + step] for at in range(0, len(tasks), step)):
            places = starts[some] + np.arange(int(kinds[some[0]]))[:, None]
            table[some, :samples] = _expected(votes[places], worth[places], silent[some], samples)
    return table


def _expected(votes: Ints, worth: Floats, silent: Ints, n: int) -> Floats:
    """The expectations of tasks with n samples, [t, n], from votes and worth of their answers, [m, t].

    Level by level: for a winner with c votes, ``ways[s, d]`` counts the draws of d votes in which s
    answers have c and the others fewer, ``gains`` adds up what those s are worth. For each k the
    silent fill a draw of d votes up to k.
    """
    tasks = votes.shape[1]
    choose = np.array([[float(comb(a, x)) for a in range(n + 1)] for x in range(n + 1)])  # [x, a]
    picks, quiet = choose[:, votes], choose[:, silent]
    found = np.zeros((n + 1, tasks))
    highest = votes.max(axis=1, initial=0).tolist()
    for c in range(1, max(highest, default=0) + 1):
        ties = min(n // c, sum(most >= c for most in highest))
        ways = np.zeros((ties + 1, n + 1, tasks))
        gains = np.zeros_like(ways)
        ways[0, 0] = 1.0
        for answer, most in enumerate(highest):
            more, won = ways.copy(), gains.copy()
            for x in range(1, min(c, most + 1)):
                more[:, x:] += picks[x, answer] * ways[:, :-x]
                won[1:, x:] += picks[x, answer] * gains[1:, :-x]
            if most >= c:
                level = picks[c, answer] * ways[:-1, :-c]
                more[1:, c:] += level
                won[1:, c:] += picks[c, answer] * gains[:-1, :-c] + worth[answer] * level
            ways, gains = more, won
        shared = (gains[1:] / np.arange(1, ties + 1)[:, None, None]).sum(axis=0)  # [d, t]
        for d in range(1, n + 1):
            found[d:] += shared[d] * quiet[: n + 1 - d]
    exact: Floats = (found[1:] / choose[1:, n][:, None]).T
    return exact
