"""pass@k, pass^k, maj@k and max@k for every k, and the cost of trying until the first pass; their page and picture."""

from __future__ import annotations

import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.analyses.compare.source import read_source
from calipers.errors import Incomplete, InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import Input
from calipers.metrics import PASS_THRESHOLD, UNIT, pass_counts
from calipers.pipeline import Progress, Source
from calipers.remarks import Remark
from calipers.reports.document import Block, Document, Glance, Name, Sentence, Table, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, figure, is_or_are, percent, whole_account
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import documents_of, text_of
from calipers.reports.result import canonical, finite
from calipers.reports.sentences import CHEAP, money, planned, to
from calipers.reports.untrusted_text import clean, width
from calipers.request import SLACK, Plan, checked_threshold, integer, make_plan, no_threshold
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.labels import answers, clusters, over_steps
from calipers.rollouts.ledger import Ledger, Missing, contributed
from calipers.rollouts.record import without_sentences
from calipers.rollouts.table import Rollouts
from calipers.stats.curve import (
    MOST,
    Curve,
    FirstSuccess,
    Point,
    beyond,
    first_success,
    later_points,
    majority_curve,
    max_curve,
    pass_curves,
    sequence_curve,
)
from calipers.stats.estimate import TOO_LARGE, ValueEnds
from calipers.stats.extrapolation import DRAWS, IF, METRICS, Extrapolation, pass_at
from calipers.stats.free_bounds import free_bounds
from calipers.tally import quietly

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SCHEMA = "calipers.curves/1"
FIELDS = (
    *("dataset", "model", "agent", "reward", "metric", "k", "value", "stderr", "low", "high", "tasks"),
    *("model_based", "tries", "cost_usd", "cost_usd_per_success", "why", "assumes", "free_low", "free_high"),
)
ALL_SHOWN = 16  # up to this number, every k has a row
MODEL = "*"  # marks extrapolated values
PLACES = 3


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """The fitted distribution that extrapolates curves beyond the samples, or why there is none."""

    assumes: str
    draws: int  # of the bootstrap
    a: float | None = None  # of the beta law; None if none was fitted
    b: float | None = None
    never_solved: float | None = None  # share of tasks
    log_likelihood: float | None = None
    fit_p: float | None = None  # of Pearson's test of the counts of passes against the law
    why: str | None = None  # why there are no values beyond the samples


@dataclass(frozen=True, slots=True)
class FreePoint:
    """The bounds of pass@k at one k that hold whatever the law of chances."""

    k: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FreeLine:
    """The bounds of pass@k beyond the samples that hold whatever the law of chances, or why there are none."""

    samples: int  # of each task that are used: those that were planned for all tasks
    tasks: int
    missing: int  # rollouts among them; they count as failures for the lower end, and as passes for the upper end
    points: Sequence[FreePoint]
    why: Mapping[str, Any] | None = None  # a remark, as documents have it


