"""NeMo Gym's rows on their way into columns, out of decoded columns or out of dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import UNSET

from calipers.errors import InputError
from calipers.formats.frames import shown
from calipers.formats.rows import Growing
from calipers.rollouts.column import Bools, Ints, alike
from calipers.rollouts.part import Part
from calipers.systems.nemo_gym.wire import (
    AGENT,
    FAILURE,
    KILLED,
    MIXED,
    ROLLOUT,
    TASK,
    Cells,
    Filling,
    GymRows,
    Keys,
    as_index,
    index_fault,
    order,
    overlaid,
    too_large,
)

Row = Mapping[str, Any]
_OWN = frozenset({TASK, ROLLOUT, AGENT, FAILURE, "response", "responses_create_params"})


@dataclass(frozen=True, slots=True)
class GymPart(Part):
    """The rows of one NeMo Gym file: as rollouts of ours, and as NeMo Gym's own statistics need them."""

    gym: GymRows | None = None


class Taking:
    """Rows taken a block at a time, out of structs or out of dicts; `GymRows` at the end.

    ``routed``: failed attempts are told apart, as the collector does; a server takes what it is sent.
    """

    def __init__(self, *, routed: bool) -> None:
        self.routed = routed
        self.cells = Filling()
        self.failures: list[Any] = []  # [R] the failure class, None for none
        self._tasks = Growing(np.int64)
        self._names: dict[str, int] | None = None  # of tasks, where their indices are text
        self._rollouts = Growing(np.int64)
        self._agents: dict[str, int] = {}
        self._agent = Growing(np.int64)  # codes from 1; 0 where a row names none

    def take(self, what: str, key: str, column: Sequence[Any]) -> None:
        """One column of the block. ValueError(row, what is wrong, what would be right) for a bad value."""
        if what in ("task", "rollout") and float in set(map(type, column)):
            column = _without_floats(key, column)
        if what == "task":
            self._take_tasks(column)
        elif what == "rollout":
            self._rollouts.put(self.cells.rows, _integers(key, column))
        elif what == "agent":
            self._take_agents(column)
        elif what == "failure":
            self._fill(self.failures, self.cells.rows)
            self.failures.extend(column)
        else:
            try:
                self.cells.take(what, key, column)
            except ValueError as error:
                row, value = error.args
                raise ValueError(row, *too_large(key, value)) from None

    def _take_tasks(self, column: Sequence[Any]) -> None:
        if not self.cells.rows and isinstance(column[0], str):
            self._names = {}
        names = self._names
        if set(map(type, column)) != {int if names is None else str}:
            row = next(row for row, index in enumerate(column) if isinstance(index, str) is (names is None))
            raise ValueError(row, *MIXED.split("; "))
        if names is not None:
            column = [names.setdefault(index, len(names)) for index in column]
        self._tasks.put(self.cells.rows, _integers(TASK, column))

    def _take_agents(self, column: Sequence[str | None]) -> None:
        known = dict.fromkeys(column)
        codes = {name: self._agents.setdefault(name, len(self._agents) + 1) for name in known if name}
        row_codes = [codes.get(name or "", 0) for name in known]
        if len(known) == 1:
            self._agent.put(self.cells.rows, np.full(len(column), row_codes[0]))
            return
        row_codes = [codes.get(name or "", 0) for name in column]
        self._agent.put(self.cells.rows, np.asarray(row_codes))

    def end_block(self, rows: int) -> None:
        """All columns of so many rows have been taken."""
        self.cells.rows += rows

    @staticmethod
    def _fill(column: list[Any], rows: int) -> None:
        column.extend([None] * (rows - len(column)))

    def finish(self, keys: Callable[[Sequence[int]], Mapping[int, Keys]]) -> GymRows:
        """All rows; ``keys`` says in what order some of them name theirs."""
        size = self.cells.rows
        self._fill(self.failures, size)
        top = self.cells.finish("top", {})
        rows = GymRows(
            self._tasks.finish(size),
            None if self._names is None else list(self._names),
            self._rollouts.finish(size),
            list(self._agents),
            self._agent.finish(size) - 1,
            top,
            self.cells.finish("usage", top),
            self._aside(size, top.get(KILLED)),
            {},
        )
        return replace(rows, keys=keys(first_rows(rows)))

    def _aside(self, size: int, killed: Cells | None) -> Bools:
        aside = np.array([failure is not None and failure is not UNSET for failure in self.failures], dtype=bool)
        if killed is not None and self.routed:
            aside |= killed.given & (killed.values != 0)
        return aside if aside.any() else alike(size, False)


