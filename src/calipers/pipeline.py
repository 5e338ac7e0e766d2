"""The whole system on one page: read rollouts, count outcomes, reduce, aggregate, compute intervals.

::

    files ──► Rollouts ──► groups ──► ledger
                              └─────► slices ──► metrics: [R] → [T] → number ± how sure ──► Result

Everything from `score_rollouts` on is a pure function of the rollouts and the plan. What happens to rollouts, [R],
happens to whole tasks: `_tally` makes of some tasks what `_slice` makes numbers of. A table that fits in memory is
tallied at once; packed rollouts are tallied some tasks at a time, and the tallies are laid end to end.
"""

from __future__ import annotations

import builtins
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Any, cast

import numpy as np

from calipers.cards import DEFAULT
from calipers.errors import Incomplete, InputError, PluginError
from calipers.formats import Named
from calipers.formats.lines import NotPackable
from calipers.formats.read import Input, check_keys, check_named, in_order, read_packed, worth_packing
from calipers.formats.read import begin as begin_reading
from calipers.formats.rewards import from_rewards
from calipers.metrics import PASS_THRESHOLD, Metric
from calipers.metrics.rewards import MEAN_REWARD
from calipers.names import METRIC_SCRIPTS, PART_ENGINES, engine_of, load
from calipers.reports.figures import RewardMetric, depends, heavy
from calipers.reports.result import Group, Result, Slice
from calipers.request import (
    NATIVE,
    Afterwards,
    Plan,
    RequestedMetric,
    Wanted,
    column_of,
    economics_of,
    is_reward,
    make_plan,
    no_reward,
    per_column,
    per_reward,
    resolve,
    unrewarded,
)
from calipers.rollouts.column import NO_ROWS, Column, Floats, Ints, terms, total_of
from calipers.rollouts.ids import Chained
from calipers.rollouts.labels import PAIR, SPLIT, STEP, has, slice_order, sliced, slices, steps_of, without
from calipers.rollouts.labels import named_clusters as clusters
from calipers.rollouts.ledger import Ledger, Missing, contributed, joined_ledgers, lacking, with_rewards, zero_or_one
from calipers.rollouts.packed import PackedRollouts, Repeated, merge, table_of
from calipers.rollouts.record import ASKED_AGAIN, OUTCOMES, SCORED, SEQUENCE, USAGE, Stop, not_said
from calipers.rollouts.table import Part, Rollouts, assemble
from calipers.stats.estimate import (
    Estimate,
    Reduced,
    Settings,
    Signature,
    ValueEnds,
    estimate_of,
    joined,
    reduce_tasks,
    sequence_only,
)
from calipers.stats.suite import Member, suites, without_means
from calipers.stats.variance import DEPENDENT, Samples, Split, Unsplit, dependence_of, joined_samples, moments, split_of

Path = str | os.PathLike[str]
Source = Path | Sequence[Path] | Sequence[Sequence[float]] | Rollouts | Any
"""Paths, rewards by task and sample, or a table of rows in memory: of polars, pandas or Arrow, columns, records."""

Progress = Callable[[int, int], None]  # bytes read, bytes in all
Block = Rollouts | Callable[[], Rollouts]  # some whole tasks of a group; packed ones are unpacked when they are needed

WORTH_THREADS = 200_000  # rollouts; numpy works on arrays of that size outside the interpreter's lock
quietly = partial(np.errstate, over="ignore", invalid="ignore")  # what is no number says so itself

DEFINITIONS = 2
"""Part of every signature; it rises when the meaning of a number changes, unlike the package version."""


