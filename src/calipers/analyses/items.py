"""The tasks of a benchmark over runs: the difficulty and discrimination of each task, and the parts of the variance."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from calipers.analyses.compare.align import ReadRun, names_of, runs_of
from calipers.analyses.compare.source import read_source
from calipers.analyses.curve import counted_rewards, pass_threshold, rewards_of
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import Input
from calipers.metrics import pass_counts, passed, task_mean
from calipers.pipeline import Progress, Source
from calipers.reports.document import Block, Document, Glance, Name, Sentence, Table, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, figure, letters, listed
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.result import finite
from calipers.reports.untrusted_text import clean
from calipers.request import checked_threshold, make_plan
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.labels import clusters, over_steps
from calipers.rollouts.ledger import Missing
from calipers.rollouts.record import without_sentences
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import ValueEnds
from calipers.stats.items import LEVEL
from calipers.stats.items import items as look_at
from calipers.stats.variance import Split, split
from calipers.tally import quietly
from calipers.typed import complete

SCHEMA = "calipers.items/1"
FIELDS = (
    *("dataset", "task", "difficulty", "discrimination", "p_contradicts", "kind", "runs", "samples", "passes"),
    *("values", "information"),
)
EVERYONE, NOBODY, CONTRADICTS, MIXED = "everyone", "nobody", "contradicts", "mixed"
SORTS = ("difficulty", "easiest", "discrimination", "contradiction", "information", "samples", "task")
MOST_RUNS = 5  # up to this number, the values of each run have a column
P_HEAD = "p (contradicts)"
P_MEANS = (
    f"{P_HEAD}: one-sided p of a discrimination this low, for a task that does not separate runs; not adjusted for "
    "the number of tasks"
)
WORDS = {EVERYONE: "all runs solve it", NOBODY: "no run solves it", CONTRADICTS: "contradicts the rest", MIXED: ""}
WORDS_OF_ONE_RUN = {EVERYONE: "always solved", NOBODY: "never solved", MIXED: ""}


@dataclass(frozen=True, slots=True)
class ItemRun:
    """One run: its mean over the tasks, and the parts of the variance of that mean."""

    name: str
    source: str
    agent: str | None
    model: str | None
    tasks: int
    samples: int
    mean: float | None
    split: Split | None
    advice: str  # how to reduce the variance, or why it cannot be split


@dataclass(frozen=True, slots=True)
class Item:
    """One task."""

    task: str
    difficulty: float | None  # 1 minus the mean value over runs
    discrimination: float | None  # correlation over runs with the mean of all other tasks
    p_contradicts: float | None  # one-sided p of a discrimination this low if the task had none; not adjusted
    kind: str  # everyone, nobody, contradicts, mixed; "" without a sample
    runs: int
    samples: int
    passes: int
    values: Sequence[float | None]  # the mean over samples in each run
    information: float | None = None  # Fisher information of one try, at the ability of the best run


@dataclass(frozen=True, slots=True)
class ItemTable:
    """The tasks of one dataset."""

    dataset: str | None
    reward: str
    of: str  # the source of the values: "reward", or "passes" if some rewards are outside [0, 1]
    runs: Sequence[ItemRun]
    items: Sequence[Item]
    why: str | None = None  # why no task has a discrimination
    notes: Sequence[str] = ()
    why_information: str | None = None  # why no task has an information

    def count(self, kind: str) -> int:
        """The number of tasks of a kind."""
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
    limit: int | None = None  # the number of tasks that are shown; None: all

    def limited(self, limit: int | None) -> ItemReport:
        """The same report with at most this many tasks of each dataset."""
        return replace(self, limit=limit)

    def page(self) -> Document:
        """A summary, the runs, then the tasks."""
        return Document(partial(_blocks, self), self.to_dict, FIELDS, self.rows)

    def glance(self) -> Glance:
        """A summary of the tasks, and the runs (of a single run, its tasks), for a notebook."""
        if not self.tables:
            return Glance("No tasks.")
        table = self.tables[0]
        blocks = [block for block in _table(table, self) if isinstance(block, Table)]
        more = f"{counted(len(self.tables) - 1, 'more dataset')}. " if len(self.tables) > 1 else ""
        why = f"No discrimination: {table.why}." if table.why else ""
        return Glance(summary(table), blocks[-1] if len(table.runs) == 1 else blocks[0], f"{more}{why}")

    def headline(self) -> str:
        """The answer in one line."""
        sizes = [(counted(len(table.items), "task"), counted(len(table.runs), "run")) for table in self.tables]
        return ", ".join(f"{tasks} of {runs}" for tasks, runs in sizes)

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        fields = asdict(replace(self, tables=()))
        del fields["limit"]
        tables = [self._table(table) for table in self.tables]
        return {"schema": SCHEMA, "calipers": __version__, **fields, "tables": tables}

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per task; one cell has the values of all runs, by name."""
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

    ``difficulty`` starts with the hardest task, ``discrimination`` and ``contradiction`` with the lowest value,
    ``information`` with the highest value.
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
    # the items are already sorted by task, and ties keep that order
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
    threshold: float | None = None,
    cluster: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    progress: Progress | None = None,
) -> ItemReport:
    """The tasks of runs: difficulty, discrimination, tasks that all runs or no run solve, and contradictions.

    A source is anything that `score` reads; each agent and model in it is a run. Tasks are matched by id within a
    dataset. Discrimination needs three runs or more, information five.

    >>> [(item.task, item.kind) for item in items([[1, 1], [0, 0], [1, 0]]).tables[0].items]
    [('1', 'nobody'), ('2', 'mixed'), ('0', 'everyone')]
    """
    plan = make_plan(["mean_reward"], cluster=cluster, missing=missing, reward=reward)
    if not sources:
        raise InputError("no runs; expected at least one")
    passing = checked_threshold(threshold)
    ordered((), sort)  # raises an error for an unknown order before anything is read
    _check_distinct(sources)
    names = Named(columns or {}, truth, input_format or "")
    read = [read_source(source, names, plan.labels, progress) for source in sources]
    runs = [run for index, source in enumerate(read) for run in runs_of(index, source.path, source.rollouts)]
    tables = []
    with quietly():
        datasets = _datasets(runs)
        of_runs = [named_runs for _, named_runs, _ in datasets]
        rewards = []
        for _, _, part in chain.from_iterable(of_runs):
            rewards += [(part, key) for key in rewards_of(part, reward)]
        settings = _ItemSettings(plan.missing, pass_threshold(passing, rewards), cluster, sort)
        for dataset, named_runs, notes in datasets:
            stops = [(name, part.stop) for name, _, part in named_runs]
            notes += [f"{name}: {stop.fact}; only those tasks are counted" for name, stop in stops if stop]
            tables += [_measured(dataset, named_runs, key, notes, settings) for key in _rewards(named_runs, reward)]
    return ItemReport(
        settings.threshold,
        plan.missing,
        sort,
        [file for source in read for file in source.hashed()],
        tables,
        [note for source in read for note in _source_notes(source.rollouts)],
    )


