"""What NeMo Gym's rows look like so far, as a strict decoder that is widened on surprise.

As in `schema`, a row with a new key or a new kind of value does not fit, raises, and teaches. What is
special here: integers stay integers, ``response`` is skipped but for its ``usage``, and a key that is
null stands apart from one that is absent. Whatever is no number is kept as raw bytes, so that the keys of a
block can be counted: a key twice is found out that way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple
from numpy.typing import NDArray

from calipers.readers.nemo_gym_cells import REWARD
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.readers.schema import NOTHING, odd_key
from calipers.readers.twice import Colons

AGENT: Final = "agent_ref"
FAILURE: Final = "_ng_failure_class"
KILLED: Final = "_ng_no_persist"
_Number = int | float | bool | None | UnsetType
_USAGE: Final = b'"usage"'
_BACKSLASH: Final = ord("\\")
_NUMBERS: Final = frozenset(b"-0123456789tf")  # what a number or a truth value begins with
_OBJECTS: Final = frozenset(b"{n")  # what an object or null begins with
_ANY: Final = frozenset(range(256))
_BEGINNINGS: Final = {"other": _ANY - _NUMBERS, "response": _OBJECTS, "agent": _OBJECTS}


class Unfit(ValueError):
    """A row that the schema does not hold, though its decoder took it."""


class _Response(msgspec.Struct, gc=False):
    usage: msgspec.Raw = NOTHING


class Agent(msgspec.Struct, gc=False):
    """Who ran a rollout."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a block of lines, column by column."""

    columns: list[Any]  # by `Schema.fields`; of agents their names
    usage: list[Any]  # by `Schema.usage`; nothing where there is none
    once: bool  # whether counting proves that no key stands twice