def score(
    source: Source,
    metrics: Wanted | Sequence[Wanted] | None = None,
    *,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    range: tuple[float, float] | None = None,
    metric_scripts: Path | Sequence[Path] = (),
    trust: bool = False,
    afterwards: Afterwards | None = None,
    progress: Progress | None = None,
    parts: list[Part] | None = None,
    exclude: str | Sequence[str] = (),
    engine: str | None = None,
) -> Result:
    """Score rollouts: files, tables in memory, lists of rewards, or a table from `read`.

    A table is a polars or pandas DataFrame, an Arrow table, a dict of columns or a list of records, with a row for
    each rollout. ``columns`` names the columns: ``{"task": "id", "reward": "score"}``; ``"sample": "#"`` numbers the
    samples of a task in order of appearance. ``truth`` maps words to rewards: ``{"yes": 1, "no": 0}``.
    ``input_format`` is the name of the files' format, where their content should not decide.
    A metric is a name, a `Metric`, a function ``rewards -> float`` (a list of rewards for each task), or a class with
    ``compute``. ``range`` is the lowest and the highest possible reward, if that is not 0 and 1.
    ``metric_scripts`` are scripts like Harbor's ``metric.py``, run in the sandbox; they need ``trust``.
    ``afterwards`` is your own last step over the result and the rollouts, instead of metric scripts.
    ``parts`` receives the parts that were read from each file, if you need more than rollouts.
    ``exclude`` leaves out the rollouts of a slice: ``"difficulty=hard"``, or several of them.
    ``engine`` is ``"ray"`` or ``"ray=ADDRESS"`` for files that the machines of a Ray cluster read.

    >>> score([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], "pass@3")["pass@3"].value
    0.75
    """
    if (place := engine_of("engine", engine)) is not None:
        asked: dict[str, Any] = {
            "by": by,
            "cluster": cluster,
            "dialect": dialect,
            "missing": missing,
            "reward": reward,
            "range": range,
        }
        asked |= {"confidence": confidence, "seed": seed, "interval": interval, "exclude": exclude}
        read_as = {"columns": columns, "truth": truth, "input_format": input_format}
        elsewhere: Result = load(PART_ENGINES[place[0]])(place[1], source, metrics, **asked, **read_as)
        return elsewhere
    plan = make_plan(
        metrics,
        by=by,
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
        interval=interval,
        range=range,
        source=source,
        afterwards=afterwards or scripts_of(source, metric_scripts, trust=trust, reward=reward),
        exclude=exclude,
    )
    names = Named(columns or {}, truth, input_format or "")
    rollouts, inputs = (None if parts is not None else _read_many(source, names, plan, progress)) or _read(
        source, names, plan.labels, progress, parts
    )
    plan, note = by_step(plan, rollouts, source)
    result = score_rollouts(rollouts, plan)
    return replace(steps_only(result, note) if note else result, inputs=inputs())


def by_step(plan: Plan, rollouts: Rollouts | PackedRollouts, source: Source) -> tuple[Plan, str]:
    """The plan for a table, and a note if it has several training steps, each of which is scored on its own.

    ``source`` is the name of the table in errors.
    """
    table = rollouts.kinds if isinstance(rollouts, PackedRollouts) else rollouts
    if table.unread and any("reward" in request.metric.reads for request in plan.asked):
        raise no_reward(source, table.unread)
    steps = steps_of(table)
    if STEP in plan.by and SPLIT not in plan.by:  # training and evaluation of one step are never one number
        plan = replace(plan, by=tuple(steps if key == STEP and steps else key for key in plan.by))
    if steps and (not plan.by or {steps, STEP} & {*plan.by}) and plan.cluster not in (STEP, SPLIT):
        other = "there is none over all steps" if plan.by else "--by chooses another breakdown"
        note = f"rollouts of several training steps, so the numbers are by {steps}; {other}"
        return replace(plan, by=plan.by or (steps,)), note
    return plan, ""


def steps_only(result: Result, note: str) -> Result:
    """A result without the numbers over all steps of a training run: they would be the score of no policy."""
    groups = [replace(group, metrics={}, variance={}, warnings=[]) for group in result.groups]
    return replace(result, groups=groups, suites=[], notes=[*result.notes, note])