def _source_notes(rollouts: Rollouts) -> list[str]:
    """The notes of a source without those on stopped runs, which the tables have."""
    notes = [*rollouts.notes, *over_steps(rollouts)]
    return without_sentences(notes, [note for stop in rollouts.stops.values() for note in stop.notes])


def _check_distinct(sources: Sequence[Source]) -> None:
    paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    real = [os.path.realpath(path) for path in paths]
    for index, path in enumerate(real):
        if path in real[:index]:
            raise InputError.at(paths[index], "is given twice", "expected different runs")


def _datasets(runs: Sequence[ReadRun]) -> list[tuple[str | None, list[NamedRun], list[str]]]:
    """The runs of each dataset, with notes.

    Runs with one dataset each are compared even if its name differs, if all of them share a task with the first.
    """
    names = names_of(runs)
    datasets = list(dict.fromkeys(dataset for run in runs for dataset in run.parts))
    tasks = [set(part.tasks) for run in runs for part in run.parts.values()]
    single = all(len(run.parts) == 1 for run in runs)
    if single and len(datasets) > 1 and all(tasks[0] & other for other in tasks[1:]):
        together = [(name, run.path, run.rollouts) for name, run in zip(names, runs, strict=True)]
        named = [dataset for dataset in datasets if dataset is not None]
        notes = [f"the datasets have different names: {', '.join(map(repr, named))}"] if len(named) > 1 else []
        return [(named[0] if len(named) == 1 else None, together, notes)]
    named_runs = list(zip(names, runs, strict=True))
    return [
        (dataset, [(name, run.path, run.parts[dataset]) for name, run in named_runs if dataset in run.parts], [])
        for dataset in datasets
    ]


