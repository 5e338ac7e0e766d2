"""Tests for an audit: exact under exchangeability of a task's samples, so that they ask nothing of the rewards' law."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammainc, ndtr

from calipers.rollouts.column import Bools, Floats

LAST_IS_PASS, START_FOLLOWS_OUTCOME = "last_is_pass", "start_follows_outcome"
COPIED_RECORDS, SAME_TEXT, TWIN_TASKS = "copied_records", "same_text", "twin_tasks"
LEVEL = 0.01  # of each test
EQUAL = 1.5 / 21.5
"""Share of equal durations among those that differ by at most 10 ms, to the millisecond, with half as much again: the
21 differences from -10 to 10 ms are about equally likely where durations spread over more than that."""

PERMUTATIONS, NEAR = 10_000, 0.02
"""Below this p value the normal tail is too short, and permutations are counted."""


def last_is_pass(passes: Sequence[Bools]) -> tuple[int, float, float]:
    """How many mixed tasks end with a pass, how many are expected, and the chance of as many.

    ``passes`` are the passes of each task in planned order. Given c passes of n, the last sample is one with chance
    c/n; the number of such tasks is Poisson-binomial. Tasks that always or never pass say nothing.

    >>> round(last_is_pass([np.array([*map(int, text)]) == 1 for text in "001 01 100 0001 11".split()])[2], 6)
    0.125
    """
    mixed = [task for task in passes if 0 < task.sum() < len(task)]
    chances = [task.mean() for task in mixed]
    seen = sum(bool(task[-1]) for task in mixed)
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    return seen, float(np.sum(chances)), min(float(law[seen:].sum()), 1.0)


def start_follows_outcome(
    starts: Sequence[Floats], rewards: Sequence[Floats], rng: np.random.Generator
) -> tuple[float, float]:
    """Whether samples of a task that start late have other rewards: the statistic over its deviation, and p.

    T = sum over tasks of (rank of the start - mean rank)(reward - mean); its variance under exchangeability is
    sum rank'^2 sum reward'^2 / (n - 1). Two-sided. Near the level, permutations within tasks are counted instead.
    """
    ranks, worths = [], []
    power = math.frexp(max((float(np.abs(reward).max(initial=0.0)) for reward in rewards), default=0.0))[1]
    for start, reward in zip(
        starts, (np.ldexp(reward, -power) for reward in rewards), strict=True
    ):  # squares stay finite
        if len(start) > 1 and np.ptp(reward) > 0 and np.ptp(start) > 0:
            rank = _ranks(start)
            ranks.append(rank - rank.mean())
            worths.append(reward - reward.mean())
    variance = sum(float(a @ a) * float(b @ b) / (len(a) - 1) for a, b in zip(ranks, worths, strict=True))
    if not variance:
        return 0.0, 1.0
    seen = sum(float(a @ b) for a, b in zip(ranks, worths, strict=True))
    z = seen / variance**0.5
    p = float(2 * ndtr(-abs(z)))
    if p >= NEAR:
        return z, p
    totals = np.zeros(PERMUTATIONS)
    for rank, worth in zip(ranks, worths, strict=True):
        totals += rng.permuted(np.tile(rank, (PERMUTATIONS, 1)), axis=1) @ worth
    beyond = int(np.count_nonzero(np.abs(totals) >= abs(seen) * (1 - 1e-12)))
    return z, (1 + beyond) / (1 + PERMUTATIONS)


def _ranks(values: Floats) -> Floats:
    """The place of each value among all of them, from 1; equal ones share the mean of their places.

    >>> _ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    ordered = np.sort(values)
    return (ordered.searchsorted(values, "left") + ordered.searchsorted(values, "right") + 1) / 2


def copied_records(equal: int, near: int) -> float:
    """The chance of so many equal durations among pairs with the same text whose durations differ by at most 10 ms.

    >>> [round(copied_records(*pair), 6) for pair in ((6, 20), (2, 1), (1, 0))]
    [0.007869, 0.013923, 0.069767]
    """
    from scipy.stats import binom

    return float(binom.sf(equal - 1, equal + near, EQUAL))


def durations_spread(close: int, far: int) -> bool:
    """Whether durations may spread over more than 10 ms: no more pairs differ by 1 to 5 ms than by 6 to 10 ms.

    Else equal durations are common without any copy, as of a server that takes as long for every answer.

    >>> durations_spread(12, 8), durations_spread(40, 10)
    (True, False)
    """
    return twin_tasks(close, far) >= LEVEL


def repeats(tasks: Sequence[Sequence[tuple[str, float]]]) -> tuple[int, float]:
    """How many completions repeat an earlier one of their task, and how many are expected.

    ``tasks`` are the texts of each task in planned order with their probabilities. Given the earlier texts, the next
    one is among them with the sum of their probabilities; the number of repeats is a sum of such chances. Pairs of
    equal texts are no such sum: a text that is drawn three times makes three of them.

    >>> repeats([[("a", 0.5), ("a", 0.5), ("b", 0.25), ("a", 0.5)]])
    (2, 1.75)
    """
    seen, expected = 0, 0.0
    for task in tasks:
        known: dict[str, float] = {}
        for text, chance in task:
            expected += min(sum(known.values()), 1.0)
            seen += text in known
            known[text] = chance
    return seen, expected


def same_text(seen: int, expected: float) -> float:
    """The chance of so many repeats, where so many are expected from the log-probabilities of the texts.

    >>> round(same_text(3, 0.5), 6)
    0.014388
    """
    return 1.0 if seen == 0 else float(gammainc(seen, expected)) if expected > 0 else 0.0


def twin_tasks(better: int, worse: int) -> float:
    """The chance that at least so many originals are solved and their perturbed twins are not, if both are as hard.

    >>> twin_tasks(9, 1)
    0.0107421875
    """
    from scipy.stats import binom

    return float(binom.sf(better - 1, better + worse, 0.5))