def scripts_of(source: Source, scripts: Path | Sequence[Path], *, trust: bool, reward: str | None) -> Afterwards | None:
    """The given metric scripts, or those of a job, as the last step of a score; None without any."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    if not scripts and not any(isinstance(path, (str, os.PathLike)) and os.path.isdir(path) for path in paths):
        return None
    steps: Afterwards | None = load(METRIC_SCRIPTS)(source, scripts, trust=trust, reward=reward)
    return steps


def score_plan(source: Source, plan: Plan) -> Result:
    """Like `score`, with a plan from `make_plan`."""
    rollouts, inputs = _read(source, {}, plan.labels)
    return replace(score_rollouts(rollouts, plan), inputs=inputs())


def read(
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    labels: Collection[str] = (),
) -> Rollouts:
    """Read rollouts once, to score them several times.

    ``labels`` are the keys for ``by``, ``cluster`` and ``exclude`` of these scores: the table has no other.

    >>> table = read([{"task": "a", "reward": 1, "level": "easy"}], labels=["level"])
    >>> list(score(table, by="level").groups[0].breakdowns["level"])
    ['easy']
    """
    return _read(source, Named(columns or {}, truth, input_format or ""), labels)[0]


def score_rollouts(rollouts: Rollouts | PackedRollouts, plan: Plan) -> Result:
    """Score a table as planned."""
    if isinstance(rollouts, PackedRollouts) and (rollouts.stopped or _needs_all_rows(plan)):
        rollouts = rollouts.whole()
    if isinstance(rollouts, Rollouts):
        rollouts = plan.dialect.seen(rollouts) if plan.dialect.seen else rollouts
        if plan.exclude:
            (rollouts,) = without([rollouts], plan.exclude, plan.dialect.label)
        table = rollouts
        parts = list(rollouts.groups())
        blocks: list[list[Block]] = [[part] for part in parts]
    else:
        table, parts = rollouts.kinds, [rollouts.kinds]
        blocks = [[*rollouts.blocks(group)] for group in builtins.range(len(table.keys))]
    columns = chain.from_iterable(per_column(request, table) for request in plan.asked)
    requests = [
        variant for request in columns for variant in per_reward(request, table, plan.reward, plan.dialect.every_reward)
    ]
    with quietly():
        groups = list(map(partial(_score_group, table, plan=plan, requests=requests), blocks))
    means = [request.text for request in requests if isinstance(request.metric, Metric) and request.metric.is_mean]
    members = [Member(group.agent, group.model, group.dataset, group.metrics) for group in groups]
    stopped_runs = [(group.agent, group.model) for group in groups if group.stop]
    over = suites(members, means, plan.confidence) if plan.dialect.over_datasets and len(members) > 1 else []
    over = without_means(over, stopped_runs) if stopped_runs else over
    absent = [key for key in plan.by if not any(has(part, key) for part in parts)]
    nowhere = [f"no rollout has {key!r}: all rollouts are in the slice __missing__" for key in absent]
    notes = [*table.notes, *(unrewarded(table) if plan.asked else []), *nowhere, *_other_rewards(table, plan)]
    stopped, notes = _stopped(plan, groups, notes)
    result = Result(plan.dialect.name, plan.missing, plan.confidence, plan.seed, [], groups, notes, over, stopped)
    return plan.afterwards(result, table) if plan.afterwards else result


def _needs_all_rows(plan: Plan) -> bool:
    """Whether a step of the plan looks at the whole table at once."""
    across = any(isinstance(request.metric, Metric) and request.metric.across_tasks for request in plan.asked)
    of_dialect = plan.dialect.seen or plan.dialect.own
    return bool(across or of_dialect or plan.afterwards or plan.exclude or _odd_slices(plan.by))


def _odd_slices(by: Sequence[str]) -> bool:
    """Whether slices are cut by pairs of keys one of which is of no label: their order is not known beforehand."""
    return any(PAIR in key and {"task", "sample"} & set(key.split(PAIR)) for key in by)


def _other_rewards(rollouts: Rollouts, plan: Plan) -> list[str]:
    """A note on rewards that are not shown: a dataset has no other, or the system of the files names its own number."""
    usual = rollouts.usual_reward
    others = [name for name in rollouts.rewards if name != usual]
    if not others or not usual or plan.reward:
        return []
    if absent := rollouts.elsewhere.get(usual, frozenset()):
        some = ", ".join([*sorted(map(str, absent))[:3], *(["..."] if len(absent) > 3 else [])])
        return [f"no rollout of {some} has the reward {usual!r}; --reward picks another: {', '.join(others)}"]
    if usual != rollouts.headline:
        return []
    return [f"the reward is {usual!r}; --reward picks another: {', '.join(others)}"]


def _stopped(plan: Plan, groups: Sequence[Group], notes: Sequence[str]) -> tuple[str | None, list[str]]:
    """The sentence on stopped runs, and the notes without the bias, which the page shows beside the numbers."""
    stops = [(group.title, group.stop) for group in groups if group.stop]
    if not stops:
        return None, list(notes)
    kept = not_said(notes, [stop.bias for _, stop in stops])
    if plan.interval not in (DEFAULT, SEQUENCE):
        kept.append(f"--interval {plan.interval} is for a fixed number of tasks; a stopped run has {SEQUENCE} instead")
    named = len(groups) > 1
    return "; ".join(f"{title}: {stop.sentence}" if named else stop.sentence for title, stop in stops), kept


def _score_group(table: Rollouts, blocks: Sequence[Block], plan: Plan, requests: Sequence[RequestedMetric]) -> Group:
    """The score of one group, given as blocks of whole tasks; ``table`` has its columns and labels."""
    reported = [name for name in USAGE if name in table.columns and table.columns[name].given.any()]
    economics = {name: per_reward(resolve(name, NATIVE), table, plan.reward) for name in economics_of(reported)}
    tally = partial(_tally_group, plan=plan, requests=requests, economics=list(chain(*economics.values())))
    with _mapping(threads=len(blocks) > 1) as each:
        tallies = list(each(tally, blocks))
    whole = _slice([tally.whole for tally in tallies], plan, requests)
    if plan.missing == "fail":
        _demand_all(whole.ledger, tallies)
    breakdowns = {}
    for key in plan.by:
        names = _slice_names(table, key, plan, tallies)
        cuts = {name: [tally.cuts[key][name] for tally in tallies if name in tally.cuts[key]] for name in names}
        breakdowns[key] = {name: _slice(some, plan, requests) for name, some in cuts.items() if some}
    first = tallies[0]
    agent, model, dataset = first.key
    totals = {name: [term for tally in tallies for term in tally.used[name]] for name in first.used}
    totals = {name: terms for name, terms in totals.items() if terms}
    spent = _slice(
        [tally.economics for tally in tallies], replace(plan, interval=DEFAULT), list(chain(*economics.values()))
    )
    reported_here = {request.text for name in economics_of(totals) for request in economics[name]}
    return Group(
        whole.ledger,
        whole.metrics,
        agent,
        model,
        dataset,
        breakdowns,
        economics={name: number for name, number in spent.metrics.items() if name in reported_here},
        totals={name: total_of(terms) for name, terms in totals.items()},
        variance=_variance(tallies),
        own=_own(first.part, plan),
        warnings=[*_uneven(tallies, requests), *heavy(whole.metrics, plan.cluster is not None)],
        stop=next((tally.stop for tally in tallies if tally.stop), None),
    )


def _own(part: Rollouts | None, plan: Plan) -> Mapping[str, Any]:
    """What the dialect's own system says of a group."""
    if plan.dialect.own is None or part is None:
        return {}
    return plan.dialect.own(part, [request.text for request in plan.asked])


