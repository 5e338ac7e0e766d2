"""The columns of a made-up document: the kinds of values that each may have, tried one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Path = tuple[str, ...]
"""The path of a value in a document: keys, and ``*`` for every entry of a list."""

EACH = "*"
SEVERAL = 4  # entries of a list
_WORDS = (
    "river stone seven garden yellow music paper window north apple engine cloud silver train letter bridge "
    "summer doctor ocean bread candle forest market winter"
)
WORDS = _WORDS.split()
NUMBERS = ("3", "12", "45", "7", "108")
PLAIN = ("text", "texts", "index", "member", "letter", "dict", "dicts", "digit", "literal", "truth", "ints", "lists")


@dataclass
class Column:
    """A column: the possible kinds of its cells in the order in which they are tried, and the current one."""

    kinds: list[str] = field(default_factory=list)
    place: int = 0
    fields: dict[str, Column] = field(default_factory=dict)  # of a mapping, or of each entry of a list of mappings
    options: list[Any] = field(default_factory=list)  # the possible values, if the task compares the cell with them
    of: Path = ()  # the path of a list in the same document that has the value
    count: int = SEVERAL  # for an index: it is below this

    @property
    def kind(self) -> str:
        """The current kind of the cell."""
        return self.kinds[self.place % len(self.kinds)] if self.kinds else "text"

    def hint(self, kind: str) -> None:
        """Try a kind before all others, unless an earlier hint came first."""
        if kind not in self.kinds:
            self.kinds.append(kind)


def finished(columns: Mapping[str, Column]) -> None:
    """Let every column use all kinds, in the order of their likelihood by its name."""
    for name, column in columns.items():
        finished(column.fields)
        if column.fields and not {"dict", "dicts"} & set(column.kinds):
            column.kinds.insert(0, "dict")
        for kind in (*_by_name(name.lower(), column), *PLAIN):
            if kind not in column.kinds and (column.fields or kind not in ("dict", "dicts")):
                column.kinds.append(kind)


def _by_name(name: str, column: Column) -> Sequence[str]:
    if column.options:
        return ("option",)
    if any(part in name for part in ("choices", "options", "endings", "answers", "candidates", "targets", "distract")):
        return ("texts", "literal")
    if name.endswith("labels"):
        return ("ints",)
    if any(part in name for part in ("label", "gold", "idx", "index", "cop", "num", "correct_option")):
        return ("index", "letter")
    if "answer" in name or "target" in name:
        return ("text", "letter", "index", "member")
    return ("text",)


def rows(columns: Mapping[str, Column], count: int, seed: str) -> list[dict[str, Any]]:
    """Documents with these columns; the same seed gives the same documents."""
    return [_row(columns, Random(f"{seed} {number}")) for number in range(count)]


def _row(columns: Mapping[str, Column], lot: Random) -> dict[str, Any]:
    row = {name: _value(column, lot, name) for name, column in columns.items()}
    for name, column in columns.items():
        if column.kind == "member":
            lists = [*_lists(row, column.of)] or [*_lists(row, ())]
            row[name] = lot.choice(lists[0]) if lists else text(lot)
    return row


def _lists(value: Any, path: Path) -> Iterator[list[Any]]:
    """The lists of texts at a path of a document, or anywhere in it."""
    if path and isinstance(value, Mapping):
        yield from _lists(value.get(path[0], {}), path[1:])
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _lists(one, ())
    elif isinstance(value, list) and value and isinstance(value[0], str):
        yield value


def text(lot: Random) -> str:
    """Some words."""
    return " ".join(lot.choices(WORDS, k=lot.randrange(2, 6)))


def _value(column: Column, lot: Random, name: str) -> Any:
    match column.kind:
        case "texts":
            return lot.sample(WORDS, SEVERAL)
        case "lists":
            return [lot.sample(WORDS, SEVERAL) for _ in range(SEVERAL)]
        case "ints":
            right = lot.randrange(SEVERAL)
            return [int(place == right) for place in range(SEVERAL)]
        case "index":
            return lot.randrange(column.count)
        case "first":
            return 1 + lot.randrange(column.count)
        case "letter":
            return lot.choice("ABCD"[: max(2, column.count)])
        case "digit":
            return str(lot.randrange(column.count))
        case "number":
            return lot.choice(NUMBERS)
        case "option":
            return lot.choice(column.options)
        case "literal":
            return repr(lot.sample(WORDS, SEVERAL))
        case "json":
            return json.dumps(lot.sample(WORDS, SEVERAL))
        case "truth":
            return lot.random() < 0.5
        case "dict":
            return _row(column.fields, lot)
        case "dicts":
            return [_row(column.fields, lot) for _ in range(SEVERAL)]
    return text(lot) + lot.choice((".", "", "?"))
