"""The tasks of a benchmark over runs: how hard each is, how well it separates runs, and the parts of the variance."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from calipers.analyses.compare.align import ReadRun, names_of, runs_of
from calipers.analyses.compare.source import read_source
from calipers.analyses.curve import counted_rewards, rewards_of
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import Input
from calipers.metrics import PASS_THRESHOLD, pass_counts, passed, task_mean
from calipers.pipeline import Progress, Source
from calipers.reports.document import Block, Document, Glance, Name, Sentence, Table, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, figure, letters, listed
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.untrusted_text import clean
from calipers.request import make_plan
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.labels import clusters, over_steps
from calipers.rollouts.ledger import Missing
from calipers.rollouts.record import not_said
from calipers.rollouts.table import Rollouts
from calipers.stats.items import LEVEL
from calipers.stats.items import items as look_at
from calipers.stats.variance import Split, split
from calipers.tally import quietly

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

        fields = asdict(replace(self, tables=()))
        del fields["limit"]
        tables = [self._table(table) for table in self.tables]
        return {"schema": SCHEMA, "calipers": __version__, **fields, "tables": tables}

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
    # the tasks are sorted already, and ties keep their order
    return sorted(items, key=lambda item: (key(item) is None, key(item) or 0))


GOLD = "gold"  # the probe of a selftest that must pass
NamedRun = tuple[str, str, Rollouts]  # name, source, rollouts of one dataset


@dataclass(frozen=True, slots=True)
class _ItemSettings:
    missing: str
    threshold: float
    cluster: str | None
    sort: str


def items(
    *sources: Source,
    sort: str = "difficulty",
    threshold: float = PASS_THRESHOLD,
    cluster: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    progress: Progress | None = None,
) -> ItemReport:
    """The tasks of some runs: difficulty, discrimination, tasks that all runs or no run solve, and contradictions.

    A source is anything that `score` reads; each agent and model in it is a run. Tasks are matched by id within a
    dataset. Discrimination needs three runs or more, information five.

    >>> [(item.task, item.kind) for item in items([[1, 1], [0, 0], [1, 0]]).tables[0].items]
    [('1', 'nobody'), ('2', 'mixed'), ('0', 'everyone')]
    """
    plan = make_plan(["mean_reward"], cluster=cluster, missing=missing, reward=reward)
    if not sources:
        raise InputError("no runs; expected at least one")
    if not math.isfinite(threshold):
        raise InputError(f"--threshold is {threshold}; expected a number that a reward can reach")
    ordered((), sort)  # an unknown order is told before anything is read
    _check_distinct(sources)
    sides = [
        read_source(source, Named(columns or {}, truth, input_format or ""), plan.labels, progress)
        for source in sources
    ]
    runs = [runner for number, side in enumerate(sides) for runner in runs_of(number, side.path, side.rollouts)]
    settings = _ItemSettings(plan.missing, threshold, cluster, sort)
    tables = []
    with quietly():
        for dataset, those, notes in _datasets(runs):
            # of a run that a stopping rule stopped, only the tasks before the stop count
            stops = [f"{name}: {part.stop.fact}; only those tasks are counted" for name, _, part in those if part.stop]
            tables += [_measured(dataset, those, key, [*notes, *stops], settings) for key in _rewards(those, reward)]
    return ItemReport(
        threshold,
        plan.missing,
        sort,
        [file for side in sides for file in side.hashed()],
        tables,
        [note for side in sides for note in _unsaid(side.rollouts)],
    )


def _unsaid(rollouts: Rollouts) -> list[str]:
    """The notes of a source but for its stops, which the tables say."""
    notes = [*rollouts.notes, *over_steps(rollouts)]
    return not_said(notes, [note for stop in rollouts.stops.values() for note in stop.notes])


def _check_distinct(sources: Sequence[Source]) -> None:
    paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    real = [os.path.realpath(path) for path in paths]
    for number, path in enumerate(real):
        if path in real[:number]:
            raise InputError.at(paths[number], "is given twice", "expected different runs")


def _datasets(runs: Sequence[ReadRun]) -> list[tuple[str | None, list[NamedRun], list[str]]]:
    """The runs of each dataset; runs that have one dataset each are compared even if its name differs."""
    names = names_of(runs)
    every = list(dict.fromkeys(dataset for runner in runs for dataset in runner.parts))
    tasks = [set(part.tasks) for runner in runs for part in runner.parts.values()]
    single = all(len(runner.parts) == 1 for runner in runs)
    alike = single and len(every) > 1 and all(tasks[0] & other for other in tasks[1:])
    if alike:  # one dataset each, and all share a task with the first
        those = [(name, run.path, part) for name, run in zip(names, runs, strict=True) for part in run.parts.values()]
        named = [dataset for dataset in every if dataset is not None]
        notes = [f"the datasets have different names: {', '.join(map(repr, named))}"] if len(named) > 1 else []
        return [(named[0] if len(named) == 1 else None, those, notes)]
    named_runs = list(zip(names, runs, strict=True))
    return [
        (dataset, [(name, run.path, run.parts[dataset]) for name, run in named_runs if dataset in run.parts], [])
        for dataset in every
    ]


def _rewards(those: Sequence[NamedRun], chosen: str | None) -> list[str]:
    """The rewards that all runs have, in order; InputError where they have none in common."""
    keys = [rewards_of(part, chosen) for _, _, part in those]
    common = [key for key in keys[0] if all(key in other for other in keys[1:])]
    if not common:
        rewards = "; ".join(
            f"{name} has {', '.join(keys_of_run)}" for (name, _, _), keys_of_run in zip(those, keys, strict=True)
        )
        raise InputError(f"the runs have no reward in common: {rewards}; choose one with --reward KEY")
    return common


def _measured(
    dataset: str | None, those: Sequence[NamedRun], key: str, notes: Sequence[str], settings: _ItemSettings
) -> ItemTable:
    columns = [counted_rewards(part, key, settings.missing) for _, _, part in those]
    for (name, _, _), column in zip(those, columns, strict=True):
        if not bool(np.isfinite(column.kept()).all()):
            raise InputError(f"{name}: reward {key!r} has values that are not finite numbers; expected finite numbers")
    unit = all(bool(((column.kept() >= 0) & (column.kept() <= 1)).all()) for column in columns)
    shown = columns
    if not unit:
        shown = [Column(passed(column, settings.threshold).astype(np.float64), column.given) for column in columns]
    tasks = sorted({task for _, _, part in those for task in part.tasks})
    index = {task: number for number, task in enumerate(tasks)}
    values, given, passes, samples = _matrices(those, columns, shown, index, settings.threshold)
    if not samples.any():
        raise InputError("no rollout has a reward; expected a number in reward")
    results = look_at(values, passes, samples)
    contradicts = results.contradicts
    rows = []
    for number, task in enumerate(tasks):
        there = results.samples[number] > 0
        kind = EVERYONE if results.everyone[number] else NOBODY if results.nobody[number] else MIXED if there else ""
        rows.append(
            Item(
                task,
                _at(results.difficulty, number),
                _at(results.discrimination, number),
                _at(results.contradiction, number),
                CONTRADICTS if contradicts[number] else kind,
                int(results.runs[number]),
                int(results.samples[number]),
                int(passes[:, number].sum()),
                [float(value) if g else None for value, g in zip(values[:, number], given[:, number], strict=True)],
                _at(results.information, number),
            )
        )
    return ItemTable(
        dataset,
        key,
        "reward" if unit else "passes",
        [_run(run, column, settings) for run, column in zip(those, columns, strict=True)],
        ordered(rows, settings.sort),
        results.why,
        [*notes, *_said(rows, unit, int(results.discrimination.given.sum()))],
        results.why_information,
    )


def _matrices(
    those: Sequence[NamedRun],
    columns: Sequence[Column],
    shown: Sequence[Column],
    index: Mapping[str, int],
    threshold: float,
) -> tuple[Floats, Floats, Ints, Ints]:
    """Mean value, whether there is one, passes and samples of each run and task, [M, T] each."""
    size = len(those), len(index)
    values, given = np.zeros(size), np.zeros(size, dtype=bool)
    passes, samples = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for row, ((_, _, part), column, view) in enumerate(zip(those, columns, shown, strict=True)):
        at = np.array([index[task] for task in part.tasks], dtype=np.int64)
        means = task_mean(view, part.by_task)
        values[row, at], given[row, at] = means.values, means.given
        samples[row, at], passes[row, at] = pass_counts(column, part.by_task, threshold)
    return values, given, passes, samples


def _run(run: NamedRun, column: Column, settings: _ItemSettings) -> ItemRun:
    name, source, part = run
    agent, model, _ = part.keys[0]
    means = task_mean(column, part.by_task).kept()
    divided = split(column, part.by_task, clusters(part, settings.cluster) if settings.cluster else None)
    return ItemRun(
        name,
        source,
        agent,
        model,
        len(part.tasks),
        int(column.given.sum()),
        float(means.mean()) if len(means) else None,
        divided if isinstance(divided, Split) else None,
        divided.advice if isinstance(divided, Split) else f"the variance cannot be split: {plain_why(divided.why)}",
    )


def _said(rows: Sequence[Item], unit: bool, measured: int) -> list[str]:
    notes = []
    if not unit:
        notes.append(
            "some rewards are outside [0, 1]: difficulty, discrimination and information are computed from passes"
        )
    flagged = sum(item.kind == CONTRADICTS for item in rows)
    if flagged:
        chance = LEVEL * measured
        advice = "is: check this task and its target" if flagged == 1 else "are: check these tasks and their targets"
        notes.append(
            f"of {measured:,} tasks with a discrimination, up to {chance:.3g} would be flagged as contradicting by "
            f"chance alone; {flagged:,} {advice} first"
        )
    return notes


def _at(column: Column, number: int) -> float | None:
    return float(column.values[number]) if column.given[number] else None


class _FlaggedItem(msgspec.Struct):
    task: str
    kind: str = ""


class _FlaggedTable(msgspec.Struct):
    items: list[_FlaggedItem]
    dataset: str | None = None


class _FlaggedProbe(msgspec.Struct):
    wrong: list[str] = []
    what: str = ""
    failed: list[tuple[str, str]] = []


class _FlaggedTest(msgspec.Struct):
    probes: list[_FlaggedProbe]


class _FlagDocument(msgspec.Struct):
    """What flags tasks in a document of `calipers items`, or of `calipers check --selftest`."""

    tables: list[_FlaggedTable] | None = None
    selftest: _FlaggedTest | None = None


@dataclass(frozen=True, slots=True)
class Flags:
    """Tasks that somebody finds suspicious, by dataset; under None those of any dataset."""

    path: str  # the file that says so
    tasks: Mapping[str | None, Sequence[str]]

    def of(self, dataset: str | None, tasks: Sequence[str]) -> list[str]:
        """The flagged ones among these tasks of a dataset, in their order."""
        flagged = {*self.tasks.get(None, ()), *self.tasks.get(dataset, ())}
        return [task for task in tasks if task in flagged]


def read_flags(path: str | os.PathLike[str]) -> Flags:
    """The tasks that a file flags; InputError where it can flag none.

    Of the JSON of `calipers items` the tasks that contradict the rest, of that of `calipers check --selftest` those
    with a wrong verdict; of any other text every line is the id of a task. A hard task is not flagged for that.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            content = file.read()
    except OSError as error:
        raise InputError.at(name, f"cannot be read ({error.strerror})", "expected ids of tasks, one a line") from None
    tasks = _flags_of_document(content) if content.lstrip().startswith(b"{") else None
    if tasks is None:
        try:
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InputError.at(name, "is not UTF-8", "expected ids of tasks, one a line") from None
        tasks = {None: list(dict.fromkeys(line.strip() for line in lines if line.strip()))}
        if not tasks[None]:
            right = "expected ids of tasks, one a line, or the JSON of calipers items"
            raise InputError.at(name, "flags no task", right)
    return Flags(name, tasks)