def _rewards(runs: Sequence[NamedRun], chosen: str | None) -> list[str]:
    """The rewards that all runs have, in order; InputError if they have none in common."""
    keys = [rewards_of(part, chosen) for _, _, part in runs]
    common = [key for key in keys[0] if all(key in other for other in keys[1:])]
    if not common:
        rewards = "; ".join(
            f"{name} has {', '.join(keys_of_run)}" for (name, _, _), keys_of_run in zip(runs, keys, strict=True)
        )
        raise InputError(f"the runs have no reward in common: {rewards}; choose one with --reward KEY")
    return common


def _measured(
    dataset: str | None, runs: Sequence[NamedRun], key: str, notes: Sequence[str], settings: _ItemSettings
) -> ItemTable:
    columns = [counted_rewards(part, key, settings.missing) for _, _, part in runs]
    for (name, _, _), column in zip(runs, columns, strict=True):
        if not bool(np.isfinite(column.kept()).all()):
            raise InputError(f"{name}: reward {key!r} has values that are not finite numbers; expected finite numbers")
    unit = all(ValueEnds.of(column.kept()).in_unit for column in columns)
    in_unit = columns
    if not unit:
        in_unit = [Column(passed(column, settings.threshold).astype(np.float64), column.given) for column in columns]
    tasks = sorted({task for _, _, part in runs for task in part.tasks})
    index_of = {task: index for index, task in enumerate(tasks)}
    values, given, passes, samples = _matrices(runs, columns, in_unit, index_of, settings.threshold)
    if not samples.any():
        raise InputError("no rollout has a reward; expected a number in reward")
    results = look_at(values, passes, samples)
    contradicts = results.contradicts
    rows = []
    for t, task in enumerate(tasks):
        kind = EVERYONE if results.everyone[t] else NOBODY if results.nobody[t] else MIXED if results.samples[t] else ""
        rows.append(
            Item(
                task,
                _value_or_none(results.difficulty, t),
                _value_or_none(results.discrimination, t),
                _value_or_none(results.contradiction, t),
                CONTRADICTS if contradicts[t] else kind,
                int(results.runs[t]),
                int(results.samples[t]),
                int(passes[:, t].sum()),
                [float(value) if there else None for value, there in zip(values[:, t], given[:, t], strict=True)],
                _value_or_none(results.information, t),
            )
        )
    return ItemTable(
        dataset,
        key,
        "reward" if unit else "passes",
        [_run(run, column, settings) for run, column in zip(runs, columns, strict=True)],
        ordered(rows, settings.sort),
        results.why,
        [*notes, *_table_notes(rows, unit, int(results.discrimination.given.sum()))],
        results.why_information,
    )


