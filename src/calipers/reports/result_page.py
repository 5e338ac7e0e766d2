"""The page of a result: its subject, the answer in a sentence, the numbers and the ledger, on at most 25 lines.

The detailed page shows every number with its standard error, definition and bounds, and ledgers, economics and inputs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import sub
from typing import Final, Literal

from calipers.metrics import PASS_THRESHOLD
from calipers.names import METRICS, OF_RANGE
from calipers.remarks import Remark
from calipers.reports import terminal
from calipers.reports.axes import UNIT, Axis, EndsSeen, axes_of, is_range_known
from calipers.reports.document import (
    Blank,
    Block,
    Cell,
    Document,
    Glance,
    Instead,
    Name,
    Picture,
    Piece,
    Row,
    Sentence,
    SentenceList,
    Styled,
    Table,
    TableColumn,
    Text,
    Title,
)
from calipers.reports.figures import (
    EACH_BY_ITSELF,
    NONE,
    POLICY,
    a_or_an,
    account,
    advice_of,
    asked_again,
    bounds_words,
    counted,
    decimals,
    exceptions,
    figure,
    over,
    percent,
    reason,
    remarks,
    size,
    stopped,
    too_few,
    whole_account,
)
from calipers.reports.remark_texts import text_of
from calipers.reports.result import Group, Result, Slice
from calipers.reports.sentences import (
    ONE_SAMPLE,
    Answer,
    Quantity,
    begun,
    digits,
    level,
    minus,
    of_quantity,
    of_run,
    of_suite,
    outcomes,
    places,
    planned,
    quantity,
    samples_each,
    spent,
    to,
    to_narrow,
    unit,
)
from calipers.reports.untrusted_text import clean, width, without_middle
from calipers.rollouts.checks import Check, disagreements
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import OUTCOMES
from calipers.stats.estimate import Estimate
from calipers.stats.suite import SuiteMeans

LINES = 25  # lines of a page
DIGEST, SHORT_DIGEST = 23, 15  # characters of a digest, and of a digest on a line without room
FEWEST = 4  # least number of lines of a shortened table: a heading, two rows, and the number of rows left out
MANY_SLICES = 8  # with more slices than this, the worst come first
WARNINGS = 3  # number of warnings that are shown
NAME = 34  # greatest width of a name in a line
ROW_NAME = 30  # greatest width of a name in a table
PICTURE = (19, 47)  # width of an axis on a narrow and on a wide page
WIDE = terminal.FROM
NOT_ADJUSTED = "intervals are not adjusted for the number of slices"
CASES = "if missing failed / passed"
UNBIASED: Final = "unbiased estimate: "
_LEDGER, _LABEL = 17, 13  # widths of the labels of lines
_SAME = 1e-12  # numbers that differ by less are equal: they were only added in another order


def blocks(result: Result, economics_too: bool = False, every: bool = False, command: str = "") -> Iterator[Block]:
    """The page: the numbers of one group, or a row for each of several groups.

    ``command`` is put before the options that the page names, if another command than score prints it.
    """
    one = len(result.groups) == 1
    parts = _group_page(result, result.groups[0], economics_too) if one else _several(result, economics_too)
    yield from _fitted(parts, every, command)
    yield Blank()
    yield _foot(result, command)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a page. ``tables`` may lose rows so that the page fits; the first table loses rows last."""

    head: Sequence[Block]
    tables: Sequence[_Cut]
    tail: Sequence[Block]
    extra: Sequence[Block] = ()  # requested beyond the page; the tables lose no rows for it


@dataclass(frozen=True, slots=True)
class _Cut:
    """A table that may lose its last rows, with the blocks before and after it."""

    table: Table
    before: Sequence[Block] = ()
    after: Sequence[Block] = ()
    note: str = ""  # below the table, on the line with the number of rows left out


def fitted(head: Sequence[Block], table: Table, tail: Sequence[Block], option: str) -> Iterator[Block]:
    """A page of a head, a table with as many rows as fit, and a tail; ``option`` is the option that shows all rows."""
    parts = _Parts(head, [_Cut(table)] if table.rows else [], tail)
    yield from _fitted(parts, every=False, option=option, foot=0)


def _fitted(parts: _Parts, every: bool, command: str = "", option: str = "--all", foot: int = 2) -> Iterator[Block]:
    """The blocks of a page, with as many rows as fit, or all rows with ``every``. A foot of ``foot`` lines follows.

    Tables with few rows keep all of them, so most pages need not be measured.
    """
    few = sum(len(cut.table.rows) for cut in parts.tables) <= FEWEST
    kept = [cut.table.rows for cut in parts.tables] if every or few else _rows_that_fit(parts, foot)
    yield from parts.head
    for cut, rows in zip(parts.tables, kept, strict=True):
        left = len(cut.table.rows) - len(rows)
        yield from cut.before
        yield Table(cut.table.columns, rows, cut.table.notes_head, across=True)
        cut_off = f"… {left:,} more: {command}{option}" if left else ""
        if words := "; ".join(filter(None, (cut_off, cut.note))):
            yield Sentence(words, "note")
        yield from cut.after
    yield from (*parts.tail, *parts.extra)


def _rows_that_fit(parts: _Parts, foot: int) -> Iterator[Sequence[Row]]:
    """The rows of each table that a page has room for."""
    around = [*parts.head, *parts.tail, *(block for cut in parts.tables for block in (*cut.before, *cut.after))]
    empty = [Table(cut.table.columns, [], across=True) for cut in parts.tables]
    room = LINES - _lines([*around, *empty]) - sum(bool(cut.note) for cut in parts.tables) - foot
    for number, cut in enumerate(parts.tables):
        later = sum(_least(each.table) - bool(each.note) for each in parts.tables[number + 1 :])
        rows = _first_rows(cut.table, room - later, noted=bool(cut.note))
        yield rows
        shown = Table(cut.table.columns, rows, cut.table.notes_head, across=True)
        left = len(rows) < len(cut.table.rows)
        room -= _lines([shown]) - _lines([empty[number]]) + bool(left and not cut.note)


