"""Columns in the making: pieces of each column, gathered block by block, joined at the end."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.part import Labels, Part, Places
from calipers.rollouts.record import UNSTATED

Piece = tuple[int, Floats, NDArray[np.bool_] | None]  # first row, values, given (None: all of them)


class BadRow(Exception):
    """A row that cannot be: (its place among the rows, what is wrong, what would be right)."""


class _Codes(dict[Any, int]):
    """Distinct values, numbered by first appearance."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code


class Gather:
    """The columns of a `Part`, filled a block of rows at a time. A column may start at any row."""

    def __init__(self) -> None:
        self.rows = 0
        self._tasks, self._task = _Codes(), list[int]()
        self._whole: dict[str, list[tuple[int, Ints]]] = {}
        self._numbers: dict[tuple[str, str], list[Piece]] = {}
        self._codes: dict[str, _Codes] = {}
        self._labels: dict[str, list[tuple[int, Ints]]] = {}

    def tasks(self, column: Sequence[int | str]) -> None:
        """The task ids of the block; an integer is read as its text."""
        if set(map(type, column)) != {str}:
            column = [str(task) for task in column]
        self._task.extend(map(self._tasks.__getitem__, column))

    def whole(self, name: str, column: Sequence[int]) -> None:
        """The block's whole numbers of ``sample``, ``attempt`` or ``outcome``."""
        self._whole.setdefault(name, []).append((self.rows, np.array(column, dtype=np.int64)))

    def numbers(self, kind: str, name: str, column: Sequence[Any], mixed: bool = False) -> None:
        """The block's values of a ``reward`` or a ``column``; None, and what is no number, is a gap."""
        try:  # three times as fast as np.array, and refuses None
            values = np.frombuffer(struct.pack(f"{len(column)}d", *column))
            given = None
        except struct.error:
            if mixed:
                column = [value if isinstance(value, (float, bool)) else None for value in column]
            values = np.array(column, dtype=np.float64)  # None becomes NaN, which JSON cannot hold
            given = ~np.isnan(values)
            if not given.any():
                return
        self._numbers.setdefault((kind, name), []).append((self.rows, values, given))

    def labels(self, name: str, column: Sequence[Any]) -> None:
        """The block's values of a label; None where a row has none."""
        codes = self._codes.setdefault(name, _Codes())
        found = [-1 if value is None else codes[value] for value in column]
        self._labels.setdefault(name, []).append((self.rows, np.array(found, dtype=np.int64)))

    def finish(self, places: Places, paths: Collection[str] = ()) -> Part:
        """Everything gathered, as one `Part`; ``paths`` are the labels that were asked for."""
        found: dict[str, dict[str, Column]] = {"reward": {}, "column": {}}
        for (kind, name), pieces in self._numbers.items():
            found[kind][name] = _column(name, pieces, self.rows)
        held = {
            name: Labels(_ints(pieces, self.rows, -1), list(self._codes[name])) for name, pieces in self._labels.items()
        }
        labels = {name: held[name] for name in held if not name.startswith("raw:")}
        for path in paths:
            first, _, rest = path.partition(".")
            for name, raw, steps in ((path, f"raw:{path}", ""), (f"metadata.{path}", f"raw:metadata.{first}", rest)):
                if raw in held:
                    labels[name] = _walk(held[raw], steps)
            if path in labels and (numbers := _numbers(labels[path])) is not None:
                found["column"][path] = numbers
        return Part(
            places=places,
            tasks=list(self._tasks),
            task=np.array(self._task, dtype=np.int64),
            sample=_ints(self._whole.get("sample", []), self.rows, 0),
            attempt=_ints(self._whole.get("attempt", []), self.rows, 1),
            outcome=_ints(self._whole.get("outcome", []), self.rows, UNSTATED).astype(np.uint8),
            rewards=found["reward"],
            columns=found["column"],
            labels=labels,
        )


def _column(name: str, pieces: Sequence[Piece], rows: int) -> Column:
    if sum(len(values) for _, values, _ in pieces) == rows and all(given is None for _, _, given in pieces):
        starts = [row for row, _, _ in pieces]
        if len(set(starts)) == len(starts):
            return Column.of(np.concatenate([values for _, values, _ in pieces]))
    values, given = np.zeros(rows), np.zeros(rows, dtype=bool)
    for row, piece, there in pieces:
        span = slice(row, row + len(piece))
        kept = np.ones(len(piece), dtype=bool) if there is None else there
        twice = np.flatnonzero(given[span] & kept)
        if len(twice):
            raise BadRow(row + int(twice[0]), f"{name} stands twice in one row", "expected it once")
        values[span][kept] = piece[kept]
        given[span] |= kept
    return Column(values, given)


def _ints(pieces: Sequence[tuple[int, Ints]], rows: int, default: int) -> Ints:
    values = np.full(rows, default, dtype=np.int64)
    for row, piece in pieces:
        values[row : row + len(piece)] = piece
    return values


def _walk(held: Labels, path: str) -> Labels:
    """Decode raw JSON labels and follow a dotted path into them; -1 where it leads nowhere."""
    values: list[Any] = []
    codes = np.full(len(held.values) + 1, -1, dtype=np.int64)
    for code, raw in enumerate(held.values):
        try:
            value = msgspec.json.decode(raw)
            if type(value) is int:
                float(value)
        except (msgspec.DecodeError, OverflowError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            wrong = "a label is nested too deeply" if deep else "a number is out of range"
            raise BadRow(int((held.code == code).argmax()), wrong, "expected text or a number") from None
        for step in path.split(".") if path else ():
            if not isinstance(value, Mapping) or step not in value:
                break
            value = value[step]
        else:
            codes[code] = len(values)
            values.append(value)
    return Labels(codes[held.code], values)


def _numbers(labels: Labels) -> Column | None:
    """Labels as a column, where they are numbers; None when none is."""
    known = [float(v) if isinstance(v, (int, float)) else np.nan for v in labels.values]
    values = np.array([*known, np.nan])[labels.code]
    given = ~np.isnan(values)
    return Column(values, given) if given.any() else None