@dataclass(frozen=True, slots=True)
class CurveGroup:
    """The curves of one agent, model and dataset, by one of its rewards."""

    agent: str | None
    model: str | None
    dataset: str | None
    reward: str
    ledger: Ledger
    samples: tuple[int, int]  # the smallest and the largest number of samples of a task
    tasks: int  # tasks with a sample
    curves: Sequence[Curve]
    first_success: Sequence[FirstSuccess]
    notes: Sequence[str] = ()
    law: FittedLaw | None = None  # None if nothing beyond the samples was requested
    free_bounds: FreeLine | None = None  # None if nothing beyond the samples was requested

    @property
    def title(self) -> str:
        """``dataset · model · agent``, without the unknown ones."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def lines(self) -> list[Curve]:
        """The curves without max@k if it equals pass@k, as it does for rewards of 0 and 1."""
        first = [point.value or 0.0 for point in self["pass@k"].points if not point.model_based]
        best = [point.value or 0.0 for curve in self.curves if curve.metric == "max@k" for point in curve.points]
        same = all(math.isclose(value, other, abs_tol=1e-12) for value, other in zip(best, first, strict=False))
        return [curve for curve in self.curves if not (same and curve.metric == "max@k")]

    def __getitem__(self, metric: str) -> Curve:
        by_metric = {curve.metric: curve for curve in self.curves}
        if metric not in by_metric:
            raise UnknownName.of("curve in this group", metric, by_metric)
        return by_metric[metric]


@dataclass(frozen=True, slots=True, repr=False)
class Curves(Page):
    """The curves of every group. With one group, ``curves["pass@k"]`` is its curve."""

    missing: str
    confidence: float
    threshold: float  # the reward that a sample must reach to pass
    cluster: str | None
    inputs: Sequence[Input]
    groups: Sequence[CurveGroup]
    notes: Sequence[str] = ()  # for the reader; not in the JSON

    def __getitem__(self, metric: str) -> Curve:
        if len(self.groups) != 1:
            raise KeyError(f"there are {len(self.groups)} groups; use .groups[i][{metric!r}]")
        return self.groups[0][metric]

    @property
    def digest(self) -> str:
        """The hash of settings and numbers, without paths and sentences: equal digests mean equal numbers."""
        groups = [_numbers(asdict(group)) for group in self.groups]
        return "sha256:" + hashlib.sha256(canonical({**self._settings(), "groups": groups})).hexdigest()

    def page(self) -> Document:
        """A row for each k with all metrics, then the cost of trying until the first pass."""
        return Document(partial(_blocks, self), self.to_dict, FIELDS, self.rows)

    def glance(self) -> Glance:
        """How pass@k rises, a row for each k, and the missing rollouts, for a notebook."""
        if len(self.groups) != 1:
            return Glance(f"Curves of {counted(len(self.groups), 'group')}.")
        group = self.groups[0]
        shown = group.lines
        ks = _rows(sorted({point.k for curve in shown for point in curve.points}), group.samples[1])
        foot = f"{planned(group.ledger, self.missing)}. {self.digest[:19]}…"
        return Glance(rising(group), _values(shown, ks, self.confidence) if ks else None, foot)

    def headline(self) -> str:
        """The answer in one line."""
        if len(self.groups) == 1 and (sentence := rising(self.groups[0])):
            return sentence
        return ", ".join(
            f"{curve.metric} for k up to {curve.points[-1].k}"
            for group in self.groups
            for curve in group.curves
            if curve.points
        )

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **self._settings(),
            "inputs": [asdict(source) for source in self.inputs],
            "groups": [asdict(group) for group in self.groups],
            "digest": self.digest,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per metric and k; rows of pass@k also have the tries and the cost until the first pass."""
        rows = []
        for group in self.groups:
            names = {"dataset": group.dataset, "model": group.model, "agent": group.agent, "reward": group.reward}
            first_success = {row.k: row for row in group.first_success}
            free_points = {} if group.free_bounds is None else {point.k: point for point in group.free_bounds.points}
            for curve in group.curves:
                for point in curve.points:
                    low, high = point.interval or (None, None)
                    first = first_success.get(point.k) if curve.metric == "pass@k" else None
                    free = free_points.get(point.k) if curve.metric == "pass@k" else None
                    rows.append(
                        {
                            **names,
                            "metric": curve.metric,
                            **_without(asdict(point), "interval"),
                            "low": low,
                            "high": high,
                            "tries": first.tries if first else None,
                            "cost_usd": first.cost if first else None,
                            "cost_usd_per_success": first.cost_per_success if first else None,
                            "free_low": free.low if free else None,
                            "free_high": free.high if free else None,
                        }
                    )
        return rows

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("missing", "confidence", "threshold", "cluster")}


def rising(group: CurveGroup) -> str:
    """A sentence with pass@k at the first and the last k that all tasks have samples for; "" if there is no such k."""
    sampled = [point for point in group["pass@k"].points if not point.model_based]
    points = [point for point in sampled if point.tasks == group.tasks and point.value is not None]
    if not points or group.tasks == 0:
        return ""
    name = clean(group.model or group.agent or "The run", 60)
    first, last = points[0], points[-1]
    start = f"{name} has a pass@{first.k} of {figure(first.value, PLACES)}"
    end = f" and a pass@{last.k} of {figure(last.value, PLACES)}" if last.k != first.k else ""
    return f"{start}{end}{f' on {clean(group.dataset, 60)}' if group.dataset else ''}."


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    """The fields of a group that the digest includes: no sentences, and no law, which differs between machines.

    Only the points of the law are rounded so that every machine has the same numbers.
    """
    curves = [
        {**curve, "points": [_without(point, "assumes") for point in curve["points"]]} for curve in group["curves"]
    ]
    numbers = {**_without(_without(group, "notes"), "law"), "curves": curves}
    free = numbers.pop("free_bounds")
    if free is not None:
        why = None if free["why"] is None else _without(free["why"], "text")
        numbers["free_bounds"] = {**free, "why": why}
    return numbers


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


