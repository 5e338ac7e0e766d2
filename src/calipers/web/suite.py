"""Models on several benchmarks: a row for each, then the mean over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calipers.analyses.leaderboard.document import Board, Leaderboard
from calipers.analyses.matrix.matrix import NOT_RUN
from calipers.analyses.matrix.result import Benchmark, Matrix, MatrixMean
from calipers.reports.figures import NONE, counted, figure
from calipers.reports.sentences import Answer, level, money, of_difference, places, signed, signed_to, to
from calipers.stats.estimate import Estimate
from calipers.stats.suite import means
from calipers.web.draw import Ends, Scale, Tone, around_zero, axis_head, interval_row, line, scale_of
from calipers.web.gather import RunData
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.pair_page import TONES, verdict_word

NUMBERS: Final = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


@dataclass(frozen=True, slots=True)
class SuiteCell:
    """One model on one benchmark, or its mean over them."""

    value: float | None
    interval: Ends | None
    missing: int = 0
    planned: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class SuiteDifference:
    """The second of two models less the first, on their common tasks."""

    delta: float | None
    interval: Ends | None
    verdict: str


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """A benchmark, or the mean over all of them."""

    title: str
    tasks: int
    cells: Mapping[str, SuiteCell]  # by model
    difference: SuiteDifference | None = None  # of two models
    best: str | None = None  # the model that is better than every other
    tied: Sequence[str] = ()  # the models that cannot be told apart from the one with the best value


@dataclass(frozen=True, slots=True)
class Suite:
    """Models by benchmarks."""

    metric: str
    confidence: float
    higher_is_better: bool
    models: Sequence[str]
    rows: Sequence[SuiteRow]
    mean: SuiteRow | None  # None where not every model has every benchmark
    tests: int  # of single benchmarks, over which their verdicts are adjusted; 0: not adjusted, and the mean not tested
    margin: float | None = None


def of_leaderboards(report: Leaderboard, runs: Sequence[RunData]) -> Suite:
    """A suite of the leaderboards of several benchmarks: every benchmark is tested by itself."""
    boards = report.boards
    by_board = [{standing.name: standing for standing in board.places} for board in boards]
    there = {standing.name for board in boards for standing in board.places}
    known = [run.name for run in runs if run.name in there]
    models = list(dict.fromkeys([*known, *(standing.name for board in boards for standing in board.places)]))
    rows = []
    for board, standings in zip(boards, by_board, strict=True):
        cells = {
            model: SuiteCell(each.value, each.interval, each.missing, each.planned, each.cost_usd)
            for model, each in standings.items()
        }
        ranked = board.ranked
        best = ranked[0].name if ranked and not ranked[0].tied_with else None
        tied = [ranked[0].name, *ranked[0].tied_with] if ranked and ranked[0].tied_with else []
        rows.append(SuiteRow(board.dataset or "(unnamed)", board.tasks, cells, _difference(board, models), best, tied))
    return Suite(
        metric=boards[0].metric,
        confidence=report.confidence,
        higher_is_better=boards[0].higher_is_better,
        models=models,
        rows=rows,
        mean=_mean(boards, models, runs),
        tests=0,
    )


def of_matrix(matrix: Matrix) -> Suite:
    """A suite of a matrix: single benchmarks are adjusted, and the mean is one test of its own."""
    mean = None
    if matrix.mean is not None and matrix.mean.benchmarks:
        mean = _matrix_row(f"Mean of {number(len(matrix.mean.benchmarks))}", matrix.mean, matrix)
    return Suite(
        metric=matrix.metric,
        confidence=matrix.confidence,
        higher_is_better=matrix.higher_is_better,
        models=[column.name for column in matrix.models],
        rows=[_matrix_row(row.benchmark, row, matrix) for row in matrix.benchmarks],
        mean=mean,
        tests=matrix.tests,
        margin=matrix.margin,
    )


def _matrix_row(title: str, row: Benchmark | MatrixMean, matrix: Matrix) -> SuiteRow:
    cells = {
        cell.model: SuiteCell(cell.value, cell.interval, cell.missing, cell.planned, cell.cost_usd)
        for cell in row.cells
        if cell.why != NOT_RUN
    }
    sign = 1 if matrix.higher_is_better else -1
    values = {model: sign * cell.value for model, cell in cells.items() if cell.value is not None}
    first = max(values, key=values.__getitem__, default=None)
    tied = [
        pair.second if pair.first == first else pair.first
        for pair in row.pairs
        if first in (pair.first, pair.second) and pair.verdict not in ("better", "worse")
    ]
    difference = None
    best = row.best
    if len(matrix.models) == 2:  # the sign stands beside the difference
        best = None
        if row.pairs:
            difference = SuiteDifference(row.pairs[0].delta, row.pairs[0].interval, row.pairs[0].verdict)
    return SuiteRow(title, row.tasks, cells, difference, best, [first, *tied] if first is not None and tied else [])


def _difference(board: Board, models: Sequence[str]) -> SuiteDifference | None:
    """The difference of the only two models, second less first, as the leaderboard has it."""
    if len(models) != 2 or len(board.pairs) != 1:
        return None
    pair = board.pairs[0]
    turned = pair.first == models[0]
    delta = -pair.difference if turned else pair.difference
    ends = (-pair.interval[1], -pair.interval[0]) if turned and pair.interval else pair.interval
    verdict = pair.verdict
    if verdict == "better":
        verdict = "worse" if turned else "better"
    return SuiteDifference(delta, ends, verdict)


def _mean(boards: Sequence[Board], models: Sequence[str], runs: Sequence[RunData]) -> SuiteRow | None:
    """Each model's mean over the benchmarks, with its interval; no test of their difference."""
    metric = boards[0].metric
    estimates: dict[str, dict[str, Estimate | None]] = {model: {} for model in models}
    for run in runs:
        if run.name in estimates and run.group.dataset is not None:
            estimates[run.name][run.group.dataset] = run.group.metrics.get(metric)
    datasets = {board.dataset for board in boards}
    if any(set(each) != datasets or not all(each.values()) for each in estimates.values()):
        return None
    cells = {}
    for model, each in estimates.items():
        mean = means(each).macro
        cells[model] = SuiteCell(mean.value, mean.interval)
    return SuiteRow(f"Mean of {number(len(boards))}", sum(board.tasks for board in boards), cells)


