"""Compare many models on many benchmarks: paired by task on each benchmark, and by the mean over benchmarks.

::

    folder of runs ──► runs: one benchmark by one model ──► rows: the models on the same tasks ──► differences, Holm
                                                                                            └────► mean: one test

The mean over benchmarks is the primary question and keeps its full level. The tests of single benchmarks are adjusted
for their number (Holm 1979), independent of the result for the mean.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite
from typing import Any, Final, cast

import numpy as np

from calipers.analyses.compare import Question, make_question, one_more
from calipers.analyses.compare.align import Common, Identity, ReadRun, by_id, runs_of, units
from calipers.analyses.compare.compare import common_tasks, pair_columns, without_test
from calipers.analyses.compare.measure import Measured, MetricPair, measure, metrics_of
from calipers.analyses.compare.source import (
    COST,
    FinishedResult,
    ReadSource,
    check_gaps,
    cost_of,
    doubts_of,
    estimate_of,
    finished_results,
    on_tasks,
    read_sources,
    settings_differ,
    source_notes,
    unrelated,
)
from calipers.analyses.matrix.document import Cell, Matrix, MatrixColumn, MatrixMean, MatrixRow, PairDifference
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.metrics import Metric
from calipers.pipeline import Progress, Source
from calipers.reports.result import Group, finite
from calipers.request import Plan, RequestedMetric, either, make_plan, mean_metric
from calipers.rollouts.ledger import Ledger, Missing
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate
from calipers.stats.margins import equivalence
from calipers.stats.paired import Difference, undone_by_one
from calipers.stats.ranks import holm
from calipers.stats.suite import mean_difference, means
from calipers.stats.verdict import verdict
from calipers.tally import quietly

NOT_RUN: Final = "not run"
UNNAMED: Final = "(unnamed)"
FINISHED: Final = "a finished result without its rollouts: differences are paired by task"
NO_COMMON: Final = "the models have no task in common"


def matrix(
    *sources: Source,
    metrics: str | Mapping[str, Any] | None = None,
    metric: str | Mapping[str, Any] | None = None,
    models: str | Sequence[str] | None = None,
    cluster: str | None = None,
    dialect: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    range: tuple[float, float] | None = None,
    exclude: str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    margin: float | None = None,
    progress: Progress | None = None,
    trust_reader: bool = False,
) -> Matrix:
    """Show models by benchmarks: values, paired differences, and the mean over benchmarks as the one primary test.

    A source is a folder of runs, anything that `score` reads, with ``columns`` and ``truth`` as there, or a finished
    result, which has values and no differences. ``metrics`` is one metric, a mean over tasks; by default it is the
    first such metric of the dialect; ``metric`` is another name of it. ``models`` selects models by name and sets their
    order; a difference is the later model less the earlier one. The models of a benchmark are compared on the tasks
    that all of them have. ``margin`` is the largest difference that does not matter: within it, two models are
    equivalent. ``exclude`` leaves out the rollouts of a slice, as in `score`, and ``trust_reader`` is as in `compare`.

    >>> passed = {("easy", "a"): 30, ("easy", "b"): 38, ("hard", "a"): 5, ("hard", "b"): 14}
    >>> tasks = [(d, m, t, t < n) for (d, m), n in passed.items() for t in range(40)]
    >>> rows = [dict(zip(("dataset", "model", "task", "reward"), row, strict=True)) for row in tasks]
    >>> found = matrix(rows)
    >>> round(found.mean.pairs[0].delta, 6), found.mean.pairs[0].verdict
    (0.2125, 'better')
    """
    requested = cast("str | Mapping[str, Any] | None", either(metrics, metric))
    plan = make_plan(
        None if requested is None else [requested],
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
        interval=interval,
        range=range,
        exclude=exclude,
    )
    plan = replace(plan, requests=[mean_metric(plan, named=requested is not None)])
    question = make_question(plan, margin=margin, trust_reader=trust_reader)
    return _read_matrix(sources, question, Named(columns or {}, truth), models, progress)


def matrix_plan(sources: Sequence[Source], plan: Plan) -> Matrix:
    """Like `matrix`, with a plan from `make_plan`; InputError if none of its metrics is a mean over tasks."""
    plan = replace(plan, requests=[mean_metric(plan, named=True)], by=())
    return _read_matrix(sources, make_question(plan), Named({}, None), None, None)


def _read_matrix(
    sources: Sequence[Source],
    question: Question,
    named: Named,
    models: str | Sequence[str] | None,
    progress: Progress | None,
) -> Matrix:
    read, finished = _read(sources, named, question.plan, progress)
    question = replace(question, plan=replace(question.plan, exclude=()))  # `_read` has removed the rollouts
    with quietly():
        return _matrix(read, finished, question, [models] if isinstance(models, str) else models)


def _read(
    sources: Sequence[Source], named: Named, plan: Plan, progress: Progress | None
) -> tuple[list[ReadSource], list[FinishedResult]]:
    """The sources of rollouts, without the excluded ones, and the finished results."""
    if not sources:
        raise InputError("nothing to show; expected a folder of runs, or runs")
    finished, with_rollouts = finished_results(sources)
    if plan.exclude and finished:
        problem = f"{finished[0].path or 'a result'} has no rollouts to exclude"
        raise InputError.at("--exclude", problem, "expected rollouts, such as the folder of its run")
    return read_sources(with_rollouts, named, plan, progress), finished


@dataclass(frozen=True, slots=True)
class _Entry:
    """One model on one benchmark: its run, or the group of a finished result."""

    dataset: str | None
    identity: Identity
    path: str
    run: ReadRun | None = None
    finished: tuple[FinishedResult, Group] | None = None


def _entries(read: Sequence[ReadSource], finished: Sequence[FinishedResult]) -> Iterator[_Entry]:
    for index, source in enumerate(read):
        for run in runs_of(index, source.path, source.rollouts):
            identity = run.identity if any(run.identity) else (None, _stem(source.path, index))
            for dataset, part in run.parts.items():
                yield _Entry(dataset, identity, source.path, replace(run, parts={dataset: part}))
    for document in finished:
        for group in document.result.groups:
            identity = (group.agent, group.model)
            identity = identity if any(identity) else (None, _stem(document.path, 0))
            yield _Entry(group.dataset, identity, document.path, finished=(document, group))


def _stem(path: str, index: int) -> str:
    """The name of a run without agent and model: the name of its file."""
    return os.path.basename(path.rstrip(os.sep)).split(".")[0] or f"run {index + 1}"


Table = dict[str, dict[Identity, _Entry]]  # benchmark -> agent and model -> entry


def _table(entries: Iterator[_Entry]) -> Table:
    """The entries by benchmark and model; InputError if a model has two runs of a benchmark."""
    table: Table = {}
    for entry in entries:
        row = table.setdefault(entry.dataset or UNNAMED, {})
        if (before := row.get(entry.identity)) is not None:
            name = " · ".join(filter(None, reversed(entry.identity)))
            problem = f"is a second run of {entry.dataset or UNNAMED!r} by {name!r}, beside {before.path or 'another'}"
            raise InputError.at(entry.path or "runs", problem, "expected one run of each benchmark and model")
        row[entry.identity] = entry
    return table


def _columns(table: Table, chosen: Sequence[str] | None) -> dict[Identity, MatrixColumn]:
    """The models with unique names, in the order in which they appear or are chosen."""
    identities = list(dict.fromkeys(identity for row in table.values() for identity in row))
    names: list[str | None] = [model for _, model in identities]
    if not all(names) or len(set(names)) < len(names):
        names = [" · ".join(filter(None, reversed(identity))) for identity in identities]
    columns = {identity: MatrixColumn(name or "", *identity) for identity, name in zip(identities, names, strict=True)}
    if chosen is None:
        return columns
    if not chosen:
        raise InputError("models is empty; expected the names of the models to show, or None for all of them")
    chosen_columns: dict[Identity, MatrixColumn] = {}
    for name in chosen:
        matches = [key for key, column in columns.items() if name in (column.name, column.model, column.agent)]
        if not matches:
            raise _unknown(name, [column.name for column in columns.values()])
        if len(matches) > 1:
            listed = ", ".join(columns[identity].name for identity in matches)
            raise InputError(f"{name!r} is the name of several models ({listed}); expected one of them")
        if matches[0] in chosen_columns:
            raise InputError(f"model {name!r} is given twice; expected different models")
        chosen_columns[matches[0]] = columns[matches[0]]
    return chosen_columns


def _unknown(name: str, known: Sequence[str]) -> UnknownName:
    """The error for an unknown model. Unlike in `UnknownName.of`, digits count: versions of a model differ in them."""
    close = difflib.get_close_matches(name, known, 1) or [known[0]] * (len(known) == 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return UnknownName(f"no model named {name!r} in these runs; {hint}")


def _matrix(
    read: Sequence[ReadSource], finished: Sequence[FinishedResult], question: Question, chosen: Sequence[str] | None
) -> Matrix:
    plan = question.plan
    table = _table(_entries(read, finished))
    columns = _columns(table, chosen)
    models = list(columns.values())
    rows: list[_Row] = []
    for name, entries_of_row in table.items():
        entries = {column.name: entries_of_row[key] for key, column in columns.items() if key in entries_of_row}
        if entries:
            rows.append(_row(name, entries, models, read, question))
    text = next((row.metric for row in rows if row.metric), plan.requests[0].text)
    better = cast(Metric, plan.requests[0].metric).higher_is_better is not False
    judged = _judge_pairs([pair for row in rows for pair in row.differences], better, question)
    remaining, benchmarks = iter(judged), []
    for row in rows:
        pairs = [next(remaining) for _ in row.differences]
        benchmarks.append(replace(row.benchmark, pairs=pairs, best=_best(pairs, models)))
    mean = _mean(rows, models, better, question) if len(rows) > 1 else None
    excluded = set() if mean is None else set(mean.excluded)
    return Matrix(
        dialect=plan.dialect.name,
        missing=plan.missing,
        confidence=plan.confidence,
        seed=plan.seed,
        cluster=plan.cluster,
        margin=question.margin,
        metric=text,
        higher_is_better=better,
        tests=sum(pair.p is not None for pair in judged),
        models=models,
        inputs=[*(source.hashed() for source in read), *(list(document.result.inputs) for document in finished)],
        benchmarks=[replace(row, in_mean=row.benchmark not in excluded) for row in benchmarks],
        mean=mean,
        notes=[
            *source_notes(read),
            *_missing_notes(benchmarks, plan.missing),
            *_row_notes(rows),
            *_fragile_notes(rows, benchmarks, plan),
            *_mean_notes(mean),
        ],
        doubts=doubts_of(read, finished),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A benchmark with its cells and its differences, whose p is not yet adjusted."""

    benchmark: MatrixRow
    estimates: Mapping[str, Estimate | None]  # by model
    differences: Sequence[tuple[str, str, Difference]]  # (first model, second model, difference), in their order
    metric: str | None
    notes: Sequence[str]