COST = "cost_usd"
PASSES = ("pass@k", "pass^k")  # their values are always in [0, 1]
FARTHEST = 1_000_000  # the largest k
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
    threshold: float | None = None,
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

    ``threshold`` is the reward from which a sample passes: 1, unless rewards exceed it. ``upto`` is the last k. Beyond
    the number of samples, pass@k and pass^k are extrapolated with a fitted distribution of pass probabilities
    (`calipers.stats.extrapolation`) and marked; if that is not possible, they have no value but a reason. A source is
    anything that `score` reads.

    >>> [point.value for point in curve([[1, 0], [0, 0]])["pass@k"].points]
    [0.25, 0.5]
    """
    plan = make_plan(["mean_reward"], cluster=cluster, missing=missing, reward=reward, confidence=confidence)
    upto = None if upto is None else integer("--to", upto)
    if upto is not None and not 1 <= upto <= FARTHEST:
        raise InputError(f"--to is {upto}; expected a number of samples from 1 to {FARTHEST:,}")
    passing = checked_threshold(threshold)
    read = read_source(source, Named(columns or {}, truth, input_format or ""), (*plan.labels, "answer"), progress)
    with quietly():
        pairs = [(part, key) for part in read.rollouts.groups() for key in rewards_of(part, plan.reward)]
        settings = _CurveSettings(plan, pass_threshold(passing, pairs), upto)
        groups = [_with_sequences(_measured(part, key, settings), part, settings) for part, key in pairs]
    if groups and all(NO_REWARDS in group.notes for group in groups):
        raise InputError(f"{NO_REWARDS}; expected rollouts with a number in reward")
    stop_notes = [note for stop in read.rollouts.stops.values() for note in stop.notes]  # the groups have them
    notes = without_sentences([*read.rollouts.notes, *over_steps(read.rollouts)], stop_notes)
    return Curves(plan.missing, plan.confidence, settings.threshold, cluster, read.hashed(), groups, notes)


def _with_sequences(group: CurveGroup, part: Rollouts, settings: _CurveSettings) -> CurveGroup:
    """The group with confidence sequences as bands and a note, if a stopping rule ended its run."""
    if part.stop is None:
        return group
    unit = ValueEnds.of(contributed(part, group.reward).kept()).in_unit
    clustered, confidence = settings.plan.cluster is not None, settings.plan.confidence
    curves = [
        sequence_curve(line, unit=unit or line.metric in PASSES, clustered=clustered, confidence=confidence)
        for line in group.curves
    ]
    return replace(group, curves=curves, notes=[*group.notes, *part.stop.notes])


def rewards_of(part: Rollouts, chosen: str | None) -> list[str]:
    """The rewards of a group to analyse: the chosen one, else `reward`, else all."""
    keys = sorted(key for key, column in part.rewards.items() if column.given.any()) or sorted(part.rewards)
    if chosen:
        if chosen not in part.rewards:
            raise UnknownName.of("reward", chosen, keys)
        return [chosen]
    return [part.usual_reward or "reward"] if part.usual_reward in keys or not keys else keys


def pass_threshold(given: float | None, rewards: Iterable[tuple[Rollouts, str]]) -> float:
    """The reward from which a sample passes: the given one, else 1; InputError for rewards above 1 without one."""
    if given is not None:
        return given
    highest = [ValueEnds.of(contributed(part, key).kept()).high for part, key in rewards]
    if (most := max(highest, default=0.0)) > 1 + SLACK:
        raise no_threshold("pass@k", most)
    return PASS_THRESHOLD


def counted_rewards(part: Rollouts, key: str, missing: str) -> Column:
    """The reward that each rollout contributes, [R]; Incomplete if ``missing`` is fail and rollouts are missing."""
    column = contributed(part, key)
    ledger = Ledger.of(part)
    if missing == "fail" and ledger.gaps:
        gaps = f"{ledger.gaps:,} of {ledger.planned:,} rollouts {is_or_are(ledger.gaps)} missing"
        raise Incomplete(f"{gaps}; --missing gap excludes them, --missing zero counts them as 0")
    return column.filled(0.0) if missing == "zero" else column


def _measured(part: Rollouts, key: str, settings: _CurveSettings) -> CurveGroup:
    rewards = counted_rewards(part, key, settings.plan.missing)
    if not bool(np.isfinite(rewards.kept()).all()):
        raise InputError(f"reward {key!r} has values that are not finite numbers; a curve needs finite numbers")
    by = part.by_task
    units = clusters(part, settings.plan.cluster) if settings.plan.cluster else None
    costs = part.columns.get(COST)
    if costs is not None and not costs.given.any():
        costs = None
    n = by.count(rewards.given)
    passing = pass_curves(rewards, by, units, threshold=settings.threshold, confidence=settings.plan.confidence)
    passing, law, fit_notes = _extended(passing, pass_counts(rewards, by, settings.threshold), units, settings)
    later = [point.k for point in passing[0].points if point.model_based]
    free = _free_line(rewards, part, later, settings) if later else None
    others, notes = _majority_and_max(part, rewards, units, settings)
    tries = first_success(rewards, costs, by, threshold=settings.threshold)
    agent, model, dataset = part.keys[0]
    return CurveGroup(
        agent,
        model,
        dataset,
        key,
        Ledger.of(part),
        (int(n[n > 0].min(initial=n.max(initial=0))), int(n.max(initial=0))),
        int((n > 0).sum()),
        [_up_to(line, settings.upto) for line in (*passing, *others)],
        [row for row in tries if settings.upto is None or row.k <= settings.upto],
        [*_sample_notes(n), *fit_notes, *notes, *_cost_notes(costs, tries)],
        law,
        free,
    )


def _majority_and_max(
    part: Rollouts, rewards: Column, units: Ints | None, settings: _CurveSettings
) -> tuple[list[Curve], list[str]]:
    """maj@k, if there are answers, and max@k, with notes on them."""
    by = part.by_task
    kept = rewards.kept()
    limits = UNIT if ValueEnds.of(kept).in_unit else None
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


def _up_to(line: Curve, upto: int | None) -> Curve:
    """The curve up to the last k, without numbers that are not finite as the rewards are too large for their spread."""
    points = [point for point in line.points if upto is None or point.k <= upto]
    for index, point in enumerate(points):
        numbers = (point.value or 0.0, point.stderr or 0.0, *(point.interval or ()))
        if not all(map(math.isfinite, numbers)):
            points[index] = replace(point, value=finite(point.value), stderr=None, interval=None, why=TOO_LARGE)
    return replace(line, points=tuple(points))


def _extended(
    passing: tuple[Curve, Curve], counts: tuple[Ints, Ints], units: Ints | None, settings: _CurveSettings
) -> tuple[tuple[Curve, Curve], FittedLaw | None, list[str]]:
    """pass@k and pass^k with extrapolated points, the fitted distribution, and notes on its fit."""
    n, c = counts
    ks = beyond(int(n.max(initial=0)), settings.upto)
    if not ks or not (n > 0).any():
        return passing, None, []
    pass_at_points, pass_hat_points, extrapolation = later_points(n, c, ks, units, confidence=settings.plan.confidence)
    at_curve, hat_curve = (
        replace(line, points=(*line.points, *points))
        for line, points in zip(passing, (pass_at_points, pass_hat_points), strict=True)
    )
    fitted = FittedLaw(IF, DRAWS, fit_p=extrapolation.fit_p, why=extrapolation.why)
    if (law := extrapolation.law) is not None:
        fitted = replace(fitted, a=law.a, b=law.b, never_solved=law.never_solved, log_likelihood=law.log_likelihood)
    return (at_curve, hat_curve), fitted, _fit_notes(extrapolation, passing, n) if extrapolation.points else []


def _free_line(rewards: Column, part: Rollouts, ks: Sequence[int], settings: _CurveSettings) -> FreeLine:
    """The bounds of pass@k at each k that hold whatever the law of chances."""
    found = free_bounds(
        rewards,
        part.by_task,
        ks,
        threshold=settings.threshold,
        confidence=settings.plan.confidence,
        clustered=settings.plan.cluster is not None,
        stopped=part.stop is not None,
    )
    points = [FreePoint(k, low, high) for k, (low, high) in found.ends.items()]
    why = None if found.why is None else documents_of([found.why])[0]
    return FreeLine(found.samples, found.tasks, found.missing, points, why)


def _fit_notes(extrapolation: Extrapolation, passing: Sequence[Curve], n: Ints) -> list[str]:
    """A note that compares the fitted distribution with the samples, at the largest k that all tasks have."""
    if extrapolation.law is None:
        return []
    law, k = extrapolation.law, int(n[n > 0].min())
    by_law = (1 - law.never_solved) * pass_at([k], np.array([law.a]), np.array([law.b]))[0]
    comparisons = [
        f"{metric} {curve.points[k - 1].value:.3f} from the samples, {value:.3f} from the model"
        for metric, curve, value in zip(METRICS, passing, by_law.tolist(), strict=True)
    ]
    return [f"fit of the model at k = {k}: {'; '.join(comparisons)} (Pearson's test, p = {extrapolation.fit_p:.2g})"]


def _sample_notes(n: Ints) -> list[str]:
    """A note on tasks with no, one or unequal numbers of samples."""
    counts = n[n > 0]
    if not len(counts):
        return [NO_REWARDS]
    fewest, most = int(counts.min()), int(counts.max())
    if most == 1:
        return [ONE_SAMPLE]
    if fewest < most:
        return [
            f"tasks have {fewest} to {most} samples: from k = {fewest + 1} on "
            "the curve is over fewer tasks, and may change for that reason alone"
        ]
    return []


def _cost_notes(costs: Column | None, tries: Sequence[FirstSuccess]) -> list[str]:
    """A note if the cost is missing, for all or for some k."""
    if tries and costs is None:
        return [f"no cost: no rollout has {COST}"]
    if any(row.cost is None for row in tries):
        return [f"no cost for some k: some tasks have no finite {COST} for a pass or a failure that is needed"]
    return []


def _blocks(curves: Curves) -> Iterator[Block]:
    return spaced(block for group in curves.groups for block in _group(group, curves))


def _group(group: CurveGroup, curves: Curves) -> Iterator[Block]:
    several = len(curves.groups) > 1
    reward = f" · reward {group.reward}" if group.reward != "reward" else ""
    if group.title or reward or several:
        yield Title(Name((group.title or "(unnamed)") + reward, None))
    yield Sentence(clean(whole_account(group.ledger, curves.missing), None))
    shown = group.lines
    ks = _rows(sorted({point.k for curve in shown for point in curve.points}), group.samples[1])
    if ks:
        yield _values(shown, ks, curves.confidence)
    if ks and curves.cluster:
        yield Sentence(f"bands are over clusters: the tasks of one {curves.cluster} are one unit", "note")
    if any(point.interval for curve in shown for point in curve.points):
        yield Sentence(
            f"{percent(curves.confidence)} bands are valid for each k on its own, not for all k together", "note"
        )
    yield from _extrapolation_notes(group, shown)
    yield from _last_in_words(group)
    tries = [row for row in group.first_success if row.k in ks]
    if tries:
        yield Title("cost of trying until the first pass, at most k times")
        priced = any(row.cost is not None for row in tries)
        factor, prefix = _price_unit([row.cost_per_success or row.cost for row in tries])
        costs = [f"cost per {prefix}task", f"cost per {prefix}solved task"] if priced else []
        head = ["k", "solved", "tries per task", *(f"{text}s" if prefix else text for text in costs)]
        yield plain_table(
            head,
            [
                [str(row.k), figure(row.solved, PLACES), figure(row.tries, PLACES)]
                + ([_money(row.cost, factor), _money(row.cost_per_success, factor)] if priced else [])
                for row in tries
            ],
            numbers=range(len(head)),
        )
    points = [point for curve in shown for point in curve.points]
    all_ks = {point.k for point in points}
    if len(ks) < len(all_ks):
        yield Sentence(f"{len(ks)} of {len(all_ks)} rows; --format csv has every k", "note")
    for why in dict.fromkeys(point.why for point in points if point.why and not point.model_based):
        yield Sentence(f"no band: {plain_why(why)}", "note")
    for note in group.notes:
        yield Sentence(note, "note")


def _extrapolation_notes(group: CurveGroup, shown: Sequence[Curve]) -> Iterator[Block]:
    """Notes on the assumptions of points beyond the samples, and on points without a value."""
    points = [point for curve in shown for point in curve.points if point.model_based]
    law, samples = group.law, counted(group.samples[1], "sample")
    if law is not None and law.never_solved is not None and any(point.value is not None for point in points):
        yield Sentence(
            f"{MODEL} beyond the {samples} of a task, {plain_why(law.assumes)}: Beta({law.a:.3g}, {law.b:.3g}), and "
            f"{percent(round(law.never_solved, 3))} never solved. The bands cover {law.draws} bootstrap fits "
            "and all distributions that are nearly as likely.",
            "note",
        )
    not_extrapolated = [curve.metric for curve in shown if points and curve.metric not in PASSES]
    if not_extrapolated:
        metrics = " and ".join(not_extrapolated)
        yield Sentence(f"no {metrics} beyond the {samples} of a task: the model is for passes only", "note")
    for why in dict.fromkeys(point.why for point in points if point.why):
        beyond_samples = f" beyond the {samples} of a task" if law is not None and law.why else ""
        yield Sentence(f"{MODEL} no value{beyond_samples}: {plain_why(why)}", "note")


def _last_in_words(group: CurveGroup) -> Iterator[Block]:
    """pass@k at the last k beyond the samples: under the fitted law, and whatever the law."""
    free = group.free_bounds
    if free is None:
        return
    if free.why is not None:
        yield Sentence(f"no bounds of pass@k that need no model: {free.why['text']}", "note")
    last = group["pass@k"].points[-1]
    name = f"pass@{last.k:,}"
    ends = (free.points[-1].low, free.points[-1].high) if free.points else None
    if last.value is not None and last.interval is not None:
        yield Sentence(f"{name}, {last.assumes}: {figure(last.value, PLACES)} ({to(last.interval, PLACES)}).")
    if ends is not None:
        alone = Remark("free_bounds_alone", {"k": last.k, "ends": ends})
        yield Sentence(text_of(alone if last.value is None else Remark("free_bounds_line", {"ends": ends})), "strong")
    if ends is not None and free.missing:
        yield Sentence(text_of(Remark("free_bounds_missing", {"missing": free.missing})), "note")


def _rows(ks: Sequence[int], most: int) -> list[int]:
    """The k that have a row: all, or if there are many, up to 8, powers of two, the last sampled k and the last k.

    ``most`` is the largest number of samples of a task.
    """
    if len(ks) <= ALL_SHOWN:
        return list(ks)
    return [k for k in ks if k <= 8 or k & (k - 1) == 0 or k in (most, ks[-1])]


def _values(shown: Sequence[Curve], ks: Sequence[int], confidence: float) -> Table:
    """A row for each k, with the value and the band of every curve."""
    points_by_k = [{point.k: point for point in curve.points} for curve in shown]
    band = f"{percent(confidence)} band"
    head = ["k"]
    for curve in shown:
        head += [curve.metric, band]
    rows = []
    for k in ks:
        points = [by_k.get(k) for by_k in points_by_k]
        row = [f"{k}{MODEL}" if any(point and point.model_based for point in points) else str(k)]
        for point in points:
            row += _cells(point)
        rows.append([*row, next(f"{point.tasks:,}" for point in points if point)])
    return plain_table(
        [*head, "tasks"], rows, numbers={*range(1, len(head), 2), len(head)}, strong=range(1, len(head), 2)
    )


def _cells(point: Point | None) -> list[str]:
    if point is None:
        return [NONE, ""]
    return [figure(point.value, PLACES), NONE if point.interval is None else to(point.interval, PLACES)]


def _price_unit(prices: Sequence[float | None]) -> tuple[float, str]:
    """The factor and the word for which prices are shown, per one, 1,000 or million, so that they are readable."""
    highest = max((price for price in prices if price is not None), default=0.0)
    if highest >= CHEAP or highest == 0:
        return 1.0, ""
    return (1e3, "1,000 ") if highest >= CHEAP / 100 else (1e6, "million ")


def _money(amount: float | None, factor: float) -> str:
    return NONE if amount is None else money(amount * factor)


KINDS = ("svg", "png")
MOST_PANELS = 24
LINEAR = 16  # up to this k the axis is linear; beyond, it is logarithmic
ACROSS, PANEL = 3, (4.7, 3.5)  # panels in a row; size of a panel in inches
DOTS = 160  # dots per inch in a PNG
HEADING = 46  # width of the heading of a panel in columns

COLOURS = {"pass@k": "#0b6fa4", "maj@k": "#2a8c5a", "max@k": "#8a5fa8", "pass^k": "#c8571b"}
INK, FAINT, RULE = "#222222", "#6b6b6b", "#e3e3e3"
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "svg.hashsalt": "calipers",  # makes the ids inside the file deterministic
    "svg.fonttype": "none",  # text stays text, which can be searched and read aloud
    "axes.unicode_minus": False,
}


def kind_of(path: str) -> str:
    """The kind of picture, by the ending of the file's name."""
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in KINDS:
        raise InputError.at(path, "does not have the name of a picture", "expected a name that ends in .svg or .png")
    return kind


