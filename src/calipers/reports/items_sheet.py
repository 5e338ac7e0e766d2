"""The tasks of a benchmark laid out for people: what they tell in a few sentences, then task by task."""

from __future__ import annotations

import string
from collections.abc import Iterator

from calipers.reports.figures import NONE, counted, figure
from calipers.reports.items import CONTRADICTS, EVERYONE, MIXED, NOBODY, Item, ItemReport, ItemTable
from calipers.reports.safe import clean
from calipers.reports.sheet import Block, Said, Table, Title

MOST_RUNS = 5  # whose values have a column each
P_HEAD = "p (contradicts)"
P_MEANS = (
    f"{P_HEAD}: the chance of a discrimination so low for a task that does not tell runs apart; one-sided, each task "
    "by itself"
)
WORDS = {EVERYONE: "everyone solves it", NOBODY: "nobody solves it", CONTRADICTS: "contradicts the rest", MIXED: ""}
ALONE = {EVERYONE: "always solved", NOBODY: "never solved", MIXED: ""}  # one run is not everyone


def sheet(report: ItemReport) -> list[Block]:
    """Everything that a report has to say."""
    return [block for table in report.tables for block in _table(table, report)]


def _table(table: ItemTable, report: ItemReport) -> Iterator[Block]:
    own = f"reward {table.reward}" if table.reward != "reward" else ""
    if title := " · ".join(filter(None, (table.dataset, own))):
        yield Title(title, foreign=True)
    yield Said(summary(table))
    for note in table.notes:
        yield Said(f"note: {note}")
    letters = _letters(len(table.runs))
    yield Table(
        ["run", "", "mean", "tasks", "samples", "variance: tasks", "of a sample", "share of sampling"],
        [
            [
                letter,
                clean(run.name, 40),
                figure(run.mean, 4),
                f"{run.tasks:,}",
                f"{run.samples:,}",
                figure(run.split.tasks if run.split else None, 4),
                figure(run.split.sampling if run.split else None, 4),
                f"{100 * run.split.share:.0f} %" if run.split else NONE,
            ]
            for letter, run in zip(letters, table.runs, strict=True)
        ],
        numbers=frozenset({2, 3, 4, 5, 6, 7}),
        names=frozenset({1}),
    )
    for letter, run in zip(letters, table.runs, strict=True):
        yield Said(f"{letter}: {run.advice}" if len(table.runs) > 1 else run.advice, note=True)
    yield _items(table, letters, report.limit)
    shown = len(table.items[: report.limit])
    if shown < len(table.items):
        yield Said(f"{shown:,} of {len(table.items):,} tasks, by {report.sort}; --limit 0 shows all", note=True)
    yield Said(f"no discrimination: {table.why}" if table.why else P_MEANS, note=True)
    if table.why_information and (table.why is None or report.sort == "information"):
        yield Said(f"no information: {table.why_information}", note=True)


def summary(table: ItemTable) -> str:
    """What the tasks tell, in a sentence or two."""
    whole, everyone, nobody = len(table.items), table.count(EVERYONE), table.count(NOBODY)
    if len(table.runs) == 1:
        return f"{counted(whole, 'task')}: {everyone:,} always solved, {nobody:,} never."
    said = f"{counted(whole, 'task')}: everyone solves {everyone:,}, nobody {nobody:,}"
    if flagged := table.count(CONTRADICTS):
        said += f", {flagged:,} contradict{'s' if flagged == 1 else ''} the rest"
    shared = [item for item in table.items if sum(value is not None for value in item.values) > 1]
    silent = sum(item.kind in (EVERYONE, NOBODY) for item in shared)
    tells = ""
    if silent and len(shared) == 1:
        tells = " The one task that several runs have does not tell them apart."
    elif silent:
        of = "the tasks" if len(shared) == whole else f"the {len(shared):,} that several runs have"
        tells = f" {100 * silent / len(shared):.0f} % of {of} do not tell these runs apart."
    lone = whole - len(shared)
    alone = (
        f" {lone:,} {'is' if lone == 1 else 'are'} of one run alone, and tell nothing of the others." if lone else ""
    )
    return f"{said}.{tells}{alone}"


def _items(table: ItemTable, letters: list[str], limit: int | None) -> Table:
    each = 1 < len(table.runs) <= MOST_RUNS
    told, informed = table.why is None, table.why_information is None
    head = ["task", "difficulty", *(["discrimination", P_HEAD] if told else []), *(["information"] if informed else [])]
    head += [*(letters if each else []), "passes", ""]
    words = WORDS if len(table.runs) > 1 else ALONE
    rows = [
        [*_row(item, told=told, informed=informed, each=each), words.get(item.kind, "no reward")]
        for item in table.items[:limit]
    ]
    return Table(head, rows, numbers=frozenset(range(1, len(head) - 1)), names=frozenset({0}), strong=frozenset({1}))


def _row(item: Item, *, told: bool, informed: bool, each: bool) -> list[str]:
    row = [clean(item.task, 40), figure(item.difficulty, 3)]
    if told:
        row += [figure(item.discrimination, 2), NONE if item.p_contradicts is None else f"{item.p_contradicts:.3f}"]
    if informed:
        row.append(figure(item.information, 3))
    if each:
        row += [figure(value, 3) for value in item.values]
    return [*row, f"{item.passes:,}/{item.samples:,}"]


def _letters(count: int) -> list[str]:
    return list(string.ascii_uppercase[:count]) if count <= 26 else [str(number + 1) for number in range(count)]
