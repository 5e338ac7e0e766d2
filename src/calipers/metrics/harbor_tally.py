"""Harbor's job statistics: what was counted of which eval, kept up to date trial by trial.

An eval is all trials of one agent, model and dataset. A trial that is run again takes its earlier self out
of the tally; the lists its name stood in stay behind, empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from calipers.errors import InputError
from calipers.metrics.harbor import Number, Rewards, metric, pass_ladder
from calipers.readers.harbor_trial import Totals, Trial, rewards, totals

ADHOC: Final = "adhoc"
"""The dataset of a trial that comes from none."""

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
        one = self.evals.setdefault(key_of(trial), Eval())
        given = rewards(trial)
        one.n_trials += given is not None
        for name, value in (given or {}).items():
            one.rewards.setdefault(name, {}).setdefault(value, []).append(trial.trial_name)
        if trial.exception_info is not None:
            one.n_errors += 1
            one.exceptions.setdefault(trial.exception_info.exception_type, []).append(trial.trial_name)

    def remove(self, trial: Trial) -> None:
        """Take a trial that was counted out again; InputError for one that was not."""
        lists = self._lists(trial)
        if lists is None or not all(trial.trial_name in names for names in lists):
            raise InputError(f"trial {trial.trial_name!r} was not counted; expected one that was")
        for names in lists:
            names.remove(trial.trial_name)
        one = self.evals[key_of(trial)]
        one.n_trials -= rewards(trial) is not None
        one.n_errors -= trial.exception_info is not None
        self._count(trial, -1)

    def _lists(self, trial: Trial) -> list[list[str]] | None:
        """The lists that a trial's name stands in, if it was counted; None when its eval was never met."""
        one = self.evals.get(key_of(trial))
        if one is None:
            return None
        found = [one.rewards.get(name, {}).get(value, []) for name, value in (rewards(trial) or {}).items()]
        if trial.exception_info is not None:
            found.append(one.exceptions.get(trial.exception_info.exception_type, []))
        return found

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
                key: one.to_dict((metrics or {}).get(key, []), (ladders or {}).get(key, {}))
                for key, one in self.evals.items()
            },
            **self.used._asdict(),
        }


def by_eval(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each eval, in the order they came."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(key_of(trial), []).append(trial)
    return found


def ladders(trials: Iterable[Trial]) -> dict[str, dict[int, float]]:
    """pass@k of every eval that has any: see `pass_ladder`."""
    found = {}
    for key, some in by_eval(trials).items():
        tasks: dict[str, list[Rewards | None]] = {}
        for trial in some:
            tasks.setdefault(trial.task_name, []).append(rewards(trial))
        found[key] = pass_ladder(tasks.values())
    return {key: ladder for key, ladder in found.items() if ladder}


def metrics_of(trials: Iterable[Trial], names: Iterable[str]) -> Metrics:
    """The built-in metrics of these names over the trials of one eval."""
    given = [rewards(trial) for trial in trials]
    return [metric(name, given) for name in names]
