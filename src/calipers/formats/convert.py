"""Converts rollouts of any format into our own: JSON Lines, packed or not, or Parquet.

The numbers, outcomes and counts of a score are the same before and after. Our own JSON Lines are converted line by
line. For any other format, the numbers of all rows are in memory, as they are for a score, and texts are read row by
row.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError, display
from calipers.formats import BAD, ROW, TARGET, Extras, Format, Named, Raw, Text, target_hash
from calipers.formats.jsonl import KEPT, JsonLines
from calipers.formats.lines import LineError, kind_of, odd_key, unreadable, without_unreal
from calipers.formats.read import Progress, begin, format_of, opened, run_or_path, with_folders
from calipers.formats.source import BOM, LONGEST_LINE, STDIN, LongLine, Source, line_blocks
from calipers.formats.source_facts import FACTS, ROWS, SourceFacts
from calipers.formats.tables import JSON_COLUMNS
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.labels import SPLIT, STEP
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import BEFORE_ANSWER, GROUP, OUTCOMES, REASONING_TEXT, ROLES, TEXTS, UNSTATED, USAGE
from calipers.rollouts.table import Labels, Part
from calipers.stores import atomic_path, local, uploaded
from calipers.typed import complete

if TYPE_CHECKING:
    import polars as pl

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
CHECKED: Final = 64  # blocks of lines that one reader checks, so that its columns stay small
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BATCH: Final = 1 << 16  # rows whose numbers are converted to Python numbers at once

Record = dict[str, Any]
Records = Callable[[], Iterator[Record]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of a conversion."""

    path: str  # the path of the new file
    format: str  # the format that was read, a name in FORMATS
    rollouts: int  # the number of rows, including rollouts that were planned and never run
    notes: Sequence[str] = ()


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    texts: bool = True,
    force: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Write the rollouts of a file or folder to ``target``: ``.jsonl``, ``.jsonl.gz``, ``.jsonl.zst`` or ``.parquet``.

    A score of the new file has the same numbers, outcomes and digest. The plan of the rollouts is kept. Without
    ``texts``, prompts and completions are left out. An existing target is replaced only with ``force``, and only after
    everything is written. ``columns`` and ``truth`` are those of `score`.
    """
    with uploaded(os.fspath(target), force=force) as out:
        conversion = _convert(local(os.fspath(source)), out, Named(columns or {}, truth), texts, force, progress)
    return replace(conversion, path=display(out))


def _convert(path: str, out: str, names: Named, texts: bool, force: bool, progress: Progress | None) -> Conversion:
    suffix = _checked(path, out, force)
    rollouts = _streamed(path, names, progress) or _tabled(path, names, suffix, progress)
    records = partial(_without_texts, rollouts.records) if not texts else rollouts.records
    try:
        with atomic_path(os.path.realpath(out)) as temporary:  # realpath, so that a link stays a link
            if suffix == ".parquet":
                rows = _write_parquet(records, temporary)
            else:
                rows = _write_lines(records, temporary, suffix)
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise InputError.at(out, f"cannot be written ({error.strerror or error})") from None
    return Conversion(out, rollouts.format, rows, rollouts.notes)


def _checked(path: str, out: str, force: bool) -> str:
    """The suffix of the target; InputError if the target cannot be written, or the source cannot be read twice."""
    suffix = next((end for end in sorted(SUFFIXES, key=len, reverse=True) if out.endswith(end)), None)
    if suffix is None:
        raise InputError.at(out, "its ending names no format", f"expected {', '.join(SUFFIXES)}")
    if path == STDIN:
        raise InputError.at("-", "standard input passes only once", "expected a file or a folder")
    if not os.path.exists(path):
        raise InputError.at(path, "no such file", "expected a file or a folder of rollouts")
    if os.path.realpath(path) == os.path.realpath(out):
        raise InputError.at(out, "is the file to be converted", "expected another file")
    if os.path.isdir(out):
        raise InputError.at(out, "is a directory", "expected a file, such as rollouts.parquet")
    if os.path.lexists(out) and not force:
        raise InputError.at(out, "already exists", "--force replaces it")
    folder = os.path.dirname(os.path.realpath(out))
    if not os.path.isdir(folder):
        raise InputError.at(out, f"there is no folder {os.path.dirname(out)!r}", "create it first")
    if not os.access(folder, os.W_OK):
        raise InputError.at(out, "is not writable", "expected a folder that you can write to")
    return suffix


def _without_texts(records: Records) -> Iterator[Record]:
    for record in records():
        yield {key: value for key, value in record.items() if key not in (*TEXTS, REASONING_TEXT)}


def _write_lines(records: Records, path: str, suffix: str) -> int:
    rows = 0
    encode = msgspec.json.Encoder().encode
    with open(path, "xb") as file, _packed(file, suffix) as packed:
        for record in records():
            packed.write(encode(record) + b"\n")
            rows += 1
    return rows


@contextmanager
def _packed(file: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    """A file that packs the bytes written to it; equal content gives equal bytes."""
    if suffix == ".jsonl.gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # it is one in all that is used here
    elif suffix == ".jsonl.zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed:
            yield packed
    else:
        yield file


@dataclass(frozen=True, slots=True)
class _Rollouts:
    """The rollouts to convert, as records that can be iterated more than once."""

    records: Records
    format: str
    notes: Sequence[str] = ()


def _streamed(path: str, names: Named, progress: Progress | None) -> _Rollouts | None:
    """The rollouts of a file of our own records, read line by line; None for any other format."""
    if names or os.path.isdir(run_or_path(path)):
        return None
    with Source(path) as source:
        kind = format_of(source)
    return _Rollouts(partial(_lines, path, progress), kind.name) if kind.name == "native" else None


def _lines(path: str, progress: Progress | None) -> Iterator[Record]:
    """The records of a file, unchanged; InputError for the first that is not a rollout, as in a score."""
    with Source(path) as source:
        source.head = source.head.removeprefix(BOM)
        blocks = bytes_read = lines = 0
        reader = JsonLines(path, {}, ())
        try:
            for block in line_blocks(source.readinto):
                if blocks % CHECKED == 0:
                    reader.finish()
                    reader = JsonLines(path, {}, ())
                    reader.lines = lines
                reader.read(block)
                for line in bytes(block).split(b"\n"):
                    if line.strip():
                        yield ROW.decode(line)
                lines, blocks, bytes_read = reader.lines, blocks + 1, bytes_read + len(block)
                if progress is not None:
                    progress(min(bytes_read, source.size) if source.size else bytes_read, source.size)
            reader.finish()
        except LongLine:
            problem = f"a line is longer than {LONGEST_LINE >> 20} MiB"
            raise InputError.at(f"{path}:{lines + 1}", problem, "expected one rollout per line") from None
        except LineError as error:
            raise error.at(path) from None


def _tabled(path: str, names: Named, suffix: str, progress: Progress | None) -> _Rollouts:
    """The rollouts of any format: the numbers that a score reads, and the non-numeric values of the rows."""
    sources = _sources([path], names)
    labels = sorted({name for kind in sources.values() for name in kind.labels})
    parts: list[Part] = []
    rollouts, _ = begin([path], columns=names, labels=labels, progress=progress, kept=parts)
    if suffix != ".parquet":
        for part in parts:
            _check_json(part)
    format_read = next(iter(sources.values())).name
    return _Rollouts(partial(_rows, parts, sources, names), format_read, rollouts.notes)


def records_of(paths: Sequence[str], columns: Mapping[str, str], parts: Sequence[Part]) -> Iterator[Record]:
    """A record for each row of the parts that were read from these paths, with its non-numeric values."""
    names = Named(columns)
    yield from _rows(parts, _sources(paths, names), names)


def refuse_pipes(paths: Sequence[str]) -> None:
    """InputError for standard input or a pipe, as they can be read only once: for numbers, and not again for texts."""
    for path in paths:
        if path == STDIN or (os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)):
            name = "standard input" if path == STDIN else "a pipe"
            raise InputError.at(path, f"{name} passes only once", "expected a file or a folder")


def texts_of_rows(path: str, columns: Mapping[str, str], wanted: frozenset[str]) -> Iterator[Text]:
    """The texts of the rows of a file: of the first row of each task, and of all rows of the wanted tasks.

    For formats that have ``extras`` or ``line_extras``, which give texts row by row, but no ``texts``.
    """
    names = Named(columns)
    parts: list[Part] = []
    begin([path], columns=names, kept=parts)
    seen = set[tuple[Any, ...]]()
    for record in _rows(parts, _sources([path], names), names):
        key = (record.get("agent"), record.get("model"), record.get("dataset"), record["task"])
        if key in seen and record["task"] not in wanted:
            continue
        seen.add(key)
        values = {name: record[name] for name in TEXT_ROLES if record.get(name) is not None}
        yield Text(*key, float(record["sample"]), target=_target_hash(record), **values)


def _target_hash(record: Record) -> str:
    """The hash of the target of a record, which is a key of its own or of its metadata."""
    metadata = _value(record.get("metadata"))
    inside = metadata.get(TARGET) if isinstance(metadata, dict) else None
    return target_hash(_value(record.get(TARGET, inside)))


def _value(value: Any) -> Any:
    """A value, decoded if it is raw JSON; None if it is empty."""
    if not isinstance(value, Raw):
        return value
    return msgspec.json.decode(value) if value else None


def decoded(record: Record) -> Record:
    """The record with its raw JSON decoded; InputError for a number that is out of range, which no score reads."""
    try:
        return {key: _value(value) for key, value in record.items()}
    except BAD as error:
        location = f"task {_value(record['task'])!r}, sample {_value(record.get('sample', 0))}"
        raise InputError.at(location, *unreadable(error)) from None


def _sources(paths: Sequence[str], names: Named) -> dict[str, Format]:
    """The inputs to read at some paths, and the format of each."""
    kinds = {}
    for each in with_folders([path for path in paths if path != STDIN], names)[0]:
        with closing(opened(each)) as source:
            kinds[each if isinstance(each, str) else each.path] = format_of(source, names)
    return kinds


def _check_json(part: Part) -> None:
    """InputError for a key or a number that JSON Lines cannot have."""
    for name, column in {**part.columns, **part.rewards}.items():
        if odd_key([name]) is not None:
            problem = f"{name!r} contains a quote, a backslash or a control character"
            raise InputError.at(part.places.path, problem, "no record can have such a key; convert to .parquet")
        odd = np.flatnonzero(column.given & ~np.isfinite(column.values))
        if len(odd):
            problem = f"{name} is {column.values[odd[0]]}"
            raise InputError.at(part.places.of(int(odd[0])), problem, "JSON has no such number; convert to .parquet")


def _rows(parts: Sequence[Part], kinds: Mapping[str, Format], names: Named) -> Iterator[Record]:
    """A record for each row of the parts."""
    extras: dict[str, Extras] = {}
    empty = _empty_tasks(parts)
    fallback = next(iter(kinds.values()), None)
    for part in parts:
        path = part.places.path
        if path not in extras:
            kind = kinds.get(path, fallback)
            if path == STDIN or kind is None or (kind.line_extras and path not in kinds):
                extras[path] = repeat({})  # cannot be read again, or is a plan
            elif kind.line_extras and not part.places.unit:
                lines = [each.places.lines(len(each)) for each in parts if each.places.path == path]
                extras[path] = _line_by_line(path, kind.line_extras, np.concatenate(lines))
            else:
                extras[path] = kind.extras(part, names) if kind.extras else repeat({})
        for record in _of_part(part):
            more = next(extras[path], None)
            if more is None:
                raise RuntimeError(f"{path} has fewer rows than rollouts")
            if empty:  # written into the first row
                record[FACTS] = msgspec.structs.replace(record.get(FACTS) or SourceFacts(), empty_tasks=empty)
                empty = []
            yield _joined(record, more)


def _line_by_line(path: str, line_extras: Callable[[Record], Sequence[Mapping[str, Any]]], lines: Ints) -> Extras:
    """The extras of each rollout in a file, by a format's ``line_extras``; ``lines`` has the line of each rollout."""
    wanted = iter(zip(*np.unique(lines, return_counts=True), strict=True))
    line, rollouts = next(wanted, (0, 0))
    with Source(path) as source:
        source.head = source.head.removeprefix(BOM)
        number = 0
        for block in line_blocks(source.readinto):
            for text in bytes(block).removesuffix(b"\n").split(b"\n"):
                number += 1
                if number == line:
                    try:
                        values = line_extras(_decoded(text))
                    except BAD as error:
                        raise LineError(number, *unreadable(error)).at(path) from None
                    yield from (values[n] if n < len(values) else {} for n in range(rollouts))
                    line, rollouts = next(wanted, (0, 0))


