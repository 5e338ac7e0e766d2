"""NeMo Gym's rows: who ran what, every number they carry, and a strict decoder that is widened on surprise."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from calipers.errors import InputError
from calipers.formats.frames import named, shown
from calipers.formats.repeated_keys import letters
from calipers.formats.rows import Growing, GrowingFlags
from calipers.formats.schema import NOTHING, odd_key
from calipers.rollouts.column import Bools, Floats, Ints, alike

REWARD: Final = "reward"
LEAST, MOST = -(2**63), 2**64 - 1  # what 64 bits hold, with a sign or without
_EXACT = 2.0**53  # whole numbers from here on are not all doubles


@dataclass(frozen=True, slots=True)
class Cells:
    """One key of R rows. NaN under a true ``given`` is a number somebody sent."""

    values: Floats  # [R]
    given: Bools  # [R] a number stands there; true and false are 1 and 0
    whole: Bools  # [R] it was written as an integer or a boolean
    present: Bools  # [R] the key stands there, whatever its value
    odd: Mapping[int, Any] = field(default_factory=dict)  # row -> what no double can say

    def take(self, rows: Ints) -> Cells:
        """The same key over some rows, in their order."""
        odd = {}
        if self.odd:
            odd = {new: self.odd[old] for new, old in enumerate(rows.tolist()) if old in self.odd}
        given, whole, present = (_taken(mask, rows) for mask in (self.given, self.whole, self.present))
        return Cells(self.values.take(rows), given, whole, present, odd)


def _taken(mask: Bools, rows: Ints) -> Bools:
    if mask.all():
        return alike(len(rows), True)
    return mask.take(rows) if mask.any() else alike(len(rows), False)


class _Key:
    """The cells of one key in the making."""

    def __init__(self) -> None:
        self._values = Growing(np.float64)
        self._masks = [GrowingFlags() for _ in range(3)]  # given, whole, present
        self._odd: dict[int, Any] = {}

    def put(self, start: int, piece: Cells) -> None:
        self._values.put(start, piece.values)
        self._mark(start, len(piece.values), piece.given, piece.whole, piece.present)
        if piece.odd:
            self._odd.update({start + row: value for row, value in piece.odd.items()})

    def put_plain(self, start: int, column: Sequence[Any], kind: type) -> bool:
        """Take a block in which every row has a value of this one kind; False for what doubles cannot say."""
        if kind not in (float, int, bool):
            self._values.room(start, len(column))[:] = 0
            self._mark(start, len(column), False, False, True)
            return True
        try:
            values = self._values.pack(start, column)
        except (OverflowError, struct.error):  # an integer that no float can hold
            return False
        if kind is int and np.abs(values).max() >= _EXACT:
            return False
        self._mark(start, len(column), True, kind is not float, True)
        return True

    def _mark(self, start: int, size: int, *flags: Bools | bool) -> None:
        for mask, part in zip(self._masks, flags, strict=True):
            mask.put(start, size, part)

    def finish(self, rows: int) -> Cells:
        given, whole, present = (mask.finish(rows) for mask in self._masks)
        return Cells(self._values.finish(rows), given, whole, present, self._odd)


class Filling:
    """Cells in the making: a block of rows at a time. A key may start at any row."""

    def __init__(self) -> None:
        self.rows = 0
        self._keys: dict[tuple[str, str], _Key] = {}

    def take(self, where: str, name: str, column: Sequence[Any]) -> None:
        """The block's values of a key, UNSET where a row has none. ValueError(row, value) beyond 64 bits."""
        kinds = set(map(type, column))
        keep = name == REWARD and where == "top"
        nothing = where == "top" or kinds == {type(UNSET)}  # in usage a null hides what the row itself says
        if nothing and not keep and not any(issubclass(kind, (int, float)) for kind in kinds):
            return
        if (where, name) not in self._keys:
            self._keys[where, name] = _Key()
        key = self._keys[where, name]
        kind = next(iter(kinds))
        if len(kinds) > 1 or not _is_plain(kind, keep) or not key.put_plain(self.rows, column, kind):
            key.put(self.rows, _mixed(column, keep))

    def finish(self, where: str, beside: Mapping[str, Cells]) -> dict[str, Cells]:
        """Every key of that place, over all rows; one without any number only where it hides one beside."""
        finished = {name: key.finish(self.rows) for (level, name), key in self._keys.items() if level == where}
        return {
            name: cells
            for name, cells in finished.items()
            if cells.given.any() or (name == REWARD and where == "top") or name in beside
        }


