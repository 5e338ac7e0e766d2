"""The head of a task file: its name, tags and includes, without reading the rest.

A folder of tasks may hold fourteen thousand files. To find one of them only the lines of a few keys are
read as YAML; a file whose lines cannot be told apart so simply is read whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from calipers.errors import InputError
from calipers.tasks.lm_eval.yaml import LARGEST, NEVER_INHERITED, included, load_file
from calipers.tasks.packed import read_up_to

Kind = Literal["task", "group", "class"]

SKIPPED: Final = ("__pycache__", ".ipynb_checkpoints")
_KEYS: Final = re.compile(
    rb"^(task|group|tag|class|include)[ \t]*:(?=[ \t\r\n]).*\n(?:(?:[ \t#-].*)?\r?\n)*", re.MULTILINE
)
_SIMPLE: Final = re.compile(rb"^(?:[\w-]+[ \t]*:|[ \t#-]|\r?$)")


@dataclass(frozen=True, slots=True)
class Head:
    """What a file is, as far as finding it goes."""

    path: Path
    kind: Kind
    name: str
    tags: Sequence[str]


def heads(root: Path) -> Iterator[Head]:
    """Every task and group below a folder, by path; a file that is neither, or is no YAML, is passed over."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if name not in SKIPPED)
        for name in sorted(names):
            if name.endswith((".yaml", ".yml")):
                try:
                    head = head_of(Path(folder) / name)
                except InputError:
                    continue  # as in lm-evaluation-harness: a broken file says so when it is asked for
                if head is not None:
                    yield head


def head_of(path: Path) -> Head | None:
    """The head of a file, its includes counted in; None for a file that is no task and no group."""
    found = _keys(path, set())
    if isinstance(found.get("class"), str) or ("class" in found and "task" in found):
        return Head(path, "class", str(found.get("task", path.stem)), _tags(found))
    if isinstance(found.get("group"), str):
        return Head(path, "group", found["group"], ())
    if isinstance(found.get("task"), str):
        return Head(path, "task", found["task"], _tags(found))
    return None


def _tags(found: dict[str, Any]) -> Sequence[str]:
    tags = found.get("tag")
    return tuple(str(tag) for tag in (tags if isinstance(tags, list) else [tags] if tags else ()))


def _keys(path: Path, reached: set[Path]) -> dict[str, Any]:
    """The few keys of a file and of what it includes."""
    reached.add(path.resolve())
    own = _few(path)
    found: dict[str, Any] = {}
    names = own.pop("include", None)
    for name in names if isinstance(names, list) else [names] if names else ():
        other = path.parent / str(name)
        if other.is_file() and other.resolve() not in reached:
            found |= {key: value for key, value in _keys(other, reached).items() if key != NEVER_INHERITED}
    return found | own


def _few(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            content = read_up_to(stream, LARGEST) + b"\n"
        pieces = b"".join(match[0] for match in _KEYS.finditer(content))
        if all(_SIMPLE.match(line) for line in content.split(b"\n", 50)[:50]):
            found = yaml.load(pieces.replace(b"!function", b""), _Plain) or {}
            return found if isinstance(found, dict) else {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        pass
    whole = load_file(path)
    kept = {key: value for key, value in whole.values.items() if key in ("task", "group", "tag", "class")}
    return {**kept, "include": included(whole)}


_Plain: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
