"""What a field of a task means for a document: a column, a template, a literal, or what a function returns.

A text that is the name of a column means its cell, in the cell's own type. Any other text is a template.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any

from calipers.errors import CalipersError, InputError, PluginError
from calipers.systems.lm_eval.tasks.config import shown
from calipers.systems.lm_eval.tasks.jinja import render
from calipers.systems.lm_eval.tasks.yaml import Function

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
        raise InputError.at(
            location, f"is {function}, code that came with the task", "read it, then run it with --trust"
        )
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