def _row(
    name: str,
    entries: Mapping[str, _Entry],
    columns: Sequence[MatrixColumn],
    sources: Sequence[ReadSource],
    question: Question,
) -> _Row:
    """The row of a benchmark: its models on their common tasks, with all paired differences."""
    plan = question.plan
    runs = [replace(entry.run, name=model) for model, entry in entries.items() if entry.run is not None]
    check_gaps(runs, question)
    parts: dict[str, Rollouts] = {run.name: run.rollouts for run in runs}
    requests: dict[str, RequestedMetric] = {run.name: _request(run, plan) for run in runs}
    differences: list[tuple[str, str, Difference]] = []
    notes: list[str] = []
    why, excluded = None, 0
    if len(runs) > 1:
        aligned, notes, why = _aligned(runs, sources, question)
        if aligned is not None:
            excluded = len(aligned.all_tasks) - len(aligned.kept)
            if excluded:
                total = len(aligned.all_tasks)
                notes.append(f"{excluded:,} of {total:,} tasks excluded: not every model has a value on them")
            parts = {run.name: part for run, part in zip(runs, aligned.parts, strict=True)}
            requests = {run.name: request for run, request in zip(runs, aligned.requests, strict=True)}
            differences = [
                (runs[first].name, runs[second].name, _measured(aligned, first, second, runs, question).difference)
                for first, second in combinations(range(len(runs)), 2)
            ]
    estimates = {
        model: estimate_of(parts[model], requests[model], plan)
        if entry.finished is None
        else entry.finished[0].estimate(entry.finished[1], plan.requests[0].text, plan)
        for model, entry in entries.items()
    }
    if any(entry.finished for entry in entries.values()) and len(entries) > 1:
        why = FINISHED
    stops = [(run.name, run.rollouts.stop) for run in runs]
    notes += [f"{run}: {stop.fact}: no difference on this benchmark is tested" for run, stop in stops if stop]
    cells = [_cell(column.name, entries.get(column.name), estimates.get(column.name)) for column in columns]
    tasks = max((cell.tasks for cell in cells), default=0)
    metric = next((request.text for request in requests.values()), None)
    return _Row(MatrixRow(name, tasks, excluded, cells, why=why), estimates, differences, metric, notes)


