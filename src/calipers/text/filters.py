"""Filters: each takes a response and returns the answer in it, or None if there is none.

A filter has at most one setting, a keyword argument; on the command line it follows an equals sign:
``after_marker=Answer:``. Filters are looked up by name, and chained over many responses at once; patterns that allow it
are searched by Rust's engine.

::

    responses ──► filter ──► filter ──► answers
                  └── None (no answer) and a pattern that ran out of time skip all later filters

The engine in polars runs in linear time, so it needs no time limit; on difficult patterns it is twenty times as fast as
`re`. Both engines agree on the first and last match and on all groups if a pattern has only literals, classes, dots,
groups, branches and repeats; matches at least one character; and repeats nothing that can be empty. ``\\d``, ``\\w``
and ``\\s`` match different characters beyond ASCII in each, so texts that are not ASCII are left to `re`. The pattern
for Rust is written from Python's own parse tree, because the text of the pattern may have another meaning in Rust.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from re import _parser  # type: ignore[attr-defined]  # the tree is not public; patterns with unknown nodes are not plain
from typing import Any, Final

from calipers.errors import InputError, PluginError
from calipers.names import FILTERS
from calipers.text import patterns
from calipers.text.patterns import RegexTimeout

WORTH: Final = 64  # texts; for fewer texts, building a series costs more than it saves
CATEGORIES: Final = {"DIGIT": "0-9", "SPACE": r"\x{9}-\x{D}\x{1C}-\x{20}", "WORD": "0-9A-Z_a-z"}
_SURROGATES: Final = range(0xD800, 0xE000)
NUMBER: Final = re.compile(r"(?<![A-Za-z\d.])-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![A-Za-z\d.])-?\.\d+")
WINDOW: Final = 128  # characters at the end of a text, where the last number usually is


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
    _, opening, content = text.rpartition("\\boxed{")
    depth = 1
    for brace in re.finditer(r"[{}]", content) if opening else ():
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return content[: brace.start()].strip()
    return None


def regex(text: str, *, pattern: str) -> str | None:
    """The first match of a pattern: its first non-empty group, or the whole match if it has no groups.

    None when nothing matches; `calipers.text.patterns.RegexTimeout` when the search takes too long.

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
    # a match that touches the start of the window may be only the end of a number
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


@dataclass(frozen=True, slots=True)
class Plain:
    """A pattern in Rust's syntax."""

    pattern: str
    groups: int  # 0 also if every match is a group itself
    ascii_only: bool  # whether it has \\d, \\w or \\s, so that the engines agree only on ASCII

    def fits(self, text: str) -> bool:
        """Whether the engines agree on this text."""
        return not self.ascii_only or text.isascii()


class _NotPlain(Exception):
    """The pattern has a construct that the two engines may interpret differently."""


