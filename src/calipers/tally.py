"""Reduced tasks: what some whole tasks of a group or slice add up to, and the numbers of all tasks.

::

    some tasks ──► SliceTally ─┐
    some tasks ──► SliceTally ─┼─► slice_of ──► ledger, and an Estimate for each metric
    some tasks ──► SliceTally ─┘

A reduction never looks beyond one task, so a group may be tallied a block of tasks at a time, in any order, and the
tallies are concatenated before anything is aggregated.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from calipers.errors import Incomplete, InputError, PluginError
from calipers.metrics import PASS_THRESHOLD, passed
from calipers.metrics.rewards import MEAN_REWARD
from calipers.reports.figures import RewardMetric, depends, is_or_are
from calipers.reports.result import Slice
from calipers.request import NATIVE, Plan, RequestedMetric, column_of, is_reward, per_reward, resolve
from calipers.rollouts.column import NO_ROWS, Column, Floats, Ints, terms
from calipers.rollouts.filling import MOST_LOST_BEFORE
from calipers.rollouts.ids import Chained
from calipers.rollouts.labels import named_clusters, slice_order, sliced, slices
from calipers.rollouts.ledger import (
    Ledger,
    contributed,
    joined_ledgers,
    lacking,
    lost_before_answer,
    with_rewards,
    zero_or_one,
)
from calipers.rollouts.record import NOT_RUN, OUTCOMES, SCORED, SEQUENCE, USAGE, Stop
from calipers.rollouts.table import Rollouts
from calipers.stats.counts import (
    Follows,
    Samples,
    Tries,
    dependence_of,
    follows_of,
    joined_samples,
    joined_tries,
)
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
from calipers.stats.variance import DEPENDENT, Split, Unsplit, moments, split_of

Block = Rollouts | Callable[[], Rollouts]
"""Some whole tasks of a group; packed ones are unpacked when they are tallied."""

WORTH_THREADS = 200_000  # rollouts; numpy works on arrays of that size outside the interpreter's lock

DEFINITIONS = 3
"""Part of every signature; it rises when the meaning of a number changes, unlike the package version."""

quietly = partial(np.errstate, over="ignore", invalid="ignore")
"""No numpy warnings: an overflow or a NaN becomes the ``why`` of its estimate. Each thread has to enter it."""


@dataclass(frozen=True, slots=True)
class SliceTally:
    """Some whole tasks of a slice, reduced by every requested metric."""

    ledger: Ledger
    rewards: tuple[int, bool]  # the rollouts that have the reward of the ledger; whether all of these are 0 or 1
    reduced: list[Reduced | BaseException | None]  # by requested metric; None once it is estimated, to free memory
    tasks: Sequence[str]  # [T]
    clusters: tuple[Ints, list[str]] | None  # [T] the cluster of each task; the names of the clusters
    stopped: bool


@dataclass(frozen=True, slots=True)
class GroupTally:
    """Some whole tasks of a group: all of them, each of its slices, and what its warnings and variances need."""

    part: Rollouts | None  # only for a dialect with numbers of its own
    key: tuple[str | None, ...]  # (agent, model, dataset)
    whole: SliceTally
    slices: Mapping[str, Mapping[str, SliceTally]]  # key of ``by`` -> slice
    economics: SliceTally
    usage: Mapping[str, list[float]]  # usage column -> numbers whose exact sum is its total
    moments: Mapping[str, tuple[Floats, Floats, ValueEnds]]  # reward -> means and variances of tasks, [T]; its range
    samples: Mapping[tuple[str, float], tuple[Samples, bool]]  # (reward, threshold) -> samples; whether all are 0 or 1
    missing: Mapping[str, int]  # reward -> rollouts without it, counted only if ``missing`` is "fail"
    tries: Mapping[tuple[str, float], Tries]  # (reward, threshold) -> planned rollouts and samples of each task
    seen: Mapping[str, ValueEnds]  # reward that a metric reads -> the ends of what rollouts contribute to it
    stop: Stop | None


def tally_group(
    block: Block,
    plan: Plan,
    requests: Sequence[RequestedMetric],
    economics: Sequence[RequestedMetric],
    seen: Mapping[str, ValueEnds] | None = None,
) -> GroupTally:
    """Reduce some whole tasks of a group.

    ``seen`` has the ends of the rewards of the whole group, which fill missing ones; None if the block is all of it.
    """
    part = block if isinstance(block, Rollouts) else block()
    if plan.range:
        for key in dict.fromkeys(_rewards_read(requests)):
            demand_range(part, _counted(part, plan, key), key, plan.range)
    means = [request for request in requests if request.metric is MEAN_REWARD]
    means = means or per_reward(resolve("mean_reward", NATIVE), part, plan.reward)
    of_means = dict.fromkeys(request.params["reward"] for request in means)
    thresholds = dict.fromkeys([*((key, PASS_THRESHOLD) for key in of_means), *map(_threshold, _of_rewards(requests))])
    counted = {key: _counted(part, plan, key) for key, _ in thresholds}
    demanded = [request.params["reward"] for request in requests if "reward" in request.metric.reads]
    demanded += [request.params["column"] for request in requests if is_reward(part, request)]
    by, count = part.by_task, len(requests)
    read = dict.fromkeys([*_rewards_read(requests), *_rewards_read(economics)])
    ends = {key: ValueEnds.of(contributed(part, key).kept()) for key in read}
    known = ends if seen is None else seen
    with quietly():
        tally = _tally_slice(part, plan, requests, known, economics)
        return GroupTally(
            part=part if plan.dialect.own else None,
            key=tuple(part.keys[0]),
            whole=replace(tally, reduced=tally.reduced[:count]),
            slices={
                key: {
                    name: _tally_slice(rows, plan, requests, known)
                    for name, rows in sliced(part, key, plan.dialect.label).items()
                }
                for key in plan.by
            },
            economics=replace(tally, reduced=tally.reduced[count:]),
            usage={name: terms(part.columns[name].kept()) for name in USAGE if name in part.columns},
            moments={key: (*moments(counted[key], by)[1:], ValueEnds.of(counted[key].kept())) for key in of_means},
            samples={
                (key, threshold): (Samples.of(counted[key], by, threshold), zero_or_one(counted[key]))
                for key, threshold in thresholds
            },
            missing={
                key: len(part) - int(contributed(part, key).given.sum()) for key in demanded if plan.missing == "fail"
            },
            stop=part.stop,
            tries={(key, threshold): _tries(part, counted[key], threshold) for key, threshold in thresholds},
            seen=ends,
        )


def _tries(part: Rollouts, rewards: Column, threshold: float) -> Tries:
    """The tries of each task; a rollout that was not run is none, and was not planned either."""
    asked = (part.outcome != NOT_RUN) | rewards.given
    return Tries.of(passed(rewards, threshold)[asked], rewards.given[asked], part.task[asked], part.by_task.size)


def _tally_slice(
    part: Rollouts,
    plan: Plan,
    requests: Sequence[RequestedMetric],
    seen: Mapping[str, ValueEnds],
    economics: Sequence[RequestedMetric] = (),
) -> SliceTally:
    """Reduce some whole tasks of a slice by every requested metric, and then by every metric of ``economics``."""
    lost = lost_before_answer(part)
    not_filled = lost if lost.any() and plan.missing != "zero" else None
    settings = Settings(by=part.by_task, zero=plan.missing == "zero", range=plan.range, not_filled=not_filled)
    with in_threads_if(_worth_threads(len(part), requests)) as each:
        reduced = list(each(partial(_reduce, part, settings, seen), [*requests, *economics]))
    keys = _rewards_read(requests)
    own = (key for key in (*keys, *part.rewards) if key not in part.elsewhere or not part.lacks(key).all())
    reward = next(own, "reward")
    ledger = with_rewards(replace(Ledger.of(part), lacking=lacking(part, keys)), part, reward)
    numbers = contributed(part, reward) if part.rewards else Column.gaps(len(part))
    return SliceTally(
        ledger,
        (int(numbers.given.sum()), zero_or_one(numbers)),
        reduced,
        part.tasks,
        named_clusters(part, plan.cluster) if plan.cluster else None,
        part.stop is not None,
    )


def _reduce(
    part: Rollouts, settings: Settings, seen: Mapping[str, ValueEnds], request: RequestedMetric
) -> Reduced | BaseException:
    """Reduce some tasks by a requested metric; if user code fails, return its exception."""
    if "reward" in request.metric.reads:
        settings = replace(settings, seen=seen.get(_threshold(request)[0]))
    columns = [column_of(part, name, request.params) for name in request.metric.reads]
    if settings.zero and is_reward(part, request):
        columns = [column.filled(0.0) for column in columns]
    try:
        with quietly():
            return reduce_tasks(request.metric, request.params, columns, settings)
    except (Exception, SystemExit) as error:
        if not request.user_code:
            raise
        return error


def _rewards_read(requests: Sequence[RequestedMetric]) -> list[str]:
    """The reward that each metric of a reward reads."""
    return [request.params.get("reward") or "reward" for request in requests if "reward" in request.metric.reads]


def _of_rewards(requests: Sequence[RequestedMetric]) -> list[RequestedMetric]:
    """The requests whose metric reads a reward first."""
    return [request for request in requests if request.metric.reads[0] == "reward"]


def _threshold(request: RequestedMetric) -> tuple[str, float]:
    """The reward that a metric reads, and the threshold from which it is a pass."""
    return request.params.get("reward") or "reward", request.params.get("threshold", PASS_THRESHOLD)


def _counted(part: Rollouts, plan: Plan, key: str) -> Column:
    """The number that each rollout contributes to a metric of a reward, with ``missing`` applied, [R]."""
    column = contributed(part, key)
    return column.filled(0.0) if plan.missing == "zero" else column


def demand_range(part: Rollouts, column: Column, key: str, limits: tuple[float, float]) -> None:
    """Raise InputError for the first reward, [R], outside the given range."""
    low, high = limits
    outside = np.flatnonzero(column.given & ((column.values < low) | (column.values > high)))
    if len(outside):
        row = int(outside[0])
        word = OUTCOMES[part.outcome[row]]
        because = "" if word == OUTCOMES[SCORED] else f" (it is {word})"
        dataset = part.keys[0][2] if len(part.keys) == 1 else None  # a task may have the same id in several datasets
        of_dataset = f" of {dataset!r}" if dataset else ""
        raise InputError.at(
            f"task {part.tasks[part.task[row]]!r}{of_dataset} sample {part.sample[row]}",
            f"{key} is {column.values[row]:g}{because}",
            f"expected {low:g} to {high:g}, the given --range",
        )


def fills_all(tallies: Sequence[GroupTally], plan: Plan) -> bool:
    """Whether the rollouts of a group that were lost before the model was asked are filled like the others.

    They are if there are too many of them, and if missing rollouts count as 0, as these then do, too.
    """
    if plan.missing == "zero":
        return True
    lost = sum(tally.whole.ledger.not_filled or 0 for tally in tallies)
    return lost > MOST_LOST_BEFORE * sum(tally.whole.ledger.planned for tally in tallies)


def seen_by(tallies: Sequence[GroupTally]) -> dict[str, ValueEnds]:
    """The ends of what the rollouts of a group contribute to each reward that a metric reads."""
    seen: dict[str, ValueEnds] = {}
    for tally in tallies:
        for key, ends in tally.seen.items():
            seen[key] = ends if key not in seen else seen[key].and_those(ends)
    return seen


def filled_alike(tallies: Sequence[GroupTally], plan: Plan) -> bool:
    """Whether every part of a group fills missing rewards with the range that the whole group shows."""
    if len(tallies) == 1 or plan.range is not None or not any(tally.whole.ledger.gaps for tally in tallies):
        return True
    return all(ends.in_unit for ends in seen_by(tallies).values())


def slice_of(
    tallies: Sequence[SliceTally], plan: Plan, requests: Sequence[RequestedMetric], *, fill_all: bool = False
) -> Slice:
    """The ledger of a slice, and an estimate for every requested metric; ``tallies`` have all tasks of the slice.

    ``fill_all``: missing rollouts are filled even if they were lost before the model was asked.
    """
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
        fill_all=fill_all,
        tasks=tallies[0].tasks if len(tallies) == 1 else Chained([tally.tasks for tally in tallies]),
    )

    def estimate(numbered: tuple[int, RequestedMetric]) -> Estimate | None:
        number, request = numbered
        pieces = [tally.reduced[number] for tally in tallies]
        for tally in tallies:
            tally.reduced[number] = None
        try:
            for piece in pieces:
                if isinstance(piece, BaseException):
                    raise piece
            with quietly():
                reduced = joined([piece for piece in pieces if isinstance(piece, Reduced)])
                pieces.clear()
                fixed = estimate_of(request.metric, request.params, reduced, settings, _signature(request, plan))
                return sequence_only(fixed) if stopped else fixed
        except (Exception, SystemExit) as error:
            if not request.user_code:
                raise
            failure = PluginError(f"metric {request.text!r} failed: {type(error).__name__}: {error}")
            if not plan.dialect.skips:
                raise failure from error
            warnings.warn(f"metric {request.text!r} is skipped: {failure}", stacklevel=4)
            return None

    ledger = joined_ledgers([tally.ledger for tally in tallies], [tally.rewards for tally in tallies])
    if fill_all:
        ledger = replace(ledger, not_filled=None)
    with in_threads_if(_worth_threads(ledger.planned, requests)) as each:
        estimates = list(each(estimate, enumerate(requests)))
    return Slice(ledger, {request.text: number for request, number in zip(requests, estimates, strict=True) if number})


def slice_names(table: Rollouts, key: str, plan: Plan, tallies: Sequence[GroupTally]) -> list[str]:
    """The names of all slices by a key, in the order in which they are shown."""
    if len(tallies) == 1:
        return list(tallies[0].slices[key])
    names = {name for tally in tallies for name in tally.slices[key]}
    known = [] if key in ("task", "sample") else slices(table, key, plan.dialect.label)[1]
    return [name for name in known if name in names] if names <= set(known) else sorted(names, key=slice_order)


def uneven_warnings(tallies: Sequence[GroupTally], requests: Sequence[RequestedMetric]) -> list[str]:
    """Warnings that sample counts depend on rewards: one for each reward and pass threshold."""
    readers: dict[tuple[str, float], list[RewardMetric]] = {}
    for request in _of_rewards(requests):
        metric = RewardMetric(request.text, request.metric.name, request.params.get("k", 0))
        readers.setdefault(_threshold(request), []).append(metric)
    messages = []
    for key, metrics in readers.items():
        if evidence := dependence_of(joined_samples([tally.samples[key][0] for tally in tallies])):
            messages.append(depends(evidence, metrics, all(tally.samples[key][1] for tally in tallies)))
    return list(dict.fromkeys(filter(None, messages)))


def counts_follow(tallies: Sequence[GroupTally], request: RequestedMetric) -> Follows | None:
    """Whether the numbers of planned samples of a group's tasks follow the results that a metric of rewards reads.

    Lost rollouts alone do not make these numbers differ, but those that were not run do.
    """
    key = _threshold(request)
    tries = joined_tries([tally.tries[key] for tally in tallies])
    return follows_of(Samples(tries, joined_samples([tally.samples[key][0] for tally in tallies]).mean))


def demand_all(ledger: Ledger, tallies: Sequence[GroupTally]) -> None:
    """Raise Incomplete if a rollout is missing, or has other rewards but not the one that a metric reads."""
    message = ""
    if ledger.gaps:
        counts = ", ".join(f"{word} {count}" for word, count in ledger.outcomes.items())
        message = f"{ledger.gaps} of {ledger.planned} rollouts {is_or_are(ledger.gaps)} missing ({counts})"
    for key in tallies[0].missing:
        if not message and (missing := sum(tally.missing[key] for tally in tallies)):
            has = "has" if missing == 1 else "have"
            message = f"{missing} of {ledger.planned} rollouts {has} no reward {key!r}"
    if message:
        raise Incomplete(f"{message}; --missing gap excludes them, --missing zero counts them as 0")


def variance_parts(tallies: Sequence[GroupTally]) -> dict[str, Split | Unsplit]:
    """The parts of the variance of the mean of each reward."""
    variances: dict[str, Split | Unsplit] = {}
    for key in tallies[0].moments:
        samples = joined_samples([tally.samples[key, PASS_THRESHOLD][0] for tally in tallies])
        if dependence_of(samples):
            variances[key] = Unsplit(DEPENDENT)
            continue
        means, within, ends = zip(*(tally.moments[key] for tally in tallies), strict=True)
        units = _joined_clusters([tally.whole.clusters for tally in tallies])
        of_tasks = samples.tries.n, np.concatenate(means), np.concatenate(within)
        variances[key] = split_of(*of_tasks, reduce(ValueEnds.and_those, ends), units)
    return variances


def _joined_clusters(parts: Sequence[tuple[Ints, list[str]] | None]) -> Ints | None:
    """The clusters of several sets of tasks, [T], with one numbering."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0][0] if known else None
    names = sorted({name for _, names in known for name in names}, key=slice_order)
    number = {name: at for at, name in enumerate(names)}
    return np.concatenate([np.array([number[name] for name in names], dtype=np.int64)[code] for code, names in known])


