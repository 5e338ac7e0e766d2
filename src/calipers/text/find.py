"""Filters by name, in a row, over many responses at once.

::

    responses ──► filter ──► filter ──► answers
                  └── None, no answer, passes every later filter by; so does a pattern that ran out of time
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from calipers.errors import InputError, PluginError
from calipers.names import FILTERS
from calipers.text import extract, patterns
from calipers.text.filters import WORTH, answers, plain
from calipers.text.patterns import RegexTimeout

Answer = str | RegexTimeout | None
"""What was meant; None when there is no answer, the error when a pattern took too long to tell."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter, its setting decided."""

    name: str
    find: Callable[[str], str | None]
    pattern: str | None = None  # of `regex` and `regex_last`

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
    """The filter that ``NAME`` or ``NAME=SETTING`` asks for; InputError when there is none, or its setting is wrong.

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
        raise InputError.at(f"filter {name!r}", "its setting is empty", f"expected {name}={settings[0].name.upper()}")
    named: dict[str, Any] = {settings[0].name: setting}
    if fn not in (extract.regex, extract.regex_last):
        return Filter(name, partial(fn, **named))
    patterns.check(setting)  # BadPattern is an InputError
    return Filter(name, partial(fn, **named), setting)


def filtered(chain: Sequence[Filter], texts: Sequence[str]) -> list[Answer]:
    """The answers that a row of filters finds."""
    answers: list[Answer] = list(texts)
    for link in chain:
        live = [text for text in answers if isinstance(text, str)]
        each = iter(link.over(live))
        answers = [next(each) if isinstance(text, str) else text for text in answers]
    return answers
