"""The page of many runs: a leaderboard, or a suite of several benchmarks, with each run collapsed below it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from calipers.analyses.leaderboard import (
    LANES,
    Board,
    Leaderboard,
    Rivals,
    Standing,
    axis_of,
    decimals,
    lanes_of,
    pair_word,
    range_unknown,
    ranks,
    why_undecided,
)
from calipers.analyses.matrix.document import Cell, Matrix, MatrixMean, MatrixRow, PairDifference, alone, answer
from calipers.analyses.matrix.document import decimals as decimals_of_row
from calipers.remarks import Remark
from calipers.reports.figures import NONE, POLICY, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import note_of, text_of
from calipers.reports.sentences import (
    DECIMALS,
    Answer,
    begun,
    level,
    money,
    of_leaderboard,
    outward,
    places,
    signed,
    signed_outward,
    to,
)
from calipers.web.draw import Scale, Tone, around_zero, axis_head, interval_row, line, scale_of, scale_on, svg
from calipers.web.island import command_words, reading_words
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.page import HtmlPage, Section, as_table, column_head, heading, plain_table, scrolled
from calipers.web.pair_page import TONES, badge, options_of, verdict_word
from calipers.web.report_data import ManyData, RunData
from calipers.web.run_page import cost_words, slice_sections, variance_section
from calipers.web.sections import (
    command_line,
    cost_section,
    curve_section,
    foot,
    input_lines,
    ledger_bar,
    ledger_sentence,
    provenance_section,
    spent_of,
    task_scores,
)

MOST_FOLDED = 40  # runs that have their own part below
MOST_BYTES = 600_000  # size of the pictures of these runs together; later runs have only their numbers
HIDDEN_PICTURE: Final = element("span", "picture", class_="hidden")  # a column head for screen readers
LANE: Final = 7  # px between neighbouring tie bars
MOST_PAIRED: Final = 40  # with more models, the pairs are not drawn
SHADES: Final = 10
SEARCHED: Final = 40  # with more models, the table has a search field
NAME: Final = 28  # letters of a name
SHORT: Final = 22  # letters of a name beside the triangle
ABOUT: Final = (
    "Bars on the left join models that this benchmark cannot tell apart. Rank: the ranks each model may hold, all "
    "{many} statements true together with {sure}\N{NO-BREAK SPACE}% confidence. Order within a bar is not evidence. "
    "Judge by the bars, not by whether two intervals overlap: the models share their tasks."
)
COUNTED: Final = (
    "The left column counts the models that this benchmark cannot tell apart. Rank: the ranks each model may hold, "
    "all {many} statements true together with {sure}\N{NO-BREAK SPACE}% confidence. The order of "
    "tied models is not evidence, nor is whether two intervals overlap: the models share their tasks."
)
NUMBERS: Final = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
FEW: Final = 5  # models that fit next to each other on a page

Row = MatrixRow | MatrixMean


def many_page(data: ManyData) -> HtmlPage:
    """The page of many runs: a leaderboard for each benchmark, or a suite of several benchmarks."""
    ranking = data.ranking
    if isinstance(ranking, Matrix):
        return _suite_page(data, ranking)
    if len(ranking.boards) > 1:
        title = Answer(f"{counted(len(ranking.boards), 'leaderboard')}.", "Each benchmark by itself")
        return _page(data, title, [counted(len(ranking.boards), "benchmark")], Markup(""), [_boards(ranking)])
    board = ranking.boards[0]
    sections = [pairs_section(board, ranking.confidence), _board_cost(data, board, ranking)]
    about = [
        *([board.dataset] if board.dataset else []),
        counted(len(board.places), "model"),
        counted(board.tasks, "task"),
    ]
    basis = element("p", _basis(board, ranking), class_="basis")
    body = joined([basis, element("div", board_table(board, ranking.confidence), class_="board-top")])
    return _page(data, answer_of_board(board), about, body, sections)


def answer_of_board(board: Board) -> Answer:
    """The answer of a leaderboard."""
    models = board.ranked
    if not models:
        return Answer("No model is ranked.", begun(plain_why(board.why or "")))
    longest = max(board.bars, key=lambda bar: bar[1] - bar[0], default=None)
    return of_leaderboard(
        models[0].name,
        len(models),
        tied=len(models[0].tied_with),
        ties=board.ties,
        pairs=len(board.pairs),
        group=None if longest is None else (longest[0] + 1, longest[1] + 1),
        why=why_undecided(board),
    )


def _basis(board: Board, report: Leaderboard) -> list[Child]:
    first = board.places[0]
    digits = decimals(board)
    words: list[Child] = []
    if first.value is not None:
        ends = f", {level(report.confidence)} {outward(first.interval, digits)}" if first.interval else ""
        words += [element("b", figure(first.value, digits)), f"{ends}, {counted(board.tasks, 'task')}"]
        gaps = sum(standing.missing for standing in board.places)
        policy = POLICY.get(report.missing, report.missing)
        words.append(f", {counted(gaps, 'rollout')} missing ({policy}). " if gaps else ", nothing missing. ")
    if board.winner is not None and len(board.ranked) > 1:
        bias, finer = abs(board.winner.bias), max(digits, DECIMALS)
        least = 10**-finer
        size = f"about {figure(bias, finer)}" if bias >= least / 2 else f"at most {figure(least, finer)}"
        way = "less" if board.higher_is_better else "more"
        words += [
            f"It was picked as the best of {len(board.ranked):,} on these tasks, so expect ",
            element("b", f"{size} {way}"),
            " on new ones.",
        ]
    return words


def _board_cost(data: ManyData, board: Board, report: Leaderboard) -> Section | None:
    """Score against cost of the ranked models."""
    runs = {run.name: run for run in data.runs}
    points, ranked = [], []
    for standing in board.ranked:
        spent = spent_of(runs[standing.name], f"{standing.place}", board.metric) if standing.name in runs else None
        if spent is not None:
            points.append(spent)
            ranked.append(standing.name)
    won = {(pair.first, pair.second) for pair in board.pairs if pair.verdict == "better"}
    return cost_section(
        points,
        board.metric,
        higher_is_better=board.higher_is_better,
        confidence=report.confidence,
        ahead=lambda first, second: (ranked[first], ranked[second]) in won,
    )


def _suite_page(data: ManyData, matrix: Matrix) -> HtmlPage:
    tasks = sum(row.tasks for row in matrix.benchmarks)
    about = [counted(len(matrix.benchmarks), "benchmark"), counted(len(matrix.models), "model"), counted(tasks, "task")]
    basis = element("p", _suite_basis(matrix, matrix.mean.tasks if matrix.mean else tasks), class_="basis")
    body = joined([basis, element("div", suite_table(matrix), class_="board-top")])
    verdict = answer(matrix)
    detail = ". ".join(filter(None, [verdict.detail, alone(matrix).rstrip(".")]))
    return _page(data, Answer(verdict.sentence, detail), about, body, [])


def _suite_basis(matrix: Matrix, tasks: int) -> list[Child]:
    pairs = (matrix.mean or matrix.benchmarks[0]).pairs
    gaps = sum(cell.missing for row in matrix.benchmarks for cell in row.cells)
    missing = f", {counted(gaps, 'rollout')} missing" if gaps else ", nothing missing"
    words: list[Child] = [badge(pairs[0].verdict), " "] if len(pairs) == 1 and matrix.alike else []
    common = "common task" if len(matrix.models) > 1 else "task"
    words.append("Paired by task within each benchmark, " if len(matrix.models) > 1 else "Over ")
    words += [element("b", counted(tasks, common)), f"{missing}."]
    return [*words, " Each benchmark weighs the same."] if matrix.mean and matrix.alike else words


def _boards(report: Leaderboard) -> Section | None:
    """The leaderboard of each benchmark, collapsed."""
    folded = []
    for board in report.boards:
        if board.places:
            sentence = answer_of_board(board).sentence
            summary = element("summary", element("b", name(board.dataset or "(unnamed)")), element("span", sentence))
            folded.append(element("details", summary, board_table(board, report.confidence), class_="folded"))
    return Section("Each benchmark", joined(folded), "Who is ahead of whom on it.", "boards") if folded else None


def _page(
    data: ManyData, verdict: Answer, about: Sequence[str], body: Markup, sections: Sequence[Section | None]
) -> HtmlPage:
    title = heading(verdict.sentence, verdict.detail)
    ranking = data.ranking
    shown = [section for section in sections if section is not None]
    if data.runs:
        shown.append(_runs(data.runs))
    remarks = [remark for remark in ranking.remarks if remark.severity != "no_answer"]
    notes = list(dict.fromkeys([*map(note_of, remarks), *ranking.notes]))
    if notes:
        shown.append(Section("Notes", element("ul", [element("li", note) for note in notes], class_="notes")))
    shown.append(_provenance(data))
    return HtmlPage(
        title=verdict.sentence,
        about=about,
        top=element("div", title, body, class_="top"),
        sections=shown,
        foot=foot([], ranking.digest),
    )


def _runs(runs: Sequence[RunData]) -> Section:
    """Every run, collapsed: the content of its own page, without rollouts and texts."""
    folded = []
    room = MOST_BYTES
    several = len({run.group.dataset for run in runs}) > 1
    for run in runs[:MOST_FOLDED]:
        dataset = f" · {run.group.dataset}" if run.group.dataset and several else ""
        summary = element("summary", element("b", name(run.name), dataset), element("span", _headline(run)))
        totals, details = cost_words(run.group)
        tasks, pictures = counted(run.group.ledger.tasks, "task"), joined(_pictures(run))
        room -= len(pictures)
        parts = [
            element("p", f"{tasks}. ", ledger_sentence(run), class_="equation"),
            ledger_bar(run, 18),
            _metrics(run),
            element("p", f"{totals} {details}", class_="small") if totals else None,
            pictures if room > 0 else None,
            _report_command(run),
        ]
        folded.append(element("details", summary, parts, class_="folded"))
    if left := len(runs) - len(folded):
        verb = "is" if left == 1 else "are"
        folded.append(element("p", f"{counted(left, 'more run')} {verb} not shown one by one.", class_="small"))
    note = "calipers report RUN shows one run in full, with its rollouts and texts."
    return Section("Each run", joined(folded), note, "runs")


def _pictures(run: RunData) -> list[Markup]:
    """The slices of a run, the scores of its tasks, its curves over k, and the sources of its uncertainty."""
    of = f" of {' · '.join(filter(None, (run.name, run.group.dataset, run.group.agent)))}"
    sections = [*slice_sections(run, among=True), task_scores(run), curve_section(run, of=of), variance_section(run)]
    pictures = []
    for section in sections:
        if section is not None:
            note = element("p", section.note, class_="small") if section.note and isinstance(section.note, str) else ""
            pictures.append(element("section", element("h3", section.head), section.body, note, class_="of-run"))
    return pictures


def _report_command(run: RunData) -> Markup | None:
    """The command that makes the page of this run; None if its source has no path, or holds several runs."""
    source = run.rollouts.source if run.rollouts is not None else None
    if source is None or not source.path or len(source.rollouts.keys) > 1:
        return None
    words = [*command_words("report", [run], run.result), *(word for key in run.by for word in ("--by", key))]
    return element("div", command_line(shlex.join(words)), class_="of-run")


def _headline(run: RunData) -> str:
    """The first metric of a run with its interval."""
    metric, estimate = next(iter(run.group.metrics.items()), ("", None))
    if estimate is None or estimate.value is None:
        return "no value"
    digits = places(estimate.interval)
    ends = f", {level(run.result.confidence)} {to(estimate.interval, digits)}" if estimate.interval else ", no interval"
    return f"{metric} {figure(estimate.value, digits)}{ends}"


def _metrics(run: RunData) -> Markup:
    """The metrics of one run as a plain table."""
    rows = []
    for metric, estimate in run.group.metrics.items():
        digits = places(estimate.interval)
        ends = to(estimate.interval, digits) if estimate.interval else NONE
        rows.append((metric, figure(estimate.value, digits), ends, f"{estimate.tasks:,}"))
    return plain_table(f"Metrics of {run.name}", ("metric", "value", level(run.result.confidence), "tasks"), rows)


def _provenance(data: ManyData) -> Section:
    """What is needed to reproduce the numbers; the command for a suite is ``calipers report``."""
    report = data.ranking
    files = [file for inputs in report.inputs for file in inputs]
    words = ["calipers", "leaderboard" if isinstance(report, Leaderboard) else "report"]
    words += [*(data.given or [file.path for file in files]), *reading_words(data.runs)]
    words += ["--metric", report.boards[0].metric if isinstance(report, Leaderboard) else report.metric]
    command = shlex.join([*words, *options_of(report)])
    return provenance_section(report, input_lines(files, 12), command)


def board_table(board: Board, confidence: float) -> Markup:
    """The table of a leaderboard, with notes on how to read it."""
    ranked = bool(board.ranked)
    digits, scale = decimals(board), _scale(board)
    priced = any(standing.cost_usd is not None for standing in board.places)
    lacking = any(standing.missing for standing in board.places)
    rank_scale = _rank_scale(len(board.ranked))
    heads = [
        *([column_head("tied", "tied"), column_head("#", "place")] if ranked else []),
        column_head("model"),
        column_head(board.metric, "value"),
        column_head([axis_head(scale), HIDDEN_PICTURE], "drawn"),
        column_head(level(confidence), "interval"),
    ]
    if ranked:
        heads += [column_head([axis_head(rank_scale), HIDDEN_PICTURE], "drawn rank"), column_head("may rank", "may")]
    heads += [column_head("cost", "number")] if priced else []
    heads += [column_head("missing", "number")] if lacking else []
    bars = lanes_of(board.bars)
    rows = []
    for index, standing in enumerate(board.places):
        cells: list[Child] = []
        if ranked:
            cells.append(element("td", _ties(bars, index, standing), class_="tied"))
            cells.append(element("td", f"{standing.place}" if standing.place else NONE, class_="place"))
        cells.append(element("th", name(standing.name, NAME), scope="row"))
        cells.append(element("td", figure(standing.value, digits), class_="value"))
        cells.append(element("td", _value_axis(standing, scale, digits, confidence), class_="drawn"))
        ends = outward(standing.interval, digits) if standing.interval else NONE
        cells.append(element("td", ends, class_="interval"))
        if ranked:
            cells.append(element("td", _rank_axis(standing, rank_scale), class_="drawn rank"))
            cells.append(element("td", ranks(standing), class_="may"))
        cells += [_number("cost", NONE if standing.cost_usd is None else money(standing.cost_usd))] * priced
        cells += [_number("missing", f"{standing.missing:,}")] * lacking
        rows.append(element("tr", cells, class_=None if standing.place or not ranked else "unranked"))
    table = element(
        "table",
        element("caption", f"Leaderboard by {board.metric}"),
        element("thead", element("tr", heads)),
        element("tbody", rows),
        class_="board",
    )
    return joined([_search(board), element("div", table, class_="board-frame"), _notes(board, confidence)])


def _number(word: str, number: str) -> Markup:
    """A number, with the word that a phone shows before it."""
    return element("td", number, class_="number", data_word=word)


def _search(board: Board) -> Markup | None:
    """A search field for models, if there are many; a script makes it work and shows it."""
    if len(board.places) <= SEARCHED:
        return None
    field = element("input", type="search", autocomplete="off", spellcheck="false")
    matches = element("span", class_="left", role="status")
    return element("p", element("label", "Find a model ", field), " ", matches, class_="find", hidden=True)


def _notes(board: Board, confidence: float) -> Markup:
    lines = []
    if board.ranked:
        sure = f"{100 * confidence:.6g}"
        about = ABOUT if len(lanes_of(board.bars)) <= LANES else COUNTED
        lines.append(about.format(many=f"{len(board.ranked):,}", sure=sure))
    reasons: dict[str, list[str]] = {}
    for standing in board.places:
        if standing.place is None and standing.why and board.ranked:
            reasons.setdefault(standing.why, []).append(standing.name)
    lines += [f"Not ranked: {', '.join(names)}: {plain_why(why)}." for why, names in reasons.items()]
    if board.excluded_tasks:
        lines.append(f"{counted(board.excluded_tasks, 'task')} excluded: not every ranked model has a value there.")
    if not board.higher_is_better:
        lines.append("Lower is better.")
    if range_unknown(board):
        lines.append(f"{begun(text_of(Remark('range_not_given')))}.")
    return element("div", [element("p", line) for line in lines], class_="below")


def _scale(board: Board) -> Scale:
    """The axis of the values."""
    axis = axis_of(board)
    return scale_of(standing.value for standing in board.places) if axis is None else scale_on(axis)


def _rank_scale(models: int) -> Scale:
    step = max(1, (models - 1) // 4)
    ticks = tuple(float(rank) for rank in range(1, models + 1, step))
    return Scale(1.0, float(max(models, 2)), ticks if models > 1 else (1.0, 2.0))


def _ties(bars: Sequence[Sequence[tuple[int, int]]], index: int, standing: Standing) -> Markup:
    """The parts of tie bars in one row; the number of tied models if the bars need too many lanes."""
    if not standing.tied_with:
        return Markup("")
    if len(bars) > LANES:
        return joined(f"with {len(standing.tied_with):,}")
    marks = []
    for lane, lane_bars in enumerate(bars):
        for first, last in lane_bars:
            if first <= index <= last:
                top, bottom = ("28%" if index == first else "0"), ("72%" if index == last else "100%")
                x = 2 + LANE * lane
                marks.append(Markup(f'<line class="tie" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'))
    label = f"tied with {', '.join(standing.tied_with[:5])}"
    more = f" and {len(standing.tied_with) - 5} more" if len(standing.tied_with) > 5 else ""
    return element("svg", marks, role="img", aria_label=label + more, class_="ties")


def _value_axis(standing: Standing, scale: Scale, digits: int, confidence: float) -> Markup:
    if standing.value is None:
        return Markup("")
    ends = f"{level(confidence)} {outward(standing.interval, digits)}" if standing.interval else "no interval"
    label = f"{figure(standing.value, digits)}, {ends}"
    tone: Tone = "blue" if standing.place else "grey"
    return interval_row(standing.value, standing.interval, None, scale, label=label, tone=tone)


def _rank_axis(standing: Standing, scale: Scale) -> Markup:
    if standing.rank_set is None:
        return Markup("")
    low, high = (scale.at(rank) for rank in standing.rank_set)
    marks = [line(0, 100, "50%", "50%", "track"), line(low, high, "50%", "50%", "ranks")]
    return svg(*marks, label=f"may rank {ranks(standing)}", class_="row")


def pairs_section(board: Board, confidence: float) -> Section | None:
    """Every pair: a triangle whose cells are filled if the pair is decided, and the same numbers as a table."""
    if not 2 < len(board.ranked) <= MOST_PAIRED:
        return None
    index_of = {standing.name: index for index, standing in enumerate(board.ranked)}
    cells = {(index_of[pair.second], index_of[pair.first]): pair for pair in board.pairs}
    digits = decimals(board)
    spread = max((abs(pair.difference) for pair in board.pairs), default=0.0)
    rows = []
    for row, standing in enumerate(board.ranked):
        inner: list[Child] = [element("th", f"{row + 1} ", name(standing.name, SHORT), scope="row")]
        for column in range(row):
            pair = cells[row, column]
            shade = "tie" if pair.verdict == "undecided" else f"won s{_shade(pair, board, spread)}"
            mark = "~" if pair.verdict == "undecided" else None
            inner.append(element("td", mark, class_=shade, title=_pair_words(pair, digits)))
        rows.append(element("tr", inner))
    numbers = [element("th", f"{number + 1}", scope="col") for number in range(len(board.ranked) - 1)]
    triangle = element(
        "table",
        element("caption", "Every pair of models; the same as a table follows"),
        element("tbody", rows),
        element("tfoot", element("tr", element("td"), numbers)),
        class_="triangle",
    )
    frame = scrolled(triangle, "Every pair", "pairs-frame")
    note = [
        "Filled: the model with that number is better than the one in the row. Darker: by more.",
        f"Hollow ~: not decided. All {len(board.pairs):,} statements hold together with "
        f"{100 * confidence:.6g}\N{NO-BREAK SPACE}% confidence.",
    ]
    chosen = element("p", class_="chosen", role="status")
    return Section("Every pair", joined([frame, chosen, _pair_table(board, digits)]), note, id="pairs")


def _shade(pair: Rivals, board: Board, spread: float) -> int:
    """The shade of a decided pair: by its difference, or by its share of the largest if values are outside 0 to 1."""
    size = abs(pair.difference)
    unit = all(standing.value is not None and 0 <= standing.value <= 1 for standing in board.ranked)
    dark = min(0.22 + 1.7 * size, 1.0) if unit else 0.22 + 0.78 * size / (spread or 1.0)
    return round(SHADES * dark)


def _pair_words(pair: Rivals, digits: int) -> str:
    ends = f" ({signed_outward(pair.interval, digits)})" if pair.interval else ""
    if pair.verdict == "undecided":
        size = f"difference {signed(pair.difference, digits)}{ends}"
        return f"{pair.first} against {pair.second}: {pair_word(pair)}, {size}"
    return f"{pair.first} is better than {pair.second} by {figure(abs(pair.difference), digits)}{ends}"


def _pair_table(board: Board, digits: int) -> Markup:
    rows = [
        (
            name(pair.first, NAME),
            name(pair.second, NAME),
            signed(pair.difference, digits),
            signed_outward(pair.interval, digits) if pair.interval else NONE,
            f"~ {pair_word(pair)}" if pair.verdict == "undecided" else "▲ better",
        )
        for pair in board.pairs
    ]
    caption = f"All {len(board.pairs):,} pairs; the intervals hold together"
    return as_table(caption, ("model", "other model", "difference", "interval", "verdict"), rows)


def number(count: int) -> str:
    """A number as a word up to twelve, in figures above."""
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


def suite_table(matrix: Matrix) -> Markup:
    """The table of a suite: values with small axes, differences of two models, missing rollouts and cost."""
    has_mean = matrix.mean is not None and matrix.alike
    rows: list[Row] = [*matrix.benchmarks, *([matrix.mean] if matrix.mean and has_mean else [])]
    models = [column.name for column in matrix.models]
    paired = len(models) == 2 and any(row.pairs for row in rows)
    one_scale = len({row.range for row in matrix.benchmarks}) == 1
    scales = _scales(rows, paired)
    letters = "AB" if len(models) == 2 else " " * len(models)
    heads = [column_head("benchmark")]
    for letter, model in zip(letters, models, strict=True):
        heads.append(column_head([f"{letter} " if letter.strip() else None, name(model, NAME)]))
    if paired:
        heads.append(column_head(["B − A", axis_head(scales[1], signed=True) if one_scale else None]))
        heads.append(column_head(element("span", "verdict", class_="hidden"), "verdict-cell"))
    body = []
    for row in rows:
        values, deltas = scales if one_scale else _scales([row], paired)
        body.append(_row(row, matrix, values, deltas, paired))
    body += [_total("Missing", matrix, paired, _missing), _total("Cost", matrix, paired, _total_cost)]
    table = element(
        "table",
        element("caption", f"{matrix.metric} by benchmark and model"),
        element("thead", element("tr", heads)),
        element("tbody", body),
        class_="suite" if len(models) <= FEW else "suite many",
    )
    frame = scrolled(table, "Benchmarks and models", "suite-frame")
    return joined([frame, element("div", element("p", _note(matrix)), class_="below")])


def _scales(rows: Sequence[Row], paired: bool) -> tuple[Scale, Scale]:
    """The axes of the values and of the differences of rows with one scale."""
    ends: list[float | None] = []
    deltas: list[float | None] = []
    for row in rows:
        for cell in row.cells:
            ends += [cell.value, *(cell.interval or ())]
        for pair in row.pairs:
            deltas += [pair.delta, *(pair.interval or ())]
    values = scale_of(ends)
    return values, around_zero(scale_of(deltas, zero=True)) if paired else values


def tied_of(row: Row, higher_is_better: bool) -> list[str]:
    """The model with the best value and those tied with it; empty if one model is better than all others."""
    known = [cell for cell in row.cells if cell.value is not None]
    if row.best is not None or not row.pairs or not known:
        return []
    sign = 1 if higher_is_better else -1
    first = max(known, key=lambda cell: sign * (cell.value or 0.0)).model
    decided = ("better", "worse")
    pairs = [pair for pair in row.pairs if first in (pair.first, pair.second) and pair.verdict not in decided]
    return [first, *(pair.second if pair.first == first else pair.first for pair in pairs)]


def _row(row: Row, matrix: Matrix, values: Scale, deltas: Scale, paired: bool) -> Markup:
    digits = decimals_of_row(matrix, row)
    is_left_out = isinstance(row, MatrixRow) and not row.in_mean and matrix.mean is not None
    small = counted(row.tasks, "task") + (", not in the mean" if is_left_out else "")
    tied = tied_of(row, matrix.higher_is_better) if len(matrix.models) > 2 else []
    title = row.benchmark if isinstance(row, MatrixRow) else f"Mean of {number(len(row.benchmarks))}"
    title += ", of the range" if isinstance(row, MatrixMean) and row.of_range else ""
    cells: list[Child] = [element("th", name(title, 24), element("small", small), scope="row")]
    cells += [
        _cell(cell, title, values, digits, matrix.confidence, best=row.best == cell.model, tied=cell.model in tied)
        for cell in row.cells
    ]
    if paired:
        why = row.why if isinstance(row, MatrixRow) else None
        cells += _delta(row.pairs[0] if row.pairs else None, title, deltas, digits, why)
    return element("tr", cells, class_="mean" if isinstance(row, MatrixMean) else None)


def _cell(cell: Cell, title: str, scale: Scale, digits: int, confidence: float, *, best: bool, tied: bool) -> Markup:
    if cell.value is None:
        return element(
            "td", element("span", plain_why(cell.why) if cell.why else "no value", class_="why"), data_model=cell.model
        )
    tone: Tone = "blue" if best else "grey"
    ends = outward(cell.interval, digits) if cell.interval else "no interval"
    label = f"{cell.model} on {title}: {figure(cell.value, digits)}, {level(confidence)} {ends}"
    shown = element("b", figure(cell.value, digits), " ▲" if best else None)
    words = element("div", shown, element("span", ends), class_="cell")
    axis = interval_row(cell.value, cell.interval, None, scale, label=label, tone=tone)
    kind = "tied-cell" if tied else None
    return element("td", words, element("div", axis, class_="strip-axis"), class_=kind, data_model=cell.model)


def _delta(pair: PairDifference | None, title: str, scale: Scale, digits: int, why: str | None) -> list[Child]:
    if pair is None or pair.delta is None:
        reason = plain_why(why or (pair.why if pair else None) or "")
        return [
            element("td", element("span", reason or NONE, class_="why"), class_="delta"),
            element("td", class_="verdict-cell"),
        ]
    ends = signed_outward(pair.interval, digits) if pair.interval else "no interval"
    reasons = [text_of(remark, {"first": pair.first, "second": pair.second}) for remark in pair.remarks]
    label = f"{title}: difference {signed(pair.delta, digits)}, {level(pair.confidence)} {ends}, {pair.verdict}"
    axis = interval_row(pair.delta, pair.interval, None, scale, label=label, tone=TONES.get(pair.verdict, "grey"))
    words = element("div", element("b", signed(pair.delta, digits)), element("span", ends), class_="cell")
    because = element("span", "; ".join(reasons), class_="why") if reasons else None
    zero = element("svg", line(scale.at(0), scale.at(0), 0, "100%", "zero"), class_="zero-line", aria_hidden="true")
    return [
        element("td", zero, words, element("div", axis, class_="strip-axis"), because, class_="delta"),
        element("td", verdict_word(pair.verdict), class_="verdict-cell"),
    ]


def _total(head: str, matrix: Matrix, paired: bool, total: Callable[[Sequence[Cell]], str]) -> Markup:
    """A row below the benchmarks with a total over them, for each model."""
    cells = [
        element("td", total([row.cells[index] for row in matrix.benchmarks]), data_model=column.name)
        for index, column in enumerate(matrix.models)
    ]
    return element("tr", element("th", head, scope="row"), cells, element("td", colspan=2) if paired else None)


def _missing(cells: Sequence[Cell]) -> str:
    return f"{sum(cell.missing for cell in cells):,} of {sum(cell.planned for cell in cells):,}"


def _total_cost(cells: Sequence[Cell]) -> str:
    run = [cell for cell in cells if cell.planned]
    spent = [cell.cost_usd for cell in run if cell.cost_usd is not None]
    part = f" on {len(spent)} of {len(run)}" if spent and len(spent) < len(run) else ""
    return f"{money(sum(spent))}{part}" if spent else "not recorded"


def _note(matrix: Matrix) -> str:
    if len(matrix.models) == 1:
        return "Each benchmark weighs the same in the mean." if matrix.alike else ""
    marks = "▲ marks a better run only where the paired test says so."
    if len(matrix.models) > 2:
        marks = (
            "▲ marks a model that is better than every other by the paired tests; a bar joins models tied for first."
        )
    method = "Holm" if matrix.alike else "Sidak"
    adjusted = f"Verdicts of single benchmarks are adjusted for {number(matrix.tests)} tests ({method})"
    if not matrix.alike:
        return f"{marks} {adjusted}."
    return f"{marks} {adjusted}{'; the mean is one test of its own' if matrix.mean else ''}."