def _least(table: Table) -> int:
    """The least number of lines that the rows of a table keep if there is no room for all."""
    return min(len(table.rows) + any(column.heading for column in table.columns), FEWEST)


def _first_rows(table: Table, room: int, *, noted: bool) -> Sequence[Row]:
    """As many rows as fit, with their headings and a line with the number of rows left out."""
    bare = _lines([Table(table.columns, [], across=True)])
    if len(table.rows) <= room and _lines([table]) - bare <= room:
        return table.rows
    rows = list(table.rows[: max(room, 2)])  # measure no more: a row takes at least a line, and there may be a million
    while len(rows) > 1 and _lines([Table(table.columns, rows, across=True)]) - bare + (not noted) > room:
        rows.pop()
    saves_lines = len(table.rows) - len(rows) > 1 or noted  # a line "1 more" in place of one row saves none
    return rows if saves_lines else table.rows


def _lines(blocks: Sequence[Block]) -> int:
    page = Document(lambda: blocks, dict, paged=True)
    return sum(1 for _ in terminal.lines(page, terminal.NARROW))


def _group_page(result: Result, group: Group, economics_too: bool) -> _Parts:
    """The page of one group."""
    answer = answer_of(result, group)
    rows = list(same_rows(result, group))
    named_width = min(max((len(name) for name, _, _ in rows), default=0), ROW_NAME)
    cuts = list(_breakdowns(result, [("", group)], named_width))
    head = [*head_blocks(_about(result, group), samples_each(group.ledger)), *answer_blocks(answer)]
    if group.stop:
        head.append(Sentence(Name(stopped(group.stop), None)))
    head += disagreement_blocks(result.checks)
    head += [Blank()] if group.metrics or not cuts else []  # a table of slices begins with a blank line
    notes = _notes([(name, estimate) for name, estimate, _ in rows])
    notes += range_note([estimate for _, estimate, _ in rows], group.ends_seen)
    numbers = _Cut(_metrics(result, rows, group.ends_seen, named_width), (), notes)
    tail: list[Block] = [Blank(), *_ledger(result, group)]
    tail += [] if economics_too else _cost(group)
    tail += [*_narrow(group), *_warnings(group)]
    tables = [numbers, *cuts] if group.metrics else cuts
    extra = list(economics(group, result)) if economics_too else []
    return _Parts(head, tables, tail, extra)


def head_blocks(about: str, right: str) -> list[Block]:
    """The first line of a page: its subject, and its size on the right."""
    return [Title("", markdown=Name(about, None)), Sentence(Name(about, None), right=right, markdown=right)]


def answer_blocks(answer: Answer) -> list[Block]:
    """The sentence, with its uncertainty on the same line, or below if the line has no room."""
    line, below = answer.line, answer.below
    if answer.brackets and width(line) > terminal.NARROW:
        line, below = answer.sentence, answer.detail if answer.detail.endswith(".") else f"{answer.detail}."
    first: list[Block] = [Sentence(line, "strong", markdown=(Styled(line),))]
    return [*first, Sentence(below)] if below else first


def disagreement_blocks(checks: Sequence[Check]) -> list[Block]:
    """The warnings that the numbers of the system which wrote the rollouts differ from ours."""
    return [warning(text_of(remark)) for remark in disagreements(checks)]


def warning(text: str) -> Sentence:
    """A warning on a line of its own."""
    return Sentence(f"warning: {text}", markdown=(Styled("Warning:"), f" {text}"))


def answer_of(result: Result, group: Group) -> Answer:
    """The answer of a group, by its first metric."""
    name, estimate = next(iter(group.metrics.items()), ("", None))
    who, dataset = (_short(text or "") for text in (group.model or group.agent, group.dataset))
    if estimate is None:
        return _of_slices(result, group, who)
    if unit(estimate) and estimate.value is not None:
        shown = quantity(estimate)
        return of_quantity(who, dataset, clean(name), shown.value, shown.interval, shown.per, result.confidence)
    return of_run(
        who,
        dataset,
        clean(name),
        estimate,
        group.ledger,
        confidence=result.confidence,
        solved=group.ledger.passed is not None,
        first_tries=group.first_tries,
    )


def _of_slices(result: Result, group: Group, who: str) -> Answer:
    """The answer of a group in which only slices have metrics, such as training steps: that of the last slice."""
    for key, cut in group.breakdowns.items():
        last, part = list(cut.items())[-1]
        for name, estimate in part.metrics.items():
            if estimate.value is not None:
                digits = places(estimate.interval)
                sure = f"{level(result.confidence)}: {to(estimate.interval, digits)}" if estimate.interval else ""
                last_slice = f"{clean(key)} {clean(last, NAME)}, the last of {len(cut):,}"
                value = minus(figure(estimate.value, digits))
                return Answer(f"{who or 'The run'} has {a_or_an(clean(name))} of {value} on {last_slice}.", sure, sure)
    return Answer(f"{counted(group.ledger.scored, 'rollout')} of {group.ledger.planned:,} scored, and no metric.")


def _short(name: str) -> str:
    return without_middle([clean(name, None)], NAME)[0]


def _about(result: Result, group: Group) -> str:
    """The subject of a page: dataset, model and agent, or the file."""
    names = [_short(part) for part in (group.dataset, group.model, group.agent) if part]
    if not names and len(result.inputs) == 1:
        names = [_short(os.path.basename(result.inputs[0].path))]
    return " · ".join(names) or "rollouts"


