"""The whole system on one page: read rollouts, count outcomes, reduce, aggregate, compute intervals.

::

    files ──► Rollouts ──► groups ──► ledger
                              └─────► slices ──► metrics: [R] → [T] → number ± how sure ──► Result

Everything from `score_rollouts` on is a pure function of the rollouts and the plan.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np

from calipers.errors import Incomplete, InputError, PluginError
from calipers.formats.format import Named
from calipers.formats.read import Input, check_keys, check_named, in_order
from calipers.formats.read import begin as begin_reading
from calipers.formats.rewards import from_rewards
from calipers.metrics.metric import PASS_THRESHOLD, Metric
from calipers.metrics.rewards import MEAN_REWARD
from calipers.names import METRIC_SCRIPTS, load
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
from calipers.rollouts.column import Column
from calipers.rollouts.groups import total
from calipers.rollouts.labels import SPLIT, STEP, clusters, has, sliced, steps_of, without
from calipers.rollouts.ledger import Ledger, Missing, contributed, lacking, with_rewards
from calipers.rollouts.part import Part
from calipers.rollouts.record import OUTCOMES, SCORED, USAGE
from calipers.rollouts.stop import SEQUENCE, not_said
from calipers.rollouts.table import Rollouts, assemble
from calipers.stats.cards import DEFAULT
from calipers.stats.estimate import Estimate, Settings, Signature, estimate, sequence_only
from calipers.stats.suite import Member, suites, without_means
from calipers.stats.variance import DEPENDENT, Split, Unsplit, dependence, split

Path = str | os.PathLike[str]
Source = Path | Sequence[Path] | Sequence[Sequence[float]] | Rollouts | Any
"""Paths, rewards by task and sample, or a table of rows in memory: of polars, pandas or Arrow, columns, records."""

Progress = Callable[[int, int], None]  # bytes read, bytes in all

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

    >>> score([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], "pass@3")["pass@3"].value
    0.75
    """
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
    rollouts, inputs = _read(source, names, plan.labels, progress, parts)
    if rollouts.unread and any("reward" in request.metric.reads for request in plan.asked):
        raise no_reward(source, rollouts.unread)
    steps = steps_of(rollouts)
    if STEP in plan.by and SPLIT not in plan.by:  # training and evaluation of one step are never one number
        plan = replace(plan, by=tuple(steps if key == STEP and steps else key for key in plan.by))
    if steps and (not plan.by or {steps, STEP} & {*plan.by}) and plan.cluster not in (STEP, SPLIT):
        return replace(_score_steps(rollouts, plan, steps), inputs=inputs())
    return replace(score_rollouts(rollouts, plan), inputs=inputs())


def _score_steps(rollouts: Rollouts, plan: Plan, steps: str) -> Result:
    """The scores of each step of a training run, and none over all steps: that would be the score of no policy."""
    result = score_rollouts(rollouts, replace(plan, by=plan.by or (steps,)))
    groups = [replace(group, metrics={}, variance={}, warnings=[]) for group in result.groups]
    other = "there is none over all steps" if plan.by else "--by chooses another breakdown"
    note = f"rollouts of several training steps, so the numbers are by {steps}; {other}"
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
    """Read rollouts once, to score them several times; ``labels`` are the keys for ``by``."""
    return _read(source, Named(columns or {}, truth, input_format or ""), labels)[0]


def score_rollouts(rollouts: Rollouts, plan: Plan) -> Result:
    """Score a table as planned."""
    rollouts = plan.dialect.seen(rollouts) if plan.dialect.seen else rollouts
    (rollouts,) = without([rollouts], plan.exclude, plan.dialect.label)
    columns = chain.from_iterable(per_column(request, rollouts) for request in plan.asked)
    requests = [
        variant
        for request in columns
        for variant in per_reward(request, rollouts, plan.reward, plan.dialect.every_reward)
    ]
    with quietly():
        groups = list(map(partial(_score_group, plan=plan, requests=requests), rollouts.groups()))
    means = [request.text for request in requests if isinstance(request.metric, Metric) and request.metric.is_mean]
    members = [Member(group.agent, group.model, group.dataset, group.metrics) for group in groups]
    stopped_runs = [(group.agent, group.model) for group in groups if group.stop]
    over = suites(members, means) if plan.dialect.over_datasets and len(members) > 1 else []
    over = without_means(over, stopped_runs) if stopped_runs else over
    absent = [key for key in plan.by if not any(has(part, key) for part in rollouts.groups())]
    nowhere = [f"no rollout has {key!r}: all rollouts are in the slice __missing__" for key in absent]
    notes = [*rollouts.notes, *unrewarded(rollouts), *nowhere, *_other_rewards(rollouts, plan)]
    stopped, notes = _stopped(plan, groups, notes)
    result = Result(plan.dialect.name, plan.missing, plan.confidence, plan.seed, [], groups, notes, over, stopped)
    return plan.afterwards(result, rollouts) if plan.afterwards else result


def _other_rewards(rollouts: Rollouts, plan: Plan) -> list[str]:
    """A note on the rewards that are not shown because the system of the files names one as its own number."""
    others = [name for name in rollouts.rewards if name != rollouts.usual_reward]
    if not others or plan.reward or not rollouts.headline or rollouts.usual_reward != rollouts.headline:
        return []
    return [f"the reward is {rollouts.headline!r}; --reward picks another: {', '.join(others)}"]


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


