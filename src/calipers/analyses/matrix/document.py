"""A matrix of models by benchmarks, and its page: the answer, a row for each benchmark, the mean, missing and cost."""

from __future__ import annotations

import hashlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, NoReturn

from calipers.analyses.compare import HOLM, SIDAK
from calipers.analyses.compare.document import CiVerdict, annotations_of, suites_of
from calipers.analyses.compare.page import MARKS, RETRY, all_of
from calipers.errors import UnknownName
from calipers.formats.read import Input
from calipers.remarks import Remark
from calipers.reports.document import (
    Blank,
    Block,
    Document,
    Glance,
    Name,
    Picture,
    Row,
    Sentence,
    SentenceList,
    Styled,
    Table,
    TableColumn,
    Text,
    Title,
)
from calipers.reports.document import Cell as TableCell
from calipers.reports.doubts import Doubts, doubt_blocks, doubts_document
from calipers.reports.figures import NONE, a_or_an, counted, figure, letters, percent
from calipers.reports.junit import TestSuite
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import documents_of, text_of
from calipers.reports.result import canonical
from calipers.reports.sentences import (
    MINUS,
    Answer,
    begun,
    column_decimals,
    level,
    minus,
    money,
    needed,
    of_difference,
    outward,
    rounded_out,
    signed,
    signed_outward,
)
from calipers.reports.untrusted_text import clean, note_line, width, without_middle
from calipers.rollouts.ledger import RANDOM
from calipers.stats.scales import SCALES

SCHEMA: Final = "calipers.matrix/1"
MACRO_MEAN: Final = "macro mean"
MEAN_OF_RANGE: Final = "mean of range"
FIELDS: Final = (
    *("benchmark", "metric", "model", "value", "stderr", "low", "high", "tasks", "excluded_tasks", "samples"),
    *("missing", "planned", "cost_usd", "best", "against", "delta", "delta_stderr", "delta_low", "delta_high"),
    *("p", "p_holm", "verdict", "why", "agent", "source"),
)


@dataclass(frozen=True, slots=True)
class MatrixColumn:
    """A model of a matrix."""

    name: str  # unique within the matrix
    agent: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """The value of one model on one benchmark, or its mean over benchmarks."""

    model: str
    value: float | None  # on the tasks of the row
    stderr: float | None
    interval: tuple[float, float] | None
    method: str | None  # of the interval
    tasks: int
    samples: int
    missing: int  # rollouts of its run without a number
    planned: int  # planned rollouts of its run
    cost_usd: float | None = None  # of all its rollouts; None if no cost was recorded
    source: str = ""  # the path of the source; "" for a table
    why: str | None = None  # why it has no value or no interval