def _without_floats(key: str, column: Sequence[Any]) -> list[Any]:
    """Indices of which some are floats: whole ones are integers. ValueError(row, ...) for any other."""
    indices = list(map(as_index, column))
    for row, value in enumerate(indices):
        if isinstance(value, float):
            raise ValueError(row, *(index_fault(key, value) or ()))
    return indices


def _integers(key: str, column: Sequence[int]) -> Ints:
    try:
        return np.array(column, dtype=np.int64)
    except OverflowError:
        row = next(row for row, index in enumerate(column) if index_fault(key, index))
        raise ValueError(row, *(index_fault(key, column[row]) or ())) from None


def first_rows(rows: GymRows) -> list[int]:
    """The rows in which a key first has a number, walking an agent's rows by task and rollout."""
    firsts = set[int]()
    walk = order(rows, np.flatnonzero(~rows.aside))
    for agent in np.unique(rows.agent).tolist():
        agent_rows = walk[rows.agent[walk] == agent] if len(rows.agents) > 1 or (rows.agent < 0).any() else walk
        for name in {**rows.top, **rows.usage}:
            given = overlaid(rows, name).given[agent_rows]
            if given.any():
                firsts.add(int(agent_rows[given.argmax()]))
    return sorted(firsts)


def from_records(records: Sequence[Row]) -> GymRows:
    """Rows that are decoded already, as a server is sent them. InputError for the first bad one."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise InputError.at(f"row {number}", "it is no object", f"expected one with {TASK} and {ROLLOUT}")
    taking = Taking(routed=False)
    try:
        take_records(taking, records)
        return taking.finish(lambda chosen: {row: keys_of(records[row]) for row in chosen})
    except ValueError as error:
        row, wrong, right = error.args
        raise InputError.at(f"row {row + 1}", wrong, right) from None


def take_records(taking: Taking, records: Sequence[Row]) -> None:
    """Take decoded rows as one block. ValueError(row, what is wrong, what would be right) for a bad one."""
    for key, what in ((TASK, "task"), (ROLLOUT, "rollout")):
        column = [record.get(key, UNSET) for record in records]
        if set(map(type, column)) - ({int, float, str} if key == TASK else {int, float}):
            for row, value in enumerate(column):
                if fault := index_fault(key, value):
                    raise ValueError(row, *fault)
        taking.take(what, key, column)
    usages = [_usage(row, record, taking.routed) for row, record in enumerate(records)]
    taking.take("agent", AGENT, [_agent(row, record) for row, record in enumerate(records)])
    if taking.routed and any(FAILURE in record for record in records):
        taking.take("failure", FAILURE, [record.get(FAILURE) for record in records])
    for where, rows in (("top", records), ("usage", usages)):
        for key in dict.fromkeys(key for row in rows for key in row):
            if where == "usage" or key not in _OWN:
                taking.take(where, key, [row.get(key, UNSET) for row in rows])
    taking.end_block(len(records))


def _usage(row: int, record: Row, routed: bool) -> Row:
    response = record.get("response", UNSET)
    if response is UNSET or (response is None and routed):
        return {}
    if not isinstance(response, Mapping):
        raise ValueError(row, f"response is {shown(response)}", "expected an object, or no such key")
    usage = response.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise ValueError(row, f"response.usage is {shown(usage)}", "expected an object or null")
    return usage


def agent_of(record: Row) -> str | None:
    """The agent that ran a rollout, if it is named. InputError for what is no name."""
    agent = record.get(AGENT) or {}
    name = agent.get("name") if isinstance(agent, Mapping) else agent
    if not (name is None or isinstance(name, str)) or not isinstance(agent, Mapping):
        raise InputError.at(AGENT, f"it is {shown(agent)}", "expected an object with a name")
    return name


def _agent(row: int, record: Row) -> str | None:
    try:
        return agent_of(record)
    except InputError:
        raise ValueError(row, f"{AGENT} is {shown(record[AGENT])}", "expected an object with a name") from None


def keys_of(record: Row) -> Keys:
    """The order in which a row names its keys."""
    return Keys(list(record), list(_usage(0, record, routed=True)))
