"""Compare many models on many benchmarks: paired by task on each benchmark, and by the mean over benchmarks.

::

    folder of runs ──► runs: one benchmark by one model ──► rows: evidence on each pair of models ──► decided, Holm
                                                                                         └──► joined: one mean, decided

Two models are compared on the tasks planned in both, so that the gaps of a third one touch only its own pairs. The mean
over benchmarks is the primary question and keeps its full level. The conclusions on single benchmarks are adjusted for
their number (Holm 1979), independent of the result for the mean. Benchmarks of unlike scales have no mean: each is a
question of its own, adjusted in one step (Sidak 1967).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import isfinite
from typing import Any, Final, Literal, cast

import numpy as np

from calipers.analyses.compare import HOLM, SIDAK, Question, make_question, one_more
from calipers.analyses.compare.align import Identity, ReadRun, runs_of, units
from calipers.analyses.compare.compare import common_tasks, pair_columns, without_test
from calipers.analyses.compare.evidence import ALL_SAMPLES, FIRST_SAMPLES, examine, followed
from calipers.analyses.compare.findings import at_confidence, background_of
from calipers.analyses.compare.measure import Measured, MetricPair, metrics_of
from calipers.analyses.compare.remarks import check_random, of_counts, of_decision, of_ends, of_runs
from calipers.analyses.compare.source import (
    COST,
    FinishedResult,
    ReadSource,
    check_gaps,
    cost_of,
    doubts_of,
    estimate_of,
    finished_results,
    read_sources,
    settings_differ,
    source_notes,
    unrelated,
)
from calipers.analyses.matrix.document import (
    Cell,
    Matrix,
    MatrixColumn,
    MatrixMean,
    MatrixRow,
    PairDifference,
    note_of,
)
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.metrics import Metric
from calipers.names import OF_RANGE
from calipers.pipeline import Progress, Source
from calipers.remarks import Remark, Value
from calipers.reports.remark_texts import text_of
from calipers.reports.result import Group, finite
from calipers.request import Plan, Ranges, RequestedMetric, check_ranges, either, make_plan, mean_metric
from calipers.rollouts.ledger import RANDOM, Assumed, Ledger, Missing
from calipers.stats.claims import Decision, Evidence, Reason, decide, p_of_claim, p_of_equivalence
from calipers.stats.estimate import Estimate
from calipers.stats.paired import FLOORED_T, undone_by_one
from calipers.stats.ranks import holm, sidak
from calipers.stats.scales import SCALES, Scale, joined_scale, ways_to_a_mean, why_no_mean
from calipers.stats.suite import demanded_range, joined_evidence, means, scale_of, share_of_width
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
    missing: Missing | Assumed | None = None,
    reward: str | None = None,
    range: Ranges | None = None,
    exclude: str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    margin: float | None = None,
    threshold: float | None = None,
    progress: Progress | None = None,
    mean: Literal["of-range"] | None = None,
    trust_reader: bool = False,
) -> Matrix:
    """Show models by benchmarks: values, paired differences, and the mean over benchmarks as the one primary test.

    A source is a folder of runs, anything that `score` reads, with ``columns`` and ``truth`` as there, or a finished
    result, which has values and no differences. ``metrics`` is one metric, a mean over tasks; by default it is the
    first such metric of the dialect; ``metric`` is another name of it. ``models`` selects models by name and sets their
    order; a difference is the later model less the earlier one, on the tasks of both. ``margin`` is the largest
    difference that does not matter: within it, two models are equivalent. ``exclude`` leaves out the rollouts of a
    slice, as in `score`. ``range`` is the range of rewards, or a mapping from benchmarks to their ranges. Benchmarks
    with different ranges have no mean, unless ``mean`` is ``"of-range"``: each value is a share of its range then.
    ``trust_reader`` is as in `compare`.

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
        mean=mean,
        compares=True,
        threshold=threshold,
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
    entries_of_all = chain.from_iterable(row.values() for row in table.values())
    check_ranges(plan, [entry.dataset for entry in entries_of_all])
    columns = _columns(table, chosen)
    models = list(columns.values())
    rows: list[_Row] = []
    for name, entries_of_row in table.items():
        entries = {column.name: entries_of_row[key] for key, column in columns.items() if key in entries_of_row}
        if entries:
            dataset = next(iter(entries.values())).dataset
            rows.append(_row(name, entries, models, read, question.on(dataset)))
    text = next((row.metric for row in rows if row.metric), plan.requests[0].text)
    better = cast(Metric, plan.requests[0].metric).higher_is_better is not False
    mean, remarks = None, list[Remark]()
    if len(rows) > 1:
        mean, remarks = _mean(rows, models, better, question)
    alike = mean is None or mean.undecided_by != SCALES
    pairs_of_rows = list(chain.from_iterable(row.pairs for row in rows))
    judged = _judge_pairs(pairs_of_rows, better, question, HOLM if alike else SIDAK)
    remaining, benchmarks = iter(judged), []
    for row in rows:
        pairs = [next(remaining) for _ in row.pairs]
        benchmarks.append(replace(row.benchmark, pairs=pairs, best=_best(pairs, models)))
    excluded = set() if mean is None else set(mean.excluded)
    remarks += chain.from_iterable(row.remarks for row in rows)
    remarks = list({(remark.code, str(remark.values)): remark for remark in remarks}.values())
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
            *map(note_of, [remark for remark in remarks if remark.severity != "no_answer"]),
            *_row_notes(rows),
            *_fragile_notes(rows, benchmarks, plan),
            *_mean_notes(mean),
        ],
        doubts=doubts_of(read, finished),
        remarks=remarks,
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two models on one benchmark, or on the mean over benchmarks: what is known about their difference."""

    first: str
    second: str
    evidence: Evidence | None  # None if they cannot be compared
    why: str | None = None
    undecided_by: Reason | None = None  # of a pair without evidence
    measured: Measured | None = None  # None for a mean
    missing: tuple[int, int] = (0, 0)  # rollouts of each model whose worst outcome a claim must survive
    planned: tuple[int, int] = (0, 0)  # rollouts of each model on the compared tasks


@dataclass(frozen=True, slots=True)
class _Row:
    """A benchmark with its cells and what is known about its pairs, whose p is not yet adjusted."""

    benchmark: MatrixRow
    estimates: Mapping[str, Estimate | None]  # by model
    pairs: Sequence[_Pair]  # in the order of the models
    scale: Scale
    metric: str | None
    notes: Sequence[str]
    remarks: Sequence[Remark]


def _row(
    name: str,
    entries: Mapping[str, _Entry],
    columns: Sequence[MatrixColumn],
    sources: Sequence[ReadSource],
    question: Question,
) -> _Row:
    """The row of a benchmark: each model on its own tasks, and all pairs of models on the tasks of both."""
    plan = question.plan
    runs = [replace(entry.run, name=model) for model, entry in entries.items() if entry.run is not None]
    check_gaps(runs, question)
    requests: dict[str, RequestedMetric] = {}
    pairs: list[_Pair] = []
    notes: list[str] = []
    remarks: list[Remark] = []
    tasks_of = {run.name: set(run.rollouts.tasks) for run in runs}
    for first, second in combinations(runs, 2):
        measured, of_pair, why = _measured_pair(first, second, sources, question)
        notes += of_pair
        if measured is None:
            pairs.append(_Pair(first.name, second.name, None, why))
            continue
        requests.setdefault(first.name, measured.metric_pair.metrics[0])
        requests.setdefault(second.name, measured.metric_pair.metrics[1])
        common = measured.metric_pair.common
        if first is runs[0] and common.alignment.by == "content":  # one task has other ids in the two runs
            first_ids = dict(zip(common.second_ids, common.first.tasks, strict=True))
            tasks_of[second.name] = {first_ids.get(task, task) for task in tasks_of[second.name]}
        background = background_of(measured)
        evidence, sides = background.evidence, background.pair.sides
        survives = background.filling if evidence.worst is not None or evidence.unknown else None
        missing = (0, 0) if survives is None else survives.counts
        planned = len(sides[0]), len(sides[1])
        pairs.append(_Pair(first.name, second.name, evidence, measured=measured, missing=missing, planned=planned))
        remarks += _pair_remarks(name, (first, second), measured, plan)
    for run in runs:
        if run.name not in requests:
            requests[run.name] = _request(run, plan)
    estimates: dict[str, Estimate | None] = {}
    for model, entry in entries.items():
        if entry.run is not None:
            estimates[model] = estimate_of(entry.run.rollouts, requests[model], plan)
        elif entry.finished is not None:
            document, group = entry.finished
            estimates[model] = document.estimate(group, plan.requests[0].text, plan)
    why = None
    if pairs and all(pair.evidence is None for pair in pairs):
        why, pairs = pairs[0].why, []
    if any(entry.finished for entry in entries.values()) and len(entries) > 1:
        why = FINISHED
    stops = [(run.name, run.rollouts.stop) for run in runs]
    notes += [f"{run}: {stop.fact}: no difference on this benchmark is tested" for run, stop in stops if stop]
    all_tasks = set[str]().union(*tasks_of.values())
    in_all = set.intersection(*tasks_of.values()) if tasks_of else set[str]()
    for model, own in tasks_of.items():
        if len(own) < len(all_tasks):
            values: dict[str, Value] = {"run": model, "own": len(own), "tasks": len(all_tasks), "benchmark": name}
            remarks.append(Remark("own_tasks_of_benchmark", values, "warning"))
    cells = [_cell(column.name, entries.get(column.name), estimates.get(column.name)) for column in columns]
    tasks = len(all_tasks) or max((cell.tasks for cell in cells), default=0)
    scale = joined_scale(scale_of(estimate, plan.confidence) for estimate in estimates.values() if estimate)
    metric = next((request.text for request in requests.values()), None)
    row = MatrixRow(name, tasks, len(all_tasks) - len(in_all), cells, why=why, range=scale.limits)
    return _Row(row, estimates, pairs, scale, metric, notes, remarks)


def _measured_pair(
    first: ReadRun, second: ReadRun, sources: Sequence[ReadSource], question: Question
) -> tuple[Measured | None, list[str], str | None]:
    """The difference of two runs on their common tasks, notes, and the reason if they cannot be compared.

    There is no test if a stopping rule ended one of them.
    """
    plan, names = question.plan, (first.name, second.name)
    common, notes = common_tasks(first, second, sources)
    if not common.alignment.common:
        return None, [f"{first.name} and {second.name} have no task in common"], NO_COMMON
    if refusal := unrelated((first, second), common, sources):
        return None, [refusal], refusal
    if plan.missing == RANDOM:
        check_random(names, common.sides)
    pairs, reward_notes = metrics_of(plan.requests, common.sides, names, plan.reward)
    metric = _single(pairs)
    old, new = (sources[run.source].settings(run.key[2]) for run in (first, second))
    notes += [*reward_notes, *settings_differ(old, new, names)]
    codes = units(common, plan.cluster)[0] if plan.cluster else None
    metric_pair = MetricPair(metric, common, pair_columns(metric, common, names), codes, question)
    zero = None
    if plan.missing == "zero":
        zero = replace(metric_pair, columns=pair_columns(metric, common, names, zero=True))
    sides = followed(common, (metric[0].params.get("reward"), metric[1].params.get("reward")))
    measured = examine(metric_pair, sides, zero)
    if not measured.compared.any():
        return None, [*notes, f"no task has a value in {first.name} and in {second.name}"], NO_COMMON
    stopped = any(run.rollouts.stop is not None for run in (first, second))
    return (without_test(measured) if stopped else measured), notes, None


def _request(run: ReadRun, plan: Plan) -> RequestedMetric:
    variants, _ = metrics_of(plan.requests, (run.rollouts, run.rollouts), (run.name, run.name), plan.reward)
    return _single(variants)[0]


def _single(variants: Sequence[tuple[RequestedMetric, RequestedMetric]]) -> tuple[RequestedMetric, RequestedMetric]:
    """The only variant of the metric; InputError if the runs have several rewards."""
    if len(variants) > 1:
        listed = ", ".join(first.text for first, _ in variants)
        raise InputError(f"the runs have several rewards ({listed}); pick one with --reward KEY")
    return variants[0]


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


def _judge_pairs(pairs: Sequence[_Pair], better: bool, question: Question, method: str) -> list[PairDifference]:
    """The conclusions on pairs, adjusted for their number by ``method``.

    What is adjusted is the largest p of all that a claim must survive. A claim that the adjustment takes back is
    undecided because of the family. The interval of Sidak's method is adjusted like its p.
    """
    confidence, margin = question.plan.confidence, question.margin
    known = [pair.evidence for pair in pairs]
    of_claims = [None if each is None else p_of_claim(each) for each in known]
    adjusted, by_holm = _adjusted(of_claims, method), _adjusted(of_claims, HOLM)
    within: Sequence[float | None] = [None] * len(pairs)
    if margin is not None:
        within = _adjusted([None if each is None else p_of_equivalence(each, margin) for each in known], method)
    tests = sum(p is not None for p in adjusted)
    of_interval = confidence ** (1 / max(tests, 1)) if method == SIDAK else confidence
    judged = []
    for pair, p, p_holm, p_within in zip(pairs, adjusted, by_holm, within, strict=True):
        if pair.evidence is None:
            judged.append(_not_compared(pair, of_interval))
            continue
        alone = decide(pair.evidence, higher_is_better=better, margin=margin, confidence=confidence)
        word, reason = _word(alone, p, p_within, confidence)
        difference = pair.evidence.compared
        if of_interval != confidence:
            difference = at_confidence(difference, of_interval)
        judged.append(
            PairDifference(
                pair.first,
                pair.second,
                difference.value,
                difference.plain_stderr,
                difference.interval,
                difference.p,
                p_holm,
                word,
                difference.method,
                difference.units,
                difference.stderr,
                difference.freedom if isfinite(difference.freedom) else None,
                difference.why,
                undecided_by=reason,
                as_observed=alone.as_observed,
                worst_interval=_worst_interval(pair.evidence),
                compared_on=_compared_on(pair),
                confidence=of_interval,
                remarks=_why_undecided(pair, alone, word),
                missing=pair.missing,
                p_adjusted=p,
            )
        )
    return judged


def _worst_interval(evidence: Evidence) -> tuple[float, float] | None:
    """From the lower end with all missing rollouts against the second model to the upper end with all for it."""
    if evidence.worst is None:
        return None
    against, favour = (difference.interval for difference in evidence.worst)
    return None if against is None or favour is None else (against[0], favour[1])


def _compared_on(pair: _Pair) -> str:
    """The samples that are compared: all, or the first of each task where their number follows the results."""
    if pair.measured is not None:
        return background_of(pair.measured).compared_on
    same = pair.evidence is None or pair.evidence.compared is pair.evidence.observed
    return ALL_SAMPLES if same else FIRST_SAMPLES


def _why_undecided(pair: _Pair, alone: Decision, word: str) -> list[Remark]:
    """Why a pair is undecided although its tasks may show a difference; empty if it is decided, or they do not."""
    if word != "undecided" or pair.evidence is None:
        return []
    if alone.word != "undecided":
        return [Remark("family_decides", {"word": alone.word}, "no_answer")]
    if pair.measured is not None:
        return of_decision(alone, pair.measured, background_of(pair.measured))
    if alone.undecided_by == "reader":
        return [Remark("reader_decides_mean", {}, "no_answer")]
    if alone.undecided_by == "missing":
        values: dict[str, Value] = {
            "first_missing": pair.missing[0],
            "second_missing": pair.missing[1],
            "first_planned": pair.planned[0],
            "second_planned": pair.planned[1],
        }
        return [Remark("missing_decide", values, "no_answer")]
    if alone.undecided_by == "counts":
        return [Remark("counts_decide_mean", {"word": alone.as_observed}, "no_answer")]
    if alone.undecided_by == "unseen_loss":
        return [Remark("unseen_losses_of_mean", {}, "no_answer")]
    return []


def _pair_remarks(benchmark: str, runs: tuple[ReadRun, ReadRun], measured: Measured, plan: Plan) -> list[Remark]:
    """What two runs of a benchmark lack, with the benchmark's name."""
    names, background = (runs[0].name, runs[1].name), background_of(measured)
    remarks = [
        *of_runs(names, measured.metric_pair.common.sides, plan.missing),
        *of_counts(names, background.followed),
        *of_ends(iter([background])),
    ]
    # another note counts the missing rollouts of all benchmarks
    return [
        replace(remark, values={**remark.values, "benchmark": benchmark})
        for remark in remarks
        if remark.code not in ("run_missing", "missing_random")
    ]


