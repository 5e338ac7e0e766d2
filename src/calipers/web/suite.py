"""Models on several benchmarks: a row for each, then the mean over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from calipers.analyses.matrix.result import Cell, Matrix, MatrixMean, MatrixRow, PairDifference
from calipers.reports.figures import NONE, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import level, money, places, signed, signed_to, to
from calipers.web.draw import Scale, Tone, around_zero, axis_head, interval_row, line, scale_of
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.pair_page import TONES, verdict_word

NUMBERS: Final = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
FEW: Final = 5  # models that fit beside each other on a page

Row = MatrixRow | MatrixMean


def number(count: int) -> str:
    """A number as a word, up to twelve."""
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


def suite_table(matrix: Matrix) -> Markup:
    """The table: values and small axes, differences of two models, then missing rollouts and cost."""
    rows: list[Row] = [*matrix.benchmarks, *([matrix.mean] if matrix.mean else [])]
    models = [column.name for column in matrix.models]
    values = scale_of([end for row in rows for cell in row.cells for end in (cell.value, *(cell.interval or ()))])
    paired = len(models) == 2 and any(row.pairs for row in rows)
    ends = [end for row in rows for pair in row.pairs for end in (pair.delta, *(pair.interval or ()))]
    deltas = around_zero(scale_of(ends, zero=True)) if paired else values
    letters = "AB" if len(models) == 2 else " " * len(models)
    heads: list[Child] = [element("th", "benchmark", scope="col")]
    heads += [
        element("th", f"{letter} " if letter.strip() else None, name(model, 28), scope="col")
        for letter, model in zip(letters, models, strict=True)
    ]
    if paired:
        heads.append(element("th", "B − A", axis_head(deltas, signed=True), scope="col"))
        heads.append(element("th", element("span", "verdict", class_="hidden"), scope="col", class_="verdict-cell"))
    body = [_row(row, matrix, values, deltas, paired) for row in rows]
    body += [_total("Missing", matrix, paired, _missing), _total("Cost", matrix, paired, _cost)]
    table = element(
        "table",
        element("caption", f"{matrix.metric} by benchmark and model"),
        element("thead", element("tr", heads)),
        element("tbody", body),
        class_="suite" if len(models) <= FEW else "suite many",
    )
    frame = element("div", table, class_="suite-frame", tabindex="0", role="region", aria_label="Benchmarks and models")
    return joined([frame, element("div", element("p", _note(matrix)), class_="below")])


def _title(row: Row) -> str:
    return row.benchmark if isinstance(row, MatrixRow) else f"Mean of {number(len(row.benchmarks))}"


def tied_of(row: Row, higher_is_better: bool) -> list[str]:
    """The models that cannot be told apart from the one with the best value; none where one is better than all."""
    known = [cell for cell in row.cells if cell.value is not None]
    if row.best is not None or not row.pairs or not known:
        return []
    sign = 1 if higher_is_better else -1
    first = max(known, key=lambda cell: sign * (cell.value or 0.0)).model
    decided = ("better", "worse")
    pairs = [pair for pair in row.pairs if first in (pair.first, pair.second) and pair.verdict not in decided]
    return [first, *(pair.second if pair.first == first else pair.first for pair in pairs)]


def _row(row: Row, matrix: Matrix, values: Scale, deltas: Scale, paired: bool) -> Markup:
    digits = places(*(cell.interval for cell in row.cells))
    out = isinstance(row, MatrixRow) and not row.in_mean and matrix.mean is not None
    small = counted(row.tasks, "task") + (", not in the mean" if out else "")
    tied = tied_of(row, matrix.higher_is_better) if len(matrix.models) > 2 else []
    title = _title(row)
    cells: list[Child] = [element("th", name(title, 24), element("small", small), scope="row")]
    cells += [
        _cell(cell, title, values, digits, matrix.confidence, best=row.best == cell.model, tied=cell.model in tied)
        for cell in row.cells
    ]
    if paired:
        why = row.why if isinstance(row, MatrixRow) else None
        cells += _delta(row.pairs[0] if row.pairs else None, title, deltas, matrix.confidence, why)
    return element("tr", cells, class_="mean" if isinstance(row, MatrixMean) else None)


def _cell(cell: Cell, title: str, scale: Scale, digits: int, confidence: float, *, best: bool, tied: bool) -> Markup:
    if cell.value is None:
        return element(
            "td", element("span", plain_why(cell.why) if cell.why else "no value", class_="why"), data_model=cell.model
        )
    tone: Tone = "blue" if best else "grey"
    ends = to(cell.interval, digits) if cell.interval else "no interval"
    label = f"{cell.model} on {title}: {figure(cell.value, digits)}, {level(confidence)} {ends}"
    shown = element("b", figure(cell.value, digits), " ▲" if best else None)
    words = element("div", shown, element("span", ends), class_="cell")
    axis = interval_row(cell.value, cell.interval, None, scale, label=label, tone=tone)
    kind = "tied-cell" if tied else None
    return element("td", words, element("div", axis, class_="strip-axis"), class_=kind, data_model=cell.model)


def _delta(pair: PairDifference | None, title: str, scale: Scale, confidence: float, why: str | None) -> list[Child]:
    if pair is None or pair.delta is None:
        reason = plain_why(why or (pair.why if pair else None) or "")
        return [
            element("td", element("span", reason or NONE, class_="why"), class_="delta"),
            element("td", class_="verdict-cell"),
        ]
    digits = places(pair.interval)
    ends = signed_to(pair.interval, digits) if pair.interval else "no interval"
    label = f"{title}: difference {signed(pair.delta, digits)}, {level(confidence)} {ends}, {pair.verdict}"
    axis = interval_row(pair.delta, pair.interval, None, scale, label=label, tone=TONES.get(pair.verdict, "grey"))
    words = element("div", element("b", signed(pair.delta, digits)), element("span", ends), class_="cell")
    zero = element("svg", line(scale.at(0), scale.at(0), 0, "100%", "zero"), class_="zero-line", aria_hidden="true")
    return [
        element("td", zero, words, element("div", axis, class_="strip-axis"), class_="delta"),
        element("td", verdict_word(pair.verdict), class_="verdict-cell"),
    ]


def _total(head: str, matrix: Matrix, paired: bool, said: Callable[[Sequence[Cell]], str]) -> Markup:
    """A row below the benchmarks: something counted over all of them, for each model."""
    cells = [
        element("td", said([row.cells[place] for row in matrix.benchmarks]), data_model=column.name)
        for place, column in enumerate(matrix.models)
    ]
    return element("tr", element("th", head, scope="row"), cells, element("td", colspan=2) if paired else None)


def _missing(cells: Sequence[Cell]) -> str:
    return f"{sum(cell.missing for cell in cells):,} of {sum(cell.planned for cell in cells):,}"


def _cost(cells: Sequence[Cell]) -> str:
    run = [cell for cell in cells if cell.planned]
    spent = [cell.cost_usd for cell in run if cell.cost_usd is not None]
    part = f" on {len(spent)} of {len(run)}" if spent and len(spent) < len(run) else ""
    return f"{money(sum(spent))}{part}" if spent else "not recorded"


def _note(matrix: Matrix) -> str:
    if len(matrix.models) == 1:
        return "Each benchmark weighs the same in the mean."
    marks = "▲ marks a better run only where the paired test says so."
    if len(matrix.models) > 2:
        marks = (
            "▲ marks a model that is better than every other by the paired tests; a bar joins models tied for first."
        )
    adjusted = f"Verdicts of single benchmarks are adjusted for {number(matrix.tests)} tests (Holm)"
    return f"{marks} {adjusted}{'; the mean is one test of its own' if matrix.mean else ''}."
