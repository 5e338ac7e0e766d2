"""Compare runs: read them, find their common tasks, measure every metric, decide, and list changed tasks.

::

    source ─┐
            ├─► contests ──► Common: two runs, ──► Measured: a metric's ──► adjusted ──► Finding: with a verdict
    source ─┘   of runs      task by task          difference               for others   in a Pair of the Comparison
    (source.py) (align.py)   (align.py)            (measure.py)             (findings.py)

A `MetricPair` is one metric on all common tasks or on a slice of them; the `Question` has the settings of the test.
Notes beside the findings list other differences between the sources: settings, prompts, tasks and flipped answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Literal

import numpy as np

from calipers.analyses.compare import (
    HOLM,
    ORDER,
    SHOWN,
    SIDAK,
    Changed,
    Comparison,
    Contest,
    Finding,
    Flips,
    Pair,
    Primary,
    Question,
    Ranks,
    Run,
    make_question,
    step_order,
)
from calipers.analyses.compare.align import (
    Common,
    ReadRun,
    by_content,
    by_id,
    chosen_pairs,
    contests_of,
    cut,
    dataset_of,
    no_common,
    runs_of,
    units,
)
from calipers.analyses.compare.board import board_values, ranking_of
from calipers.analyses.compare.evidence import Sides, examine, followed, of_table
from calipers.analyses.compare.findings import DECIDED, adjusted, background_of, finding_of
from calipers.analyses.compare.measure import (
    Measured,
    MetricPair,
    columns_of,
    metrics_of,
    rewards_of,
)
from calipers.analyses.compare.remarks import check_random, of_counts, of_ends, of_runs
from calipers.analyses.compare.source import (
    Key,
    ReadSource,
    Texts,
    check_gaps,
    check_sources,
    check_tables,
    compared_tables,
    prompts_differ,
    read_sources,
    settings_differ,
    source_notes,
    split_metrics,
    tasks_differ,
    unrelated,
    waiting_notes,
)
from calipers.errors import CalipersError, InputError, UnrelatedRuns
from calipers.formats import Named
from calipers.pipeline import Progress, Source
from calipers.remarks import Remark
from calipers.reports.figures import counted
from calipers.request import Ranges, RequestedMetric, check_ranges, either, make_plan
from calipers.rollouts.column import Column
from calipers.rollouts.labels import SPLIT, STEP, has, slices, steps_of
from calipers.rollouts.ledger import RANDOM, Assumed, Missing
from calipers.rollouts.record import Stop, without_sentences
from calipers.stats.anytime import BETTING
from calipers.stats.claims import Evidence
from calipers.tally import quietly


def compare(
    *sources: Source,
    metrics: str | Sequence[str | Mapping[str, Any]] | None = None,
    metric: str | Sequence[str | Mapping[str, Any]] | None = None,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: Missing | Assumed | None = None,
    reward: str | None = None,
    range: Ranges | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    margin: float | None = None,
    test: Literal["default", "strict", "sign-flip", "mcnemar", "mid-p", "bootstrap"] = "default",
    adjust: Literal["sidak", "holm", "bh", "none"] = SIDAK,
    primary: str | None = None,
    baseline: str | None = None,
    flips: int = SHOWN,
    anytime: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    exclude: str | Sequence[str] = (),
    threshold: float | None = None,
    trust_reader: bool = False,
) -> Comparison:
    """Compare runs on their common tasks; every difference is the later run minus the earlier run.

    A source is anything that `score` reads, with ``columns`` and ``truth`` as there; ``metric`` is another name of
    ``metrics``. With one source, its agents and models are compared with each other; with more than two runs, all
    pairs are compared, or each run with the ``baseline``. A metric may also be a number of
    lm-evaluation-harness' table, if the sources have one: ``bleu``, or for one pipeline ``exact_match,strict``. The
    first metric on all tasks is the ``primary`` question, unless another is named, such as
    ``mean_reward[difficulty=hard]``: it keeps its full level, and the others are claims only if it is decided.
    With ``anytime`` the verdict is valid after every batch of tasks that is added to the runs. Runs of different
    benchmarks are an error, unless ``force`` insists: datasets of two names whose tasks differ under the same ids, or
    too few common tasks. ``exclude`` leaves out the rollouts of a slice, and ``threshold`` is the reward from which a
    sample passes, as in `score`. ``missing="random"`` declares that the loss of missing rollouts does not depend on
    their answers; without it a verdict must survive the worst case. A run has no verdict if a number that its own
    system reports differs from ours, unless ``trust_reader`` says that the reader is right.

    >>> found = compare([[1], [0], [1], [0], [1], [0]], [[1], [1], [1], [1], [1], [1]])["mean_reward"]
    >>> found.delta, found.verdict
    (0.5, 'undecided')
    """
    rollout_metrics, table_metrics = split_metrics(either(metrics, metric), dialect, sources)
    primary_question = None if primary is None else Primary.of(primary)
    keys = [by] if isinstance(by, str) else list(by)
    if primary_question and primary_question.by is not None and primary_question.by not in keys:
        keys.append(primary_question.by)
    plan = make_plan(
        rollout_metrics,
        by=keys,
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
        range=range,
        exclude=exclude,
        threshold=threshold,
        compares=True,
    )
    question = make_question(
        replace(plan, requests=()) if table_metrics and not rollout_metrics else plan,
        test=test,
        adjust=adjust,
        margin=margin,
        baseline=baseline,
        flips=flips,
        tables=None if rollout_metrics is None else list(table_metrics),
        anytime=anytime,
        primary=primary_question,
        trust_reader=trust_reader,
    )
    check_sources(sources)
    names = Named(columns or {}, truth, input_format or "")
    read = read_sources(sources, names, plan, progress)
    with quietly():
        return _compare_sources(read, question, table_metrics, force=force)


@dataclass(frozen=True, slots=True)
class _MeasuredPair:
    """Two runs of a contest with their measured differences, which have no verdicts yet."""

    contest: Sequence[ReadRun]
    pair: Pair  # still without findings
    common: Common
    family: Sequence[Measured]
    refused: Mapping[str, str]  # requested number of a table -> why it is not compared

    @property
    def runs(self) -> tuple[ReadRun, ReadRun]:
        """The first run and the second."""
        return self.contest[self.pair.first], self.contest[self.pair.second]

    @property
    def nothing_shared(self) -> str:
        """The message for a pair without any metric in common."""
        reasons = "".join(f"; {metric}: {reason}" for metric, reason in self.refused.items())
        return f"{' and '.join(run.name for run in self.runs)} share none of these numbers{reasons}"


@dataclass(frozen=True, slots=True)
class _MeasuredFamily:
    """The differences of two runs, with what a reader must know of them."""

    family: Sequence[Measured]
    notes: Sequence[str]
    remarks: Sequence[Remark]
    refused: Mapping[str, str]  # requested number of a table -> why it is not compared


def _compare_sources(
    sources: Sequence[ReadSource], question: Question, table_metrics: Mapping[str, CalipersError], *, force: bool
) -> Comparison:
    contests, notes = contests_of(
        [runs_of(index, source.path, source.rollouts) for index, source in enumerate(sources)]
    )
    check_ranges(question.plan, [run.key[2] for run in chain.from_iterable(contests)])
    question = _ask_each_step(contests, question)
    measured_pairs, excluded = _measure_pairs(contests, sources, question, force=force)
    all_measured = chain.from_iterable(each.family for each in measured_pairs)
    known = {measured.metric_pair.text for measured in all_measured}
    table_notes = check_tables(table_metrics, known, [each.refused for each in measured_pairs], sources)
    excluded += [each.nothing_shared for each in measured_pairs if not each.family]
    measured_pairs = [each for each in measured_pairs if each.family]
    if not measured_pairs:
        raise InputError("; ".join(excluded))
    families, tests = adjusted([each.family for each in measured_pairs], question)
    measured_pairs = [replace(each, family=family) for each, family in zip(measured_pairs, families, strict=True)]
    texts = _read_texts(measured_pairs, sources)
    finished = [(each.contest, _finish_pair(each, question, tests, texts, sources)) for each in measured_pairs]
    results = []
    for contest in contests:
        finished_pairs = [pair for runs, pair in finished if runs is contest]
        if finished_pairs:
            has_ranks = len(contest) > 2 and not question.anytime and not question.steps
            ranks = (
                _without_stopped(
                    [
                        ranking_of(values, contest, question)
                        for values in board_values(contest, question.on(contest[0].key[2]))
                    ],
                    contest,
                )
                if has_ranks
                else ()
            )
            results.append(Contest(dataset_of(contest), _runs(contest), finished_pairs, ranks))
    plan, primary = question.plan, _primary_of(measured_pairs[0].family).metric_pair.question_text
    if question.primary:
        primary = question.primary.text
    return Comparison(
        dialect=plan.dialect.name,
        missing=plan.missing,
        confidence=plan.confidence,
        seed=plan.seed,
        test=question.test,
        adjust=question.adjust,
        margin=question.margin,
        cluster=plan.cluster,
        inputs=[source.hashed() for source in sources],
        contests=results,
        tests=tests,
        order=ORDER if question.anytime else None,
        notes=[
            *without_sentences(
                [*source_notes(sources, [STEP] if question.steps else plan.by), *notes], _stop_notes(sources)
            ),
            *excluded,
            *table_notes,
        ],
        primary=primary,
        evidences=[background_of(measured).evidence for measured in chain.from_iterable(families)],
    )


def _measure_pairs(
    contests: Sequence[Sequence[ReadRun]], sources: Sequence[ReadSource], question: Question, *, force: bool
) -> tuple[list[_MeasuredPair], list[str]]:
    """Measure every pair of runs; also returns notes on excluded ones. InputError if no pair has a common task."""
    pairs_of = [chosen_pairs(contest, question.baseline) for contest in contests]
    for contest in contests:
        check_gaps(contest, question)
    measured_pairs: list[_MeasuredPair] = []
    excluded: list[str] = []
    reward = question.plan.reward
    rewards = [{name for run in contest for name in rewards_of(run.rollouts)} for contest in contests]
    for contest, pairs, names in zip(contests, pairs_of, rewards, strict=True):
        if reward and reward not in names and len(names) > 1 and any(reward in others for others in rewards):
            excluded.append(f"excluded, because no rollout has the reward {reward!r}: {dataset_of(contest)}")
            continue
        for first, second in pairs:
            common, notes = common_tasks(contest[first], contest[second], sources)
            if not common.alignment.common:
                excluded.append(": ".join([no_common(contest[first], contest[second]), *notes]))
                continue
            refusal = unrelated((contest[first], contest[second]), common, sources)
            if refusal and not force:
                raise UnrelatedRuns("; ".join([refusal, *notes]))
            of_benchmark = question.on(contest[first].key[2])
            found = _measure_pair(contest[first], contest[second], common, sources, of_benchmark)
            notes += [*([refusal] if refusal else []), *found.notes]
            flips = _flips(found.family, question)
            pair = Pair(first, second, common.alignment, (), flips, notes, found.remarks)
            measured_pairs.append(_MeasuredPair(contest, pair, common, found.family, found.refused))
    if not measured_pairs:
        raise InputError("; ".join(excluded))
    return measured_pairs, excluded


def _primary_of(family: Sequence[Measured]) -> Measured:
    return next(measured for measured in family if measured.primary)


def _ask_each_step(contests: Sequence[Sequence[ReadRun]], question: Question) -> Question:
    """Ask the question at each training step if a run has several, because a mean over steps is of no single policy.

    The question stays as it is with another breakdown, with clusters of steps, or if a run does not record its steps.
    """
    runs, by = [run.rollouts for contest in contests for run in contest], question.plan.by
    steps = max((steps_of(run) for run in runs), key=len, default="")
    other_breakdown = by and not {STEP, steps} & {*by}
    if not steps or other_breakdown or question.plan.cluster in (STEP, SPLIT):
        return question
    if not all(STEP in run.labels for run in runs):
        return question
    keys = [steps, *(key for key in by if key not in (STEP, steps))]
    adjust = HOLM if question.adjust == SIDAK else question.adjust
    return replace(question, plan=replace(question.plan, by=tuple(keys)), steps=steps, adjust=adjust)


def common_tasks(first: ReadRun, second: ReadRun, sources: Sequence[ReadSource]) -> tuple[Common, list[str]]:
    """Pair tasks by id; by content if no id is common or no common id has the same document in both runs.

    Also returns notes. A common id whose document differs between the runs is excluded.
    """
    runs = first, second
    common = by_id(first.rollouts, second.rollouts)
    documented = common.alignment.common and all(sources[run.source].documented for run in runs)
    if common.alignment.common and not documented:
        return common, []
    texts = [sources[run.source].prompts(run.key) for run in runs]
    contents = [text.documents if documented else text.prompts for text in texts]
    if not documented:
        return by_content(first.rollouts, second.rollouts, *contents), []
    known = [task for task in common.first.tasks if task in contents[0] and task in contents[1]]
    differing = [task for task in known if contents[0][task] != contents[1][task]]
    if not differing:
        return common, []
    if len(differing) == common.alignment.common:
        return by_content(first.rollouts, second.rollouts, *contents), ["no id has the same document in both runs"]
    examples = ", ".join(differing[:3]) + (", …" if len(differing) > 3 else "")
    note = f"excluded, because the same id has another document: {examples} ({len(differing):,} in all)"
    return by_id(first.rollouts, second.rollouts, frozenset(differing)), [note]


def _measure_pair(
    first: ReadRun, second: ReadRun, common: Common, sources: Sequence[ReadSource], question: Question
) -> _MeasuredFamily:
    """Measure two runs on their common tasks."""
    plan, names = question.plan, (first.name, second.name)
    if plan.missing == RANDOM:
        check_random(names, common.sides)
    clusters_of_tasks, disagreement = units(common, plan.cluster) if plan.cluster else (None, None)
    metrics, reward_notes = metrics_of(plan.requests, common.sides, names, plan.reward)
    notes = [*([disagreement] if disagreement else []), *reward_notes]
    absent = [key for key in plan.by if not any(has(side, key) for side in common.sides)]
    notes += [f"no rollout has {key!r}: all rollouts are in the slice __missing__" for key in absent]
    tables = [sources[run.source].table(run.key) for run in (first, second)]
    family: list[Measured] = []
    refused: Mapping[str, str] = {}
    all_tasks: dict[str | None, dict[str | None, Common]] = {} if question.steps else {None: {None: common}}
    sides_by_reward: dict[tuple[str | None, str | None], Sides] = {}
    slices_by_key = all_tasks | {key: cut(common, key, plan.dialect.label) for key in plan.by}
    if question.steps:
        steps = slices_by_key[question.steps]
        slices_by_key[question.steps] = dict(sorted(steps.items(), key=lambda item: step_order(item[0] or "")))
        unshared_steps = _unshared_steps(common, names, question)
        notes, refused = [*notes, *unshared_steps], {} if steps else {question.steps: " and ".join(unshared_steps)}
    for key, slices_of_key in slices_by_key.items():
        for value, part in slices_of_key.items():
            clusters = clusters_of_tasks if key is None else units(part, plan.cluster)[0] if plan.cluster else None
            for metric in metrics:
                columns = pair_columns(metric, part, names)
                metric_pair = MetricPair(metric, part, columns, clusters, question, key, value)
                zero = None
                if plan.missing == "zero":
                    zero = replace(metric_pair, columns=pair_columns(metric, part, names, zero=True))
                keys = metric[0].params.get("reward"), metric[1].params.get("reward")
                if keys not in sides_by_reward:
                    sides_by_reward[keys] = followed(common, keys)
                family.append(examine(metric_pair, sides_by_reward[keys], zero))
            if key is not None and question.tables is None:
                continue  # the bootstrap is slow: slices only for the numbers that were named
            of_tables = compared_tables(tables[0], tables[1], names, part, clusters, question)
            if of_tables is None:
                continue
            for measured in of_tables.measured:
                pair = replace(measured.metric_pair, common=part, columns=([], []), by=key, slice=value)
                family.append(of_table(replace(measured, metric_pair=pair)))
            if key is None:
                notes, refused = [*notes, *of_tables.notes], of_tables.refused
    remarks = [
        *of_runs(names, common.sides, plan.missing),
        *chain.from_iterable(of_counts(names, sides) for sides in sides_by_reward.values()),
        *of_ends(background_of(measured) for measured in family),
    ]
    remarks = list({(remark.code, *remark.values.items()): remark for remark in remarks}.values())
    notes += waiting_notes(common.settled) if question.anytime else []
    counts = len(common.first), len(common.second)
    if counts[0] != counts[1]:
        of_first = f"on the common tasks {names[0]} has {counted(counts[0], 'sample')}"
        notes.append(f"{of_first} and {names[1]} has {counts[1]:,}")
    stops = [(name, side.stop) for name, side in zip(names, common.sides, strict=True) if side.stop is not None]
    if stops:
        family, notes = [without_test(measured) for measured in family], [*notes, *map(_bias_note, stops)]
    return _MeasuredFamily(family, notes, remarks, refused)


def _unshared_steps(common: Common, names: tuple[str, str], question: Question) -> list[str]:
    """Notes on the training steps that only one of the runs has."""
    first, second = (set(slices(side, question.steps, question.plan.dialect.label)[1]) for side in common.sides)
    return [
        f"only {name} has {question.steps} {', '.join(sorted(steps, key=step_order))}"
        for name, steps in zip(names, (first - second, second - first), strict=True)
        if steps
    ]


def pair_columns(
    metric: tuple[RequestedMetric, RequestedMetric], part: Common, names: tuple[str, str], *, zero: bool = False
) -> tuple[list[Column], list[Column]]:
    """The columns that a metric reads from each run; with ``zero``, gaps in rewards are 0."""
    first, second = (
        columns_of(of_run, side, name, zero=zero) for of_run, side, name in zip(metric, part.sides, names, strict=True)
    )
    return first, second


UNTESTED: Final = (
    "a run was stopped by what it showed, and a test for a fixed number of tasks does not hold then; "
    "compare --anytime does"
)
UNRANKED: Final = "a run was stopped by what it showed: ranks over a fixed number of tasks do not hold then"


def without_test(measured: Measured) -> Measured:
    """The difference without its test, which is invalid if a stopping rule ended a run.

    The anytime test stays, because it is valid after every task.
    """
    difference = measured.difference
    if difference.method == BETTING or difference.value is None:
        return measured
    bare = replace(difference, interval=None, p=None, why=UNTESTED, evidence=None, draws=None)
    background = measured.background
    if background is not None:
        background = replace(background, evidence=Evidence(bare, bare, reader=background.evidence.reader))
    return replace(measured, difference=bare, mcnemar=None, variance=None, background=background)


def _bias_note(named_stop: tuple[str, Stop]) -> str:
    name, stop = named_stop
    leans = {"lower": "too high", "upper": "too low"}.get(stop.side)
    biased = f"; its value is {leans} on average, and the difference may be off by as much" if leans else ""
    return f"{name}: {stop.fact}: the number of compared tasks depends on its results{biased}"


def _stop_notes(sources: Sequence[ReadSource]) -> list[str]:
    """The readers' notes on stopped runs, which are not repeated because each pair has its own note."""
    return [note for source in sources for stop in source.rollouts.stops.values() for note in stop.notes]


