"""TOML files, read so that errors name the line; and names of files below a directory."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from calipers.errors import InputError, nearest
from calipers.formats.source import read_up_to


def below(root: Path, name: str, location: str = "") -> Path:
    """The path that a relative name means below a root, whether or not it is there.

    InputError for an absolute name, for ``..``, for a name that no file system has, and for one that
    a link carries out of the root. ``location`` says where the name was given.
    """
    where, right = location or str(root), "expected a path inside its own directory"
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts or os.path.isabs(name):
        raise InputError.at(where, f"the path {name!r} points outside", right)
    path = root / name
    if not within(root, path):
        raise InputError.at(where, f"the path {name!r} is a link that points outside", right)
    return path


def within(root: Path, path: Path) -> bool:
    """Whether a path, all links followed, lies in a root or is it."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def regular(root: Path, path: Path) -> bool:
    """Whether a path is a regular file, or a link to one inside the root; InputError for any other kind of file.

    A link to a directory is refused as well: a walk does not follow it, so no digest would cover what it holds.
    """
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode):
            return stat.S_ISREG(mode) or _refuse(path, "is not a regular file")
        if not within(root, path):
            return _refuse(path, f"is a link out of {root}")
        return stat.S_ISREG(os.stat(path).st_mode) or _refuse(path, "is a link to something that is not a file")
    except OSError as error:
        return _refuse(path, f"cannot be read ({error.strerror})")


def _refuse(path: Path, wrong: str) -> bool:
    raise InputError.at(str(path), wrong, "expected a regular file in the folder")


T = TypeVar("T")
Steps = tuple[str | int, ...]
"""The way to a value: keys, and positions in lists."""

LARGEST: Final = 64 << 20  # bytes; a dataset of 500,000 tasks
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
_KEY: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_AT: Final = re.compile(r"(.*?) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_PATH: Final = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Toml:
    """A TOML file: its values, and its text, which knows their lines."""

    path: Path
    text: str
    values: Mapping[str, Any]

    def fault(self, steps: Steps, wrong: str, right: str = "") -> InputError:
        """The error for a value, placed at its line, or at that of the table where it should be."""
        return InputError.at(self.place(steps), wrong, right)

    def place(self, steps: Steps) -> str:
        """``task.toml:7`` for the way to a value."""
        line = line_of(self.text, steps)
        return f"{self.path}:{line}" if line else str(self.path)

    def unknown(self, kind: type) -> list[str]:
        """The keys that a dataclass does not have, each with its place."""
        return [
            f"{self.place(steps)}: the key {named(steps)!r} is unknown and ignored"
            + (f"; did you mean {close!r}?" if close else "")
            for steps, close in unknown_keys(self.values, kind)
        ]

    def convert(self, values: Any, kind: type[T]) -> T:
        """The values as a dataclass; keys it does not have are passed over; InputError with the line of a wrong one."""
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            match = _PATH.fullmatch(str(error))
            wrong, way = match.groups() if match else (str(error), "")
            steps = tuple(int(index) if index else key for key, index in re.findall(r"\.([\w-]+)|\[(\d+)\]", way or ""))
            right = f"expected {' or '.join(words)}" if (words := _choices(kind, steps)) else ""
            message = _plain(wrong).replace("invalid enum value", "is")
            raise self.fault(steps, f"{named(steps)}: {message}" if steps else message, right) from None


def read_toml(root: Path, path: Path) -> Toml:
    """A TOML file of a directory; InputError, with the line, for what is no TOML or no plain file of its own."""
    regular(root, path)
    try:
        with open(path, "rb") as file:
            raw = read_up_to(file, LARGEST + 1)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    if len(raw) > LARGEST:
        raise InputError.at(str(path), f"is larger than {LARGEST >> 20} MiB", "expected a file of settings")
    try:
        text = raw.decode()
        return Toml(path, text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError.at(f"{path}:{line}", "is not UTF-8", "expected UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        match = _AT.fullmatch(str(error))
        what, at = (match[1], match[2]) if match else (str(error), None)
        line = int(at) if at else text.count("\n") + 1
        raise InputError.at(f"{path}:{line}", f"not valid TOML: {what[:1].lower()}{what[1:]}") from None
    except RecursionError:
        raise InputError.at(str(path), "not valid TOML: it is nested too deeply") from None


def line_of(text: str, steps: Steps) -> int | None:
    """The line of a value, or of the innermost table on the way to it that has a line of its own.

    >>> line_of("[a]\\nb = 1\\n[[c]]\\n[[c]]\\nd = 2", ("c", 1, "d"))
    5
    """
    counts: dict[Steps, int] = {}
    table: Steps = ()
    best, length = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _within_lists(_keys(header[2]), counts)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            here = table[:-1] if table[:-1] == steps else table  # the list itself stands where its first entry does
        elif key := _KEY.match(line):
            here = (*table, *_keys(key[1]))
        else:
            continue
        if length < len(here) <= len(steps) and steps[: len(here)] == here:
            best, length = number, len(here)
    return best


def _within_lists(keys: Steps, counts: Mapping[Steps, int]) -> Steps:
    """The keys of a header, with the position in every list they pass through: its last one so far."""
    way: Steps = ()
    for position, key in enumerate(keys):
        way = (*way, key)
        if way in counts and position + 1 < len(keys):
            way = (*way, counts[way])
    return way


def _keys(dotted: str) -> Steps:
    return tuple(bare or quoted[1:-1] for bare, quoted in re.findall(r"([\w-]+)|(\"[^\"]*\"|'[^']*')", dotted))


def named(steps: Steps) -> str:
    """A way in words: ``steps[0].agent.timeout_sec``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _plain(wrong: str) -> str:
    """A sentence of msgspec in the words of TOML."""
    words = {"`": "", "Expected ": "expected ", "str": "text", "int": "an integer", "float": "a number"}
    words |= {"bool": "true or false", "object": "a table", "array": "a list", " | null": "", "Invalid": "invalid"}
    for theirs, ours in words.items():
        wrong = re.sub(rf"\b{theirs}\b", ours, wrong) if theirs.isalpha() else wrong.replace(theirs, ours)
    return wrong.replace("Object missing required field", "it has no").replace(" | ", " or ")


def _choices(kind: Any, steps: Steps) -> list[str]:
    """The words that a value may be, where it is one of a few."""
    for step in steps:
        inner: list[Any] = [hint for hint in (kind, *get_args(kind)) if is_dataclass(hint)]
        kind = _hints(inner[0]).get(str(step)) if inner and not isinstance(step, int) else kind
    literals = [hint for hint in (kind, *get_args(kind)) if get_origin(hint) is Literal]
    return [repr(word) for hint in literals for word in get_args(hint)]


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def unknown_keys(values: Any, kind: Any, steps: Steps = ()) -> list[tuple[Steps, str]]:
    """The keys that a dataclass does not have, and the nearest that it does have, tables inside it included."""
    if isinstance(values, list):
        inner = next((arg for arg in get_args(kind) if arg is not Ellipsis), None)
        return [unknown for at, value in enumerate(values) for unknown in unknown_keys(value, inner, (*steps, at))]
    kind = next((hint for hint in (kind, *get_args(kind)) if is_dataclass(hint)), None)
    if kind is None or not isinstance(values, Mapping):
        return []
    hints, unknown = _hints(kind), []
    for key, value in values.items():
        if key in hints:
            unknown += unknown_keys(value, hints[key], (*steps, key))
        else:
            unknown.append(((*steps, key), next(iter(nearest(key, [field.name for field in fields(kind)], 1)), "")))
    return unknown
