"""Tables into rollouts: batches of polars columns are checked column by column, and joined into one `Part`.

There is no Python loop over rows here, except for labels that are lists or objects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.errors import InputError
from calipers.formats.source_facts import FACTS, FactColumns
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.ids import dense
from calipers.rollouts.record import GROUP, OUTCOMES, ROLES, UNSTATED, meant, named, shown, words_hint
from calipers.rollouts.table import BadRow, Labels, Part, Places

if TYPE_CHECKING:
    import polars as pl

MOST_WHOLE = 2**53  # beyond this, floats cannot represent every integer
LEAST = {"sample": 0, "attempt": 1}
EXPECTED = {
    "task": "text or an integer",
    "sample": "an integer >= 0",
    "attempt": "an integer >= 1",
    "outcome": f"one of {', '.join(OUTCOMES)}",
    "reward": "a number",
    "number": "a number",
    "object": "a column for each key, such as {key}.accuracy",
    **dict.fromkeys(GROUP, "text"),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """How one column of a table is read; a column may have two meanings."""

    position: int  # the index of the column among the keys of the table
    key: str  # the name of the column in the table
    what: str  # a role; reward or number (must hold numbers); column (may hold numbers); label; object
    name: str  # the name of the resulting reward, column or label


def meanings(keys: Sequence[str], names: Mapping[str, str], labels: Collection[str]) -> list[Meaning]:
    """The meanings of the columns of a table; columns that are not needed have none."""
    roles, columns_read = meant(names), []
    usage = {key: name for name, key in names.items() if name not in ROLES}
    for position, key in enumerate(keys):
        role = roles.get(key)
        first, _, inner = key.partition(".")
        inside = roles.get(first) if inner and role is None else None
        if key in usage:
            columns_read.append(Meaning(position, key, "number", usage[key]))
        elif role in ("rewards", "usage"):
            columns_read.append(Meaning(position, key, "object", role))
        elif role == "answer":
            columns_read += [Meaning(position, key, "label", role)] if role in labels else []
        elif role is not None:
            columns_read += [Meaning(position, key, role, role)] if role in EXPECTED else []
        elif inside in ("rewards", "usage"):
            columns_read.append(Meaning(position, key, "reward" if inside == "rewards" else "number", inner))
        elif inside == "metadata":
            columns_read += [Meaning(position, key, "label", f"metadata.{inner}")] if {inner, key} & set(labels) else []
        elif key:
            columns_read.append(Meaning(position, key, "column", key))
            columns_read += [Meaning(position, key, "label", key)] if key in labels else []
    return columns_read


def without_role(keys: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The keys of a table without a role, except those of usage; if there is no reward, one of them may be it."""
    roles = meant(names)
    known = {"", FACTS, *roles, *(key for key in keys if roles.get(key.partition(".")[0]) == "usage")}
    return [key for key in keys if key not in known]


