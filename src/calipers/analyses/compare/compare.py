"""Compare runs: read them, find their common tasks, measure every metric, decide, and list changed tasks.

::

    source ─┐
            ├─► contests ──► Common: two runs, ──► Measured: a metric's ──► adjusted ──► Finding: with a verdict
    source ─┘   of runs      task by task          difference               for others   in a Pair of the Comparison
    (source.py) (align.py)   (align.py)            (measure.py)             (findings.py)

A `MetricPair` is one metric on the common tasks, all of them or a slice; the `Question` is how it is to be compared.
What else the sources say is noted beside the findings: settings, prompts and tasks that differ, answers that flipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any, Final, Literal, cast

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
    Place,
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
from calipers.analyses.compare.findings import DECIDED, adjusted, filled_pair, finding_of, warnings_of, with_missing
from calipers.analyses.compare.measure import (
    Measured,
    MetricPair,
    columns_of,
    measure,
    metrics_of,
    rewards_of,
    task_values,
    value_limits,
)
from calipers.analyses.compare.source import (
    Key,
    ReadSource,
    Texts,
    check_gaps,
    check_sources,
    check_tables,
    compared_tables,
    gap_notes,
    ours_and_theirs,
    prompts_differ,
    read_source,
    settings_differ,
    source_notes,
    tasks_differ,
    unrelated,
    waiting_notes,
)
from calipers.errors import CalipersError, InputError, UnrelatedRuns
from calipers.formats import Named
from calipers.metrics import Metric
from calipers.pipeline import Progress, Source
from calipers.request import Plan, RequestedMetric, either, make_plan
from calipers.rollouts.column import Bools, Column, Floats, Ints, total
from calipers.rollouts.labels import SPLIT, STEP, clusters, has, slices, steps_of, without
from calipers.rollouts.ledger import Missing
from calipers.rollouts.record import Stop, not_said
from calipers.rollouts.table import Rollouts
from calipers.stats.anytime import BETTING
from calipers.stats.intervals import ONE_CLUSTER, least_p
from calipers.stats.paired import apart
from calipers.stats.ranks import Ranking, RankSets, Winner, rank_sets, ranking, winner
from calipers.tally import quietly


def compare(
    *sources: Source,
    metrics: str | Sequence[str | Mapping[str, Any]] | None = None,
    metric: str | Sequence[str | Mapping[str, Any]] | None = None,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    range: tuple[float, float] | None = None,
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
    filled: tuple[float, float] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    exclude: str | Sequence[str] = (),
) -> Comparison:
    """Compare runs on their common tasks; every difference is the later run minus the earlier run.

    A source is anything that `score` reads, with ``columns`` and ``truth`` as there; ``metric`` is another name of
    ``metrics``. With one source, its agents and models are compared with each other; with more than two runs, all
    pairs are compared, or each run with the ``baseline``. A metric may also be a number of
    lm-evaluation-harness' table, if the sources have one: ``bleu``, or for one pipeline ``exact_match,strict``. The
    first metric on all tasks is the ``primary`` question, unless another is named, such as
    ``mean_reward[difficulty=hard]``: it keeps its full level, and the others are claims only if it is decided.
    ``filled`` gives the missing rollouts of the first and of the second run these rewards. With ``anytime`` the
    verdict is valid after every batch of tasks that is added to the runs. Runs of different benchmarks are an error,
    unless ``force`` insists: datasets of two names whose tasks differ under the same ids, or too few common tasks.
    ``exclude`` leaves out the rollouts of a slice, as in `score`.

    >>> found = compare([[1], [0], [1], [0], [1], [0]], [[1], [1], [1], [1], [1], [1]])["mean_reward"]
    >>> found.delta, found.verdict
    (0.5, 'undecided')
    """
    ours, theirs = ours_and_theirs(either(metrics, metric), dialect, sources)
    first = None if primary is None else Primary.of(primary)
    keys = [by] if isinstance(by, str) else list(by)
    plan = make_plan(
        ours,
        by=keys if first is None or first.by is None or first.by in keys else [*keys, first.by],
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
        range=range,
        exclude=exclude,
    )
    question = make_question(
        plan if ours is None or ours else replace(plan, asked=()),
        test=test,
        adjust=adjust,
        margin=margin,
        baseline=baseline,
        flips=flips,
        tables=None if ours is None else list(theirs),
        anytime=anytime,
        primary=first,
        filled=filled,
    )
    check_sources(sources)
    names = Named(columns or {}, truth, input_format or "")
    read = [read_source(source, names, plan.labels, progress) for source in sources]
    tables = without([source.rollouts for source in read], plan.exclude, plan.dialect.label)
    read = [replace(source, rollouts=table) for source, table in zip(read, tables, strict=True)]
    with quietly():
        return _compared(read, question, theirs, force=force)


@dataclass(frozen=True, slots=True)
class _MeasuredPair:
    """Two runs of a contest with their differences, before there are findings."""

    contest: Sequence[ReadRun]
    pair: Pair  # without its findings
    common: Common
    family: Sequence[Measured]
    refused: Mapping[str, str]  # numbers of tables that were asked for -> why they are not compared

    @property
    def runs(self) -> tuple[ReadRun, ReadRun]:
        """The first run and the second."""
        return self.contest[self.pair.first], self.contest[self.pair.second]

    @property
    def unshared(self) -> str:
        """Why there is no difference."""
        because = "".join(f"; {metric}: {reason}" for metric, reason in self.refused.items())
        return f"{' and '.join(run.name for run in self.runs)} share none of these numbers{because}"


def _compared(
    sources: Sequence[ReadSource], question: Question, theirs: Mapping[str, CalipersError], *, force: bool
) -> Comparison:
    contests, notes = contests_of(
        [runs_of(index, source.path, source.rollouts) for index, source in enumerate(sources)]
    )
    question = _by_step(contests, question)
    planned = [chosen_pairs(contest, question.baseline) for contest in contests]
    for contest in contests:
        check_gaps(contest, question)
    every: list[_MeasuredPair] = []
    unshared: list[str] = []
    wanted, rewards = question.plan.reward, [_rewards(contest) for contest in contests]
    for contest, chosen, names in zip(contests, planned, rewards, strict=True):
        if wanted and wanted not in names and len(names) > 1 and any(wanted in others for others in rewards):
            unshared.append(f"excluded, because no rollout has the reward {wanted!r}: {dataset_of(contest)}")
            continue
        for first, second in chosen:
            common, pair_notes = common_tasks(contest[first], contest[second], sources)
            if not common.alignment.common:
                unshared.append(": ".join([no_common(contest[first], contest[second]), *pair_notes]))
                continue
            refusal = unrelated((contest[first], contest[second]), common, sources)
            if refusal and not force:
                raise UnrelatedRuns("; ".join([refusal, *pair_notes]))
            family, more, refused = _measured(contest[first], contest[second], common, sources, question)
            notes_on_pair = [*pair_notes, *([refusal] if refusal else []), *more]
            pair = Pair(first, second, common.alignment, (), _flips(family, question), notes_on_pair)
            every.append(_MeasuredPair(contest, pair, common, family, refused))
    if not every:
        raise InputError("; ".join(unshared))
    known = {measured.metric_pair.text for each in every for measured in each.family}
    table_notes = check_tables(theirs, known, [each.refused for each in every], sources)
    unshared += [each.unshared for each in every if not each.family]
    every = [each for each in every if each.family]
    if not every:
        raise InputError("; ".join(unshared))
    families, tests = adjusted([each.family for each in every], question)
    every = [replace(each, family=family) for each, family in zip(every, families, strict=True)]
    texts = _texts(every, sources)
    finished = [(each.contest, _finished(each, question, tests, texts, sources)) for each in every]
    results = []
    for contest in contests:
        its_pairs = [pair for runs, pair in finished if runs is contest]
        if its_pairs:
            ranked = len(contest) > 2 and not question.anytime and not question.steps
            ranks = _without_stopped(_ranks(contest, question), contest) if ranked else ()
            results.append(Contest(dataset_of(contest), _runs(contest), its_pairs, ranks))
    plan = question.plan
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
            *not_said([*source_notes(sources, [STEP] if question.steps else plan.by), *notes], _stop_notes(sources)),
            *unshared,
            *table_notes,
        ],
        primary=question.primary.text if question.primary else _leading(every[0].family).metric_pair.question_text,
        differences=[measured.difference for each in every for measured in each.family],
    )


def _rewards(contest: Sequence[ReadRun]) -> set[str]:
    return {name for run in contest for name in rewards_of(run.rollouts)}


def _leading(family: Sequence[Measured]) -> Measured:
    return next(measured for measured in family if measured.primary)


def _by_step(contests: Sequence[Sequence[ReadRun]], question: Question) -> Question:
    """The question asked at each training step, where the runs have several: over all of them it is of no policy.

    A breakdown that is asked for stays, as do clusters of steps, and a run that does not say its steps.
    """
    runs, by = [run.rollouts for contest in contests for run in contest], question.plan.by
    steps = max((steps_of(run) for run in runs), key=len, default="")
    other = (by and not {STEP, steps} & {*by}) or question.plan.cluster in (STEP, SPLIT)
    if not steps or other or not all(STEP in run.labels for run in runs):
        return question
    keys = [steps, *(key for key in by if key not in (STEP, steps))]
    adjust = HOLM if question.adjust == SIDAK else question.adjust
    return replace(question, plan=replace(question.plan, by=tuple(keys)), steps=steps, adjust=adjust)


def common_tasks(first: ReadRun, second: ReadRun, sources: Sequence[ReadSource]) -> tuple[Common, list[str]]:
    """The common tasks: by id, or by content where no id is common or no id has the same document in both runs."""
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
    others = [task for task in known if contents[0][task] != contents[1][task]]
    if not others:
        return common, []
    if len(others) == common.alignment.common:
        return by_content(first.rollouts, second.rollouts, *contents), ["no id has the same document in both runs"]
    some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    note = f"excluded, because the same id has another document: {some} ({len(others):,} in all)"
    return by_id(first.rollouts, second.rollouts, frozenset(others)), [note]


def _measured(
    first: ReadRun, second: ReadRun, common: Common, sources: Sequence[ReadSource], question: Question
) -> tuple[list[Measured], list[str], Mapping[str, str]]:
    """Two runs measured on their common tasks, notes on that, and why numbers of their tables are absent."""
    plan, names = question.plan, (first.name, second.name)
    of_tasks, disagreement = units(common, plan.cluster) if plan.cluster else (None, None)
    metrics, reward_notes = metrics_of(plan.asked, common.sides, names, plan.reward)
    notes = [*([disagreement] if disagreement else []), *reward_notes]
    absent = [key for key in plan.by if not any(has(side, key) for side in common.sides)]
    notes += [f"no rollout has {key!r}: all rollouts are in the slice __missing__" for key in absent]
    tables = [sources[run.source].table(run.key) for run in (first, second)]
    family: list[Measured] = []
    refused: Mapping[str, str] = {}
    whole: dict[str | None, dict[str | None, Common]] = {} if question.steps else {None: {None: common}}
    parts = whole | {key: cut(common, key, plan.dialect.label) for key in plan.by}
    if question.steps:
        steps = parts[question.steps]
        parts[question.steps] = dict(sorted(steps.items(), key=lambda item: step_order(item[0] or "")))
        others = _other_steps(common, names, question)
        notes, refused = [*notes, *others], {} if steps else {question.steps: " and ".join(others)}
    for key, cuts in parts.items():
        for value, part in cuts.items():
            of_part = of_tasks if key is None else units(part, plan.cluster)[0] if plan.cluster else None
            for metric in metrics:
                columns = pair_columns(metric, part, names)
                metric_pair = counted = MetricPair(metric, part, columns, of_part, question, key, value)
                if question.filled is not None:
                    counted = filled_pair(metric_pair, *question.filled)
                elif plan.missing == "zero":
                    counted = replace(metric_pair, columns=pair_columns(metric, part, names, zero=True))
                family.append(replace(measure(counted), metric_pair=metric_pair))
            if key is not None and question.tables is None:
                continue  # draws take their time: in slices only for what is named
            of_tables = compared_tables(tables[0], tables[1], names, part, of_part, question)
            if of_tables is None:
                continue
            family += [
                replace(
                    measured,
                    metric_pair=replace(measured.metric_pair, common=part, columns=([], []), by=key, slice=value),
                )
                for measured in of_tables.measured
            ]
            if key is None:
                notes, refused = [*notes, *of_tables.notes], of_tables.refused
    notes += [
        note for name, side in zip(names, common.sides, strict=True) for note in gap_notes(name, side, plan.missing)
    ]
    notes += waiting_notes(common.settled) if question.anytime else []
    notes += warnings_of(names, common.sides)
    counts = len(common.first), len(common.second)
    if counts[0] != counts[1]:
        notes.append(f"on the common tasks {names[0]} has {counts[0]:,} samples and {names[1]} has {counts[1]:,}")
    stops = [(name, side.stop) for name, side in zip(names, common.sides, strict=True) if side.stop is not None]
    if stops:
        family, notes = [untested(measured) for measured in family], [*notes, *map(_biased, stops)]
    return family, notes, refused


def _other_steps(common: Common, names: tuple[str, str], question: Question) -> list[str]:
    """Which training steps only one of the runs has."""
    first, second = (set(slices(side, question.steps, question.plan.dialect.label)[1]) for side in common.sides)
    return [
        f"only {name} has {question.steps} {', '.join(sorted(alone, key=step_order))}"
        for name, alone in zip(names, (first - second, second - first), strict=True)
        if alone
    ]


def pair_columns(
    metric: tuple[RequestedMetric, RequestedMetric], part: Common, names: tuple[str, str], *, zero: bool = False
) -> tuple[list[Column], list[Column]]:
    """The columns that a metric reads of both runs; gaps in rewards are 0 where ``zero`` says so."""
    first, second = (
        columns_of(of_run, side, name, zero=zero) for of_run, side, name in zip(metric, part.sides, names, strict=True)
    )
    return first, second


UNTESTED: Final = (
    "a run was stopped by what it showed, and a test for a fixed number of tasks does not hold then; "
    "compare --anytime does"
)
UNRANKED: Final = "a run was stopped by what it showed: ranks over a fixed number of tasks do not hold then"


def untested(measured: Measured) -> Measured:
    """A difference without the test that a stopped run makes invalid."""
    difference = measured.difference
    if difference.method == BETTING or difference.value is None:  # which is valid after every task, and so a stop
        return measured
    bare = replace(difference, interval=None, p=None, why=UNTESTED, evidence=None, draws=None)
    return replace(measured, difference=bare, mcnemar=None, variance=None)


def _biased(stopped: tuple[str, Stop]) -> str:
    name, stop = stopped
    leans = {"lower": "too high", "upper": "too low"}.get(stop.side)
    biased = f"; its value is {leans} on average, and the difference may be off by as much" if leans else ""
    return f"{name}: {stop.fact}: the number of compared tasks depends on its results{biased}"


def _stop_notes(sources: Sequence[ReadSource]) -> list[str]:
    """The notes of the readers on stops; the pairs have notes of their own."""
    return [note for source in sources for stop in source.rollouts.stops.values() for note in stop.notes]


def _without_stopped(ranks: Sequence[Ranks], contest: Sequence[ReadRun]) -> list[Ranks]:
    """The ranks of several runs; none where a stopping rule stopped one of the runs."""
    if all(run.rollouts.stop is None for run in contest):
        return list(ranks)
    return [replace(by_metric, places=[], optimism=None, corrected=None, why=UNRANKED) for by_metric in ranks]


def _findings(family: Sequence[Measured], question: Question, tests: int) -> list[Finding]:
    """The verdicts on two runs: the primary question first, because the others depend on it."""
    leading = finding_of(_leading(family), question, tests)
    open_to_all = (question.adjust != SIDAK and not question.gated) or leading.verdict in DECIDED
    return [
        with_missing(
            finding_of(measured, question, tests, claims=measured.primary or open_to_all), measured.metric_pair, tests
        )
        for measured in family
    ]


def _flips(family: Sequence[Measured], question: Question) -> Flips | None:
    """The tasks with different values, by the first metric with a value per task; None where there is none.

    Of several training steps those of the last.
    """
    steps = [step_order(each.metric_pair.slice or "") for each in family if each.metric_pair.by == question.steps]
    most = question.flips
    for measured in family:
        pair = measured.metric_pair
        at_last = bool(steps) and pair.by == question.steps and step_order(pair.slice or "") == max(steps)
        if not (pair.by is None or at_last) or measured.values is None:
            continue
        tasks = pair.common.first.tasks
        first, second = measured.values
        with np.errstate(invalid="ignore"):
            moved = np.where(measured.there & np.isfinite(second - first), second - first, 0.0)
        gain = -moved if measured.higher_is_better is False else moved
        lists = []
        for sign in (-1.0, 1.0):
            size = np.where(sign * gain > 0, np.abs(gain), 0.0)
            order = np.argsort(-size, kind="stable")[:most].tolist()
            lists.append([Changed(tasks[t], float(first[t]), float(second[t])) for t in order if size[t] > 0])
        worse, better = int((gain < 0).sum()), int((gain > 0).sum())
        same = int((measured.there & (second == first)).sum())
        return Flips(pair.question_text if at_last else pair.text, worse, better, same, lists[0], lists[1])
    return None


def _flipped(pair: Pair, common: Common) -> dict[str, tuple[str, str]]:
    """The tasks that flipped and are shown, by the first run's id: what each run calls them."""
    changes = (*pair.flips.regressions, *pair.flips.fixes) if pair.flips else ()
    tasks = {change.task for change in changes}
    ids = zip(common.first.tasks, common.own_ids, strict=True) if tasks else ()
    return {first: (first, second) for first, second in ids if first in tasks}