def _is_plain(kind: type, keep: bool) -> bool:
    """Whether a block of values of this one kind needs no look at each: a subclass of a number does."""
    return kind in (int, float) or (not keep and (kind is bool or not issubclass(kind, (int, float))))


def _mixed(column: Sequence[Any], keep: bool) -> Cells:
    """Any block, value by value; ``keep`` what is no number, as it is."""
    size = len(column)
    values = np.zeros(size)
    given, whole, present = (np.zeros(size, dtype=bool) for _ in range(3))
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
            values[row], given[row], whole[row] = value, True, True
            if abs(value) >= _EXACT or (keep and isinstance(value, bool)):
                odd[row] = value
        elif keep:
            odd[row] = value
    return Cells(values, given, whole, present, odd)


def joined_cells(tables: Sequence[Mapping[str, Cells]], starts: Ints) -> dict[str, Cells]:
    """The keys of several tables laid end to end, the first row of each at ``starts``."""
    cells = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        key = _Key()
        for start, table in zip(starts.tolist(), tables, strict=False):
            if name in table:
                key.put(start, table[name])
        cells[name] = key.finish(int(starts[-1]))
    return cells


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
    recoded = []
    for values, code in zip(lists, codes, strict=True):
        table = [index.setdefault(value, len(index)) for value in values]
        recoded.append(np.array([*table, -1], dtype=np.int64)[code])
    return list(index), np.concatenate(recoded)


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
        rank = np.empty(len(rows.names), dtype=np.int64)
        rank[sorted(range(len(rows.names)), key=rows.names.__getitem__)] = np.arange(len(rows.names))
        task = rank[task]
    rollout = rows.rollout[of]
    if len(of) and bool(((np.diff(task) > 0) | ((np.diff(task) == 0) & (np.diff(rollout) >= 0))).all()):
        return of
    return of[np.lexsort((rollout, task))]


def overlaid(rows: GymRows, name: str) -> Cells:
    """A key as the statistics see it: what usage says wins, even where it says nothing numeric."""
    top, usage = rows.top.get(name), rows.usage.get(name)
    if top is None or usage is None:
        cells = usage if top is None else top
        if cells is None:
            raise KeyError(name)
        return cells
    wins = usage.present
    return Cells(
        np.where(wins, usage.values, top.values),
        np.where(wins, usage.given, top.given),
        np.where(wins, usage.whole, top.whole),
        top.present | wins,
    )


AGENT: Final = "agent_ref"
FAILURE: Final = "_ng_failure_class"
KILLED: Final = "_ng_no_persist"
_USAGE = attrgetter("usage")
_Number = int | float | bool | None | UnsetType


class _GymObject(msgspec.Struct, gc=False):
    """Any JSON object, skipped unread."""


class _GymList(msgspec.Struct, array_like=True, gc=False):
    """Any JSON list, skipped unread."""


class GymAgent(msgspec.Struct, gc=False):
    """Who ran a rollout."""

    name: str | None = None


