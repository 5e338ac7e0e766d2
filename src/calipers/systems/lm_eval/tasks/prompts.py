"""Prompts: templates rendered in a sandbox, what a field of a task means for a document, and the turns of a prompt.

Templates come from strangers. Jinja's own sandbox keeps one from Python's insides and from changing what it is given.
Here every way to make a long text out of a short one is measured before it is taken, and rendering has a time limit.

A field is a column, a template, a literal, or what a function returns. A text that is the name of a column means its
cell, in the cell's own type. Any other text is a template.

A prompt is written as one text, or as the turns of a chat, exactly as lm-evaluation-harness writes them::

    system instruction and description ── question ── answer ── question ── answer ── question ── how it begins
    text                                  one after another, each with its delimiter
    chat, several turns    [system]       [user]      [assistant] ...                 [user]      [assistant]
    chat, one turn         [system]       [user: all examples and the question]                   [assistant]

An answer's beginning, ``gen_prefix``, is a turn of the assistant that the model goes on with.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache, partial, wraps
from time import monotonic
from types import FrameType
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateRuntimeError, TemplateSyntaxError, UndefinedError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from calipers.errors import CalipersError, InputError, PluginError
from calipers.systems.lm_eval.tasks.task_file import Function, refuse_untrusted, shown
from calipers.tasks import Message, Prompt
from calipers.text.patterns import BadPattern, RegexTimeout, search
from calipers.time_limit import Rang, Unavailable, within

LONGEST: Final = 16 << 20  # characters of a text, entries of a list
TOTAL: Final = 256 << 20  # bytes of all values that one rendering makes
MOST_BITS: Final = 1 << 16  # of a whole number
_WIDTH: Final = re.compile(r"\d{6,}|\*")  # a width in a format that nobody means
_PADDING: Final = ("center", "ljust", "rjust", "zfill", "expandtabs")
_WIDE: Final = ("batch", "center", "indent", "slice", "tojson", "truncate", "wordwrap")  # a number makes them longer
_ENTRY: Final = 32  # bytes of a small value, such as a number, in a list
_SPLITTING: Final = ("split", "rsplit", "splitlines")
_LISTING: Final = ("batch", "list", "slice", "sort", "unique")  # make lists of letters out of a text
_left: ContextVar[list[int] | None] = ContextVar("left", default=None)  # bytes
_HELD: Final = (str, bytes, list, tuple, dict, set, frozenset)


class TooLong(SecurityError):
    """A template that would make more than there is room for."""


def room(length: int) -> None:
    """Refuse a text or list that is longer than any prompt."""
    if length > LONGEST:
        raise TooLong(f"it makes a text of {length} characters or more; the maximum is {LONGEST}")


@contextmanager
def account() -> Iterator[None]:
    """What is made meanwhile is charged to one account of `TOTAL` bytes."""
    before = _left.set([TOTAL])
    try:
        yield
    finally:
        _left.reset(before)


def spend(amount: int) -> None:
    """Charge so many bytes; TooLong where that is more than is left."""
    left = _left.get()
    if left is not None:
        left[0] -= amount
        if left[0] < 0:
            raise TooLong(f"it makes values of more than {TOTAL >> 20} MiB in all")


def made(value: Any, *sources: Any) -> Any:
    """The value, charged unless it is one of those that it was made of."""
    if not any(value is source for source in sources):
        if isinstance(value, (list, tuple)):
            spend(sys.getsizeof(value) + _ENTRY * len(value))
        elif not isinstance(value, (bool, float, type(None))):
            spend(sys.getsizeof(value))
    return value


def charged(parts: Iterator[Any]) -> Iterator[Any]:
    """The parts as a filter makes them, each charged."""
    for part in parts:
        yield made(part)


def bits(length: int) -> None:
    """Refuse a whole number that nobody could write down."""
    if length > MOST_BITS:
        raise TooLong(f"it makes a number of {length} bits; the maximum is {MOST_BITS}")


def size(value: Any) -> int:
    """How long the text of a value is, about; counted no further than there is room.

    A list that holds another one a thousand times counts it a thousand times, as its text would.
    """
    total, rest = 0, [value]
    while rest and total <= LONGEST:
        item = rest.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, _HELD):
            total += 2 + 2 * len(item)
            if total <= LONGEST:
                rest += [*item, *item.values()] if isinstance(item, dict) else item
        else:
            total += 1
    return total


def measured(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts as they come, as long as there is room for all of them."""
    total = 0
    for part in parts:
        total += size(part)
        room(total)
        yield part


