"""Harbor's metrics: four statistics of all trials of an eval, and a ladder of pass@k.

A trial counts as its map of rewards, or as None where it has none. Every trial is one element, so a mean is
over trials, not over tasks; and whatever is missing counts 0, also for the extremes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from typing import Final

from calipers.errors import InputError, UnknownName

Number = int | float
Rewards = Mapping[str, Number]


def summed(values: Sequence[Number]) -> Number:
    """The sum: of integers an integer, of others the true sum rounded once.

    Python's own ``sum`` does nearly that since 3.12, which Harbor needs; here it is so on every Python.

    >>> summed([0.1] * 10), summed([1, 2])
    (1.0, 3)
    """
    if all(isinstance(value, int) for value in values):
        return sum(values)
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond what a float holds, or infinities of both signs
        return sum(float(value) for value in values)


def _mean(values: Sequence[Number]) -> Number:
    return summed(values) / len(values)


BUILT_IN: Final[Mapping[str, Callable[[Sequence[Number]], Number]]] = {
    "mean": _mean,
    "sum": summed,
    "min": min,
    "max": max,
}


def metric(name: str, trials: Sequence[Rewards | None]) -> dict[str, Number]:
    """One of Harbor's built-in metrics over the trials of an eval.

    With at most one reward name among all of them the answer is called after the metric, and the
    reward's own name is lost; with more there is an answer for each reward, in the order of their names.
    Over no trials only a sum exists: InputError for the others.

    >>> metric("mean", [{"reward": 1}, None]), metric("max", [{"b": 2, "a": -1}, {"a": -2}])
    ({'mean': 0.5}, {'a': -1, 'b': 2})
    """
    if name not in BUILT_IN:
        raise UnknownName.of("Harbor metric", name, BUILT_IN)
    if not trials and name != "sum":
        raise InputError(f"{name} of no trials; expected at least one")
    of = BUILT_IN[name]
    keys = reward_keys(trials)
    if len(keys) < 2:
        return {name: of([next(iter(trial.values()), 0) if trial else 0 for trial in trials])}
    return {key: of([(trial or {}).get(key, 0) for trial in trials]) for key in keys}


def reward_keys(trials: Iterable[Rewards | None]) -> list[str]:
    """The names of all rewards, sorted by code point."""
    return sorted({key for trial in trials if trial for key in trial})


def eligible_ks(most: int) -> list[int]:
    """The k that Harbor reports, up to the fewest attempts any task had: powers of two from 2, and multiples of 5.

    >>> eligible_ks(10)
    [2, 4, 5, 8, 10]
    """
    powers = {2**power for power in range(1, max(most, 1).bit_length())}
    return sorted(k for k in powers | set(range(5, most + 1, 5)) if k <= most)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of a task's n attempts, c of them passes, include a pass; 1 where fewer than k fail.

    >>> pass_at_k(5, 2, 2)
    0.7
    """
    if n - c < k:
        return 1.0
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def pass_ladder(tasks: Iterable[Sequence[Rewards | None]]) -> dict[int, float]:
    """pass@k of an eval for every eligible k, from the trials of each of its tasks.

    All or nothing: one trial with several rewards, none in its map, or one that is neither 0 nor 1 leaves
    no pass@k at all. A trial without a map is a failure. Tasks with more attempts than others use them all.

    >>> pass_ladder([[{"reward": 1}, None], [{"reward": 0}, {"reward": 0}]])
    {2: 0.5}
    """
    counts = []
    for trials in tasks:
        values = [_verdict(trial) for trial in trials]
        if None in values:
            return {}
        counts.append((len(values), sum(value is True for value in values)))
    most = min((n for n, _ in counts), default=0)
    return {k: math.fsum(pass_at_k(n, c, k) for n, c in counts) / len(counts) for k in eligible_ks(most)}


def _verdict(trial: Rewards | None) -> bool | None:
    """Whether a trial passed; None when nobody can say."""
    if trial is None:
        return False
    if len(trial) != 1:
        return None
    value = next(iter(trial.values()))
    return bool(value) if value in (0, 1) else None
