"""A matrix and its Document: the sentence first, then a row for each benchmark, the mean, what is missing, the cost.

It has a cell for each benchmark and model, the differences, and the mean over benchmarks.
"""

from __future__ import annotations

import hashlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from calipers.analyses.compare.document import Judged, annotations_of, suites_of
from calipers.analyses.compare.page import MARKS
from calipers.errors import UnknownName
from calipers.formats.read import Input
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
from calipers.reports.figures import NONE, counted, figure, letters, percent
from calipers.reports.junit import TestSuite
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.result import canonical
from calipers.reports.sentences import MINUS, Answer, level, money, of_difference, places, signed, signed_to, to
from calipers.reports.untrusted_text import clean, width, without_middle

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
        return document(self)

    def glance(self) -> Glance:
        """The answer, the matrix, and what its letters stand for, for a notebook."""
        return glance(self)

    def headline(self) -> str:
        """What it says, in a line."""
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


SHORT = 15  # columns of a model's name that stands over its column; longer ones stand in a legend
SIDE_BY_SIDE = 4  # models that have a column each; more have a row each
COMPARED = 2  # models whose difference has a column
FEW = 3  # names that a sentence lists
LINES = 25  # of a page, unless all rows are asked for
FEWEST = 2  # rows that are shown, however many lines the names above them take
COLUMNS = 80  # of a page, for the number of its lines
NAME = 40  # columns of a name
SHORT_NAME = 24  # columns of a name in a sentence that lists several
WIDE = 110  # columns of a terminal that has room for a picture
PICTURE = (0, 27)  # columns of a picture, narrow and wide
NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DECIDED: Final = ("better", "worse")


