"""Harbor's metrics: four statistics over all trials of an eval, pass@k for several k, and the counters of a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any, Final

import numpy as np

from calipers.errors import InputError, UnknownName
from calipers.metrics import PASS_THRESHOLD, Metric, each, largest, mean, pooled, smallest, task_sum_and_count
from calipers.metrics.columns import EXTREME, TOTAL
from calipers.metrics.rewards import pass_at_k
from calipers.rollouts.column import Bools, Column, Groups, total
from calipers.systems.harbor.wire import ADHOC, Number, Rewards, Totals, Trial, rewards, totals


def summed(values: Sequence[Number]) -> Number:
    """The sum: an integer for integers, otherwise the exact sum, rounded once.

    Harbor requires Python 3.12 or newer, where ``sum`` is almost as exact; this function is exact in every version.

    >>> summed([0.1] * 10), summed([1, 2])
    (1.0, 3)
    """
    if all(isinstance(value, int) for value in values):
        return sum(values)
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large for a float, or infinities of both signs
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

    If the trials have at most one reward name, the result has the name of the metric. If they have several, the result
    has one number per reward, sorted by name. Without trials, only a sum exists: InputError for the other metrics.

    >>> import calipers
    >>> calipers.harbor_metric("mean", [{"reward": 1}, None])
    {'mean': 0.5}
    >>> calipers.harbor_metric("max", [{"b": 2, "a": -1}, {"a": -2}])
    {'a': -1, 'b': 2}
    """
    if name not in BUILT_IN:
        raise UnknownName.of("Harbor metric", name, BUILT_IN)
    if not trials and name != "sum":
        raise InputError(f"{name} of no trials; expected at least one")
    compute = BUILT_IN[name]
    keys = sorted({key for trial in trials if trial for key in trial})  # by code point
    if len(keys) < 2:
        return {name: compute([next(iter(trial.values()), 0) if trial else 0 for trial in trials])}
    return {key: compute([(trial or {}).get(key, 0) for trial in trials]) for key in keys}


def eligible_ks(most: int) -> list[int]:
    """The values of k that Harbor reports, up to ``most``: the powers of two from 2, and the multiples of 5.

    ``most`` is the smallest number of attempts at any task.

    >>> eligible_ks(10)
    [2, 4, 5, 8, 10]
    """
    powers = {2**power for power in range(1, max(most, 1).bit_length())}
    return sorted(k for k in powers | set(range(5, most + 1, 5)) if k <= most)


def pass_at_k_ladder(n: int, c: int, k: int) -> float:
    """The probability that k of a task's n attempts, c of which passed, include a pass; 1 if fewer than k failed.

    >>> pass_at_k_ladder(5, 2, 2)
    0.7
    """
    if n - c < k:
        return 1.0
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def pass_ladder(tasks: Iterable[Sequence[Rewards | None]]) -> dict[int, float]:
    """The pass@k of an eval for every eligible k, from the trials of each of its tasks.

    The result is empty if any trial has several rewards, an empty map, or a reward other than 0 and 1. A trial without
    a map is a failure. Tasks with more attempts than others use all of them.

    >>> import calipers
    >>> calipers.harbor_pass_ladder([[{"reward": 1}, None], [{"reward": 0}, {"reward": 0}]])
    {2: 0.5}
    """
    counts = []
    for trials in tasks:
        verdicts = [_passed(trial) for trial in trials]
        if None in verdicts:
            return {}
        counts.append((len(verdicts), sum(verdict is True for verdict in verdicts)))
    most = min((n for n, _ in counts), default=0)
    return {k: math.fsum(pass_at_k_ladder(n, c, k) for n, c in counts) / len(counts) for k in eligible_ks(most)}


def _passed(trial: Rewards | None) -> bool | None:
    """Whether a trial passed; None if its rewards are not a single 0 or 1."""
    if trial is None:
        return False
    if len(trial) != 1:
        return None
    value = next(iter(trial.values()))
    return bool(value) if value in (0, 1) else None