def _matrices(
    runs: Sequence[NamedRun],
    columns: Sequence[Column],
    in_unit: Sequence[Column],
    index_of: Mapping[str, int],
    threshold: float,
) -> tuple[Floats, Floats, Ints, Ints]:
    """Mean value, whether it is given, passes and samples of each run and task, [M, T] each.

    ``columns`` are the rewards, and ``in_unit`` the rewards or passes of which the mean is taken.
    """
    size = len(runs), len(index_of)
    values, given = np.zeros(size), np.zeros(size, dtype=bool)
    passes, samples = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for row, ((_, _, part), column, unit_column) in enumerate(zip(runs, columns, in_unit, strict=True)):
        tasks = np.array([index_of[task] for task in part.tasks], dtype=np.int64)
        means = task_mean(unit_column, part.by_task)
        values[row, tasks], given[row, tasks] = means.values, means.given
        samples[row, tasks], passes[row, tasks] = pass_counts(column, part.by_task, threshold)
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
        finite(float(means.mean())) if len(means) else None,
        divided if isinstance(divided, Split) else None,
        divided.advice if isinstance(divided, Split) else f"the variance cannot be split: {plain_why(divided.why)}",
    )


def _table_notes(rows: Sequence[Item], unit: bool, measured: int) -> list[str]:
    """Notes on rewards outside [0, 1], and on how many of ``measured`` tasks contradict the rest by chance."""
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


def _value_or_none(column: Column, index: int) -> float | None:
    return float(column.values[index]) if column.given[index] else None


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
    """The fields that flag tasks in a document of `calipers items` or `calipers check --selftest`."""

    tables: list[_FlaggedTable] | None = None
    selftest: _FlaggedTest | None = None


@dataclass(frozen=True, slots=True)
class Flags:
    """Suspicious tasks by dataset; the key None has tasks of any dataset."""

    path: str  # the file with the flags
    tasks: Mapping[str | None, Sequence[str]]

    def of(self, dataset: str | None, tasks: Sequence[str]) -> list[str]:
        """The flagged tasks among the given tasks of a dataset, in their order."""
        flagged = {*self.tasks.get(None, ()), *self.tasks.get(dataset, ())}
        return [task for task in tasks if task in flagged]