@dataclass(frozen=True, slots=True)
class PairDifference:
    """The difference between two models on the same tasks: second less first."""

    first: str
    second: str
    delta: float | None
    stderr: float | None
    interval: tuple[float, float] | None  # adjusted only if the benchmarks have no common scale
    p: float | None  # of the null hypothesis of no difference, not adjusted
    p_holm: float | None  # of a claim, adjusted: over all tests of single benchmarks, or over the pairs of the mean
    verdict: str  # better, worse, equivalent or undecided: the second against the first, by p_adjusted
    method: str
    tasks: int
    floored_stderr: float | None = None  # the standard error of the test
    freedom: float | None = None  # degrees of freedom of t
    why: str | None = None
    undecided_by: str | None = None  # a reason of `stats.claims`, or "family": decided alone and not among all tests
    as_observed: str = "undecided"  # the verdict by the observed difference alone
    worst_interval: tuple[float, float] | None = None  # over the fillings of missing rollouts
    compared_on: str = "all_samples"  # or the first samples of each task
    confidence: float = 0.95  # of the interval
    remarks: Sequence[Remark] = ()  # why it is undecided; the models are "first" and "second" in them
    missing: tuple[int, int] = (0, 0)  # rollouts of each model whose worst outcome a claim must survive
    p_adjusted: float | None = None  # of a claim, by the method of the matrix; decides the verdict


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One benchmark of a matrix."""

    benchmark: str
    tasks: int  # of any model
    excluded_tasks: int  # those that not every model has
    cells: Sequence[Cell]  # in the order of the models
    pairs: Sequence[PairDifference] = ()
    best: str | None = None  # the model that is better than every other one, by the adjusted tests
    in_mean: bool = True
    why: str | None = None  # why its models are not compared
    range: tuple[float, float] | None = None  # of its values: given, or 0 to 1; None if it is not known


@dataclass(frozen=True, slots=True)
class MatrixMean:
    """The unweighted mean over benchmarks of every model and of their differences.

    Benchmarks of unlike scales have none: its values are None, with ``why``.
    """

    benchmarks: Sequence[str]  # the benchmarks in the mean
    excluded: Sequence[str]  # the others, which not every model has
    tasks: int
    cells: Sequence[Cell]
    pairs: Sequence[PairDifference] = ()
    best: str | None = None
    of_range: bool = False  # each value is a share of the range of its benchmark
    why: str | None = None  # why there is no mean
    undecided_by: str | None = None  # "scales" if there is no mean; in a document, else the reason of an only pair


@dataclass(frozen=True, slots=True, repr=False)
class Matrix(Page):
    """Models by benchmarks: values, differences and verdicts. ``matrix["arith"]`` is the row of a benchmark."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    cluster: str | None
    margin: float | None
    metric: str
    higher_is_better: bool
    tests: int  # the number of tests on single benchmarks, over which their p is adjusted
    models: Sequence[MatrixColumn]
    inputs: Sequence[Sequence[Input]]
    benchmarks: Sequence[MatrixRow]
    mean: MatrixMean | None  # None with one benchmark
    notes: Sequence[str] = ()
    remarks: Sequence[Remark] = ()
    doubts: Doubts = field(default_factory=dict)  # not in the digest

    @property
    def adjust(self) -> str:
        """How the tests of single benchmarks are adjusted: Holm's method, or Sidak's if there is no mean over them."""
        return HOLM if self.alike else SIDAK

    @property
    def alike(self) -> bool:
        """Whether the benchmarks have one scale, and so a mean."""
        return self.mean is None or self.mean.undecided_by != SCALES

    def __getitem__(self, benchmark: str) -> MatrixRow:
        by_name = {row.benchmark: row for row in self.benchmarks}
        if benchmark not in by_name:
            raise UnknownName.of("benchmark in this matrix", benchmark, by_name)
        return by_name[benchmark]

    def __bool__(self) -> NoReturn:
        raise TypeError("a matrix is neither true nor false: use .verdicts")

    @property
    def verdicts(self) -> list[str]:
        """The verdict of the mean, or of the only benchmark, for each pair of models; without a mean, of each one."""
        rows = [_answer_row(self)] if self.alike else self.benchmarks
        verdicts: list[str] = []
        for row in rows:
            verdicts += [pair.verdict for pair in row.pairs]
        return verdicts

    @property
    def digest(self) -> str:
        """The hash of settings and numbers, without paths and names: equal digests mean equal numbers."""
        rows = [_numbers(asdict(row)) for row in self.benchmarks]
        content = {**self._settings(), "benchmarks": rows, "mean": self.mean and _numbers(asdict(self.mean))}
        return "sha256:" + hashlib.sha256(canonical(content)).hexdigest()

    def page(self) -> Document:
        """The document that renderers show."""
        return document(self)

    def glance(self) -> Glance:
        """The answer, the table and the meaning of its letters, for a notebook."""
        return glance(self)

    def headline(self) -> str:
        """The answer in one line."""
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
            "benchmarks": [_row_document(row) for row in self.benchmarks],
            "mean": None if self.mean is None else _row_document(self.mean),
            "notes": list(self.notes),
            "remarks": documents_of(self.remarks),
            "digest": self.digest,
            **({"checks": doubts_document(self.doubts)} if self.doubts else {}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per cell, with its difference from the first model of its row."""
        named_rows: list[tuple[str, MatrixRow | MatrixMean]] = [(row.benchmark, row) for row in self.benchmarks]
        if self.mean is not None:
            named_rows.append((MACRO_MEAN, self.mean))
        agents = {column.name: column.agent for column in self.models}
        return [
            {**_flat(cell, row), "benchmark": name, "metric": self.metric, "agent": agents[cell.model]}
            for name, row in named_rows
            for cell in row.cells
        ]

    def _settings(self) -> dict[str, Any]:
        names = ("dialect", "missing", "confidence", "seed", "cluster", "margin", "metric", "higher_is_better", "tests")
        return {name: getattr(self, name) for name in (*names, "adjust")}


_UNHASHED = (
    "model",
    "source",
    "first",
    "second",
    "best",
    "benchmark",
    "benchmarks",
    "excluded",
    "cost_usd",
    "why",
    "remarks",
)


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that the digest includes: no names, paths, costs and sentences."""
    return {
        key: [_numbers(each) for each in value] if key in ("cells", "pairs") else value
        for key, value in row.items()
        if key not in _UNHASHED
    }


def _row_document(row: MatrixRow | MatrixMean) -> dict[str, Any]:
    """A row as JSON has it: its remarks have their texts, and the numbers of an only pair are beside the pairs."""
    document = {**asdict(row), **_only_pair(row.pairs)}
    for pair, fields in zip(row.pairs, document["pairs"], strict=True):
        fields["remarks"] = documents_of(pair.remarks, {"first": pair.first, "second": pair.second})
    return document


def _only_pair(pairs: Sequence[PairDifference]) -> dict[str, Any]:
    """The numbers of the only pair, which a document with two models also has outside the list of pairs."""
    if len(pairs) != 1:
        return {}
    names = (
        *("delta", "stderr", "floored_stderr", "interval", "p", "p_holm", "p_adjusted", "verdict", "method"),
        "undecided_by",
    )
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
        "why": cell.why or row.why,
        "source": cell.source,
    }


SHORT = 15  # maximum width of a model's name as the head of its column; longer names have a legend
SIDE_BY_SIDE = 4  # up to this number, models have a column each; more models have a row each
BENCHMARK_COLUMNS = 4  # benchmarks without a mean that have a column each
COMPARED = 2  # with this number of models, their difference has columns
FEW = 3  # names that a sentence lists
LINES = 25  # lines of a page, unless all rows are requested
FEWEST = 2  # minimum number of rows
COLUMNS = 80  # width of a page for which its lines are counted
NAME = 40  # width of a name in columns
SHORT_NAME = 24  # width of a name in a sentence that lists several
WIDE = 110  # minimum width of a terminal that shows a picture
PICTURE = (0, 27)  # width of a picture on a narrow and on a wide terminal
NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DECIDED: Final = ("better", "worse")
OWN_TASKS: Final = "own_tasks_of_benchmark"
WAYS: Final = ("ranges_for_a_mean", "mean_of_range")
MOST_CAUTIONS = 6  # remarks that a page shows in full
SURVIVED: Final = ("reader", "missing", "counts", "unseen_loss")
"""Reasons of an undecided pair that its page names: what a claim on it would have to survive."""
MOST_PARTS = 4  # conclusions on single benchmarks that a sentence lists