def number(count: int) -> str:
    """A number as a word, up to twelve."""
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


def answer_of(suite: Suite) -> Answer:
    """The sentence of a suite: of two models, which is better over all benchmarks."""
    over = f"{number(len(suite.rows))} benchmarks"
    pair = suite.mean.difference if suite.mean else None
    if pair is None:
        decided = [row for row in suite.rows if row.best]
        said = (
            f"On {number(len(decided))} of them one model is better than every other"
            if decided
            else "No benchmark is decided"
        )
        return Answer(f"{number(len(suite.models)).capitalize()} models on {over}.", said)
    first, second = suite.models
    found = of_difference(
        first,
        second,
        pair.verdict,
        pair.delta,
        pair.interval,
        confidence=suite.confidence,
        margin=suite.margin,
        over=over,
    )
    alone = sum(row.difference is not None and row.difference.verdict != "undecided" for row in suite.rows)
    single = "No single benchmark decides it" if not alone else f"{number(alone).capitalize()} decided alone"
    return Answer(found.sentence, f"{found.detail}. {single}")


def suite_table(suite: Suite) -> Markup:
    """The table: values and small axes, differences of two models, then missing rollouts and cost."""
    rows = [*suite.rows, *([suite.mean] if suite.mean else [])]
    values = scale_of(
        [end for row in rows for cell in row.cells.values() for end in (cell.value, *(cell.interval or ()))]
    )
    paired = any(row.difference for row in rows)
    ends = [end for row in rows if row.difference for end in (row.difference.delta, *(row.difference.interval or ()))]
    deltas = around_zero(scale_of(ends, zero=True))
    letters = len(suite.models) == 2
    heads: list[Child] = [element("th", "benchmark", scope="col")]
    for letter, model in zip("AB" if letters else [""] * len(suite.models), suite.models, strict=True):
        heads.append(element("th", f"{letter} " if letter else None, name(model, 28), scope="col"))
    if paired:
        heads.append(element("th", "B − A", axis_head(deltas, signed=True), scope="col"))
        heads.append(element("th", element("span", "verdict", class_="hidden"), scope="col", class_="verdict-cell"))
    body = [_row(row, suite, values, deltas, paired, mean=row is suite.mean) for row in rows]
    body += [_counts(suite, paired), _costs(suite, paired)]
    table = element(
        "table",
        element("caption", f"{suite.metric} by benchmark and model"),
        element("thead", element("tr", heads)),
        element("tbody", body),
        class_="suite",
    )
    return joined(
        [element("div", table, class_="suite-frame"), element("div", element("p", _note(suite)), class_="below")]
    )


