"""Which tasks of a dataset are wanted: by patterns of names, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from calipers.errors import InputError


def select(
    names: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = (), first: int | None = None
) -> list[str]:
    """The names that match any pattern of ``include``, none of ``exclude``, and of those the ``first`` so many.

    No ``include`` stands for all. A pattern has to match a whole name, so ``apple`` is not ``o/apple``
    but ``*apple`` is. InputError when the patterns of ``include`` match nothing at all; what is
    excluded afterwards may be everything.

    >>> select(["apple-1", "apple-2", "beet-2"], ["apple-*", "*-2"], ["apple-2"], first=2)
    ['apple-1', 'beet-2']
    """
    wanted = [name for name in names if not include or _matches(name, include)]
    if include and not wanted:
        raise InputError(_nothing(names, include))
    left = [name for name in wanted if not _matches(name, exclude)]
    return left if first is None else left[:first]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _nothing(names: Sequence[str], patterns: Sequence[str]) -> str:
    wanted = " or ".join(map(repr, patterns))
    if any(_matches(name.rpartition("/")[2], patterns) for name in names):
        hint = f"names here have an organisation before them, as in {names[0]!r}; '*/' before a pattern stands for any"
    elif close := [name for pattern in patterns for name in get_close_matches(pattern, names, 1)]:
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = f"there are {len(names)}, such as {', '.join(map(repr, names[:3]))}" if names else "there are none"
    return f"no task matches {wanted}; {hint}"