def same_rows(result: Result, group: Group) -> Iterator[tuple[str, Estimate, list[str]]]:
    """The metrics of a group, with equal metrics as one: its name, its estimate, and its other names."""
    shown: set[str] = set()
    for name, estimate in group.metrics.items():
        if name in shown:
            continue
        shown.add(name)
        others = {other for other in group.metrics if other not in shown and _are_equal(estimate, group[other])}
        shown |= others
        yield name, estimate, sorted(others | set(_implied_names(result, group, name)), key=_order)


def _order(name: str) -> tuple[int, str]:
    usual = ("mean_reward", "pass_rate", "pass@1")
    return usual.index(name) if name in usual else len(usual), name


def _are_equal(first: Estimate, second: Estimate) -> bool:
    """Whether two metrics of one sample have the same value, interval and bounds."""
    for estimate in (first, second):
        if estimate.value is None or estimate.made.metric not in ONE_SAMPLE or estimate.made.k not in (None, 1):
            return False
    if (first.interval is None, first.bounds is None) != (second.interval is None, second.bounds is None):
        return False
    first_numbers = first.value, *(first.interval or ()), *(first.bounds or ())
    second_numbers = second.value, *(second.interval or ()), *(second.bounds or ())
    differences: list[float] = list(map(abs, map(sub, first_numbers, second_numbers)))
    return max(differences) < _SAME


def _implied_names(result: Result, group: Group, name: str) -> list[str]:
    """Other metrics that equal a mean of 0/1 rewards without being computed.

    If each sample has one reward that is 0 or 1, pass@1 is the mean reward of each task, and so is the pooled pass rate
    if all tasks have the same number of rewards. With a given range the mean reward has another interval.
    """
    estimate, usual = group.metrics[name], result.dialect == "native" and name == "mean_reward"
    ranged = any(setting.startswith("range:") for setting in estimate.made.settings)
    if not usual or group.ledger.passed is None or ranged or estimate.interval is None or group.stop:
        return []
    names = ["pass@1", *(["pass_rate"] if estimate.samples_per_task is None else [])]
    return [other for other in names if other not in group.metrics]


def _columns(first: Text, result: Result, width: int, last: Sequence[TableColumn]) -> list[TableColumn]:
    return [
        TableColumn(first, after=3, width=width, middle=True),
        TableColumn("value", "right", after=3),
        TableColumn(_level(result), after=4, width=len("0.000 to 0.000")),
        TableColumn(style="chart", only="terminal", optional=True, sizes=PICTURE),
        *last,
    ]


def _level(result: Result) -> str:
    return level(result.confidence).replace("\N{NO-BREAK SPACE}", " ")


def _metrics(result: Result, rows: Sequence[tuple[str, Estimate, Sequence[str]]], seen: EndsSeen, width: int) -> Table:
    """A row for each metric: value, interval, picture, and its other names; on a wide page also the bounds."""
    estimates = [estimate for _, estimate, _ in rows]
    decimals = digits(estimates)
    drawn = pictures(estimates, seen)
    bounded = any(estimate.bounds for estimate in estimates)
    any_same = any(same for _, _, same in rows)
    cases = [TableColumn(CASES, only="markdown"), TableColumn(CASES, only="terminal", least=WIDE)] if bounded else []
    last = TableColumn("", optional=True, markdown="same as" if any_same else "", below=WIDE if bounded else 0)
    cells: list[Row] = []
    for (name, estimate, same), cell in zip(rows, drawn, strict=True):
        shown = quantity(estimate, decimals)
        remark = f"= {', '.join(map(clean, same))}" if same else shown.per or passes_from(estimate)
        bounds = to(estimate.bounds, decimals) if estimate.bounds else ""
        case_cells = [bounds, "  ".join(filter(None, (bounds, remark)))] if bounded else []
        numbers: list[Cell] = [shown.value, _interval(estimate, shown), cell, *case_cells, remark]
        cells.append(Row([Name(name, plain=_cell_name(name)), *numbers]))
    return Table(_columns("metric", result, width, [*cases, last]), cells)


def passes_from(estimate: Estimate) -> str:
    """The reward from which a sample passes, if it is not the usual one."""
    threshold = estimate.threshold
    return "" if threshold in (None, PASS_THRESHOLD) else f"pass: reward >= {threshold:g}"


def _interval(estimate: Estimate, shown: Quantity) -> str:
    """The interval, or a short reason why there is none."""
    return shown.interval or ("one task" if estimate.tasks == 1 else NONE)


def _cell_name(name: str) -> str:
    return without_middle([clean(name, None)], ROW_NAME)[0]


def round_axis(ends: Sequence[float], spare: float = 0.0) -> Axis | None:
    """An axis between round numbers that holds all ``ends``, with ``spare`` times their range on either side."""
    low, high = min(ends), max(ends)
    low, high = low - spare * (high - low), high + spare * (high - low)
    if not math.isfinite(high - low) or low >= high:
        return None
    step = 10 ** math.floor(math.log10(high - low))
    if step == 0:  # the range is too small for a power of ten
        return None
    step = step / 2 if (high - low) / step < 2 else step
    first, last = math.floor(low / step + _SAME) * step, math.ceil(high / step - _SAME) * step
    first, last = round(first, 12) + 0.0, round(last, 12) + 0.0
    return (first, last) if first < last else None  # equal if the range is below 12 decimals


def pictures(estimates: Sequence[Estimate], seen: EndsSeen, *, headless: bool = False) -> list[Cell]:
    """The intervals of a table, each on its axis; one whose axis is not that of the first names its ends.

    "" for an estimate without an interval. ``headless``: no head names the first axis, so that only 0 to 1 needs none.
    """
    axes = axes_of(estimates, seen)
    head = UNIT if headless else next((axis for axis in axes if axis is not None), None)
    drawn: list[Cell] = []
    for estimate, axis in zip(estimates, axes, strict=True):
        if axis is None or estimate.interval is None or estimate.value is None:
            drawn.append("")
        else:
            own = axis != head
            drawn.append(Picture(estimate.value, *estimate.interval, axis, bounds=estimate.bounds, own_axis=own))
    return drawn