def _row(row: SuiteRow, suite: Suite, values: Scale, deltas: Scale, paired: bool, *, mean: bool) -> Markup:
    digits = places(*(cell.interval for cell in row.cells.values()))
    cells: list[Child] = [element("th", name(row.title, 24), element("small", counted(row.tasks, "task")), scope="row")]
    for model in suite.models:
        cell = row.cells.get(model)
        if cell is None or cell.value is None:
            cells.append(
                element(
                    "td", element("span", "not run" if cell is None else "no value", class_="why"), data_model=model
                )
            )
            continue
        best = row.best == model
        tone: Tone = "blue" if best else "grey"
        ends = to(cell.interval, digits) if cell.interval else "no interval"
        label = f"{model} on {row.title}: {figure(cell.value, digits)}, {level(suite.confidence)} {ends}"
        shown = element("b", figure(cell.value, digits), " ▲" if best else None)
        words = element("div", shown, element("span", ends), class_="cell")
        axis = interval_row(cell.value, cell.interval, None, values, label=label, tone=tone)
        joined_cell = "tied-cell" if len(suite.models) > 2 and model in row.tied else None
        cells.append(
            element("td", words, element("div", axis, class_="strip-axis"), class_=joined_cell, data_model=model)
        )
    if paired:
        cells += _delta(row, deltas, suite.confidence)
    return element("tr", cells, class_="mean" if mean else None)


def _delta(row: SuiteRow, scale: Scale, confidence: float) -> list[Child]:
    pair = row.difference
    if pair is None or pair.delta is None:
        return [element("td", NONE, class_="delta"), element("td", class_="verdict-cell")]
    digits = places(pair.interval)
    ends = signed_to(pair.interval, digits) if pair.interval else "no interval"
    label = f"{row.title}: difference {signed(pair.delta, digits)}, {level(confidence)} {ends}, {pair.verdict}"
    axis = interval_row(pair.delta, pair.interval, None, scale, label=label, tone=TONES.get(pair.verdict, "grey"))
    words = element("div", element("b", signed(pair.delta, digits)), element("span", ends), class_="cell")
    zero = element("svg", line(scale.at(0), scale.at(0), 0, "100%", "zero"), class_="zero-line", aria_hidden="true")
    return [
        element("td", zero, words, element("div", axis, class_="strip-axis"), class_="delta"),
        element("td", verdict_word(pair.verdict), class_="verdict-cell"),
    ]


def _counts(suite: Suite, paired: bool) -> Markup:
    """The row of missing rollouts."""
    cells = []
    for model in suite.models:
        known = [row.cells[model] for row in suite.rows if model in row.cells]
        missing, planned = sum(cell.missing for cell in known), sum(cell.planned for cell in known)
        cells.append(element("td", f"{missing:,} of {planned:,}", data_model=model))
    return element("tr", element("th", "Missing", scope="row"), cells, element("td", colspan=2) if paired else None)


def _costs(suite: Suite, paired: bool) -> Markup:
    """The row of costs."""
    cells = []
    for model in suite.models:
        known = [row.cells[model].cost_usd for row in suite.rows if model in row.cells]
        spent = [cost for cost in known if cost is not None]
        words = money(sum(spent)) if spent else "not recorded"
        part = f" on {len(spent)} of {len(known)}" if spent and len(spent) < len(known) else ""
        cells.append(element("td", f"{words}{part}", data_model=model))
    return element("tr", element("th", "Cost", scope="row"), cells, element("td", colspan=2) if paired else None)


def _note(suite: Suite) -> str:
    marks = "▲ marks a better run only where the paired test says so."
    if len(suite.models) > 2:
        marks = (
            "▲ marks a model that is better than every other by the paired tests; a bar joins models tied for first."
        )
    if not suite.tests:
        tests = number(len(suite.rows))
        return f"{marks} Each benchmark is tested by itself, not adjusted for {tests} tests; the mean is not tested."
    if suite.mean is None:
        return f"{marks} Verdicts are adjusted for {number(suite.tests)} tests (Holm)." if suite.tests > 1 else marks
    return (
        f"{marks} Verdicts of single benchmarks are adjusted for {number(suite.tests)} tests (Holm); the mean is one "
        "test of its own."
    )
