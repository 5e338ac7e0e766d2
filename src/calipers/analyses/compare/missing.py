"""Missing rollouts of two runs: what they could make of a difference, and whether the verdict survives them.

A rollout is missing when it was planned and has no number: its client failed, it never ran, its record is not
there. A task that has too few samples for a metric is undefined, not missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from calipers.analyses.compare.measure import measure, reduced_of, tested
from calipers.analyses.compare.metric_pair import MetricPair
from calipers.analyses.compare.question import Question
from calipers.analyses.compare.result import Finding, Tipping
from calipers.errors import InputError
from calipers.metrics.metric import UNIT, Metric
from calipers.request import Plan, RequestedMetric
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import FIRST_GAP, SCORED
from calipers.rollouts.table import Rollouts
from calipers.stats.missing import MOST_MISSING, Fillings, TippingPoint, tipping_point
from calipers.stats.paired import FLOORED_T

NO_RANGE: Final = "no bounds are known: rewards are not all from 0 to 1, and --range names no other range"
_DECIDED: Final = {"better": "worse", "worse": "better", "higher": "lower", "lower": "higher"}
"""Verdicts that missing rollouts could turn, and what each would turn into."""


def no_filling(asked: RequestedMetric) -> str | None:
    """Why nobody knows what missing rollouts do to a metric; None where a worse reward never raises it."""
    metric = asked.metric
    if asked.foreign or not isinstance(metric, Metric):
        return "no bounds are known for a metric of somebody else's"
    if metric.reads != ("reward",):
        return "no bounds are known for a metric that reads anything but the reward"
    return None


def lost(side: Rollouts, column: Column | None) -> Bools:
    """The rollouts of a run that are missing, [R]: without a reward, or of no number at all."""
    return np.asarray(side.outcome >= FIRST_GAP) if column is None else ~column.given


def filled(side: Rollouts, column: Column, value: float) -> Column:
    """The rewards of a run with every missing rollout at this value."""
    missing = lost(side, column)
    return Column(np.where(missing, value, column.values), column.given | missing)


def filled_rollouts(rollouts: Rollouts, value: float) -> Rollouts:
    """A run in which every missing rollout has this reward, whichever of its rewards is asked for."""
    rewards = {key: filled(rollouts, contributed(rollouts, key), value) for key in rollouts.rewards}
    outcome = np.where(lost(rollouts, None), SCORED, rollouts.outcome).astype(np.uint8)
    return replace(rollouts, rewards=rewards, outcome=outcome)


def filled_matter(matter: MetricPair, first: float, second: float) -> MetricPair:
    """The same question with the missing rollouts of the runs at these values; as it is where no filling is known."""
    if not fillable(matter):
        return matter
    one, two = (
        [filled(side, columns[0], value)]
        for side, columns, value in zip(matter.sides, matter.columns, (first, second), strict=True)
    )
    return replace(matter, columns=(one, two))


def fillable(matter: MetricPair) -> bool:
    """Whether the difference is known for every filling: a metric of rewards with a known range."""
    if no_filling(matter.both.first) is not None:
        return False
    return all(bool(columns) and within_range(columns[0], ends_of(matter.question.plan)) for columns in matter.columns)


def ends_of(plan: Plan) -> tuple[float, float]:
    """The ends of the range of rewards: a missing rollout that failed, and one that passed."""
    return plan.range or UNIT


def within_range(rewards: Column, ends: tuple[float, float]) -> bool:
    """Whether all rewards lie in the range, so that a missing one does, too."""
    kept = rewards.kept()
    return bool(((kept >= ends[0]) & (kept <= ends[1])).all())


def with_missing(found: Finding, matter: MetricPair, tests: int) -> Finding:
    """A finding with what the missing rollouts of its tasks could make of it; as it is where there are none.

    ``matter`` holds the columns as they are, gaps and all, and none for a number of a table; ``tests`` is how many p
    is adjusted for.
    """
    gaps = _lost_of(matter)
    counts = int(gaps[0].sum()), int(gaps[1].sum())
    if not any(counts):
        return found
    found = replace(found, missing=counts)
    if found.delta is None or not fillable(matter):
        return found
    bottom, top = ends_of(matter.question.plan)
    ends = [filled_matter(matter, top, bottom), filled_matter(matter, bottom, top)]
    able = isinstance(matter.both.first.metric, Metric) and matter.both.first.metric.interval in _TESTED
    try:
        low, high = (measure(end).difference for end in ends)
    except InputError:  # McNemar's test of what filled rollouts make more than one pass or fail a task
        low, high = (measure(_by_default(end)).difference for end in ends)
        able = False
    if low.value is None or high.value is None:
        return found
    found = replace(found, bounds=(low.value, high.value))
    if found.verdict not in _DECIDED or found.delta is None or not able:
        return found
    sign = math.copysign(1.0, found.delta)
    worst, level = low if sign > 0 else high, _level(found, matter.question, tests)
    word = "undecided"
    if worst.p is not None and worst.p <= level and worst.value:
        word = found.verdict if worst.value * sign > 0 else _DECIDED[found.verdict]
    return replace(found, worst_verdict=word, tipping=_tipping(matter, gaps, sign, level))


_TESTED: Final = ("mean", "posterior", "pooled")


def _by_default(matter: MetricPair) -> MetricPair:
    return replace(matter, question=replace(matter.question, test=FLOORED_T))


def _lost_of(matter: MetricPair) -> tuple[Bools, Bools]:
    """The missing rollouts of both runs: those without the reward that the metric reads, else those of no number."""
    reads = matter.both.first.metric.reads
    place = reads.index("reward") if "reward" in reads and all(matter.columns) else None
    one, two = (
        lost(side, None if place is None else columns[place]) & matter.counted[side.task]
        for side, columns in zip(matter.sides, matter.columns, strict=True)
    )
    return one, two


def _level(found: Finding, question: Question, tests: int) -> float:
    """The p, for itself, up to which this test among others is decided: what adjusting made of its own p."""
    if question.adjust not in ("holm", "bh"):
        return 1 - found.confidence
    alpha = 1 - question.plan.confidence
    by = found.p_holm if question.adjust == "holm" else found.p_bh
    return alpha / max(tests, 1) if not found.p or not by else alpha * found.p / by


def _tipping(matter: MetricPair, gaps: tuple[Bools, Bools], sign: float, level: float) -> Tipping | None:
    """How many missing rollouts of the second run may be adverse, those of the first all being so.

    Where only the first run lacks some, it is theirs that are counted; None where all that are missing are of tasks
    that have no value even with them.
    """
    bottom, top = ends_of(matter.question.plan)
    fill = (top, bottom) if sign > 0 else (bottom, top)  # what speaks against the verdict
    whole = filled_matter(matter, *fill)
    reduced = [reduced_of(whole, place, whole.columns[place]) for place in (0, 1)]
    there = np.flatnonzero(reduced[0].given & reduced[1].given & matter.counted)
    counts = [side.by_task.count(lacking) for side, lacking in zip(matter.sides, gaps, strict=True)]
    run = 1 if counts[1][there].any() else 0
    if not counts[run][there].any():
        return None
    own, other = _by_adverse(matter, run, gaps[run], fill[run]), reduced[1 - run]
    every = np.arange(len(other))

    def intact(placed: Ints) -> bool:
        adverse = np.zeros(len(every), dtype=np.int64)
        adverse[there] = placed
        filled_run = Column(own[adverse, every], reduced[run].given)
        found = tested(whole, *((other, filled_run) if run else (filled_run, other)))
        return found.p is not None and found.p <= level and (found.value or 0.0) * sign > 0

    metric, test = matter.both.first.metric, matter.question.test
    # the order of samples counts for metrics of the first k, and the statistic is that of tasks and of the default
    alike = isinstance(metric, Metric) and metric.uses is None and matter.clusters is None and test == FLOORED_T
    kinds = _kinds(own[:, there], other.values[there]) if alike else None
    direction = sign if run else -sign
    one, own_shares = _parts(own[:, there])
    two, other_shares = _parts(other.values[there][None])
    filling = Fillings(direction * one, direction * two[0], (own_shares, other_shares), counts[run][there], kinds)
    return _told(tipping_point(filling, intact), run, fill[run] == bottom, len(there))


def _parts(values: Floats) -> tuple[Floats, Floats]:
    """What each task adds to a mean, or to a pooled rate, [J, t], and its share of it, [t]."""
    if values.ndim > 2:
        counts = values[0, :, 1]
        return values[:, :, 0] / counts.sum(), counts / counts.sum()
    size = values.shape[1]
    return values / size, np.full(size, 1 / size)


def _told(point: TippingPoint, run: int, failed: bool, tasks: int) -> Tipping:
    return Tipping(
        run="second" if run else "first",
        outcome="failed" if failed else "passed",
        most=point.most,
        missing=point.missing,
        exact=point.exact,
        tasks=tasks,
    )


def _by_adverse(matter: MetricPair, run: int, missing: Bools, adverse: float) -> Floats:
    """What the metric makes of a run's tasks when 0, 1, ... of their missing rollouts are adverse, the others not.

    [J, T], or [J, T, 2] of a pooled rate. The first of a task's missing rollouts are adverse: of metrics of the first k
    samples they cost most.
    """
    column, by = matter.columns[run][0], matter.sides[run].by_task
    rank = by.rank(missing)
    found: list[Floats] = []
    for adverse_ones in range(int(by.count(missing).max()) + 1):
        fill = np.where(rank < adverse_ones, adverse, sum(ends_of(matter.question.plan)) - adverse)
        rewards = Column(np.where(missing, fill, column.values), column.given | missing)
        found.append(reduced_of(matter, run, [rewards]).values)
    return np.stack(found)


def _kinds(own: Floats, others: Floats) -> Ints:
    """Which tasks are alike in everything that a test sees, [T]."""
    columns = [np.moveaxis(own, 1, 0).reshape(own.shape[1], -1), others.reshape(len(others), -1)]
    code = np.unique(np.round(np.concatenate(columns, axis=1), 12), axis=0, return_inverse=True)[1]
    return np.asarray(code).reshape(-1)


def warnings_of(names: tuple[str, str], sides: tuple[Rollouts, Rollouts]) -> Iterator[str]:
    """A warning where so many rollouts are missing, or so differently many, that the difference may come from it."""
    shares = [float(lost(side, None).mean()) if len(side) else 0.0 for side in sides]
    (low, few), (high, many) = sorted(zip(shares, names, strict=True), key=lambda pair: pair[0])
    why = "the difference may come from which ones are missing"
    if high - low > MOST_MISSING:
        yield f"warning: {_per_cent(high)} of the rollouts of {many} are missing and {_per_cent(low)} of {few}: {why}"
        return
    for share, name in zip(shares, names, strict=True):
        if share > MOST_MISSING:
            yield f"warning: {_per_cent(share)} of the rollouts of {name} are missing: {why}"


def _per_cent(share: float) -> str:
    return f"{100 * share:.3g} %"