def document(matrix: Matrix, *, every: bool = False, where: str = "", option: str = "--all") -> Document:
    """The page of a matrix; ``every`` shows all rows.

    The page names the command's ``option`` that shows all rows, and ``where``, the path of the runs, in commands.
    """
    return Document(
        partial(_blocks, matrix, every, where, option),
        matrix.to_dict,
        FIELDS,
        matrix.rows,
        escaped="\\`*_[]|#!~<@",
        paged=True,
    )


def head(matrix: Matrix) -> str:
    """``5 benchmarks, 2 models``."""
    return f"{counted(len(matrix.benchmarks), 'benchmark')}, {counted(len(matrix.models), 'model')}"


def answer(matrix: Matrix, names: Sequence[str] | None = None) -> Answer:
    """The answer of a matrix, which is the mean over benchmarks; ``names`` are the displayed names of its models."""
    names = [clean(column.name, None) for column in matrix.models] if names is None else names
    if not matrix.alike:
        return _answer_without_mean(matrix, names)
    if matrix.mean is not None and not matrix.mean.benchmarks:
        return Answer(f"No benchmark has a value of {'both models' if len(names) == COMPARED else 'every model'}.")
    if len(matrix.models) == 1:
        return _answer_of_one(matrix, names[0])
    if len(matrix.models) == COMPARED:
        return _answer_of_two(matrix, names)
    return _answer_of_many(matrix, names)


def _answer_row(matrix: Matrix) -> MatrixRow | MatrixMean:
    """The row with the answer: the mean, or the only benchmark."""
    return matrix.benchmarks[0] if matrix.mean is None else matrix.mean


def _over(matrix: Matrix) -> str:
    """``five benchmarks``, or the name of the only benchmark."""
    if matrix.mean is None:
        return clean(matrix.benchmarks[0].benchmark)
    count = len(matrix.mean.benchmarks)
    number = NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"
    return f"{number} benchmark{'' if count == 1 else 's'}"


def _answer_of_one(matrix: Matrix, name: str) -> Answer:
    cell = _answer_row(matrix).cells[0]
    over = f"{'on' if matrix.mean is None else 'over'} {_over(matrix)}"
    if cell.value is None:
        return Answer(f"{name} has no {matrix.metric} {over}.", plain_why(cell.why or ""))
    digits = decimals(matrix, _answer_row(matrix))
    verb = "scores" if matrix.metric == "mean_reward" else f"has {a_or_an(matrix.metric)} of"
    detail = f"No interval: {plain_why(cell.why)}" if cell.why else "No interval"
    if cell.interval:
        of_mean = "" if matrix.mean is None else " of the macro mean"
        detail = f"{level(matrix.confidence)}{of_mean}: {outward(cell.interval, digits)}"
    return Answer(f"{name} {verb} {minus(figure(cell.value, digits))}{_of_range(matrix)} {over}.", detail)


def _of_range(matrix: Matrix) -> str:
    """What the mean is a share of, if it is one."""
    return " of the range" if matrix.mean is not None and matrix.mean.of_range else ""


def _answer_without_mean(matrix: Matrix, names: Sequence[str]) -> Answer:
    """The answer on benchmarks of unlike scales: why there is no mean, and what is decided on each."""
    why = matrix.mean.why if matrix.mean is not None and matrix.mean.why else ""
    shown_name = {column.name: name for column, name in zip(matrix.models, names, strict=True)}
    decided: dict[str, list[str]] = {}
    for row in matrix.benchmarks:
        name = clean(row.benchmark)
        if len(matrix.models) == COMPARED and row.pairs:
            pair = row.pairs[0]
            size = figure(abs(pair.delta or 0.0), needed(pair.interval))
            if pair.verdict in DECIDED:
                decided.setdefault(f"{pair.verdict} on {name} by {size}", [])
            else:
                word = "equivalent" if pair.verdict == "equivalent" else "not decided"
                decided.setdefault(f"{word} on", []).append(name)
        elif row.best is not None:
            decided.setdefault(f"{shown_name[row.best]} is the best on", []).append(name)
        elif row.pairs:
            decided.setdefault("no model is better than every other on", []).append(name)
    parts = [" ".join([how, _listed(rows)]) if rows else how for how, rows in decided.items()]
    detail = "; ".join([*parts[:MOST_PARTS], *(["…"] if len(parts) > MOST_PARTS else [])])
    return Answer(why, begun(detail))


def _answer_of_two(matrix: Matrix, names: Sequence[str]) -> Answer:
    row = _answer_row(matrix)
    pair = row.pairs[0] if row.pairs else None
    why = _why_not_compared(matrix) if pair is None else pair.why
    answer = of_difference(
        names[0],
        names[1],
        "undecided" if pair is None else pair.verdict,
        None if pair is None else pair.delta,
        None if pair is None else pair.interval,
        confidence=matrix.confidence,
        margin=matrix.margin,
        why=plain_why(why) if why else None,
        over="" if matrix.mean is None else _over(matrix),
        but=_but(matrix, "undecided" if pair is None else pair.verdict),
        digits=decimals(matrix, row),
        unit=_of_range(matrix),
        even_if="" if pair is None else _even_if(pair, (names[0], names[1])),
        reasons=[] if pair is None else _reasons(matrix, pair, (names[0], names[1])),
    )
    return replace(answer, sentence=f"{answer.sentence.removesuffix('.')}{_assumed(matrix)}.")


