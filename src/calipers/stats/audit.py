"""Tests for an audit of a run, exact if a task's samples are exchangeable, whatever the distribution of rewards."""

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
"""Assumed share of equal durations among pairs that differ by at most 10 ms: the 21 differences from -10 to 10 ms, in
whole milliseconds, are about equally likely if durations spread over more than that, and half as many again are
allowed."""

PERMUTATIONS = 10_000
NEAR = 0.02
"""The p value below which permutations replace the normal approximation, whose tail is too short."""


def last_is_pass(passes: Sequence[Bools]) -> tuple[int, float, float]:
    """The number of mixed tasks that end with a pass, the expected number, and the chance of at least that many.

    ``passes`` are the passes of each task in planned order. Given c passes of n, the last sample is a pass with chance
    c/n; the number of such tasks is Poisson-binomial. Tasks that always or never pass carry no information.

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
    """Test whether samples of a task that start later have other rewards: the z statistic, and the two-sided p.

    T = sum over tasks of (rank of the start - mean rank)(reward - mean); its variance under exchangeability is
    sum rank'^2 sum reward'^2 / (n - 1), with centred ranks and rewards, and z is T over its deviation. If the normal p
    is below 0.02, p comes from permutations within tasks instead. z = 0 and p = 1 without variance.
    """
    centred_ranks, centred_rewards = [], []
    power = math.frexp(max((float(np.abs(reward).max(initial=0.0)) for reward in rewards), default=0.0))[1]
    scaled = (np.ldexp(reward, -power) for reward in rewards)  # so that squares stay finite
    for start, reward in zip(starts, scaled, strict=True):
        if len(start) > 1 and np.ptp(reward) > 0 and np.ptp(start) > 0:
            rank = _ranks(start)
            centred_ranks.append(rank - rank.mean())
            centred_rewards.append(reward - reward.mean())
    tasks = list(zip(centred_ranks, centred_rewards, strict=True))
    variance = sum(float(rank @ rank) * float(reward @ reward) / (len(rank) - 1) for rank, reward in tasks)
    if not variance:
        return 0.0, 1.0
    statistic = sum(float(rank @ reward) for rank, reward in tasks)
    z = statistic / variance**0.5
    p = float(2 * ndtr(-abs(z)))
    if p >= NEAR:
        return z, p
    totals = np.zeros(PERMUTATIONS)
    for rank, reward in tasks:
        totals += rng.permuted(np.tile(rank, (PERMUTATIONS, 1)), axis=1) @ reward
    beyond = int(np.count_nonzero(np.abs(totals) >= abs(statistic) * (1 - 1e-12)))
    return z, (1 + beyond) / (1 + PERMUTATIONS)


def _ranks(values: Floats) -> Floats:
    """The rank of each value, from 1; equal values share their mean rank.

    >>> _ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    ordered = np.sort(values)
    return (ordered.searchsorted(values, "left") + ordered.searchsorted(values, "right") + 1) / 2


def copied_records(equal: int, near: int) -> float:
    """The chance of ``equal`` or more equal durations among pairs of equal texts that differ by at most 10 ms.

    ``near`` is the number of pairs whose durations differ by 1 to 10 ms.

    >>> [round(copied_records(*pair), 6) for pair in ((6, 20), (2, 1), (1, 0))]
    [0.007869, 0.013923, 0.069767]
    """
    from scipy.stats import binom

    return float(binom.sf(equal - 1, equal + near, EQUAL))


def durations_spread(close: int, far: int) -> bool:
    """Whether durations may spread over more than 10 ms.

    They do not if significantly more pairs differ by 1 to 5 ms (``close``) than by 6 to 10 ms (``far``). Equal
    durations are then common without any copy, as with a server that takes equally long for every answer.

    >>> durations_spread(12, 8), durations_spread(40, 10)
    (True, False)
    """
    return twin_tasks(close, far) >= LEVEL


def repeats(tasks: Sequence[Sequence[tuple[str, float]]]) -> tuple[int, float]:
    """The number of completions that repeat an earlier completion of their task, and the expected number.

    ``tasks`` are the texts of each task in planned order with their probabilities. Given the earlier texts, the chance
    that the next text repeats one of them is the sum of their probabilities, and the expected number of repeats is the
    sum of these chances. Pairs of equal texts have no such expectation: a text drawn three times makes three pairs.

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
    """The Poisson chance of ``seen`` or more repeats if ``expected`` follow from the log-probabilities of the texts.

    >>> round(same_text(3, 0.5), 6)
    0.014388
    """
    return 1.0 if seen == 0 else float(gammainc(seen, expected)) if expected > 0 else 0.0


def twin_tasks(better: int, worse: int) -> float:
    """The one-sided sign test of twin tasks: the chance of ``better`` or more if original and twin are equally hard.

    ``better`` counts the originals that are solved while their perturbed twins are not, ``worse`` the reverse.

    >>> twin_tasks(9, 1)
    0.0107421875
    """
    from scipy.stats import binom

    return float(binom.sf(better - 1, better + worse, 0.5))
