"""Prompts: renders templates in a sandbox, evaluates a task's fields for a document, and joins the turns of a prompt.

Templates are untrusted. Jinja's sandbox keeps a template from accessing Python's internals and from changing its
inputs. In addition, every operation that can make a long text from a short one is checked before it is executed, and
rendering has a time limit.

A field is a column, a template, a literal, or a function. A text that is the name of a column means the column's cell,
with the cell's type. Any other text is a template.

A prompt is written as one text or as the turns of a chat, exactly as in lm-evaluation-harness::

    system instruction and description ── question ── answer ── question ── answer ── question ── gen_prefix
    text                                  one after another, each with its delimiter
    chat, several turns    [system]       [user]      [assistant] ...                 [user]      [assistant]
    chat, one turn         [system]       [user: all examples and the question]                   [assistant]

``gen_prefix`` is the beginning of the answer, as a turn of the assistant that the model continues.
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
from calipers.systems.lm_eval.tasks import Function, refuse_untrusted, shown
from calipers.tasks import Message, Prompt
from calipers.text.patterns import BadPattern, RegexTimeout, search
from calipers.time_limit import Rang, Unavailable, within

MAX_LENGTH: Final = 16 << 20  # characters of a text, entries of a list
MAX_BYTES: Final = 256 << 20  # of all values that a rendering creates
MAX_BITS: Final = 1 << 16  # of an integer
_WIDTH: Final = re.compile(r"\d{6,}|\*")  # a width in a format string that is too large for any prompt
_PADDING: Final = ("center", "ljust", "rjust", "zfill", "expandtabs")
_WIDENING: Final = ("batch", "center", "indent", "slice", "tojson", "truncate", "wordwrap")  # filters with a width
_ENTRY: Final = 32  # bytes of a small value, such as a number, in a list
_SPLITTING: Final = ("split", "rsplit", "splitlines")
_LISTING: Final = ("batch", "list", "slice", "sort", "unique")  # filters that turn a text into a list of characters
_remaining: ContextVar[list[int] | None] = ContextVar("remaining", default=None)  # bytes of the budget
_TEXTS_AND_CONTAINERS: Final = (str, bytes, list, tuple, dict, set, frozenset)


class TooLong(SecurityError):
    """A template would create a value that is too large."""


def check_length(length: int) -> None:
    """Refuse a text or list that is longer than any prompt."""
    if length > MAX_LENGTH:
        raise TooLong(f"it makes a text of {length} characters or more; the maximum is {MAX_LENGTH}")


def check_bits(length: int) -> None:
    """Refuse an integer that is too large to print."""
    if length > MAX_BITS:
        raise TooLong(f"it makes a number of {length} bits; the maximum is {MAX_BITS}")


@contextmanager
def memory_budget() -> Iterator[None]:
    """Charge all values that are created in this block to a budget of `MAX_BYTES` bytes."""
    token = _remaining.set([MAX_BYTES])
    try:
        yield
    finally:
        _remaining.reset(token)


def spend(amount: int) -> None:
    """Charge bytes to the budget; TooLong if it is exceeded."""
    remaining = _remaining.get()
    if remaining is not None:
        remaining[0] -= amount
        if remaining[0] < 0:
            raise TooLong(f"it makes values of more than {MAX_BYTES >> 20} MiB in all")


def charged(value: Any, *sources: Any) -> Any:
    """The value, charged to the budget unless it is identical to one of its sources."""
    if not any(value is source for source in sources):
        if isinstance(value, (list, tuple)):
            spend(sys.getsizeof(value) + _ENTRY * len(value))
        elif not isinstance(value, (bool, float, type(None))):
            spend(sys.getsizeof(value))
    return value


def text_size(value: Any) -> int:
    """The approximate length of a value's text, counted until it exceeds `MAX_LENGTH`.

    A list that contains another one a thousand times counts it a thousand times, as its text does.
    """
    total, remaining = 0, [value]
    while remaining and total <= MAX_LENGTH:
        item = remaining.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, _TEXTS_AND_CONTAINERS):
            total += 2 + 2 * len(item)
            if total <= MAX_LENGTH:
                remaining += [*item, *item.values()] if isinstance(item, dict) else item
        else:
            total += 1
    return total


def checked_parts(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts as long as their total length is within the limit."""
    total = 0
    for part in parts:
        total += text_size(part)
        check_length(total)
        yield part