def _texts(every: Sequence[_MeasuredPair], sources: Sequence[ReadSource]) -> list[dict[Key, Texts]]:
    """What each source says: its prompts, and its answers to what flipped."""
    wanted: list[dict[Key, set[str]]] = [{} for _ in sources]
    for each in every:
        ids = _flipped(each.pair, each.common).values()
        for side, run in enumerate(each.runs):
            wanted[run.source].setdefault(run.key, set()).update(names[side] for names in ids)
    return [source.texts(tasks) for source, tasks in zip(sources, wanted, strict=True)]


def _finished(
    each: _MeasuredPair,
    question: Question,
    tests: int,
    texts: Sequence[dict[Key, Texts]],
    sources: Sequence[ReadSource],
) -> Pair:
    """A pair with its findings, the answers to what flipped, and what differs beside them."""
    pair, runs, common = each.pair, each.runs, each.common
    names, tasks = (runs[0].name, runs[1].name), common.first.tasks
    first, second = (texts[run.source].get(run.key) or Texts() for run in runs)
    old, new = (sources[run.source] for run in runs)
    dataset_settings = old.settings(runs[0].key[2]), new.settings(runs[1].key[2])
    notes = [*pair.notes, *settings_differ(*dataset_settings, names), *tasks_differ(old.digests, new.digests, tasks)]
    if pair.alignment.by == "id":
        # where the digest of a task is the same, so is its instruction: the rest is how the agent puts it
        same = {key[1] for key, digest in old.digests.items() if new.digests.get(key) == digest}
        notes += prompts_differ(first.prompts, second.prompts, [task for task in tasks if task not in same])
    flips, ids = pair.flips, {} if question.steps else _flipped(pair, common)  # answers are of all steps
    if flips is not None:

        def answered(changes: Sequence[Changed]) -> list[Changed]:
            return [replace(change, answers=_answers(first, second, ids.get(change.task))) for change in changes]

        flips = replace(flips, regressions=answered(flips.regressions), fixes=answered(flips.fixes))
    return replace(pair, findings=_findings(each.family, question, tests), flips=flips, notes=notes)


