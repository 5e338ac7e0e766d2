"""Rewards as a JSON list of lists, one list per task, or in memory as EvSys's groups of trajectories.

Such rewards have no names, so tasks and samples are numbered by their position.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, Format, Progress
from calipers.formats.source import BOM, LARGEST_WHOLE, Source
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.record import UNSTATED, shown
from calipers.rollouts.table import Part, Places

_EXPECTED = "expected a list with a list of rewards for each task"
_NUMBER = "expected a number of at most 1.8e308 in size, or null"
_REWARDS = msgspec.json.Decoder(list[list[float | bool | None]])
_NUMBERS = (int, float, np.bool_, np.integer, np.floating)


def read_rewards(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rewards in a JSON list of lists: task 0 is the first list, sample 0 its first reward.

    An empty list is a task without rollouts, null a rollout without a reward. NaN and Infinity, as
    Python writes them, are numbers and not gaps.
    """
    text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    progress(len(text))
    try:
        rows: Any = _REWARDS.decode(text)
    except BAD:
        rows = _with_constants(text, source.path)
    return [from_rewards(rows, source.path)]


def from_rewards(rows: Sequence[Sequence[float | None]], path: str = "rewards") -> Part:
    """Rewards by task and sample as a `Part`; ``path`` is its name in errors.

    >>> part = from_rewards([[1.0, 0.0], [], [True]])
    >>> part.tasks, part.task.tolist(), part.rewards["reward"].values.tolist()
    (['0', '1', '2'], [0, 0, 2], [1.0, 0.0, 1.0])
    """
    lists = [_list(row, f"task {task}", path) for task, row in enumerate(_list(rows, "it", path))]
    sizes = np.array([len(row) for row in lists], dtype=np.int64)
    flat = [reward for row in lists for reward in row]
    rewards = _numbers(flat, sizes, path)
    task = np.repeat(np.arange(len(lists)), sizes)
    places = Places(path, "reward ")
    places.add(0, 1)
    return Part(
        places=places,
        tasks=[str(number) for number in range(len(lists))],
        task=task,
        sample=np.arange(len(flat)) - (np.cumsum(sizes) - sizes)[task],
        attempt=np.ones(len(flat), dtype=np.int64),
        outcome=np.full(len(flat), UNSTATED, dtype=np.uint8),
        rewards={"reward": rewards} if rewards.given.any() else {},
    )


def _with_constants(text: bytes, path: str) -> Any:
    """JSON decoded by Python, which accepts NaN and Infinity; InputError for invalid JSON."""
    try:
        return json.loads(text.decode(), parse_float=_or_text(float), parse_int=_or_text(int))
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise InputError.at(f"{path}:{line}", "a byte is not UTF-8", "expected UTF-8 text") from None
    except json.JSONDecodeError as error:
        problem = f"not JSON ({error.msg} at column {error.colno})"
        raise InputError.at(f"{path}:{error.lineno}", problem, _EXPECTED) from None
    except RecursionError:
        raise InputError.at(path, "it is nested too deeply", _EXPECTED) from None


def _or_text(number: type[float]) -> Callable[[str], float | str]:
    """A decoder of numbers that returns a number out of range as text, so that the error can name its position."""

    def decoded(text: str) -> float | str:
        try:
            value = number(text)
            return text if math.isinf(value) else value
        except (OverflowError, ValueError):
            return text

    return decoded


def _list(value: Any, what: str, path: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        expected = f"{_EXPECTED}, or one JSON object per line" if isinstance(value, Mapping) else _EXPECTED
        raise InputError.at(path, f"{what} is {shown(value)}", expected)
    return value if isinstance(value, (list, tuple)) else list(value)


def _numbers(flat: Sequence[Any], sizes: Ints, path: str) -> Column:
    """Rewards as a column; InputError names the task and the sample of a reward that is not a number."""
    given = np.array([reward is not None for reward in flat], dtype=bool)
    if all(issubclass(kind, _NUMBERS) for kind in set(map(type, flat)) - {type(None)}):
        try:
            return Column(np.array([0.0 if reward is None else reward for reward in flat], dtype=np.float64), given)
        except OverflowError:
            pass  # an integer beyond the largest float
    row = next(row for row, reward in enumerate(flat) if reward is not None and not _fits(reward))
    task = int(np.searchsorted(np.cumsum(sizes), row, side="right"))
    sample = row - int(sizes[:task].sum())
    raise InputError.at(path, f"task {task} sample {sample} is {shown(flat[row])}", _NUMBER)


def _fits(reward: Any) -> bool:
    if not isinstance(reward, _NUMBERS):
        return False
    try:
        float(reward)
    except OverflowError:
        return False
    return True


USAGE: Final = {  # key of a trajectory's usage -> our name
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
    logprobs: list[float] = field(default_factory=list)
    text: str = ""


@dataclass(slots=True)
class Trajectory:
    """One rollout; ``metadata["usage"]`` has its tokens, cost and latency, or None if they are unknown."""

    turns: list[Turn]
    reward: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TrajectoryGroup:
    """The finished rollouts of one task; the list may be empty."""

    trajectories: list[Trajectory]
    tags: list[str] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """The reward of each trajectory."""
        return [trajectory.reward for trajectory in self.trajectories]


def from_groups(groups: Sequence[TrajectoryGroup]) -> Part:
    """The rewards and the usage of groups; tasks and samples are numbered by their position.

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


REWARDS = Format(
    "evsys_rewards",
    read_rewards,
    lambda start: start.line[:1] == b"[",
    extras=lambda part, columns: repeat({}),  # such files have only numbers
)