@dataclass(frozen=True, slots=True)
class SliceTally:
    """What some tasks of a slice add up to, before they are numbers."""

    ledger: Ledger
    rewards: tuple[int, bool]  # how many rollouts have the reward that the ledger counts, and whether all are 0 or 1
    reduced: list[Reduced | BaseException | None]  # of each requested metric; None once a number is made of it
    tasks: Sequence[str]  # [T]
    clusters: tuple[Ints, list[str]] | None  # [T] the cluster of each, and their names
    stopped: bool


@dataclass(frozen=True, slots=True)
class GroupTally:
    """What some tasks of a group add up to."""

    part: Rollouts | None  # for a dialect with numbers of its own
    key: tuple[str | None, ...]  # (agent, model, dataset)
    whole: SliceTally
    cuts: Mapping[str, Mapping[str, SliceTally]]  # of each key of ``by``, by slice
    economics: SliceTally
    used: Mapping[str, list[float]]  # of each column of usage, numbers whose exact sum is its total
    noise: Mapping[
        str, tuple[Floats, Floats, ValueEnds]
    ]  # of each reward: means and variances of tasks, [T], and its ends
    samples: Mapping[tuple[str, float], tuple[Samples, bool]]  # of each reward and threshold; whether all are 0 or 1
    without: Mapping[str, int]  # of each reward that is read, how many rollouts contribute nothing to it
    stop: Stop | None


