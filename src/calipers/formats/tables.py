"""CSV and Parquet: one row per rollout, with its rewards and its texts.

CSV is cut into records here, a block of bytes at a time; the cells of the records are parsed by polars. Nothing is
guessed and nothing is repaired: errors that polars would accept (missing cells, stray quotes) are found before, and so
is the line of each record, which polars does not return.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.formats import (
    BAD,
    NUMBERED,
    TARGET,
    Columns,
    Extras,
    Format,
    Progress,
    Raw,
    Text,
    target_hash,
    worths,
)
from calipers.formats.frames import LEAST, Frames, Meaning, meanings, without_role
from calipers.formats.jsonl import of_row
from calipers.formats.lines import MOST_KINDS, LineError, NotPackable, processes
from calipers.formats.source import BOM, LARGEST_WHOLE, LONGEST_LINE, Source, ranged_tag
from calipers.formats.source_facts import FACTS
from calipers.rollouts.column import Bools, Ints, starts_of
from calipers.rollouts.ids import SPARSE, Ids
from calipers.rollouts.packed import Loose, laid_end_to_end, pack, small
from calipers.rollouts.record import GROUP, TEXTS, meant, named, shown
from calipers.rollouts.table import Part, Places
from calipers.typed import complete

if TYPE_CHECKING:
    import polars as pl


CHUNK = 8 << 20  # bytes of CSV text read at once
MOST_COLUMNS = 100_000  # polars takes 0.2 ms and 8 KB per column, so a million would take minutes and gigabytes
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
NO_NUMBER = r"(?i)^[+-]?(nan|inf|infinity)$"

_NEWLINE, _RETURN, _QUOTE, _COMMA = b'\n\r",'


@dataclass(frozen=True, slots=True)
class Block:
    """N whole records, without blank lines."""

    text: bytes  # every record ends with a newline
    lines: Ints  # [N] the line each record starts on
    cells: Ints  # [N] the number of cells of each record

    def frame(self) -> pl.DataFrame:
        """The cells as text, with null for an empty cell; all records must have as many cells as the first."""
        import polars as pl

        schema = dict.fromkeys(map(str, range(self.cells[0])), pl.String())
        frame = pl.read_csv(self.text, has_header=False, schema=schema, infer_schema=False)
        if frame.height != len(self.lines):
            raise RuntimeError(f"{len(self.lines)} records of CSV were read as {frame.height}")
        return frame.with_columns(pl.all().replace("", None))


def blocks(read: Callable[[int], bytes]) -> Iterator[Block]:
    """The header of a CSV text as a block of its own, then blocks of its records; LineError for a bad record."""
    header = True
    for block in _blocks(read):
        if header and len(block.lines):
            if block.cells[0] > MOST_COLUMNS:
                problem = f"it has {int(block.cells[0]):,} columns (maximum {MOST_COLUMNS:,})"
                raise LineError(int(block.lines[0]), problem, "expected a rollout per row and its values in columns")
            end = int(_outside(block.text, _NEWLINE, _positions(block.text, _QUOTE))[0]) + 1
            yield Block(block.text[:end], block.lines[:1], block.cells[:1])
            block = Block(block.text[end:], block.lines[1:], block.cells[1:])
            header = False
        if len(block.lines):
            yield block


def _blocks(read: Callable[[int], bytes]) -> Iterator[Block]:
    data, line = read(CHUNK).removeprefix(BOM), 1
    while data:
        more = read(max(CHUNK, len(data)))
        if not more and not data.endswith(b"\n"):
            data += b"\n"
        quotes = _positions(data, _QUOTE)
        ends = _outside(data, _NEWLINE, quotes)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        if (int(ends[0]) if cut else len(data)) > LONGEST_LINE:
            problem = f"a record is longer than {LONGEST_LINE >> 20} MiB"
            raise LineError(line, problem, "expected one rollout per record; is a quote not closed?")
        _check(data if not more else data[:cut], quotes, line)
        if cut:
            yield _block(data[:cut], ends, quotes, line)
        line += data.count(b"\n", 0, cut)
        if cut < len(data) and not more:
            raise LineError(line, "a quote is opened and never closed", "expected a quote at the end of the cell")
        data = data[cut:] + more


def _positions(data: bytes, octet: int) -> Ints:
    """The positions of a byte."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == octet)


def _outside(data: bytes, octet: int, quotes: Ints) -> Ints:
    """The positions of a byte outside quotes, which are those after an even number of quotes."""
    positions = _positions(data, octet)
    return positions[np.searchsorted(quotes, positions) % 2 == 0] if len(quotes) else positions


