"""What a metric script says about itself: the block of comments of PEP 723, checked before anything is installed."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

_OPENS, _CLOSES = "# /// script", "# ///"
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][^\x00-\x1f\x7f]{0,999}")  # no option, no path, one line
_CLAUSE: Final = re.compile(r"\s*(===|==|!=|~=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")
_HERE: Final = (*sys.version_info[:3],)


class Unusable(Exception):
    """A declaration that cannot be honoured here; its text says why, and what would be right."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a script needs: packages, and the day after which none may have been published."""

    dependencies: tuple[str, ...] = ()
    exclude_newer: str | None = None


def declared(source: bytes) -> Declaration:
    """The declaration in a script; an empty one when it has none, `Unusable` for one that cannot be honoured.

    >>> declared(b"# /// script\\n# dependencies = ['numpy>=2']\\n# ///\\n").dependencies
    ('numpy>=2',)
    """
    try:
        lines = [line.removesuffix("\r") for line in source.decode().split("\n")]
    except UnicodeDecodeError:
        raise Unusable("it is no text; expected Python in UTF-8") from None
    starts = [number for number, line in enumerate(lines) if line == _OPENS]
    if len(starts) > 1:
        raise Unusable(f"it has {len(starts)} blocks {_OPENS!r}; expected one")
    if not starts:
        return Declaration()
    try:
        table = tomllib.loads("\n".join(_block(lines[starts[0] + 1 :])))
    except tomllib.TOMLDecodeError as error:
        raise Unusable(f"its block {_OPENS!r} is no TOML: {error}") from None
    _check_python(table.get("requires-python", ""))
    return Declaration(_dependencies(table.get("dependencies", [])), _exclude_newer(table))


def _block(lines: list[str]) -> list[str]:
    """The lines of a block without their marks; of several that could close it, the last does."""
    inside = list(takewhile(lambda line: line == "#" or line.startswith("# "), lines))
    if _CLOSES not in inside:
        raise Unusable(f"its block {_OPENS!r} does not end; expected the line {_CLOSES!r}")
    last = len(inside) - 1 - inside[::-1].index(_CLOSES)
    return [line[2:] for line in inside[:last]]


def _dependencies(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Unusable("its dependencies are no list of texts; expected one such as ['numpy>=2']")
    for one in given:
        if not _REQUIREMENT.fullmatch(one):
            raise Unusable(f"its dependency {one[:80]!r} cannot be read; expected one such as 'numpy>=2'")
    return tuple(sorted(set(given)))


def _exclude_newer(table: dict[str, Any]) -> str | None:
    """The only setting of uv that is honoured; others would decide where code comes from."""
    tool = table.get("tool", {})
    settings = tool.get("uv", {}) if isinstance(tool, dict) else {}
    others = sorted(settings.keys() - {"exclude-newer"}) if isinstance(settings, dict) else ["tool.uv"]
    if others:
        raise Unusable(f"its [tool.uv] sets {others[0]!r}; expected exclude-newer alone")
    newest = settings.get("exclude-newer")
    return None if newest is None else str(newest)


def _check_python(wanted: Any) -> None:
    """Refuse a script that is not for the Python it would run in, which is this one."""
    clauses = [clause for clause in wanted.split(",") if clause.strip()] if isinstance(wanted, str) else [""]
    for clause in clauses:
        found = _CLAUSE.fullmatch(clause)
        if found is None:
            raise Unusable(f"its requires-python is {wanted!r}; expected one such as '>=3.11'")
        if not _holds(found[1], tuple(map(int, found[2].split("."))), found[3] is not None):
            here = ".".join(map(str, _HERE))
            raise Unusable(f"it requires Python {wanted}, and this is {here}; run Calipers in a Python it allows")


def _holds(operator: str, wanted: tuple[int, ...], any_below: bool) -> bool:
    """Whether this Python is such a version, as far as numbers go: 3.11 means 3.11.0, but 3.11.* all of 3.11."""
    if operator == "~=":
        return wanted <= _HERE and _HERE[: len(wanted) - 1] == wanted[:-1]
    head = _HERE[: len(wanted)] if any_below else _HERE
    padded = wanted if any_below else (*wanted, *(0,) * (len(_HERE) - len(wanted)))
    return {
        "===": head == padded,
        "==": head == padded,
        "!=": head != padded,
        "<=": head <= padded,
        ">=": head >= padded,
        "<": head < padded,
        ">": head > padded,
    }[operator]