def joined(parts: Iterable[Any]) -> str:
    """The parts as one text, if there is room for it."""
    text: str = made("".join(part if isinstance(part, str) else made(str(part)) for part in measured(parts)))
    return text


def finalized(value: Any) -> Any:
    """A value that is about to be printed, if there is room for its text."""
    if not isinstance(value, str):
        room(size(value))
    return value


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse what an operator would make of two values where there is no room for it."""
    if operator == "*":
        for sized, times in ((left, right), (right, left)):
            if isinstance(sized, Sized) and isinstance(times, int):
                room(len(sized) * max(times, 0))
        if isinstance(left, int) and isinstance(right, int):
            bits(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        bits(left.bit_length() * max(right, 0))
    elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
        room(len(left) + len(right))
    elif operator == "%" and isinstance(left, str):
        _check_format(left, "%", right)


def check_method(method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a method, if there is room for what it makes of them."""
    inner = getattr(method, "__wrapped__", method)  # the sandbox has a wrapper of its own around format
    owner, name = getattr(inner, "__self__", None), getattr(inner, "__name__", "")
    given = (*args, *kwargs.values())
    if name == "to_bytes":
        room(max((value for value in given if isinstance(value, int)), default=0))
    if not isinstance(owner, (str, bytes)):
        return args
    if name in _PADDING:
        times = len(owner) + 1 if name == "expandtabs" else 1
        room(max((value * times for value in given if isinstance(value, int)), default=0))
    elif name == "replace" and len(args) >= 2 and isinstance(args[1], (str, bytes)):
        _check_replace(owner, args[0], args[1])
    elif name in _SPLITTING:
        _check_split(owner, args)
    elif name == "join" and args:
        parts = list(measured(args[0]))
        room(size(parts) + len(owner) * len(parts))
        return (parts, *args[1:])
    elif name in ("format", "format_map"):
        _check_format(str(owner), "{", given)
    return args


def guarded(name: str, jinja_filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of Jinja's that is called only where there is room for what it makes."""

    @wraps(jinja_filter)  # and with the mark by which Jinja knows to hand it the environment
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(measured(value) if isinstance(value, Iterator) else value for value in args)
        if name == "join":
            args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, (int, *_HELD))]
        texts = [value for value in given if isinstance(value, _HELD)]
        whole = sum(map(size, texts))
        room(whole)
        lines = str(texts[0]).count("\n") + 1 if texts else 1
        if name in _WIDE:
            room(max((value * lines for value in given if isinstance(value, int)), default=0))
            room(max((len(value) for value in texts[1:]), default=0) * (len(texts[0]) if texts else 0))
        if name == "replace" and len(texts) >= 3:
            _check_replace(str(texts[0]), str(texts[1]), str(texts[2]))
        if name == "join" and texts:
            room(whole + max((len(value) for value in texts[1:]), default=0) * len(texts[0]))
        if name == "format" and texts:
            _check_format(str(texts[0]), "%", given[1:])
        if name in _LISTING:
            spend(3 * _ENTRY * max((len(value) for value in args if isinstance(value, (str, bytes, range))), default=0))
        result = jinja_filter(*args, **kwargs)
        return charged(result) if isinstance(result, Iterator) else made(result, *args)

    return call


def replaced(pattern: str, repl: str, text: str, count: int) -> str:
    """``re.sub``, if there is room for what it makes."""
    total = len(text)

    def one(match: re.Match[str]) -> str:
        nonlocal total
        made = match.expand(repl)
        total += len(made)
        room(total)
        return made

    return re.sub(pattern, one, text, count=count)