def _decoded(line: bytes) -> Record:
    """A line as an object of raw JSON values; NaN, which some systems write, is read as null."""
    try:
        return ROW.decode(line)
    except msgspec.DecodeError:
        return ROW.decode(without_unreal(line)[0])


def _empty_tasks(parts: Sequence[Part]) -> list[str]:
    """The tasks without rows."""
    every = dict.fromkeys(task for part in parts for task in part.tasks)
    with_rows = {part.tasks[code] for part in parts for code in np.unique(part.task).tolist()}
    return [task for task in every if task not in with_rows]


NOT_IN_RECORDS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(TEXTS, ("number",)),
    "answer": ("object",),
    "error": ("number", "list"),
}
"""Role -> the kinds of values that other formats may have in it, and records not; these become JSON text."""


def _as_text(value: Any) -> str:
    """A value as JSON text."""
    if isinstance(value, Raw):
        return bytes(value).decode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _json_kind(value: Any) -> str:
    """The kind of a value, as `kind_of` names that of a raw one."""
    if isinstance(value, Raw):
        return kind_of(value)
    kinds = {bool: "number", int: "number", float: "number", list: "list", dict: "object"}
    return kinds.get(type(value), "text")


def _joined(record: Record, more: Mapping[str, Any]) -> Record:
    """A record with the further values of its row; a number that both have is kept as the row writes it."""
    for key, value in more.items():
        if key in NOT_IN_RECORDS and _json_kind(value) in NOT_IN_RECORDS[key]:
            value = _as_text(value)
        if key == FACTS and isinstance(value, dict):
            record[key] = msgspec.structs.replace(record.get(key) or SourceFacts(), **value)
        elif key in record.get("rewards", ()) or key in record.get("usage", ()):  # a number that is already known
            continue
        elif key in record and isinstance(value, str):  # the cell of a table, whose number is already known
            if _NUMBER.fullmatch(value.strip()):
                record[key] = Raw(value.strip().encode())
            elif value.strip().lower() in ("true", "false"):
                record[key] = value.strip().lower() == "true"
        else:
            record[key] = value
    return record


