"""What a scoring of EvSys' benchmarks found, in EvSys' shape: its numbers, tasks, breakdowns and trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Final

import numpy as np

from calipers.metrics.aggregate import mean
from calipers.metrics.metric import PASS_THRESHOLD
from calipers.metrics.reduce import task_mean
from calipers.pipeline import quietly, score_rollouts
from calipers.plan import Plan, make_plan
from calipers.readers.rewards import from_rewards
from calipers.readers.trajectories import TrajectoryGroup, from_groups
from calipers.reports.result import Result
from calipers.rollouts.part import Labels
from calipers.rollouts.record import ABSENT
from calipers.rollouts.table import Rollouts, assemble
from calipers.tasks.evsys import HarborTask

Breakdowns = dict[str, dict[str, dict[str, float]]]  # key -> value -> n, mean_reward, pass_rate
ECONOMICS: Final = ("time_per_task", "tokens_per_task", "cost_per_task")


@dataclass(frozen=True)
class BenchmarkTaskResult:
    """One task: its mean reward, and the last of its completions."""

    task_id: Any
    instruction: Any
    model_output: str
    expected: Any
    reward: float
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchmarkScore:
    """What a scoring found, in EvSys' shape, which `dataclasses.asdict` writes.

    ``result``, the Calipers `Result` behind the numbers, is handed over at construction and is no
    field: it has no part in ``asdict``, in equality or in ``repr``, and `dataclasses.replace` keeps it.
    """

    metrics: dict[str, float]
    per_task: list[BenchmarkTaskResult]
    breakdowns: Breakdowns = field(default_factory=dict)
    rollouts: list[Any] = field(default_factory=list)
    result: InitVar[Result | None] = field(default=None, kw_only=True)

    def __post_init__(self, result: Result | None) -> None:
        object.__setattr__(self, "result", result)


def eval_metrics(groups: Iterable[TrajectoryGroup], *, metrics: list[str] | None = None) -> dict[str, float]:
    """The metrics of rollouts, and what they cost per rollout; tasks without a rollout are left out.

    ``time_per_task``, ``tokens_per_task`` and ``cost_per_task`` are there when some rollout reported
    them: the mean over a task's samples, then over tasks.

    >>> eval_metrics([])
    {'n_tasks': 0.0, 'mean_reward': 0.0, 'pass_rate': 0.0}
    """
    plan = make_plan(metrics or None, dialect="evsys")
    kept = [group for group in groups if group.trajectories]
    (found,) = score_rollouts(assemble([from_groups(kept)]), plan).groups
    costs = {name: found.economics[name].value for name in ECONOMICS if name in found.economics}
    numbers = {name: estimate.value for name, estimate in found.metrics.items()}
    return {"n_tasks": float(len(kept)), **{name: _number(value) for name, value in (numbers | costs).items()}}


def break_down(tasks: Sequence[BenchmarkTaskResult], keys: Iterable[str]) -> Breakdowns:
    """Tasks by the text of a metadata value: how many, their mean reward, and the share whose own mean passes."""
    found: Breakdowns = {}
    for key in keys:
        buckets: dict[str, list[float]] = {}
        for task in tasks:
            there, value = _at(task.metadata, key)
            buckets.setdefault(str(value) if there else ABSENT, []).append(task.reward)
        found[key] = {label: _bucket(np.array(rewards)) for label, rewards in buckets.items()}
    return found


def _bucket(rewards: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    with quietly():
        passed = np.count_nonzero(rewards >= PASS_THRESHOLD)
        return {
            "n": float(len(rewards)),
            "mean_reward": float(mean(rewards)),
            "pass_rate": float(passed / len(rewards)),
        }


def score_judged(
    name: str, tasks: Sequence[HarborTask], rewards: list[list[float]], texts: Sequence[str], plan: Plan
) -> BenchmarkScore:
    """The score of judged completions: ``rewards[task][sample]`` and each task's last text."""
    table = _table(rewards, tasks, plan.by, name)
    result = score_rollouts(table, plan)
    with quietly():
        means = task_mean(table.rewards["reward"], table.by_task).values.tolist() if tasks else []
    per_task = [
        BenchmarkTaskResult(
            task.task_id, task.instruction, text, getattr(task.verifier, "expected", None), worth, dict(task.metadata)
        )
        for task, text, worth in zip(tasks, texts, means, strict=True)
    ]
    numbers = {asked: _number(estimate.value) for asked, estimate in result.groups[0].metrics.items()}
    metrics = {"n_tasks": float(len(tasks)), **numbers}
    return BenchmarkScore(metrics, per_task, break_down(per_task, plan.by), result=result)


def harvested(task: HarborTask, group: TrajectoryGroup) -> BenchmarkTaskResult:
    """One task of a job: the mean of the trials that survived, 0.0 if none did, and the text of the last."""
    rewards = np.array(group.rewards)
    texts = [turn.text for one in group.trajectories for turn in one.turns]
    expected = getattr(task.verifier, "expected", None)
    worth = float(mean(rewards)) if len(rewards) else 0.0
    return BenchmarkTaskResult(
        task.task_id, task.instruction, texts[-1] if texts else "", expected, worth, dict(task.metadata)
    )


def _table(rewards: list[list[float]], tasks: Sequence[HarborTask], keys: Sequence[str], name: str) -> Rollouts:
    """Rewards as rollouts. Tasks are numbered, so that their order stays and two of one id stay two."""
    part = from_rewards(rewards)
    labels = {"dataset": Labels(np.zeros(len(part), dtype=np.int64), [name])} if name else {}
    for key in keys:
        found = [_at(task.metadata, key) for task in tasks]
        code = np.array([number if there else -1 for number, (there, _) in enumerate(found)], dtype=np.int64)
        labels[f"metadata.{key}"] = Labels(code[part.task], [value for _, value in found])
    return assemble([replace(part, labels=labels)])


def _at(metadata: Any, path: str) -> tuple[bool, Any]:
    """Whether a dotted path leads somewhere through nested dicts, and what stands there."""
    for step in path.split("."):
        if not isinstance(metadata, Mapping) or step not in metadata:
            return False, None
        metadata = metadata[step]
    return True, metadata


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