def need_matplotlib() -> None:
    """Raise InputError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise InputError("--plot needs matplotlib, which is not installed; pip install 'calipers[plot]'")


def picture(curves: Curves, kind: str = "svg") -> bytes:
    """The picture of all groups, as SVG or PNG."""
    need_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    if len(curves.groups) > MOST_PANELS:
        problem = f"there are {len(curves.groups)} groups, too many for a picture"
        raise InputError.at("--plot", problem, f"expected {MOST_PANELS} or fewer; give one model or dataset at a time")
    across = min(math.ceil(math.sqrt(len(curves.groups))), ACROSS)
    down = math.ceil(len(curves.groups) / across)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(PANEL[0] * across + 0.5, PANEL[1] * down + 0.45), layout="constrained")
        (FigureCanvasSVG if kind == "svg" else FigureCanvasAgg)(figure)
        panels = figure.subplots(down, across, squeeze=False).ravel()
        headings = _headings(curves.groups)
        for index, axes in enumerate(panels):
            if index < len(curves.groups):
                _panel(axes, curves.groups[index], headings[index])
            else:
                axes.axis("off")
        figure.supxlabel(_legend(curves), x=0.99, ha="right", fontsize=7.5, color=FAINT)
        stream = io.BytesIO()
        metadata = {"Date": None, "Creator": "Calipers"} if kind == "svg" else {"Software": "Calipers"}
        with warnings.catch_warnings():  # a letter that is missing from the font is drawn as a box
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
            figure.savefig(stream, format=kind, dpi=DOTS, metadata=metadata, facecolor="white")
    return stream.getvalue()


def _legend(curves: Curves) -> str:
    """The text below the picture on bands and extrapolated points."""
    unit = "clusters" if curves.cluster else "tasks"
    band = f"bands: {percent(curves.confidence)} over {unit}, for each k on its own"
    points = [point for group in curves.groups for curve in group.curves for point in curve.points]
    assumes = next((point.assumes for point in points if point.assumes), None)
    lines = [band]
    if assumes:
        assumption = plain_why(assumes).replace(" and ", "\nand ")  # two lines, for a narrow picture
        lines.append(f"dashed: beyond the samples, {assumption}")
    elif any(point.model_based for point in points):
        lines.append("no value beyond the samples")
    if any(group.free_bounds is not None and group.free_bounds.points for group in curves.groups):
        lines.append("dotted: bounds of pass@k that need no model")
    return "\n".join(lines)


def _headings(groups: Sequence[CurveGroup]) -> list[str]:
    """The heading of each panel: the group's name, without its middle if it is long. Equal headings get numbers."""
    headings = []
    for group in groups:
        reward = f" · reward {group.reward}" if group.reward != "reward" else ""
        heading = clean((group.title or ("" if len(groups) == 1 else "(unnamed)")) + reward, None)
        headings.append(_fitted(heading.removeprefix(" · "), HEADING))
    return [
        f"{index + 1}: {_fitted(heading, HEADING - 4)}" if headings.count(heading) > 1 else heading
        for index, heading in enumerate(headings)
    ]


