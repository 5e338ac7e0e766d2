"""Templates of prompts: a text with column names in braces, or a Jinja file in a sandbox.

A text accepts column names and nothing else: no attributes, items or conversions, so that a prompt contains nothing
but the text and cells of the row. A doubled brace is a literal brace.
"""

from __future__ import annotations

import os
import string
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError, UnknownName
from calipers.formats.source import opened, read_up_to

CHOICES: Final = "choices"  # the name of the lettered choices
JINJA: Final = (".j2", ".jinja", ".jinja2")
LARGEST: Final = 1 << 20  # bytes of a template


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A checked template: the columns it uses, and a function that makes a prompt from their cells."""

    origin: str  # its name in errors
    columns: tuple[str, ...]  # that it uses; `choices` if it shows the lettered choices
    fill: Callable[[Mapping[str, Any]], str]
    plain: bool = True  # it takes text; a Jinja file takes the cells unchanged


def is_template_file(written: str) -> bool:
    """Whether a template is the path of a Jinja file: by its suffix, or because the file exists."""
    return "\n" not in written and (
        Path(written).suffix.lower() in JINJA or ("{" not in written and os.path.isfile(written))
    )


def prompt_template(written: str, columns: Collection[str]) -> PromptTemplate:
    """A template over these columns; InputError for an unknown column or an invalid template.

    >>> prompt_template("Q: {question}", ["question"]).fill({"question": "2 + 2?"})
    'Q: 2 + 2?'
    """
    if is_template_file(written):
        return _jinja(written, columns)
    return _plain(written, columns)


def _plain(text: str, columns: Collection[str]) -> PromptTemplate:
    origin = "--template"
    pieces: list[tuple[str, str | None]] = []
    plain = "expected column names such as {question}; write {{ for a literal brace"
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError.at(origin, f"cannot be read ({error})", plain) from None
    for literal, name, form, conversion in parsed:
        if name is not None and (form or conversion or not name or any(mark in name for mark in ".[]{}")):
            written = f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
            raise InputError.at(origin, f"{written} is not a column name", plain)
        pieces.append((literal, name))
    names = tuple(dict.fromkeys(name for _, name in pieces if name is not None))
    _check(names, columns, origin)
    if not names:
        raise InputError.at(origin, "contains no column name: every prompt would be the same", plain)
    return PromptTemplate(
        origin, names, lambda row: "".join(literal + (row[name] if name else "") for literal, name in pieces)
    )


def _check(names: Collection[str], columns: Collection[str], origin: str) -> None:
    for name in names:
        if name not in columns:
            raise UnknownName(f"{origin}: {UnknownName.of('column', name, columns)}")


def _jinja(path: str, columns: Collection[str]) -> PromptTemplate:
    """A Jinja file in the sandbox: it can read the cells of a row and nothing else."""
    from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    with opened(Path(path)) as stream:
        data = read_up_to(stream, LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError.at(path, f"is larger than {LARGEST >> 20} MiB", "expected a template")
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    try:
        text = data.decode("utf-8-sig")
        names = tuple(sorted(meta.find_undeclared_variables(environment.parse(text))))
        template = environment.from_string(text)
    except UnicodeDecodeError:
        raise InputError.at(path, "is not UTF-8", "expected UTF-8 text") from None
    except TemplateSyntaxError as error:
        raise InputError.at(f"{path}:{error.lineno}", f"is not valid Jinja ({error.message})") from None
    except (TemplateError, RecursionError) as error:
        raise InputError.at(path, f"is not valid Jinja ({error})") from None
    names = tuple(name for name in names if name in columns or name not in environment.globals)
    _check(names, columns, path)
    if not names:
        raise InputError.at(
            path, "contains no column name: every prompt would be the same", "expected for example {{ question }}"
        )

    def fill(row: Mapping[str, Any]) -> str:
        try:
            return template.render({name: row[name] for name in names})
        except Exception as error:  # an expression of the template can raise anything on this row
            raise InputError(f"{path} failed ({type(error).__name__}: {error})") from None

    return PromptTemplate(path, names, fill, plain=False)