def range_note(estimates: Sequence[Estimate], seen: EndsSeen) -> list[Block]:
    """The note that the range of rewards is not given, if something is drawn on the ends seen."""
    axes = axes_of(estimates, seen)
    unknown = any(axis and not is_range_known(each, seen) for each, axis in zip(estimates, axes, strict=True))
    return [Sentence(text_of(Remark("range_not_given")), "note", indent=1)] if unknown else []


def all_seen(groups: Iterable[Group]) -> dict[str, tuple[float, float]]:
    """The lowest and the highest value of each reward in any group."""
    seen: dict[str, tuple[float, float]] = {}
    for group in groups:
        for key, (low, high) in group.ends_seen.items():
            first, last = seen.get(key, (low, high))
            seen[key] = min(first, low), max(last, high)
    return seen


def _notes(numbers: Sequence[tuple[str, Estimate]]) -> list[Block]:
    """Why estimates lack tasks or an interval: each reason once, with the metrics to which it applies."""
    names: dict[str, list[str]] = {}
    for name, estimate in numbers:
        valued = estimate.value is not None
        few = too_few(estimate) if valued or (estimate.made.k or 1) > 1 else []
        explained = estimate.tasks == 1 if valued else bool(few)  # the row says "one task"
        why = [] if explained else reason(estimate)
        for words in (*_meaning(name, estimate), *few, *why):
            names.setdefault(words, []).append(_cell_name(name))
    every = len(numbers)
    return [
        Sentence(words if len(metrics) == every > 1 else f"{', '.join(metrics)}: {words}", "note", indent=1)
        for words, metrics in names.items()
    ]


def _meaning(name: str, estimate: Estimate) -> list[str]:
    """The definition of a metric, if another dialect's rules give its name another meaning, such as EvSys' pass@3."""
    ours = METRICS.match(name.partition("(")[0])
    return [described(estimate)] if ours and ours[0] != estimate.made.metric else []


def _ledger(result: Result, group: Group) -> list[Block]:
    """The account of all planned rollouts: those that count as 0, and how the missing ones could change a number."""
    ledger = group.ledger
    lines: list[Block] = [Sentence(planned(ledger, result.missing))]
    lines += _outcomes(ledger)
    if ledger.gaps and (words := _bounds_line(group)):
        lines.append(Sentence(words, label=" " * _LEDGER, markdown="", below=WIDE))
    if ledger.attempts > ledger.planned:
        lines.append(Sentence(f"{counted(ledger.attempts - ledger.planned, 'earlier attempt')} excluded", indent=1))
    if ledger.asked_again:
        lines.append(Sentence(asked_again(ledger.asked_again), indent=1))
    for key, number in ledger.lacking.items():
        lines.append(Sentence((f"{number:,} scored without reward ", Name(key)), indent=1))
    if raised := exceptions(ledger):
        lines.append(Sentence(raised, indent=1))
    return lines


def _outcomes(ledger: Ledger) -> list[Block]:
    kinds: tuple[Literal["counted as 0", "missing"], ...] = ("counted as 0", "missing")
    return [Sentence(words, label=f"  {kind}".ljust(_LEDGER)) for kind in kinds if (words := outcomes(ledger, kind))]


def _bounds_line(group: Group) -> str:
    """The bounds of the first metric that has bounds: if all missing rollouts failed, and if all passed."""
    name, estimate = next(((name, each) for name, each in group.metrics.items() if each.bounds), ("", None))
    if estimate is None:
        return ""
    decimals = digits([estimate])
    words = bounds_words(estimate, group.ledger, lambda end: minus(figure(end, decimals)), short=True)
    return f"{_cell_name(name)} {words}"


def _cost(group: Group) -> list[Block]:
    words = spent(group.totals, group.economics)
    return [Sentence(words, label="cost".ljust(_LABEL))] if words else []


def economics(group: Group, result: Result) -> Iterator[Block]:
    """Times, tokens and money as a table, with their units."""
    yield Blank()
    whys: dict[str, list[str]] = {}
    rows = []
    for name, estimate in group.economics.items():
        shown = quantity(estimate)
        rows.append(
            Row(
                [named(name, estimate), shown.value, shown.interval, shown.per, size(estimate)],
                (),
                "; ".join([described(estimate), *remarks(estimate)]),
            )
        )
        for why in reason(estimate):
            whys.setdefault(why, []).append(clean(name))
    columns = [
        TableColumn("economics"),
        TableColumn("value", "right"),
        TableColumn(_level(result), optional=True),
        TableColumn("unit", optional=True),
        TableColumn("n", optional=True, yields=1),
    ]
    if rows:
        yield Table(columns, rows, notes_head="what it is")
    for why, names in whys.items():
        yield Sentence(f"{', '.join(names)}: {why}", "note", indent=1, markdown="")
    if words := spent(group.totals, {}):
        yield Sentence(words, label="total  ")


def _narrow(group: Group) -> Iterator[Block]:
    for key, split in advice_of(group.metrics, group.variance):
        if words := to_narrow(split):
            text: Text = (Name(key), f": {words}") if key else words
            yield Sentence(text, label="to narrow".ljust(_LABEL))


def _warnings(group: Group) -> Iterator[Block]:
    for words in group.warnings[:WARNINGS]:
        yield warning(words)
    if len(group.warnings) > WARNINGS:
        yield Sentence(f"… {counted(len(group.warnings) - WARNINGS, 'warning')} more: --details", "note")


