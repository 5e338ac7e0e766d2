"""The page of many runs: a leaderboard, or a suite of several benchmarks; each run below it, folded."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from calipers.analyses.leaderboard.document import Board, Leaderboard, decimals
from calipers.analyses.matrix.document import alone, answer
from calipers.analyses.matrix.result import Matrix
from calipers.reports.figures import NONE, POLICY, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import Answer, level, of_leaderboard, places, to
from calipers.web.board import board_table, pairs_section
from calipers.web.cost import cost_section
from calipers.web.draw import ledger_bar
from calipers.web.gather import ManyData, RunData, ledger_parts
from calipers.web.island import command_words
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.page import HtmlPage, Section, heading
from calipers.web.pair_page import badge, spent_of
from calipers.web.rollout_sections import curve_section, task_scores
from calipers.web.run_page import (
    bar_parts,
    command_line,
    cost_words,
    foot,
    ledger_label,
    ledger_sentence,
    slice_sections,
    state_counts,
    variance_section,
)
from calipers.web.suite import suite_table

MOST_FOLDED = 40  # runs that have their own part below
MOST_BYTES = 600_000  # of the pictures of all these runs; those that come later have their numbers


def many_page(data: ManyData) -> HtmlPage:
    """The page of many runs: ranked where they share a benchmark, a suite where there are several."""
    ranking = data.ranking
    if isinstance(ranking, Matrix):
        return _suite_page(data, ranking)
    if len(ranking.boards) > 1:
        title = Answer(f"{counted(len(ranking.boards), 'leaderboard')}.", "Each benchmark by itself")
        return _page(data, title, [counted(len(ranking.boards), "benchmark")], Markup(""), [_boards(ranking)])
    board = ranking.boards[0]
    sections = [pairs_section(board, ranking.confidence), _cost(data, board, ranking)]
    about = [
        *([board.dataset] if board.dataset else []),
        counted(len(board.places), "model"),
        counted(board.tasks, "task"),
    ]
    basis = element("p", _basis(board, ranking), class_="basis")
    body = joined([basis, element("div", board_table(board, ranking.confidence), class_="board-top")])
    return _page(data, answer_of_board(board), about, body, sections)


def answer_of_board(board: Board) -> Answer:
    """The sentence of a leaderboard."""
    models = board.ranked
    if not models:
        return Answer("No model is ranked.", plain_why(board.why or ""))
    longest = max(board.bars, key=lambda bar: bar[1] - bar[0], default=None)
    return of_leaderboard(
        models[0].name,
        len(models),
        tied=len(models[0].tied_with),
        ties=board.ties,
        pairs=len(board.pairs),
        group=None if longest is None else (longest[0] + 1, longest[1] + 1),
    )


def _basis(board: Board, report: Leaderboard) -> list[Child]:
    first = board.places[0]
    digits = decimals(board)
    words: list[Child] = []
    if first.value is not None:
        ends = f", {level(report.confidence)} {to(first.interval, digits)}" if first.interval else ""
        words += [element("b", figure(first.value, digits)), f"{ends}, {counted(board.tasks, 'task')}"]
        lost = sum(standing.missing for standing in board.places)
        policy = POLICY.get(report.missing, report.missing)
        words.append(f", {counted(lost, 'rollout')} missing ({policy}). " if lost else ", nothing missing. ")
    if board.winner is not None and len(board.ranked) > 1:
        bias = abs(board.winner.bias)
        least = 10**-digits
        size = f"about {figure(bias, digits)}" if bias >= least / 2 else f"at most {figure(least, digits)}"
        way = "less" if board.higher_is_better else "more"
        words += [
            f"It was picked as the best of {len(board.ranked):,} on these tasks, so expect ",
            element("b", f"{size} {way}"),
            " on new ones.",
        ]
    return words


def _cost(data: ManyData, board: Board, report: Leaderboard) -> Section | None:
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
        ahead=lambda one, other: (ranked[one], ranked[other]) in won,
    )


def _suite_page(data: ManyData, matrix: Matrix) -> HtmlPage:
    tasks = sum(row.tasks for row in matrix.benchmarks)
    about = [counted(len(matrix.benchmarks), "benchmark"), counted(len(matrix.models), "model"), counted(tasks, "task")]
    basis = element("p", _suite_basis(matrix, tasks), class_="basis")
    body = joined([basis, element("div", suite_table(matrix), class_="board-top")])
    said = answer(matrix)
    detail = ". ".join(filter(None, [said.detail, alone(matrix).rstrip(".")]))
    return _page(data, Answer(said.sentence, detail), about, body, [])


def _suite_basis(matrix: Matrix, tasks: int) -> list[Child]:
    pairs = (matrix.mean or matrix.benchmarks[0]).pairs
    lost = sum(cell.missing for row in matrix.benchmarks for cell in row.cells)
    missing = f", {counted(lost, 'rollout')} missing" if lost else ", nothing missing"
    words: list[Child] = [badge(pairs[0].verdict), " "] if len(pairs) == 1 else []
    common = "common task" if len(matrix.models) > 1 else "task"
    words.append("Paired by task within each benchmark, " if len(matrix.models) > 1 else "Over ")
    words += [element("b", counted(tasks, common)), f"{missing}."]
    return [*words, " Each benchmark weighs the same."] if matrix.mean else words


def _boards(report: Leaderboard) -> Section | None:
    """The leaderboard of each benchmark with three models or more, folded."""
    folded = []
    for board in report.boards:
        if board.places:
            said = answer_of_board(board).sentence
            summary = element("summary", element("b", name(board.dataset or "(unnamed)")), element("span", said))
            folded.append(element("details", summary, board_table(board, report.confidence), class_="folded"))
    return Section("Each benchmark", joined(folded), "Who is ahead of whom on it.", "boards") if folded else None


def _page(
    data: ManyData, said: Answer, about: Sequence[str], body: Markup, sections: Sequence[Section | None]
) -> HtmlPage:
    title = heading(said.sentence, said.detail)
    ranking = data.ranking
    every = [section for section in sections if section is not None]
    if data.runs:
        every.append(_runs(data.runs))
    if ranking.notes:
        every.append(Section("Notes", element("ul", [element("li", note) for note in ranking.notes], class_="notes")))
    every.append(_provenance(ranking, data.given))
    return HtmlPage(
        title=said.sentence,
        about=about,
        top=element("div", title, body, class_="top"),
        sections=every,
        foot=foot([], ranking.digest),
    )


def _runs(runs: Sequence[RunData]) -> Section:
    """Every run by itself, folded: what the page of a run shows, but for its rollouts and texts."""
    folded = []
    room = MOST_BYTES
    for run in runs[:MOST_FOLDED]:
        where = (
            f" · {run.group.dataset}" if run.group.dataset and len({each.group.dataset for each in runs}) > 1 else ""
        )
        summary = element("summary", element("b", name(run.name), where), element("span", _headline(run)))
        first, rest = cost_words(run.group)
        ledger = run.group.ledger
        states = state_counts(ledger_parts(run))
        parts = [
            element("p", f"{counted(ledger.tasks, 'task')}. ", ledger_sentence(ledger, states), class_="equation"),
            ledger_bar(bar_parts(states), label=ledger_label(ledger, states), height=18),
            _metrics(run),
        ]
        parts.append(element("p", f"{first} {rest}", class_="small") if first else Markup(""))
        more = joined(_pictures(run))
        room -= len(more)
        parts += [more] if room > 0 else []
        parts.append(_alone(run))
        folded.append(element("details", summary, parts, class_="folded"))
    left = len(runs) - len(folded)
    folded += [element("p", f"{counted(left, 'run')} more are not shown one by one.", class_="small")] if left else []
    note = "calipers report RUN shows one run in full, with its rollouts and texts."
    return Section("Each run", joined(folded), note, "runs")


def _pictures(run: RunData) -> list[Markup]:
    """The slices of a run, the scores of its tasks, its curves over k, and where its uncertainty comes from."""
    of = f" of {' · '.join(filter(None, (run.name, run.group.dataset, run.group.agent)))}"
    sections = [*slice_sections(run, among=True), task_scores(run), curve_section(run, of=of), variance_section(run)]
    made = []
    for section in sections:
        if section is not None:
            note = element("p", section.note, class_="small") if section.note and isinstance(section.note, str) else ""
            made.append(element("section", element("h3", section.head), section.body, note, class_="of-run"))
    return made


def _alone(run: RunData) -> Markup:
    """The command that makes the page of this run; nothing where its rollouts are not in a file of their own."""
    source = run.rollouts.source if run.rollouts is not None else None
    if source is None or not source.path or len(source.rollouts.keys) > 1:
        return Markup("")
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
    heads = ("metric", "value", level(run.result.confidence), "tasks")
    rows = []
    for metric, estimate in run.group.metrics.items():
        digits = places(estimate.interval)
        ends = to(estimate.interval, digits) if estimate.interval else NONE
        cells = [element("td", cell) for cell in (figure(estimate.value, digits), ends, f"{estimate.tasks:,}")]
        rows.append(element("tr", element("th", metric, scope="row"), cells))
    return element(
        "table",
        element("caption", f"Metrics of {run.name}", class_="hidden"),
        element("thead", element("tr", [element("th", word, scope="col") for word in heads])),
        element("tbody", rows),
        class_="plain",
    )


def _provenance(report: Leaderboard | Matrix, given: Sequence[str]) -> Section:
    from calipers import __version__

    files = [file for some in report.inputs for file in some]
    inputs = [
        element(
            "div",
            element("code", element("bdi", file.path)),
            f" · {counted(file.rollouts, 'rollout')} · ",
            element("code", f"sha256 {file.sha256[:16]}…", title=file.sha256),
        )
        for file in files[:12]
    ]
    inputs += [element("div", f"and {counted(len(files) - 12, 'file')} more")] if len(files) > 12 else []
    policy = POLICY.get(report.missing, report.missing)
    made = (
        f"Calipers {__version__} · {report.dialect} rules · missing {policy} · seed {report.seed} · "
        f"{100 * report.confidence:.6g}\N{NO-BREAK SPACE}% confidence"
    )
    digest = element("code", f"{report.digest[:31]}…", title=report.digest)
    rows: list[tuple[str, Child]] = [("Input", inputs)] if inputs else []
    rows += [("Digest", digest), ("Made with", made)]
    body: list[Child] = [
        element("dl", [(element("dt", word), element("dd", said)) for word, said in rows], class_="facts")
    ]
    if files:
        body.append(command_line(_command(report, given or [file.path for file in files])))
    note = "Anyone with the inputs can get the same numbers, to the last bit."
    return Section("Provenance", joined(body), note, "provenance")


def _command(report: Leaderboard | Matrix, paths: Sequence[str]) -> str:
    """The command that gives the same numbers; of several benchmarks in several files it is this one."""
    ranked = isinstance(report, Leaderboard)
    words = ["calipers", "leaderboard" if ranked else "report", *paths]
    words += ["--metric", report.boards[0].metric if isinstance(report, Leaderboard) else report.metric]
    if report.cluster:
        words += ["--cluster", report.cluster]
    if report.dialect != "native":
        words += ["--dialect", report.dialect]
    if report.missing != "gap":
        words += ["--missing", report.missing]
    if report.confidence != 0.95:
        words += ["--confidence", f"{report.confidence:g}"]
    if report.seed:
        words += ["--seed", str(report.seed)]
    return shlex.join(words)