def _check(data: bytes, quotes: Ints, line: int) -> None:
    """LineError for the first byte that is not allowed at its position."""
    octets = np.frombuffer(data, dtype=np.uint8)
    faults: list[tuple[int, str, str]] = []
    try:
        data.decode()
    except UnicodeDecodeError as error:
        faults.append((error.start, "a cell is not UTF-8", "expected UTF-8 text"))
    if (position := data.find(b"\0")) >= 0:
        faults.append((position, "a cell contains a NUL byte", "expected text"))
    if b"\r" in data:
        returns = _outside(data, _RETURN, quotes)
        problem, expected = "a carriage return inside a line", r"expected lines that end in \n or \r\n"
        faults += [(int(first), problem, expected) for first in returns[octets[returns + 1] != _NEWLINE][:1]]
    if len(quotes):
        quotes = quotes[quotes < len(data)]
        opening, closing = quotes[::2], quotes[1::2]
        before = np.where(opening > 0, octets[opening - 1], _NEWLINE)
        stray = [opening[~np.isin(before, [_COMMA, _NEWLINE, _QUOTE])]]
        stray.append(closing[~np.isin(octets[closing + 1], [_COMMA, _NEWLINE, _RETURN, _QUOTE])])
        expected = 'expected the whole cell in quotes and each quote in it doubled ("")'
        faults += [(int(positions[0]), "a quote inside a cell", expected) for positions in stray if len(positions)]
    if faults:
        position, problem, expected = min(faults)
        raise LineError(line + data.count(b"\n", 0, position), problem, expected)


def _block(data: bytes, ends: Ints, quotes: Ints, line: int) -> Block:
    """Whole records as a `Block`, with lines and cells counted, and blank lines and carriage returns removed."""
    octets = np.frombuffer(data, dtype=np.uint8)
    starts = np.append(0, ends[:-1] + 1)
    lines = line + (np.searchsorted(_positions(data, _NEWLINE), starts) if len(quotes) else np.arange(len(ends)))
    commas = _outside(data, _COMMA, quotes)
    cells = np.searchsorted(commas, ends) - np.searchsorted(commas, starts) + 1
    returns = (octets[ends - 1] == _RETURN) & (ends > starts)
    filled = ends - returns > starts
    if returns.any() or not filled.all():
        kept = np.ones(len(octets), dtype=bool)
        kept[ends[returns] - 1] = False
        kept[ends[~filled]] = False
        data = octets[kept].tobytes()
    return Block(data, lines[filled], cells[filled])


