"""Questions in a user's table: the roles of its columns, and the tasks made from its rows.

::

    table ──► roles: as named, else guessed from common names ──► one task per row ──► Suite
                └── printed in one line, with the first prompt and target, before the first request

A guess is a pure function of the columns and rows. Every error is an InputError that names the row's place.

A template of prompts is a text with column names in braces, or a Jinja file in a sandbox. A text accepts column names
and nothing else: no attributes, items or conversions, so that a prompt contains nothing but the text and cells of the
row. A doubled brace is a literal brace.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError, UnknownName
from calipers.formats.source import opened, read_up_to
from calipers.tasks import Prompt, Suite, Task
from calipers.tasks.table import QuestionTable, Row

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LISTS_OF_CHOICES: Final = ("choices", "options")
CHOICE_COLUMNS: Final = ("{}", "option_{}", "choice_{}", "option{}", "choice{}", "answer_{}")
INSTRUCTION: Final = "Answer with the letter of the right choice."
COLUMN_SETTINGS: Final = ("prompt", "target", "id", "metadata", "template", "choices", "shuffle_choices", "index_from")
"""Settings for the columns of a table; other benchmarks do not have them."""

PROMPTS: Final = ("prompt", "question", "input", "instruction", "problem", "query", "messages", "user_prompt", "text")
TARGETS: Final = (
    "target",
    "answer",
    "expected",
    "expected_answer",
    "correct_answer",
    "label",
    "ideal",
    "gold",
    "ground_truth",
    "solution",
    "reference",
    "answer_key",
    "answerkey",
    "correct",
    "output",
)
IDS: Final = ("id", "task_id", "question_id", "qid", "uid", "example_id")
HASHED: Final = "#"  # as the value of --id: use the hash of the prompt, even if there is a column of ids
DEFAULT_VERIFIER: Final = "exact_match"
CHOICE_VERIFIER: Final = "choice"
COMPARES: Final = ("exact_match", "contains", "regex_match", "numeric_match", "math", "tool_calls_match", "choice")
"""Verifiers that need a target."""
TEXTUAL: Final = ("exact_match", "contains", "regex_match")
CHOICES: Final = "choices"  # the name of the lettered choices
JINJA: Final = (".j2", ".jinja", ".jinja2")
LARGEST: Final = 1 << 20  # bytes of a template
_DIGITS: Final = 16  # hexadecimal digits of an id that is a hash


def one_line(value: Any, most: int = 300) -> str:
    """A prompt or a target in one line, shortened if it is long.

    >>> one_line("Q: 2 + 2?\\nA:")
    'Q: 2 + 2?\\\\nA:'
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = text.replace("\r\n", "\n").replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= most else text[: most - 1] + "…"


def is_blank(cell: Any) -> bool:
    """Whether a cell is empty: no value, an empty list, or only white space."""
    return cell is None or cell == [] or (isinstance(cell, str) and not cell.strip())


