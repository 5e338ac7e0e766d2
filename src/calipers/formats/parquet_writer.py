"""Records into Parquet, a batch at a time: once to learn the columns, once to write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from calipers.formats.carried import CARRIED, Carried
from calipers.formats.extras import KEPT
from calipers.formats.format import Raw
from calipers.formats.tables import JSON_COLUMNS
from calipers.rollouts.record import GROUP

if TYPE_CHECKING:
    import polars as pl

ROWS: Final = 1 << 12  # held at once; a text may be long
GROUP_ROWS: Final = 1 << 14  # of a row group, which polars holds until it is full
OBJECTS: Final = ("rewards", "usage")
WHOLE: Final = ("sample", "attempt")
TEXT: Final = ("task", "outcome", *GROUP)
NUMBERS: Final = frozenset({"whole", "number", "truth"})
MOST_WHOLE: Final = 2**63 - 1

Record = dict[str, Any]


def write(records: Callable[[], Iterator[Record]], path: str) -> int:
    """Write the records to a new file, packed with zstd; how many they are. OSError where it cannot be written."""
    import polars as pl
    from polars.io.plugins import register_io_source

    table = _Columns()
    for record in records():
        table.learn(record)
    schema = table.schema()

    failures: list[Exception] = []  # polars wraps what is raised within its own reading

    def batches(*_: Any) -> Iterator[pl.DataFrame]:
        try:
            rows = iter(records())
            while batch := list(islice(rows, ROWS)):
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
    """The columns of a table: each key of the records, and the kinds of value that it has."""

    def __init__(self) -> None:
        self.rows = 0
        self._kinds: dict[str, set[str]] = {}

    def learn(self, record: Record) -> None:
        """One more record."""
        self.rows += 1
        for column, _, value in _cells(record):
            self._kinds.setdefault(column, set()).add(_kind(value))

    def schema(self) -> pl.Schema:
        """The type of each column."""
        import polars as pl

        types = {key: _type(key, kinds) for key, kinds in self._kinds.items()}
        types |= dict.fromkeys(self.as_json(), pl.String())
        if any(self._is_aside(key, kind) for key, kinds in self._kinds.items() for kind in kinds):
            types[CARRIED] = pl.String()
        return pl.Schema(types)

    def as_json(self) -> list[str]:
        """The columns whose text is JSON."""
        return [key for key, kinds in self._kinds.items() if _is_json(key, kinds - {""})]

    def _is_aside(self, column: str, kind: str) -> bool:
        """Whether a value of this kind has no place in its column, which has numbers only."""
        if kind in ("", *NUMBERS) or column in (*TEXT, *KEPT, CARRIED):
            return False
        return column.partition(".")[0] in OBJECTS or bool(self._kinds[column] & NUMBERS)

    def frame(self, records: list[Record], schema: pl.Schema) -> pl.DataFrame:
        """Some records as a table."""
        import polars as pl

        encoded = frozenset(self.as_json())
        columns: dict[str, list[Any]] = {key: [None] * len(records) for key in schema}
        for row, record in enumerate(records):
            carried, aside = Carried(), {}
            for column, key, value in _cells(record):
                if value is None:
                    continue
                if column == CARRIED:
                    carried = value
                elif self._is_aside(column, _kind(value)):
                    aside[key] = value
                elif column in encoded:
                    columns[column][row] = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
                elif schema[column] == pl.Float64:
                    columns[column][row] = float(value)
                else:
                    columns[column][row] = str(value) if column == "task" else value
            carried = msgspec.structs.replace(carried, keys={**carried.keys, **aside})
            if carried != Carried():
                columns[CARRIED][row] = msgspec.json.encode(carried).decode()
        return pl.DataFrame({key: pl.Series(values, dtype=schema[key]) for key, values in columns.items()})


def _is_json(column: str, kinds: set[str]) -> bool:
    if column in (*TEXT, *WHOLE, "reward", CARRIED) or column.partition(".")[0] in OBJECTS:
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
    """(column, key, value): the keys of rewards and usage are columns of their own.

    A key rewards.x would be taken for a reward in a table, so its column is usage.rewards.x: any number may be usage.
    """
    for key, value in record.items():
        value = msgspec.json.decode(value) if isinstance(value, Raw) else value
        first, dot, _ = key.partition(".")
        if key in OBJECTS:
            yield from ((f"{key}.{inner}", inner, number) for inner, number in (value or {}).items())
        elif key == CARRIED:
            yield key, key, _carried(value)
        else:
            yield f"usage.{key}" if dot and first in (*OBJECTS, "metadata") else key, key, value


def _carried(value: Any) -> Carried:
    """What a row carries; a key of the user's own that happens to have this name is kept as one."""
    if isinstance(value, Carried):
        return value
    return msgspec.convert(value, Carried) if isinstance(value, dict) else Carried(keys={CARRIED: value})


def _kind(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "whole" if abs(value) <= MOST_WHOLE else "number"
    if isinstance(value, float):
        return "number"
    return "text" if isinstance(value, str) else "other"
