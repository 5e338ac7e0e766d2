"""The tasks of a benchmark over runs: how hard each is, how well it separates runs, and the parts of the variance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from calipers.errors import UnknownName
from calipers.formats.read import Input
from calipers.reports.document import Block, Document, Glance, Name, Sentence, Table, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, figure, letters
from calipers.reports.page import Page
from calipers.reports.untrusted_text import clean
from calipers.stats.variance import Split

if TYPE_CHECKING:
    pass

SCHEMA = "calipers.items/1"
FIELDS = (
    *("dataset", "task", "difficulty", "discrimination", "p_contradicts", "kind", "runs", "samples", "passes"),
    *("values", "information"),
)
EVERYONE, NOBODY, CONTRADICTS, MIXED = "everyone", "nobody", "contradicts", "mixed"
SORTS = ("difficulty", "easiest", "discrimination", "contradiction", "information", "samples", "task")
MOST_RUNS = 5  # whose values have a column each
P_HEAD = "p (contradicts)"
P_MEANS = (
    f"{P_HEAD}: one-sided p of a discrimination this low, for a task that does not separate runs; not adjusted for "
    "the number of tasks"
)
WORDS = {EVERYONE: "all runs solve it", NOBODY: "no run solves it", CONTRADICTS: "contradicts the rest", MIXED: ""}
ALONE = {EVERYONE: "always solved", NOBODY: "never solved", MIXED: ""}  # with one run


@dataclass(frozen=True, slots=True)
class ItemRun:
    """One run over the tasks: its mean, and the parts of the variance of that mean."""

    name: str
    source: str
    agent: str | None
    model: str | None
    tasks: int
    samples: int
    mean: float | None
    split: Split | None
    advice: str  # what to do about it, or why the variance cannot be split


@dataclass(frozen=True, slots=True)
class Item:
    """One task."""

    task: str
    difficulty: float | None  # 1 minus the mean value over runs
    discrimination: float | None  # correlation over runs with the mean of all other tasks
    p_contradicts: float | None  # one-sided: of a discrimination this low for a task that has none; not adjusted
    kind: str  # everyone, nobody, contradicts, mixed; "" without a sample
    runs: int
    samples: int
    passes: int
    values: Sequence[float | None]  # of each run, its mean over samples
    information: float | None = None  # Fisher information of one try, at the ability of the best run


@dataclass(frozen=True, slots=True)
class ItemTable:
    """The tasks of one dataset."""

    dataset: str | None
    reward: str
    of: str  # "reward", or "passes" where some rewards are outside [0, 1]
    runs: Sequence[ItemRun]
    items: Sequence[Item]
    why: str | None = None  # why no task has a discrimination
    notes: Sequence[str] = ()
    why_information: str | None = None  # why no task has an information

    def count(self, kind: str) -> int:
        """How many tasks are of a kind."""
        return sum(item.kind == kind for item in self.items)


@dataclass(frozen=True, slots=True, repr=False)
class ItemReport(Page):
    """The tasks of every dataset."""

    threshold: float
    missing: str
    sort: str
    inputs: Sequence[Input]
    tables: Sequence[ItemTable]
    notes: Sequence[str] = ()
    limit: int | None = None  # of the tasks that are shown; None: all

    def limited(self, limit: int | None) -> ItemReport:
        """The same report with at most this many tasks of each dataset."""
        return replace(self, limit=limit)

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return document(self)

    def glance(self) -> Glance:
        """How many tasks separate the runs, and the runs, for a notebook."""
        if not self.tables:
            return Glance("No tasks.")
        table = self.tables[0]
        blocks = [block for block in _table(table, self) if isinstance(block, Table)]
        more = f"{counted(len(self.tables) - 1, 'more dataset')}. " if len(self.tables) > 1 else ""
        why = f"No discrimination: {table.why}." if table.why else ""
        return Glance(summary(table), blocks[-1] if len(table.runs) == 1 else blocks[0], f"{more}{why}")

    def headline(self) -> str:
        """What it says, in a line."""
        return ", ".join(f"{len(table.items)} tasks of {len(table.runs)} runs" for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            "threshold": self.threshold,
            "missing": self.missing,
            "sort": self.sort,
            "inputs": [asdict(source) for source in self.inputs],
            "tables": [self._table(table) for table in self.tables],
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per task; the values of the runs are in one cell, by name."""
        rows = []
        for table in self.tables:
            for item in table.items[: self.limit]:
                cells = [
                    f"{run.name}={value:.6g}"
                    for run, value in zip(table.runs, item.values, strict=True)
                    if value is not None
                ]
                rows.append({"dataset": table.dataset, **asdict(item), "values": "; ".join(cells)})
        return rows

    def _table(self, table: ItemTable) -> dict[str, Any]:
        fields = asdict(replace(table, items=table.items[: self.limit]))
        kinds = {kind: table.count(kind) for kind in (EVERYONE, NOBODY, CONTRADICTS, MIXED)}
        return {**fields, "tasks": len(table.items), "kinds": kinds}