def scalar_text(cell: Any) -> str | None:
    """A cell as text; None if it is not text, a number or a date."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, (int, Decimal)):
        return str(cell)
    return cell.isoformat() if isinstance(cell, (date, datetime, time)) else None


def cell_text(cell: Any, column: str, location: str) -> str:
    """A cell as text for a prompt; InputError for a list or an object."""
    text = "" if cell is None else scalar_text(cell)
    if text is None:
        problem = f"column {column!r} is {one_line(cell, 60)}"
        raise InputError.at(location, problem, "expected text or a number; a Jinja file can use lists and objects")
    return text


def json_value(cell: Any, column: str, location: str) -> Any:
    """A cell as a JSON value; InputError if JSON has no such value."""
    if isinstance(cell, (date, datetime, time, Decimal)):
        return scalar_text(cell)
    try:
        json.dumps(cell, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        problem = f"column {column!r} is {type(cell).__name__}"
        raise InputError.at(location, problem, "expected text, numbers, or lists and objects of them") from None
    return cell


_IMAGE_BYTES: Final = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_IMAGE_NAME: Final = re.compile(r"images?([_ -]?(\d+|path|url|file))?", re.IGNORECASE)
_IMAGE_FILE: Final = re.compile(r"\S+\.(png|jpe?g|gif|webp|bmp)", re.IGNORECASE)


def check_images(table: QuestionTable) -> None:
    """InputError for a table with images: without its image a question is a different question."""
    for row, location in zip(table.rows, table.places, strict=True):
        for column, cell in row.items():
            try:
                image = _is_image(column, cell)
            except RecursionError:
                expected = "expected a text, a number or a list"
                raise InputError.at(location, f"column {column!r} is nested too deeply", expected) from None
            if image:
                expected = "Calipers sends text only; remove the column to run without images"
                raise InputError.at(location, f"column {column!r} contains an image", expected)


def _is_image(column: str, cell: Any) -> bool:
    if isinstance(cell, str):
        named = _IMAGE_NAME.fullmatch(column) is not None
        return cell.startswith("data:image/") or (named and _IMAGE_FILE.fullmatch(cell.strip()) is not None)
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).startswith(_IMAGE_BYTES)
    if isinstance(cell, Mapping):
        inner = cell.get("content")
        parts = inner if isinstance(inner, list) else []
        shown = any(isinstance(part, Mapping) and str(part.get("type", "")).find("image") >= 0 for part in parts)
        return shown or any(_is_image(column, cell.get(key)) for key in ("bytes", "path", "url"))
    if isinstance(cell, list):
        return any(_is_image(column, part) for part in cell[:20])
    return type(cell).__module__.partition(".")[0] == "PIL"


class LetteredChoices(tuple[str, ...]):
    """The choices of one question in the order shown; as text, one line per choice with its letter."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, self, strict=False))


def guessed_choices(columns: Sequence[str], rows: Sequence[Row], taken: Sequence[str | None]) -> tuple[str, ...]:
    """The columns of choices: one column of lists, or two or more named by letter from A; () if there are none."""
    free = {plain_name(column): column for column in columns if column not in taken}
    for name in LISTS_OF_CHOICES:
        if name in free and all(isinstance(_as_list(row.get(free[name])), list) for row in rows[:50]):
            return (free[name],)
    for form in CHOICE_COLUMNS:
        names = [form.format(letter.lower()) for letter in LETTERS]
        count = next((number for number, name in enumerate(names) if name not in free), len(names))
        if count > 1 and (form != "{}" or count > 2 or len(free) < 5):
            return tuple(free[name] for name in names[:count])
    return ()


def plain_name(column: str) -> str:
    """A column's name for comparison: in lower case, with `_` for every separator."""
    return re.sub(r"[\s_-]+", "_", column.strip().lower())


@dataclass(frozen=True, slots=True)
class RightChoice:
    """How targets name the right choice: by its text, letter or number, in the same way in every row."""

    columns: tuple[str, ...]
    way: str  # text, letter, index, or mixed: text or letter, row by row
    base: int = 0  # the number of the first choice

    @classmethod
    def of(
        cls, table: QuestionTable, columns: tuple[str, ...], target: str | None, index_from: int | None
    ) -> RightChoice:
        """The first way in which every target can be read; InputError if a target could name two choices."""
        mixed = cls(columns, "mixed", index_from or 0)
        if target is None:
            return mixed
        rows = [
            (row[target], mixed.choices(row, location), location)
            for row, location in zip(table.rows, table.places, strict=True)
            if row.get(target) not in (None, "")
        ]
        if index_from is not None:
            return cls(columns, "index", index_from)
        if rows and all(_by_text(cell, choices) is not None for cell, choices, _ in rows):
            for cell, choices, location in rows:
                letter = _by_letter(cell, choices)
                if letter is not None and letter != _by_text(cell, choices):
                    problem = f"target {cell!r} is the letter of one choice and the text of another"
                    raise InputError.at(location, problem, "write the letters that are meant, or rename the choices")
            return cls(columns, "text")
        if rows and all(_by_letter(cell, choices) is not None for cell, choices, _ in rows):
            return cls(columns, "letter")
        numbers = [_whole(cell) for cell, _, _ in rows]
        if rows and all(number is not None for number in numbers):
            return cls(columns, "index", _base([number or 0 for number in numbers], rows))
        return mixed

    def choices(self, row: Row, location: str) -> LetteredChoices:
        """The choices of a row, in the order of their columns, without empty ones at the end."""
        if len(self.columns) == 1:
            column = self.columns[0]
            cells = _as_list(row.get(column))
            if not isinstance(cells, list):
                problem = f"column {column!r} is {one_line(cells, 60)}"
                expected = 'expected a list (in CSV as JSON: ["yes", "no"]), or a column per choice: --choices A,B,C,D'
                raise InputError.at(location, problem, expected)
        else:
            cells = [row.get(column) for column in self.columns]
        while cells and is_blank(cells[-1]):
            cells = cells[:-1]
        texts = []
        for number, cell in enumerate(cells):
            if is_blank(cell):
                raise InputError.at(
                    location, f"choice {LETTERS[number % 26]} is empty", "expected a text for each choice"
                )
            texts.append(cell_text(cell, ", ".join(self.columns), location))
        if not 1 < len(texts) <= len(LETTERS):
            raise InputError.at(location, f"has {len(texts)} choices", f"expected 2 to {len(LETTERS)}")
        return LetteredChoices(texts)

    def position(self, target: Any, choices: Sequence[str], location: str) -> int:
        """The index of the right choice, from 0; InputError if the target is not a choice."""
        position = None
        if self.way in ("text", "mixed"):
            position = _by_text(target, choices)
        if position is None and self.way in ("letter", "mixed"):
            position = _by_letter(target, choices)
        if self.way == "index" and (number := _whole(target)) is not None:
            position = number - self.base if 0 <= number - self.base < len(choices) else None
        if position is None:
            last = LETTERS[len(choices) - 1]
            counted = f"a number from {self.base} to {self.base + len(choices) - 1}" if self.way == "index" else ""
            expected = counted or f"a letter from A to {last}, or the text of a choice, or numbers in every row"
            raise InputError.at(
                location, f"target {one_line(target, 60)} is not one of the choices", f"expected {expected}"
            )
        return position


