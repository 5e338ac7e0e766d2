"""Templates of strangers: Jinja in a sandbox that can neither reach out, nor grow, nor go on for ever.

Jinja's own sandbox keeps a template from Python's insides and from changing what it is given. Here every
way to make a long text out of a short one is measured before it is taken, and rendering has a time limit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sized
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from time import monotonic
from types import FrameType
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateRuntimeError, TemplateSyntaxError, UndefinedError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from calipers.errors import InputError
from calipers.regexes import BadPattern, RegexTimeout, alarm, search

LONGEST: Final = 16 << 20  # characters of a text, entries of a list
SECONDS: Final = 5.0  # for one rendering
MOST_BITS: Final = 1 << 16  # of a whole number
_WIDTH: Final = re.compile(r"\d{6,}|\*")  # a width in a format that nobody means
_PADDING: Final = ("center", "ljust", "rjust", "zfill", "expandtabs")


class TooLong(SecurityError):
    """A template that would make more than there is room for."""


class Endless(Exception):
    """A template that has not ended in time."""


class _Measuring(CodeGenerator):
    """Code of a template in which ``a ~ b`` is measured, as all other operators can be."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write the joining of texts as a call to the environment."""
        self.write("environment.concat([str(one) for one in (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")])")


class Environment(ImmutableSandboxedEnvironment):
    """Where templates are rendered."""

    code_generator_class = _Measuring
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True)
        self.filters |= {name: partial(_measured, name, FILTERS[name]) for name in ("center", "indent", "format")}
        self.filters |= {name: partial(_counted, name, FILTERS[name]) for name in ("batch", "slice")}
        self.filters |= {"replace": _replace, "join": _join, "regex_replace": regex_replace}
        self.globals.pop("lipsum", None)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """The parts as one text, if there is room for it."""
        found, length = [], 0
        for part in parts:
            length += len(part)
            room(length)
            found.append(part)
        return "".join(found)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator gives, if there is room for it."""
        if operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, Sized) and isinstance(times, int):
                    room(len(one) * max(times, 0))
            if isinstance(left, int) and isinstance(right, int):
                bits(left.bit_length() + right.bit_length())
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            bits(left.bit_length() * max(right, 0))
        elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            room(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            width(left)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a method gives, if there is room for it."""
        inner = getattr(obj, "__wrapped__", obj)  # the sandbox has a wrapper of its own around format
        owner, name = getattr(inner, "__self__", None), getattr(inner, "__name__", "")
        if isinstance(owner, (str, bytes)):
            if name in _PADDING:
                for one in (*args, *kwargs.values()):
                    room(one * (len(owner) + 1 if name == "expandtabs" else 1) if isinstance(one, int) else 0)
            elif name == "replace" and len(args) >= 2 and isinstance(args[1], Sized):
                room(len(owner) + (len(owner) + 1) * len(args[1]))
            elif name == "join":
                parts = list(args[0]) if args else []
                room(sum(len(one) + len(owner) for one in parts if isinstance(one, Sized)))
                args = (parts, *args[1:])
            elif name in ("format", "format_map") and isinstance(owner, str):
                width(owner)
        return super().call(context, obj, *args, **kwargs)


def room(length: int) -> None:
    """Refuse a text or list that is longer than any prompt."""
    if length > LONGEST:
        raise TooLong(f"it makes a text of {length} characters; {LONGEST} are the most")


def bits(length: int) -> None:
    """Refuse a whole number that nobody could write down."""
    if length > MOST_BITS:
        raise TooLong(f"it makes a number of {length} bits; {MOST_BITS} are the most")


def width(text: str) -> None:
    """Refuse a format whose width alone makes a long text."""
    if _WIDTH.search(text):
        raise TooLong("its format asks for a width of a hundred thousand or more")


def _measured(name: str, own: Callable[..., Any], value: Any, *args: Any, **kwargs: Any) -> Any:
    if name == "format":
        width(str(value))
    lines = str(value).count("\n") + 1 if name == "indent" else 1
    for one in (*args, *kwargs.values()):
        room(one * lines if isinstance(one, int) else len(one) * lines if isinstance(one, str) else 0)
    return own(value, *args, **kwargs)


def _counted(name: str, own: Callable[..., Any], value: Any, count: int, *args: Any, **kwargs: Any) -> Any:
    room(int(count) * 8)
    return own(value, count, *args, **kwargs)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text, other = str(value), str(new)
    room(len(text) + (text.count(str(old)) if old else len(text) + 1) * len(other))
    return text.replace(str(old), other, -1 if count is None else count)


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    parts = [str(one[attribute] if attribute is not None else one) for one in value]
    room(sum(map(len, parts)) + len(d) * len(parts))
    return str(d).join(parts)


def regex_replace(value: Any, pattern: str, repl: str, count: int = 0) -> str:
    """Every match of a pattern replaced, as lm-evaluation-harness' filter of that name does; in limited time."""
    text = str(value)
    if not _alarmed.get():  # an alarm stops a pattern too; without one it is tried elsewhere first
        search(pattern, text, limit=SECONDS)
    try:
        found = re.sub(pattern, repl, text, count=count)
    except re.error as error:
        raise TemplateRuntimeError(f"pattern {pattern!r}: {error}") from None
    room(len(found))
    return found


_alarmed: ContextVar[bool] = ContextVar("alarmed", default=False)  # whether an alarm ends what runs now


@cache
def _environment() -> Environment:
    return Environment()


@lru_cache(1024)
def compiled(template: str) -> Template:
    """A template, compiled once."""
    return _environment().from_string(template)


def render(template: str, columns: dict[str, Any], place: str) -> str:
    """The template's text for a document; InputError says what is wrong with it, and where it stands."""
    try:
        try:
            return alarm.within(SECONDS, partial(_within_room, template, columns, True))
        except alarm.Unavailable:
            return _watched(SECONDS, partial(_within_room, template, columns, False))
    except (alarm.Rang, Endless, RegexTimeout):
        wrong = f"the template does not end within {SECONDS:g} s"
        raise InputError.at(place, wrong, "expected one that prints a prompt") from None
    except TemplateSyntaxError as error:
        raise InputError.at(place, f"line {error.lineno} of the template: {error.message}") from None
    except UndefinedError as error:
        raise InputError.at(place, f"the template fails: {error}", _columns(columns)) from None
    except (TemplateError, BadPattern) as error:
        raise InputError.at(place, f"the template fails: {error}") from None
    except (RecursionError, MemoryError) as error:
        raise InputError.at(place, f"the template fails: {type(error).__name__}") from None
    except Exception as error:  # whatever an expression of a stranger can raise: a list has no such index
        raise InputError.at(place, f"the template fails: {type(error).__name__}: {error}") from None


def _within_room(template: str, columns: dict[str, Any], alarmed: bool) -> str:
    before = _alarmed.set(alarmed)
    try:
        return Environment.concat(compiled(template).generate(columns))
    finally:
        _alarmed.reset(before)


def _columns(columns: dict[str, Any]) -> str:
    return f"the document has {', '.join(map(str, columns)) or 'no columns'}"


def _watched(seconds: float, call: Callable[[], str]) -> str:
    """The same away from the main thread, where there is no alarm: every line looks at the clock."""
    end, before = monotonic() + seconds, sys.gettrace()

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        if monotonic() > end:
            raise Endless
        return look

    sys.settrace(look)
    try:
        return call()
    finally:
        sys.settrace(before)