def _of_part(part: Part) -> Iterator[Record]:
    """A record for each row, with its numbers, outcome and group, and its `SourceFacts` object."""
    for start in range(0, len(part), _BATCH):
        rows = slice(start, start + _BATCH)
        task, sample, attempt = part.task[rows].tolist(), part.sample[rows].tolist(), part.attempt[rows].tolist()
        outcome = part.outcome[rows].tolist()
        rewards = [(name, *_lists(column, rows)) for name, column in part.rewards.items()]
        columns = [(name, _is_top_level(name), *_lists(column, rows)) for name, column in part.columns.items()]
        groups = [(name, _label(part.labels.get(name), rows)) for name in GROUP]
        others = [
            (name, _label(labels, rows)) for name, labels in part.labels.items() if name not in (*GROUP, ERROR_KIND)
        ]
        kinds = _label(part.labels.get(ERROR_KIND), rows)
        steps = [(name, values) for name, values in others if name in (STEP, SPLIT) and values]
        turns = None if part.turn is None else part.turn[rows].tolist()
        before_answer = None if part.before_answer is None else part.before_answer[rows].tolist()
        datasets = dict(groups)["dataset"]
        for row in range(len(task)):
            name = part.tasks[task[row]]
            record: Record = {"task": name, "sample": sample[row]}
            if attempt[row] != 1:
                record["attempt"] = attempt[row]
            record |= {key: values[row] for key, values in groups if values and values[row] is not None}
            if outcome[row] != UNSTATED:
                record["outcome"] = OUTCOMES[outcome[row]]
            for key, values, given in rewards:
                if given[row]:
                    if key == "reward":
                        record[key] = values[row]
                    else:
                        record.setdefault("rewards", {})[key] = values[row]
            for key, top, values, given in columns:
                if given[row]:
                    (record if top else record.setdefault("usage", {}))[key] = values[row]
            record |= {key: values[row] for key, values in others if values and values[row] is not None}
            dataset = (datasets[row] if datasets else None) or ""
            facts = SourceFacts(
                planned_from=None if part.planned_from == ROWS else part.planned_from,
                turn=None if turns is None else turns[row],
                error_kind=kinds[row] if kinds else None,
                before_answer=before_answer is not None and before_answer[row],
                digest=part.digests.get((dataset, name)),
                stop=part.stop,
                headline=part.headline or None,
                labels={key: values[row] for key, values in steps if values[row] is not None},
            )
            if facts != SourceFacts():
                record[FACTS] = facts
            yield record