def _request(run: ReadRun, plan: Plan) -> RequestedMetric:
    variants, _ = metrics_of(plan.requests, (run.rollouts, run.rollouts), (run.name, run.name), plan.reward)
    return _single(variants)[0]


def _single(variants: Sequence[tuple[RequestedMetric, RequestedMetric]]) -> tuple[RequestedMetric, RequestedMetric]:
    """The only variant of the metric; InputError if the runs have several rewards."""
    if len(variants) > 1:
        listed = ", ".join(first.text for first, _ in variants)
        raise InputError(f"the runs have several rewards ({listed}); pick one with --reward KEY")
    return variants[0]


@dataclass(frozen=True, slots=True)
class _Aligned:
    """The runs of a benchmark on the tasks that have a value in all of them, under the first run's ids."""

    parts: Sequence[Rollouts]
    requests: Sequence[RequestedMetric]
    kept: set[str]  # the tasks with a value in all runs
    all_tasks: set[str]  # the tasks of any run


def _aligned(
    runs: Sequence[ReadRun], sources: Sequence[ReadSource], question: Question
) -> tuple[_Aligned | None, list[str], str | None]:
    """Align the runs; also returns notes, and the reason if they cannot be compared."""
    plan, head = question.plan, runs[0]
    parts: list[Rollouts] = [head.rollouts]
    requests: list[RequestedMetric] = []
    all_tasks, kept = set(head.rollouts.tasks), set(head.rollouts.tasks)
    notes: list[str] = []
    for run in runs[1:]:
        common, task_notes = common_tasks(head, run, sources)
        if not common.alignment.common:
            return None, [f"{head.name} and {run.name} have no task in common"], NO_COMMON
        if refusal := unrelated((head, run), common, sources):
            return None, [refusal], refusal
        pairs, reward_notes = metrics_of(plan.requests, common.sides, (head.name, run.name), plan.reward)
        first, second = _single(pairs)
        requests = requests or [first]
        requests.append(second)
        old, new = (sources[each.source].settings(each.key[2]) for each in (head, run))
        notes += [*task_notes, *reward_notes, *settings_differ(old, new, (head.name, run.name))]
        parts.append(common.second)
        first_ids = dict(zip(common.second_ids, common.first.tasks, strict=True))
        all_tasks |= {first_ids.get(task, task) for task in run.rollouts.tasks}
        compared = _measure_metric(common, (first, second), (head.name, run.name), question).compared
        kept &= {task for task, has_values in zip(common.first.tasks, compared.tolist(), strict=True) if has_values}
    if not kept:
        return None, [*notes, "no task has a value in every run"], NO_COMMON
    return _Aligned([on_tasks(part, kept) for part in parts], requests, kept, all_tasks), notes, None


