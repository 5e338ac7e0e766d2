"""Filters: each takes a response and returns the answer in it, or None if there is none.

A filter takes at most one setting, by name; on the command line it follows an equals sign:
``after_marker=Answer:``. `filters` finds them by name and chains them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from calipers.text import patterns

NUMBER: Final = re.compile(r"(?<![A-Za-z\d.])-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![A-Za-z\d.])-?\.\d+")
WINDOW: Final = 128  # characters at the end of a text; most texts that hold a number have their last one there


def after_marker(text: str, *, marker: str = "####") -> str | None:
    """The text after the last marker, trimmed; None when there is no marker.

    >>> after_marker("3 + 4 = 7 #### 7"), after_marker("7")
    ('7', None)
    """
    _, separator, answer = text.rpartition(marker)
    return answer.strip() if separator else None


def tag(text: str, *, name: str = "answer") -> str | None:
    """The content of the last ``<name>...</name>``, trimmed; None when there is no such pair.

    >>> tag("<think>4?</think> <answer> 5 </answer>")
    '5'
    """
    before, closing, _ = text.rpartition(f"</{name}>")
    _, opened, answer = before.rpartition(f"<{name}>")
    return answer.strip() if closing and opened else None


def boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}``, with nested braces; None when there is none that closes.

    >>> boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    _, opening, rest = text.rpartition("\\boxed{")
    depth = 1
    for brace in re.finditer(r"[{}]", rest) if opening else ():
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return rest[: brace.start()].strip()
    return None


def regex(text: str, *, pattern: str) -> str | None:
    """The first match of a pattern: its first non-empty group, or the whole match if it has no groups.

    None when nothing matches; `regexes.RegexTimeout` when that cannot be known in time.

    >>> regex("The answer is (B), not (C).", pattern=r"\\(([A-D])\\)")
    'B'
    """
    match = patterns.search(pattern, text)
    if match is None:
        return None
    groups = match.groups()
    return (next(filter(None, groups), None) if groups else match[0]) or None


def regex_last(text: str, *, pattern: str) -> str | None:
    """Like `regex`, but the last match.

    >>> regex_last("The answer is (B), not (C).", pattern=r"\\(([A-D])\\)")
    'C'
    """
    matches: Any = patterns.find_all(pattern, text)
    if not matches:
        return None
    return (matches[-1] if isinstance(matches[-1], str) else next(filter(None, matches[-1]), None)) or None


def last_number(text: str) -> str | None:
    """The last number, without thousands separators; None when there is no number.

    Digits that follow a letter, as in ``x2``, are part of a name. A full stop after a number is not part of it.

    >>> last_number("It is 3 x 411 = $1,233."), last_number("x2")
    ('1233', None)
    """
    start = len(text) - WINDOW
    number = _last(text, start) if start > 0 else None
    # what reaches into the window from before it may be half of a number
    if number is None or not text[start : number.start()].strip("0123456789.,-"):
        number = _last(text, 0)
    return number[0].replace(",", "") if number else None


def _last(text: str, start: int) -> re.Match[str] | None:
    match = None
    for match in NUMBER.finditer(text, start):  # noqa: B007
        pass
    return match


def json_key(text: str, *, key: str = "answer") -> str | None:
    """The value of a key of the JSON object in the text; None when there is no such object, or no such key.

    The object is the whole text, or the part from its first ``{`` to its last ``}``. A value that is not text
    is returned as JSON; null counts as no value.

    >>> json_key('Here you are: {"answer": [1, 2]}'), json_key('{"result": 3}', key="result"), json_key("3")
    ('[1, 2]', '3', None)
    """
    inner = text[text.find("{") : text.rfind("}") + 1]
    try:
        parsed = json.loads(inner)
    except (ValueError, RecursionError):
        return None
    value = parsed.get(key) if isinstance(parsed, dict) else None
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def first_line(text: str) -> str | None:
    """The first line that is not blank, trimmed; None when there is none."""
    return next(filter(None, map(str.strip, text.splitlines())), None)


def last_line(text: str) -> str | None:
    """The last line that is not blank, trimmed; None when there is none."""
    return next(filter(None, map(str.strip, reversed(text.splitlines()))), None)


def strip(text: str) -> str | None:
    """The text without leading and trailing white space."""
    return text.strip()


def lower(text: str) -> str | None:
    """The text in lower case."""
    return text.lower()
