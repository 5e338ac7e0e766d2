"""Untrusted regular expressions, with a time limit.

`search`, `find_all` and `remove` give what `re` gives, or `RegexTimeout`. Three ways lead there, the cheapest first:
a pattern whose work on a text of this length is provably small runs as it is (`bound`); on the main thread
an alarm stops all others (`time_limit`); elsewhere, and where the alarm is somebody else's, a process of our own
runs them (`worker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from calipers.errors import CalipersError
from calipers.text.patterns.pattern import AT_MOST, Action, BadPattern, apply, attempt, compiled, known
from calipers.time_limit import Rang, Unavailable, within

__all__ = ["LIMIT", "BadPattern", "Found", "RegexTimeout", "check", "find_all", "remove", "search"]

LIMIT: Final = 1.0  # seconds for one text


class RegexTimeout(CalipersError):
    """A pattern that came to no end within its limit: there is neither a match nor none."""


@dataclass(frozen=True, slots=True)
class Found:
    """A match: the text it was found in, and where it and its groups are."""

    text: str
    spans: tuple[tuple[int, int], ...]  # the whole match, then group by group; (-1, -1): no part in the match

    def __getitem__(self, group: int) -> str | None:
        """The text of a group, 0 for the whole match; None for one that has no part in it."""
        start, end = self.spans[group]
        return None if start < 0 else self.text[start:end]

    def groups(self) -> tuple[str | None, ...]:
        """The text of every group; the whole match is none."""
        return tuple(self[group] for group in range(1, len(self.spans)))


def search(pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT) -> Found | None:
    """The first match in a text, as `re.search` finds it; None when there is none.

    >>> search(r"(\\d+) apples", "no, 12 apples")[1]
    '12'
    >>> search("(a+)+$", "a" * 40 + "!", limit=0.05)
    Traceback (most recent call last):
    ...
    calipers.text.patterns.RegexTimeout: pattern '(a+)+$' took longer than 0.05 s on a text of 41 characters
    """
    spans = _run("search", pattern, text, ignore_case, limit)
    return None if spans is None else Found(text, spans)


def find_all(
    pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT
) -> list[str] | list[tuple[str, ...]]:
    """Every match, as `re.findall` lists them: texts, or tuples where the pattern has several groups.

    >>> find_all("([a-z])=([0-9])", "a=1, b=2")
    [('a', '1'), ('b', '2')]
    """
    matches: list[str] | list[tuple[str, ...]] = _run("find_all", pattern, text, ignore_case, limit)
    return matches


def remove(pattern: str, text: str, *, ignore_case: bool = False, limit: float = LIMIT) -> str:
    """The text without any of the matches, as ``re.sub(pattern, "", text)`` leaves it.

    >>> remove(r"[,$]", "$1,200")
    '1200'
    """
    left: str = _run("remove", pattern, text, ignore_case, limit)
    return left


def check(pattern: str, *, ignore_case: bool = False, limit: float = LIMIT) -> None:
    """Nothing for a pattern that can be used; else `BadPattern`, or `RegexTimeout` where reading it takes too long."""
    _run("compile", pattern, "", ignore_case, limit)


def _run(action: Action, pattern: str, text: str, ignore_case: bool, limit: float) -> Any:
    compiled = known(pattern, ignore_case)
    if compiled is not None and len(text) <= compiled.harmless and limit >= AT_MOST:
        return apply(action, compiled, text)
    try:
        return within(limit, partial(attempt, action, pattern, ignore_case, text))
    except Unavailable:
        return _elsewhere(action, pattern, text, ignore_case, limit)
    except Rang:
        raise _timeout(pattern, text, limit) from None


def _elsewhere(action: Action, pattern: str, text: str, ignore_case: bool, limit: float) -> Any:
    from calipers.text.patterns.worker import WORKER

    kind, answer = WORKER.ask([action, pattern, ignore_case, text], limit)
    if kind == "bad":
        raise BadPattern(pattern, *answer)
    if kind == "timeout":
        raise _timeout(pattern, text, limit)
    if kind == "died":
        raise RegexTimeout(
            f"pattern {pattern!r} crashed the process that matched it against a text of {len(text)} characters"
        )
    compiled(pattern, ignore_case)  # there it was done in time, so it will be here; next time the bound is known
    if isinstance(answer, list) and (action == "search" or (answer and isinstance(answer[0], list))):
        shaped = map(tuple, answer)  # JSON has no tuples
        return tuple(shaped) if action == "search" else list(shaped)
    return answer


def _timeout(pattern: str, text: str, limit: float) -> RegexTimeout:
    shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
    return RegexTimeout(f"pattern {shown!r} took longer than {limit:g} s on a text of {len(text)} characters")