def _lists(column: Column, rows: slice) -> tuple[list[float], list[bool]]:
    return column.values[rows].tolist(), column.given[rows].tolist()


def _label(labels: Labels | None, rows: slice) -> list[Any]:
    """The value of each row, None for a row without a value; an empty list without labels."""
    if labels is None:
        return []
    values = [*labels.values, None]
    return [values[code] for code in labels.code[rows].tolist()]


def _is_top_level(name: str) -> bool:
    """Whether a column of numbers is a key of the record itself; if not, it is a key of its usage."""
    return name not in USAGE and name not in ROLES and name != FACTS and bool(name)


BATCH_ROWS: Final = 1 << 12  # rows held at once, as texts may be long
GROUP_ROWS: Final = 1 << 14  # rows of a row group, which polars holds until it is full
TEXT_ROLES: Final = ("completion", "prompt", "answer", "error")
OBJECTS: Final = ("rewards", "usage")
WHOLE: Final = ("sample", "attempt")
TEXT: Final = ("task", "outcome", *GROUP)
NUMBERS: Final = frozenset({"whole", "number", "truth"})
MOST_WHOLE: Final = 2**63 - 1


def _write_parquet(records: Records, path: str) -> int:
    """Write the records to a new file, compressed with zstd; returns their number. OSError if it cannot be written."""
    import polars as pl
    from polars.io.plugins import register_io_source

    table = _Columns()
    for record in records():
        table.learn(record)
    schema = table.schema()

    failures: list[Exception] = []  # polars wraps exceptions of the function that it reads from

    def batches(*_: Any) -> Iterator[pl.DataFrame]:
        try:
            rows = iter(records())
            while batch := list(islice(rows, BATCH_ROWS)):
                yield table.frame(batch, schema)
        except Exception as error:
            failures.append(error)
            raise

    stored = {JSON_COLUMNS: json.dumps({"json": sorted(table.as_json())})}
    source = register_io_source(batches, schema=schema)
    try:
        source.sink_parquet(path, compression="zstd", row_group_size=GROUP_ROWS, maintain_order=True, metadata=stored)
    except pl.exceptions.PolarsError as error:
        raise failures[0] if failures else OSError(str(error).rpartition("error: ")[2]) from None
    return table.rows