class Frames:
    """The rows of one table, collected a batch at a time."""

    def __init__(self, places: Places, words: Mapping[str, float] | None = None) -> None:
        self.places = places
        self._words = words or {}  # word -> reward
        self.rows = 0
        self._batches: dict[Meaning, list[pl.Series]] = {}
        self._json: dict[str, list[pl.Series]] = {}  # label -> its values as JSON
        self._facts: FactColumns | None = None

    def begin(self, lines: int | Ints) -> None:
        """Start a batch whose rows are on these lines, or on consecutive lines from this one on."""
        self.places.add(self.rows, lines)

    def take(self, meaning: Meaning, batch: pl.Series) -> None:
        """Add the batch's values of one column; null is a gap. InputError for an invalid value."""
        import polars as pl

        if self._words and meaning.what == "reward" and batch.dtype in (pl.String, pl.Categorical, pl.Enum):
            batch = self._numbers_of_words(meaning, batch.cast(pl.String))
        if batch.dtype == pl.Null:
            batch = batch.cast(pl.Float64 if meaning.what in ("reward", "number", "column") else pl.String)
        if not _fits(meaning.what, batch.dtype):
            problem = f"column {meaning.key!r} is {str(batch.dtype)[:60]}"
            hint = words_hint(next(iter(batch.drop_nulls()), None)) if meaning.what == "reward" else ""
            expected = EXPECTED[meaning.what].format(key=meaning.key)
            raise InputError.at(self.places.path, problem, f"expected {expected}{hint}")
        if meaning.what in LEAST:
            batch = self._integers(meaning, batch)
        elif meaning.what == "outcome":
            batch = self._outcome(meaning, batch)
        elif meaning.what in ("reward", "number", "column"):
            batch = batch.cast(pl.Float64)
        elif meaning.what != "label" and not batch.dtype.is_integer():
            batch = batch.cast(pl.String)
        if meaning.what == "task" and batch.null_count():
            self.refuse(meaning, batch, batch.is_null())
        self._batches.setdefault(meaning, []).append(batch)

    def take_json(self, name: str, batch: pl.Series) -> None:
        """Add the batch's values of a label, as JSON text."""
        self._json.setdefault(name, []).append(batch)

    def carry(self, batch: pl.Series) -> None:
        """Add the `SourceFacts` objects of the batch, as JSON text."""
        self._facts = self._facts or FactColumns()
        try:
            self._facts.put(self.rows, batch.to_list())
        except BadRow as error:
            raise self._at(error) from None

    def _at(self, error: BadRow) -> InputError:
        row, problem, expected = error.args
        return InputError.at(self.places.of(row), problem, expected)

    def with_words(self, batch: pl.Series) -> pl.Series:
        """A column of text with the words of ``--truth`` replaced by their rewards; other text is unchanged."""
        if not self._words:
            return batch
        plain = batch.str.strip_chars().str.to_lowercase()
        worth = plain.replace_strict(list(self._words), [str(reward) for reward in self._words.values()], default=None)
        return worth.fill_null(batch)

    def expected(self, wanted: str) -> str:
        """The expected values of a reward for an error message: ``wanted``, and the words of ``--truth`` if any."""
        return f"{wanted}, or one of the words of --truth: {', '.join(self._words)}" if self._words else wanted

    def _numbers_of_words(self, meaning: Meaning, batch: pl.Series) -> pl.Series:
        """Rewards as numbers, from text that is a number or a word of ``--truth``; InputError for other text."""
        import polars as pl

        numbers = self.with_words(batch).cast(pl.Float64, strict=False)
        self.refuse(meaning, batch, numbers.is_null() & batch.is_not_null(), self.expected("a number"))
        return numbers

    def drop(self, meaning: Meaning) -> None:
        """Drop the values of a column."""
        self._batches.pop(meaning, None)

    def refuse(self, meaning: Meaning, batch: pl.Series, bad: pl.Series, expected: str = "") -> None:
        """InputError for the first value that the mask ``bad`` marks, if any."""
        row = bad.fill_null(False).arg_max()
        if row is not None and bad[row]:
            value = "missing" if batch[row] is None else shown(batch[row])
            expected = expected or EXPECTED[meaning.what].format(key=meaning.key)
            problem = f"{named(meaning.key)} is {value}"
            hint = words_hint(batch[row]) if meaning.what == "reward" and not self._words else ""
            raise InputError.at(self.places.of(self.rows + row), problem, f"expected {expected}{hint}")

    def _integers(self, meaning: Meaning, batch: pl.Series) -> pl.Series:
        import polars as pl

        integers = batch.cast(pl.Int64, strict=False)
        bad = (integers < LEAST[meaning.what]) | (integers >= MOST_WHOLE) | (integers.is_null() & batch.is_not_null())
        if not batch.dtype.is_integer():
            bad |= integers.cast(pl.Float64) != batch.cast(pl.Float64)
        self.refuse(meaning, batch, bad)
        return integers.fill_null(LEAST[meaning.what])

    def _outcome(self, meaning: Meaning, batch: pl.Series) -> pl.Series:
        import polars as pl

        words = batch.cast(pl.String)
        code = words.cast(pl.Enum(OUTCOMES), strict=False).to_physical()
        self.refuse(meaning, words, code.is_null() & words.is_not_null())
        return code.fill_null(UNSTATED)

    def finish(self, named: frozenset[str], others: Sequence[str]) -> Part:
        """All rows, as one `Part`, without tasks if none were added; ``others`` are the keys without a role."""
        import polars as pl

        integers: dict[str, Ints] = {}
        numbers: dict[str, dict[str, Column]] = {"reward": {}, "number": {}}
        labels: dict[str, Labels] = {}
        for meaning, batches in self._batches.items():
            column = pl.concat(batches)
            if meaning.what in ("reward", "number", "column"):
                kind = "reward" if meaning.what == "reward" else "number"
                self._add(numbers[kind], meaning.name, column)
            elif meaning.what in (*LEAST, "outcome"):
                integers[meaning.what] = column.to_numpy()
            else:
                labels[meaning.name] = coded(column)
        for name, batches in self._json.items():
            labels[name] = coded_json(pl.concat(batches))
        tasks = labels.pop("task", Labels(np.zeros(self.rows, dtype=np.int64), []))
        part = Part(
            places=self.places,
            tasks=[str(task) for task in tasks.values],
            task=tasks.code,
            sample=integers.get("sample", np.zeros(self.rows, dtype=np.int64)),
            attempt=integers.get("attempt", np.ones(self.rows, dtype=np.int64)),
            outcome=integers.get("outcome", np.full(self.rows, UNSTATED)).astype(np.uint8),
            rewards=numbers["reward"],
            columns=numbers["number"],
            labels=labels,
            named=named,
            others=() if numbers["reward"] else others,
        )
        try:
            return self._facts.finish(part) if self._facts else part
        except BadRow as error:
            raise self._at(error) from None

    def _add(self, columns: dict[str, Column], name: str, series: pl.Series) -> None:
        """Add a column of numbers; InputError if a row has a number from another column of the same name."""
        if series.null_count() == len(series):
            return
        column = Column(series.fill_null(0.0).to_numpy(), series.is_not_null().to_numpy())
        if name in columns:
            earlier = columns[name]
            twice = np.flatnonzero(earlier.given & column.given)
            if len(twice):
                problem = f"{named(name)} appears twice in one row"
                raise InputError.at(self.places.of(int(twice[0])), problem, "expected it once")
            values = np.where(earlier.given, earlier.values, column.values)
            column = Column(values, earlier.given | column.given)
        columns[name] = column


