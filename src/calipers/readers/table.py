"""CSV and Parquet files: what their columns are called, and how their rows come in."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError
from calipers.readers import csv_text
from calipers.readers.files import LARGEST_WHOLE, Source
from calipers.readers.frames import LEAST, Frames, Meaning, meanings
from calipers.readers.jsonl import LineError
from calipers.readers.native import Progress
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import meant

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
            if table is None:
                table = _Csv(source.path, block, names, labels)
            else:
                table.take(block)
    except LineError as error:
        raise error.at(source.path) from None
    return [table.finish()] if table and table.rows else []


def read_parquet(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a Parquet source: a rollout a row, null is a gap, NaN is a number somebody sent."""
    import polars as pl

    with _explained(source.path):
        # a path by itself would be taken for a pattern, or for an address
        place = os.path.abspath(source.path) if source.divisible else io.BytesIO(source.everything(LARGEST_WHOLE))
        table = pl.scan_parquet(place, glob=False, hive_partitioning=False)
        columns = _flat(table.collect_schema(), names, labels)
        _need_task(source.path, list(columns), names)
        rows = int(table.select(pl.len()).collect().item())
    if not rows:
        return []
    found = meanings(list(columns), names, labels)
    found = [meaning for meaning in found if _readable(meaning.what, columns[meaning.key][1])]
    wanted = sorted({meaning.at for meaning in found})
    flat = table.select([list(columns.values())[at][0].alias(str(at)) for at in wanted])
    frames = Frames(Places(source.path, "row "))
    frames.begin(1)
    with _explained(source.path):
        for batch in flat.collect_batches(chunk_size=BATCH, maintain_order=True):
            for meaning in found:
                frames.take(meaning, batch[str(meaning.at)])
            before, frames.rows = frames.rows, frames.rows + batch.height
            progress(source.size * frames.rows // rows - source.size * before // rows)
        return [frames.finish(frozenset(columns) & frozenset(names.values()))]


class _Csv:
    """The table a CSV text holds: every cell is text, and becomes what its column is read as."""

    def __init__(self, path: str, header: csv_text.Block, names: Mapping[str, str], labels: Collection[str]) -> None:
        keys = [(key or "").strip() for key in header.frame().row(0)]
        line = int(header.lines[0])
        for key in keys:
            if key and keys.count(key) > 1:
                raise LineError(line, f"column {key!r} stands twice", "expected each column once")
        _need_task(f"{path}:{line}", keys, names)
        self._keys = keys
        self._meanings = meanings(keys, names, labels)
        self._named = frozenset(keys) & frozenset(names.values())
        self._frames = Frames(Places(path))
        self._texts: set[Meaning] = set()  # columns that turned out to hold text
        self._odd: dict[Meaning, tuple[int, str]] = {}  # the first NaN of columns of numbers: its row, its text

    @property
    def rows(self) -> int:
        """How many rollouts were taken."""
        return self._frames.rows

    def take(self, block: csv_text.Block) -> None:
        """The next records."""
        for row in (block.cells != len(self._keys)).nonzero()[0][:1]:
            wrong = f"a row of {block.cells[row]} cells"
            raise LineError(int(block.lines[row]), wrong, f"expected {len(self._keys)}, as in the header")
        cells = block.frame()
        first, last = int(block.lines[0]), int(block.lines[-1])
        self._frames.begin(first if last - first == cells.height - 1 else block.lines)
        for meaning in self._meanings:
            self._take(meaning, cells[:, meaning.at])
        self._frames.rows += cells.height

    def _take(self, meaning: Meaning, cells: pl.Series) -> None:
        column = cells
        if meaning.what in LEAST:
            column = csv_text.whole(cells)
            self._frames.refuse(meaning, cells, column.is_null() & cells.is_not_null())
        elif meaning.what == "column":
            column, no_number, odd = csv_text.numbers(cells)
            if meaning in self._texts or bool(no_number.any()):
                self._texts.add(meaning)
                self._frames.drop(meaning)
                return
            if bool(odd.any()) and meaning not in self._odd:
                row = odd.fill_null(False).arg_max() or 0
                self._odd[meaning] = (self.rows + row, cells[row])
        elif meaning.what in ("reward", "number"):
            column, no_number, odd = csv_text.numbers(cells)
            self._frames.refuse(meaning, cells, no_number | odd)
        elif meaning.what == "object" and cells.null_count() == len(cells):
            return
        self._frames.take(meaning, column)

    def finish(self) -> Part:
        """All rows taken, as one `Part`; InputError for a NaN in a column of numbers."""
        for meaning, (row, cell) in self._odd.items():
            if meaning not in self._texts:
                right = "expected a finite number, or an empty cell"
                raise InputError.at(self._frames.places.of(row), f"{meaning.key} is {cell}", right)
        return self._frames.finish(self._named)


def _need_task(place: str, keys: list[str], names: Mapping[str, str]) -> None:
    task = names.get("task", "task")
    if task not in keys:
        here = ", ".join(keys)
        here = here if len(here) <= 300 else here[:297] + "..."
        raise InputError.at(place, f"no column {task!r}", f"name it with --columns task=KEY (columns here: {here})")


def _readable(what: str, dtype: pl.DataType) -> bool:
    """Whether a column is worth reading: one that may hold numbers must, and an object must hold something."""
    import polars as pl

    if what == "column":
        return dtype.is_numeric() or dtype == pl.Boolean
    return what != "object" or dtype != pl.Null


def _flat(
    schema: pl.Schema, names: Mapping[str, str], labels: Collection[str]
) -> dict[str, tuple[pl.Expr, pl.DataType]]:
    """The columns of a table by name, with the fields of its objects as columns of their own.

    Of ``rewards`` and ``usage`` every field (``rewards.accuracy``), of ``metadata`` those asked for.
    """
    import polars as pl

    objects = {key: role for key, role in meant(names).items() if role in ("rewards", "usage", "metadata")}
    found: dict[str, tuple[pl.Expr, pl.DataType]] = {}
    for at, (key, dtype) in enumerate(schema.items()):
        if key not in objects or not isinstance(dtype, pl.Struct):
            found[key] = (pl.nth(at), dtype)  # by position: as names, "*" and "^.*$" are patterns
            continue
        fields = labels if objects[key] == "metadata" else [field.name for field in dtype.fields]
        for path in fields:
            steps = path.split(".") if objects[key] == "metadata" else [path]
            value = _field(pl.nth(at), dtype, steps)
            if value is not None:
                found[f"{key}.{path}"] = value
    return found


def _field(value: pl.Expr, dtype: pl.DataType, steps: Sequence[str]) -> tuple[pl.Expr, pl.DataType] | None:
    """The field of an object that a path leads to, and its type; None when it leads nowhere."""
    for step in steps:
        fields: dict[str, Any] = {field.name: field.dtype for field in getattr(dtype, "fields", ())}
        if step not in fields:
            return None
        value, dtype = value.struct.field(step), fields[step]
    return value, dtype


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what polars says of a broken file into an InputError."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        said = str(error).partition("\n")[0][:120]
        raise InputError.at(path, f"cannot be read as Parquet ({said})", "is it whole?") from None