class _Columns:
    """The columns of a table: each key of the records, with the kinds of its values."""

    def __init__(self) -> None:
        self.rows = 0
        self._kinds: dict[str, set[str]] = {}

    def learn(self, record: Record) -> None:
        """Add the keys and kinds of a record."""
        self.rows += 1
        for column, _, value in _cells(record):
            self._kinds.setdefault(column, set()).add(_value_kind(value))

    def schema(self) -> pl.Schema:
        """The type of each column."""
        import polars as pl

        types = {key: _type(key, kinds) for key, kinds in self._kinds.items()}
        types |= dict.fromkeys(self.as_json(), pl.String())
        if any(self._is_aside(key, kind) for key, kinds in self._kinds.items() for kind in kinds):
            types[FACTS] = pl.String()
        return pl.Schema(types)

    def as_json(self) -> list[str]:
        """The columns that hold JSON text."""
        return [key for key, kinds in self._kinds.items() if _is_json(key, kinds - {""})]

    def _is_aside(self, column: str, kind: str) -> bool:
        """Whether a value of this kind does not fit its column, which has numbers, and is kept under `FACTS`."""
        if kind in ("", *NUMBERS) or column in (*TEXT, *KEPT, FACTS):
            return False
        return column.partition(".")[0] in OBJECTS or bool(self._kinds[column] & NUMBERS)

    def frame(self, records: list[Record], schema: pl.Schema) -> pl.DataFrame:
        """A batch of records as a table."""
        import polars as pl

        encoded = frozenset(self.as_json())
        columns: dict[str, list[Any]] = {key: [None] * len(records) for key in schema}
        for row, record in enumerate(records):
            facts, aside = SourceFacts(), {}
            for column, key, value in _cells(record):
                if value is None:
                    continue
                if column == FACTS:
                    facts = value
                elif self._is_aside(column, _value_kind(value)):
                    aside[key] = value
                elif column in encoded:
                    columns[column][row] = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
                elif schema[column] == pl.Float64:
                    columns[column][row] = float(value)
                else:
                    columns[column][row] = str(value) if column == "task" else value
            facts = msgspec.structs.replace(facts, keys={**facts.keys, **aside})
            if facts != SourceFacts():
                columns[FACTS][row] = msgspec.json.encode(facts).decode()
        return pl.DataFrame({key: pl.Series(values, dtype=schema[key]) for key, values in columns.items()})


