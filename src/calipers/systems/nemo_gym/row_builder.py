"""Builders that turn NeMo Gym's rows into columns of all their numbers, from blocks of decoded columns or of dicts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from msgspec import UNSET

from calipers.errors import InputError
from calipers.formats.rows import Buffer, FlagBuffer, LabelBuffer
from calipers.rollouts.column import Bools, Floats, Ints, alike
from calipers.rollouts.record import shown
from calipers.rollouts.table import Part, join_codes
from calipers.systems.nemo_gym import AGENT, FAILURE, KILLED, REWARD, ROLLOUT, TASK
from calipers.systems.nemo_gym.wire import MIXED, as_index, index_fault, too_large

Row = Mapping[str, Any]
LEAST, MOST = -(2**63), 2**64 - 1  # the range of signed and of unsigned 64-bit integers
_EXACT = 2.0**53  # from here on, not every integer is a double
_OWN = frozenset({TASK, ROLLOUT, AGENT, FAILURE, "response", "responses_create_params"})


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of one key in R rows. A NaN where ``given`` is true is a number that was sent."""

    values: Floats  # [R]
    given: Bools  # [R] the value is a number; true and false are 1 and 0
    integer: Bools  # [R] the number was written as an integer or a boolean
    present: Bools  # [R] the row has the key, whatever its value
    odd: Mapping[int, Any] = field(default_factory=dict)  # row -> a value that ``values`` cannot represent

    def take(self, rows: Ints) -> Cells:
        """The values in some rows, in their order."""
        odd = {}
        if self.odd:
            odd = {new: self.odd[old] for new, old in enumerate(rows.tolist()) if old in self.odd}
        given, integer, present = (_taken(mask, rows) for mask in (self.given, self.integer, self.present))
        return Cells(self.values.take(rows), given, integer, present, odd)


def _taken(mask: Bools, rows: Ints) -> Bools:
    if mask.all():
        return alike(len(rows), True)
    return mask.take(rows) if mask.any() else alike(len(rows), False)


class _CellBuffer:
    """A builder of one key's `Cells`."""

    def __init__(self) -> None:
        self._values = Buffer(np.float64)
        self._masks = [FlagBuffer() for _ in range(3)]  # given, integer, present
        self._odd: dict[int, Any] = {}

    def put(self, start: int, piece: Cells) -> None:
        self._values.put(start, piece.values)
        self._mark(start, len(piece.values), piece.given, piece.integer, piece.present)
        if piece.odd:
            self._odd.update({start + row: value for row, value in piece.odd.items()})

    def put_plain(self, start: int, column: Sequence[Any], kind: type) -> bool:
        """Add a block whose values are all of one type; False if doubles cannot represent them."""
        if kind not in (float, int, bool):
            self._values.view(start, len(column))[:] = 0
            self._mark(start, len(column), False, False, True)
            return True
        try:
            values = self._values.pack(start, column)
        except (OverflowError, struct.error):  # an integer beyond the range of doubles
            return False
        if kind is int and np.abs(values).max() >= _EXACT:
            return False
        self._mark(start, len(column), True, kind is not float, True)
        return True

    def _mark(self, start: int, size: int, *flags: Bools | bool) -> None:
        for mask, part in zip(self._masks, flags, strict=True):
            mask.put(start, size, part)

    def finish(self, rows: int) -> Cells:
        given, integer, present = (mask.finish(rows) for mask in self._masks)
        return Cells(self._values.finish(rows), given, integer, present, self._odd)