class Schema:
    """The keys and kinds of value seen so far, and a decoder for exactly those.

    ``raws`` are the keys whose values somebody asked for: they are kept as raw JSON.
    """

    def __init__(self, raws: Collection[str]) -> None:
        self.raws = raws
        self.kinds: dict[str, set[str]] = {}  # key of a row -> kinds of value, in the order they were met
        self.usage: dict[str, set[str]] = {}
        self._colons = Colons()
        self.rebuild()

    def learn(self, row: Mapping[str, Any]) -> bool:
        """Widen the schema to one row; False when it knew all of it, or a struct cannot say it."""
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        if odd_key([*row, *usage]) is not None:
            return False
        learnt = False
        for held, values in ((self.kinds, row), (self.usage, usage)):
            for key, value in values.items():
                kind = _kind(value)
                learnt = learnt or key not in held or not held[key].issuperset(kind)
                held.setdefault(key, set()).update(kind)
        return learnt

    def columns(self) -> int:
        """How many columns of numbers the schema holds."""
        top = (kinds for key, kinds in self.kinds.items() if key not in (TASK, ROLLOUT))
        return sum("number" in kinds for kinds in (*top, *self.usage.values()))

    def rebuild(self) -> None:
        """Make the decoder for what is known now; `fields` says what stands where in its rows."""
        self.fields: list[tuple[str, str]] = [("task", TASK), ("rollout", ROLLOUT)]  # (what, key)
        spec: list[Any] = [("f0", int | float | str), ("f1", int | float)]
        for key, kinds in self.kinds.items():
            if key not in (TASK, ROLLOUT):
                what, kind = self._field(key, kinds)
                spec.append((f"f{len(spec)}", kind, NOTHING if kind is msgspec.Raw else UNSET))
                self.fields.append((what, key))
        self._raws = [at for at, (_, kind, *_) in enumerate(spec) if kind is msgspec.Raw]
        rename = {f"f{n}": key for n, (_, key) in enumerate(self.fields)}
        row = msgspec.defstruct("Row", spec, rename=rename, forbid_unknown_fields=True, gc=False)
        self._decoder = msgspec.json.Decoder(row)
        fields: list[Any] = [(f"f{n}", *_usage_type(kinds)) for n, kinds in enumerate(self.usage.values())]
        self._usage_raws = [at for at, (_, kind, _) in enumerate(fields) if kind is msgspec.Raw]
        rename = {f"f{n}": key for n, key in enumerate(self.usage)}
        usage = msgspec.defstruct("Usage", fields, rename=rename, forbid_unknown_fields=True, gc=False)
        self._usage_decoder = msgspec.json.Decoder(usage | None)

    def read(self, block: bytes | memoryview) -> Decoded:
        """The rows of a block of lines. `Unfit`, or what msgspec raises, for one that this schema does not hold."""
        columns: list[Any] = list(zip(*map(astuple, self._decoder.decode_lines(block)), strict=True))
        if not columns:
            return Decoded([], [], True)
        octets = np.frombuffer(block, dtype=np.uint8)
        rows, raws = len(columns[0]), [columns[at] for at in self._raws]
        joined = b"".join(chain(*raws))
        sizes = np.fromiter(map(len, chain(*raws)), dtype=np.int64, count=rows * len(raws))
        self._check_beginnings(joined, sizes.reshape(len(raws), rows))
        given = sum(_given(column) for at, column in enumerate(columns) if at not in self._raws)
        once = self._colons.once(octets, given + int(np.count_nonzero(sizes)), [[joined]])
        usages: list[Any] = []
        for at, (what, _) in enumerate(self.fields):
            if what == "agent":
                columns[at] = _agents(columns[at])
            elif what == "response":
                usages, singly = self._usages(columns[at])
                once = once and singly
        return Decoded(columns, usages, once)

    def _check_beginnings(self, joined: bytes, sizes: NDArray[np.int64]) -> None:
        """Refuse numbers where none were so far, and texts where objects are: the decoder lets any JSON pass there."""
        starts = (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
        octets = np.frombuffer(joined, dtype=np.uint8)
        for at, begin, size in zip(self._raws, starts, sizes, strict=True):
            right = _BEGINNINGS.get(self.fields[at][0])
            if right is not None and not right.issuperset(octets[begin[size > 0]].tolist()):
                raise Unfit

    def _usages(self, column: Sequence[msgspec.Raw]) -> tuple[list[Any], bool]:
        """The usage of each response, a column for each of its keys, and whether no key stands twice in one."""
        found = [bytes(row.usage) or b"null" for row in _responses(column)]
        text = b"\n".join(found)
        rows = self._usage_decoder.decode_lines(text)
        if not self.usage or len(rows) != len(found):
            return [], not self.usage
        nothing = tuple(NOTHING if at in self._usage_raws else UNSET for at in range(len(self.usage)))
        columns = list(zip(*(nothing if row is None else astuple(row) for row in rows), strict=True))
        raws = [columns[at] for at in self._usage_raws]
        given = sum(sum(map(bool, map(len, raw))) for raw in raws)
        given += sum(_given(column) for at, column in enumerate(columns) if at not in self._usage_raws)
        return columns, self._colons.once(np.frombuffer(text, dtype=np.uint8), given, raws)

    def _field(self, key: str, kinds: set[str]) -> tuple[str, Any]:
        if key in self.raws:
            return "raw", msgspec.Raw
        if key == "response":
            return "response", msgspec.Raw
        if key == AGENT:
            return "agent", msgspec.Raw
        if key == FAILURE:
            return "failure", str | None | UnsetType
        if kinds == {"number"}:
            return "number", _Number
        return ("mixed" if "number" in kinds or key == REWARD else "other"), msgspec.Raw  # a reward is shown as it is


def read_raws(column: Sequence[msgspec.Raw]) -> list[Any]:
    """Raw values as they are, UNSET for those that are absent."""
    return [msgspec.json.decode(raw) if len(raw) else UNSET for raw in column]


def _responses(column: Sequence[msgspec.Raw]) -> list[_Response]:
    """The responses, each from where its usage begins: behind that, most have little left to be passed over."""
    whole = [bytes(raw) for raw in column]
    short = list(map(_from_usage, whole))
    try:
        found = _RESPONSE.decode_lines(b"\n".join(short))
    except msgspec.DecodeError:
        found = []
    if len(found) != len(whole):  # another usage, within one of them
        found = _RESPONSE.decode_lines(b"\n".join(response or b"null" for response in whole))
    return [one or _NO_RESPONSE for one in found]


def _from_usage(response: bytes) -> bytes:
    """The end of a response, as an object that begins with its last key of that name; else all of it.

    What is cut off was read as JSON before. Where the rest is an object, it is the end of this one and not of
    another within: that would close once more.
    """
    at = response.rfind(_USAGE)
    return b"{" + response[at:] if at > 0 and response[at - 1] != _BACKSLASH else response or b"null"


def _agents(column: Sequence[msgspec.Raw]) -> list[str | None]:
    """The names of agents; there are few different ones."""
    texts = [bytes(raw) for raw in column]
    names = {text: _AGENT.decode(text) if text else None for text in set(texts)}
    return [held.name if (held := names[text]) else None for text in texts]


def _given(column: Sequence[Any]) -> int:
    """How many values there are, null among them."""
    return len(column) - list(map(type, column)).count(UnsetType)


def _kind(value: Any) -> Collection[str]:
    """The kind of a value, none for null."""
    for kind, types in (("text", str), ("object", dict), ("list", list), ("number", (int, float))):
        if isinstance(value, types):
            return (kind,)
    return ()


def _usage_type(kinds: set[str]) -> tuple[Any, Any]:
    """The type of a value in usage, and what stands for one that is absent."""
    if kinds <= {"number"}:
        return (_Number, UNSET) if kinds else (None | UnsetType, UNSET)
    return msgspec.Raw, NOTHING


_NO_RESPONSE: Final = _Response()
_RESPONSE: Final = msgspec.json.Decoder(_Response | None)
_AGENT: Final = msgspec.json.Decoder(Agent | None)