def document(matrix: Matrix, *, every: bool = False, where: str = "", option: str = "--all") -> Document:
    """A matrix for people, with ``every`` row, which ``option`` of the command asks for.

    ``where`` is the path of the runs, for the commands it names.
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
    """What a matrix says: the mean over benchmarks is the answer; ``names`` are what its models are called."""
    names = [clean(column.name, None) for column in matrix.models] if names is None else names
    if matrix.mean is not None and not matrix.mean.benchmarks:
        return Answer(f"No benchmark has a value of {'both models' if len(names) == COMPARED else 'every model'}.")
    if len(matrix.models) == 1:
        return _of_one(matrix, names[0])
    if len(matrix.models) == COMPARED:
        return _of_two(matrix, names)
    return _of_many(matrix, names)


def _row_of(matrix: Matrix) -> MatrixRow | MatrixMean:
    """The row that is the answer: the mean, or the only benchmark."""
    return matrix.benchmarks[0] if matrix.mean is None else matrix.mean


def _over(matrix: Matrix) -> str:
    """``five benchmarks``; the name of the only one."""
    if matrix.mean is None:
        return clean(matrix.benchmarks[0].benchmark)
    count = len(matrix.mean.benchmarks)
    number = NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"
    return f"{number} benchmark{'' if count == 1 else 's'}"


def _of_one(matrix: Matrix, name: str) -> Answer:
    cell = _row_of(matrix).cells[0]
    over = f"{'on' if matrix.mean is None else 'over'} {_over(matrix)}"
    if cell.value is None:
        return Answer(f"{name} has no {matrix.metric} {over}.", plain_why(cell.why or ""))
    digits = decimals(matrix)
    what = "scores" if matrix.metric == "mean_reward" else f"has a {matrix.metric} of"
    sure = f"No interval: {plain_why(cell.why)}" if cell.why else "No interval"
    if cell.interval:
        of = "" if matrix.mean is None else " of the macro mean"
        sure = f"{level(matrix.confidence)}{of}: {to(cell.interval, digits)}"
    return Answer(f"{name} {what} {figure(cell.value, digits)} {over}.", sure)


def _of_two(matrix: Matrix, names: Sequence[str]) -> Answer:
    row = _row_of(matrix)
    pair = row.pairs[0] if row.pairs else None
    why = _why(matrix) if pair is None else pair.why
    found = of_difference(
        names[0],
        names[1],
        "undecided" if pair is None else pair.verdict,
        None if pair is None else pair.delta,
        None if pair is None else pair.interval,
        confidence=matrix.confidence,
        margin=matrix.margin,
        why=plain_why(why) if why else None,
        over="" if matrix.mean is None else _over(matrix),
    )
    return Answer(found.sentence, found.detail)


def _why(matrix: Matrix) -> str:
    """Why two models are not compared."""
    reasons = [row.why or cell.why for row in matrix.benchmarks for cell in row.cells if row.why or cell.why]
    return next(filter(None, reasons), "")


def alone(matrix: Matrix) -> str:
    """Whether single benchmarks are decided beside the mean of two models, a sentence or nothing."""
    if matrix.mean is None or len(matrix.mean.pairs) != 1:
        return ""
    decided = [row for row in matrix.benchmarks if any(pair.verdict in DECIDED for pair in row.pairs)]
    if not decided:
        return "No single benchmark decides it." if matrix.mean.pairs[0].verdict in DECIDED else ""
    if len(decided) == len(matrix.benchmarks):
        return "Each benchmark is decided alone, too."
    named = ", ".join(clean(row.benchmark) for row in decided[:FEW]) + (", …" if len(decided) > FEW else "")
    are = "is" if len(decided) == 1 else "are"
    return f"{len(decided):,} of {counted(len(matrix.benchmarks), 'benchmark')} {are} decided alone: {named}."


def _of_many(matrix: Matrix, names: Sequence[str]) -> Answer:
    row, digits = _row_of(matrix), decimals(matrix)
    called = {column.name: name for column, name in zip(matrix.models, names, strict=True)}
    over = f"{'on' if matrix.mean is None else 'over'} {_over(matrix)}"
    count = f"{len(names):,} models"
    if row.best is not None:
        cell = next(cell for cell in row.cells if cell.model == row.best)
        ends = f" ({to(cell.interval, digits)})" if cell.interval else ""
        return Answer(
            f"{called[row.best]} is the best of {count} {over}.",
            f"{figure(cell.value, digits)}{ends}, better than each",
        )
    values = [cell for cell in row.cells if cell.value is not None]
    if not values or not row.pairs:
        return Answer(f"The {count} are not compared {over}.", plain_why(_why(matrix)))
    sign = 1 if matrix.higher_is_better else -1
    first = max(values, key=lambda cell: sign * (cell.value or 0.0))
    ties = [
        called[pair.second if pair.first == first.model else pair.first]
        for pair in row.pairs
        if first.model in (pair.first, pair.second) and pair.verdict not in DECIDED
    ]
    named = ", ".join(ties[:FEW]) + (f" and {len(ties) - FEW:,} more" if len(ties) > FEW else "")
    return Answer(
        f"No model is better than every other {over}.",
        f"{called[first.model]} has the {'highest' if sign > 0 else 'lowest'} value, {figure(first.value, digits)}; "
        f"undecided against {named}",
    )


def decimals(matrix: Matrix) -> int:
    """Three for values between -1 and 1, four where an interval is narrower than 0.01; else what their size asks."""
    cells = [cell for row in _rows(matrix) for cell in row.cells]
    size = max((abs(cell.value) for cell in cells if cell.value is not None), default=0.0)
    if size == 0 or 0.01 <= size <= 1:
        return places(*(cell.interval for cell in cells))
    return min(max(2 - math.floor(math.log10(size)), 0), 12)


def _rows(matrix: Matrix) -> list[MatrixRow | MatrixMean]:
    return [*matrix.benchmarks, *([matrix.mean] if matrix.mean else [])]


def _blocks(matrix: Matrix, every: bool, where: str, option: str = "") -> Iterator[Block]:
    names = [clean(column.name, None) for column in matrix.models]
    count = len(names)
    turned = count > SIDE_BY_SIDE
    lettered = 1 < count <= SIDE_BY_SIDE and any(width(name) > SHORT for name in names)
    signs = letters(count)
    way = "" if matrix.higher_is_better else " (lower is better)"
    what = f"{clean(matrix.metric)}{way}, {percent(matrix.confidence)} intervals"
    short = without_middle(names, SHORT_NAME) if turned else None
    called, named = answer(matrix, signs if lettered else short), answer(matrix)
    yield Title("", markdown=head(matrix))
    above: list[Block] = [
        Sentence(head(matrix), right=what, markdown=what),
        Sentence(called.sentence, "strong", markdown=(Styled(named.sentence),)),
    ]
    beside = alone(matrix)
    if named.detail or beside:
        words = " ".join(filter(None, (_ended(named.detail), beside)))
        above.append(Sentence(_ended(called.detail), markdown=words))
    if beside:
        above.append(Sentence(beside, markdown=""))
    above.append(Blank())
    if lettered:
        above += [*(Sentence(line, markdown="") for line in _legend(names)), Blank()]
    heads: list[Text] = [sign if lettered else Name(name, None) for sign, name in zip(signs, names, strict=True)]
    below = list(_below(matrix, turned, where))
    below = [Blank(), *below] if below else below
    room = None if every else LINES - sum(map(_lines_taken, (*above, *below)))
    yield from above
    if turned:
        yield from _turned(matrix, room, option)
    else:
        if count == COMPARED and not lettered:
            heads = [(f"{sign} ", Name(name, None)) for sign, name in zip(signs, names, strict=True)]
        yield from _table(matrix, heads, room, option)
    yield from below
    if matrix.notes:  # a terminal has them beside the output
        yield SentenceList([Sentence("", markdown=note) for note in matrix.notes])


def _legend(names: Sequence[str]) -> list[str]:
    """What the letters stand for: a line for each of two models, else as many in a line as it holds."""
    entries = [
        f"{sign}  {name}" for sign, name in zip(letters(len(names)), without_middle(names, COLUMNS - 4), strict=True)
    ]
    if len(entries) <= COMPARED:
        return entries
    lines = entries[:1]
    for entry in entries[1:]:
        joined = f"{lines[-1]}   {entry}"
        lines[-1:] = [joined] if width(joined) <= COLUMNS else [lines[-1], entry]
    return lines


def _lines_taken(block: Block) -> int:
    """About how many lines a sentence takes on a terminal of 80 columns."""
    text = block.text if isinstance(block, Sentence) and isinstance(block.text, str) else ""
    spread = "".join(sign * width(sign) for sign in text)  # as many signs as columns
    return max(len(textwrap.wrap(spread, COLUMNS - 4, break_long_words=False, break_on_hyphens=False)), 1)


def _shown_rows(count: int, room: int | None, lines: int = 1) -> int:
    """How many rows of so many lines each fit; all of them, or fewer and a line that says so."""
    if room is None or count * lines <= room:
        return count
    return min(max((room - 1) // lines, FEWEST), count)


def _more(hidden: int, what: str, option: str) -> Iterator[Block]:
    if hidden:
        words = f"{counted(hidden, f'more {what}')}: {option}"
        yield Sentence(f"… {words}", "note", markdown=words)


def glance(matrix: Matrix) -> Glance:
    """The answer, the matrix, and what its letters stand for, for a notebook."""
    found = answer(matrix)
    table = next(block for block in _blocks(matrix, every=True, where="") if isinstance(block, Table))
    names = [clean(column.name, None) for column in matrix.models]
    called = [f"{sign} {name}" for sign, name in zip(letters(len(names)), names, strict=True)]
    legend = f"{', '.join(called)}." if 1 < len(names) <= SIDE_BY_SIDE else ""
    foot = " ".join(filter(None, (_ended(found.detail), alone(matrix), legend, f"{matrix.digest[:19]}…")))
    return Glance(found.sentence, table, foot)


def _ended(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


def _below(matrix: Matrix, turned: bool, where: str) -> Iterator[Block]:
    """How the table is read."""
    if matrix.mean is not None and matrix.mean.excluded and matrix.mean.benchmarks:
        count = f"{len(matrix.mean.benchmarks):,} of {len(matrix.benchmarks):,} benchmarks"
        without = ", ".join(clean(name) for name in matrix.mean.excluded)
        yield Sentence(f"The macro mean is over {count}: not every model was compared on {without}.", "note")
    if turned:
        command = f"calipers leaderboard {clean(where, None)}" if where else "calipers leaderboard"
        yield Sentence("▲ better than every other model   (paired; Holm)", "note")
        yield Sentence(f"Each benchmark: {command}", "note")
        return
    over = f"; Holm over {matrix.tests:,}" if matrix.tests > 1 else ""
    if len(matrix.models) == COMPARED:
        signs = "▲ B better   ▼ B worse   = equivalent   ~ undecided"
        words = f"Verdicts are paired by task{', those of single benchmarks adjusted' if over else ''}"
        adjusted = (
            f" for {matrix.tests:,} tests (Holm); the macro mean is one test of its own. Intervals are each for itself."
            if over
            else "."
        )
        yield Sentence(f"{signs}   (paired{over})", "note", markdown=words + adjusted)
    elif len(matrix.models) > COMPARED:
        yield Sentence(f"▲ better than every other model   (paired{over})", "note")


def _table(matrix: Matrix, heads: Sequence[Text], room: int | None, option: str) -> Iterator[Block]:
    """A row for each benchmark, a column for each model, and the difference of two; in so many lines."""
    digits = decimals(matrix)
    compared, stacked = len(matrix.models) == COMPARED, len(matrix.models) > COMPARED
    lines_each = 2 if stacked else 1
    if room is not None:  # the head, missing and cost with their rules, and the mean
        room -= 5 + (lines_each if matrix.mean is not None else 0)
    rows = matrix.benchmarks[: _shown_rows(len(matrix.benchmarks), room, lines_each)]
    interval = f"{percent(matrix.confidence)} interval"
    columns = [TableColumn("benchmark", style="strong", middle=True, after=1), TableColumn("tasks", "right")]
    signs = letters(len(heads))
    for sign, head_text, column in zip(signs, heads, matrix.models, strict=True):
        name: Text = (f"{sign} ", Name(column.name, None)) if compared else Name(column.name, None)
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
    axis = _axis(_rows(matrix)) if compared else None
    lines: list[Row] = []
    for row in rows:
        lines += _lines(row.benchmark, row, digits, axis, stacked, compared)
    last: list[Row] = []
    if matrix.mean is not None:
        last += _lines(MACRO_MEAN, matrix.mean, digits, axis, stacked, compared, ruled=True)
    last += _totals(matrix, len(columns))
    yield Table(columns, [*lines, *last], across=True)
    yield from _more(len(matrix.benchmarks) - len(rows), "benchmark", option)


def _lines(
    name: str,
    row: MatrixRow | MatrixMean,
    digits: int,
    axis: tuple[float, float] | None,
    stacked: bool,
    compared: bool,
    ruled: bool = False,
) -> Iterator[Row]:
    """The row of a benchmark; with several models their intervals stand on a line of their own."""
    ours = isinstance(row, MatrixMean)
    cells: list[TableCell] = [
        name if ours else Name(name, NAME, plain=without_middle([clean(name, None)], NAME)[0]),
        f"{row.tasks:,}",
    ]
    for cell in row.cells:
        mark = " ▲" if stacked and cell.model == row.best else ""
        value = _value(cell, digits)
        shown = f"{value}{mark}" if stacked else " ".join(filter(None, (value, _ends(cell, digits))))
        cells += [shown, value, to(cell.interval, digits) if cell.interval else NONE]
    if compared:
        pair = row.pairs[0] if row.pairs else None
        cells += _difference(pair, digits, axis)
    elif stacked:
        cells.append(Name(row.best) if row.best else NONE)
    yield Row(cells, ruled=ruled, notes=_remarks(row))
    if stacked and any(cell.interval for cell in row.cells):
        yield Row(["", "", *(text for cell in row.cells for text in (_ends(cell, digits), "", "")), ""], markdown="")


def _remarks(row: MatrixRow | MatrixMean) -> list[str]:
    """Why a row lacks an interval or a difference."""
    reasons = [cell.why for cell in row.cells if cell.why and cell.value is not None]
    reasons += [pair.why for pair in row.pairs if pair.why]
    reasons += [row.why] if isinstance(row, MatrixRow) and row.why else []
    return list(dict.fromkeys(plain_why(why) for why in reasons if why))


def _value(cell: Cell, digits: int) -> str:
    if cell.value is None:
        return cell.why if cell.why == "not run" else NONE
    return figure(cell.value, digits).replace("-", MINUS)


def _ends(cell: Cell, digits: int) -> str:
    """The interval in brackets, with a decimal less than the value."""
    if cell.interval is None:
        return ""
    low, high = (figure(end, max(digits - 1, 0)).replace("-", MINUS) for end in cell.interval)
    return f"[{low}, {high}]"


def _difference(pair: PairDifference | None, digits: int, axis: tuple[float, float] | None) -> list[TableCell]:
    if pair is None or pair.delta is None:
        return [NONE, "", NONE, "", "", NONE]
    ends = signed_to(pair.interval, digits) if pair.interval else ""
    picture: TableCell = ""
    if pair.interval and axis:
        picture = Picture(pair.delta, *pair.interval, axis, PICTURE[1])
    return [signed(pair.delta, digits), ends, ends or NONE, picture, MARKS[pair.verdict], pair.verdict]


def _axis(rows: Sequence[MatrixRow | MatrixMean]) -> tuple[float, float] | None:
    """An axis in round steps that holds zero and all intervals of differences."""
    ends = [end for row in rows for pair in row.pairs for end in pair.interval or ()]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    if not 0 < high - low < math.inf:
        return None
    rough = (high - low) / 3
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (size, 2 * size, 5 * size, 10 * size) if step >= rough)
    first, last = math.floor(round(low / step, 9)), math.ceil(round(high / step, 9))
    return round(min(first, -1) * step, 12), round(max(last, 1) * step, 12)


def _totals(matrix: Matrix, columns: int) -> list[Row]:
    """What is missing, and the cost, of each model over all benchmarks."""
    cells = list(zip(*(row.cells for row in matrix.benchmarks), strict=True))
    rows = []
    for name, say in (("missing", _missing), ("cost", _cost)):
        texts = [say(some) for some in cells]
        line: list[TableCell] = [name, "", *(text for each in texts for text in (each, each, ""))]
        rows.append(Row([*line, *[""] * (columns - len(line))], ruled=matrix.mean is None and name == "missing"))
    return rows


def _missing(cells: Sequence[Cell]) -> str:
    missing, planned = sum(cell.missing for cell in cells), sum(cell.planned for cell in cells)
    return f"{missing:,} of {planned:,}" if missing else "0"


def _cost(cells: Sequence[Cell]) -> str:
    run = [cell for cell in cells if cell.planned]
    costs = [cell.cost_usd for cell in run if cell.cost_usd is not None]
    if not costs:
        return "not recorded"
    part = "" if len(costs) == len(run) else f" ({len(costs)} of {len(run)})"
    return f"{money(sum(costs))}{part}"


def _turned(matrix: Matrix, room: int | None, option: str) -> Iterator[Block]:
    """A row for each model, the best mean first; in so many lines."""
    answer_row, digits = _row_of(matrix), decimals(matrix)
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
    order = sorted(range(len(values)), key=lambda place: (values[place] is None, sign * (values[place] or 0.0), place))
    rows = []
    most = _shown_rows(len(order), None if room is None else room - 2)
    for place in order[:most]:
        cell, column = answer_row.cells[place], matrix.models[place]
        every = [row.cells[place] for row in matrix.benchmarks]
        best = cell.model == answer_row.best
        line: list[TableCell] = [Name(column.name, NAME, plain=without_middle([clean(column.name, None)], NAME)[0])]
        line += [_value(cell, digits), to(cell.interval, digits) if cell.interval else NONE]
        line += ["▲" if best else "", "yes" if best else ""]
        rows.append(Row([*line, _missing(every), _cost(every)]))
    yield Table(columns, rows, across=True)
    yield from _more(len(order) - most, "model", option)


def suites(matrix: Matrix) -> list[TestSuite]:
    """For JUnit: a suite for each pair of models, a case for each benchmark and for their mean."""
    return suites_of(_judged(matrix))


def annotated(matrix: Matrix) -> Iterator[str]:
    """For GitHub: a line for each difference that is worse or undecided."""
    return annotations_of(_judged(matrix))


def _judged(matrix: Matrix) -> Iterator[Judged]:
    """Each difference with the name of its row, those of the mean first."""
    mean = [(MACRO_MEAN, pair) for pair in matrix.mean.pairs] if matrix.mean else []
    for name, pair in (*mean, *((row.benchmark, pair) for row in matrix.benchmarks for pair in row.pairs)):
        low, high = pair.interval or (None, None)
        numbers = {"delta": pair.delta, "low": low, "high": high, "p": pair.p, "p_holm": pair.p_holm}
        yield Judged(f"{pair.second} against {pair.first}", f"{matrix.metric} · {name}", pair.verdict, numbers)