def _base(numbers: Sequence[int], rows: Sequence[tuple[Any, Sequence[str], str]]) -> int:
    """The number of the first choice: 0 if some target is 0, 1 if some target is the number of choices."""
    if 0 in numbers:
        return 0
    if any(number == len(choices) for number, (_, choices, _) in zip(numbers, rows, strict=True)):
        return 1
    problem = f"targets such as {rows[0][0]} could count from 0 or from 1"
    raise InputError.at(rows[0][2], problem, "choose with --index-from 0 or --index-from 1")


def _by_text(target: Any, choices: Sequence[str]) -> int | None:
    text = scalar_text(target)
    if text is None:
        return None
    exact = [number for number, choice in enumerate(choices) if choice.strip() == text.strip()]
    alike = exact or [number for number, choice in enumerate(choices) if choice.strip().lower() == text.strip().lower()]
    return alike[0] if len(alike) == 1 else None


def _by_letter(target: Any, choices: Sequence[str]) -> int | None:
    match = re.fullmatch(r"\s*\(?([A-Za-z])[).:]?\s*", target) if isinstance(target, str) else None
    position = LETTERS.index(match[1].upper()) if match else len(choices)
    return position if position < len(choices) else None


def _whole(target: Any) -> int | None:
    if isinstance(target, bool):
        return None
    if isinstance(target, float) and target.is_integer():
        return int(target)
    if isinstance(target, str) and re.fullmatch(r"\s*[0-9]{1,9}(?:\.0)?\s*", target):
        return int(float(target))
    return target if isinstance(target, int) else None


def _as_list(cell: Any) -> Any:
    """A list, also from JSON text; for a mapping with texts and labels, as in some datasets, the list of its texts."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    if isinstance(cell, Mapping) and isinstance(cell.get("text"), list):
        return cell["text"]
    return list(cell) if isinstance(cell, tuple) else cell


@dataclass(frozen=True, slots=True)
class Questions:
    """What the user says about a table; the rest is guessed."""

    prompt: str | None = None  # the column
    target: str | None = None
    id: str | None = None  # "#": the hash of the prompt
    metadata: tuple[str, ...] = ()  # columns, one or several (with commas) per text
    template: str | None = None
    choices: tuple[str, ...] = ()  # columns, or one column of lists
    shuffle_choices: bool = False
    index_from: int | None = None  # the number of the first choice, if targets are numbers
    verifier: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)  # of the verifier
    judged: bool = True  # False: completions are not verified
    seed: int = 0  # of the order of choices


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each column."""

    prompt: str | None
    target: str | None
    id: str | None
    metadata: tuple[str, ...]
    choices: tuple[str, ...]
    verifier: str | None
    guessed: tuple[str, ...]  # the roles that the user did not name

    def line(self) -> str:
        """All roles in one line, with the options that change the guesses."""
        shown = {
            "prompt": self.prompt or "from the template",
            "target": self.target,
            "choices": ", ".join(self.choices),
            "id": self.id,
            "metadata": ", ".join(self.metadata),
            "verifier": self.verifier,
        }
        text = ", ".join(f"{role}: {column}" for role, column in shown.items() if column)
        options = [f"--{role}" for role in shown if role in self.guessed and shown[role]]
        return f"{text} (change with {_any_of(options)})" if options else text