def _answers(first: Texts, second: Texts, ids: tuple[str, str] | None) -> tuple[str | None, str | None]:
    """What two runs answered to a task, by what each calls it."""
    old, other = (first.answers.get(ids[0]), second.answers.get(ids[1])) if ids else (None, None)
    return old and old[1], other and other[1]


def _runs(contest: Sequence[ReadRun]) -> list[Run]:
    return [
        Run(run.name, run.path, *run.who, run.key[2], len(run.rollouts.tasks), len(run.rollouts)) for run in contest
    ]


FEW = "fewer than two tasks have a value in every run"
ALL_ONE_WAY = "by chance all may point one way"
UNEQUAL = "the runs have different numbers of samples: a rate over samples has no common weights"


@dataclass(frozen=True, slots=True)
class CommonValues:
    """One metric of all M runs of a contest on the T tasks that have a value in every run."""

    metric: str
    tasks: int  # T
    values: Floats  # [M, T]; nothing in it where there is a reason against ranks
    weights: Floats | None  # [T]
    units: Ints | None  # [T] the cluster of each task
    limits: tuple[float, float] | None  # of a value
    higher_is_better: bool
    requests: Sequence[RequestedMetric]  # [M] the metric as it is asked of each run
    ids: Sequence[str]  # [T] of the tasks
    why: str | None = None  # they cannot be ranked