def _check_replace(text: Any, old: Any, new: Any) -> None:
    times = text.count(old) if isinstance(old, type(text)) and old else len(text) + 1
    room(len(text) + times * len(new))


def _check_split(text: str | bytes, args: Sequence[Any]) -> None:
    """Charge the pieces of a text before there are any: each takes room of its own, however short."""
    signs: tuple[Any, ...] = (" ", "\t", "\n", "\r")
    if args and isinstance(args[0], type(text)) and args[0]:
        signs = (args[0],)
    elif isinstance(text, bytes):
        signs = (b" ", b"\t", b"\n", b"\r")
    spend((1 + sum(map(text.count, signs))) * 3 * _ENTRY)


def _check_format(form: str, sign: str, given: Any) -> None:
    """Refuse a format whose width alone makes a long text, or that repeats one."""
    if _WIDTH.search(form):
        raise TooLong("its format has a width of a hundred thousand or more")
    room(len(form) + form.count(sign) * size(given))


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


class BoundedEnvironment(ImmutableSandboxedEnvironment):
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
        self.filters = {name: guarded(name, jinja_filter) for name, jinja_filter in FILTERS.items()}
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
def _environment() -> BoundedEnvironment:
    return BoundedEnvironment()


@lru_cache(1024)
def compiled(template: str) -> Template:
    """A template, compiled once."""
    return _environment().from_string(template)


def render(template: str, columns: dict[str, Any], location: str) -> str:
    """The template's text for a document; InputError says what is wrong with it, and where it stands."""
    try:
        try:
            return within(SECONDS, partial(_within_room, template, columns, True))
        except Unavailable:
            return _watched(SECONDS, partial(_within_room, template, columns, False))
    except (Rang, Endless, RegexTimeout):
        wrong = f"the template does not finish within {SECONDS:g} s"
        raise InputError.at(location, wrong, "expected a template that prints a prompt") from None
    except TemplateSyntaxError as error:
        raise InputError.at(location, f"line {error.lineno} of the template: {error.message}") from None
    except UndefinedError as error:
        raise InputError.at(location, f"the template fails: {error}", _columns(columns)) from None
    except (TemplateError, BadPattern) as error:
        raise InputError.at(location, f"the template fails: {error}") from None
    except (RecursionError, MemoryError) as error:
        raise InputError.at(location, f"the template fails: {type(error).__name__}") from None
    except Exception as error:  # whatever an expression of a stranger can raise: a list has no such index
        raise InputError.at(location, f"the template fails: {type(error).__name__}: {error}") from None


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


Doc = Mapping[str, Any]


def text_of(value: Any, doc: Doc, columns: Collection[str], location: str, *, choices: bool = False) -> Any:
    """``doc_to_text``: a text, or an integer where it points at one of the choices.

    >>> text_of("{{n}}", {"n": 1}, ["n"], "here", choices=True)
    1
    """
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        if value in columns:
            return cell(doc, value, location)
        text = render(value, dict(doc), location)
        return _integer(text, location) if text.isdigit() and choices else text
    return unboxed(called(value, doc, location))


def target_of(value: Any, doc: Doc, columns: Collection[str], location: str, *, choices: bool = False) -> Any:
    """``doc_to_target``: a text, the index of a choice, or a list of targets that all count.

    >>> target_of("{{[a, a]}}", {"a": "x"}, ["a"], "here")
    ['x', 'x']
    """
    if isinstance(value, (int, list)):
        return value
    if isinstance(value, str):
        if value in columns:
            return cell(doc, value, location)
        text = render(value, dict(doc), location)
        if text.isdigit() and choices:
            return _integer(text, location)
        if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
            return _literal(text, text)
        return text
    return unboxed(called(value, doc, location))