def _measured(aligned: _Aligned, first: int, second: int, runs: Sequence[ReadRun], question: Question) -> Measured:
    """The difference between two aligned runs, without a test if a stopping rule ended one of them."""
    common = by_id(aligned.parts[first], aligned.parts[second])
    metric = (aligned.requests[first], aligned.requests[second])
    measured = _measure_metric(common, metric, (runs[first].name, runs[second].name), question)
    stopped = any(runs[each].rollouts.stop is not None for each in (first, second))
    return without_test(measured) if stopped else measured


def _measure_metric(
    common: Common, metric: tuple[RequestedMetric, RequestedMetric], names: tuple[str, str], question: Question
) -> Measured:
    plan = question.plan
    codes = units(common, plan.cluster)[0] if plan.cluster else None
    columns = pair_columns(metric, common, names, zero=plan.missing == "zero")
    return measure(MetricPair(metric, common, columns, codes, question))


def _cell(model: str, entry: _Entry | None, estimate: Estimate | None) -> Cell:
    if entry is None:
        return _cell_of(model, None, 0, 0, why=NOT_RUN)
    if entry.run is not None:
        ledger, cost = Ledger.of(entry.run.rollouts), cost_of(entry.run.rollouts)
    else:
        assert entry.finished is not None
        ledger, cost = entry.finished[1].ledger, entry.finished[1].totals.get(COST)
    return _cell_of(
        model, estimate, ledger.gaps, ledger.planned, cost, entry.path, "the result does not have this metric"
    )