def joined(parts: Iterable[Any]) -> str:
    """The parts as one text; TooLong if it is too long."""
    text: str = charged("".join(map(_as_text, checked_parts(parts))))
    return text


def _as_text(part: Any) -> str:
    text: str = part if isinstance(part, str) else charged(str(part))
    return text


def finalized(value: Any) -> Any:
    """A value that is about to be printed; TooLong if its text is too long."""
    if not isinstance(value, str):
        check_length(text_size(value))
    return value


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large."""
    if operator == "*":
        for sized, times in ((left, right), (right, left)):
            if isinstance(sized, Sized) and isinstance(times, int):
                check_length(len(sized) * max(times, 0))
        if isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() * max(right, 0))
    elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
        check_length(len(left) + len(right))
    elif operator == "%" and isinstance(left, str):
        _check_format(left, "%", right)


def check_method(method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The positional arguments for a method call; TooLong if the result would be too large."""
    function = getattr(method, "__wrapped__", method)  # the sandbox wraps str.format
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    arguments = (*args, *kwargs.values())
    if name == "to_bytes":
        check_length(_largest_integer(arguments))
    if not isinstance(owner, (str, bytes)):
        return args
    if name in _PADDING:
        times = len(owner) + 1 if name == "expandtabs" else 1
        check_length(_largest_integer(arguments) * times)
    elif name == "replace" and len(args) >= 2 and isinstance(args[1], (str, bytes)):
        _check_replace(owner, args[0], args[1])
    elif name in _SPLITTING:
        _check_split(owner, args)
    elif name == "join" and args:
        parts = list(checked_parts(args[0]))
        check_length(text_size(parts) + len(owner) * len(parts))
        return (parts, *args[1:])
    elif name in ("format", "format_map"):
        _check_format(str(owner), "{", arguments)
    return args


def _largest_integer(values: Iterable[Any]) -> int:
    return max((value for value in values if isinstance(value, int)), default=0)


