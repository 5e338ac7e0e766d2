"""All details of a result: every number with its standard error, definition and bounds; ledgers, economics, inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from calipers.reports.document import (
    Blank,
    Block,
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
    POLICY,
    account,
    advice_of,
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
from calipers.reports.result import Group, Result, Slice
from calipers.reports.result_page import UNBIASED, described, economics, named, title
from calipers.reports.sentences import minus, quantity, to, unit
from calipers.stats.estimate import Estimate
from calipers.stats.suite import SuiteMeans

_WIDEST_NAME = 20  # columns of a name that has its figures beside it


def blocks(result: Result) -> Iterator[Block]:
    """Each group with its ledger and a table of its numbers, then the means over datasets, and the inputs."""
    groups = map(partial(_group_blocks, result=result), result.groups)
    suites = map(partial(_suite_blocks, result=result), result.suites)
    return chain.from_iterable(chain(groups, suites, [_origin(result)]))


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
        for name, estimate in group.metrics.items():
            what = described(estimate)
            if group.stop:  # a run that its results stopped has no unbiased estimate
                what = what.removeprefix(UNBIASED)
            rows.append(_row([named(name, estimate)], estimate, [what, *remarks(estimate, group.ledger)]))
        yield _estimates([_first("metric")], rows, result, notes_head="what it is")
    for key, split in advice_of(group.metrics, group.variance):
        about = ("mean reward (", Name(key), f"): {split.advice}") if key else f"mean reward: {split.advice}"
        yield Sentence(about, "note")
    for words in group.warnings:
        yield Sentence(f"warning: {words}", markdown=(Styled("Warning:"), f" {words}"))
    for key, cut in group.breakdowns.items():
        yield from _breakdown(key, cut, result)
    if group.economics or group.totals:
        yield from economics(group, result)
    yield Blank()


def _breakdown(key: str, cut: Mapping[str, Slice], result: Result) -> Iterator[Block]:
    """A metric at a time, its slices under one another, so that their intervals can be compared."""
    yield Blank()
    if not cut:
        yield Sentence(("by ", Name(key), ": no rollouts"), "strong", whole=True)
        return
    yield Sentence(("by ", Name(key)), "strong", whole=True, markdown="")
    yield SentenceList(
        [Sentence((Name(value), f": {account(part.ledger, result.missing)}"), indent=1) for value, part in cut.items()]
    )
    yield Blank()
    rows = []
    for name in next(iter(cut.values())).metrics:
        for value, part in cut.items():
            estimate = part[name]
            notes = [*too_few(estimate), *reason(estimate)]
            full = "; ".join(remarks(estimate, part.ledger))
            rows.append(_row([Name(value), named(name, estimate)], estimate, notes, full))
    yield _estimates([_first(Name(key), ("by ", Name(key))), TableColumn("metric", heading=True)], rows, result)
    if len(cut) > 1:
        yield Sentence(EACH_BY_ITSELF, "note")


def _suite_blocks(suite: SuiteMeans, result: Result) -> Iterator[Block]:
    """The means over datasets, a metric at a time."""
    yield Title(Name(over(suite), None))
    datasets = [piece for name in suite.datasets for piece in (", ", Name(name))]
    yield Sentence(tuple(datasets[1:]))
    yield Blank()
    rows = []
    for name, means in suite.metrics.items():
        for kind, estimate in (("macro", means.macro), ("micro", means.micro)):
            why = reason(estimate)  # it names a dataset
            names = tuple(Name(words, None) for words in why)
            rows.append(_row([kind, named(name, estimate)], estimate, why, names))
    yield _estimates([_first("over datasets"), TableColumn("metric", heading=True)], rows, result)
    yield Sentence(
        "macro: every dataset has the same weight; micro: every task has the same weight", "note", whole=True
    )
    yield Blank()


def _first(head: Text, markdown: Text | None = None) -> TableColumn:
    return TableColumn(head, style="strong", markdown=markdown, widest=_WIDEST_NAME)


def _estimates(first: Sequence[TableColumn], rows: Sequence[Row], result: Result, notes_head: str = "") -> Table:
    """A table of estimates. A narrow terminal shows the number of tasks and samples under a row."""
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


def _row(first: Sequence[Text], estimate: Estimate, notes: Sequence[str], markdown: Text | None = None) -> Row:
    places, number = decimals(estimate), size(estimate)
    drawn: Picture | str = ""
    if unit(estimate):
        shown = quantity(estimate)
        cells, per = [shown.value, shown.stderr, shown.interval], shown.per
    else:
        if estimate.value is not None and estimate.interval is not None:
            drawn = Picture(estimate.value, *estimate.interval)
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