class CellsBuilder:
    """A builder of the `Cells` of every key, from blocks of rows. A key may first appear in any row."""

    def __init__(self) -> None:
        self.rows = 0
        self._keys: dict[tuple[str, str], _CellBuffer] = {}

    def take(self, level: str, name: str, column: Sequence[Any]) -> None:
        """Add the block's values of a key of one level, "top" or "usage"; UNSET for a row without the key.

        ValueError(row, value) for an integer beyond 64 bits.
        """
        kinds = set(map(type, column))
        keep = name == REWARD and level == "top"
        negligible = level == "top" or kinds == {type(UNSET)}  # a null in usage hides the row's own value
        if negligible and not keep and not any(issubclass(kind, (int, float)) for kind in kinds):
            return
        if (level, name) not in self._keys:
            self._keys[level, name] = _CellBuffer()
        key = self._keys[level, name]
        kind = next(iter(kinds))
        if len(kinds) > 1 or not _is_plain(kind, keep) or not key.put_plain(self.rows, column, kind):
            key.put(self.rows, _mixed(column, keep))

    def finish(self, level: str, hidden: Mapping[str, Cells]) -> dict[str, Cells]:
        """The cells of each key of one level. Of keys without numbers, only ``hidden`` ones and the reward are kept."""
        finished = {name: key.finish(self.rows) for (key_level, name), key in self._keys.items() if key_level == level}
        return {
            name: cells
            for name, cells in finished.items()
            if cells.given.any() or (name == REWARD and level == "top") or name in hidden
        }


def _is_plain(kind: type, keep: bool) -> bool:
    """Whether a block of values of this type can be added as a whole. A subclass of a number type cannot."""
    return kind in (int, float) or (not keep and (kind is bool or not issubclass(kind, (int, float))))


def _mixed(column: Sequence[Any], keep: bool) -> Cells:
    """The cells of any block, value by value; with ``keep``, values that are not numbers are kept in ``odd``."""
    size = len(column)
    values = np.zeros(size)
    given, integer, present = (np.zeros(size, dtype=bool) for _ in range(3))
    odd: dict[int, Any] = {}
    for row, value in enumerate(column):
        if value is UNSET:
            continue
        present[row] = True
        if isinstance(value, float):
            values[row], given[row] = value, True
        elif isinstance(value, int):
            if not LEAST <= value <= MOST:
                raise ValueError(row, value)
            values[row], given[row], integer[row] = value, True, True
            if abs(value) >= _EXACT or (keep and isinstance(value, bool)):
                odd[row] = value
        elif keep:
            odd[row] = value
    return Cells(values, given, integer, present, odd)


def joined_cells(tables: Sequence[Mapping[str, Cells]], starts: Ints) -> dict[str, Cells]:
    """Concatenate the cells of several tables; ``starts`` are the first row of each, and the number of all rows."""
    cells = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        key = _CellBuffer()
        for start, table in zip(starts.tolist(), tables, strict=False):
            if name in table:
                key.put(start, table[name])
        cells[name] = key.finish(int(starts[-1]))
    return cells


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one row and of its usage, in the row's own order."""

    top: Sequence[str]
    usage: Sequence[str]


@dataclass(frozen=True, slots=True)
class GymRows:
    """R rows of NeMo Gym's rollouts, in the order of the file or request."""

    task: Ints  # [R] the task index, or a code into ``names``
    names: Sequence[str] | None  # [T] the task indices by code, if they are text; else None
    rollout: Ints  # [R] the rollout index
    agents: Sequence[str]  # distinct names, by first appearance
    agent: Ints  # [R] codes into agents; -1 for a row without an agent
    top: Mapping[str, Cells]  # numeric keys of the row itself, and its reward whatever its type
    usage: Mapping[str, Cells]  # numeric keys of response.usage
    aside: Bools  # [R] failed attempts, which NeMo Gym writes to a file of their own
    keys: Mapping[int, Keys]  # row -> its keys, for each row in which some key first has a number, by (task, rollout)

    def __len__(self) -> int:
        return len(self.task)