def _flags_of_document(content: bytes) -> dict[str | None, list[str]] | None:
    """The flagged tasks of one of our documents; None for another text."""
    try:
        document = msgspec.json.decode(content, type=_FlagDocument)
    except msgspec.DecodeError:
        return None
    tasks: dict[str | None, list[str]] = {}
    for table in document.tables or ():
        tasks.setdefault(table.dataset, []).extend(item.task for item in table.items if item.kind == CONTRADICTS)
    for probe in document.selftest.probes if document.selftest else ():
        failed = [task for task, _ in probe.failed] if probe.what == GOLD else []
        tasks.setdefault(None, []).extend([*probe.wrong, *failed])
    return None if document.tables is None and document.selftest is None else tasks


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
    of_runs = plain_table(
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
    *columns, share = of_runs.columns  # which the advice repeats
    narrow = msgspec.structs.replace(share, yields=1)
    yield msgspec.structs.replace(of_runs, columns=[*columns, narrow])
    advice: dict[str, list[str]] = {}
    for letter, run in zip(runs, table.runs, strict=True):
        advice.setdefault(run.advice, []).append(letter)
    for words, advised in advice.items():
        yield Sentence(f"{listed(advised)}: {words}" if len(table.runs) > 1 else words, "note")
    yield _items(table, runs, report.limit, report.sort)
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


def _items(table: ItemTable, runs: list[str], limit: int | None, sort: str) -> Table:
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
    rows = []
    for item in table.items[:limit]:
        row = [clean(item.task, 40), figure(item.difficulty, 3)]
        if discriminates:
            row += [figure(item.discrimination, 2), NONE if item.p_contradicts is None else f"{item.p_contradicts:.3f}"]
        if informed:
            row.append(figure(item.information, 3))
        if each:
            row += [figure(value, 3) for value in item.values]
        rows.append([*row, f"{item.passes:,}/{item.samples:,}", words.get(item.kind, "no reward")])
    made = plain_table(head, rows, numbers=range(1, len(head) - 1), names={0}, strong={1})
    yields = "" if sort == "information" else "information"  # goes where there is no room, unless the tasks follow it
    columns = [msgspec.structs.replace(each, yields=int(each.head == yields)) for each in made.columns]
    return msgspec.structs.replace(made, columns=columns)