@lru_cache(maxsize=1024)
def plain(pattern: str) -> Plain | None:
    """The pattern for Rust; None if it is not plain, or too large for Rust.

    >>> plain("#### (-?[0-9.,]+)").groups, plain("a|b$"), plain("(?i)yes")
    (1, None, None)
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # compiling the pattern with `re` gives the same warnings
            tree = _parser.parse(pattern)
        if tree.state.flags != re.UNICODE or tree.getwidth()[0] < 1:
            return None
        written = "".join(_written(tree))
    except (re.error, RecursionError, OverflowError, _NotPlain):
        return None
    translated = Plain(written, 0 if _is_group(tree) else tree.state.groups - 1, "CATEGORY" in repr(tree.data))
    return translated if _compiles(translated) else None


def first_matches(pattern: Plain, texts: Sequence[str]) -> list[str | None]:
    """The first match in each text, as a whole; None for a text without a match."""
    import polars as pl

    return pl.Series(texts, dtype=pl.String).str.extract(pattern.pattern, 0).to_list()


def answers(pattern: Plain, texts: Sequence[str], *, last: bool) -> list[str | None]:
    """The answer of the first or last match in each text: its first non-empty group, or the match without groups."""
    import polars as pl

    series = pl.Series(texts, dtype=pl.String)
    if last:  # searching the match itself gives the same groups, as a plain pattern never looks beyond its match
        series = series.str.extract_all(pattern.pattern).list.last()
        if not pattern.groups:
            return series.to_list()
    groups = [series.str.extract(pattern.pattern, group).to_list() for group in range(1, pattern.groups + 1)]
    if not groups:
        return series.str.extract(pattern.pattern, 0).to_list()
    if len(groups) == 1:
        return [answer or None for answer in groups[0]]
    return [next(filter(None, row), None) for row in zip(*groups, strict=True)]


def _compiles(pattern: Plain) -> bool:
    import polars as pl

    try:
        pl.Series([""]).str.extract(pattern.pattern, 0)
    except pl.exceptions.ComputeError:  # too large, as a repeat of many repeats
        return False
    return True


def _is_group(tree: Any) -> bool:
    """Whether every match of the pattern is one of its groups, as in ``(a+)`` or ``(a)|(b)``."""
    if len(tree) != 1:
        return False
    op, argument = tree[0]
    if str(op) == "BRANCH":
        return all(map(_is_group, argument[1]))
    return str(op) == "SUBPATTERN" and argument[0] is not None


def _written(nodes: Any) -> Iterator[str]:
    for op, argument in nodes:
        yield _node(str(op), argument)


def _node(op: str, argument: Any) -> str:
    match op:
        case "LITERAL":
            return _character(argument)
        case "NOT_LITERAL":
            return f"[^{_character(argument)}]"
        case "ANY":
            return r"[^\x{A}]"
        case "IN":
            return _class(argument)
        case "SUBPATTERN":
            group, flags_added, flags_removed, body = argument
            if flags_added or flags_removed:
                raise _NotPlain
            return f"({'' if group else '?:'}{''.join(_written(body))})"
        case "BRANCH":
            return f"(?:{'|'.join(''.join(_written(branch)) for branch in argument[1])})"
        case "MAX_REPEAT" | "MIN_REPEAT":
            fewest, most, body = argument
            if body.getwidth()[0] < 1:
                raise _NotPlain
            bounds = f"{{{fewest},{'' if most is _parser.MAXREPEAT else most}}}"
            return f"(?:{''.join(_written(body))}){bounds}{'?' if op == 'MIN_REPEAT' else ''}"
        case _:
            raise _NotPlain


def _class(items: Any) -> str:
    negated = str(items[0][0]) == "NEGATE"
    parts = []
    for op, argument in items[negated:]:
        match str(op):
            case "LITERAL":
                parts.append(_character(argument))
            case "RANGE":
                parts.append(f"{_character(argument[0])}-{_character(argument[1])}")
            case "CATEGORY":
                word = str(argument).removeprefix("CATEGORY_")
                members = CATEGORIES.get(word.removeprefix("NOT_"))
                if members is None:
                    raise _NotPlain
                parts.append(f"[{'^' if word.startswith('NOT_') else ''}{members}]")
            case _:
                raise _NotPlain
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _character(code: int) -> str:
    if code in _SURROGATES:
        raise _NotPlain
    return f"\\x{{{code:X}}}"


Answer = str | RegexTimeout | None
"""The answer in a response; None if there is none, the error if a pattern took too long."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter with its setting applied."""

    name: str
    find: Callable[[str], str | None]
    pattern: str | None = None  # the setting of `regex` and `regex_last`

    def over(self, texts: Sequence[str]) -> list[Answer]:
        """The answer in each text."""
        rust = plain(self.pattern) if self.pattern is not None and len(texts) >= WORTH else None
        if rust is None:
            return [self._one(text) for text in texts]
        if rust.ascii_only and not all(map(str.isascii, texts)):
            fit = iter(answers(rust, [text for text in texts if text.isascii()], last=self.name == "regex_last"))
            return [next(fit) if text.isascii() else self._one(text) for text in texts]
        return [*answers(rust, texts, last=self.name == "regex_last")]

    def _one(self, text: str) -> Answer:
        try:
            return self.find(text)
        except RegexTimeout as error:
            return error
        except Exception as error:
            raise PluginError(f"filter {self.name!r} failed: {type(error).__name__}: {error}") from error


def find_filter(written: str) -> Filter:
    """The filter named by ``NAME`` or ``NAME=SETTING``; InputError if it does not exist, or its setting is invalid.

    >>> find_filter("after_marker=Answer:").find("Answer: 4")
    '4'
    """
    name, equals, setting = written.partition("=")
    fn = FILTERS.load(name) if name in FILTERS.entries else FILTERS.plugin(name)
    if fn is None:
        raise FILTERS.unknown(name)
    settings = [p for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if not equals:
        needed = [p.name for p in settings if p.default is p.empty]
        if needed:
            raise InputError.at(f"filter {name!r}", f"no {needed[0]}", f"expected {name}={needed[0].upper()}")
        return Filter(name, fn)
    if not settings:
        raise InputError.at(f"filter {name!r}", f"takes no setting, but got {setting!r}", f"expected {name}")
    if not setting:
        raise InputError.at(f"filter {name!r}", "the setting is empty", f"expected {name}={settings[0].name.upper()}")
    named: dict[str, Any] = {settings[0].name: setting}
    if fn not in (regex, regex_last):
        return Filter(name, partial(fn, **named))
    patterns.check(setting)  # BadPattern is an InputError
    return Filter(name, partial(fn, **named), setting)


def filtered(chain: Sequence[Filter], texts: Sequence[str]) -> list[Answer]:
    """The answer that a chain of filters finds in each text."""
    answers: list[Answer] = list(texts)
    for step in chain:
        found = iter(step.over([text for text in answers if isinstance(text, str)]))
        answers = [next(found) if isinstance(text, str) else text for text in answers]
    return answers