def guarded(name: str, jinja_filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of Jinja with a check of the size of its result before it is called."""

    @wraps(jinja_filter)  # it also copies the attribute by which Jinja knows to pass the environment
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(checked_parts(value) if isinstance(value, Iterator) else value for value in args)
        if name == "join":
            args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
        arguments = [value for value in (*args, *kwargs.values()) if isinstance(value, (int, *_TEXTS_AND_CONTAINERS))]
        texts = [value for value in arguments if isinstance(value, _TEXTS_AND_CONTAINERS)]
        total = sum(map(text_size, texts))
        check_length(total)
        longest_option = max((len(value) for value in texts[1:]), default=0)
        if name in _WIDENING:
            lines = str(texts[0]).count("\n") + 1 if texts else 1
            check_length(_largest_integer(arguments) * lines)
            check_length(longest_option * (len(texts[0]) if texts else 0))
        if name == "replace" and len(texts) >= 3:
            _check_replace(str(texts[0]), str(texts[1]), str(texts[2]))
        if name == "join" and texts:
            check_length(total + longest_option * len(texts[0]))
        if name == "format" and texts:
            _check_format(str(texts[0]), "%", arguments[1:])
        if name in _LISTING:
            spend(3 * _ENTRY * max((len(value) for value in args if isinstance(value, (str, bytes, range))), default=0))
        result = jinja_filter(*args, **kwargs)
        return map(charged, result) if isinstance(result, Iterator) else charged(result, *args)

    return call


def replaced(pattern: str, repl: str, text: str, count: int) -> str:
    """``re.sub``; TooLong if the result would be too long."""
    total = len(text)

    def replacement(match: re.Match[str]) -> str:
        nonlocal total
        expanded = match.expand(repl)
        total += len(expanded)
        check_length(total)
        return expanded

    return re.sub(pattern, replacement, text, count=count)


def _check_replace(text: Any, old: Any, new: Any) -> None:
    times = text.count(old) if isinstance(old, type(text)) and old else len(text) + 1
    check_length(len(text) + times * len(new))


def _check_split(text: str | bytes, args: Sequence[Any]) -> None:
    """Charge the pieces of a text before it is split, because even an empty piece takes memory."""
    separators: tuple[Any, ...] = (" ", "\t", "\n", "\r")
    if args and isinstance(args[0], type(text)) and args[0]:
        separators = (args[0],)
    elif isinstance(text, bytes):
        separators = (b" ", b"\t", b"\n", b"\r")
    spend((1 + sum(map(text.count, separators))) * 3 * _ENTRY)


def _check_format(format_string: str, sign: str, arguments: Any) -> None:
    """Refuse a format string whose result may be too long, because of a large width or of repeated arguments."""
    if _WIDTH.search(format_string):
        raise TooLong("its format has a width of a hundred thousand or more")
    check_length(len(format_string) + format_string.count(sign) * text_size(arguments))


SECONDS: Final = 5.0  # time limit of a rendering


class TemplateTimeout(Exception):
    """A template has not finished in time."""


class _ChargingCodeGenerator(CodeGenerator):
    """Compiles templates so that ``a ~ b``, lists and slices are charged; the sandbox intercepts other operators."""

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """Compile a list."""
        self._charge(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """Compile a mapping."""
        self._charge(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """Compile a tuple, which is charged unless it is the target of an assignment."""
        if node.ctx == "load":
            self._charge(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """Compile an item or a slice; only slices are charged."""
        if isinstance(node.arg, nodes.Slice):
            self._charge(super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def _charge(self, write: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.charged(")
        write(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Compile ``a ~ b`` to a call of the environment."""
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment of templates: a sandbox that limits the size of values."""

    code_generator_class = _ChargingCodeGenerator
    intercepted_binops = frozenset({"*", "**", "+", "%", "-", "/", "//"})
    intercepted_unops = frozenset({"-", "+"})
    concat = staticmethod(joined)  # Jinja also uses it for blocks and macros
    charged = staticmethod(charged)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            finalize=finalized,
            optimized=False,  # the optimizer evaluates constant expressions, whatever their size, during compilation
        )
        self.filters = {name: guarded(name, jinja_filter) for name, jinja_filter in FILTERS.items()}
        self.filters["regex_replace"] = regex_replace
        self.globals.pop("lipsum", None)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The result of a binary operator; TooLong if it is too large."""
        check_operator(operator, left, right)
        return charged(super().call_binop(context, operator, left, right), left, right)

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """The result of a unary operator."""
        return charged(super().call_unop(context, operator, arg), arg)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a method or function; TooLong if it is too large."""
        return charged(super().call(context, obj, *check_method(obj, args, kwargs), **kwargs), *args)


def regex_replace(value: Any, pattern: str, repl: str, count: int = 0) -> str:
    """Replace every match of a pattern, as lm-evaluation-harness' filter of this name does, in limited time."""
    text = joined([value])
    if not _has_alarm.get():  # an alarm also stops a pattern; without one a search with a time limit comes first
        search(pattern, text, limit=SECONDS)
    try:
        return str(charged(replaced(pattern, repl, text, count)))
    except re.error as error:
        raise TemplateRuntimeError(f"pattern {pattern!r}: {error}") from None


_has_alarm: ContextVar[bool] = ContextVar("has_alarm", default=False)  # whether an alarm limits the rendering's time


_environment = cache(BoundedEnvironment)  # made when the first template is compiled


@lru_cache(1024)
def compiled(template: str) -> Template:
    """A compiled template, cached."""
    return _environment().from_string(template)


def render(template: str, columns: dict[str, Any], location: str) -> str:
    """Render a template for a document; InputError, with the location, if it fails."""
    try:
        try:
            return within(SECONDS, partial(_render_in_budget, template, columns, True))
        except Unavailable:
            return _with_deadline(SECONDS, partial(_render_in_budget, template, columns, False))
    except (Rang, TemplateTimeout, RegexTimeout):
        problem = f"the template does not finish within {SECONDS:g} s"
        raise InputError.at(location, problem, "expected a template that prints a prompt") from None
    except TemplateSyntaxError as error:
        raise InputError.at(location, f"line {error.lineno} of the template: {error.message}") from None
    except UndefinedError as error:
        raise InputError.at(location, f"the template fails: {error}", _columns(columns)) from None
    except (TemplateError, BadPattern) as error:
        raise InputError.at(location, f"the template fails: {error}") from None
    except (RecursionError, MemoryError) as error:
        raise InputError.at(location, f"the template fails: {type(error).__name__}") from None
    except Exception as error:  # an expression may raise anything, such as an IndexError
        raise InputError.at(location, f"the template fails: {type(error).__name__}: {error}") from None


def _render_in_budget(template: str, columns: dict[str, Any], has_alarm: bool) -> str:
    token = _has_alarm.set(has_alarm)
    try:
        with memory_budget():
            return joined(compiled(template).generate(columns))
    finally:
        _has_alarm.reset(token)


def _columns(columns: dict[str, Any]) -> str:
    return f"the document has {', '.join(map(str, columns)) or 'no columns'}"


def _with_deadline(seconds: float, call: Callable[[], str]) -> str:
    """Call a function with a time limit outside the main thread, where there is no alarm: a trace checks every line."""
    end, trace_before = monotonic() + seconds, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if monotonic() > end:
            raise TemplateTimeout
        return trace

    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(trace_before)


Doc = Mapping[str, Any]


def text_of(value: Any, doc: Doc, columns: Collection[str], location: str, *, choices: bool = False) -> Any:
    """``doc_to_text`` of a document: a text, or an integer that is the index of a choice.

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
    """``doc_to_target`` of a document: a text, the index of a choice, or a list of targets, any of which is correct.

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
    """``doc_to_choice`` of a document: the choices in order; a list in the file is not rendered."""
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
    """``description`` or ``gen_prefix`` of a document, from a column or a template; None if not given, or empty."""
    if not value:
        return None
    text = cell(doc, value, location) if value in doc else render(value, dict(doc), location)
    if text and not isinstance(text, str):
        raise InputError.at(location, f"is {shown(text)}", "expected a text")
    return text or None


def cell(doc: Doc, column: str, location: str) -> Any:
    """The cell of a document in a column; InputError if there is no such column."""
    if column not in doc:
        raise InputError.at(location, f"the document has no column {column!r}", f"it has {', '.join(map(str, doc))}")
    return doc[column]


def called(function: Any, *arguments: Any) -> Any:
    """Call a task's own function; PluginError, with its name, if it fails. The last argument is the location."""
    *function_arguments, location = arguments
    if isinstance(function, Function):
        refuse_untrusted(function, location)
    if not callable(function):
        raise InputError.at(location, f"is {shown(function)}", "expected a column, a template or a function")
    try:
        return function(*function_arguments)
    except CalipersError:
        raise
    except Exception as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise PluginError(f"{location}: {name} failed: {type(error).__name__}: {error}") from error


def unboxed(value: Any) -> Any:
    """Convert a numpy scalar, also in a list, to Python's type; any other value is unchanged.

    >>> import numpy
    >>> unboxed(numpy.int32(1)), unboxed([numpy.bool_(True)]), unboxed("1")
    (1, [True], '1')
    """
    if isinstance(value, list):
        return [unboxed(item) for item in value]
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


def _integer(text: str, location: str) -> int:
    number = _literal(text, None)  # "²" and "007" consist of digits, but are not integer literals
    if not isinstance(number, int):
        raise InputError.at(location, f"renders to {shown(text)}", "expected the index of a choice")
    return number


def _literal(text: str, default: Any) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return default


@dataclass(frozen=True, slots=True)
class Manner:
    """How the prompts of a task are written."""

    chat: bool = False  # as messages, for a chat template or a chat server
    multiturn: bool = True  # in a chat, each example has its own messages
    system: str | None = None  # text before the description


PLAIN: Final = Manner()


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A part of a prompt; ``delimiter`` follows it in a prompt that is one text."""

    role: str
    content: str
    delimiter: str = ""

    @property
    def message(self) -> Message:
        """The turn as a chat message."""
        return {"role": self.role, "content": self.content}


def prompt(turns: Sequence[ChatTurn], manner: Manner) -> Prompt:
    """The turns as a prompt: a text, or a list of messages.

    >>> turns = [ChatTurn("user", "1 + 1", " "), ChatTurn("assistant", "2", "; "), ChatTurn("user", "2 + 2", " ")]
    >>> prompt(turns, PLAIN)
    '1 + 1 2; 2 + 2 '
    >>> prompt(turns, Manner(chat=True, multiturn=False))
    [{'role': 'user', 'content': '1 + 1 2; 2 + 2'}]
    """
    if not manner.chat:
        return _text(turns)
    return [turn.message for turn in (turns if manner.multiturn else _merged(turns))]


def _merged(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """Merge the turns between the system's turn and the answer's prefix into one, without a delimiter at its end."""
    start = 1 if turns[0].role == "system" else 0
    end = len(turns) - (turns[-1].role == "assistant")
    *examples, last = turns[start:end]
    return [*turns[:start], ChatTurn("user", _text(examples) + last.content), *turns[end:]]


def _text(turns: Sequence[ChatTurn]) -> str:
    return "".join(turn.content + turn.delimiter for turn in turns)