def common_values(contest: Sequence[ReadRun], question: Question) -> list[CommonValues]:
    """The values of every metric that is a mean over tasks, over the tasks that all runs have."""
    common = reduce(set.intersection, (set(run.rollouts.tasks) for run in contest))
    tasks = [task for task in contest[0].rollouts.tasks if task in common]
    indices = [_indices(run.rollouts, tasks) for run in contest]
    return [
        replace(known, ids=[task for task, there in zip(tasks, kept.tolist(), strict=True) if there])
        for known, kept in (_values(metrics, contest, indices, question) for metrics in _of_all(contest, question))
    ]


def _ranks(contest: Sequence[ReadRun], question: Question) -> list[Ranks]:
    """The runs of a contest by every metric that is a mean over tasks, over the tasks that all of them have."""
    return [_ranked(values, contest, question) for values in common_values(contest, question)]


def _indices(part: Rollouts, tasks: Sequence[str]) -> Ints:
    number = {task: index for index, task in enumerate(part.tasks)}
    return np.array([number[task] for task in tasks], dtype=np.int64)


def _of_all(contest: Sequence[ReadRun], question: Question) -> list[list[RequestedMetric]]:
    """Each metric that all runs can answer, as it is asked of each of them."""
    head, plan = contest[0], question.plan
    by_name: dict[str, list[RequestedMetric]] = {}
    for run in contest[1:]:
        try:
            pairs = metrics_of(plan.asked, (head.rollouts, run.rollouts), (head.name, run.name), plan.reward)[0]
        except InputError:  # they need not have met: no metric is common to all
            return []
        for first, second in pairs:
            by_name.setdefault(first.text, [first]).append(second)
    return [
        metrics
        for metrics in by_name.values()
        if len(metrics) == len(contest)
        and isinstance(metrics[0].metric, Metric)
        and metrics[0].metric.is_mean
        and metrics[0].metric.higher_is_better is not None
    ]