def _cell_of(
    model: str,
    estimate: Estimate | None,
    missing: int,
    planned: int,
    cost: float | None = None,
    source: str = "",
    why: str | None = None,
) -> Cell:
    """The cell of an estimate; ``why`` is the reason if there is no estimate."""
    if estimate is None:
        return Cell(model, None, None, None, None, 0, 0, missing, planned, cost, source, why)
    numbers = finite(estimate.value), finite(estimate.stderr), estimate.interval, estimate.method
    sizes = estimate.tasks, estimate.samples, missing, planned
    return Cell(model, *numbers, *sizes, cost, source, estimate.why)


def _judge_pairs(
    differences: Sequence[tuple[str, str, Difference]], better: bool, question: Question
) -> list[PairDifference]:
    """The verdicts on differences, adjusted for their number; equivalent if one is significantly within the margin."""
    confidence, margin = question.plan.confidence, question.margin
    adjusted = _adjusted([difference.p for *_, difference in differences])
    within: Sequence[float | None] = [None] * len(differences)
    if margin is not None:
        within = _adjusted([equivalence(each, margin, confidence=confidence).p for *_, each in differences])
    pairs = []
    for (first, second, difference), p, p_within in zip(differences, adjusted, within, strict=True):
        word = verdict(difference, higher_is_better=better, confidence=confidence, p=p).word
        pairs.append(
            PairDifference(
                first,
                second,
                difference.value,
                difference.plain_stderr,
                difference.interval,
                difference.p,
                p,
                "equivalent" if p_within is not None and p_within <= 1 - confidence else word,
                difference.method,
                difference.units,
                difference.stderr,
                difference.freedom if isfinite(difference.freedom) else None,
                difference.why,
            )
        )
    return pairs


def _adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """The p values, adjusted by Holm for the number of tests; None where there is no test."""
    tested = [p for p in p_values if p is not None]
    adjusted = iter(holm(np.array(tested, dtype=float)).tolist())
    return [None if p is None else next(adjusted) for p in p_values]


def _best(pairs: Sequence[PairDifference], columns: Sequence[MatrixColumn]) -> str | None:
    """The model that is better than every other one; None if there is none or if a model did not run."""
    for column in columns:
        beaten = {pair.first for pair in pairs if pair.second == column.name and pair.verdict == "better"}
        beaten |= {pair.second for pair in pairs if pair.first == column.name and pair.verdict == "worse"}
        if len(columns) > 1 and len(beaten) == len(columns) - 1:
            return column.name
    return None