def _signature(request: RequestedMetric, plan: Plan) -> Signature:
    """The signature of an estimate, without the method of its interval."""
    params = [f"{key}:{value}" for key, value in sorted(request.params.items()) if value != ""]
    policy = [f"dialect:{plan.dialect.name}", f"missing:{plan.missing}", f"confidence:{plan.confidence}"]
    limits = [f"range:{plan.range[0]:g},{plan.range[1]:g}"] if plan.range else []
    drawn = f"cluster:{plan.cluster or 'none'}", f"seed:{plan.seed}", f"definitions:{DEFINITIONS}"
    return Signature(
        request.metric.name, request.params.get("k"), (*params, *policy, *limits, *plan.excluded), drawn=drawn
    )


@contextmanager
def in_threads_if(worthwhile: bool) -> Iterator[Callable[..., Iterable[Any]]]:
    """``map``, in a pool of threads if that is worthwhile."""
    if not worthwhile:
        yield map
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8), initializer=_lower_priority) as pool:
        yield pool.map


def _worth_threads(rows: int, requests: Sequence[RequestedMetric]) -> bool:
    """Whether there are many rows, and no user code, which expects one thread."""
    user_code = any(request.user_code for request in requests)
    return rows >= WORTH_THREADS and not user_code and threading.current_thread() is threading.main_thread()


def _lower_priority() -> None:
    """Let the thread that hashes the inputs go first: it takes longest and cannot be split."""
    with suppress(OSError):  # where a thread has no priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