def _tally_group(
    block: Block, plan: Plan, requests: Sequence[RequestedMetric], economics: Sequence[RequestedMetric]
) -> GroupTally:
    """Reduce some whole tasks of a group."""
    part = block if isinstance(block, Rollouts) else block()
    readers = [request for request in requests if "reward" in request.metric.reads]
    if plan.range:
        for key in dict.fromkeys(request.params.get("reward") or "reward" for request in readers):
            demand_range(part, _counted(part, plan, key), key, plan.range)
    means = [request for request in requests if request.metric is MEAN_REWARD]
    means = means or per_reward(resolve("mean_reward", NATIVE), part, plan.reward)
    noisy = dict.fromkeys(request.params["reward"] for request in means)
    wanted = {(key, PASS_THRESHOLD): None for key in noisy} | {
        (request.params.get("reward") or "reward", request.params.get("threshold", PASS_THRESHOLD)): None
        for request in requests
        if request.metric.reads[0] == "reward"
    }
    counted = {key: _counted(part, plan, key) for key, _ in wanted}
    by = part.by_task
    read = [request.params["reward"] for request in readers]
    read += [request.params["column"] for request in requests if is_reward(part, request)]
    with quietly():  # a thread has settings of its own
        return GroupTally(
            part if plan.dialect.own else None,
            tuple(part.keys[0]),
            _tally(part, plan, requests),
            {
                key: {name: _tally(cut, plan, requests) for name, cut in sliced(part, key, plan.dialect.label).items()}
                for key in plan.by
            },
            _tally(part, replace(plan, interval=DEFAULT), economics),
            {name: terms(part.columns[name].kept()) for name in USAGE if name in part.columns},
            {key: (*moments(counted[key], by)[1:], ValueEnds.of(counted[key].kept())) for key in noisy},
            {which: (Samples.of(counted[which[0]], by, which[1]), zero_or_one(counted[which[0]])) for which in wanted},
            {key: len(part) - int(contributed(part, key).given.sum()) for key in read if plan.missing == "fail"},
            part.stop,
        )


def _slice_names(table: Rollouts, key: str, plan: Plan, tallies: Sequence[GroupTally]) -> list[str]:
    """The names of all slices, in their order."""
    if len(tallies) == 1:
        return list(tallies[0].cuts[key])
    names = {name for tally in tallies for name in tally.cuts[key]}
    known = [] if key in ("task", "sample") else slices(table, key, plan.dialect.label)[1]
    return [name for name in known if name in names] if names <= set(known) else sorted(names, key=slice_order)