def _fitted(text: str, room: int) -> str:
    """The text, without its middle if it is wider than ``room`` columns."""
    if width(text) <= room:
        return text
    head, tail = text, text
    while width(head) > (room - 1) // 2:
        head = head[:-1]
    while width(tail) > room - 1 - width(head):
        tail = tail[1:]
    return f"{head}…{tail}"


def _panel(axes: Axes, group: CurveGroup, heading: str) -> None:
    with_values = [
        replace(line, points=tuple(point for point in line.points if point.value is not None)) for line in group.lines
    ]
    shown = [curve for curve in with_values if curve.points]
    points = [point for curve in shown for point in curve.points]
    fewest, most = group.samples
    each = counted(most, "sample") if fewest == most else f"{fewest} to {counted(most, 'sample')}"
    size = f"{counted(group.tasks, 'task')}, {each} each"
    axes.set_title(heading or size, loc="left", fontsize=10.5, color=INK, fontweight="bold", parse_math=False, pad=18)
    if heading:
        axes.text(0, 1.025, size, transform=axes.transAxes, fontsize=8, color=FAINT)
    for curve in shown:
        _draw(axes, curve)
    bounded = [] if group.free_bounds is None else list(group.free_bounds.points)
    _draw_bounds(axes, bounded)
    ks = [point.k for point in points] + [point.k for point in bounded]
    _frame(axes, points, max(ks, default=1))
    if bounded or any(point.model_based for point in points):
        axes.axvline(group.samples[1], color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)))
    _name_lines(axes, shown)