def roles_of(table: QuestionTable, questions: Questions) -> Roles:
    """The role of each column: as named, else guessed from common names; InputError if a role cannot be guessed."""
    columns = [column for column in table.columns if column]
    guessed: list[str] = []

    def role(name: str, known: Sequence[str], taken: Sequence[str | None] = ()) -> str | None:
        written: str | None = getattr(questions, name)
        if written is not None:
            return _column(table, f"--{name}", written)
        guess = guessed_column([column for column in columns if column not in taken], known)
        if guess is not None:
            guessed.append(name)
        return guess

    prompt = role("prompt", PROMPTS) if questions.template is None or questions.prompt is not None else None
    if prompt is None and questions.template is None:
        problem = f"no column has the usual name of a prompt (columns here: {table.named})"
        raise InputError.at(
            table.origin, problem, "name it with --prompt COLUMN; the first row must contain the column names"
        )
    target = role("target", TARGETS, [prompt])
    task_id = None if questions.id == HASHED else role("id", IDS, [prompt, target])
    metadata = tuple(_columns(table, "--metadata", questions.metadata))
    choices = tuple(_columns(table, "--choices", questions.choices))
    if not choices:
        choices = guessed_choices(columns, table.rows, [prompt, target, task_id, *metadata])
        guessed += ["choices"] if choices else []
    verifier = questions.verifier if questions.judged else None
    if questions.judged and verifier is None:
        if target is None:
            problem = f"no column has the usual name of a target (columns here: {table.named})"
            expected = "name it with --target COLUMN, or use --verifier my.py:grade or --predict-only"
            raise InputError.at(table.origin, problem, expected)
        verifier = CHOICE_VERIFIER if choices else DEFAULT_VERIFIER
        guessed.append("verifier")
    if target is None and verifier in COMPARES:
        problem = f"verifier {verifier} needs a target (columns here: {table.named})"
        raise InputError.at(table.origin, problem, "name it with --target COLUMN")
    return Roles(prompt, target, task_id, metadata, choices, verifier, tuple(guessed))