def _foot(result: Result, command: str) -> Sentence:
    """The settings that are not the defaults, and the digest: equal digests mean equal numbers."""
    settings = [] if result.dialect == "native" else [f"{clean(result.dialect)} rules"]
    settings += [] if result.missing == "gap" else [f"missing rollouts {POLICY.get(result.missing, result.missing)}"]
    settings += [f"seed {result.seed}"] if result.seed else []
    return digest_line(settings, result.digest, f"{command}--details")


def digest_line(settings: Sequence[str], digest: str, more: str) -> Sentence:
    """The last line of a page: settings that are not the defaults, the digest, and the option that shows more."""
    prefix = f"{', '.join(settings)}; " if settings else ""
    page = "   a page: calipers report"
    lines = [
        f"{prefix}{digest[:shown]}…   more: {more}{end}"
        for shown, end in ((DIGEST, page), (SHORT_DIGEST, page), (DIGEST, ""), (SHORT_DIGEST, ""))
    ]
    fitting = next((line for line in lines if width(line) <= terminal.NARROW), lines[-1])
    return Sentence(fitting, "note", markdown=(prefix, "digest ", Name(digest, None)))


def _breakdowns(result: Result, groups: Sequence[tuple[str, Group]], width: int) -> Iterator[_Cut]:
    """A table for each key of ``--by``: a row for each slice, grouped by metric."""
    for key in dict.fromkeys(key for _, group in groups for key in group.breakdowns):
        cuts = [(name, group.breakdowns.get(key, {})) for name, group in groups]
        metrics = dict.fromkeys(name for _, cut in cuts for part in cut.values() for name in part.metrics)
        rows = [row for metric in metrics for name, cut in cuts for row in _slices(name, metric, cut)]
        if not rows:
            yield _Cut(Table([TableColumn(Name(key))], []), [Blank()], [Sentence("no rollouts", indent=1)])
            continue
        named_width = max(width, *(min(len(value), ROW_NAME) for _, value, _ in rows))
        named_rows = [
            (Name(heading, None, heading), Name(value, plain=_cell_name(value)), estimate, [f"{estimate.tasks:,}"])
            for heading, value, estimate in rows
        ]
        table = _headed_table(Name(key, plain=_cell_name(key)), result, named_rows, named_width, ["tasks"])
        yield _Cut(table, [Blank()], note=NOT_ADJUSTED if len(rows) > 1 else "")


def _headed_table(
    first: Text,
    result: Result,
    rows: Sequence[tuple[Name, Name, Estimate, Sequence[str]]],
    width: int,
    last: Sequence[str],
) -> Table:
    """A row for each estimate, given with its heading, its name and its cells in the columns ``last``."""
    estimates = [estimate for _, _, estimate, _ in rows]
    decimals = digits(estimates)
    columns = _columns(first, result, width, [TableColumn(head, "right") for head in last])
    headed = len({heading for heading, _, _, _ in rows}) > 1
    if headed:
        columns.insert(1, TableColumn("metric", heading=True))
    cells = []
    drawn = pictures(estimates, all_seen(result.groups))
    for (heading, name, estimate, more), cell in zip(rows, drawn, strict=True):
        shown = quantity(estimate, decimals)
        numbers: list[Cell] = [shown.value, _interval(estimate, shown), cell, *more]
        cells.append(Row([name, *([heading] if headed else []), *numbers]))
    return Table(columns, cells)


def _slices(name: str, metric: str, cut: Mapping[str, Slice]) -> list[tuple[str, str, Estimate]]:
    """A metric of each slice of a group, as (heading, slice, estimate); the worst first if there are many slices."""
    numbers = [(value, part[metric]) for value, part in cut.items() if metric in part.metrics]
    if len(numbers) > MANY_SLICES:
        numbers.sort(key=lambda item: _goodness(item[1]))
    heading = " · ".join(filter(None, (name, _cell_name(metric))))
    return [(heading, value, estimate) for value, estimate in numbers]


def _goodness(estimate: Estimate) -> float:
    """A sort key that puts the worst estimate first, and an estimate without a value last."""
    if estimate.value is None or not math.isfinite(estimate.value):
        return math.inf
    return -estimate.value if estimate.higher_is_better is False else estimate.value


def _several(result: Result, economics_too: bool) -> _Parts:
    """The page of several groups: for each metric, a row for each group and then the means over datasets."""
    groups = result.groups
    names = group_names(groups)
    same = _same_everywhere(result)
    metrics = list(same)
    numbers: list[tuple[str, str, Estimate, str]] = []
    for metric in metrics:
        for name, group in zip(names, groups, strict=True):
            if metric in group.metrics:
                numbers.append((metric, name, group[metric], f"{group.ledger.gaps:,}"))
        for suite in result.suites:
            if metric in suite.metrics:
                runner = " · ".join(filter(None, (suite.model, suite.agent))) if len(result.suites) > 1 else ""
                macro = suite.metrics[metric].macro
                title = "mean of range" if f"mean:{OF_RANGE}" in macro.made.over else "macro mean"
                mean = f"{title} · {_short(runner)}" if runner else title
                numbers.append((metric, mean, macro, ""))
    width = max((len(_cell_name(name)) for _, name, _, _ in numbers), default=0)
    cuts = list(_breakdowns(result, list(zip(names, groups, strict=True)), width))
    one_metric = " = ".join(map(clean, (metrics[0], *same[metrics[0]]))) if len(metrics) == 1 else ""
    head = head_blocks(counts_of(groups), ", ".join(filter(None, (one_metric, f"{_level(result)}s"))))
    head += [*answer_blocks(answer_of_several(result)), *disagreement_blocks(result.checks)]
    head += [Blank()] if numbers or not cuts else []
    ledger = _added([group.ledger for group in groups])
    tail: list[Block] = [Blank(), Sentence(planned(ledger, result.missing))]
    tail += _outcomes(ledger)
    extra: list[Block] = []
    if economics_too:
        for name, group in zip(names, groups, strict=True):
            if group.economics or group.totals:
                extra += [Blank(), Title(Name(name, None)), *economics(group, result)]
    elif words := spent(_totals(groups), {}):
        tail.append(Sentence(words, label="cost".ljust(_LABEL)))
    tail += _group_warnings(names, groups)
    noted = [(f"{name} {metric}" if len(metrics) > 1 else name, each) for metric, name, each, _ in numbers]
    rows = [
        (Name(metric, None, _cell_name(metric)), Name(name, None, _cell_name(name)), each, [f"{each.tasks:,}", missing])
        for metric, name, each, missing in numbers
    ]
    notes = [*_notes(noted), *range_note([each for _, _, each, _ in numbers], all_seen(groups))]
    tables = [_Cut(_headed_table("group", result, rows, width, ["tasks", "missing"]), (), notes)]
    return _Parts(head, [*(tables if numbers else []), *cuts], tail, extra)