def _value(point: Point) -> float:
    return math.nan if point.value is None else point.value


def _draw(axes: Axes, curve: Curve) -> None:
    """Draw a curve with its band: a solid line for sampled points, a dashed one for extrapolated points."""
    colour = COLOURS[curve.metric]
    for model_based in (False, True):
        points = [point for point in curve.points if point.model_based is model_based]
        style: Any = (0, (4, 2)) if model_based else "-"
        axes.plot(
            [point.k for point in points],
            [_value(point) for point in points],
            color=colour,
            linewidth=1.8,
            linestyle=style,
            marker="o" if len(points) <= LINEAR else "",
            markersize=3.6,
            markerfacecolor="white" if model_based else colour,
            zorder=3,
        )
        with_band = [point for point in points if point.interval]
        low, high = ([point.interval[end] for point in with_band if point.interval] for end in (0, 1))
        if len(with_band) == 1:  # the band of a single point would be invisible
            axes.vlines([with_band[0].k], low, high, color=colour, alpha=0.5, linewidth=1.2)
        ks = [point.k for point in with_band]
        axes.fill_between(ks, low, high, color=colour, alpha=0.07 if model_based else 0.14, linewidth=0)


def _draw_bounds(axes: Axes, points: Sequence[FreePoint]) -> None:
    """Draw the bounds of pass@k that hold whatever the law: two dotted lines, or one upright line for a single k."""
    ks = [point.k for point in points]
    low, high = [point.low for point in points], [point.high for point in points]
    style: Any = {"color": COLOURS["pass@k"], "linewidth": 1.1, "linestyle": (0, (1, 1.5))}
    if len(points) == 1:
        axes.vlines(ks, low, high, **style)
    elif points:
        axes.plot(ks, low, **style)
        axes.plot(ks, high, **style)