def guessed_column(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """The column with the first of some common names, ignoring case and separators.

    >>> guessed_column(["Id", "Question"], PROMPTS)
    'Question'
    """
    plain = {plain_name(column): column for column in reversed(columns)}
    return next((plain[name] for name in known if name in plain), None)


def _column(table: QuestionTable, option: str, written: str) -> str:
    if written in table.columns:
        return written
    error = UnknownName.of("column", written, [column for column in table.columns if column])
    raise UnknownName(f"{option}: {str(error).replace('; ', f' in {table.origin}; ', 1)}")


def _columns(table: QuestionTable, option: str, written: Sequence[str]) -> Iterator[str]:
    """Columns by name; a text that is not a column name is split at its commas."""
    for text in written:
        if text in table.columns:
            yield text
        else:
            yield from (_column(table, option, part.strip()) for part in text.split(",") if part.strip())


def questions_suite(table: QuestionTable, questions: Questions) -> Suite:
    """The benchmark made from a table of questions, with the notes that are printed before the first request."""
    check_images(table)
    roles = roles_of(table, questions)
    template = _template(table, roles, questions)
    if template is not None and "choices" in roles.guessed and not _shows_choices(template, roles):
        unguessed = tuple(role for role in roles.guessed if role != "choices")
        verifier = DEFAULT_VERIFIER if "verifier" in roles.guessed else roles.verifier
        roles = Roles(roles.prompt, roles.target, roles.id, roles.metadata, (), verifier, unguessed)
    _check_choices(roles, questions, template)
    maker = _TaskMaker(table, roles, questions, template)
    tasks = [maker.task(row, location) for row, location in zip(table.rows, table.places, strict=True)]
    places = {task.id: location for task, location in zip(tasks, table.places, strict=True)}
    count = f"{len(tasks):,} question{'s' * (len(tasks) != 1)}"
    opening = [f"{table.origin}: {count}; {roles.line()}", *_first(tasks[0])]
    return Suite(table.name, tasks, sha256=table.sha256, notes=maker.notes(), opening=opening, places=places)


def _first(task: Task) -> Iterator[str]:
    yield f"first prompt: {one_line(task.prompt)}"
    if task.verifier is not None:
        yield f"first target: {one_line(task.target)}"


def _template(table: QuestionTable, roles: Roles, questions: Questions) -> PromptTemplate | None:
    if questions.template is None:
        return None
    names = [column for column in table.columns if column]
    return prompt_template(questions.template, [*names, CHOICES] if roles.choices else names)


def _shows_choices(template: PromptTemplate, roles: Roles) -> bool:
    return bool({CHOICES, *roles.choices} & {*template.columns})


def _check_choices(roles: Roles, questions: Questions, template: PromptTemplate | None) -> None:
    if not roles.choices:
        numbered = questions.index_from is not None
        for option, given in (("shuffle-choices", questions.shuffle_choices), ("index-from", numbered)):
            if given:
                raise InputError.at(f"--{option}", "there are no choices", "name their columns with --choices A,B,C,D")
        return
    if template is not None and not _shows_choices(template, roles):
        raise InputError.at(template.origin, "does not show the choices", "add {choices} to the template")
    if template is not None and questions.shuffle_choices and CHOICES not in template.columns:
        problem = f"{template.origin} shows the choices in the order of their columns"
        raise InputError.at("--shuffle-choices", problem, "use {choices} instead")


class _TaskMaker:
    """Makes a task from each row, with unique ids."""

    def __init__(
        self, table: QuestionTable, roles: Roles, questions: Questions, template: PromptTemplate | None
    ) -> None:
        self._table, self._roles, self._questions, self._template = table, roles, questions, template
        self._seen: dict[str, str] = {}  # id -> the place of its row
        self._times: dict[str, int] = {}  # hash -> number of rows with this prompt
        self._without_target = 0
        self._right = (
            RightChoice.of(table, roles.choices, roles.target, questions.index_from) if roles.choices else None
        )

    def task(self, row: Row, location: str) -> Task:
        """The task of one row; InputError if the row is not valid."""
        roles = self._roles
        choices = self._right.choices(row, location) if self._right else None
        sources = self._sources(row, choices, location)
        task_id = self._id(row, sources, location)
        target: Any = row.get(roles.target) if roles.target is not None else None
        target = None if target == "" else target
        if target is None and roles.verifier in COMPARES:
            problem = f"no target in column {roles.target!r}"
            raise InputError.at(location, problem, "fill it in or remove the row; --predict-only needs no target")
        self._without_target += target is None and roles.target is not None
        params = dict(self._questions.params)
        if self._right and choices is not None:
            position = None if target is None else self._right.position(target, choices, location)
            order = self._order(task_id, len(choices))
            choices = LetteredChoices(choices[number] for number in order)
            target = None if position is None else LETTERS[order.index(position)]
            if roles.verifier == CHOICE_VERIFIER or (roles.verifier or "").partition(":")[1]:
                params = {CHOICES: list(choices), **params}
        elif roles.verifier in TEXTUAL and isinstance(target, (int, float, Decimal)):
            target = scalar_text(target)  # to compare it with an answer
        prompt = self._prompt(row, choices, location)
        metadata = {column: json_value(row.get(column), column, location) for column in roles.metadata}
        target = json_value(target, roles.target or "", location)
        if roles.verifier is None:
            return Task(task_id, prompt, target=target, metadata=metadata)
        return Task(task_id, prompt, roles.verifier, target, params, metadata)

    def notes(self) -> list[str]:
        """Notes on missing targets and repeated prompts."""
        notes = []
        if self._without_target and self._roles.verifier is not None:
            rows = "1 row has" if self._without_target == 1 else f"{self._without_target} rows have"
            notes.append(f"{self._table.origin}: {rows} no target; {self._roles.verifier} gets None as the target")
        again = sum(count - 1 for count in self._times.values())
        if again and self._roles.id is None:
            rows = "1 row repeats" if again == 1 else f"{again} rows repeat"
            notes.append(
                f"{self._table.origin}: {rows} an earlier prompt; ids of repeated prompts end in -2, -3 and so on"
            )
        return notes

    def _sources(self, row: Row, choices: Sequence[str] | None, location: str) -> list[Any]:
        """The cells that a row's prompt is made from; InputError if they are empty."""
        roles, template = self._roles, self._template
        names = list(template.columns) if template is not None else [str(roles.prompt)]
        cells = [row.get(name) for name in names if name != CHOICES or choices is None]
        if roles.prompt is not None and is_blank(row.get(roles.prompt)):
            problem = f"the prompt is empty (column {roles.prompt!r})"
            raise InputError.at(location, problem, "fill it in or remove the row")
        if all(map(is_blank, cells)):
            raise InputError.at(location, "the prompt is empty", "fill in its cells or remove the row")
        shown = choices is not None and (template is None or CHOICES in template.columns)
        return [*cells, list(choices)] if shown and choices is not None else cells

    def _id(self, row: Row, sources: Sequence[Any], location: str) -> str:
        column = self._roles.id
        if column is None:
            digest = _hash(sources)
            times = self._times[digest] = self._times.get(digest, 0) + 1
            task_id = digest if times == 1 else f"{digest}-{times}"
        else:
            task_id = _id_text(row.get(column), column, location)
        first = self._seen.setdefault(task_id, location)
        if first != location:
            expected = "expected unique ids; use another column with --id COLUMN, or a hash of the prompt with --id '#'"
            raise InputError.at(location, f"id {task_id!r} appears twice, first at {first}", expected)
        return task_id

    def _order(self, task_id: str, count: int) -> list[int]:
        """The order of the choices: that of their columns, or by the hash of seed, task and column."""
        order = list(range(count))
        if self._questions.shuffle_choices:
            seed = self._questions.seed
            order.sort(key=lambda number: hashlib.sha256(f"{seed}\0{task_id}\0{number}".encode()).digest())
        return order

    def _prompt(self, row: Row, choices: Sequence[str] | None, location: str) -> Prompt:
        template, column = self._template, self._roles.prompt
        if template is not None:
            cells = {name: _for_template(row.get(name), name, location, template) for name in template.columns}
            if choices is not None and CHOICES in cells:
                cells[CHOICES] = str(choices) if template.plain else choices
            try:
                return template.fill(cells)
            except InputError as error:
                raise InputError(f"{location}: {error}") from None
        cell = row.get(str(column))
        if isinstance(cell, list) and cell and all(map(_is_message, cell)):
            if choices is not None:
                raise InputError.at(
                    location, f"{column} is a chat, and there are choices", "expected a prompt that is text"
                )
            return list(cell)
        if not isinstance(cell, str):
            problem = f"the prompt is {one_line(cell, 60)} (column {column!r})"
            raise InputError.at(location, problem, "expected text, or chat messages with role and content")
        return cell if choices is None else f"{cell}\n\n{choices}\n\n{INSTRUCTION}"


def _is_message(turn: Any) -> bool:
    return isinstance(turn, Mapping) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)


def _hash(sources: Sequence[Any]) -> str:
    """An id from the cells of a prompt; it does not depend on other rows or on the wording of the template."""
    plain = len(sources) == 1 and isinstance(sources[0], str)
    text = sources[0] if plain else json.dumps(sources, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _id_text(cell: Any, column: str, location: str) -> str:
    if is_blank(cell):
        raise InputError.at(
            location, f"the id is empty (column {column!r})", "expected an id in every row, or --id '#'"
        )
    text = scalar_text(cell)
    if text is None or isinstance(cell, bool) or (isinstance(cell, float) and not cell.is_integer()):
        raise InputError.at(location, f"the id is {one_line(cell, 60)}", "expected text or a whole number")
    return text


def _for_template(cell: Any, column: str, location: str, template: PromptTemplate) -> Any:
    if template.plain:
        return "" if column == CHOICES and isinstance(cell, list) else cell_text(cell, column, location)
    return "" if cell is None else cell


def _any_of(options: Sequence[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


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
    """A template that uses these columns; InputError for an unknown column or an invalid template.

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
