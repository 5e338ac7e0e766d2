"""Harbor's metrics: four statistics of all trials of an eval, a ladder of pass@k, and its count of a job's trials."""

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
    of = BUILT_IN[name]
    keys = sorted({key for trial in trials if trial for key in trial})  # by code point
    if len(keys) < 2:
        return {name: of([next(iter(trial.values()), 0) if trial else 0 for trial in trials])}
    return {key: of([(trial or {}).get(key, 0) for trial in trials]) for key in keys}


def eligible_ks(most: int) -> list[int]:
    """The k that Harbor reports, up to the fewest attempts any task had: powers of two from 2, and multiples of 5.

    >>> eligible_ks(10)
    [2, 4, 5, 8, 10]
    """
    powers = {2**power for power in range(1, max(most, 1).bit_length())}
    return sorted(k for k in powers | set(range(5, most + 1, 5)) if k <= most)


def pass_at_k_ladder(n: int, c: int, k: int) -> float:
    """The chance that k of a task's n attempts, c of them passes, include a pass; 1 where fewer than k fail.

    >>> pass_at_k_ladder(5, 2, 2)
    0.7
    """
    if n - c < k:
        return 1.0
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def pass_ladder(tasks: Iterable[Sequence[Rewards | None]]) -> dict[int, float]:
    """pass@k of an eval for every eligible k, from the trials of each of its tasks.

    All or nothing: one trial with several rewards, none in its map, or one that is neither 0 nor 1 leaves
    no pass@k at all. A trial without a map is a failure. Tasks with more attempts than others use them all.

    >>> import calipers
    >>> calipers.harbor_pass_ladder([[{"reward": 1}, None], [{"reward": 0}, {"reward": 0}]])
    {2: 0.5}
    """
    counts = []
    for trials in tasks:
        values = [_verdict(trial) for trial in trials]
        if None in values:
            return {}
        counts.append((len(values), sum(value is True for value in values)))
    most = min((n for n, _ in counts), default=0)
    return {k: math.fsum(pass_at_k_ladder(n, c, k) for n, c in counts) / len(counts) for k in eligible_ks(most)}


def _verdict(trial: Rewards | None) -> bool | None:
    """Whether a trial passed; None when nobody can say."""
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
STATISTICS: Final = {"mean": POOLED_MEAN, "sum": POOLED_SUM, "min": POOLED_MIN, "max": POOLED_MAX}
"""What Harbor calls them."""


def statistic(name: str, rewards: Mapping[str, Column], rows: int) -> dict[str, float]:
    """One of Harbor's metrics over R rollouts, every gap counting 0: named as `harbor.metric` names it.

    >>> statistic("max", {"reward": Column.of([-2, -1, 0], [True, True, False])}, 3)
    {'max': 0.0}
    """
    of = {"mean": lambda values: total(values) / rows, "sum": total, "min": smallest, "max": largest}[name]
    if len(rewards) > 1:
        return {key: float(of(column.filled(0.0).values)) for key, column in sorted(rewards.items())}
    only = next(iter(rewards.values()), Column.gaps(rows))
    return {name: float(of(only.filled(0.0).values))}


def ladder(rewards: Mapping[str, Column], by: Groups, odd: Bools) -> dict[int, float]:
    """pass@k for every eligible k, all or nothing as `harbor.pass_ladder`; ``odd`` marks empty maps, [R]."""
    passes, counts = np.zeros(len(by.code)), np.zeros(len(by.code), dtype=np.int64)
    for column in rewards.values():
        if not np.isin(column.kept(), (0.0, 1.0)).all():
            return {}
        passes += column.filled(0.0).values
        counts += column.given
    attempts = np.diff(by.starts)
    attempts = attempts[attempts > 0]
    if odd.any() or (counts > 1).any() or not len(attempts):
        return {}
    column = Column.of(passes)
    rates = {}
    for k in eligible_ks(int(attempts.min())):
        rates[k] = float(mean(pass_at_k(column, by, k, PASS_THRESHOLD).kept()))
    return rates


def counted(column: Column, written: Mapping[float, str] = NOTHING) -> dict[str, int]:
    """How often each value of a reward occurs, the largest first; 1 and 1.0 are the same.

    ``written`` says how files write a value; one that is not among them is written as a float.

    >>> counted(Column.of([0, 1, 1], [True, True, True])), counted(Column.of([0, 1, 1]), {1.0: "1"})
    ({'1.0': 2, '0.0': 1}, {'1': 2, '0.0': 1})
    """
    values, counts = np.unique(column.kept() + 0.0, return_counts=True)
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    return {written.get(value, str(value)): count for value, count in reversed(list(pairs))}


CANCELLED: Final = "CancelledError"
Metrics = list[Mapping[str, Any]]


def evals_key(agent: str | None, model: str | None, dataset: str) -> str:
    """What Harbor calls an eval, of which the model, and of others' rollouts the agent, may be unknown.

    >>> evals_key("codex", "gpt", "bench"), evals_key("oracle", None, ADHOC)
    ('codex__gpt__bench', 'oracle__adhoc')
    """
    return "__".join(part for part in (agent, model, dataset) if part)


def dataset_of(trial: Trial) -> str:
    """The name of the dataset that a trial counts for."""
    return trial.source or ADHOC


def key_of(trial: Trial) -> str:
    """The eval that a trial counts for."""
    model = trial.agent_info.model_info
    return evals_key(trial.agent_info.name, model.name if model else None, dataset_of(trial))


@dataclass(slots=True)
class Eval:
    """What was counted of one eval; in the maps, the names of trials."""

    n_trials: int = 0  # with a map of rewards, be it empty
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
    """The counters of a job, and those of each of its evals in the order they came."""

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
        given = rewards(trial)
        counts.n_trials += given is not None
        for name, value in (given or {}).items():
            counts.rewards.setdefault(name, {}).setdefault(value, []).append(trial.trial_name)
        if trial.exception_info is not None:
            counts.n_errors += 1
            counts.exceptions.setdefault(trial.exception_info.exception_type, []).append(trial.trial_name)

    def remove(self, trial: Trial) -> None:
        """Take a trial that was counted out again; InputError for one that was not."""
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
        """The lists that a trial's name stands in, if it was counted; None when its eval was never met."""
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
        ladders: Mapping[str, Mapping[int, float]] | None = None,
    ) -> dict[str, Any]:
        """The ``stats`` of a job's ``result.json``, its keys in Harbor's order."""
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
    """The trials of each eval, in the order they came."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(key_of(trial), []).append(trial)
    return groups


def ladders(trials: Iterable[Trial]) -> dict[str, dict[int, float]]:
    """pass@k of every eval that has any: see `pass_ladder`."""
    by_key = {}
    for key, some in by_eval(trials).items():
        tasks: dict[str, list[Rewards | None]] = {}
        for trial in some:
            tasks.setdefault(trial.task_name, []).append(rewards(trial))
        by_key[key] = pass_ladder(tasks.values())
    return {key: ladder for key, ladder in by_key.items() if ladder}


def metrics_of(trials: Iterable[Trial], names: Iterable[str]) -> Metrics:
    """The built-in metrics of these names over the trials of one eval."""
    given = [rewards(trial) for trial in trials]
    return [metric(name, given) for name in names]