def coded(column: pl.Series) -> Labels:
    """A column as labels, with code -1 for null."""
    import polars as pl

    if column.dtype.is_decimal():
        column = column.cast(pl.Float64)
    elif column.dtype == pl.Time:
        column = column.dt.to_string("%T%.f")  # a cast has no fractions of a second
    text = not (column.dtype.is_numeric() or column.dtype == pl.Boolean) or column.dtype == pl.Int128
    if text and not column.dtype.is_nested():
        with suppress(pl.exceptions.PolarsError):  # durations, and bytes that are not text
            column = column.cast(pl.String)
    if text and column.dtype not in (pl.String, pl.Null):
        texts = [None if value is None else json.dumps(value, default=str) for value in column.to_list()]
        return coded_json(pl.Series(texts, dtype=pl.String))
    if column.dtype.is_integer() and not column.null_count():
        return _coded_integers(column.to_numpy())
    values = column.drop_nulls().unique(maintain_order=True)
    if column.dtype == pl.String:
        code = column.cast(pl.Enum(values)).to_physical()
    else:
        code = column.replace_strict(values, np.arange(len(values)), return_dtype=pl.Int64)
    return Labels(code.cast(pl.Int64).fill_null(-1).to_numpy(), values.to_list())


def coded_json(texts: pl.Series) -> Labels:
    """A column of JSON text as labels."""
    labels = coded(texts)
    return Labels(labels.code, [json.loads(text) for text in labels.values])


def _coded_integers(values: Any) -> Labels:
    """A column of integers without nulls as labels; close ids need no sorting."""
    # as int64, because the differences may overflow the column's own type
    if len(values) and (close := dense(values.astype(np.int64) - values.min().astype(np.int64))) is not None:
        steps, code = close
        lowest = int(values.min())
        return Labels(code, [lowest + step for step in steps.tolist()])
    ids, code = np.unique(values, return_inverse=True)
    return Labels(code.astype(np.int64, copy=False), ids.tolist())


def _fits(what: str, dtype: Any) -> bool:
    import polars as pl

    text = dtype in (pl.String, pl.Categorical, pl.Enum)
    if what == "task":
        return text or dtype.is_integer()
    if what == "object":
        return False
    if what in ("outcome", *GROUP):
        return text
    return what == "label" or dtype.is_numeric() or (dtype == pl.Boolean and what not in LEAST)