def read_flags(path: str | os.PathLike[str]) -> Flags:
    """The tasks that a file flags; InputError if the file cannot be read or is a text without ids.

    The JSON of `calipers items` flags the tasks that contradict the rest, but not hard ones. That of
    `calipers check --selftest` flags the tasks with a wrong verdict. Each line of any other text is the id of a task.
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
            expected = "expected ids of tasks, one a line, or the JSON of calipers items"
            raise InputError.at(name, "flags no task", expected)
    return Flags(name, tasks)


def _flags_of_document(content: bytes) -> dict[str | None, list[str]] | None:
    """The flagged tasks of a JSON document of Calipers; None for any other text."""
    try:
        document = msgspec.json.decode(content, type=complete(_FlagDocument))
    except msgspec.DecodeError:
        return None
    tasks: dict[str | None, list[str]] = {}
    for table in document.tables or ():
        tasks.setdefault(table.dataset, []).extend(item.task for item in table.items if item.kind == CONTRADICTS)
    for probe in document.selftest.probes if document.selftest else ():
        failed = [task for task, _ in probe.failed] if probe.what == GOLD else []
        tasks.setdefault(None, []).extend([*probe.wrong, *failed])
    return None if document.tables is None and document.selftest is None else tasks


def _blocks(report: ItemReport) -> Iterator[Block]:
    return spaced(block for table in report.tables for block in _table(table, report))


def _table(table: ItemTable, report: ItemReport) -> Iterator[Block]:
    reward = f"reward {table.reward}" if table.reward != "reward" else ""
    if title := " · ".join(filter(None, (table.dataset, reward))):
        yield Title(Name(title, None))
    yield Sentence(summary(table))
    for note in table.notes:
        yield Sentence(f"note: {note}")
    labels = letters(len(table.runs))
    runs_table = plain_table(
        ["run", "", "mean", "tasks", "samples", "variance: tasks", "per sample", "sampling share"],
        [
            [
                label,
                clean(run.name, 40),
                figure(run.mean, 3),
                f"{run.tasks:,}",
                f"{run.samples:,}",
                figure(run.split.tasks if run.split else None, 4),
                figure(run.split.sampling if run.split else None, 4),
                f"{100 * run.split.share:.0f} %" if run.split else NONE,
            ]
            for label, run in zip(labels, table.runs, strict=True)
        ],
        numbers={2, 3, 4, 5, 6, 7},
        names={1},
    )
    *columns, share = runs_table.columns
    share = msgspec.structs.replace(share, yields=1)  # hidden first on a narrow terminal: the advice repeats it
    yield msgspec.structs.replace(runs_table, columns=[*columns, share])
    labels_by_advice: dict[str, list[str]] = {}
    for label, run in zip(labels, table.runs, strict=True):
        labels_by_advice.setdefault(run.advice, []).append(label)
    for advice, advised in labels_by_advice.items():
        yield Sentence(f"{listed(advised)}: {advice}" if len(table.runs) > 1 else advice, "note")
    yield _items(table, labels, report.limit, report.sort)
    shown = len(table.items[: report.limit])
    if shown < len(table.items):
        yield Sentence(f"{shown:,} of {len(table.items):,} tasks, sorted by {report.sort}; --limit 0 shows all", "note")
    yield Sentence(f"no discrimination: {table.why}" if table.why else P_MEANS, "note")
    if table.why_information and (table.why is None or report.sort == "information"):
        yield Sentence(f"no information: {table.why_information}", "note")


def summary(table: ItemTable) -> str:
    """A summary of the tasks in up to three sentences."""
    total, everyone, nobody = len(table.items), table.count(EVERYONE), table.count(NOBODY)
    if len(table.runs) == 1:
        return f"{counted(total, 'task')}: {everyone:,} always solved, {nobody:,} never solved."
    sentence = f"{counted(total, 'task')}: all runs solve {everyone:,}, no run solves {nobody:,}"
    if flagged := table.count(CONTRADICTS):
        sentence += f", {flagged:,} contradict{'s' if flagged == 1 else ''} the rest"
    shared = [item for item in table.items if sum(value is not None for value in item.values) > 1]
    uninformative = sum(item.kind in (EVERYONE, NOBODY) for item in shared)
    separation = ""
    if uninformative and len(shared) == 1:
        separation = " The only task that several runs have does not separate them."
    elif uninformative:
        tasks = "the tasks" if len(shared) == total else f"the {len(shared):,} tasks that several runs have"
        separation = f" {100 * uninformative / len(shared):.0f} % of {tasks} do not separate these runs."
    unshared = total - len(shared)
    single = f" Only one run has {unshared:,} of the tasks, which cannot separate runs." if unshared else ""
    return f"{sentence}.{separation}{single}"


def _items(table: ItemTable, labels: list[str], limit: int | None, sort: str) -> Table:
    """The table of tasks. Columns without any value are left out."""
    has_values = 1 < len(table.runs) <= MOST_RUNS
    has_discrimination, has_information = table.why is None, table.why_information is None
    head = [
        "task",
        "difficulty",
        *(["discrimination", P_HEAD] if has_discrimination else []),
        *(["information"] if has_information else []),
        *(labels if has_values else []),
        "passes",
        "",
    ]
    words = WORDS if len(table.runs) > 1 else WORDS_OF_ONE_RUN
    rows = []
    for item in table.items[:limit]:
        row = [clean(item.task, 40), figure(item.difficulty, 3)]
        if has_discrimination:
            row += [figure(item.discrimination, 2), NONE if item.p_contradicts is None else f"{item.p_contradicts:.3f}"]
        if has_information:
            row.append(figure(item.information, 3))
        if has_values:
            row += [figure(value, 3) for value in item.values]
        rows.append([*row, f"{item.passes:,}/{item.samples:,}", words.get(item.kind, "no reward")])
    items_table = plain_table(head, rows, numbers=range(1, len(head) - 1), names={0}, strong={1})
    # the column that a narrow terminal hides first: information or, if the tasks are sorted by it, the words
    hidden = "" if sort == "information" else "information"
    columns = [msgspec.structs.replace(column, yields=int(column.head == hidden)) for column in items_table.columns]
    return msgspec.structs.replace(items_table, columns=columns)