class GymSchema:
    """The keys and kinds of value seen so far, and a decoder for exactly those.

    ``raws`` are the keys whose values somebody asked for: they are kept as raw JSON.
    """

    def __init__(self, raws: Collection[str]) -> None:
        self.raws = raws
        self.kinds: dict[str, set[str]] = {}  # key of a row -> kinds of value, in the order they were met
        self.usage: dict[str, set[str]] = {}
        self.rebuild()

    def learn(self, row: Mapping[str, Any]) -> bool:
        """Widen the schema to one row; False when it knew all of it, or a struct cannot say it."""
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        if odd_key([*row, *usage]) is not None:
            return False
        learnt = False
        for known, values in ((self.kinds, row), (self.usage, usage)):
            for key, value in values.items():
                kind = _kind(value)
                learnt = learnt or key not in known or not known[key].issuperset(kind)
                known.setdefault(key, set()).update(kind)
        return learnt

    def columns(self) -> int:
        """How many columns of numbers the schema holds."""
        top = (kinds for key, kinds in self.kinds.items() if key not in (TASK, ROLLOUT))
        return sum("number" in kinds for kinds in (*top, *self.usage.values()))

    def given(self, columns: Sequence[Sequence[Any]]) -> dict[int, int]:
        """How many keys with the same last letters there are in the columns of a block, those of usage among them."""
        counts = Counter[int]()
        for (what, key), column in zip(self.fields, columns, strict=True):
            counts[letters(key)] += sum(map(bool, map(len, column))) if what == "raw" else _given(column)
            if what == "response" and self.usage:
                inner = zip(*usages(column, len(self.usage)), strict=True)
                for name, values in zip(self.usage, inner, strict=True):
                    counts[letters(name)] += _given(values)
        return counts

    def rebuild(self) -> None:
        """Make the decoder for what is known now; `fields` says what stands where in its rows."""
        self.fields: list[tuple[str, str]] = [("task", TASK), ("rollout", ROLLOUT)]  # (what, key)
        spec: list[Any] = [("f0", int | float | str), ("f1", int | float)]
        for key, kinds in self.kinds.items():
            if key not in (TASK, ROLLOUT):
                what, kind = self._field(key, kinds)
                spec.append((f"f{len(spec)}", kind, NOTHING if what == "raw" else UNSET))
                self.fields.append((what, key))
        rename = {f"f{n}": key for n, (_, key) in enumerate(self.fields)}
        row = msgspec.defstruct("Row", spec, rename=rename, forbid_unknown_fields=True, gc=False)
        self.decoder = msgspec.json.Decoder(row)

    def _field(self, key: str, kinds: set[str]) -> tuple[str, Any]:
        if key in self.raws:
            return "raw", msgspec.Raw
        if key == "response":
            return "response", self._response() | None | UnsetType
        if key == AGENT:
            return "agent", GymAgent | None | UnsetType
        if key == FAILURE:
            return "failure", str | None | UnsetType
        if key == REWARD and kinds - {"number"}:
            return "number", Any  # NeMo Gym shows a reward as it is, whatever it is
        return "number" if "number" in kinds else "other", _union(kinds)

    def _response(self) -> Any:
        fields: list[Any] = [(f"f{n}", _union(kinds), UNSET) for n, kinds in enumerate(self.usage.values())]
        rename = {f"f{n}": key for n, key in enumerate(self.usage)}
        usage = msgspec.defstruct("Usage", fields, rename=rename, forbid_unknown_fields=True, gc=False)
        return msgspec.defstruct("Response", [("usage", usage | None, None)], gc=False)


def usages(responses: Sequence[Any], size: int) -> list[tuple[Any, ...]]:
    """The values of each response's usage, UNSET where it has none."""
    try:
        return list(map(astuple, map(_USAGE, responses)))
    except (AttributeError, TypeError):  # some have no usage, or are no response at all
        nothing = (UNSET,) * size
        return [astuple(response.usage) if response and response.usage else nothing for response in responses]


def _given(column: Sequence[Any]) -> int:
    """How many values there are, null among them."""
    return len(column) - list(map(type, column)).count(UnsetType)


def _kind(value: Any) -> Collection[str]:
    """The kind of a value, none for null."""
    for kind, types in (("text", str), ("object", dict), ("list", list), ("number", (int, float))):
        if isinstance(value, types):
            return (kind,)
    return ()


def _union(kinds: Collection[str]) -> Any:
    """The type of a value that is of one of these kinds, null, or absent."""
    union: Any = _Number if "number" in kinds else None | UnsetType
    if "text" in kinds:
        union = union | str
    if "object" in kinds:
        union = union | _GymObject
    if "list" in kinds:  # beside an object a list cannot be a struct: they would have to be tagged
        union = union | (list[msgspec.Raw] if "object" in kinds else _GymList)
    return union