def _is_json(column: str, kinds: set[str]) -> bool:
    if column in (*TEXT, *WHOLE, "reward", FACTS) or column.partition(".")[0] in OBJECTS:
        return False
    if column in KEPT:
        return "other" in kinds or len(kinds) > 1
    return "other" in kinds and not kinds & NUMBERS


def _type(column: str, kinds: set[str]) -> Any:
    import polars as pl

    if column == "reward" or column.partition(".")[0] in OBJECTS:
        return pl.Float64()
    numbers = kinds & NUMBERS
    if column in TEXT:
        return pl.String()
    if column in WHOLE or numbers == {"whole"}:
        return pl.Int64()
    if numbers:
        return pl.Boolean() if numbers == {"truth"} else pl.Float64()
    return pl.String()


def _cells(record: Record) -> Iterator[tuple[str, str, Any]]:
    """(column, key, value) of each value of a record, where the keys of rewards and usage are columns of their own.

    A key named rewards.x would be read as a reward in a table, so its column is usage.rewards.x, as any number may be
    usage.
    """
    values = decoded(record)
    error = values.get("error")
    if isinstance(error, dict) and error.get(BEFORE_ANSWER) is True:  # which a table has as text, and no score reads
        facts = _facts(values[FACTS]) if FACTS in values else SourceFacts()
        values[FACTS] = msgspec.structs.replace(facts, before_answer=True)
    for key, value in values.items():
        first, dot, _ = key.partition(".")
        if key in OBJECTS:
            yield from ((f"{key}.{inner}", inner, number) for inner, number in (value or {}).items())
        elif key == FACTS:
            yield key, key, _facts(value)
        else:
            yield f"usage.{key}" if dot and first in (*OBJECTS, "metadata") else key, key, value


def _facts(value: Any) -> SourceFacts:
    """The `SourceFacts` object of a row; any other value under this key is the user's own, and is kept as a key."""
    if isinstance(value, dict):
        with suppress(msgspec.ValidationError):  # the user's own, too
            return msgspec.convert(value, complete(SourceFacts))
    return value if isinstance(value, SourceFacts) else SourceFacts(keys={FACTS: value})


def _value_kind(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "whole" if abs(value) <= MOST_WHOLE else "number"
    if isinstance(value, float):
        return "number"
    return "text" if isinstance(value, str) else "other"