POOLED_MEAN = Metric("pooled_mean", task_sum_and_count, pooled, of_rewards=True)
POOLED_SUM = Metric("pooled_sum", each, total, rows=True, no_interval=TOTAL, breaks=frozenset({"doubling"}))
POOLED_MIN = Metric("pooled_min", each, smallest, rows=True, no_interval=EXTREME)
POOLED_MAX = Metric("pooled_max", each, largest, rows=True, no_interval=EXTREME)

NOTHING: Final[Mapping[float, str]] = {}


def statistic(name: str, rewards: Mapping[str, Column], rows: int) -> dict[str, float]:
    """One of Harbor's metrics over R rollouts, from columns: like `metric`; a gap counts as 0.

    >>> statistic("max", {"reward": Column.of([-2, -1, 0], [True, True, False])}, 3)
    {'max': 0.0}
    """
    compute = {"mean": lambda values: total(values) / rows, "sum": total, "min": smallest, "max": largest}[name]
    if len(rewards) > 1:
        return {key: float(compute(column.filled(0.0).values)) for key, column in sorted(rewards.items())}
    only = next(iter(rewards.values()), Column.gaps(rows))
    return {name: float(compute(only.filled(0.0).values))}


def ladder(rewards: Mapping[str, Column], by: Groups, empty: Bools) -> dict[int, float]:
    """The pass@k for every eligible k, from columns: like `pass_ladder`; ``empty`` marks empty maps, [R]."""
    passes, counts = np.zeros(len(by.code)), np.zeros(len(by.code), dtype=np.int64)
    for column in rewards.values():
        if not np.isin(column.kept(), (0.0, 1.0)).all():
            return {}
        passes += column.filled(0.0).values
        counts += column.given
    attempts = np.diff(by.starts)
    attempts = attempts[attempts > 0]
    if empty.any() or (counts > 1).any() or not len(attempts):
        return {}
    column = Column.of(passes)
    return {k: float(mean(pass_at_k(column, by, k, PASS_THRESHOLD).kept())) for k in eligible_ks(int(attempts.min()))}


def counted(column: Column, written: Mapping[float, str] = NOTHING) -> dict[str, int]:
    """The number of occurrences of each value of a reward, largest value first; 1 and 1.0 are the same value.

    ``written`` maps a value to its text in the files; a value that is not in it is written as a float.

    >>> counted(Column.of([0, 1, 1], [True, True, True])), counted(Column.of([0, 1, 1]), {1.0: "1"})
    ({'1.0': 2, '0.0': 1}, {'1': 2, '0.0': 1})
    """
    values, counts = np.unique(column.kept() + 0.0, return_counts=True)
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    return {written.get(value, str(value)): count for value, count in reversed(list(pairs))}


CANCELLED: Final = "CancelledError"
Metrics = list[Mapping[str, Any]]


def evals_key(agent: str | None, model: str | None, dataset: str) -> str:
    """Harbor's name for an eval; the model may be unknown, and in other systems' rollouts the agent.

    >>> evals_key("codex", "gpt", "bench"), evals_key("oracle", None, ADHOC)
    ('codex__gpt__bench', 'oracle__adhoc')
    """
    return "__".join(part for part in (agent, model, dataset) if part)


def dataset_of(trial: Trial) -> str:
    """The name of the dataset that a trial belongs to."""
    return trial.source or ADHOC


def key_of(trial: Trial) -> str:
    """The name of the eval that a trial belongs to."""
    model = trial.agent_info.model_info
    return evals_key(trial.agent_info.name, model.name if model else None, dataset_of(trial))


@dataclass(slots=True)
class Eval:
    """The counts of one eval, and the names of its trials by reward and by exception."""

    n_trials: int = 0  # trials with a map of rewards, which may be empty
    n_errors: int = 0
    rewards: dict[str, dict[Number, list[str]]] = field(default_factory=dict)  # reward -> value -> trials
    exceptions: dict[str, list[str]] = field(default_factory=dict)  # type -> trials

    def to_dict(self, metrics: Metrics, ladder: Mapping[int, float]) -> dict[str, Any]:
        """The eval as a job's ``result.json`` holds it."""
        return {
            "n_trials": self.n_trials,
            "n_errors": self.n_errors,
            "metrics": metrics,
            "pass_at_k": {str(k): value for k, value in ladder.items()},
            "reward_stats": {
                name: {str(value): list(trials) for value, trials in values.items()}
                for name, values in self.rewards.items()
            },
            "exception_stats": {kind: list(trials) for kind, trials in self.exceptions.items()},
        }


