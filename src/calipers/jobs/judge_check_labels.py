"""The file of labels: CSV with task, sample and label, perhaps of several raters, read row by row."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from calipers.errors import InputError, nearest
from calipers.rollouts.record import GROUP

NEEDED = ("task", "label")
KNOWN = ("task", "sample", "label", "rater", *GROUP)
NUMBERS = "expected a number, such as 1 for good and 0 for bad"


class Rows(Protocol):
    """What `csv.reader` gives: rows, and the line the last one ended on."""

    @property
    def line_num(self) -> int:
        """The line."""

    def __iter__(self) -> Iterator[list[str]]:
        """The rows."""


@dataclass(frozen=True, slots=True)
class Label:
    """What one rater says of one rollout."""

    line: int
    task: str
    sample: int | None  # None where the file has no such column
    value: float
    rater: str  # "" where the file has no such column
    group: Mapping[str, str]  # agent, model, dataset, as far as the file names them


@dataclass(frozen=True, slots=True)
class LabelFile:
    """All labels of a file, and how many rows wait for one."""

    path: str
    labels: Sequence[Label]
    empty: int
    raters: Sequence[str]  # in the order they appear


def read_labels(path: str | os.PathLike[str]) -> LabelFile:
    """Read labels; InputError for the first row that cannot be used, and where no row has a label."""
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            return _read(name, reader)
    except OSError as error:
        raise InputError.at(name, f"cannot be read ({error.strerror})", "expected a CSV of labels") from None
    except UnicodeDecodeError:
        raise InputError.at(name, "is no text in UTF-8", "expected a CSV of labels") from None


def _read(path: str, reader: Rows) -> LabelFile:
    head: list[str] = []
    found: list[Label] = []
    empty = 0
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if not head:
                head = _head(path, reader.line_num, row)
                continue
            place = f"{path}:{reader.line_num}"
            if len(row) != len(head):
                raise InputError.at(place, f"has {len(row)} cells", f"expected {len(head)}, as the first line has")
            cells = dict(zip(head, (cell.strip() for cell in row), strict=True))
            if not cells["label"]:
                empty += 1
                continue
            found.append(_label(place, reader.line_num, cells))
    except csv.Error as error:
        raise InputError.at(f"{path}:{reader.line_num}", f"is no CSV ({error})") from None
    if not head:
        raise InputError.at(path, "is empty", f"expected CSV with the columns {', '.join(KNOWN[:3])}")
    if not found:
        rows = f"all {empty:,} rows wait for one" if empty else "it has a header only"
        raise InputError.at(path, f"holds no label: {rows}", NUMBERS)
    return LabelFile(path, found, empty, list(dict.fromkeys(label.rater for label in found)))


def _head(path: str, line: int, row: Sequence[str]) -> list[str]:
    head = [cell.strip().lower() for cell in row]
    if len(row) == 1 and (between := next((sign for sign in ";\t" if sign in row[0]), None)):
        wrong = f"has {between!r} between its cells"
        raise InputError.at(f"{path}:{line}", wrong, "expected commas")
    for name in NEEDED:
        if name not in head:
            close = nearest(name, head, 1)
            hint = f" (there is {close[0]!r})" if close else ""
            wrong = f"has no column {name!r}{hint}"
            raise InputError.at(f"{path}:{line}", wrong, f"expected the columns {', '.join(KNOWN[:3])}")
    twice = [name for name in KNOWN if head.count(name) > 1]
    if twice:
        raise InputError.at(f"{path}:{line}", f"has the column {twice[0]!r} twice", "expected it once")
    return head


def _label(place: str, line: int, cells: Mapping[str, str]) -> Label:
    try:
        value = float(cells["label"])
    except ValueError:
        raise InputError.at(place, f"label is {cells['label']!r}", NUMBERS) from None
    if not math.isfinite(value):
        raise InputError.at(place, f"label is {cells['label']!r}", NUMBERS)
    sample = None
    if "sample" in cells:
        if not cells["sample"].isdecimal():
            raise InputError.at(place, f"sample is {cells['sample']!r}", "expected a whole number from 0 on")
        sample = int(cells["sample"])
    if not cells["task"]:
        raise InputError.at(place, "task is empty", "expected the id of a task")
    group = {name: cells[name] for name in GROUP if cells.get(name)}
    return Label(line, cells["task"], sample, value, cells.get("rater", ""), group)
