"""Several runs by one metric: where each stands, how sure that is, and what being the best of many is worth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import TypedDict, cast

import numpy as np

from calipers.analyses.compare.metric_pair import columns_of, of_both
from calipers.analyses.compare.question import Question
from calipers.analyses.compare.result import Place, Ranks
from calipers.analyses.compare.runs import Meeting
from calipers.errors import InputError
from calipers.metrics.metric import Metric
from calipers.request import RequestedMetric
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.labels import clusters, has
from calipers.rollouts.table import Rollouts
from calipers.stats.intervals import ONE_CLUSTER
from calipers.stats.multiplicity import ranking
from calipers.stats.paired import apart
from calipers.stats.paired_bootstrap import least_p
from calipers.stats.ranks import rank_sets, winner

FEW = "fewer than two tasks have a value in every run"
ALL_ONE_WAY = "by chance all may point one way"
UNEQUAL = "the runs have different numbers of samples: a rate over samples has no common weights"


class _RankSettings(TypedDict):
    higher_is_better: bool
    confidence: float
    seed: int


def ranks(meeting: Meeting, question: Question) -> list[Ranks]:
    """The runs of a meeting by every metric that is a mean over tasks, over the tasks that all of them have."""
    common = reduce(set.intersection, (set(part.tasks) for part in meeting.parts))
    tasks = [task for task in meeting.parts[0].tasks if task in common]
    places = [_places(part, tasks) for part in meeting.parts]
    return [_ranked(text, asked, meeting, places, question) for text, asked in _of_all(meeting, question).items()]


def _places(part: Rollouts, tasks: Sequence[str]) -> Ints:
    number = {task: place for place, task in enumerate(part.tasks)}
    return np.array([number[task] for task in tasks], dtype=np.int64)


def _of_all(meeting: Meeting, question: Question) -> dict[str, list[RequestedMetric]]:
    """What each metric that all runs can answer is called in each of them."""
    head, plan = meeting.parts[0], question.plan
    found: dict[str, list[RequestedMetric]] = {}
    for part, name in zip(meeting.parts[1:], meeting.names[1:], strict=True):
        try:
            both_have = of_both(plan.asked, (head, part), (meeting.names[0], name), plan.reward)[0]
        except InputError:  # they need not have met: no metric is common to all
            return {}
        for both in both_have:
            found.setdefault(both.text, [both.first]).append(both.second)
    return {
        text: asked
        for text, asked in found.items()
        if len(asked) == len(meeting.parts)
        and isinstance(asked[0].metric, Metric)
        and asked[0].metric.is_mean
        and asked[0].metric.higher_is_better is not None
    }


def _ranked(
    text: str, asked: Sequence[RequestedMetric], meeting: Meeting, places: Sequence[Ints], question: Question
) -> Ranks:
    columns = [
        _values(one, part, name, question).take(rows)
        for one, part, name, rows in zip(asked, meeting.parts, meeting.names, places, strict=True)
    ]
    there = np.logical_and.reduce([column.given for column in columns])
    count = int(there.sum())
    held = np.stack([column.values[there] for column in columns])  # [M, T] or [M, T, 2]
    if count < 2 or not np.isfinite(held).all():
        return Ranks(text, count, [], None, None, FEW)
    weights = None
    if held.ndim > 2:
        if not (held[..., 1] == held[0, :, 1]).all():
            return Ranks(text, count, [], None, None, UNEQUAL)
        weights, held = held[0, :, 1], held[..., 0] / held[..., 1]
    plan = question.plan
    units = _units(meeting.parts, places, plan.cluster, there)
    if units is not None and len(np.unique(units)) < 2:
        return Ranks(text, count, [], None, None, ONE_CLUSTER)
    drawn = count if units is None else len(np.unique(units))
    if least_p(drawn) > 1 - plan.confidence:
        return Ranks(text, count, [], None, None, f"{drawn} are too few to draw ranks from: {ALL_ONE_WAY}")
    sure = _RankSettings(
        higher_is_better=_metric(asked[0]).higher_is_better is not False, confidence=plan.confidence, seed=plan.seed
    )
    held = _alike(held)
    found = ranking(held, weights, units, **sure)
    sets = rank_sets(held, weights, units, **sure)
    best = winner(held, weights, units, limits=_limits(asked, meeting, question), **sure)
    order = np.argsort(found.ranks, kind="stable").tolist()
    stand = [
        Place(
            run,
            float(found.values[run]),
            float(found.ranks[run]),
            (float(found.low[run]), float(found.high[run])),
            float(found.chance_best[run]),
            (int(sets.low[run]), int(sets.high[run])),
        )
        for run in order
    ]
    return Ranks(text, count, stand, found.optimism, found.corrected, winner=best)


def _limits(asked: Sequence[RequestedMetric], meeting: Meeting, question: Question) -> tuple[float, float] | None:
    """The range of the values, where it is known: rewards lie in [0, 1] when those of all runs do."""
    metric = _metric(asked[0])
    if metric.range is not None or not metric.of_rewards:
        return metric.range
    rewards = (
        columns_of(one, part, name, zero=question.plan.missing == "zero")[0].kept()
        for one, part, name in zip(asked, meeting.parts, meeting.names, strict=True)
    )
    return (0.0, 1.0) if all(bool(((some >= 0) & (some <= 1)).all()) for some in rewards) else None


def _alike(held: Floats) -> Floats:
    """The values of several runs, [M, T], equal where they differ by rounding only: that makes no run the best."""
    held = held.copy()
    for one, two in combinations(range(len(held)), 2):
        held[two] = np.where(apart(held[one], held[two]) == 0, held[one], held[two])
    return held


def _values(asked: RequestedMetric, part: Rollouts, name: str, question: Question) -> Column:
    metric = _metric(asked)
    columns = columns_of(asked, part, name, zero=question.plan.missing == "zero")
    settled = {key: asked.params[key] for key in metric.params if key != "column"}
    return metric.reduce(*columns, by=part.by_task, **settled)


def _metric(asked: RequestedMetric) -> Metric:
    """The metric, which is none of a plugin's: `_of_all` has looked."""
    return cast(Metric, asked.metric)


def _units(parts: Sequence[Rollouts], places: Sequence[Ints], key: str | None, there: Bools) -> Ints | None:
    if key is None:
        return None
    known = [at for at, part in enumerate(parts) if has(part, key)] or [0]
    found: Ints = clusters(parts[known[0]], key)[places[known[0]]][there]
    return found