def ordered(items: Sequence[Item], sort: str) -> list[Item]:
    """Items sorted by a column, ties by task; items without a number come last.

    ``difficulty`` begins with the hardest task, ``discrimination`` and ``contradiction`` with the lowest value,
    ``information`` with the highest.
    """
    keys: dict[str, Callable[[Item], float | None]] = {
        "difficulty": lambda item: None if item.difficulty is None else -item.difficulty,
        "easiest": lambda item: item.difficulty,
        "discrimination": lambda item: item.discrimination,
        "contradiction": lambda item: item.p_contradicts,
        "information": lambda item: None if item.information is None else -item.information,
        "samples": lambda item: -item.samples,
        "task": lambda item: 0,
    }
    if sort not in keys:
        raise UnknownName.of("order of tasks", sort, SORTS)
    key = keys[sort]
    return sorted(
        items, key=lambda item: (key(item) is None, key(item) or 0)
    )  # the tasks are sorted already, and ties keep their order


def document(report: ItemReport) -> Document:
    """The tasks as a page: a summary, the runs, then the tasks."""
    return Document(partial(_blocks, report), report.to_dict, FIELDS, report.rows)


def _blocks(report: ItemReport) -> Iterator[Block]:
    return spaced(block for table in report.tables for block in _table(table, report))


def _table(table: ItemTable, report: ItemReport) -> Iterator[Block]:
    reward = f"reward {table.reward}" if table.reward != "reward" else ""
    if title := " · ".join(filter(None, (table.dataset, reward))):
        yield Title(Name(title, None))
    yield Sentence(summary(table))
    for note in table.notes:
        yield Sentence(f"note: {note}")
    runs = letters(len(table.runs))
    yield plain_table(
        ["run", "", "mean", "tasks", "samples", "variance: tasks", "per sample", "sampling share"],
        [
            [
                letter,
                clean(run.name, 40),
                figure(run.mean, 3),
                f"{run.tasks:,}",
                f"{run.samples:,}",
                figure(run.split.tasks if run.split else None, 4),
                figure(run.split.sampling if run.split else None, 4),
                f"{100 * run.split.share:.0f} %" if run.split else NONE,
            ]
            for letter, run in zip(runs, table.runs, strict=True)
        ],
        numbers={2, 3, 4, 5, 6, 7},
        names={1},
    )
    for letter, run in zip(runs, table.runs, strict=True):
        yield Sentence(f"{letter}: {run.advice}" if len(table.runs) > 1 else run.advice, "note")
    yield _items(table, runs, report.limit)
    shown = len(table.items[: report.limit])
    if shown < len(table.items):
        yield Sentence(f"{shown:,} of {len(table.items):,} tasks, sorted by {report.sort}; --limit 0 shows all", "note")
    yield Sentence(f"no discrimination: {table.why}" if table.why else P_MEANS, "note")
    if table.why_information and (table.why is None or report.sort == "information"):
        yield Sentence(f"no information: {table.why_information}", "note")


def summary(table: ItemTable) -> str:
    """A summary of the tasks in a sentence or two."""
    whole, everyone, nobody = len(table.items), table.count(EVERYONE), table.count(NOBODY)
    if len(table.runs) == 1:
        return f"{counted(whole, 'task')}: {everyone:,} always solved, {nobody:,} never solved."
    sentence = f"{counted(whole, 'task')}: all runs solve {everyone:,}, no run solves {nobody:,}"
    if flagged := table.count(CONTRADICTS):
        sentence += f", {flagged:,} contradict{'s' if flagged == 1 else ''} the rest"
    shared = [item for item in table.items if sum(value is not None for value in item.values) > 1]
    silent = sum(item.kind in (EVERYONE, NOBODY) for item in shared)
    tells = ""
    if silent and len(shared) == 1:
        tells = " The only task that several runs have does not separate them."
    elif silent:
        of = "the tasks" if len(shared) == whole else f"the {len(shared):,} tasks that several runs have"
        tells = f" {100 * silent / len(shared):.0f} % of {of} do not separate these runs."
    lone = whole - len(shared)
    alone = f" Only one run has {lone:,} of the tasks, which cannot separate runs." if lone else ""
    return f"{sentence}.{tells}{alone}"


def _items(table: ItemTable, runs: list[str], limit: int | None) -> Table:
    each = 1 < len(table.runs) <= MOST_RUNS
    discriminates, informed = table.why is None, table.why_information is None
    head = [
        "task",
        "difficulty",
        *(["discrimination", P_HEAD] if discriminates else []),
        *(["information"] if informed else []),
    ]
    head += [*(runs if each else []), "passes", ""]
    words = WORDS if len(table.runs) > 1 else ALONE
    rows = [
        [*_row(item, discriminates=discriminates, informed=informed, each=each), words.get(item.kind, "no reward")]
        for item in table.items[:limit]
    ]
    return plain_table(head, rows, numbers=range(1, len(head) - 1), names={0}, strong={1})


def _row(item: Item, *, discriminates: bool, informed: bool, each: bool) -> list[str]:
    row = [clean(item.task, 40), figure(item.difficulty, 3)]
    if discriminates:
        row += [figure(item.discrimination, 2), NONE if item.p_contradicts is None else f"{item.p_contradicts:.3f}"]
    if informed:
        row.append(figure(item.information, 3))
    if each:
        row += [figure(value, 3) for value in item.values]
    return [*row, f"{item.passes:,}/{item.samples:,}"]
