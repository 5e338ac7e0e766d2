"""A leaderboard as a table: tie bars, values, and the ranks that each model may hold; and every pair as a triangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from calipers.analyses.leaderboard.document import LANES, Board, Rivals, Standing, axis_of, decimals, lanes_of, ranks
from calipers.reports.figures import NONE, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import level, money, signed, signed_to, to
from calipers.web.draw import UNIT, Scale, Tone, axis_head, interval_row, line, scale_of, svg
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.page import Section
from calipers.web.rollout_sections import as_table

HIDDEN_PICTURE: Final = element("span", "picture", class_="hidden")  # a head for readers of the page
LANE: Final = 7  # px between bars beside each other
MOST_PAIRED: Final = 40  # models of which every pair is drawn
SHADES: Final = 10
SEARCHED: Final = 40  # models from which on the table has a search
NAME: Final = 28  # letters of a name
SHORT: Final = 22  # the same beside the triangle
ABOUT: Final = (
    "Bars on the left join models that this benchmark cannot tell apart. Rank: the ranks each model may hold, all "
    "{many} statements true together with {sure}\N{NO-BREAK SPACE}% confidence. Order within a bar is not evidence. "
    "Judge by the bars, not by whether two intervals overlap: the models share their tasks."
)


def board_table(board: Board, confidence: float) -> Markup:
    """The table of one leaderboard, with how it is read."""
    ranked = bool(board.ranked)
    digits, scale = decimals(board), _scale(board)
    priced = any(standing.cost_usd is not None for standing in board.places)
    lacking = any(standing.missing for standing in board.places)
    rank_scale = _rank_scale(len(board.ranked))
    heads: list[Child] = [_head("tied", "tied"), _head("#", "place")] if ranked else []
    heads += [
        _head("model"),
        _head(board.metric, "value"),
        element("th", axis_head(scale), HIDDEN_PICTURE, scope="col", class_="drawn"),
    ]
    heads.append(_head(level(confidence), "interval"))
    if ranked:
        heads += [
            element("th", axis_head(rank_scale), HIDDEN_PICTURE, scope="col", class_="drawn rank"),
            _head("may rank", "may"),
        ]
    heads += [_head("cost", "number")] if priced else []
    heads += [_head("missing", "number")] if lacking else []
    bars = lanes_of(board.bars)
    rows = []
    for place, standing in enumerate(board.places):
        cells: list[Child] = []
        if ranked:
            cells.append(element("td", _ties(bars, place, standing), class_="tied"))
            cells.append(element("td", f"{standing.place}" if standing.place else NONE, class_="place"))
        cells.append(element("th", name(standing.name, NAME), scope="row"))
        cells.append(element("td", figure(standing.value, digits), class_="value"))
        cells.append(element("td", _value_axis(standing, scale, digits, confidence), class_="drawn"))
        ends = to(standing.interval, digits) if standing.interval else NONE
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


def _head(word: str, kind: str = "") -> Markup:
    return element("th", word, scope="col", class_=kind or None)


def _number(word: str, said: str) -> Markup:
    """A number with the word that a phone shows before it."""
    return element("td", said, class_="number", data_word=word)


def _search(board: Board) -> Markup | None:
    """A field to find a model in, where there are many; a script makes it work, and shows it."""
    if len(board.places) <= SEARCHED:
        return None
    field = element("input", type="search", autocomplete="off", spellcheck="false")
    left = element("span", class_="left", role="status")
    return element("p", element("label", "Find a model ", field), " ", left, class_="find", hidden=True)


def _notes(board: Board, confidence: float) -> Markup:
    lines = []
    if board.ranked:
        sure = f"{100 * confidence:.6g}"
        lines.append(ABOUT.format(many=f"{len(board.ranked):,}", sure=sure))
        if len(lanes_of(board.bars)) > LANES:
            lines[0] = lines[0].replace("Bars on the left join models", "The left column counts the models", 1)
    reasons: dict[str, list[str]] = {}
    for standing in board.places:
        if standing.place is None and standing.why and board.ranked:
            reasons.setdefault(standing.why, []).append(standing.name)
    lines += [f"Not ranked: {', '.join(names)}: {plain_why(why)}." for why, names in reasons.items()]
    if board.excluded_tasks:
        lines.append(f"{counted(board.excluded_tasks, 'task')} excluded: not every ranked model has a value there.")
    if not board.higher_is_better:
        lines.append("Lower is better.")
    return element("div", [element("p", line) for line in lines], class_="below")


def _scale(board: Board) -> Scale:
    """From the lowest end to the highest in tenths, where values lie between 0 and 1."""
    axis = axis_of(board.places)
    if axis is None:
        ends = [end for standing in board.places for end in (standing.value, *(standing.interval or ()))]
        return scale_of(ends) if any(end is not None for end in ends) else UNIT
    low, high = axis
    tenths = range(round(10 * low), round(10 * high) + 1)
    step = 1 if len(tenths) <= 5 else 2
    return Scale(low, high, tuple(tenth / 10 for tenth in tenths[::step]))


def _rank_scale(models: int) -> Scale:
    step = max(1, (models - 1) // 4)
    ticks = tuple(float(rank) for rank in range(1, models + 1, step))
    return Scale(1.0, float(max(models, 2)), ticks if models > 1 else (1.0, 2.0))


def _ties(bars: Sequence[Sequence[tuple[int, int]]], place: int, standing: Standing) -> Markup:
    """The parts of tie bars in one row; with how many it is tied where they would need too many lanes."""
    if not standing.tied_with:
        return Markup("")
    if len(bars) > LANES:
        return joined(f"with {len(standing.tied_with):,}")
    marks = []
    for lane, some in enumerate(bars):
        for first, last in some:
            if first <= place <= last:
                top, bottom = ("28%" if place == first else "0"), ("72%" if place == last else "100%")
                x = 2 + LANE * lane
                marks.append(Markup(f'<line class="tie" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'))
    said = f"tied with {', '.join(standing.tied_with[:5])}"
    more = f" and {len(standing.tied_with) - 5} more" if len(standing.tied_with) > 5 else ""
    return element("svg", marks, role="img", aria_label=said + more, class_="ties")


def _value_axis(standing: Standing, scale: Scale, digits: int, confidence: float) -> Markup:
    if standing.value is None:
        return Markup("")
    said = figure(standing.value, digits)
    said += f", {level(confidence)} {to(standing.interval, digits)}" if standing.interval else ", no interval"
    tone: Tone = "blue" if standing.place else "grey"
    return interval_row(standing.value, standing.interval, None, scale, label=said, tone=tone)


def _rank_axis(standing: Standing, scale: Scale) -> Markup:
    if standing.rank_set is None:
        return Markup("")
    low, high = (scale.at(rank) for rank in standing.rank_set)
    marks = [line(0, 100, "50%", "50%", "track"), line(low, high, "50%", "50%", "ranks")]
    return svg(*marks, label=f"may rank {ranks(standing)}", class_="row")


def pairs_section(board: Board, confidence: float) -> Section | None:
    """Every pair: a triangle, filled where the pair is decided, and the same as a table."""
    if not 2 < len(board.ranked) <= MOST_PAIRED:
        return None
    place = {standing.name: index for index, standing in enumerate(board.ranked)}
    cells = {(place[pair.second], place[pair.first]): pair for pair in board.pairs}
    digits = decimals(board)
    spread = max((abs(pair.difference) for pair in board.pairs), default=0.0)
    rows = []
    for row, standing in enumerate(board.ranked):
        inner: list[Child] = [element("th", name(standing.name, SHORT), scope="row")]
        for column in range(row):
            pair = cells[row, column]
            shade = "tie" if pair.verdict == "undecided" else f"won s{_shade(pair, board, spread)}"
            inner.append(
                element("td", "~" if pair.verdict == "undecided" else None, class_=shade, title=_said(pair, digits))
            )
        rows.append(element("tr", inner))
    numbers = [element("th", f"{number + 1}", scope="col") for number in range(len(board.ranked) - 1)]
    triangle = element(
        "table",
        element("caption", "Every pair of models; the same as a table follows"),
        element("tbody", rows),
        element("tfoot", element("tr", element("td"), numbers)),
        class_="triangle",
    )
    frame = element("div", triangle, class_="pairs-frame", tabindex="0", role="region", aria_label="Every pair")
    note = [
        "Filled: the model with that number is better than the one in the row. Darker: by more.",
        f"Hollow ~: not decided. All {len(board.pairs):,} statements hold together with "
        f"{100 * confidence:.6g}\N{NO-BREAK SPACE}% confidence.",
    ]
    chosen = element("p", class_="chosen", role="status")
    return Section("Every pair", joined([frame, chosen, _pair_table(board, digits)]), note, id="pairs")


def _shade(pair: Rivals, board: Board, spread: float) -> int:
    """How dark a decided pair is: by its difference; where values lie outside 0 to 1, by its share of the largest."""
    size = abs(pair.difference)
    unit = all(standing.value is not None and 0 <= standing.value <= 1 for standing in board.ranked)
    dark = min(0.22 + 1.7 * size, 1.0) if unit else 0.22 + 0.78 * size / (spread or 1.0)
    return round(SHADES * dark)


def _said(pair: Rivals, digits: int) -> str:
    ends = f" ({signed_to(pair.interval, digits)})" if pair.interval else ""
    if pair.verdict == "undecided":
        return f"{pair.first} against {pair.second}: not decided, difference {signed(pair.difference, digits)}{ends}"
    return f"{pair.first} is better than {pair.second} by {figure(abs(pair.difference), digits)}{ends}"


def _pair_table(board: Board, digits: int) -> Markup:
    rows = [
        (
            name(pair.first, NAME),
            name(pair.second, NAME),
            signed(pair.difference, digits),
            signed_to(pair.interval, digits) if pair.interval else NONE,
            "~ undecided" if pair.verdict == "undecided" else "▲ better",
        )
        for pair in board.pairs
    ]
    caption = f"All {len(board.pairs):,} pairs; the intervals hold together"
    return as_table(caption, ("model", "other model", "difference", "interval", "verdict"), rows)