def _without_stopped(ranks: Sequence[Ranks], contest: Sequence[ReadRun]) -> list[Ranks]:
    """The ranks of a contest, or empty ones with a reason if a stopping rule ended one of the runs."""
    if all(run.rollouts.stop is None for run in contest):
        return list(ranks)
    return [Ranks(by_metric.metric, by_metric.tasks, [], None, None, UNRANKED) for by_metric in ranks]


def _findings(family: Sequence[Measured], question: Question, tests: int) -> list[Finding]:
    """The findings on two runs: by default, secondary findings are claims only if the primary question is decided."""
    primary = finding_of(_primary_of(family), question, tests)
    all_claim = (question.adjust != SIDAK and not question.gated) or primary.verdict in DECIDED
    return [finding_of(measured, question, tests, claims=measured.primary or all_claim) for measured in family]


def _flips(family: Sequence[Measured], question: Question) -> Flips | None:
    """The tasks whose values differ, by the first metric with a value per task; None if no metric has one.

    If training steps are compared, these are the tasks of the last step.
    """
    steps = [step_order(each.metric_pair.slice or "") for each in family if each.metric_pair.by == question.steps]
    for measured in family:
        pair = measured.metric_pair
        at_last = bool(steps) and pair.by == question.steps and step_order(pair.slice or "") == max(steps)
        if not (pair.by is None or at_last) or measured.values is None:
            continue
        tasks = pair.common.first.tasks
        first, second = measured.values
        with np.errstate(invalid="ignore"):
            change = np.where(measured.compared & np.isfinite(second - first), second - first, 0.0)
        gain = -change if measured.higher_is_better is False else change
        largest = []
        for sign in (-1.0, 1.0):
            size = np.where(sign * gain > 0, np.abs(gain), 0.0)
            order = np.argsort(-size, kind="stable")[: question.flips].tolist()
            largest.append([Changed(tasks[t], float(first[t]), float(second[t])) for t in order if size[t] > 0])
        worse, better = int((gain < 0).sum()), int((gain > 0).sum())
        same = int((measured.compared & (second == first)).sum())
        return Flips(pair.question_text if at_last else pair.text, worse, better, same, largest[0], largest[1])
    return None


