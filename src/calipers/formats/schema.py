"""What the rows of a JSONL file look like so far, as a strict decoder that is widened on surprise.

Decoding into a fixed `msgspec` struct is several times faster than decoding into dicts, and a
strict one can lose nothing: a row with a new key, or a new kind of value, does not fit and raises.
Then that row teaches the schema what it lacked, and its block is decoded again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from calipers.rollouts.record import GROUP, ROLES, TEXTS, Outcome, meant

Raw = msgspec.Raw
NOTHING = Raw(b"")
ABSENT = msgspec.UNSET  # in the place of a value whose key a row does not have
LONGEST_NUMBER = 64  # bytes; nobody writes one as long as that where a text should be
_NO_NUMBERS = {b'"', b"[", b"{", b"n", b""}  # what a text, messages, a message, null and nothing begin with
MOST_COLUMNS = 1000  # more distinct keys than this are ids used as keys, not columns
MOST_KEYS = 4000  # of any kind; each takes room in every row of a block


class _Object(msgspec.Struct, gc=False):
    """Any JSON object, skipped unread."""


class _List(msgspec.Struct, array_like=True, gc=False):
    """Any JSON list, skipped unread."""


_KINDS: Mapping[str, Any] = {"number": float | bool, "text": str, "object": _Object, "list": _List}
_ROLE_TYPES: Mapping[str, Any] = {
    "sample": Annotated[int, msgspec.Meta(ge=0, lt=2**53)],
    "attempt": Annotated[int, msgspec.Meta(ge=1, lt=2**53)],
    "outcome": Outcome | None,
    "reward": float | bool | None,
    "answer": float | bool | str | _List | None,
    **dict.fromkeys(GROUP, str | None),
}
_BEGINNINGS: Mapping[str, bytes] = {"metadata": b"{n", "error": b'"{n'}  # of an object, a text and null
_ROWS = msgspec.json.Decoder(dict[str, Raw])


class Schema:
    """The keys and kinds of value seen so far, and a decoder for exactly those.

    ``names`` says what the file calls a role; ``labels`` are the paths asked for by ``--by`` and
    ``--cluster``, whose values are kept as raw JSON.
    """

    def __init__(self, names: Mapping[str, str], labels: Collection[str]) -> None:
        self.roles = meant(names)
        self.numbers = {key: name for name, key in names.items() if name not in ROLES}  # key -> column
        self.labels = sorted(labels)
        self.seen: set[str] = set()  # roles that occur
        self.inside: dict[str, list[str]] = {"rewards": [], "usage": []}
        self.extra: dict[str, set[str]] = {}  # other keys -> kinds of value
        self.rebuild()

    def learn(self, line: bytes) -> bool:
        """Widen the schema to fit one line; False when it knew all of it already, or cannot."""
        row = _ROWS.decode(line)
        inside = {key: list(_ROWS.decode(raw)) for key, raw in row.items() if self._opens(key, raw)}
        if odd_key([*row, *(name for names in inside.values() for name in names)]) is not None:
            return False
        learnt = False
        for key, raw in row.items():
            role, kind = self.roles.get(key), _kind(raw)
            if role is None:
                learnt = learnt or key not in self.extra
                kinds = self.extra.setdefault(key, set())
                if kind and not (key in self.numbers and kind != "number"):
                    learnt = learnt or kind not in kinds
                    kinds.add(kind)
                continue
            learnt = learnt or role not in self.seen
            self.seen.add(role)
            if key in inside:
                new = [name for name in inside[key] if name not in self.inside[role]]
                learnt = learnt or bool(new)
                self.inside[role] += new
        return learnt

    def _opens(self, key: str, raw: Raw) -> bool:
        """Whether a key holds an object of numbers."""
        return self.roles.get(key) in self.inside and _kind(raw) == "object"

    def keys(self) -> frozenset[str]:
        """The keys that occur."""
        return frozenset(self.extra) | {key for key, role in self.roles.items() if role in self.seen}

    def columns(self) -> int:
        """How many columns of numbers the schema holds."""
        return sum("number" in kinds for kinds in self.extra.values()) + sum(map(len, self.inside.values()))

    def rebuild(self) -> None:
        """Make the decoder for what is known now; `fields` says what stands where in its rows."""
        self.fields: list[tuple[str, str]] = []  # (what, name) of each position of a row
        self.first_steps = sorted({path.split(".")[0] for path in self.labels})
        spec: list[tuple[str, Any, Any]] = []
        keys: dict[str, str] = {}

        def add(what: str, name: str, key: str, kind: Any, default: Any) -> None:
            keys[f"f{len(spec)}"] = key
            spec.append((f"f{len(spec)}", kind, default))
            self.fields.append((what, name))

        key_of = {role: key for key, role in self.roles.items()}
        add("task", "task", key_of["task"], int | str, msgspec.NODEFAULT)
        for role in sorted(self.seen - {"task"}):
            if role == "answer" and role in self.labels:
                add("raw", role, key_of[role], Raw, NOTHING)
            elif role in self.inside:
                add(role, role, key_of[role], _numbers_struct(role, self.inside[role]) | None, ABSENT)
            elif role in _BEGINNINGS:
                add(role, role, key_of[role], Raw, NOTHING)
            elif role in TEXTS:  # long, and never read for numbers: `sound` looks at it
                add("text", role, key_of[role], Raw, NOTHING)
            else:
                add(role, role, key_of[role], _ROLE_TYPES[role], ABSENT)
        for key, kinds in self.extra.items():
            name = self.numbers.get(key, key)
            if key in self.labels:
                add("raw", key, key, Raw, NOTHING)
            elif kinds == {"number"}:
                add("number", name, key, float | bool | None, ABSENT)
            elif "number" in kinds:
                add("mixed", name, key, _union(kinds), ABSENT)
            else:
                add("text", name, key, Raw, NOTHING)
        row = msgspec.defstruct(
            "Row",
            [(name, kind) if default is msgspec.NODEFAULT else (name, kind, default) for name, kind, default in spec],
            rename=keys,
            forbid_unknown_fields=True,
            gc=False,
        )
        self.decoder, self.steps = msgspec.json.Decoder(row), self._steps()
        self._texts = [at for at, (what, _) in enumerate(self.fields) if what == "text"]
        self._begin = [(at, _BEGINNINGS[what]) for at, (what, _) in enumerate(self.fields) if what in _BEGINNINGS]
        self.raws = [at for at, (what, _) in enumerate(self.fields) if what in ("raw", "text", *_BEGINNINGS)]
        kinds = set[str]().union(*self.extra.values())
        unread = kinds & {"object", "list"} or self.seen & {"metadata", "error", "answer", *TEXTS} or self.labels
        self.skips = bool(unread)  # whether some of a row is passed over, so that nobody looks at its bytes

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether what is passed over is what it may be; the decoder lets any JSON pass there."""
        return all(_no_number(columns[at]) for at in self._texts) and all(
            _begins(columns[at], known) for at, known in self._begin
        )

    def _steps(self) -> msgspec.json.Decoder[Any]:
        """A decoder of metadata for the first step of each path somebody asked for."""
        fields: list[Any] = [(f"f{i}", Raw, NOTHING) for i in range(len(self.first_steps))]
        rename = {f"f{i}": step for i, step in enumerate(self.first_steps)}
        return msgspec.json.Decoder(msgspec.defstruct("Metadata", fields, rename=rename, gc=False) | None)


