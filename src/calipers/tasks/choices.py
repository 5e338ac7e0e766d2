"""Multiple choice: the columns with the choices, the right choice, and how choices are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.errors import InputError
from calipers.tasks.cells import cell_text, is_blank, one_line, scalar_text
from calipers.tasks.table import QuestionTable, Row

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LISTS_OF_CHOICES: Final = ("choices", "options")
CHOICE_COLUMNS: Final = ("{}", "option_{}", "choice_{}", "option{}", "choice{}", "answer_{}")
INSTRUCTION: Final = "Answer with the letter of the right choice."


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
        right = cls(columns, "mixed", index_from or 0)
        if target is None:
            return right
        rows = [
            (row[target], right.choices(row, where), where)
            for row, where in zip(table.rows, table.places, strict=True)
            if row.get(target) not in (None, "")
        ]
        if index_from is not None:
            return cls(columns, "index", index_from)
        if rows and all(_by_text(cell, choices) is not None for cell, choices, _ in rows):
            for cell, choices, where in rows:
                letter = _by_letter(cell, choices)
                if letter is not None and letter != _by_text(cell, choices):
                    wrong = f"target {cell!r} is the letter of one choice and the text of another"
                    raise InputError.at(where, wrong, "write the letters that are meant, or rename the choices")
            return cls(columns, "text")
        if rows and all(_by_letter(cell, choices) is not None for cell, choices, _ in rows):
            return cls(columns, "letter")
        numbers = [_whole(cell) for cell, _, _ in rows]
        if rows and all(number is not None for number in numbers):
            return cls(columns, "index", _base([number or 0 for number in numbers], rows))
        return right

    def choices(self, row: Row, where: str) -> LetteredChoices:
        """The choices of a row, in the order of their columns, without empty ones at the end."""
        if len(self.columns) == 1:
            column = self.columns[0]
            cells = _as_list(row.get(column))
            if not isinstance(cells, list):
                wrong = f"column {column!r} is {one_line(cells, 60)}"
                right = 'expected a list (in CSV as JSON: ["yes", "no"]), or a column per choice: --choices A,B,C,D'
                raise InputError.at(where, wrong, right)
        else:
            cells = [row.get(column) for column in self.columns]
        while cells and is_blank(cells[-1]):
            cells = cells[:-1]
        texts = []
        for number, cell in enumerate(cells):
            if is_blank(cell):
                raise InputError.at(where, f"choice {LETTERS[number % 26]} is empty", "expected a text for each choice")
            texts.append(cell_text(cell, ", ".join(self.columns), where))
        if not 1 < len(texts) <= len(LETTERS):
            raise InputError.at(where, f"has {len(texts)} choices", f"expected 2 to {len(LETTERS)}")
        return LetteredChoices(texts)

    def position(self, target: Any, choices: Sequence[str], where: str) -> int:
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
            right = counted or f"a letter from A to {last}, or the text of a choice, or numbers in every row"
            raise InputError.at(where, f"target {one_line(target, 60)} is not one of the choices", f"expected {right}")
        return position


def _base(numbers: Sequence[int], rows: Sequence[tuple[Any, Sequence[str], str]]) -> int:
    """The number of the first choice: 0 if some target is 0, 1 if some target is the number of choices."""
    if 0 in numbers:
        return 0
    if any(number == len(choices) for number, (_, choices, _) in zip(numbers, rows, strict=True)):
        return 1
    wrong = f"targets such as {rows[0][0]} could count from 0 or from 1"
    raise InputError.at(rows[0][2], wrong, "choose with --index-from 0 or --index-from 1")


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