def _even_if(pair: PairDifference, names: tuple[str, str]) -> str:
    """The worst case that a claim survives: ``even if all 51 missing rollouts of B failed``; "" without one."""
    if pair.verdict not in DECIDED or not any(pair.missing) or pair.delta is None:
        return ""
    outcomes = ("passed", "failed") if pair.delta > 0 else ("failed", "passed")
    parts: list[str] = []
    for run in (1, 0):
        if pair.missing[run]:
            noun = "" if parts else "missing rollout"
            parts.append(f"{all_of(pair.missing[run], noun)} of {names[run]} {outcomes[run]}")
    return f"even if {' and '.join(parts)}"


def _missing_in(row: MatrixRow) -> int:
    """The number of missing rollouts of a benchmark, over all models."""
    return sum(cell.missing for cell in row.cells)


def _assumed(matrix: Matrix) -> str:
    """What a headline assumes of missing rollouts, if the user declares that they are like the others."""
    lost = sum(_missing_in(row) for row in matrix.benchmarks)
    return f", {text_of(Remark('missing_random', {}))}" if matrix.missing == RANDOM and lost else ""


def _reasons(matrix: Matrix, pair: PairDifference, names: tuple[str, str]) -> list[str]:
    """Why a pair is undecided although the observed rollouts decide it, and what can be done; else empty."""
    if not pair.remarks:
        return []
    reasons = [text_of(remark, {"first": names[0], "second": names[1]}) for remark in pair.remarks]
    if pair.undecided_by == "missing":
        if pair.as_observed in DECIDED and pair.delta is not None:
            size = figure(abs(pair.delta), decimals(matrix, _answer_row(matrix)))
            reasons.append(f"As seen {names[1]} is {pair.as_observed} than {names[0]} by {size}{_of_range(matrix)}")
        reasons.append(RETRY)
    return reasons


def _but(matrix: Matrix, verdict: str) -> str:
    """The benchmarks on which two models are decided the other way than on average: ``worse on acc``."""
    opposite = {"better": "worse", "worse": "better"}.get(verdict)
    if matrix.mean is None or opposite is None:
        return ""
    against = [row for row in matrix.benchmarks if any(pair.verdict == opposite for pair in row.pairs)]
    return f"{opposite} on {_listed([clean(row.benchmark) for row in against])}" if against else ""


def _why_not_compared(matrix: Matrix) -> str:
    reasons = [row.why or cell.why for row in matrix.benchmarks for cell in row.cells if row.why or cell.why]
    return next(filter(None, reasons), "")


def alone(matrix: Matrix) -> str:
    """A sentence on the single benchmarks that are decided, beside the mean of two models; "" if there is no mean."""
    if matrix.mean is None or len(matrix.mean.pairs) != 1 or not matrix.alike:
        return ""
    decided = [row for row in matrix.benchmarks if any(pair.verdict in DECIDED for pair in row.pairs)]
    mean_is_decided = matrix.mean.pairs[0].verdict in DECIDED
    if not decided:
        return "No single benchmark decides it." if mean_is_decided else ""
    of_mean = matrix.mean.pairs[0].verdict
    verdicts: set[str] = set()
    for row in decided:
        verdicts |= {pair.verdict for pair in row.pairs}
    agree = verdicts == {of_mean}
    if len(decided) == len(matrix.benchmarks) and (agree or not mean_is_decided):
        return f"Each benchmark is decided alone{', too' if mean_is_decided else ''}."
    names = []
    for row in decided[:FEW]:
        verdict = "" if agree else f" ({row.pairs[0].verdict})"
        names.append(f"{clean(row.benchmark)}{verdict}")
    named = ", ".join(names) + (", …" if len(decided) > FEW else "")
    are = "is" if len(decided) == 1 else "are"
    return f"{len(decided):,} of {counted(len(matrix.benchmarks), 'benchmark')} {are} decided alone: {named}."


def _answer_of_many(matrix: Matrix, names: Sequence[str]) -> Answer:
    row = _answer_row(matrix)
    digits = decimals(matrix, row)
    shown_name = {column.name: name for column, name in zip(matrix.models, names, strict=True)}
    over = f"{'on' if matrix.mean is None else 'over'} {_over(matrix)}"
    count = f"{len(names):,} models"
    if row.best is not None:
        cell = next(cell for cell in row.cells if cell.model == row.best)
        interval = f" ({outward(cell.interval, digits)})" if cell.interval else ""
        worse = _worse_somewhere(matrix, row.best, shown_name)
        return Answer(
            f"{shown_name[row.best]} is the best of {count} {over}{worse}{_assumed(matrix)}.",
            f"{minus(figure(cell.value, digits))}{_of_range(matrix)}{interval}, better than each",
        )
    with_value = [cell for cell in row.cells if cell.value is not None]
    if not with_value or not row.pairs:
        return Answer(f"The {count} are not compared {over}.", plain_why(_why_not_compared(matrix)))
    sign = 1 if matrix.higher_is_better else -1
    first = max(with_value, key=lambda cell: sign * (cell.value or 0.0))
    others: dict[str, list[str]] = {"undecided against": [], "equivalent to": []}
    for pair in row.pairs:
        if first.model in (pair.first, pair.second) and pair.verdict not in DECIDED:
            other = shown_name[pair.second if pair.first == first.model else pair.first]
            others["equivalent to" if pair.verdict == "equivalent" else "undecided against"].append(other)
    value = f"{'highest' if sign > 0 else 'lowest'} value, {figure(first.value, digits)}"
    ties = [f"{how} {_listed(ties)}" for how, ties in others.items() if ties]
    detail = "; ".join([f"{shown_name[first.model]} has the {value}", *(ties or ["not compared with every other"])])
    sentence = f"No model is better than every other {over}"
    if row.pairs and any(pair.undecided_by == "missing" for pair in _pairs_of(row, first.model)):
        return Answer(f"{sentence}: the missing rollouts decide{_assumed(matrix)}.", f"{detail}. {RETRY}")
    return Answer(f"{sentence}{_assumed(matrix)}.", detail)