def _union(kinds: Collection[str]) -> Any:
    """The type of a value that is of one of these kinds, or null."""
    union: Any = None
    for kind in sorted(kinds):
        # beside an object a list cannot be a struct: they would have to be tagged
        part = list[Raw] if kind == "list" and "object" in kinds else _KINDS[kind]
        union = part | union if union is not None else part | None
    return union


def _no_number(column: Sequence[Raw]) -> bool:
    """Whether no raw value is a number or a truth value; one that is long is none, and most texts are long."""
    if min(map(len, column)) >= LONGEST_NUMBER:
        return True
    return {bytes(raw)[:1] for raw in column if len(raw) < LONGEST_NUMBER} <= _NO_NUMBERS


def _begins(column: Sequence[Raw], known: bytes) -> bool:
    """Whether each raw value that there is begins with one of these bytes."""
    sizes = np.fromiter(map(len, column), dtype=np.int64, count=len(column))
    octets = np.frombuffer(b"".join(column), dtype=np.uint8)
    firsts = octets[(np.cumsum(sizes) - sizes)[sizes > 0]]
    return set(firsts.tolist()) <= set(known)


def _numbers_struct(name: str, keys: list[str]) -> Any:
    fields: list[Any] = [(f"f{i}", float | bool | None, ABSENT) for i in range(len(keys))]
    rename = {f"f{i}": key for i, key in enumerate(keys)}
    return msgspec.defstruct(name, fields, rename=rename, forbid_unknown_fields=True, gc=False)


def odd_key(keys: Iterable[str]) -> str | None:
    """The first key that no field of a struct can be called by, if any."""
    return next((key for key in keys if '"' in key or "\\" in key or min(key, default=" ") < " "), None)


def _kind(raw: Raw) -> str:
    """The kind of a raw JSON value, from its first byte; "" for null."""
    first = bytes(memoryview(raw)[:1])
    named = {b'"': "text", b"{": "object", b"[": "list", b"n": ""}
    return named.get(first, "number")