def joined(parts: Sequence[GymRows]) -> GymRows:
    """Concatenate the rows of several files. InputError if task indices are text in some and numbers in others."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    if len({part.names is None for part in parts}) > 1:
        raise InputError(MIXED)
    starts = np.cumsum([0, *map(len, parts)])
    agents, agent = join_codes([part.agents for part in parts], [part.agent for part in parts])
    names, task = None, np.concatenate([part.task for part in parts])
    if parts[0].names is not None:
        names, task = join_codes([part.names or () for part in parts], [part.task for part in parts])
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


def order(rows: GymRows, chosen: Ints) -> Ints:
    """The chosen rows, sorted by task and rollout; text indices sort as text."""
    task = rows.task[chosen]
    if rows.names is not None:
        rank = np.empty(len(rows.names), dtype=np.int64)
        rank[sorted(range(len(rows.names)), key=rows.names.__getitem__)] = np.arange(len(rows.names))
        task = rank[task]
    rollout = rows.rollout[chosen]
    if len(chosen) and bool(((np.diff(task) > 0) | ((np.diff(task) == 0) & (np.diff(rollout) >= 0))).all()):
        return chosen
    return chosen[np.lexsort((rollout, task))]


def overlaid(rows: GymRows, name: str) -> Cells:
    """The cells of a key as the statistics use them: the usage's value wins over the row's, even if not numeric."""
    top, usage = rows.top.get(name), rows.usage.get(name)
    if top is None or usage is None:
        cells = usage if top is None else top
        if cells is None:
            raise KeyError(name)
        return cells
    in_usage = usage.present
    return Cells(
        np.where(in_usage, usage.values, top.values),
        np.where(in_usage, usage.given, top.given),
        np.where(in_usage, usage.integer, top.integer),
        top.present | in_usage,
        {**{row: value for row, value in top.odd.items() if not in_usage[row]}, **usage.odd},
    )


@dataclass(frozen=True, slots=True)
class GymPart(Part):
    """The rows of one NeMo Gym file as rollouts, and in the form that NeMo Gym's own statistics need."""

    gym: GymRows | None = None


class RowBuilder:
    """A builder of `GymRows` from blocks of columns.

    With ``routed``, failed attempts are recognised, as by NeMo Gym's collector; a server aggregates all rows.
    """

    def __init__(self, *, routed: bool) -> None:
        self.routed = routed
        self.cells = CellsBuilder()
        self.failures: dict[int, Any] = {}  # row -> the failure class, of failed attempts
        self._tasks = Buffer(np.int64)
        self._names: LabelBuffer | None = None  # of tasks, if their indices are text
        self._rollouts = Buffer(np.int64)
        self._agents = LabelBuffer()

    def take(self, role: str, key: str, column: Sequence[Any]) -> None:
        """Add one column of the block. ValueError(row, problem, expectation) for a bad value.

        ``role`` is "task", "rollout", "agent", "failure", or the level of a key: "top" or "usage".
        """
        if role in ("task", "rollout") and float in set(map(type, column)):
            column = _without_floats(key, column)
        if role == "task":
            self._take_tasks(column)
        elif role == "rollout":
            self._rollouts.put(self.cells.rows, _integers(key, column))
        elif role == "agent":
            self._agents.put(self.cells.rows, [name or None for name in column])
        elif role == "failure":
            failures = enumerate(column, self.cells.rows)
            self.failures.update((row, word) for row, word in failures if word is not None and word is not UNSET)
        else:
            try:
                self.cells.take(role, key, column)
            except ValueError as error:
                row, value = error.args
                raise ValueError(row, *too_large(key, value)) from None

    def _take_tasks(self, column: Sequence[Any]) -> None:
        if not self.cells.rows and isinstance(column[0], str):
            self._names = LabelBuffer()
        names = self._names
        if set(map(type, column)) != {int if names is None else str}:
            row = next(row for row, index in enumerate(column) if isinstance(index, str) is (names is None))
            raise ValueError(row, *MIXED.split("; "))
        if names is not None:
            names.put(self.cells.rows, column)
        else:
            self._tasks.put(self.cells.rows, _integers(TASK, column))

    def end_block(self, rows: int) -> None:
        """End a block of ``rows`` rows, whose columns have all been added."""
        self.cells.rows += rows

    def finish(self, keys: Callable[[Sequence[int]], Mapping[int, Keys]]) -> GymRows:
        """All rows; ``keys`` returns the keys of some of them, in the rows' own order."""
        size = self.cells.rows
        top = self.cells.finish("top", {})
        names = None if self._names is None else self._names.finish(size)
        agents = self._agents.finish(size)
        rows = GymRows(
            self._tasks.finish(size) if names is None else names.code,
            None if names is None else names.values,
            self._rollouts.finish(size),
            agents.values,
            agents.code,
            top,
            self.cells.finish("usage", top),
            self._aside(size, top.get(KILLED)),
            {},
        )
        return replace(rows, keys=keys(first_rows(rows)))

    def _aside(self, size: int, killed: Cells | None) -> Bools:
        aside = np.zeros(size, dtype=bool)
        aside[list(self.failures)] = True
        if killed is not None and self.routed:
            aside |= killed.given & (killed.values != 0)
        return aside if aside.any() else alike(size, False)


