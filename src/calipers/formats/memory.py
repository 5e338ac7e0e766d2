"""Rollouts in memory: a polars, pandas or Arrow table, a dict of columns, or a list of records."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError
from calipers.formats.jsonl import read_records
from calipers.formats.tables import read_table
from calipers.rollouts.table import Part

if TYPE_CHECKING:
    import polars as pl


def from_memory(source: Any, names: Mapping[str, str], labels: Collection[str]) -> list[Part] | None:
    """The rollouts in a value, one per row, by the same rules as in files; None if the value is not a table.

    Errors call a table ``table`` and number its rows from 1. A NaN in a pandas frame is a missing value; in any other
    table it is a number.

    >>> part, = from_memory({"task": ["a", "b"], "reward": [1, None]}, {}, ())
    >>> part.tasks, part.rewards["reward"].given.tolist()
    (['a', 'b'], [True, False])
    """
    if isinstance(source, (list, tuple)):
        if not source or not all(isinstance(row, Mapping) for row in source):
            return None
        return [read_records(_as_lines(source), "records", names, labels)]
    if (table := _table(source)) is None:
        return None
    if not (parts := read_table(table, "table", names, labels)):
        raise InputError.at("table", "no rollouts", "expected at least one row")
    return parts


def _as_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Records as lines of JSON; a value that JSON does not have, such as a date, becomes text."""
    for number, record in enumerate(records, 1):
        try:
            yield json.dumps(record, default=_plain, ensure_ascii=False).encode(errors="surrogatepass")
        except (TypeError, ValueError, RecursionError) as error:  # such as a key that is a tuple
            problem, expected = f"cannot be written as JSON ({error})", "expected keys that are text, and flat values"
            raise InputError.at(f"records:row {number}", problem, expected) from None


def _plain(value: Any) -> Any:
    """A number or an array of another library as a Python value; anything else as text."""
    for method in ("item", "tolist"):
        if callable(convert := getattr(value, method, None)):
            try:
                return convert()
            except (TypeError, ValueError, RuntimeError):  # an array or a tensor has no single item
                continue
    return str(value)


def cells_of(source: Any) -> list[list[str]] | None:
    """A table in memory as the cells of a CSV file, with its header first; None if the value is not a table.

    >>> cells_of([{"task": "a", "label": True}, {"task": "b"}])
    [['task', 'label'], ['a', '1'], ['b', '']]
    """
    if isinstance(source, (list, tuple)) and source and all(isinstance(row, Mapping) for row in source):
        head = list(dict.fromkeys(key for row in source for key in row))
        rows = [[row.get(key) for key in head] for row in source]
    elif (table := None if isinstance(source, (list, tuple)) else _table(source)) is not None:
        frame = table.collect()
        head, rows = list(frame.columns), [list(row) for row in frame.iter_rows()]
    else:
        return None
    return [[str(key) for key in head], *([_cell(value) for value in row] for row in rows)]


def _cell(value: Any) -> str:
    value = plain_value(value) if value is not None else ""
    if isinstance(value, (bool, float)) and value == int(value if value == value and abs(value) < 1e15 else 0):
        return str(int(value))
    return str(value)


def _table(source: Any) -> pl.LazyFrame | None:
    """A value as a polars table; None if it is not a table."""
    import polars as pl

    library = type(source).__module__.partition(".")[0]
    if isinstance(source, pl.LazyFrame):
        return source
    if isinstance(source, pl.DataFrame):
        return source.lazy()
    if isinstance(source, Mapping):
        columns = [_column(str(key), values) for key, values in source.items()]
        if len({len(column) for column in columns}) > 1:
            sizes = ", ".join(f"{column.name} {len(column)}" for column in columns[:6])
            raise InputError.at("table", f"the columns differ in length ({sizes})", "expected a value for each rollout")
        return _lazy(columns)
    if library == "pandas" and hasattr(source, "reset_index") and hasattr(source, "columns"):
        return _of_pandas(source)
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pl.Series) and library != "pandas":
        try:
            return pl.DataFrame(source).lazy()
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            problem, expected = f"cannot be read ({error})", "expected a table with a row for each rollout"
            raise InputError.at("table", problem, expected) from None
    return None


def _of_pandas(frame: Any) -> pl.LazyFrame:
    """A pandas frame, with the named levels of its index as columns."""
    names = [name for name in frame.index.names if name is not None]
    _check_names([str(name) for name in (*names, *frame.columns)])
    frame = frame.reset_index(level=names) if names else frame
    columns = []
    for at, key in enumerate(frame.columns):
        column = frame.iloc[:, at]
        missing = column.isna().to_numpy()
        values = [None if gap else plain_value(value) for value, gap in zip(column.tolist(), missing, strict=True)]
        columns.append(_column(str(key), values))
    return _lazy(columns)


def _lazy(columns: Sequence[pl.Series]) -> pl.LazyFrame:
    """Columns as a table; InputError if two have the same name, such as 1 and "1"."""
    import polars as pl

    _check_names([column.name for column in columns])
    return pl.LazyFrame(columns)


def _check_names(names: Sequence[str]) -> None:
    """InputError if two columns have the same name."""
    if len(set(names)) < len(names):
        raise InputError.at("table", "two columns have the same name", "expected each column once")


def plain_value(value: Any) -> Any:
    """A cell as a Python value: text, a number, a boolean, a list or an object; anything else as text."""
    return value if isinstance(value, (str, int, float, bool, list, dict)) else _plain(value)


def _column(name: str, values: Any) -> pl.Series:
    """A column of a table; InputError if its values have different types."""
    import polars as pl

    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise InputError.at("table", f"column {name!r} is not a list", "expected a list with a value for each rollout")
    try:
        return pl.Series(name, values)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        problem = f"column {name!r} contains {' and '.join(kinds)}"
        raise InputError.at("table", problem, "expected values of one type in a column") from None