def _uneven(tallies: Sequence[GroupTally], requests: Sequence[RequestedMetric]) -> list[str]:
    """Warnings that sample counts depend on rewards: one for each reward and pass threshold."""
    readers: dict[tuple[str, float], list[RewardMetric]] = {}
    for request in requests:
        if request.metric.reads[0] == "reward":
            which = request.params.get("reward") or "reward", request.params.get("threshold", PASS_THRESHOLD)
            readers.setdefault(which, []).append(
                RewardMetric(request.text, request.metric.name, request.params.get("k", 0))
            )
    cautions = []
    for which, some in readers.items():
        if evidence := dependence_of(joined_samples([tally.samples[which][0] for tally in tallies])):
            cautions.append(depends(evidence, some, all(tally.samples[which][1] for tally in tallies)))
    return list(dict.fromkeys(filter(None, cautions)))


def _demand_all(ledger: Ledger, tallies: Sequence[GroupTally]) -> None:
    """Raise Incomplete when a rollout is missing, or has other rewards but not the one that a metric reads."""
    gaps = ""
    if ledger.gaps:
        counts = ", ".join(f"{word} {count}" for word, count in ledger.outcomes.items())
        gaps = f"{ledger.gaps} of {ledger.planned} rollouts are missing ({counts})"
    for key in tallies[0].without:
        if not gaps and (without := sum(tally.without[key] for tally in tallies)):
            gaps = f"{without} of {ledger.planned} rollouts have no reward {key!r}"
    if gaps:
        raise Incomplete(f"{gaps}; --missing gap excludes them, --missing zero counts them as 0")


def _variance(tallies: Sequence[GroupTally]) -> dict[str, Split | Unsplit]:
    """The parts of the variance of the mean reward, by the reward it reads."""
    variances: dict[str, Split | Unsplit] = {}
    for key in tallies[0].noise:
        samples = joined_samples([tally.samples[key, PASS_THRESHOLD][0] for tally in tallies])
        if dependence_of(samples):
            variances[key] = Unsplit(DEPENDENT)
            continue
        means, within, ends = zip(*(tally.noise[key] for tally in tallies), strict=True)
        units = _joined_clusters([tally.whole.clusters for tally in tallies])
        moments_of = samples.n, np.concatenate(means), np.concatenate(within)
        variances[key] = split_of(*moments_of, reduce(ValueEnds.and_those, ends), units)
    return variances


def _counted(part: Rollouts, plan: Plan, key: str) -> Column:
    """The number that each rollout contributes to a metric of a reward, with ``missing`` applied, [R]."""
    column = contributed(part, key)
    return column.filled(0.0) if plan.missing == "zero" else column


def demand_range(part: Rollouts, column: Column, key: str, ends: tuple[float, float]) -> None:
    """Raise InputError for a reward, [R], outside the given range."""
    low, high = ends
    outside = np.flatnonzero(column.given & ((column.values < low) | (column.values > high)))
    if len(outside):
        row = int(outside[0])
        word = OUTCOMES[part.outcome[row]]
        because = "" if word == OUTCOMES[SCORED] else f" (it is {word})"
        raise InputError.at(
            f"task {part.tasks[part.task[row]]!r} sample {part.sample[row]}",
            f"{key} is {column.values[row]:g}{because}",
            f"expected {low:g} to {high:g}, the given --range",
        )


