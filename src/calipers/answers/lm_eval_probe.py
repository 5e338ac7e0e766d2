"""A task's patterns, tried out before a run on the texts that patterns explode on.

A pattern with a repetition inside a repetition may take longer than the age of the world to find out that
``aaaaaaaa…!`` does not match. While a run goes, each text has a time limit and its answer is a gap; that every
answer would be one is better said before the first is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from calipers import regexes
from calipers.errors import InputError

TRIED: Final = "aA0 .,_-\n"  # besides the letters and digits of the pattern itself
TIMES: Final = 40  # a doubling each is 2^40 steps
SECONDS: Final = 0.5
LAST: Final = "\0"  # what no pattern expects


def check_ends(pattern: str) -> None:
    """InputError for a pattern that comes to no end on one character many times over; of others nothing is proven.

    >>> check_ends("#### ([0-9]+)")
    >>> check_ends("(a+)+$")
    Traceback (most recent call last):
    ...
    calipers.errors.InputError: pattern '(a+)+$' does not end on 40 times 'a'; expected no repetition in a repetition
    """
    for character in sorted({*TRIED, *filter(str.isalnum, pattern)}):
        try:
            regexes.find_all(pattern, character * TIMES + LAST, limit=SECONDS)
        except regexes.RegexTimeout:
            shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
            wrong = f"pattern {shown!r} does not end on {TIMES} times {character!r}"
            raise InputError(f"{wrong}; expected no repetition in a repetition") from None


def patterns_of(settings: Mapping[str, Any]) -> Iterator[str]:
    """Every pattern among the settings of a filter or a metric, also under ``kwargs``."""
    given = {**settings, **(settings.get("kwargs") or {})}
    several = given.get("regexes_to_ignore") or ()
    for one in (given.get("regex_pattern"), *([several] if isinstance(several, str) else several)):
        if isinstance(one, str):
            yield one