def _mean(rows: Sequence[_Row], columns: Sequence[MatrixColumn], better: bool, question: Question) -> MatrixMean:
    """The mean over the benchmarks on which all models were compared, else over those with a value of every model."""
    names = [column.name for column in columns]
    pairs = list(combinations(names, 2))
    compared = [row for row in rows if len(row.differences) == len(pairs)] if pairs else []
    included = compared or [row for row in rows if all(_has_value(row, name) for name in names)]
    cells = []
    for index, name in enumerate(names):
        estimates = {row.benchmark.benchmark: row.estimates.get(name) for row in included}
        macro = means(estimates, question.plan.confidence).macro if any(estimates.values()) else None
        cells.append(_mean_cell(name, macro, [row.benchmark.cells[index] for row in rows]))
    differences = []
    for index, (first, second) in enumerate(pairs if compared else ()):
        by_benchmark = {row.benchmark.benchmark: row.differences[index][2] for row in compared}
        differences.append((first, second, mean_difference(by_benchmark, question.plan.confidence)))
    judged = _judge_pairs(differences, better, question)
    return MatrixMean(
        benchmarks=[row.benchmark.benchmark for row in included],
        excluded=[row.benchmark.benchmark for row in rows if row not in included],
        tasks=sum(row.benchmark.tasks for row in included),
        cells=cells,
        pairs=judged,
        best=_best(judged, columns),
    )


def _has_value(row: _Row, name: str) -> bool:
    estimate = row.estimates.get(name)
    return estimate is not None and finite(estimate.value) is not None


def _mean_cell(name: str, estimate: Estimate | None, cells: Sequence[Cell]) -> Cell:
    """The mean of a model, with its missing rollouts and its cost over all benchmarks."""
    costs = [cell.cost_usd for cell in cells if cell.cost_usd is not None]
    totals = sum(cell.missing for cell in cells), sum(cell.planned for cell in cells), sum(costs) if costs else None
    return _cell_of(name, estimate, *totals, why="no benchmark that every model has")


def _missing_notes(benchmarks: Sequence[MatrixRow], policy: str) -> list[str]:
    """A note on the number of missing rollouts and their benchmarks, if there are any."""
    counts = {row.benchmark: sum(cell.missing for cell in row.cells) for row in benchmarks}
    planned = sum(cell.planned for row in benchmarks for cell in row.cells)
    missing = sum(counts.values())
    if not missing:
        return []
    by_benchmark = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    are, treatment = "is" if missing == 1 else "are", "counted as 0" if policy == "zero" else "excluded"
    suffix = f": {by_benchmark}" if len(counts) > 1 else ""
    return [f"{missing:,} of {planned:,} rollouts {are} missing ({treatment}){suffix}"]


def _row_notes(rows: Sequence[_Row]) -> list[str]:
    """The notes of all benchmarks, each once; a note that is not on all benchmarks names its benchmarks."""
    benchmarks_of: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys(row.notes):
            benchmarks_of.setdefault(note, []).append(row.benchmark.benchmark)
    return [note if len(names) == len(rows) else f"{', '.join(names)}: {note}" for note, names in benchmarks_of.items()]


def _fragile_notes(rows: Sequence[_Row], benchmarks: Sequence[MatrixRow], plan: Plan) -> list[str]:
    """Notes on verdicts that one more task, lost or won outright, would undo."""
    benchmarks_of: dict[str, dict[str, None]] = {}
    for row, benchmark in zip(rows, benchmarks, strict=True):
        for (_, _, difference), pair in zip(row.differences, benchmark.pairs, strict=True):
            if pair.verdict in ("better", "worse") and undone_by_one(difference, plan.confidence):
                benchmarks_of.setdefault(one_more(difference.value, plan.cluster), {})[benchmark.benchmark] = None
    return [f"{', '.join(names)}: {unseen} would undo a verdict" for unseen, names in benchmarks_of.items()]


def _mean_notes(mean: MatrixMean | None) -> list[str]:
    """A note on the benchmarks that are not in the mean, if there are any."""
    if mean is None or not mean.excluded:
        return []
    if not mean.benchmarks:
        return ["no benchmark has a value of every model, so there is no mean over benchmarks"]
    return [
        f"the mean is over {', '.join(mean.benchmarks)}; not in it, because not every model was compared there: "
        f"{', '.join(mean.excluded)}"
    ]