def whole(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Text as integers of up to 18 digits, and a mask of the cells that are not; both null for a blank cell."""
    import polars as pl

    text = cells.str.strip_chars().replace("", None)
    bad = ~text.str.contains("^[0-9]{1,18}$")
    return text.set(bad, None).cast(pl.Int64), bad


def numbers(cells: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Text as numbers, with true as 1 and false as 0; a mask of other text; and a mask of NaN and numbers out of range.

    All three are null for a blank cell.
    """
    import polars as pl

    text = cells.str.strip_chars().replace("", None)
    number = text.str.contains(NUMBER)
    if bool(number.all()):
        values = text.cast(pl.Float64, strict=False)
        return values, ~number, values.is_infinite()
    low = text.str.to_lowercase()
    truth = low.is_in(["true", "false"])
    values = text.set(~number, None).cast(pl.Float64, strict=False)
    values = values.zip_with(~truth.fill_null(False), (low == "true").cast(pl.Float64))
    odd = text.str.contains(NO_NUMBER) | values.is_infinite().fill_null(False)
    return values, ~(number | truth | odd), odd


_FINITE = "a finite number, or an empty cell"
BATCH = 1 << 18  # rows of Parquet read at once


def read_csv(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a CSV source: a header, then one record per rollout; an empty cell is a gap."""

    def read(size: int) -> bytes:
        data = source.read(size)
        progress(len(data))
        return data

    table: _Csv | None = None
    try:
        for block in blocks(read):
            if table is None:
                table = _Csv(source.path, block, names, labels)
            else:
                table.take(block)
    except LineError as error:
        raise error.at(source.path) from None
    return [table.finish()] if table and table.rows else []


def read_parquet(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a Parquet source, one row per rollout; null is a gap, NaN is a number."""

    def row_progress(before: int, after: int, rows: int) -> None:
        progress(source.size * after // rows - source.size * before // rows)

    with explained(source.path):
        table = scanned(source)
    encoded = json_columns(source.path) if labels and source.divisible else frozenset[str]()
    return read_table(table, source.path, names, labels, row_progress, encoded)


def read_table(
    table: pl.LazyFrame,
    path: str,
    names: Mapping[str, str],
    labels: Collection[str],
    progress: Callable[[int, int, int], None] = lambda before, after, rows: None,
    encoded: Collection[str] = (),
) -> list[Part]:
    """The rollouts of a table, one row per rollout.

    ``path`` is the name of the table in errors, ``progress`` is called with the rows read before and after each batch
    and with the number of all rows, and ``encoded`` are the columns whose text is JSON.
    """
    import polars as pl

    columns, keys, wanted_columns, rows = _described(table, path, names, labels)
    facts = [leaf for leaf in columns if leaf.key == FACTS and leaf.dtype == pl.String]
    as_json = [leaf for leaf in columns if leaf.key == metadata_key(names) and leaf.dtype == pl.String]
    as_json = as_json if labels else []
    wanted = sorted(
        {columns[meaning.position].position for meaning in wanted_columns}
        | {leaf.position for leaf in (*facts, *as_json)}
    )
    frames = Frames(Places(path, "row "), worths(names))
    frames.begin(1)
    with explained(path):
        # columns by position, because polars takes the names "*" and "^.*$" for patterns
        chosen = table.select([pl.nth(n).alias(str(n)) for n in wanted])
        for batch in chosen.collect_batches(chunk_size=BATCH, maintain_order=True):
            for meaning in wanted_columns:
                if meaning.what == "label" and meaning.key in encoded:
                    frames.take_json(meaning.name, columns[meaning.position].of(batch))
                else:
                    frames.take(meaning, columns[meaning.position].of(batch))
            for leaf in facts:
                frames.carry(leaf.of(batch))
            for leaf in as_json:
                for name, values in _inside(leaf.of(batch), labels):
                    frames.take_json(name, values)
            before, frames.rows = frames.rows, frames.rows + batch.height
            progress(before, frames.rows, rows)
    if frames.rows != rows:  # polars may end early without an error
        problem = f"only {frames.rows} of its {rows} rows can be read as Parquet"
        raise InputError.at(path, problem, "is it complete?")
    named = frozenset(keys) & frozenset(names.values())
    return [frames.finish(named, without_role(keys, names))] if rows else []


def _described(
    table: pl.LazyFrame, path: str, names: Mapping[str, str], labels: Collection[str]
) -> tuple[list[_Leaf], list[str], list[Meaning], int]:
    """The columns of a table, their keys, the meanings of the columns to read, and the number of rows."""
    import polars as pl

    with explained(path):
        columns = _flat(table.collect_schema(), names, labels)
        rows = int(table.select(pl.len()).collect().item())
    keys = [column.key for column in columns]
    _check_keys(path, keys, names)
    return (
        columns,
        keys,
        [each for each in meanings(keys, names, labels) if columns[each.position].is_read(each.what)],
        rows,
    )


PACKED_BATCH = 1 << 18  # rows that are packed at once


def packed_parquet(
    source: Source, names: Mapping[str, str], labels: Collection[str], keep: Collection[str] | None, progress: Progress
) -> list[Loose]:
    """As `read_parquet`, packed; NotPackable if rows differ too much, or a value is invalid."""
    import polars as pl

    if not source.divisible:
        raise NotPackable("it cannot be read in pieces")
    with explained(source.path):
        table = scanned(source)
    columns, keys, described, rows = _described(table, source.path, names, labels)
    wanted = [(m, columns[m.position]) for m in described if m.what != "column" or keep is None or m.name in keep]
    (task,) = [leaf for meaning, leaf in wanted if meaning.what == "task"]
    nested = any(leaf.position != meaning.position for meaning, leaf in wanted)
    if nested or FACTS in keys or (labels and metadata_key(names) in keys):
        raise NotPackable("it has columns inside columns")
    with explained(source.path):
        ids = _task_ids(table, task, rows)
    others = without_role(keys, names)
    named = frozenset(keys) & frozenset(names.values())

    def packed(start: int, batch: pl.DataFrame) -> Loose:
        frames = Frames(Places(source.path, "row "), worths(names))
        frames.begin(1 + start)
        for meaning, leaf in wanted:
            if meaning.what != "task":
                frames.take(meaning, leaf.of(batch))
        cells = task.of(batch)
        if cells.null_count():
            raise NotPackable("a row has no task")
        ids.take(start, cells)
        frames.rows = batch.height
        return _packed_batch(frames, named, others, keep)

    pieces: list[Loose] = []
    waiting: deque[Future[Loose]] = deque()
    rows_read = 0
    positions = sorted({leaf.position for _, leaf in wanted})
    chosen = table.select([pl.nth(n).alias(str(n)) for n in positions])
    with explained(source.path), ThreadPoolExecutor(processes()) as pool:
        for batch in chosen.collect_batches(chunk_size=PACKED_BATCH, maintain_order=True):
            waiting.append(pool.submit(packed, rows_read, batch))
            if len(waiting) > 2 * processes():
                pieces.append(waiting.popleft().result())
            before, rows_read = rows_read, rows_read + batch.height
            progress(source.size * rows_read // max(rows, 1) - source.size * before // max(rows, 1))
        pieces += [future.result() for future in waiting]
    if rows_read != rows or not rows:
        raise NotPackable("it is empty, or not complete")
    codes = ids.codes()
    task_column = table.select(pl.nth(task.position))
    tasks = ids.texts(lambda size: task_column.collect_batches(chunk_size=size, maintain_order=True), codes)
    rollouts = laid_end_to_end(pieces, tasks, np.zeros(0, dtype=np.int64))
    return [replace(rollouts, task=codes)]


def _task_ids(table: pl.LazyFrame, task: _Leaf, rows: int) -> NumberIds | TextIds:
    """An empty store for the task ids of the rows, by the type of their column."""
    import polars as pl

    if not task.dtype.is_integer():
        return TextIds(rows)
    column = pl.nth(task.position)
    return NumberIds(rows, *table.select(low=column.min(), high=column.max()).collect().row(0))


def _packed_batch(frames: Frames, named: frozenset[str], others: Sequence[str], keep: Collection[str] | None) -> Loose:
    try:
        piece = pack(frames.finish(named, others), keep)
    except InputError as error:  # reading the rows unpacked gives a better message
        raise NotPackable(str(error)) from None
    if len(piece.kinds) > MOST_KINDS:
        raise NotPackable("rollouts differ in too many values")
    return replace(piece, task=piece.task[:0])


class NumberIds:
    """The tasks of a table whose ids are non-negative integers."""

    def __init__(self, rows: int, low: int | None, high: int | None) -> None:
        if low is None or high is None or low < 0 or high >= 1 << 63:
            raise NotPackable("an id is negative, or larger than any number of 63 bits")
        self._numbers: NDArray[Any] = np.empty(rows, dtype=np.uint32 if high < 1 << 32 else np.int64)
        self._ids = Ids.of_numbers(np.zeros(0, dtype=np.int64))

    def take(self, start: int, cells: pl.Series) -> None:
        """Store the ids of the rows from ``start`` on."""
        self._numbers[start : start + len(cells)] = cells.to_numpy()

    def codes(self) -> NDArray[Any]:
        """The code of each row's task; computed in chunks, to save memory."""
        lowest, most = int(self._numbers.min()), int(self._numbers.max())
        if most - lowest <= SPARSE * len(self._numbers):
            occurs = np.zeros(most - lowest + 1, dtype=bool)
            starts = range(0, len(self._numbers), PACKED_BATCH)
            pieces = [self._numbers[start : start + PACKED_BATCH] for start in starts]
            for piece in pieces:
                occurs[piece - lowest] = True
            self._ids = Ids.of_numbers(np.flatnonzero(occurs) + lowest)
            if lowest == 0 and len(self._ids) == len(occurs):
                return self._numbers
            rank = small(np.cumsum(occurs) - 1)
            return np.concatenate([rank[piece - lowest] for piece in pieces])
        distinct, code = np.unique(self._numbers, return_inverse=True)
        self._ids = Ids.of_numbers(distinct.astype(np.int64))
        return small(code)

    def texts(self, read_again: Callable[[int], Any], codes: NDArray[Any]) -> Ids:
        """The distinct ids, by code."""
        return self._ids


class TextIds:
    """The tasks of a table whose ids are text: coded by two hashes, and read again for the text of the distinct ids.

    Ids with equal hashes of 64 and of 32 bits, with new random keys for each file, are taken to be equal. In a file of
    ten million ids, the chance that two different ids agree in both is 1e-15. Ids that agree only in the first hash
    raise NotPackable.
    """

    def __init__(self, rows: int) -> None:
        self._hash: NDArray[np.uint64] = np.empty(rows, dtype=np.uint64)
        self._second: NDArray[np.uint32] = np.empty(rows, dtype=np.uint32)
        self._keys = [int(key) for key in np.random.default_rng().integers(0, 1 << 62, 2)]  # they change no result
        self._first: Ints = np.zeros(0, dtype=np.int64)  # the first row of each task

    def take(self, start: int, cells: pl.Series) -> None:
        """Hash the ids of the rows from ``start`` on."""
        import polars as pl

        texts = cells.cast(pl.String)
        rows = slice(start, start + len(texts))
        self._hash[rows] = texts.hash(self._keys[0]).to_numpy()
        self._second[rows] = (texts.hash(self._keys[1]).to_numpy() >> np.uint64(32)).astype(np.uint32)

    def codes(self) -> NDArray[Any]:
        """The code of each row's task, by sorting hashes in buckets that fit the processor's cache."""
        bucket = (self._hash >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=256))
        del bucket
        code = np.empty(len(order), dtype=np.uint32)

        def sort(number: int) -> tuple[Ints, Ints, Bools]:
            rows = order[ends[number - 1] if number else 0 : ends[number]]
            hashes = self._hash[rows]
            by_hash = np.argsort(hashes, kind="stable")
            rows, hashes = rows[by_hash], hashes[by_hash]
            new = np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(rows)]
            second = self._second[rows]
            if bool((second[1:] != second[:-1])[~new[1:]].any()):
                raise NotPackable("two ids have the same hash")
            return rows, np.cumsum(new), new

        firsts, tasks = [], 0
        with ThreadPoolExecutor(processes()) as pool:
            for rows, number, new in pool.map(sort, range(256)):
                code[rows] = number + (tasks - 1)
                firsts.append(rows[new])
                tasks += int(np.count_nonzero(new))
        self._first = np.concatenate(firsts)
        self._hash, self._second = self._hash[:0], self._second[:0]
        return code

    def texts(self, read_again: Callable[[int], Any], codes: NDArray[Any]) -> Ids:
        """The distinct ids in the order of their first rows, to which the codes are changed in place.

        ``read_again`` returns the column of ids again, in batches of the given size.
        """
        import polars as pl

        order = np.argsort(self._first, kind="stable")
        rows = self._first[order]
        sizes, pieces, start = [], [], 0
        for batch in read_again(PACKED_BATCH):
            first, last = np.searchsorted(rows, [start, start + batch.height])
            cells = batch.to_series().cast(pl.String).gather(rows[first:last] - start)
            sizes.append(cells.str.len_bytes().to_numpy().astype(np.int64))
            pieces.append(cells.str.join("", ignore_nulls=False).item().encode())
            start += batch.height
        starts = starts_of(np.concatenate(sizes))
        rank = np.empty(len(order), dtype=np.uint32)
        rank[order] = np.arange(len(order))
        for first in range(0, len(codes), PACKED_BATCH):
            codes[first : first + PACKED_BATCH] = rank[codes[first : first + PACKED_BATCH]]
        return Ids(np.frombuffer(b"".join(pieces), dtype=np.uint8), starts)


def metadata_key(names: Mapping[str, str]) -> str | None:
    """The key of the metadata in a file; None if --columns uses it for another role."""
    return {role: key for key, role in meant(names).items()}.get("metadata")


def _inside(metadata: pl.Series, labels: Collection[str]) -> Iterator[tuple[str, pl.Series]]:
    """Labels from metadata that is JSON text: the value at each path as JSON, or null if there is none."""
    import polars as pl

    rows = [_object(text) for text in metadata.to_list()]
    for path in sorted({label.removeprefix("metadata.") for label in labels}):  # a label may be given in both ways
        values = []
        for row in rows:
            value: Any = row
            for step in path.split("."):
                value = value.get(step) if isinstance(value, dict) else None
            values.append(None if value is None else json.dumps(value, ensure_ascii=False))
        yield f"metadata.{path}", pl.Series(values, dtype=pl.String)


def _object(text: str | None) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except BAD:
        return None


JSON_COLUMNS = "calipers"
"""The key in the metadata of a Parquet file under which the columns whose text is JSON are listed."""


def json_columns(path: str) -> frozenset[str]:
    """The columns of a Parquet file that `calipers convert` wrote as JSON; none for any other file."""
    import polars as pl

    with explained(path):
        stored = pl.read_parquet_metadata(os.path.abspath(path)).get(JSON_COLUMNS)
    try:
        return frozenset(msgspec.json.decode(stored, type=complete(_Stored)).json) if stored else frozenset()
    except BAD:
        return frozenset()


class _Stored(msgspec.Struct):
    json: list[str] = []


def csv_keys(header: Block) -> list[str]:
    """The column names in the header of a CSV text."""
    return [(key or "").strip() for key in header.frame().row(0)]


def scanned(source: Source) -> pl.LazyFrame:
    """A Parquet source as a lazy frame, of which only the columns that are used are read."""
    import polars as pl

    if ranged_tag(source.path) is not None:
        from calipers.stores.objects import scan

        return scan(source.path)
    # an absolute path, as polars could take a relative one for a URL
    target = os.path.abspath(source.path) if source.divisible else io.BytesIO(source.everything(LARGEST_WHOLE))
    return pl.scan_parquet(target, glob=False, hive_partitioning=False)


class _Csv:
    """The table of a CSV text, whose cells are text and are converted by the meanings of their columns."""

    def __init__(self, path: str, header: Block, names: Mapping[str, str], labels: Collection[str]) -> None:
        keys = csv_keys(header)
        _check_keys(f"{path}:{header.lines[0]}", keys, names)
        self._keys = keys
        self._meanings = meanings(keys, names, labels)
        self._named = frozenset(keys) & frozenset(names.values())
        self._others = without_role(keys, names)
        self._frames = Frames(Places(path), worths(names))
        self._texts: set[Meaning] = set()  # columns that contain text
        self._odd: dict[Meaning, tuple[int, str]] = {}  # the row and text of the first NaN or infinity of each column

    @property
    def rows(self) -> int:
        """The number of rollouts read."""
        return self._frames.rows

    def take(self, block: Block) -> None:
        """Read the next records."""
        for row in (block.cells != len(self._keys)).nonzero()[0][:1]:
            problem = f"a row of {block.cells[row]} cells"
            raise LineError(int(block.lines[row]), problem, f"expected {len(self._keys)}, as in the header")
        cells = block.frame()
        first, last = int(block.lines[0]), int(block.lines[-1])
        self._frames.begin(first if last - first == cells.height - 1 else block.lines)
        for meaning in self._meanings:
            self._take(meaning, cells[:, meaning.position])
        self._frames.rows += cells.height

    def _take(self, meaning: Meaning, cells: pl.Series) -> None:
        column = cells
        if meaning.what in LEAST:
            column, bad = whole(cells)
            self._frames.refuse(meaning, cells, bad)
        elif meaning.what == "column":
            column, no_number, odd = numbers(cells)
            if meaning in self._texts or bool(no_number.any()):
                self._texts.add(meaning)
                return self._frames.drop(meaning)
            if bool(odd.any()) and meaning not in self._odd:
                row = odd.fill_null(False).arg_max() or 0
                self._odd[meaning] = (self.rows + row, cells[row])
        elif meaning.what in ("reward", "number"):
            column, no_number, odd = numbers(self._frames.with_words(cells) if meaning.what == "reward" else cells)
            self._frames.refuse(meaning, cells, no_number | odd, self._frames.expected(_FINITE))
        elif meaning.what == "object":
            return self._frames.refuse(meaning, cells, cells.is_not_null())
        return self._frames.take(meaning, column)

    def finish(self) -> Part:
        """All rows, as one `Part`; InputError for a NaN or an infinity in a column of numbers."""
        for meaning, (row, cell) in self._odd.items():
            if meaning not in self._texts:
                location = self._frames.places.of(row)
                raise InputError.at(location, f"{named(meaning.key)} is {shown(cell)}", f"expected {_FINITE}")
        return self._frames.finish(self._named, self._others)


def _check_keys(location: str, keys: list[str], names: Mapping[str, str]) -> None:
    """InputError unless all named columns have different names, and one of them is the task."""
    for key, count in Counter(keys).items():
        if key and count > 1:
            raise InputError.at(location, f"column {key!r} appears twice", "expected each column once")
    task = names.get("task", "task")
    if task not in keys:
        here = ", ".join(map(named, keys))
        here = here if len(here) <= 300 else here[:297] + "..."
        expected = f"name it with --columns task=KEY (columns here: {here})"
        separator = next((mark for mark in ";\t|" if len(keys) == 1 and task in keys[0].split(mark)), None)
        if separator is not None:
            expected = f"expected commas between columns, not {json.dumps(separator)}"
        raise InputError.at(location, f"no column {task!r}", expected)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of Parquet, or a field of a struct column."""

    key: str
    position: int  # the position of the column
    steps: Sequence[str]  # the path to the field inside the column
    dtype: pl.DataType

    def is_read(self, what: str) -> bool:
        """Whether the column is read with this meaning: a ``column`` only with numbers, an ``object`` unless null."""
        import polars as pl

        if what == "column":
            return self.dtype.is_numeric() or self.dtype == pl.Boolean
        return what != "object" or self.dtype != pl.Null

    def of(self, batch: pl.DataFrame) -> pl.Series:
        """Its values in a batch, whose columns are named by their position."""
        series = batch.get_column(str(self.position))
        for step in self.steps:
            series = series.struct.unnest().get_column(step)
        return series


def _flat(schema: pl.Schema, names: Mapping[str, str], labels: Collection[str]) -> list[_Leaf]:
    """The columns of a table, with fields of its struct columns as columns of their own.

    These are all fields of ``rewards`` and ``usage`` (``rewards.accuracy``), and the requested ones of ``metadata``.
    """
    objects = {key: role for key, role in meant(names).items() if role in ("rewards", "usage", "metadata")}
    leaves = []
    for position, (key, dtype) in enumerate(schema.items()):
        fields = [field.name for field in getattr(dtype, "fields", ())]
        if key not in objects or not fields:
            leaves.append(_Leaf(key, position, (), dtype))
        elif objects[key] == "metadata":
            paths = [path.split(".") for path in sorted(labels)]
            leaves += [
                _Leaf(f"{key}.{'.'.join(steps)}", position, steps, t)
                for steps in paths
                if (t := _type_at(dtype, steps))
            ]
        else:
            leaves += [
                _Leaf(f"{key}.{field}", position, [field], t) for field in fields if (t := _type_at(dtype, [field]))
            ]
    return leaves


def _type_at(dtype: Any, steps: Sequence[str]) -> pl.DataType | None:
    """The type of the field at a path inside a struct type; None if there is no such field."""
    for step in steps:
        dtype = {field.name: field.dtype for field in getattr(dtype, "fields", ())}.get(step)
    field_type: pl.DataType | None = dtype
    return field_type


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the errors of polars for a broken file into an InputError."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0][:120]
        raise InputError.at(path, f"cannot be read as Parquet ({reason})", "is it complete?") from None


READ = ("task", "sample", *GROUP, *TEXTS, "answer")
OF_TASK = ("prompt", TARGET)  # equal in all rows of a task, and read from the first row that has it
TEXT_BATCH = 1 << 12  # rows read at once, as texts may be long


def texts(kind: str, path: str, names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    """The texts of the first row with a prompt (or target) of each task, and of all rows of the wanted tasks."""
    key_of = {role: key for key, role in meant(names).items()}
    key_of = {role: key_of[role] for role in READ if role in key_of}
    if TARGET not in names.values():
        key_of[TARGET] = TARGET
    tasks = sorted(wanted)
    numbered = names.get("sample") == NUMBERED
    seen = set[tuple[Any, ...]]()
    counts = Counter[tuple[Any, ...]]()  # rows so far of each wanted task, all of which are read here
    with Source(path) as source:
        encoded = json_columns(path) if kind == "parquet" and source.divisible else frozenset()
        as_json = [role for role, key in key_of.items() if key in encoded]
        for frame in (_csv if kind == "csv" else _parquet)(source, key_of, tasks):
            columns = tuple(frame.columns)  # prompts and answers may come in separate frames
            for row in _chosen(frame, tasks, seen).iter_rows(named=True):
                sample = row.pop("sample", None) or 0
                if numbered:
                    counted = (columns, row["task"], *(row.get(name) for name in GROUP))
                    sample = counts[counted]
                    counts[counted] += 1
                row |= {role: Raw(row[role].encode()) for role in as_json if row.get(role) is not None}
                target = row.pop(TARGET, None)
                target = target_hash(msgspec.json.decode(target) if isinstance(target, Raw) else target)
                yield Text(**{**dict.fromkeys(GROUP), **row}, sample=sample, target=target)


def _csv(source: Source, key_of: Mapping[str, str], tasks: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The columns of a CSV text that have a role, named by their roles."""
    import polars as pl

    positions: dict[str, int] = {}
    try:
        for block in blocks(source.read):
            if not positions:
                positions = _positions_of(csv_keys(block), key_of)
                if not _has_texts(positions, tasks):
                    return
                continue
            cells = block.frame()
            columns = {role: cells[:, n] for role, n in positions.items()}
            if "sample" in columns:
                columns["sample"], _ = whole(columns["sample"])
            yield pl.DataFrame(columns)
    except LineError as error:  # only if the file changed after its numbers were read
        raise error.at(source.path) from None


def _parquet(source: Source, key_of: Mapping[str, str], tasks: Sequence[str]) -> Iterator[pl.DataFrame]:
    """As `_csv`, for a Parquet file; first frames with prompts and targets, then with answers. Bytes are left out."""
    import polars as pl

    with explained(source.path):
        table = scanned(source)
        schema = table.collect_schema()
        types = list(schema.values())
        positions = {role: n for role, n in _positions_of(list(schema), key_of).items() if types[n] != pl.Binary}
        task_and_group = [role for role in positions if role in ("task", *GROUP)]
        # columns by position, because polars takes the names "*" and "^.*$" for patterns
        table = table.select([pl.nth(n).alias(role) for role, n in positions.items()])
        table = table.with_columns(pl.col(task_and_group).cast(pl.String))
        of_task = [role for role in OF_TASK if role in positions]
        if of_task:
            prompts = table.select(*task_and_group, *of_task)
            yield from prompts.collect_batches(chunk_size=TEXT_BATCH, maintain_order=True)
        if _has_texts(positions.keys() - {*OF_TASK}, tasks):  # filtered, so that only wanted completions are unpacked
            answers = table.filter(pl.col("task").is_in(tasks)).drop(*OF_TASK, strict=False)
            yield from answers.collect_batches(chunk_size=TEXT_BATCH, maintain_order=True)


def _positions_of(keys: Sequence[str], key_of: Mapping[str, str]) -> dict[str, int]:
    """The position of the column of each role that the table has."""
    return {role: keys.index(key) for role, key in key_of.items() if key in keys}


def _has_texts(roles: Collection[str], tasks: Sequence[str]) -> bool:
    """Whether columns of these roles have any of the requested texts."""
    return any(role in roles for role in OF_TASK) or bool(tasks and ("answer" in roles or "completion" in roles))


def _chosen(frame: pl.DataFrame, tasks: Sequence[str], seen: set[tuple[Any, ...]]) -> pl.DataFrame:
    """The rows of a batch that are of these tasks, or have a task's first prompt or target; ``seen`` is updated."""
    import polars as pl

    kept = frame["task"].is_in(tasks)
    task_and_group = [name for name in ("task", *GROUP) if name in frame.columns]
    for role in OF_TASK:
        if role not in frame.columns:
            continue
        given = frame.select(*task_and_group, at=pl.int_range(pl.len())).filter(frame[role].is_not_null())
        firsts = given.unique(task_and_group, keep="first", maintain_order=True)
        new = {(role, *row[:-1]): row[-1] for row in firsts.iter_rows() if (role, *row[:-1]) not in seen}
        seen.update(new)
        kept = kept.scatter(list(new.values()), True)
    return frame.filter(kept)


def extras(kind: str, part: Part, names: Columns) -> Extras:
    """The non-numeric values of each row of a table, and its numbers as they are written."""
    with Source(part.places.path) as source:
        yield from (_csv_rows if kind == "csv" else _parquet_rows)(source, names)


def _csv_rows(source: Source, names: Columns) -> Extras:
    keys: list[str] = []
    for block in blocks(source.read):
        if not keys:
            keys = csv_keys(block)
            continue
        for row in block.frame().iter_rows():
            yield of_row(
                _nested({key: cell for key, cell in zip(keys, row, strict=True) if cell is not None}, names), names
            )


def _parquet_rows(source: Source, names: Columns) -> Extras:
    encoded = json_columns(source.path) if source.divisible else frozenset()
    with explained(source.path):
        for batch in scanned(source).collect_batches(chunk_size=TEXT_BATCH, maintain_order=True):
            for row in batch.iter_rows(named=True):
                cells = {key: value for key, value in row.items() if value is not None and not isinstance(value, bytes)}
                facts = _object(cells.get(FACTS)) if isinstance(cells.get(FACTS), str) else None
                for key in encoded & cells.keys():
                    cells[key] = Raw(cells[key].encode())
                record = of_row(_nested(cells, names), names)
                yield {**record, **((facts or {}).get("keys") or {})}


def _nested(row: dict[str, Any], names: Columns) -> dict[str, Any]:
    """The row with columns such as metadata.level inside the object metadata; without those of rewards and usage."""
    roles = meant(names)
    nested: dict[str, Any] = {}
    for key, value in row.items():
        first, _, path = key.partition(".")
        role = roles.get(key)
        inside = roles.get(first) if path and role is None else None
        if inside in ("rewards", "usage"):
            continue
        if role == "metadata" and not isinstance(value, Raw):
            value = {**_as_object(key, value), **nested.get(key, {})}
        if inside != "metadata":
            nested[key] = value
            continue
        *steps, last = path.split(".")
        parent = nested.setdefault(first, {})
        for step in steps:
            parent = parent.setdefault(step, {}) if isinstance(parent, dict) else {}
        if isinstance(parent, dict):
            parent[last] = value
    return nested


def _as_object(key: str, value: Any) -> dict[str, Any]:
    """The metadata in a cell: an object, also as JSON text; any other value under the key of its column."""
    inside = _object(value) if isinstance(value, str) else value
    return inside if isinstance(inside, dict) else {key: value}


CSV = Format(
    "csv", read_csv, lambda start: start.line[:1] not in b"[{", partial(texts, "csv"), extras=partial(extras, "csv")
)
PARQUET = Format(
    "parquet",
    read_parquet,
    lambda start: True,
    partial(texts, "parquet"),
    extras=partial(extras, "parquet"),
    packed=packed_parquet,
)
