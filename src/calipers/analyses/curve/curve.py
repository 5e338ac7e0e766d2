"""Read rollouts and compute pass@k, pass^k, maj@k and max@k for every k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.analyses.compare.source import read_source
from calipers.analyses.curve.document import CurveGroup, Curves, FittedLaw
from calipers.errors import Incomplete, InputError, UnknownName
from calipers.formats.format import Named
from calipers.metrics.metric import PASS_THRESHOLD, UNIT, pass_counts
from calipers.pipeline import Progress, Source, quietly
from calipers.request import Plan, make_plan
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.labels import answers, clusters, over_steps
from calipers.rollouts.ledger import Ledger, Missing, contributed
from calipers.rollouts.record import not_said
from calipers.rollouts.table import Rollouts
from calipers.stats.curve import (
    MOST,
    Curve,
    Ends,
    beyond,
    first_success,
    later_points,
    majority_curve,
    max_curve,
    pass_curves,
    sequence_curve,
)
from calipers.stats.extrapolation import DRAWS, IF, METRICS, Extrapolation, pass_at

COST = "cost_usd"
PASSES = ("pass@k", "pass^k")  # always in [0, 1]
FARTHEST = 1_000_000
NO_REWARDS = "no rollout has a reward, so there is no curve"
ONE_SAMPLE = "every task has one sample: the curve is a single point; run with --samples N for more"
SAME = "every reward is 0 or 1, so max@k equals pass@k"
UNVOTED = "no maj@k: no rollout has an answer (--columns answer=KEY)"


@dataclass(frozen=True, slots=True)
class _CurveSettings:
    plan: Plan
    threshold: float
    upto: int | None


def curve(
    source: Source,
    *,
    upto: int | None = None,
    threshold: float = PASS_THRESHOLD,
    cluster: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Curves:
    """pass@k, pass^k, maj@k and max@k for every k, and the cost of trying until the first pass; by group and reward.

    ``upto`` is the last k. Beyond the number of samples, pass@k and pass^k are extrapolated with a fitted distribution
    of pass probabilities (`calipers.stats.extrapolation`) and marked; where that is not possible they have no value
    and a reason. A source is anything that `score` reads.

    >>> [point.value for point in curve([[1, 0], [0, 0]])["pass@k"].points]
    [0.25, 0.5]
    """
    plan = make_plan(["mean_reward"], cluster=cluster, missing=missing, reward=reward, confidence=confidence)
    if upto is not None and not 1 <= upto <= FARTHEST:
        raise InputError(f"--to is {upto}; expected a number of samples from 1 to {FARTHEST:,}")
    if not math.isfinite(threshold):
        raise InputError(f"--threshold is {threshold}; expected a number that a reward can reach")
    side = read_source(source, Named(columns or {}, truth, input_format or ""), (*plan.labels, "answer"), progress)
    settings = _CurveSettings(plan, threshold, upto)
    with quietly():
        pairs = [(part, key) for part in side.rollouts.groups() for key in rewards_of(part, plan.reward)]
        groups = [_stopped(_group(part, key, settings), part, settings) for part, key in pairs]
    stop_notes = [note for stop in side.rollouts.stops.values() for note in stop.notes]  # which the groups say
    notes = _notes(not_said([*side.rollouts.notes, *over_steps(side.rollouts)], stop_notes), groups)
    return Curves(plan.missing, confidence, threshold, cluster, side.hashed(), groups, notes)


def _stopped(group: CurveGroup, part: Rollouts, settings: _CurveSettings) -> CurveGroup:
    """A group of a run that a stopping rule stopped: its bands are confidence sequences, and a note says so."""
    if part.stop is None:
        return group
    kept = contributed(part, group.reward).kept()
    unit = bool(((kept >= 0) & (kept <= 1)).all())
    clustered, confidence = settings.plan.cluster is not None, settings.plan.confidence
    curves = [
        sequence_curve(line, unit=unit or line.metric in PASSES, clustered=clustered, confidence=confidence)
        for line in group.curves
    ]
    return replace(group, curves=curves, notes=[*group.notes, *part.stop.notes])


def rewards_of(part: Rollouts, chosen: str | None) -> list[str]:
    """The rewards of a group to analyse: the chosen one, `reward`, the only one, or each."""
    keys = sorted(key for key, column in part.rewards.items() if column.given.any()) or sorted(part.rewards)
    if chosen:
        if chosen not in part.rewards:
            raise UnknownName.of("reward", chosen, keys)
        return [chosen]
    return [part.usual_reward or "reward"] if part.usual_reward in keys or not keys else keys


def counted_rewards(part: Rollouts, key: str, missing: str) -> Column:
    """What each rollout contributes, [R], by ``missing``; Incomplete where ``fail`` is given and some are missing."""
    column = contributed(part, key)
    ledger = Ledger.of(part)
    if missing == "fail" and ledger.gaps:
        gaps = f"{ledger.gaps:,} of {ledger.planned:,} rollouts are missing"
        raise Incomplete(f"{gaps}; --missing gap excludes them, --missing zero counts them as 0")
    return column.filled(0.0) if missing == "zero" else column


def _group(part: Rollouts, key: str, settings: _CurveSettings) -> CurveGroup:
    rewards = counted_rewards(part, key, settings.plan.missing)
    if not bool(np.isfinite(rewards.kept()).all()):
        raise InputError(f"reward {key!r} has values that are not finite numbers; a curve needs finite numbers")
    by = part.by_task
    units = clusters(part, settings.plan.cluster) if settings.plan.cluster else None
    costs = part.columns.get(COST)
    n = by.count(rewards.given)
    passing = pass_curves(rewards, by, units, threshold=settings.threshold, confidence=settings.plan.confidence)
    passing, law, fits = _extended(passing, pass_counts(rewards, by, settings.threshold), units, settings)
    others, notes = _others(part, rewards, units, settings)
    tried = first_success(
        rewards, costs if costs is not None and costs.given.any() else None, by, threshold=settings.threshold
    )
    agent, model, dataset = part.keys[0]
    return CurveGroup(
        agent,
        model,
        dataset,
        key,
        Ledger.of(part),
        (int(n[n > 0].min(initial=n.max(initial=0))), int(n.max(initial=0))),
        int((n > 0).sum()),
        [_cut(row, settings.upto) for row in (*passing, *others)],
        [row for row in tried if settings.upto is None or row.k <= settings.upto],
        [*_shape(n), *fits, *notes, *_priced(costs, tried)],
        law,
    )


def _others(
    part: Rollouts, rewards: Column, units: Ints | None, settings: _CurveSettings
) -> tuple[list[Curve], list[str]]:
    """maj@k where there are answers, and max@k; with what must be said of them."""
    by = part.by_task
    kept = rewards.kept()
    limits: Ends | None = UNIT if bool(((kept >= 0) & (kept <= 1)).all()) else None
    most = int(by.count(rewards.given).max(initial=0))
    curves, notes = [], []
    labels = part.labels.get("answer")
    if labels is None or not any(
        labels.values[code] is not None for code in np.unique(labels.code).tolist() if code >= 0
    ):
        notes.append(UNVOTED)
    elif most > MOST:
        notes.append(f"no maj@k: a task has {most:,} samples, and maj@k is computed for at most {MOST}")
    else:
        curves.append(
            majority_curve(rewards, answers(part), by, units, limits=limits, confidence=settings.plan.confidence)
        )
    curves.append(max_curve(rewards, by, units, limits=limits, confidence=settings.plan.confidence))
    if len(kept) and bool(((kept == 0) | (kept == 1)).all()) and 0 < settings.threshold <= 1:
        notes.append(SAME)
    return curves, notes


def _cut(line: Curve, upto: int | None) -> Curve:
    return line if upto is None else replace(line, points=tuple(point for point in line.points if point.k <= upto))


def _extended(
    passing: tuple[Curve, Curve], counts: tuple[Ints, Ints], units: Ints | None, settings: _CurveSettings
) -> tuple[tuple[Curve, Curve], FittedLaw | None, list[str]]:
    """pass@k and pass^k with the extrapolated points, the fitted distribution, and how well it fits."""
    n, c = counts
    ks = beyond(int(n.max(initial=0)), settings.upto)
    if not ks or not (n > 0).any():
        return passing, None, []
    at, hat, extrapolation = later_points(n, c, ks, units, confidence=settings.plan.confidence)
    at_curve, hat_curve = (
        replace(line, points=(*line.points, *points)) for line, points in zip(passing, (at, hat), strict=True)
    )
    fitted = FittedLaw(IF, DRAWS, fit_p=extrapolation.fit_p, why=extrapolation.why)
    if (law := extrapolation.law) is not None:
        fitted = replace(fitted, a=law.a, b=law.b, never_solved=law.never_solved, log_likelihood=law.log_likelihood)
    return (at_curve, hat_curve), fitted, _fits(extrapolation, passing, n) if extrapolation.points else []


def _fits(extrapolation: Extrapolation, passing: Sequence[Curve], n: Ints) -> list[str]:
    """A comparison of the fitted distribution with the samples, at the largest k that all tasks have."""
    if extrapolation.law is None:
        return []
    law, k = extrapolation.law, int(n[n > 0].min())
    by_law = (1 - law.never_solved) * pass_at([k], np.array([law.a]), np.array([law.b]))[0]
    comparisons = [
        f"{metric} {curve.points[k - 1].value:.3f} from the samples, {value:.3f} from the model"
        for metric, curve, value in zip(METRICS, passing, by_law.tolist(), strict=True)
    ]
    return [f"fit of the model at k = {k}: {'; '.join(comparisons)} (Pearson's test, p = {extrapolation.fit_p:.2g})"]


def _shape(n: Ints) -> list[str]:
    """Notes on the number of samples."""
    there = n[n > 0]
    if not len(there):
        return [NO_REWARDS]
    if int(there.max()) == 1:
        return [ONE_SAMPLE]
    if int(there.min()) < int(there.max()):
        return [
            f"tasks have {int(there.min())} to {int(there.max())} samples: from k = {int(there.min()) + 1} on "
            "the curve is over fewer tasks, and may change for that reason alone"
        ]
    return []


def _priced(costs: Column | None, tried: Sequence[object]) -> list[str]:
    if costs is None or not costs.given.any() or not tried:
        return [f"no cost: no rollout has {COST}"] if tried else []
    if any(getattr(row, "cost", None) is None for row in tried):
        return [f"no cost for some k: some tasks have no {COST} for a pass or a failure that is needed"]
    return []


def _notes(read: Sequence[str], groups: Sequence[CurveGroup]) -> list[str]:
    empty = [group.title or "(unnamed)" for group in groups if NO_REWARDS in group.notes]
    if empty and len(empty) == len(groups):
        raise InputError(f"{NO_REWARDS}; expected rollouts with a number in reward")
    return list(read)