def _same_everywhere(result: Result) -> dict[str, list[str]]:
    """Each metric -> its other names; none for any metric unless all groups have the same metrics and other names."""
    by_group = [{name: others for name, _, others in same_rows(result, group)} for group in result.groups]
    if all(others == by_group[0] for others in by_group):
        return by_group[0] if by_group else {}
    return {name: [] for group in result.groups for name in group.metrics}


def group_names(groups: Sequence[Group]) -> list[str]:
    """Names that distinguish the groups: the parts of their titles in which they differ."""
    keys = ("dataset", "model", "agent")
    differ = [key for key in keys if len({getattr(group, key) for group in groups}) > 1] or list(keys)
    parts = [[clean(getattr(group, key) or "", None) for key in differ] for group in groups]
    names = [" · ".join(each).strip(" ·") or "(unnamed)" for each in parts]
    if len(set(names)) == len(names):
        return names
    return [" · ".join(part or NONE for part in each) for each in parts]  # such as a dataset "a" and a model "a"


def counts_of(groups: Sequence[Group]) -> str:
    """``2 datasets, 3 models``; with the dataset or the model that all groups share."""
    parts = []
    for key in ("dataset", "model", "agent"):
        values = {getattr(group, key) for group in groups}
        only = next(iter(values)) if len(values) == 1 else None
        if len(values) > 1:
            parts.append(counted(len(values), key))
        elif only:
            parts.append(_short(only))
    return ", ".join(parts) or counted(len(groups), "group")


def answer_of_several(result: Result) -> Answer:
    """The answer of several groups: a model's mean over datasets, or how to compare the models."""
    if len(result.suites) == 1 and (metrics := result.suites[0].metrics):
        suite, (name, means) = result.suites[0], next(iter(metrics.items()))
        who = _short(suite.model or suite.agent or "")
        if means.no_mean is not None:
            ways = " ".join(text_of(remark) for remark in means.remarks if remark is not means.no_mean)
            return Answer(text_of(means.no_mean), ways)
        return of_suite(who, len(suite.datasets), clean(name), means.macro, confidence=result.confidence)
    if not result.groups:
        return Answer("There are no rollouts.")
    runners = len({(group.model, group.agent) for group in result.groups})
    if runners > 1:
        models, agents = ({getattr(group, key) for group in result.groups} for key in ("model", "agent"))
        who = f"{runners} pairs of a model and an agent"
        if len(models) == 1 or len(agents) == 1:
            who = counted(runners, "model" if len(models) > 1 else "agent")
        return Answer(
            f"{who}: calipers leaderboard says which of them differ.",
            "Compare by differences on common tasks, not by whether these intervals overlap",
        )
    return Answer(f"{counted(len(result.groups), 'group')} of rollouts.")


def _added(ledgers: Sequence[Ledger]) -> Ledger:
    """The sum of the ledgers of several groups."""
    words = [word for word in OUTCOMES if any(word in each.outcomes for each in ledgers)]
    rewarded = [word for word in OUTCOMES if any(word in each.rewarded for each in ledgers)]
    origins = {each.planned_from for each in ledgers}
    return Ledger(
        planned=sum(each.planned for each in ledgers),
        planned_from=origins.pop() if len(origins) == 1 else "rows",
        tasks=sum(each.tasks for each in ledgers),
        scored=sum(each.scored for each in ledgers),
        gaps=sum(each.gaps for each in ledgers),
        attempts=sum(each.attempts for each in ledgers),
        outcomes={word: sum(each.outcomes.get(word, 0) for each in ledgers) for word in words},
        rewarded={word: sum(each.rewarded.get(word, 0) for each in ledgers) for word in rewarded},
        asked_again=sum(each.asked_again or 0 for each in ledgers) or None,
    )


def _totals(groups: Sequence[Group]) -> dict[str, float]:
    names = dict.fromkeys(name for group in groups for name in group.totals)
    return {name: sum(group.totals.get(name, 0.0) for group in groups) for name in names}


def _group_warnings(names: Sequence[str], groups: Sequence[Group]) -> list[Block]:
    """The warnings and stopping rules of several groups, each with its group's name."""
    warnings = [
        (name, words)
        for name, group in zip(names, groups, strict=True)
        for words in (*([stopped(group.stop)] if group.stop else []), *(f"warning: {text}" for text in group.warnings))
    ]
    lines: list[Block] = [Sentence((Name(name, None, _cell_name(name)), f": {words}")) for name, words in warnings]
    if len(warnings) > WARNINGS:
        lines[WARNINGS:] = [Sentence(f"… {counted(len(warnings) - WARNINGS, 'warning')} more: --details", "note")]
    return lines


