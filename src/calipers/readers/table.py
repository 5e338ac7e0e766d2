"""CSV and Parquet files: what their columns are called, and how their rows come in."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError
from calipers.readers import csv_text
from calipers.readers.divide import Progress
from calipers.readers.files import LARGEST_WHOLE, Source
from calipers.readers.frames import LEAST, Frames, Meaning, meanings, named, shown
from calipers.readers.jsonl import LineError
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import meant

if TYPE_CHECKING:
    import polars as pl

_FINITE = "a finite number, or an empty cell"
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

    with explained(source.path):
        table = scanned(source)
        columns = _flat(table.collect_schema(), names, labels)
        rows = int(table.select(pl.len()).collect().item())
    keys = [column.key for column in columns]
    _check_keys(source.path, keys, names)
    found = [one for one in meanings(keys, names, labels) if _readable(one.what, columns[one.at].dtype)]
    wanted = sorted({columns[meaning.at].at for meaning in found})
    frames = Frames(Places(source.path, "row "))
    frames.begin(1)
    with explained(source.path):
        # columns by position: as names, "*" and "^.*$" are patterns
        chosen = table.select([pl.nth(at).alias(str(at)) for at in wanted])
        for batch in chosen.collect_batches(chunk_size=BATCH, maintain_order=True):
            for meaning in found:
                frames.take(meaning, columns[meaning.at].of(batch))
            before, frames.rows = frames.rows, frames.rows + batch.height
            progress(source.size * frames.rows // rows - source.size * before // rows)
    if frames.rows != rows:  # polars ends early, without a word, where its own code gave up
        wrong = f"only {frames.rows} of its {rows} rows can be read as Parquet"
        raise InputError.at(source.path, wrong, "is it whole?")
    return [frames.finish(frozenset(keys) & frozenset(names.values()))] if rows else []


def csv_keys(header: csv_text.Block) -> list[str]:
    """What the first record of a CSV text calls its columns."""
    return [(key or "").strip() for key in header.frame().row(0)]


def scanned(source: Source) -> pl.LazyFrame:
    """A Parquet source, of which nothing is read yet that nobody asks for."""
    import polars as pl

    # a bare path could be taken for an address
    place = os.path.abspath(source.path) if source.divisible else io.BytesIO(source.everything(LARGEST_WHOLE))
    return pl.scan_parquet(place, glob=False, hive_partitioning=False)


class _Csv:
    """The table a CSV text holds: every cell is text, and becomes what its column is read as."""

    def __init__(self, path: str, header: csv_text.Block, names: Mapping[str, str], labels: Collection[str]) -> None:
        keys = csv_keys(header)
        _check_keys(f"{path}:{header.lines[0]}", keys, names)
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
            column, bad = csv_text.whole(cells)
            self._frames.refuse(meaning, cells, bad)
        elif meaning.what == "column":
            column, no_number, odd = csv_text.numbers(cells)
            if meaning in self._texts or bool(no_number.any()):
                self._texts.add(meaning)
                return self._frames.drop(meaning)
            if bool(odd.any()) and meaning not in self._odd:
                row = odd.fill_null(False).arg_max() or 0
                self._odd[meaning] = (self.rows + row, cells[row])
        elif meaning.what in ("reward", "number"):
            column, no_number, odd = csv_text.numbers(cells)
            self._frames.refuse(meaning, cells, no_number | odd, _FINITE)
        elif meaning.what == "object":
            return self._frames.refuse(meaning, cells, cells.is_not_null())
        return self._frames.take(meaning, column)

    def finish(self) -> Part:
        """All rows taken, as one `Part`; InputError for a NaN in a column of numbers."""
        for meaning, (row, cell) in self._odd.items():
            if meaning not in self._texts:
                place = self._frames.places.of(row)
                raise InputError.at(place, f"{named(meaning.key)} is {shown(cell)}", f"expected {_FINITE}")
        return self._frames.finish(self._named)


def _check_keys(place: str, keys: list[str], names: Mapping[str, str]) -> None:
    """InputError unless every column has a name of its own, if any, and one is the task."""
    for key, count in Counter(keys).items():
        if key and count > 1:
            raise InputError.at(place, f"column {key!r} stands twice", "expected each column once")
    task = names.get("task", "task")
    if task not in keys:
        here = ", ".join(map(named, keys))
        here = here if len(here) <= 300 else here[:297] + "..."
        right = f"name it with --columns task=KEY (columns here: {here})"
        parted = next((mark for mark in ";\t|" if len(keys) == 1 and task in keys[0].split(mark)), None)
        if parted is not None:
            right = f"expected commas between columns, not {json.dumps(parted)}"
        raise InputError.at(place, f"no column {task!r}", right)


def _readable(what: str, dtype: pl.DataType) -> bool:
    """Whether a column is worth reading: one that may hold numbers must, and an object must hold something."""
    import polars as pl

    if what == "column":
        return dtype.is_numeric() or dtype == pl.Boolean
    return what != "object" or dtype != pl.Null


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of Parquet, or a field inside one."""

    key: str
    at: int  # the position of the column
    steps: Sequence[str]  # the way to the field
    dtype: pl.DataType

    def of(self, batch: pl.DataFrame) -> pl.Series:
        """Its values in a batch, whose columns are called by their position."""
        found = batch.get_column(str(self.at))
        for step in self.steps:
            found = found.struct.unnest().get_column(step)
        return found


def _flat(schema: pl.Schema, names: Mapping[str, str], labels: Collection[str]) -> list[_Leaf]:
    """The columns of a table, with the fields of its objects as columns of their own.

    Of ``rewards`` and ``usage`` every field (``rewards.accuracy``), of ``metadata`` those asked for.
    """
    objects = {key: role for key, role in meant(names).items() if role in ("rewards", "usage", "metadata")}
    found = []
    for at, (key, dtype) in enumerate(schema.items()):
        fields = [field.name for field in getattr(dtype, "fields", ())]
        if key not in objects or not fields:
            found.append(_Leaf(key, at, (), dtype))
        elif objects[key] == "metadata":
            ways = [path.split(".") for path in sorted(labels)]
            found += [_Leaf(f"{key}.{'.'.join(way)}", at, way, end) for way in ways if (end := _end(dtype, way))]
        else:
            found += [_Leaf(f"{key}.{field}", at, [field], end) for field in fields if (end := _end(dtype, [field]))]
    return found


def _end(dtype: Any, steps: Sequence[str]) -> pl.DataType | None:
    """The type of what a path into an object leads to; None when it leads nowhere."""
    for step in steps:
        dtype = {field.name: field.dtype for field in getattr(dtype, "fields", ())}.get(step)
    found: pl.DataType | None = dtype
    return found


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn what polars says of a broken file into an InputError."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        said = str(error).partition("\n")[0][:120]
        raise InputError.at(path, f"cannot be read as Parquet ({said})", "is it whole?") from None
