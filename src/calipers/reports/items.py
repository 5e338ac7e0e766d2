"""The tasks of a benchmark, as runs see them: how hard each is, what it tells, and where the variance comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from calipers.errors import UnknownName
from calipers.readers.read import Input
from calipers.stats.variance import Split

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "calipers.items/1"
FIELDS = (
    *("dataset", "task", "difficulty", "discrimination", "p_contradicts", "kind", "runs", "samples", "passes"),
    *("values", "information"),
)
EVERYONE, NOBODY, CONTRADICTS, MIXED = "everyone", "nobody", "contradicts", "mixed"
SORTS = ("difficulty", "easiest", "discrimination", "contradiction", "information", "samples", "task")


@dataclass(frozen=True, slots=True)
class ItemRun:
    """One run over the tasks: its mean, and what the variance of that mean is made of."""

    name: str
    source: str
    agent: str | None
    model: str | None
    tasks: int
    samples: int
    mean: float | None
    split: Split | None
    advice: str  # what to do about it, or why the variance cannot be divided


@dataclass(frozen=True, slots=True)
class Item:
    """One task."""

    task: str
    difficulty: float | None  # 1 less the mean value over runs
    discrimination: float | None  # correlation over runs with the mean of all other tasks
    p_contradicts: float | None  # one-sided: of a discrimination so low for a task that has none, for itself
    kind: str  # everyone, nobody, contradicts, mixed; "" without a sample
    runs: int
    samples: int
    passes: int
    values: Sequence[float | None]  # of each run, its mean over samples
    information: float | None = None  # what one try tells about a run as able as the best


@dataclass(frozen=True, slots=True)
class ItemTable:
    """The tasks of one dataset."""

    dataset: str | None
    reward: str
    of: str  # "reward", or "passes" where rewards leave [0, 1]
    runs: Sequence[ItemRun]
    items: Sequence[Item]
    why: str | None = None  # why no task has a discrimination
    notes: Sequence[str] = ()
    why_information: str | None = None  # why no task has an information

    def count(self, kind: str) -> int:
        """How many tasks are of a kind."""
        return sum(item.kind == kind for item in self.items)


@dataclass(frozen=True, slots=True)
class ItemReport:
    """The tasks of every dataset."""

    threshold: float
    missing: str
    sort: str
    inputs: Sequence[Input]
    tables: Sequence[ItemTable]
    notes: Sequence[str] = ()
    limit: int | None = None  # of the tasks that are shown; None: all

    @property
    def fields(self) -> Sequence[str]:
        """The keys of a row, in order."""
        return FIELDS

    def limited(self, limit: int | None) -> ItemReport:
        """The same report, to show only so many tasks of each dataset."""
        return replace(self, limit=limit)

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            "threshold": self.threshold,
            "missing": self.missing,
            "sort": self.sort,
            "inputs": [asdict(source) for source in self.inputs],
            "tables": [self._table(table) for table in self.tables],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """The document as indented JSON with a final newline."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per task; the values of the runs stand in one cell, by name."""
        found = []
        for table in self.tables:
            for item in table.items[: self.limit]:
                told = [
                    f"{run.name}={value:.6g}"
                    for run, value in zip(table.runs, item.values, strict=True)
                    if value is not None
                ]
                found.append({"dataset": table.dataset, **asdict(item), "values": "; ".join(told)})
        return found

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def _table(self, table: ItemTable) -> dict[str, Any]:
        found = asdict(replace(table, items=table.items[: self.limit]))
        kinds = {kind: table.count(kind) for kind in (EVERYONE, NOBODY, CONTRADICTS, MIXED)}
        return {**found, "tasks": len(table.items), "kinds": kinds}


def ordered(items: Sequence[Item], sort: str) -> list[Item]:
    """Items by a column, ties by task; what has no number comes last.

    ``difficulty`` begins with the hardest, ``discrimination`` and ``contradiction`` with what tells least,
    ``information`` with what tells most.
    """
    keys: dict[str, Callable[[Item], float | None]] = {
        "difficulty": lambda item: None if item.difficulty is None else -item.difficulty,
        "easiest": lambda item: item.difficulty,
        "discrimination": lambda item: item.discrimination,
        "contradiction": lambda item: item.p_contradicts,
        "information": lambda item: None if item.information is None else -item.information,
        "samples": lambda item: -item.samples,
        "task": lambda item: 0,
    }
    if sort not in keys:
        raise UnknownName.of("order of tasks", sort, SORTS)
    key = keys[sort]
    return sorted(items, key=lambda item: (key(item) is None, key(item) or 0))  # the tasks stand sorted: ties keep it