def glance(result: Result) -> Glance:
    """A result for a notebook: the sentence, the numbers with pictures, and the ledger with the digest."""
    if len(result.groups) == 1:
        group = result.groups[0]
        rows = list(same_rows(result, group))
        numbers = [(f"{name} = {', '.join(same)}" if same else name, estimate) for name, estimate, same in rows]
        answer, ledger, first = answer_of(result, group), group.ledger, "metric"
    else:
        names, metrics = group_names(result.groups), list(_same_everywhere(result))
        numbers = [
            (f"{name} {metric}" if len(metrics) > 1 else name, group[metric])
            for metric in metrics
            for name, group in zip(names, result.groups, strict=True)
            if metric in group.metrics
        ]
        answer, ledger = answer_of_several(result), _added([group.ledger for group in result.groups])
        first = "group"
    estimates = [estimate for _, estimate in numbers]
    seen = all_seen(result.groups)
    decimals, drawn = digits(estimates), pictures(estimates, seen)
    columns = [
        TableColumn(first),
        TableColumn("value", style="value"),
        TableColumn(_level(result)),
        TableColumn(style="chart"),
        TableColumn("tasks"),
    ]
    cells = []
    for (name, estimate), cell in zip(numbers, drawn, strict=True):
        shown = quantity(estimate, decimals)
        per = f" {shown.per}" if shown.per else ""
        cells.append(Row([name, f"{shown.value}{per}", shown.interval, cell, f"{estimate.tasks:,}"]))
    hollow = " Hollow: from all missing failed to all passed." if any(each.bounds for each in estimates) else ""
    ranged = f" {begun(text_of(Remark('range_not_given')))}." if range_note(estimates, seen) else ""
    foot = f"{planned(ledger, result.missing)}.{hollow}{ranged} {result.digest[:19]}…"
    return Glance(str(answer) if not answer.brackets else answer.line, Table(columns, cells), foot)


def headline(result: Result) -> str:
    """A result on one line, for ``repr``."""
    if len(result.groups) != 1:
        return f"{counts_of(result.groups)}: {counted(len(result.groups), 'group')}"
    group = result.groups[0]
    decimals = digits(group.metrics.values())
    first = [f"{clean(name)} {_brackets(estimate, decimals)}" for name, estimate in list(group.metrics.items())[:1]]
    ledger = group.ledger
    missing = f"{ledger.gaps:,} of {ledger.planned:,} missing" if ledger.gaps else counted(ledger.planned, "rollout")
    return f"{_about(result, group)}: {', '.join([*first, counted(ledger.tasks, 'task'), missing])}"


def _brackets(estimate: Estimate, decimals: int) -> str:
    shown = quantity(estimate, decimals)
    ends = f" [{shown.interval.replace(' to ', ', ')}]" if shown.interval else ""
    return "without a value" if estimate.value is None else f"{shown.value}{ends}"


def described(estimate: Estimate) -> str:
    """A short definition of an estimate, by the estimator in its signature, not by its requested name.

    An estimate is called unbiased only if it has a value and all tasks have the same number of samples, because
    sample counts that differ may depend on results.
    """
    from calipers.cards import METRIC_CARDS, filled

    card, k = METRIC_CARDS.get(estimate.made.metric), estimate.made.k
    if card is None or estimate.made.over:
        script = estimate.made.metric == "metric_script"
        return "computed by a metric script" if script else "computed by a plugin from all rewards"
    beyond = card.name == "bayes_pass@{k}" and k is not None and k * estimate.tasks > estimate.samples
    even = estimate.value is not None and not estimate.samples_per_task
    unbiased = UNBIASED if card.unbiased and even else ""
    return unbiased + filled(card.short, k) + (", extrapolated beyond the samples" if beyond else "")


def title(group: Group, result: Result) -> str:
    """The name of a group; "" if it has none and is the only group."""
    return clean(group.title, 200) or ("(unnamed)" if len(result.groups) > 1 else "")


def named(name: str, estimate: Estimate) -> tuple[Name, str]:
    """A metric's name with an arrow that shows which direction is better."""
    return Name(name), {True: " ↑", False: " ↓", None: ""}[estimate.higher_is_better]


_WIDEST_NAME = 20  # a wider name gets a line of its own, above its numbers


def detailed_blocks(result: Result) -> Iterator[Block]:
    """Each group with its ledger and a table of its numbers, then the means over datasets, and the inputs."""
    groups = map(partial(_group_blocks, result=result), result.groups)
    suites = map(partial(_suite_blocks, result=result), result.suites)
    return chain.from_iterable(chain([disagreement_blocks(result.checks)], groups, suites, [_origin(result)]))


def _group_blocks(group: Group, result: Result) -> Iterator[Block]:
    yield Title(Name(name, None) if (name := title(group, result)) else "")
    account_of, raised = whole_account(group.ledger, result.missing), exceptions(group.ledger)
    yield Sentence(account_of, markdown="; ".join(filter(None, (account_of, raised))))
    yield Sentence(raised, markdown="")
    if group.stop:
        yield Sentence(Name(stopped(group.stop), None))
    yield Blank()
    if group.metrics:
        rows = []
        estimates = list(group.metrics.values())
        for (name, estimate), drawn in zip(
            group.metrics.items(), pictures(estimates, group.ends_seen, headless=True), strict=True
        ):
            what = described(estimate)
            if group.stop:  # estimates of a run that was stopped by its results are biased
                what = what.removeprefix(UNBIASED)
            passes = filter(None, [passes_from(estimate)])
            notes = [what, *passes, *remarks(estimate, group.ledger)]
            rows.append(_row([named(name, estimate)], estimate, drawn, notes))
        yield _estimates([_first("metric")], rows, result, notes_head="what it is")
        yield from range_note(estimates, group.ends_seen)
    for key, split in advice_of(group.metrics, group.variance):
        about = ("mean reward (", Name(key), f"): {split.advice}") if key else f"mean reward: {split.advice}"
        yield Sentence(about, "note")
    for words in group.warnings:
        yield warning(words)
    for key, cut in group.breakdowns.items():
        yield from _breakdown(key, cut, result, group.ends_seen)
    if group.economics or group.totals:
        yield from economics(group, result)
    yield Blank()


