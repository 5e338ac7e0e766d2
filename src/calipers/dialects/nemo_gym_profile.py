"""NeMo Gym's reward profile: rollouts joined with the inputs they were planned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from calipers.errors import InputError
from calipers.metrics.gym import frame, over
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK, index_fault
from calipers.readers.nemo_gym_schema import AGENT
from calipers.readers.nemo_gym_taking import from_records
from calipers.reports.nemo_gym import Expected, flat, groups

Row = Mapping[str, Any]
_Key = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the profile says of each task and of each agent."""

    tasks: list[dict[str, Any]]  # the lines of ``<stem>_reward_profiling.jsonl``
    agents: list[dict[str, Any]]  # ``<stem>_agent_metrics.json``
    completed: int
    expected: int


def reward_profile(inputs: Sequence[Row], rollouts: Sequence[Row], *, allow_partial: bool = False) -> Profile:
    """Statistics per task, with the task's own input and how many of its rollouts there are, and per agent.

    InputError for a rollout or an input that stands twice, a rollout without an input, and, unless
    ``allow_partial``, an input without a rollout. A task without any rollout is left out.
    """
    planned, done = _indexed(inputs, "input"), _indexed(rollouts, "rollout")
    for key in done:
        if key not in planned:
            raise InputError(f"{_said(key)} has no input; expected an input for every rollout")
    missing = [key for key in planned if key not in done]
    if missing and not allow_partial:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{_said(missing[0])}{more} has no rollout; expected one for every input, or a partial profile"
        )
    if not done:
        return Profile([], [], 0, len(planned))
    table = from_records([{**row, "response": row.get("response") or {}} for row in done.values()])
    of = frame(table, np.arange(len(table)))
    keys = list(done)
    first = [keys[row] for row in of.chosen[of.by.starts[:-1]].tolist()]
    counts: dict[Any, int] = {}
    for task, _ in planned:
        counts[task] = counts.get(task, 0) + 1
    expected = Expected(
        [counts[task] for task, _ in first],
        [{name: value for name, value in planned[key].items() if name not in (TASK, ROLLOUT)} for key in first],
    )
    tasks = [msgspec.to_builtins(group) for chunk in groups(of, expected) for group in chunk]
    ran = [_agent(planned[keys[row]]) for row in of.chosen.tolist()]
    agents = []
    for name in sorted({name for name in ran if name}):
        rows = np.flatnonzero([other == name for other in ran])
        agents.append({**flat(over(of, rows), of.whole), AGENT: {"name": name}})
    return Profile(tasks, agents, len(done), len(planned))


def _indexed(rows: Sequence[Row], what: str) -> dict[_Key, Row]:
    found: dict[_Key, Row] = {}
    for number, row in enumerate(rows, 1):
        for index in (TASK, ROLLOUT):
            if fault := index_fault(index, row.get(index, UNSET)):
                raise InputError.at(f"{what} {number}", *fault)
        key = (row[TASK], row[ROLLOUT])
        if key in found:
            raise InputError.at(f"{what} {number}", f"{_said(key)} stands twice", "expected it once")
        found[key] = row
    return found


def _said(key: _Key) -> str:
    return f"{TASK} {key[0]}, {ROLLOUT} {key[1]}"


def _agent(row: Row) -> str | None:
    name = (row.get(AGENT) or {}).get("name")
    return name if isinstance(name, str) else None