def _flipped_ids(pair: Pair, common: Common) -> dict[str, tuple[str, str]]:
    """The ids in both runs of the changed tasks that are listed, by the first run's id."""
    changes = (*pair.flips.regressions, *pair.flips.fixes) if pair.flips else ()
    tasks = {change.task for change in changes}
    ids = zip(common.first.tasks, common.second_ids, strict=True) if tasks else ()
    return {first: (first, second) for first, second in ids if first in tasks}


def _read_texts(measured_pairs: Sequence[_MeasuredPair], sources: Sequence[ReadSource]) -> list[dict[Key, Texts]]:
    """The texts of each source by group: all prompts, and the answers to the changed tasks."""
    wanted: list[dict[Key, set[str]]] = [{} for _ in sources]
    for each in measured_pairs:
        id_pairs = _flipped_ids(each.pair, each.common).values()
        for side, run in enumerate(each.runs):
            wanted[run.source].setdefault(run.key, set()).update(ids[side] for ids in id_pairs)
    return [source.texts(tasks) for source, tasks in zip(sources, wanted, strict=True)]


def _finish_pair(
    each: _MeasuredPair,
    question: Question,
    tests: int,
    texts: Sequence[dict[Key, Texts]],
    sources: Sequence[ReadSource],
) -> Pair:
    """The pair with its findings, the answers to its changed tasks, and notes on other differences."""
    pair, runs, common = each.pair, each.runs, each.common
    names, tasks = (runs[0].name, runs[1].name), common.first.tasks
    first, second = (texts[run.source].get(run.key) or Texts() for run in runs)
    old, new = (sources[run.source] for run in runs)
    dataset_settings = old.settings(runs[0].key[2]), new.settings(runs[1].key[2])
    notes = [*pair.notes, *settings_differ(*dataset_settings, names), *tasks_differ(old.digests, new.digests, tasks)]
    if pair.alignment.by == "id":
        # a task with the same digest has the same instruction: its prompts differ only by the agent's wording
        same = {key[1] for key, digest in old.digests.items() if new.digests.get(key) == digest}
        notes += prompts_differ(first.prompts, second.prompts, [task for task in tasks if task not in same])
    flips = pair.flips
    if flips is not None and not question.steps:  # answers are stored by task: with steps, they may be of another step
        ids = _flipped_ids(pair, common)

        def with_answers(changes: Sequence[Changed]) -> list[Changed]:
            return [
                replace(change, answers=(first.answer(ids[change.task][0]), second.answer(ids[change.task][1])))
                for change in changes
            ]

        flips = replace(flips, regressions=with_answers(flips.regressions), fixes=with_answers(flips.fixes))
    return replace(pair, findings=_findings(each.family, question, tests), flips=flips, notes=notes)


def _runs(contest: Sequence[ReadRun]) -> list[Run]:
    return [
        Run(
            run.name,
            run.path,
            *run.identity,
            run.key[2],
            len(run.rollouts.tasks),
            len(run.rollouts),
            list(run.rollouts.checks),
        )
        for run in contest
    ]