def _frame(axes: Axes, points: Sequence[Point], last: int) -> None:
    """Set the scales, ticks and colours of the axes; k, up to the last, is linear or, if many, logarithmic."""
    values = [end for point in points for end in (_value(point), *(point.interval or ()))]
    if all(0 <= value <= 1 for value in values):
        axes.set_ylim(-0.02, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.50", "0.75", "1"])
    if last > LINEAR:
        axes.set_xscale("log", base=2)
        ticks: Iterable[int] = (1 << i for i in range(last.bit_length()))
        axes.set_xlim(0.92, last * 1.08)
    else:
        ticks = range(1, last + 1)
        axes.set_xlim(1 - 0.04 * last, last + 0.04 * last)
    marks = list(ticks)
    axes.set_xticks(marks, [f"{k:,}" for k in marks])
    axes.minorticks_off()
    axes.set_xlabel("k, samples", color=FAINT)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=FAINT, length=0, labelsize=8)


def _name_lines(axes: Axes, shown: Sequence[Curve]) -> None:
    """Write each name at the end of its line, with a minimum distance between names."""
    low, high = axes.get_ylim()
    distance = 0.065 * (high - low)
    last = max((curve.points[-1].k for curve in shown), default=1)
    ordered = sorted(shown, key=lambda line: _value(line.points[-1]))
    full_length = [curve for curve in ordered if curve.points[-1].k == last]
    heights: list[float] = []
    for curve in full_length:
        heights.append(max([_value(curve.points[-1]), *(height + distance for height in heights[-1:])]))
    overflow = max(0.0, heights[-1] - high) if heights else 0.0
    for curve in ordered:
        end = curve.points[-1]
        early = curve not in full_length  # it ends before the last k, because it is not extrapolated
        axes.annotate(
            curve.metric,
            xy=(end.k, _value(end)) if early else (1.0, heights[full_length.index(curve)] - overflow),
            xycoords="data" if early else ("axes fraction", "data"),
            xytext=(7 if early else 4, 0),
            textcoords="offset points",
            va="center",
            color=COLOURS[curve.metric],
            fontweight="bold",
            fontsize=9,
            annotation_clip=False,
            parse_math=False,
        )