def _tally(part: Rollouts, plan: Plan, requests: Sequence[RequestedMetric]) -> SliceTally:
    """Some whole tasks of a slice, reduced by every requested metric."""
    settings = Settings(by=part.by_task, zero=plan.missing == "zero", range=plan.range)

    with _mapping(threads=_worth_threads(len(part), requests)) as each:
        reduced = list(each(partial(_reduced, part, settings), requests))
    keys = [request.params.get("reward") or "reward" for request in requests if "reward" in request.metric.reads]
    own = (key for key in (*keys, *part.rewards) if key not in part.elsewhere or not part.lacks(key).all())
    shown = next(own, "reward")
    ledger = with_rewards(replace(Ledger.of(part), lacking=lacking(part, keys)), part, shown)
    numbers = contributed(part, shown) if part.rewards else Column.gaps(len(part))
    return SliceTally(
        ledger,
        (int(numbers.given.sum()), zero_or_one(numbers)),
        reduced,
        part.tasks,
        clusters(part, plan.cluster) if plan.cluster else None,
        part.stop is not None,
    )


def _reduced(part: Rollouts, settings: Settings, request: RequestedMetric) -> Reduced | BaseException:
    """What a requested metric makes of some tasks; the error of a metric that is not ours."""
    columns = [column_of(part, name, request.params) for name in request.metric.reads]
    if settings.zero and is_reward(part, request):
        columns = [column.filled(0.0) for column in columns]
    try:
        with quietly():  # a thread has settings of its own
            return reduce_tasks(request.metric, request.params, columns, settings)
    except (Exception, SystemExit) as error:
        if not request.foreign:
            raise
        return error


def _slice(tallies: Sequence[SliceTally], plan: Plan, requests: Sequence[RequestedMetric]) -> Slice:
    """The ledger of some rollouts, and an estimate for every requested metric."""
    stopped = any(tally.stopped for tally in tallies)
    settings = Settings(
        by=NO_ROWS,
        confidence=plan.confidence,
        seed=plan.seed,
        zero=plan.missing == "zero",
        undefined=plan.dialect.undefined,
        clusters=_joined_clusters([tally.clusters for tally in tallies]),
        interval=SEQUENCE if stopped else plan.interval,
        range=plan.range,
        tasks=tallies[0].tasks if len(tallies) == 1 else Chained([tally.tasks for tally in tallies]),
    )

    def answer(numbered: tuple[int, RequestedMetric]) -> Estimate | None:
        number, request = numbered
        pieces = [tally.reduced[number] for tally in tallies]
        for tally in tallies:
            tally.reduced[number] = None
        try:
            for piece in pieces:
                if isinstance(piece, BaseException):
                    raise piece
            with quietly():  # a thread has settings of its own
                whole = joined([piece for piece in pieces if isinstance(piece, Reduced)])
                pieces.clear()
                fixed = estimate_of(request.metric, request.params, whole, settings, _signature(request, plan))
                return sequence_only(fixed) if stopped else fixed
        except (Exception, SystemExit) as error:
            if not request.foreign:
                raise
            failure = PluginError(f"metric {request.text!r} failed: {type(error).__name__}: {error}")
            if not plan.dialect.skips:
                raise failure from error
            warnings.warn(f"metric {request.text!r} is skipped: {failure}", stacklevel=4)
            return None

    ledger = joined_ledgers([tally.ledger for tally in tallies], [tally.rewards for tally in tallies])
    with _mapping(threads=_worth_threads(ledger.planned, requests)) as each:
        estimates = list(each(answer, enumerate(requests)))
    return Slice(ledger, {request.text: number for request, number in zip(requests, estimates, strict=True) if number})


@contextmanager
def _mapping(*, threads: bool) -> Iterator[Callable[..., Iterable[Any]]]:
    """``map``, or the same in threads."""
    if not threads:
        yield map
        return
    with ThreadPoolExecutor(processors(), initializer=_politely) as pool:
        yield pool.map


def _worth_threads(rows: int, requests: Sequence[RequestedMetric]) -> bool:
    """Whether there are many rows, and no code of others, which expects one thread."""
    others = any(request.foreign for request in requests)
    return rows >= WORTH_THREADS and not others and threading.current_thread() is threading.main_thread()


def processors() -> int:
    """How many threads work on arrays at a time."""
    return min(os.cpu_count() or 1, 8)