def _score_group(part: Rollouts, plan: Plan, requests: Sequence[RequestedMetric]) -> Group:
    if plan.range:
        for key in dict.fromkeys(
            request.params.get("reward") or "reward" for request in requests if "reward" in request.metric.reads
        ):
            demand_range(part, _counted(part, plan, key), key, plan.range)
    whole = _score_slice(part, plan, requests)
    if plan.missing == "fail":
        _demand_all(part, whole.ledger, requests)
    breakdowns = {}
    for key in plan.by:
        cuts = sliced(part, key, plan.dialect.label)
        breakdowns[key] = {name: _score_slice(cut, plan, requests) for name, cut in cuts.items()}
    used = {name: part.columns[name] for name in USAGE if name in part.columns and part.columns[name].given.any()}
    economics = [
        request for name in economics_of(used) for request in per_reward(resolve(name, NATIVE), part, plan.reward)
    ]
    agent, model, dataset = part.keys[0]
    return Group(
        whole.ledger,
        whole.metrics,
        agent,
        model,
        dataset,
        breakdowns,
        economics=_score_slice(part, replace(plan, interval=DEFAULT), economics).metrics,  # nobody asked for them
        totals={name: float(total(column.kept())) for name, column in used.items()},
        variance=_variance(part, plan, requests),
        own=plan.dialect.own(part, [request.text for request in plan.asked]) if plan.dialect.own else {},
        warnings=[*_uneven(part, plan, requests), *heavy(whole.metrics, plan.cluster is not None)],
        stop=part.stop,
    )


def _uneven(part: Rollouts, plan: Plan, requests: Sequence[RequestedMetric]) -> list[str]:
    """Warnings that sample counts depend on rewards: one for each reward and pass threshold."""
    readers: dict[tuple[str, float], list[RewardMetric]] = {}
    for request in requests:
        if request.metric.reads[0] == "reward":
            which = request.params.get("reward") or "reward", request.params.get("threshold", PASS_THRESHOLD)
            readers.setdefault(which, []).append(
                RewardMetric(request.text, request.metric.name, request.params.get("k", 0))
            )
    cautions = []
    for (key, threshold), some in readers.items():
        column = _counted(part, plan, key)
        if evidence := dependence(column, part.by_task, threshold):
            kept = column.kept()
            cautions.append(depends(evidence, some, bool(((kept == 0) | (kept == 1)).all())))
    return list(dict.fromkeys(filter(None, cautions)))


def _demand_all(part: Rollouts, ledger: Ledger, requests: Sequence[RequestedMetric]) -> None:
    """Raise Incomplete when a rollout is missing, or has other rewards but not the one that a metric reads."""
    gaps = ""
    if ledger.gaps:
        counts = ", ".join(f"{word} {count}" for word, count in ledger.outcomes.items())
        gaps = f"{ledger.gaps} of {ledger.planned} rollouts are missing ({counts})"
    keys = [request.params["reward"] for request in requests if "reward" in request.metric.reads]
    keys += [request.params["column"] for request in requests if is_reward(part, request)]
    for key in keys:
        if not gaps and (without := len(part) - int(contributed(part, key).given.sum())):
            gaps = f"{without} of {ledger.planned} rollouts have no reward {key!r}"
    if gaps:
        raise Incomplete(f"{gaps}; --missing gap excludes them, --missing zero counts them as 0")


def _variance(part: Rollouts, plan: Plan, requests: Sequence[RequestedMetric]) -> dict[str, Split | Unsplit]:
    """The parts of the variance of the mean reward, by the reward it reads."""
    readers = [request for request in requests if request.metric is MEAN_REWARD]
    readers = readers or per_reward(resolve("mean_reward", NATIVE), part, plan.reward)
    units = clusters(part, plan.cluster) if plan.cluster else None
    variances: dict[str, Split | Unsplit] = {}
    for key in dict.fromkeys(request.params["reward"] for request in readers):
        column = _counted(part, plan, key)
        if dependence(column, part.by_task, PASS_THRESHOLD):
            variances[key] = Unsplit(DEPENDENT)
        else:
            variances[key] = split(column, part.by_task, units)
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


def _score_slice(part: Rollouts, plan: Plan, requests: Sequence[RequestedMetric]) -> Slice:
    """The ledger of some rollouts, and an estimate for every requested metric."""
    settings = Settings(
        by=part.by_task,
        confidence=plan.confidence,
        seed=plan.seed,
        zero=plan.missing == "zero",
        undefined=plan.dialect.undefined,
        clusters=clusters(part, plan.cluster) if plan.cluster else None,
        interval=plan.interval if part.stop is None else SEQUENCE,
        range=plan.range,
        tasks=part.tasks,
    )

    def answer(request: RequestedMetric) -> Estimate | None:
        columns = [column_of(part, name, request.params) for name in request.metric.reads]
        if settings.zero and is_reward(part, request):
            columns = [column.filled(0.0) for column in columns]
        try:
            with quietly():  # a thread has settings of its own
                fixed = estimate(request.metric, request.params, columns, settings, _signature(request, plan))
                return fixed if part.stop is None else sequence_only(fixed)
        except Exception as error:
            if not request.foreign:
                raise
            failure = PluginError(f"metric {request.text!r} failed: {type(error).__name__}: {error}")
            if not plan.dialect.skips:
                raise failure from error
            warnings.warn(f"metric {request.text!r} is skipped: {failure}", stacklevel=5)
            return None

    if len(part) < WORTH_THREADS or any(request.foreign for request in requests):  # others' code: from one thread only
        estimates = list(map(answer, requests))
    else:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 8), initializer=_politely) as pool:
            estimates = list(pool.map(answer, requests))
    keys = [request.params.get("reward") or "reward" for request in requests if "reward" in request.metric.reads]
    ledger = replace(Ledger.of(part), lacking=lacking(part, keys))
    ledger = with_rewards(ledger, part, keys[0] if keys else "reward")
    return Slice(ledger, {request.text: each for request, each in zip(requests, estimates, strict=True) if each})


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