def _breakdown(key: str, cut: Mapping[str, Slice], result: Result, seen: EndsSeen) -> Iterator[Block]:
    """The slices of a group, grouped by metric, so that their intervals can be compared."""
    yield Blank()
    if not cut:
        yield Sentence(("by ", Name(key), ": no rollouts"), "strong", whole=True)
        return
    yield Sentence(("by ", Name(key)), "strong", whole=True, markdown="")
    yield SentenceList(
        [Sentence((Name(value), f": {account(part.ledger, result.missing)}"), indent=1) for value, part in cut.items()]
    )
    yield Blank()
    shown = [(name, value, part) for name in next(iter(cut.values())).metrics for value, part in cut.items()]
    drawn = pictures([part[name] for name, _, part in shown], seen, headless=True)
    rows = []
    for (name, value, part), cell in zip(shown, drawn, strict=True):
        estimate = part[name]
        notes = [*too_few(estimate), *reason(estimate)]
        full = "; ".join(remarks(estimate, part.ledger))
        rows.append(_row([Name(value), named(name, estimate)], estimate, cell, notes, full))
    yield _estimates([_first(Name(key), ("by ", Name(key))), TableColumn("metric", heading=True)], rows, result)
    if len(cut) > 1:
        yield Sentence(EACH_BY_ITSELF, "note")


def _kind(name: str, mean: Estimate) -> str:
    """The name of a mean over datasets: ``macro``, or ``macro of range``."""
    return f"{name} of range" if f"mean:{OF_RANGE}" in mean.made.over else name


def _suite_blocks(suite: SuiteMeans, result: Result) -> Iterator[Block]:
    """The means over datasets, grouped by metric."""
    yield Title(Name(over(suite), None))
    datasets = [piece for name in suite.datasets for piece in (", ", Name(name))]
    yield Sentence(tuple(datasets[1:]))
    yield Blank()
    kinds = [
        (name, kind, estimate)
        for name, means in suite.metrics.items()
        for kind, estimate in ((_kind("macro", means.macro), means.macro), (_kind("micro", means.micro), means.micro))
    ]
    drawn = pictures([estimate for _, _, estimate in kinds], all_seen(result.groups), headless=True)
    rows = []
    for (name, kind, estimate), cell in zip(kinds, drawn, strict=True):
        why = reason(estimate)  # may contain the name of a dataset
        names = tuple(Name(words, None) for words in why)
        rows.append(_row([kind, named(name, estimate)], estimate, cell, why, names))
    yield _estimates([_first("over datasets"), TableColumn("metric", heading=True)], rows, result)
    yield Sentence(
        "macro: every dataset has the same weight; micro: every task has the same weight", "note", whole=True
    )
    yield Blank()


def _first(head: Text, markdown: Text | None = None) -> TableColumn:
    return TableColumn(head, style="strong", markdown=markdown, widest=_WIDEST_NAME)


def _estimates(first: Sequence[TableColumn], rows: Sequence[Row], result: Result, notes_head: str = "") -> Table:
    """A table of estimates. A narrow terminal shows the number of tasks and samples below each row."""
    columns = [
        *first,
        TableColumn("value", "point", "value", optional=True),
        TableColumn("± stderr", "point", optional=True),
        TableColumn(f"{percent(result.confidence)} interval", optional=True),
        TableColumn(style="chart", only="terminal", optional=True, yields=2),
        TableColumn("unit", optional=True, only=None if any(row.cells[-2] for row in rows) else "terminal"),
        TableColumn("n", optional=True, yields=1),
    ]
    return Table(columns, rows, notes_head=notes_head, once="every row:")


def _row(
    first: Sequence[Text], estimate: Estimate, drawn: Cell, notes: Sequence[str], markdown: Text | None = None
) -> Row:
    places, number = decimals(estimate), size(estimate)
    if unit(estimate):
        shown = quantity(estimate)
        cells, per = [shown.value, shown.stderr, shown.interval], shown.per
    else:
        interval = to(estimate.interval, places) if estimate.interval else ""
        cells, per = [minus(figure(estimate.value, places)), figure(estimate.stderr, places), interval], ""
    return Row([*first, *cells, drawn, per, number], [*notes, Instead(number)], markdown)


def _origin(result: Result) -> Iterator[Block]:
    """The inputs, the settings and the digest: equal digests mean equal numbers."""
    sources: list[Piece] = []
    for source in result.inputs[:3]:
        what = source.format, counted(source.rollouts, "rollout")
        yield Sentence((Name(source.path, None), f": {', '.join(what)}"), "note", markdown="")
        sources += [", " if sources else "", Name(source.path, None), f" ({', '.join(what)})"]
    more = ""
    if len(result.inputs) > 3:
        more = f"and {counted(len(result.inputs) - 3, 'file')} more"
        yield Sentence(more, "note", whole=True, markdown="")
    policy = POLICY.get(result.missing, result.missing)
    settings = Name(result.dialect), f" definitions; missing rollouts {policy}; seed {result.seed}; digest "
    before = (*sources, f" {more}" if more else "", "; " if sources else "")
    digest = Name(result.digest[:23])
    yield Sentence((*settings, digest, "…"), "note", markdown=(*before, *settings, digest))