def _values(
    metrics: Sequence[RequestedMetric], contest: Sequence[ReadRun], indices: Sequence[Ints], question: Question
) -> tuple[CommonValues, Bools]:
    """The values, and which of the tasks they are of."""
    text, plan = metrics[0].text, question.plan
    read = [
        columns_of(metric, run.rollouts, run.name, zero=plan.missing == "zero")
        for metric, run in zip(metrics, contest, strict=True)
    ]
    columns = [
        task_values(metric, run.rollouts, its_columns).take(rows)
        for metric, run, its_columns, rows in zip(metrics, contest, read, indices, strict=True)
    ]
    there = np.logical_and.reduce([column.given for column in columns])
    count = int(there.sum())
    values = np.stack([column.values[there] for column in columns])  # [M, T] or [M, T, 2]
    weights, codes, why = None, None, None
    if count < 2 or not np.isfinite(values).all():
        why = FEW
    elif values.ndim > 2:
        if (values[..., 1] == values[0, :, 1]).all():
            weights, values = values[0, :, 1], values[..., 0] / values[..., 1]
        else:
            why = UNEQUAL
    if why is None:
        codes = _units(contest, indices, plan.cluster, there)
        drawn = count if codes is None else len(np.unique(codes))
        if codes is not None and drawn < 2:
            why = ONE_CLUSTER
        elif least_p(drawn) > 1 - plan.confidence:
            why = f"{drawn} are too few to draw ranks from: {ALL_ONE_WAY}"
    values = np.empty((len(contest), 0)) if why else _alike(values)
    metric = cast(Metric, metrics[0].metric)  # which is none of a plugin's: `_of_all` has looked
    better = metric.higher_is_better is not False
    limits = value_limits(metric, [some[0] for some in read], plan.range)
    return CommonValues(text, count, values, weights, codes, limits, better, metrics, (), why), there