def _joined_clusters(parts: Sequence[tuple[Ints, list[str]] | None]) -> Ints | None:
    """The clusters of several sets of tasks, [T], numbered as if they were one."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0][0] if known else None
    names = sorted({name for _, names in known for name in names}, key=slice_order)
    number = {name: at for at, name in enumerate(names)}
    return np.concatenate([np.array([number[name] for name in names], dtype=np.int64)[code] for code, names in known])


def _politely() -> None:
    """Give priority to the thread that hashes the inputs: it takes longest and cannot be split."""
    with suppress(OSError):  # where a thread has no priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _signature(request: RequestedMetric, plan: Plan) -> Signature:
    """The signature of a number, without the method of its interval."""
    params = [f"{key}:{value}" for key, value in sorted(request.params.items()) if value != ""]
    policy = [f"dialect:{plan.dialect.name}", f"missing:{plan.missing}", f"confidence:{plan.confidence}"]
    known = [f"range:{plan.range[0]:g},{plan.range[1]:g}"] if plan.range else []
    drawn = f"cluster:{plan.cluster or 'none'}", f"seed:{plan.seed}", f"definitions:{DEFINITIONS}"
    return Signature(
        request.metric.name, request.params.get("k"), (*params, *policy, *known, *plan.excluded), drawn=drawn
    )


def _read(
    source: Source,
    columns: Mapping[str, str],
    labels: Collection[str],
    progress: Progress | None = None,
    parts: list[Part] | None = None,
) -> tuple[Rollouts, Callable[[], list[Input]]]:
    if isinstance(source, Rollouts):
        return source, list
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)):
        paths = [os.fspath(path) for path in source if isinstance(path, (str, os.PathLike))]
        if paths and len(paths) == len(source):
            return begin_reading(paths, columns=columns, labels=labels, progress=progress, kept=parts)
    if isinstance(source, Result):
        raise InputError("a Result has numbers, and its rollouts are gone; expected the rollouts that were scored")
    if (rollouts := _in_memory(source, columns, labels)) is not None:
        return rollouts, list
    if not isinstance(source, (list, tuple, np.ndarray)):  # the columns of a frame would be taken for tasks
        kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__qualname__}"
        right = "expected paths, a table, records, a list of rewards for each task, or Rollouts"
        raise InputError(f"a {kind} cannot be scored; {right}")
    return assemble([from_rewards(cast(Sequence[Sequence[float]], source))]), list  # which checks what it is given


def _read_many(
    source: Source, columns: Mapping[str, str], plan: Plan, progress: Progress | None
) -> tuple[PackedRollouts, Callable[[], list[Input]]] | None:
    """Files with millions of rollouts, packed; None for others, and for what cannot be packed."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    files = [os.fspath(path) for path in paths]
    if not worth_packing(files):
        return None
    try:
        packs, inputs = read_packed(
            files, columns=columns, labels=plan.labels, keep=columns_read(plan), progress=progress
        )
        return table_of(merge(packs)), inputs
    except (NotPackable, Repeated):
        return None


def columns_read(plan: Plan) -> set[str] | None:
    """The columns of numbers that a plan reads, beside rewards; None for all of them."""
    names = {*USAGE, ASKED_AGAIN, *(name for request in plan.asked for name in request.metric.reads)}
    names |= {str(request.params["column"]) for request in plan.asked if "column" in request.params}
    return None if "*" in names or plan.dialect.name != NATIVE.name else names


def _in_memory(source: Any, columns: Mapping[str, str], labels: Collection[str]) -> Rollouts | None:
    """The rollouts of a table in memory; None for what is none."""
    from calipers.formats.memory import from_memory  # loads the readers of tables, which few need

    check_keys(columns, labels)
    tables = from_memory(source, columns, labels)
    if tables is None:
        return None
    check_named(columns, ["table"], tables)
    numbered, notes = in_order(columns, tables)
    return assemble([replace(numbered[0], notes=[*numbered[0].notes, *notes])])
