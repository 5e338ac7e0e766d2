"""Templates of strangers: Jinja in a sandbox that can neither reach out, nor grow, nor go on for ever.

Jinja's own sandbox keeps a template from Python's insides and from changing what it is given. Here every
way to make a long text out of a short one is measured before it is taken, and rendering has a time limit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from time import monotonic
from types import FrameType
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateRuntimeError, TemplateSyntaxError, UndefinedError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from calipers.errors import InputError
from calipers.regexes import BadPattern, RegexTimeout, alarm, search
from calipers.tasks.lm_eval.room import (
    account,
    check_method,
    check_operator,
    finalized,
    guarded,
    joined,
    made,
    replaced,
)

SECONDS: Final = 5.0  # for one rendering


class Endless(Exception):
    """A template that has not ended in time."""


class _Measuring(CodeGenerator):
    """Code of a template in which ``a ~ b``, lists and parts of lists are measured, as all other operators can be."""

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """Write a list as one that is charged."""
        self._made(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """Write a mapping as one that is charged."""
        self._made(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """Write a tuple as one that is charged, where it is a value and no list of names."""
        if node.ctx == "load":
            self._made(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """Write a part of a list or text as one that is charged."""
        if isinstance(node.arg, nodes.Slice):
            self._made(super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def _made(self, write: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.made(")
        write(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write the joining of texts as a call to the environment."""
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Environment(ImmutableSandboxedEnvironment):
    """Where templates are rendered."""

    code_generator_class = _Measuring
    intercepted_binops = frozenset({"*", "**", "+", "%", "-", "/", "//"})
    intercepted_unops = frozenset({"-", "+"})
    concat = staticmethod(joined)  # also of blocks and macros
    made = staticmethod(made)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            finalize=finalized,
            optimized=False,  # else what it makes would be made, and kept, when it is compiled
        )
        self.filters = {name: guarded(name, own) for name, own in FILTERS.items()}
        self.filters["regex_replace"] = regex_replace
        self.globals.pop("lipsum", None)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator gives, if there is room for it."""
        check_operator(operator, left, right)
        return made(super().call_binop(context, operator, left, right), left, right)

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """What a sign before a value gives."""
        return made(super().call_unop(context, operator, arg), arg)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a method gives, if there is room for it."""
        return made(super().call(context, obj, *check_method(obj, args, kwargs), **kwargs), *args)


def regex_replace(value: Any, pattern: str, repl: str, count: int = 0) -> str:
    """Every match of a pattern replaced, as lm-evaluation-harness' filter of that name does; in limited time."""
    text = joined([value])
    if not _alarmed.get():  # an alarm stops a pattern too; without one it is tried elsewhere first
        search(pattern, text, limit=SECONDS)
    try:
        return str(made(replaced(pattern, repl, text, count)))
    except re.error as error:
        raise TemplateRuntimeError(f"pattern {pattern!r}: {error}") from None


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
        with account():
            return joined(compiled(template).generate(columns))
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