@dataclass(frozen=True, slots=True)
class RankedRuns:
    """M runs by one metric, in the order of their values: compare and leaderboard say the same of the same runs."""

    order: Sequence[int]  # [M] the runs, the best value first, equal ones by their names
    sets: RankSets  # in this order, as are the others
    best: Winner
    drawn: Ranking


def ranked_runs(known: CommonValues, names: Sequence[str], plan: Plan) -> RankedRuns:
    """The rank sets of runs, the best of them and their ranks in draws.

    Signs are drawn for runs in one order, so that the order in which the runs were given changes no rank.
    """
    weights = np.ones(known.values.shape[1]) if known.weights is None else known.weights
    means = np.asarray(total(weights * known.values)) / float(total(weights))
    sign = -1.0 if known.higher_is_better else 1.0
    # sums that were rounded otherwise are equal
    order = sorted(range(len(names)), key=lambda run: (float(f"{sign * means[run]:.12g}"), names[run]))
    sure: dict[str, Any] = {
        "higher_is_better": known.higher_is_better,
        "confidence": plan.confidence,
        "seed": plan.seed,
    }
    of = known.values[order], known.weights, known.units
    return RankedRuns(order, rank_sets(*of, **sure), winner(*of, limits=known.limits, **sure), ranking(*of, **sure))


