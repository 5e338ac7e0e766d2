"""Rollouts as EvSys holds them in memory: groups of trajectories, one group for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from calipers.formats.rewards import from_rewards
from calipers.rollouts.column import Column
from calipers.rollouts.part import Part

USAGE: Final = {  # what a trajectory calls its usage -> what we call it
    "latency_s": "latency_s",
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cost_usd": "cost_usd",
}


@dataclass(slots=True)
class Turn:
    """One exchange of a rollout, in tokens."""

    prompt_tokens: list[int]
    completion_tokens: list[int]
    logprobs: list[float]
    text: str = ""


@dataclass(slots=True)
class Trajectory:
    """One rollout; ``metadata["usage"]`` holds what it cost, None where that is unknown."""

    turns: list[Turn]
    reward: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TrajectoryGroup:
    """The rollouts of one task that came to an end; perhaps none."""

    trajectories: list[Trajectory]
    tags: list[str] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """The reward of each."""
        return [trajectory.reward for trajectory in self.trajectories]


def from_groups(groups: Sequence[TrajectoryGroup]) -> Part:
    """The rewards and the usage of groups; tasks and samples are numbered by their place.

    >>> part = from_groups([TrajectoryGroup([Trajectory([], 1.0, {"usage": {"latency_s": 2}})]), TrajectoryGroup([])])
    >>> part.tasks, part.rewards["reward"].values.tolist(), part.columns["latency_s"].values.tolist()
    (['0', '1'], [1.0], [2.0])
    """
    part = from_rewards([[float(reward) for reward in group.rewards] for group in groups])
    usage = [trajectory.metadata.get("usage") or {} for group in groups for trajectory in group.trajectories]
    columns = {ours: _reported([used.get(theirs) for used in usage]) for theirs, ours in USAGE.items()}
    return replace(part, columns={name: column for name, column in columns.items() if column.given.any()})


def _reported(values: Sequence[float | None]) -> Column:
    return Column.of([0.0 if value is None else float(value) for value in values], [v is not None for v in values])