class Tally:
    """The counters of a job and of each of its evals, in the order of their first trials."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self.completed = self.errored = self.cancelled = 0
        self.used = Totals()
        self.evals: dict[str, Eval] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Count a finished trial."""
        self._count(trial, 1)
        counts = self.evals.setdefault(key_of(trial), Eval())
        by_name = rewards(trial)
        counts.n_trials += by_name is not None
        for name, value in (by_name or {}).items():
            counts.rewards.setdefault(name, {}).setdefault(value, []).append(trial.trial_name)
        if trial.exception_info is not None:
            counts.n_errors += 1
            counts.exceptions.setdefault(trial.exception_info.exception_type, []).append(trial.trial_name)

    def remove(self, trial: Trial) -> None:
        """Remove a trial from the counts; InputError if it was not counted."""
        lists = self._lists(trial)
        if lists is None or not all(trial.trial_name in names for names in lists):
            raise InputError(f"trial {trial.trial_name!r} is not in the counts; expected a counted trial")
        for names in lists:
            names.remove(trial.trial_name)
        counts = self.evals[key_of(trial)]
        counts.n_trials -= rewards(trial) is not None
        counts.n_errors -= trial.exception_info is not None
        self._count(trial, -1)

    def _lists(self, trial: Trial) -> list[list[str]] | None:
        """The lists that contain a trial's name if it was counted; None if its eval is unknown."""
        counts = self.evals.get(key_of(trial))
        if counts is None:
            return None
        lists = [counts.rewards.get(name, {}).get(value, []) for name, value in (rewards(trial) or {}).items()]
        if trial.exception_info is not None:
            lists.append(counts.exceptions.get(trial.exception_info.exception_type, []))
        return lists

    def _count(self, trial: Trial, by: int) -> None:
        self.completed += by
        if trial.exception_info is not None:
            self.errored += by
            self.cancelled += by * (trial.exception_info.exception_type == CANCELLED)
        pairs = zip(self.used, totals(trial), strict=True)
        self.used = Totals._make(old if new is None else (old or 0) + by * new for old, new in pairs)

    def to_dict(
        self,
        *,
        total: int = 0,
        running: int = 0,
        retries: int = 0,
        metrics: Mapping[str, Metrics] | None = None,  # by eval
        ladders: Mapping[str, Mapping[int, float]] | None = None,  # by eval
    ) -> dict[str, Any]:
        """The ``stats`` of a job's ``result.json``, with the keys in Harbor's order."""
        return {
            "n_completed_trials": self.completed,
            "n_errored_trials": self.errored,
            "n_running_trials": running,
            "n_pending_trials": max(total - self.completed - running, 0),
            "n_cancelled_trials": self.cancelled,
            "n_retries": retries,
            "evals": {
                key: counts.to_dict((metrics or {}).get(key, []), (ladders or {}).get(key, {}))
                for key, counts in self.evals.items()
            },
            **self.used._asdict(),
        }


def by_eval(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each eval, in the order given."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(key_of(trial), []).append(trial)
    return groups


def ladders(trials: Iterable[Trial]) -> dict[str, dict[int, float]]:
    """The pass@k of every eval that has one, by eval: see `pass_ladder`."""
    by_key = {}
    for key, eval_trials in by_eval(trials).items():
        tasks: dict[str, list[Rewards | None]] = {}
        for trial in eval_trials:
            tasks.setdefault(trial.task_name, []).append(rewards(trial))
        if rates := pass_ladder(tasks.values()):
            by_key[key] = rates
    return by_key


def metrics_of(trials: Iterable[Trial], names: Iterable[str]) -> Metrics:
    """The built-in metrics with these names over the trials of one eval."""
    trial_rewards = [rewards(trial) for trial in trials]
    return [metric(name, trial_rewards) for name in names]