def _not_compared(pair: _Pair, confidence: float) -> PairDifference:
    return PairDifference(
        first=pair.first,
        second=pair.second,
        delta=None,
        stderr=None,
        interval=None,
        p=None,
        p_holm=None,
        verdict="undecided",
        method=FLOORED_T,
        tasks=0,
        why=pair.why,
        undecided_by=pair.undecided_by or "data",
        confidence=confidence,
    )


def _word(alone: Decision, p: float | None, p_within: float | None, confidence: float) -> tuple[str, Reason | None]:
    """The word of a pair among others and why it is undecided, from its decision alone and its adjusted p values."""
    level = 1 - confidence
    if alone.word == "undecided":
        return "undecided", alone.undecided_by
    if p_within is not None and p_within <= level:
        return "equivalent", None
    if alone.word == "equivalent" or p is None or p > level:
        return "undecided", "family"
    return alone.word, None


def _adjusted(p_values: Sequence[float | None], method: str) -> list[float | None]:
    """The p values, adjusted for the number of tests; None where there is no test."""
    tested = [p for p in p_values if p is not None]
    if method == SIDAK:
        return [None if p is None else sidak(p, len(tested)) for p in p_values]
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


def _mean(
    rows: Sequence[_Row], columns: Sequence[MatrixColumn], better: bool, question: Question
) -> tuple[MatrixMean, list[Remark]]:
    """The mean over the benchmarks on which all models were compared, else over those with a value of every model.

    Also returns remarks, if the benchmarks have no common scale and so no mean.
    """
    plan, of_range = question.plan, question.plan.mean == OF_RANGE
    names = [column.name for column in columns]
    pairs = list(combinations(names, 2))
    compared = [row for row in rows if _is_compared(row, len(pairs))] if pairs else []
    included = compared or [row for row in rows if _has_values(row, names)]
    scales = {row.benchmark.benchmark: row.scale for row in included}
    remark = None if of_range else why_no_mean(scales)
    why = None if remark is None else text_of(remark)
    cells = []
    for index, name in enumerate(names):
        estimates = {row.benchmark.benchmark: row.estimates.get(name) for row in included}
        macro = None
        if any(estimates.values()):
            macro = means(estimates, plan.confidence, scales, of_range=of_range, text_of=text_of).macro
        cells.append(_mean_cell(name, macro, [row.benchmark.cells[index] for row in rows]))
    of_mean = []
    for index, (first, second) in enumerate(pairs if compared else ()):
        if remark is not None:
            of_mean.append(_Pair(first, second, None, why, SCALES))
            continue
        by_benchmark = {row.benchmark.benchmark: _evidence_of_row(row, index, of_range) for row in compared}
        of_pair = [row.pairs[index] for row in compared]
        missing = sum(pair.missing[0] for pair in of_pair), sum(pair.missing[1] for pair in of_pair)
        planned = sum(pair.planned[0] for pair in of_pair), sum(pair.planned[1] for pair in of_pair)
        joined = joined_evidence(by_benchmark, plan.confidence)
        of_mean.append(_Pair(first, second, joined, missing=missing, planned=planned))
    judged = _judge_pairs(of_mean, better, question, HOLM)
    mean = MatrixMean(
        benchmarks=[row.benchmark.benchmark for row in included],
        excluded=[row.benchmark.benchmark for row in rows if row not in included],
        tasks=sum(row.benchmark.tasks for row in included),
        cells=cells,
        pairs=judged,
        best=_best(judged, columns),
        of_range=of_range,
        why=why,
        undecided_by=None if remark is None else SCALES,
    )
    return mean, [] if remark is None else [remark, *ways_to_a_mean(scales)]


def _evidence_of_row(row: _Row, index: int, of_range: bool) -> Evidence:
    """The evidence on a pair of a benchmark, in shares of the benchmark's range if these are averaged."""
    evidence = row.pairs[index].evidence
    assert evidence is not None
    if not of_range:
        return evidence
    low, high = demanded_range(row.benchmark.benchmark, row.scale)
    return share_of_width(evidence, high - low)


def _is_compared(row: _Row, pairs: int) -> bool:
    """Whether a benchmark has a difference of every pair of models."""
    return len(row.pairs) == pairs and all(pair.evidence for pair in row.pairs)


def _has_values(row: _Row, names: Sequence[str]) -> bool:
    """Whether a benchmark has a value of every model."""
    return all(_has_value(row, name) for name in names)


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
        for known, pair in zip(row.pairs, benchmark.pairs, strict=True):
            if known.evidence is None or pair.verdict not in ("better", "worse"):
                continue
            difference = known.evidence.compared
            if undone_by_one(difference, plan.confidence):
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
