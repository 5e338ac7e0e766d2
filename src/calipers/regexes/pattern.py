"""A compiled pattern, and what is done with it; nothing here limits time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from calipers.errors import InputError
from calipers.regexes.bound import harmless_up_to

Action = Literal["search", "find_all", "remove", "compile"]

LONGEST: Final = 10_000  # characters of a pattern
KEPT: Final = 10_000  # patterns; a benchmark may have one per task


class BadPattern(InputError, re.error):
    """A pattern that cannot be compiled; also the class of error that `re` raises for one."""

    def __init__(self, pattern: str, why: str, position: int | None = None) -> None:
        re.error.__init__(self, why, pattern, position)
        shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
        place = "" if position is None else f" at position {position}"
        self.args = (f"pattern {shown!r}: {why}{place}; expected a regular expression of Python's re",)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pattern, and the length of the longest text on which it may run without a watch."""

    pattern: re.Pattern[str]
    harmless: int


_kept: dict[tuple[str, bool], Compiled] = {}


def known(pattern: str, ignore_case: bool) -> Compiled | None:
    """A pattern that was compiled before."""
    return _kept.get((pattern, ignore_case))


def compiled(pattern: str, ignore_case: bool) -> Compiled:
    """A pattern, compiled once; `BadPattern` for what is none."""
    held = _kept.get((pattern, ignore_case))
    if held is None:
        if len(_kept) >= KEPT:
            _kept.clear()
        held = _kept[pattern, ignore_case] = _compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
    return held


def _compile(pattern: str, flags: re.RegexFlag) -> Compiled:
    if len(pattern) > LONGEST:
        raise BadPattern(pattern, f"it has {len(pattern)} characters, {LONGEST} are the most")
    try:
        return Compiled(re.compile(pattern, flags), harmless_up_to(pattern, flags))
    except re.error as error:
        raise BadPattern(pattern, error.msg, error.pos) from None
    except RecursionError:
        raise BadPattern(pattern, "it is nested too deeply") from None
    except (OverflowError, Warning) as error:  # a warning, where the user made errors of them
        raise BadPattern(pattern, str(error)) from None


def attempt(action: Action, pattern: str, ignore_case: bool, text: str) -> Any:
    """Compile a pattern, if need be, and apply it."""
    return apply(action, compiled(pattern, ignore_case), text)


def apply(action: Action, held: Compiled, text: str) -> Any:
    """The spans of the first match or None; the list of all matches; the text without them; nothing."""
    if action == "search":
        match = held.pattern.search(text)
        return None if match is None else match.regs
    if action == "remove":
        return held.pattern.sub("", text)
    return held.pattern.findall(text) if action == "find_all" else None