def _ranked(known: CommonValues, contest: Sequence[ReadRun], question: Question) -> Ranks:
    if known.why:
        return Ranks(known.metric, known.tasks, [], None, None, known.why)
    ranked = ranked_runs(known, [run.name for run in contest], question.plan)
    drawn, sets = ranked.drawn, ranked.sets
    places = [
        Place(
            ranked.order[at],
            float(drawn.values[at]),
            float(drawn.ranks[at]),
            (float(drawn.low[at]), float(drawn.high[at])),
            float(drawn.chance_best[at]),
            (int(sets.low[at]), int(sets.high[at])),
        )
        for at in sorted(range(len(contest)), key=lambda at: (drawn.ranks[at], ranked.order[at]))
    ]
    best = replace(ranked.best, run=ranked.order[ranked.best.run])
    return Ranks(known.metric, known.tasks, places, drawn.optimism, drawn.corrected, winner=best)


def _alike(values: Floats) -> Floats:
    """The values of several runs, [M, T], equal where they differ by rounding only: that makes no run the best."""
    values = values.copy()
    for first, second in combinations(range(len(values)), 2):
        values[second] = np.where(apart(values[first], values[second]) == 0, values[first], values[second])
    return values


def _units(contest: Sequence[ReadRun], indices: Sequence[Ints], key: str | None, there: Bools) -> Ints | None:
    if key is None:
        return None
    known = next((at for at, run in enumerate(contest) if has(run.rollouts, key)), 0)
    codes: Ints = clusters(contest[known].rollouts, key)[indices[known]][there]
    return codes