def _pairs_of(row: MatrixRow | MatrixMean, model: str) -> list[PairDifference]:
    return [pair for pair in row.pairs if model in (pair.first, pair.second)]


def _listed(names: Sequence[str]) -> str:
    """``a, b, c and 2 more``."""
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW:,} more" if len(names) > FEW else "")


def _worse_somewhere(matrix: Matrix, best: str, shown_name: Mapping[str, str]) -> str:
    """The benchmarks on which the best model by the mean is worse than another: ``; worse than a on acc``."""
    worse: dict[str, list[str]] = {}
    for row in matrix.benchmarks if matrix.mean is not None else ():
        for pair in row.pairs:
            if (pair.first, pair.verdict) == (best, "better"):
                worse.setdefault(pair.second, []).append(clean(row.benchmark))
            if (pair.second, pair.verdict) == (best, "worse"):
                worse.setdefault(pair.first, []).append(clean(row.benchmark))
    return "".join(f"; worse than {shown_name[model]} on {_listed(rows)}" for model, rows in worse.items())


def decimals(matrix: Matrix, row: MatrixRow | MatrixMean) -> int:
    """The decimals of a row: those that all rows share if they have one scale, else those that the row needs."""
    rows = _rows(matrix) if len({each.range for each in matrix.benchmarks}) == 1 and matrix.alike else [row]
    intervals, values = [], []
    for each in rows:
        intervals += [cell.interval for cell in each.cells] + [pair.interval for pair in each.pairs]
        values += [cell.value for cell in each.cells]
    return column_decimals(values, intervals) if len(rows) > 1 else needed(*intervals)


def _rows(matrix: Matrix) -> list[MatrixRow | MatrixMean]:
    return [*matrix.benchmarks, *([matrix.mean] if matrix.mean else [])]


def _blocks(matrix: Matrix, every: bool, where: str, option: str = "") -> Iterator[Block]:
    names = [clean(column.name, None) for column in matrix.models]
    count = len(names)
    models_as_rows = count > SIDE_BY_SIDE
    has_legend = 1 < count <= SIDE_BY_SIDE and any(width(name) > SHORT for name in names)
    labels = letters(count)
    way = "" if matrix.higher_is_better else " (lower is better)"
    about = f"{clean(matrix.metric)}{way}, {percent(matrix.confidence)} intervals"
    short_names = labels if has_legend else without_middle(names, SHORT_NAME) if models_as_rows else None
    short, full = answer(matrix, short_names), answer(matrix)  # for a terminal, and for Markdown
    yield Title("", markdown=head(matrix))
    above: list[Block] = [
        Sentence(head(matrix), right=about, markdown=about),
        Sentence(short.sentence, "strong", markdown=(Styled(full.sentence),)),
    ]
    single = alone(matrix)
    if full.detail or single:
        markdown = " ".join(filter(None, (_with_period(full.detail), single)))
        above.append(Sentence(_with_period(short.detail), markdown=markdown))
    if single:
        above.append(Sentence(single, markdown=""))
    above.append(Blank())
    if has_legend:
        above += [*(Sentence(line, markdown="") for line in _legend(names)), Blank()]
    below = list(_below(matrix, models_as_rows, where))
    below += [Sentence(note_line(text), markdown="") for text in cautions(matrix)]
    below = [Blank(), *below] if below else below
    room = None if every else LINES - sum(map(_lines_taken, (*above, *below)))
    yield from above
    if models_as_rows and not matrix.alike:
        yield from _models_by_benchmark(matrix, room, every, option)
    elif models_as_rows:
        yield from _table_of_models(matrix, room, option)
    else:
        heads: list[Text] = [*labels] if has_legend else [Name(name, None) for name in names]
        if count == COMPARED and not has_legend:
            heads = [(f"{label} ", Name(name, None)) for label, name in zip(labels, names, strict=True)]
        yield from _table(matrix, heads, room, option)
    yield from below
    yield from doubt_blocks(matrix.doubts)
    if matrix.notes:  # on a terminal the command prints them to stderr
        yield SentenceList([Sentence("", markdown=note) for note in matrix.notes])


def _legend(names: Sequence[str]) -> list[str]:
    """The models that the letters stand for: a line for each of two models, else lines filled with several."""
    shown_names = without_middle(names, COLUMNS - 4)
    entries = [f"{label}  {name}" for label, name in zip(letters(len(names)), shown_names, strict=True)]
    if len(entries) <= COMPARED:
        return entries
    lines = entries[:1]
    for entry in entries[1:]:
        joined = f"{lines[-1]}   {entry}"
        lines[-1:] = [joined] if width(joined) <= COLUMNS else [lines[-1], entry]
    return lines