def _without_floats(key: str, column: Sequence[Any]) -> list[Any]:
    """Indices with whole floats turned into integers. ValueError(row, problem, expectation) for any other float."""
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
    """The rows in which a key first has a number, for each agent and in the order of task and rollout."""
    firsts = set[int]()
    ordered = order(rows, np.flatnonzero(~rows.aside))
    one_agent = len(rows.agents) == 1 and not (rows.agent < 0).any()
    for agent in np.unique(rows.agent).tolist():
        agent_rows = ordered if one_agent else ordered[rows.agent[ordered] == agent]
        for name in {**rows.top, **rows.usage}:
            given = overlaid(rows, name).given[agent_rows]
            if given.any():
                firsts.add(int(agent_rows[given.argmax()]))
    return sorted(firsts)


def from_records(records: Sequence[Row]) -> GymRows:
    """The rows of a request to a server, from decoded JSON. InputError for the first bad row."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise InputError.at(f"row {number}", "it is not an object", f"expected one with {TASK} and {ROLLOUT}")
    builder = RowBuilder(routed=False)
    try:
        take_records(builder, records)
        return builder.finish(lambda chosen: {row: keys_of(records[row]) for row in chosen})
    except ValueError as error:
        row, problem, expected = error.args
        raise InputError.at(f"row {row + 1}", problem, expected) from None


def take_records(builder: RowBuilder, records: Sequence[Row]) -> None:
    """Add decoded rows as one block. ValueError(row, problem, expectation) for the first bad row."""
    for key, role in ((TASK, "task"), (ROLLOUT, "rollout")):
        column = [record.get(key, UNSET) for record in records]
        if set(map(type, column)) - ({int, float, str} if key == TASK else {int, float}):
            for row, value in enumerate(column):
                if fault := index_fault(key, value):
                    raise ValueError(row, *fault)
        builder.take(role, key, column)
    usages = [_usage(row, record, builder.routed) for row, record in enumerate(records)]
    builder.take("agent", AGENT, [_agent(row, record) for row, record in enumerate(records)])
    if builder.routed and any(FAILURE in record for record in records):
        builder.take("failure", FAILURE, [record.get(FAILURE) for record in records])
    for level, rows in (("top", records), ("usage", usages)):
        for key in dict.fromkeys(key for row in rows for key in row):
            if level == "usage" or key not in _OWN:
                builder.take(level, key, [row.get(key, UNSET) for row in rows])
    builder.end_block(len(records))


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
    """The name of the agent that ran a rollout, if the row has it. InputError for a name that is not text."""
    agent = record.get(AGENT) or {}
    name = agent.get("name") if isinstance(agent, Mapping) else UNSET
    if name is not None and not isinstance(name, str):
        raise InputError.at(AGENT, f"it is {shown(agent)}", "expected an object with a name")
    return name


def _agent(row: int, record: Row) -> str | None:
    try:
        return agent_of(record)
    except InputError:
        raise ValueError(row, f"{AGENT} is {shown(record[AGENT])}", "expected an object with a name") from None


def keys_of(record: Row) -> Keys:
    """The keys of a row and of its usage, in the row's own order."""
    return Keys(list(record), list(_usage(0, record, routed=True)))
