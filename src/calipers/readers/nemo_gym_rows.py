"""NeMo Gym's rows as columns: who ran what, and every number they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec import UNSET

from calipers.errors import InputError
from calipers.readers.frames import named, shown
from calipers.readers.nemo_gym_cells import Cells, joined_cells
from calipers.rollouts.column import Bools, Ints

TASK: Final = "_ng_task_index"
ROLLOUT: Final = "_ng_rollout_index"
LEAST_INT, MOST_INT = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Keys:
    """The order in which one row names its keys, and those of its usage."""

    top: Sequence[str]
    usage: Sequence[str]


@dataclass(frozen=True, slots=True)
class GymRows:
    """R rows of rollouts as NeMo Gym writes them, in the order they were met."""

    task: Ints  # [R] the task index, or a code into ``names``
    names: Sequence[str] | None  # [T] the task indices where they are text, by code
    rollout: Ints  # [R]
    agents: Sequence[str]  # distinct names, by first appearance
    agent: Ints  # [R] codes into agents; -1 where a row names none
    top: Mapping[str, Cells]  # numeric keys of the row itself, and its reward whatever it is
    usage: Mapping[str, Cells]  # numeric keys of response.usage
    aside: Bools  # [R] failed attempts, which NeMo Gym keeps apart
    keys: Mapping[int, Keys]  # of the rows in which some key first has a number, by (task, rollout)

    def __len__(self) -> int:
        return len(self.task)


def joined(parts: Sequence[GymRows]) -> GymRows:
    """Rows of several files, end to end. InputError where task indices are text here and numbers there."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    if len({part.names is None for part in parts}) > 1:
        raise InputError(MIXED)
    starts = np.cumsum([0, *map(len, parts)])
    agents, agent = _recoded([part.agents for part in parts], [part.agent for part in parts])
    names, task = None, np.concatenate([part.task for part in parts])
    if parts[0].names is not None:
        names, task = _recoded([part.names or () for part in parts], [part.task for part in parts])
    return GymRows(
        task,
        names,
        np.concatenate([part.rollout for part in parts]),
        agents,
        agent,
        joined_cells([part.top for part in parts], starts),
        joined_cells([part.usage for part in parts], starts),
        np.concatenate([part.aside for part in parts]),
        {int(start) + row: keys for start, part in zip(starts, parts, strict=False) for row, keys in part.keys.items()},
    )


MIXED: Final = "task indices are text in some rows and numbers in others; expected one kind"


def _recoded(lists: Sequence[Sequence[str]], codes: Sequence[Ints]) -> tuple[list[str], Ints]:
    index: dict[str, int] = {}
    found = []
    for values, code in zip(lists, codes, strict=True):
        table = [index.setdefault(value, len(index)) for value in values]
        found.append(np.array([*table, -1], dtype=np.int64)[code])
    return list(index), np.concatenate(found)


def as_index(value: Any) -> Any:
    """An index as the integer it is: NeMo Gym takes 3.0 for 3. Anything else as it stands.

    >>> as_index(3.0), as_index(3.5), as_index("3.0")
    (3, 3.5, '3.0')
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def index_fault(key: str, value: Any) -> tuple[str, str] | None:
    """What is wrong with a task or rollout index, and what would be right; None for a good one."""
    value = as_index(value)
    right = "expected an integer" if key == ROLLOUT else "expected an integer or text"
    if value is UNSET:
        return f"no key {key!r}", right
    if isinstance(value, bool) or not isinstance(value, int if key == ROLLOUT else (int, str)):
        return f"{key} is {shown(value)}", right
    if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
        return f"{key} is {shown(value)}", f"{right} of at most 64 bits"
    return None


def too_large(key: str, value: int) -> tuple[str, str]:
    """The fault of a number beyond 64 bits."""
    return f"{named(key)} is {shown(value)}", "expected an integer of at most 64 bits"


def order(rows: GymRows, of: Ints) -> Ints:
    """Some rows by task and rollout; text indices sort as text."""
    task = rows.task[of]
    if rows.names is not None:
        place = np.empty(len(rows.names), dtype=np.int64)
        place[sorted(range(len(rows.names)), key=rows.names.__getitem__)] = np.arange(len(rows.names))
        task = place[task]
    rollout = rows.rollout[of]
    if len(of) and bool(((np.diff(task) > 0) | ((np.diff(task) == 0) & (np.diff(rollout) >= 0))).all()):
        return of
    return of[np.lexsort((rollout, task))]


def overlaid(rows: GymRows, name: str) -> Cells:
    """A key as the statistics see it: what usage says wins, even where it says nothing numeric."""
    top, usage = rows.top.get(name), rows.usage.get(name)
    if top is None or usage is None:
        found = usage if top is None else top
        if found is None:
            raise KeyError(name)
        return found
    wins = usage.present
    return Cells(
        np.where(wins, usage.values, top.values),
        np.where(wins, usage.given, top.given),
        np.where(wins, usage.whole, top.whole),
        top.present | wins,
    )
