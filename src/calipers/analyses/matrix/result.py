"""The result of a matrix: a cell for each benchmark and model, the differences, and the mean over benchmarks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from calipers.errors import UnknownName
from calipers.formats.read import Input
from calipers.reports.document import Document, Glance
from calipers.reports.page import Page
from calipers.reports.result import canonical

SCHEMA: Final = "calipers.matrix/1"
MACRO_MEAN: Final = "macro mean"
FIELDS: Final = (
    *("benchmark", "metric", "model", "value", "stderr", "low", "high", "tasks", "excluded_tasks", "samples"),
    *("missing", "planned", "cost_usd", "best", "against", "delta", "delta_stderr", "delta_low", "delta_high"),
    *("p", "p_holm", "verdict", "why", "agent", "source"),
)


@dataclass(frozen=True, slots=True)
class MatrixColumn:
    """A model of a matrix."""

    name: str  # no other model of the matrix has it
    agent: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One model on one benchmark, or its mean over benchmarks."""

    model: str
    value: float | None  # on the tasks of the row
    stderr: float | None
    interval: tuple[float, float] | None
    method: str | None  # of the interval
    tasks: int
    samples: int
    missing: int  # rollouts of its run that have no number
    planned: int  # rollouts of its run
    cost_usd: float | None = None  # of all of them; None where none was recorded
    source: str = ""  # the path it was read from; "" for a table
    why: str | None = None  # it has no value, or no interval


@dataclass(frozen=True, slots=True)
class PairDifference:
    """Two models on the same tasks: second less first."""

    first: str
    second: str
    delta: float | None
    stderr: float | None
    interval: tuple[float, float] | None  # for itself, not adjusted
    p: float | None  # of no difference, for itself
    p_holm: float | None  # adjusted: of single benchmarks over all of them, of the mean over its pairs
    verdict: str  # better, worse, equivalent or undecided: the second against the first, by p_holm
    method: str
    tasks: int
    floored_stderr: float | None = None  # by which it is tested
    freedom: float | None = None  # degrees of freedom of t
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A row of a matrix."""

    benchmark: str
    tasks: int  # that are compared; of a single model, its own
    excluded_tasks: int  # that some model has, and that are not compared
    cells: Sequence[Cell]  # of each model, in the order of the models
    pairs: Sequence[PairDifference] = ()
    best: str | None = None  # the model that is better than every other, by the adjusted tests
    in_mean: bool = True
    why: str | None = None  # its models are not compared


@dataclass(frozen=True, slots=True)
class MatrixMean:
    """The mean over benchmarks, each counting alike: of every model, and of their differences."""

    benchmarks: Sequence[str]  # that are in it
    excluded: Sequence[str]  # that are not, because not every model has them
    tasks: int
    cells: Sequence[Cell]
    pairs: Sequence[PairDifference] = ()
    best: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Matrix(Page):
    """Models by benchmarks: values, differences and verdicts. ``matrix["arith"]`` is a row."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    cluster: str | None
    margin: float | None
    metric: str
    higher_is_better: bool
    tests: int  # of single benchmarks, over which their p is adjusted
    models: Sequence[MatrixColumn]
    inputs: Sequence[Sequence[Input]]
    benchmarks: Sequence[MatrixRow]
    mean: MatrixMean | None  # None with one benchmark
    notes: Sequence[str] = ()

    def __getitem__(self, benchmark: str) -> MatrixRow:
        by_name = {row.benchmark: row for row in self.benchmarks}
        if benchmark not in by_name:
            raise UnknownName.of("benchmark in this matrix", benchmark, by_name)
        return by_name[benchmark]

    @property
    def verdicts(self) -> list[str]:
        """The verdict of the mean, or of the only benchmark, for each pair of models."""
        row = self.benchmarks[0] if self.mean is None else self.mean
        return [pair.verdict for pair in row.pairs]

    @property
    def digest(self) -> str:
        """The hash of settings and numbers, without paths and names: equal digests mean equal numbers."""
        rows = [_numbers(asdict(row)) for row in self.benchmarks]
        whole = {**self._settings(), "benchmarks": rows, "mean": self.mean and _numbers(asdict(self.mean))}
        return "sha256:" + hashlib.sha256(canonical(whole)).hexdigest()

    def page(self) -> Document:
        """The page and its data, for renderers."""
        from calipers.analyses.matrix.document import document

        return document(self)

    def glance(self) -> Glance:
        """The answer, the matrix, and what its letters stand for, for a notebook."""
        from calipers.analyses.matrix.document import glance

        return glance(self)

    def headline(self) -> str:
        """What it says, in a line."""
        from calipers.analyses.matrix.document import answer, head

        return f"{head(self)}: {answer(self).sentence}"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **self._settings(),
            "models": [asdict(column) for column in self.models],
            "inputs": [[asdict(file) for file in files] for files in self.inputs],
            "benchmarks": [{**asdict(row), **_only(row.pairs)} for row in self.benchmarks],
            "mean": None if self.mean is None else {**asdict(self.mean), **_only(self.mean.pairs)},
            "notes": list(self.notes),
            "digest": self.digest,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per cell; beside a second model, its difference from the first."""
        every: list[tuple[str, MatrixRow | MatrixMean]] = [(row.benchmark, row) for row in self.benchmarks]
        if self.mean is not None:
            every.append((MACRO_MEAN, self.mean))
        agents = {column.name: column.agent for column in self.models}
        return [
            {**_flat(cell, row), "benchmark": name, "metric": self.metric, "agent": agents[cell.model]}
            for name, row in every
            for cell in row.cells
        ]

    def _settings(self) -> dict[str, Any]:
        names = ("dialect", "missing", "confidence", "seed", "cluster", "margin", "metric", "higher_is_better", "tests")
        return {name: getattr(self, name) for name in names}


_NAMED = ("model", "source", "first", "second", "best", "benchmark", "benchmarks", "excluded", "cost_usd", "why")


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what may be called otherwise."""
    return {
        key: [_numbers(each) for each in value] if key in ("cells", "pairs") else value
        for key, value in row.items()
        if key not in _NAMED
    }


def _only(pairs: Sequence[PairDifference]) -> dict[str, Any]:
    """The numbers of the only pair, beside the list of pairs: with two models there is one difference."""
    if len(pairs) != 1:
        return {}
    names = ("delta", "stderr", "floored_stderr", "interval", "p", "p_holm", "verdict", "method")
    return {name: getattr(pairs[0], name) for name in names}


def _flat(cell: Cell, row: MatrixRow | MatrixMean) -> dict[str, Any]:
    low, high = cell.interval or (None, None)
    pair = next((pair for pair in row.pairs if pair.second == cell.model and pair.first == row.cells[0].model), None)
    delta_low, delta_high = (pair and pair.interval) or (None, None)
    return {
        "model": cell.model,
        "value": cell.value,
        "stderr": cell.stderr,
        "low": low,
        "high": high,
        "tasks": cell.tasks,
        "excluded_tasks": row.excluded_tasks if isinstance(row, MatrixRow) else None,
        "samples": cell.samples,
        "missing": cell.missing,
        "planned": cell.planned,
        "cost_usd": cell.cost_usd,
        "best": cell.model == row.best,
        "against": pair.first if pair else None,
        "delta": pair.delta if pair else None,
        "delta_stderr": pair.stderr if pair else None,
        "delta_low": delta_low,
        "delta_high": delta_high,
        "p": pair.p if pair else None,
        "p_holm": pair.p_holm if pair else None,
        "verdict": pair.verdict if pair else None,
        "why": cell.why or (row.why if isinstance(row, MatrixRow) else None),
        "source": cell.source,
    }
