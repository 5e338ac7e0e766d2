"""CSV and Parquet files: what their columns are called, and how their rows come in."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError
from calipers.readers import csv_text
from calipers.readers.files import LARGEST_WHOLE, Source
from calipers.readers.frames import LEAST, Frames, Meaning, meanings
from calipers.readers.jsonl import LineError
from calipers.readers.native import Progress
from calipers.rollouts.column import Ints
from calipers.rollouts.part import Part, Places

if TYPE_CHECKING:
    import polars as pl

BATCH = 1 << 18  # rows of Parquet held at once, besides the columns made of them


def read_csv(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a CSV source: a header, then a rollout a record; an empty cell is a gap."""

    def read(size: int) -> bytes:
        found = source.read(size)
        progress(len(found))
        return found

    table: _Csv | None = None
    try:
        for block in csv_text.blocks(read):
            if table is None and len(block.lines):
                table = _Csv(source.path, block, names, labels)
            if table is not None:
                table.take(block)
    except LineError as error:
        raise error.at(source.path) from None
    return [table.finish()] if table else []


class _Csv:
    """The table a CSV text holds: every cell is text, and becomes what its column is read as."""

    def __init__(self, path: str, first: csv_text.Block, names: Mapping[str, str], labels: Collection[str]) -> None:
        self._width, line = int(first.cells[0]), int(first.lines[0])
        self._header: csv_text.Block | None = first
        header = [(key or "").strip() for key in first.head(1).frame().row(0)]
        twice = sorted({key for key in header if key and header.count(key) > 1})
        if twice:
            raise LineError(line, f"column {twice[0]!r} stands twice", "expected each once")
        _need_task(f"{path}:{line}", header, names)
        self._meanings = meanings(header, names, labels)
        self._named = frozenset(header) & frozenset(names.values())
        self._frames = Frames(Places(path))
        self._texts: set[Meaning] = set()  # columns that turned out to hold text
        self._odd: dict[Meaning, tuple[int, str]] = {}  # the first NaN of columns that hold numbers so far

    def take(self, block: csv_text.Block) -> None:
        """The next records; the very first of all is the header."""
        if self._header is block:
            block, self._header = block.tail(1), None
        if not len(block.lines):
            return
        for row in (block.cells != self._width).nonzero()[0][:1]:
            wrong = f"{block.cells[row]} cells in a row"
            raise LineError(int(block.lines[row]), wrong, f"expected {self._width}, as in the header")
        cells = block.frame()
        self._frames.begin(_lines(block.lines))
        for meaning in self._meanings:
            self._take(meaning, cells[:, meaning.at])
        self._frames.rows += cells.height

    def _take(self, meaning: Meaning, cells: pl.Series) -> None:
        frames, column = self._frames, cells
        if meaning.what in LEAST:
            column = csv_text.whole(cells)
            frames.refuse(meaning, cells, column.is_null() & cells.is_not_null())
        elif meaning.what in ("reward", "number", "column"):
            column, no_number, odd = csv_text.numbers(cells)
            if meaning.what != "column":
                frames.refuse(meaning, cells, no_number | odd)
            elif meaning in self._texts or bool(no_number.any()):
                self._texts.add(meaning)
                return frames.drop(meaning)
            elif bool(odd.any()) and meaning not in self._odd:
                row = odd.fill_null(False).arg_max() or 0
                self._odd[meaning] = (frames.rows + row, cells[row])
        elif meaning.what == "object" and cells.null_count() == len(cells):
            return None
        return frames.take(meaning, column)

    def finish(self) -> Part | None:
        for meaning, (row, cell) in self._odd.items():
            if meaning not in self._texts:
                right = "expected a finite number, or an empty cell"
                raise InputError.at(self._frames.places.of(row), f"{meaning.key} is {cell}", right)
        return self._frames.finish(self._named)
