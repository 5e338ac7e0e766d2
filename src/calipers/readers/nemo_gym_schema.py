"""What NeMo Gym's rows look like so far, as a strict decoder that is widened on surprise.

As in `schema`, a row with a new key or a new kind of value does not fit, raises, and teaches. What is
special here: integers stay integers, ``response`` is skipped but for its ``usage``, and a key that is
null stands apart from one that is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from calipers.readers.nemo_gym_cells import REWARD
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.readers.schema import NOTHING, odd_key
from calipers.readers.twice import letters

AGENT: Final = "agent_ref"
FAILURE: Final = "_ng_failure_class"
KILLED: Final = "_ng_no_persist"
_USAGE = attrgetter("usage")
_Number = int | float | bool | None | UnsetType


class _Object(msgspec.Struct, gc=False):
    """Any JSON object, skipped unread."""


class _List(msgspec.Struct, array_like=True, gc=False):
    """Any JSON list, skipped unread."""


class Agent(msgspec.Struct, gc=False):
    """Who ran a rollout."""

    name: str | None = None


class Schema:
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

    def given(self, columns: Sequence[Sequence[Any]]) -> dict[int, int]:
        """How many keys with the same last letters there are in the columns of a block, those of usage among them."""
        found = Counter[int]()
        for (what, key), column in zip(self.fields, columns, strict=True):
            found[letters(key)] += sum(map(bool, map(len, column))) if what == "raw" else _given(column)
            if what == "response" and self.usage:
                inner = zip(*usages(column, len(self.usage)), strict=True)
                for name, values in zip(self.usage, inner, strict=True):
                    found[letters(name)] += _given(values)
        return found

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
            return "agent", Agent | None | UnsetType
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
        return [astuple(held.usage) if held and held.usage else nothing for held in responses]


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
        union = union | _Object
    if "list" in kinds:  # beside an object a list cannot be a struct: they would have to be tagged
        union = union | (list[msgspec.Raw] if "object" in kinds else _List)
    return union