def choices_of(value: Any, doc: Doc, columns: Collection[str], location: str) -> list[Any]:
    """``doc_to_choice``: the choices in their order; a list in the file is taken as it is, not rendered."""
    if isinstance(value, Mapping):
        return list(value.values())
    choices = value
    if isinstance(value, str):
        if value in columns:
            choices = cell(doc, value, location)
        else:
            text = render(value, dict(doc), location)
            choices = _literal(text, None)
            if choices is None:
                raise InputError.at(location, f"renders to {shown(text)}", "expected a list, such as ['yes', 'no']")
    elif not isinstance(value, list):
        choices = called(value, doc, location)
    if isinstance(choices, tuple):
        choices = list(choices)
    if not isinstance(choices, list):
        raise InputError.at(location, f"is {shown(choices)}", "expected a list of choices")
    return choices


def field_of(value: str | None, doc: Doc, location: str) -> str | None:
    """``description`` and ``gen_prefix``: a column or a template; None for nothing."""
    if not value:
        return None
    return cell(doc, value, location) if value in doc else render(value, dict(doc), location)


def cell(doc: Doc, column: str, location: str) -> Any:
    """A cell of a document."""
    if column not in doc:
        raise InputError.at(location, f"the document has no column {column!r}", f"it has {', '.join(map(str, doc))}")
    return doc[column]


def called(function: Any, *arguments: Any) -> Any:
    """What a task's own function returns; PluginError names it where it fails. The last argument is the place."""
    *given, location = arguments
    if isinstance(function, Function):
        refuse_untrusted(function, location)
    if not callable(function):
        raise InputError.at(location, f"is {shown(function)}", "expected a column, a template or a function")
    try:
        return function(*given)
    except CalipersError:
        raise
    except Exception as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise PluginError(f"{location}: {name} failed: {type(error).__name__}: {error}") from error


def unboxed(value: Any) -> Any:
    """A number of numpy's as Python's own, also inside a list; anything else as it is.

    >>> import numpy
    >>> unboxed(numpy.int32(1)), unboxed([numpy.bool_(True)]), unboxed("1")
    (1, [True], '1')
    """
    if isinstance(value, list):
        return [unboxed(item) for item in value]
    alone = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if alone else value


def _integer(text: str, location: str) -> int:
    number = _literal(text, None)  # "²" and "007" are digits, and no integers
    if not isinstance(number, int):
        raise InputError.at(location, f"renders to {shown(text)}", "expected the index of a choice")
    return number


def _literal(text: str, otherwise: Any) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return otherwise


@dataclass(frozen=True, slots=True)
class Manner:
    """How the prompts of a task are written."""

    chat: bool = False  # as turns, for a chat template or a chat server
    multiturn: bool = True  # in a chat, each example is turns of its own
    system: str | None = None  # words before the description


PLAIN: Final = Manner()


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A part of a prompt: who says it, and what parts it from the next one where all is one text."""

    role: str
    content: str
    delimiter: str = ""

    @property
    def message(self) -> Message:
        """It as a turn of a chat."""
        return {"role": self.role, "content": self.content}


def prompt(turns: Sequence[ChatTurn], manner: Manner) -> Prompt:
    """The turns as they are sent: a text, or a list of messages.

    >>> turns = [ChatTurn("user", "1 + 1", " "), ChatTurn("assistant", "2", "; "), ChatTurn("user", "2 + 2", " ")]
    >>> prompt(turns, PLAIN)
    '1 + 1 2; 2 + 2 '
    >>> prompt(turns, Manner(chat=True, multiturn=False))
    [{'role': 'user', 'content': '1 + 1 2; 2 + 2'}]
    """
    if not manner.chat:
        return _text(turns)
    return [turn.message for turn in (turns if manner.multiturn else _single(turns))]


def _single(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """The turns between the system's and the beginning of the answer as one; nothing follows its last words."""
    first = 1 if turns[0].role == "system" else 0
    end = len(turns) - (turns[-1].role == "assistant")
    *before, last = turns[first:end]
    return [*turns[:first], ChatTurn("user", _text(before) + last.content), *turns[end:]]


def _text(turns: Sequence[ChatTurn]) -> str:
    return "".join(turn.content + turn.delimiter for turn in turns)