def _lines_taken(block: Block) -> int:
    """The approximate number of lines of a sentence on a terminal of 80 columns."""
    text = block.text if isinstance(block, Sentence) and isinstance(block.text, str) else ""
    expanded = "".join(sign * width(sign) for sign in text)  # one character per column
    return max(len(textwrap.wrap(expanded, COLUMNS - 4, break_long_words=False, break_on_hyphens=False)), 1)


def _shown_rows(count: int, room: int | None, lines: int = 1) -> int:
    """How many of ``count`` rows, of ``lines`` each, fit into the room; one line is left for a note on hidden rows."""
    if room is None or count * lines <= room:
        return count
    return min(max((room - 1) // lines, FEWEST), count)


def _more(hidden: int, noun: str, option: str) -> Iterator[Block]:
    if hidden:
        words = f"{counted(hidden, f'more {noun}')}: {option}"
        yield Sentence(f"… {words}", "note", markdown=words)


def glance(matrix: Matrix) -> Glance:
    """The answer, the table and the meaning of its letters, for a notebook."""
    full = answer(matrix)
    table = next(block for block in _blocks(matrix, every=True, where="") if isinstance(block, Table))
    names = [clean(column.name, None) for column in matrix.models]
    labelled = [f"{label} {name}" for label, name in zip(letters(len(names)), names, strict=True)]
    legend = f"{', '.join(labelled)}." if 1 < len(names) <= SIDE_BY_SIDE else ""
    foot = " ".join(filter(None, (_with_period(full.detail), alone(matrix), legend, f"{matrix.digest[:19]}…")))
    return Glance(full.sentence, table, foot)


def cautions(matrix: Matrix) -> list[str]:
    """The remarks that every page shows: what may change how a number is used, and how to get a mean."""
    shown = [remark for remark in matrix.remarks if remark.severity == "warning" or remark.code in WAYS]
    texts = [note_of(remark) for remark in shown[:MOST_CAUTIONS]]
    more = len(shown) - len(texts)
    return [*texts, *([f"{counted(more, 'more warning')} among the notes"] if more else [])]


def note_of(remark: Remark) -> str:
    """The text of a remark as a note of a matrix, which names the benchmark."""
    text, benchmark = text_of(remark), remark.values.get("benchmark")
    if benchmark is not None and remark.code != OWN_TASKS:
        text = f"{benchmark}: {text}"
    return f"warning: {text}" if remark.severity == "warning" else text


def _with_period(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


def _below(matrix: Matrix, models_as_rows: bool, where: str) -> Iterator[Block]:
    """The notes below the table that explain its signs."""
    if matrix.mean is not None and matrix.mean.excluded and matrix.mean.benchmarks:
        count = f"{len(matrix.mean.benchmarks):,} of {len(matrix.benchmarks):,} benchmarks"
        without = ", ".join(clean(name) for name in matrix.mean.excluded)
        yield Sentence(f"The macro mean is over {count}: not every model was compared on {without}.", "note")
    if models_as_rows:
        command = f"calipers leaderboard {clean(where, None)}" if where else "calipers leaderboard"
        yield Sentence(f"▲ better than every other model   (paired; {'Holm' if matrix.alike else 'Sidak'})", "note")
        yield Sentence(f"Each benchmark: {command}", "note")
        return
    method = "Holm" if matrix.alike else "Sidak"
    over = f"; {method} over {matrix.tests:,}" if matrix.tests > 1 else ""
    if len(matrix.models) == COMPARED:
        signs = "▲ B better   ▼ B worse   = equivalent   ~ undecided"
        words = f"Verdicts are paired by task{', those of single benchmarks adjusted' if over else ''}"
        adjusted = "."
        if over and matrix.alike:
            adjusted = (
                f" for {matrix.tests:,} tests (Holm); the macro mean is one test of its own. "
                "Intervals are each for itself."
            )
        elif over:
            adjusted = f" for {matrix.tests:,} tests (Sidak), like the intervals of the differences."
        yield Sentence(f"{signs}   (paired{over})", "note", markdown=words + adjusted)
    elif len(matrix.models) > COMPARED:
        yield Sentence(f"▲ better than every other model   (paired{over})", "note")


def _table(matrix: Matrix, heads: Sequence[Text], room: int | None, option: str) -> Iterator[Block]:
    """A row for each benchmark, with a column for each model and the difference of two models.

    ``room`` is the number of lines; None shows all rows. With more than two models the intervals are ``stacked``: they
    have a line of their own.
    """
    compared, stacked = len(matrix.models) == COMPARED, len(matrix.models) > COMPARED
    lines_each = 2 if stacked else 1
    if room is not None:  # 5 lines: the head, missing, cost, and two rules
        room -= 5 + (lines_each if matrix.mean is not None else 0)
    rows = matrix.benchmarks[: _shown_rows(len(matrix.benchmarks), room, lines_each)]
    interval = f"{percent(matrix.confidence)} interval"
    columns = [TableColumn("benchmark", style="strong", middle=True, after=1), TableColumn("tasks", "right")]
    for label, head_text, column in zip(letters(len(heads)), heads, matrix.models, strict=True):
        name: Text = (f"{label} ", Name(column.name, None)) if compared else Name(column.name, None)
        columns += [
            TableColumn(head_text, style="plain", only="terminal"),
            TableColumn(name, "point", "value", only="markdown"),
            TableColumn(interval, only="markdown"),
        ]
    if compared:
        columns += [
            TableColumn(f"B {MINUS} A", "right", "value"),
            TableColumn(interval, only="terminal", least=WIDE, yields=2),
            TableColumn(interval, only="markdown"),
            TableColumn(style="chart", only="terminal", least=WIDE, sizes=PICTURE, after=1),
            TableColumn("", style="verdict", only="terminal"),
            TableColumn("verdict", only="markdown"),
        ]
    elif stacked:
        columns.append(TableColumn("better than each", only="markdown"))
    axis = _axis(_rows(matrix)) if compared and len({row.range for row in matrix.benchmarks}) == 1 else None
    table_rows: list[Row] = []
    for row in rows:
        table_rows += _table_rows(row.benchmark, row, decimals(matrix, row), axis, stacked, compared)
    if matrix.mean is not None and matrix.alike:
        title = MEAN_OF_RANGE if matrix.mean.of_range else MACRO_MEAN
        digits = decimals(matrix, matrix.mean)
        table_rows += _table_rows(title, matrix.mean, digits, axis, stacked, compared, ruled=True)
    yield Table(columns, [*table_rows, *_totals(matrix, len(columns))], across=True)
    yield from _more(len(matrix.benchmarks) - len(rows), "benchmark", option)


def _table_rows(
    name: str,
    row: MatrixRow | MatrixMean,
    digits: int,
    axis: tuple[float, float] | None,
    stacked: bool,
    compared: bool,
    ruled: bool = False,
) -> Iterator[Row]:
    """The row of a benchmark or of the mean, and a second row with the intervals if they are stacked."""
    shown_name = Name(name, NAME, plain=without_middle([clean(name, None)], NAME)[0])
    cells: list[TableCell] = [name if isinstance(row, MatrixMean) else shown_name, f"{row.tasks:,}"]
    for cell in row.cells:
        mark = " ▲" if stacked and cell.model == row.best else ""
        value = _value(cell, digits)
        shown = f"{value}{mark}" if stacked else " ".join(filter(None, (value, _ends(cell, digits))))
        cells += [shown, value, outward(cell.interval, digits) if cell.interval else NONE]
    if compared:
        pair = row.pairs[0] if row.pairs else None
        cells += _difference(pair, digits, axis)
    elif stacked:
        cells.append(Name(row.best) if row.best else NONE)
    yield Row(cells, ruled=ruled, notes=_remarks(row))
    if stacked and any(cell.interval for cell in row.cells):
        yield Row(["", "", *(text for cell in row.cells for text in (_ends(cell, digits), "", "")), ""], markdown="")


def _remarks(row: MatrixRow | MatrixMean) -> list[str]:
    """The reasons why a row lacks an interval or a difference."""
    reasons = [cell.why for cell in row.cells if cell.why and cell.value is not None]
    reasons += [pair.why for pair in row.pairs if pair.why]
    if isinstance(row, MatrixRow):  # those of the mean are the answer
        reasons += _undecided(row)
    reasons += [row.why] if isinstance(row, MatrixRow) and row.why else []
    if isinstance(row, MatrixMean) and row.undecided_by == SCALES:
        return []  # the answer says why
    return list(dict.fromkeys(plain_why(why) for why in reasons if why))


def _undecided(row: MatrixRow) -> list[str]:
    """Why pairs of a benchmark are undecided although their tasks may show a difference; the first few of them."""
    texts = []
    for pair in row.pairs:
        if pair.undecided_by in SURVIVED:
            names = {"first": pair.first, "second": pair.second}
            of_pair = "" if len(row.pairs) == 1 else f"{clean(pair.first, None)} and {clean(pair.second, None)}: "
            texts += [f"{of_pair}{text_of(remark, names)}" for remark in pair.remarks]
    more = [f"{counted(len(texts) - FEW, 'more pair')} undecided for such reasons"] if len(texts) > FEW else []
    return [*texts[:FEW], *more]


def _value(cell: Cell, digits: int) -> str:
    if cell.value is None:
        return cell.why if cell.why == "not run" else NONE
    return minus(figure(cell.value, digits))


def _ends(cell: Cell, digits: int) -> str:
    """The interval in brackets, with the decimals of the value."""
    if cell.interval is None:
        return ""
    low, high = (minus(figure(end, digits)) for end in rounded_out(cell.interval, digits))
    return f"[{low}, {high}]"


def _difference(pair: PairDifference | None, digits: int, axis: tuple[float, float] | None) -> list[TableCell]:
    if pair is None or pair.delta is None:
        return [NONE, "", NONE, "", "", NONE]
    ends = signed_outward(pair.interval, digits) if pair.interval else ""
    picture: TableCell = ""
    if pair.interval and axis:
        picture = Picture(pair.delta, *pair.interval, axis, PICTURE[1])
    return [signed(pair.delta, digits), ends, ends or NONE, picture, MARKS[pair.verdict], pair.verdict]


def _axis(rows: Sequence[MatrixRow | MatrixMean]) -> tuple[float, float] | None:
    """An axis with round steps that includes zero and all intervals of differences; None without intervals."""
    ends = [end for row in rows for pair in row.pairs for end in pair.interval or ()]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    if not 0 < high - low < math.inf:
        return None
    rough = (high - low) / 3
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (size, 2 * size, 5 * size, 10 * size) if step >= rough)
    first, last = math.floor(round(low / step, 9)), math.ceil(round(high / step, 9))
    axis = round(min(first, -1) * step, 12), round(max(last, 1) * step, 12)
    return axis if axis[0] < axis[1] else None  # equal if the range is below 12 decimals


def _totals(matrix: Matrix, columns: int) -> list[Row]:
    """The rows with the missing rollouts and the cost of each model over all benchmarks."""
    cells_of_models = list(zip(*(row.cells for row in matrix.benchmarks), strict=True))
    rows = []
    for name, total in (("missing", _missing), ("cost", _cost)):
        texts = [total(cells) for cells in cells_of_models]
        line: list[TableCell] = [name, "", *(cell for text in texts for cell in (text, text, ""))]
        rows.append(Row([*line, *[""] * (columns - len(line))], ruled=matrix.mean is None and name == "missing"))
    return rows


def _missing(cells: Sequence[Cell]) -> str:
    missing, planned = sum(cell.missing for cell in cells), sum(cell.planned for cell in cells)
    return f"{missing:,} of {planned:,}" if missing else "0"


def _cost(cells: Sequence[Cell]) -> str:
    """The total cost of a model, with the number of benchmarks whose cost is recorded, if not all."""
    was_run = [cell for cell in cells if cell.planned]
    costs = [cell.cost_usd for cell in was_run if cell.cost_usd is not None]
    if not costs:
        return "not recorded"
    recorded = "" if len(costs) == len(was_run) else f" ({len(costs)} of {len(was_run)})"
    return f"{money(sum(costs))}{recorded}"


def _table_of_models(matrix: Matrix, room: int | None, option: str) -> Iterator[Block]:
    """A row for each model, the best mean first; ``room`` is the number of lines, None shows all rows."""
    answer_row = _answer_row(matrix)
    digits = decimals(matrix, answer_row)
    interval = f"{percent(matrix.confidence)} interval"
    title = MACRO_MEAN if matrix.mean is not None else clean(matrix.benchmarks[0].benchmark)
    columns = [
        TableColumn("model", style="strong", middle=True),
        TableColumn(title, "right", "value"),
        TableColumn(interval),
        TableColumn("", style="verdict", only="terminal"),
        TableColumn("better than each", only="markdown"),
        TableColumn("missing", "right"),
        TableColumn("cost", "right"),
    ]
    sign = -1 if matrix.higher_is_better else 1
    values = [cell.value for cell in answer_row.cells]
    order = sorted(range(len(values)), key=lambda index: (values[index] is None, sign * (values[index] or 0.0), index))
    rows = []
    shown = _shown_rows(len(order), None if room is None else room - 2)
    for index in order[:shown]:
        cell, column = answer_row.cells[index], matrix.models[index]
        benchmark_cells = [row.cells[index] for row in matrix.benchmarks]
        best = cell.model == answer_row.best
        line: list[TableCell] = [Name(column.name, NAME, plain=without_middle([clean(column.name, None)], NAME)[0])]
        line += [_value(cell, digits), outward(cell.interval, digits) if cell.interval else NONE]
        line += ["▲" if best else "", "yes" if best else ""]
        rows.append(Row([*line, _missing(benchmark_cells), _cost(benchmark_cells)]))
    yield Table(columns, rows, across=True)
    yield from _more(len(order) - shown, "model", option)


def _models_by_benchmark(matrix: Matrix, room: int | None, every: bool, option: str) -> Iterator[Block]:
    """A row for each model in their order, with a column for each benchmark: without a mean there is no best order.

    ``every`` shows the columns of all benchmarks.
    """
    rows_shown = matrix.benchmarks if every else matrix.benchmarks[:BENCHMARK_COLUMNS]
    columns = [TableColumn("model", style="strong", middle=True)]
    columns += [TableColumn(Name(row.benchmark, SHORT_NAME), "right") for row in rows_shown]
    columns += [TableColumn("missing", "right"), TableColumn("cost", "right")]
    shown = _shown_rows(len(matrix.models), None if room is None else room - 2)
    rows = []
    for index, column in enumerate(matrix.models[:shown]):
        line: list[TableCell] = [Name(column.name, NAME, plain=without_middle([clean(column.name, None)], NAME)[0])]
        for row in rows_shown:
            cell = row.cells[index]
            mark = " ▲" if cell.model == row.best else ""
            line.append(f"{_value(cell, decimals(matrix, row))}{mark}")
        benchmark_cells = [row.cells[index] for row in matrix.benchmarks]
        rows.append(Row([*line, _missing(benchmark_cells), _cost(benchmark_cells)]))
    yield Table(columns, rows, across=True)
    yield from _more(len(matrix.benchmarks) - len(rows_shown), "benchmark", option)
    yield from _more(len(matrix.models) - shown, "model", option)


def suites(matrix: Matrix) -> list[TestSuite]:
    """JUnit suites, one for each pair of models, with a case for each benchmark and for their mean."""
    return suites_of(_judged(matrix))


def annotated(matrix: Matrix) -> Iterator[str]:
    """GitHub annotations, one for each difference that is worse or undecided."""
    return annotations_of(_judged(matrix))


def _judged(matrix: Matrix) -> Iterator[CiVerdict]:
    """The verdict on each difference; those on the mean come first."""
    mean = [(MACRO_MEAN, pair) for pair in matrix.mean.pairs] if matrix.mean and matrix.alike else []
    for name, pair in (*mean, *((row.benchmark, pair) for row in matrix.benchmarks for pair in row.pairs)):
        low, high = pair.interval or (None, None)
        numbers = {"delta": pair.delta, "low": low, "high": high, "p": pair.p, "p_holm": pair.p_holm}
        yield CiVerdict(f"{pair.second} against {pair.first}", f"{matrix.metric} · {name}", pair.verdict, numbers)
