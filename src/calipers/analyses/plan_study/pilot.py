"""The variances for a plan: from one pilot run, from two, or from given numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from calipers.analyses.compare.align import Common, by_id, units
from calipers.errors import InputError, UnknownName
from calipers.metrics.metric import passed, task_mean
from calipers.pipeline import Source, read
from calipers.reports.figures import counted
from calipers.reports.plain_words import plain_why
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.labels import clusters
from calipers.rollouts.ledger import contributed
from calipers.rollouts.table import Rollouts
from calipers.stats.intervals import ONE_CLUSTER
from calipers.stats.power import (
    Clusters,
    PairVariance,
    Pilot,
    assumed_pair,
    pair_variance,
    pilot_of_pair,
    pilot_of_run,
    spread_of,
)
from calipers.stats.variance import NO_REPEATS, Split, Unsplit, split

METRICS = ("mean_reward", "pass_rate")
PASS = 1.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rollouts of a pilot count, and by what."""

    metric: str = METRICS[0]
    reward: str | None = None
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    missing: str = "gap"
    cluster: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clustered:
    """How the tasks of a pilot come in clusters, and what that does to its variance."""

    key: str
    clusters: Clusters
    count: int
    effect: float | None  # on the variance of the mean, against tasks on their own; None where nothing varies


@dataclass(frozen=True, slots=True)
class StudyInputs:
    """The inputs of a plan."""

    source: str
    pair: PairVariance
    parts: Split | None = None  # of one run
    correlation: float | None = None
    tasks: int | None = None
    samples: int | None = None
    cost: float | None = None  # of one rollout
    width: float | None = 1.0  # the range of the rewards; None: unbounded
    whole: bool = False  # every reward is an end of that range
    notes: Sequence[str] = ()
    clustered: Clustered | None = None  # the pair's variance between tasks has it in it
    pilot: Pilot | None = None  # what it knows of the variance; None where no pilot says it


@dataclass(frozen=True, slots=True)
class _Run:
    rollouts: Rollouts
    column: Column  # [R]
    path: str


def from_pilots(pilots: Sequence[Source], chosen: Chosen, correlation: float | None, *, paired: bool) -> StudyInputs:
    """Inputs from one pilot, for a second run like it, or from two pilots."""
    runs = [_run(pilot, chosen, number) for number, pilot in enumerate(pilots, 1)]
    if len(runs) == 1:
        return _alone(runs[0], chosen.cluster, correlation if paired else 0.0)
    if correlation is not None:
        raise InputError.at(
            "--correlation", "two pilots already determine it", "expected it with one pilot or no pilot"
        )
    return _both(runs[0], runs[1], chosen, paired=paired)


def from_numbers(
    between: float | None, within: float | None, rate: float | None, correlation: float | None
) -> StudyInputs:
    """Inputs from variances, or from a pass rate: its variance is ``p (1 - p)``, split where one part is given."""
    whole = None if rate is None else rate * (1 - rate)
    if whole is not None and between is not None and within is not None:
        raise InputError.at(
            "--baseline-rate", "both variances are given as well", "expected at most one of them with a rate"
        )
    if whole is not None and (between is not None or within is not None):
        given, name = (between, "--variance-between") if between is not None else (within, "--variance-within")
        if given is not None and given > whole:
            wrong = f"is {given:g}, more than the total variance of a rate of {rate:g} ({whole:.4g})"
            raise InputError.at(name, wrong, "expected at most that")
        between = whole - within if within is not None else between
        within = whole - between if between is not None else within
    r = 0.0 if correlation is None else correlation
    if whole is not None and between is None:
        pair = PairVariance(2 * (1 - r) * whole, 0.0, 0.0, divided=False)
        return StudyInputs(
            f"a pass rate of {rate:g}", pair, None, r, samples=1, whole=True, notes=_assumed(correlation)
        )
    if between is None or within is None:
        lacking = "--variance-between" if between is None else "--variance-within"
        raise InputError(f"{lacking} is missing; expected it, a --baseline-rate, or a PILOT run")
    parts = Split(between, within, 1.0)
    unit = between + within <= 0.25
    source = f"variances of {between:g} between tasks and {within:g} within"
    pair = assumed_pair(parts, r)
    return StudyInputs(
        source, pair, parts, r, width=1.0 if unit else None, whole=rate is not None, notes=_assumed(correlation)
    )


def _run(source: Source, chosen: Chosen, number: int) -> _Run:
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else f"pilot {number}"
    rollouts = read(source, columns=chosen.columns, labels=[chosen.cluster] if chosen.cluster else [])
    groups = list(rollouts.groups())
    for index, key in enumerate(("agent", "model", "dataset")):
        name = getattr(chosen, key)
        if name is not None:
            known = [value for group in groups if (value := group.keys[0][index]) is not None]
            groups = [group for group in groups if group.keys[0][index] == name]
            if not groups:
                raise UnknownName.of(f"{key} in {path}", name, known)
    if len(groups) > 1:
        titles = ", ".join(" · ".join(filter(None, reversed(group.keys[0]))) or "(unnamed)" for group in groups)
        raise InputError.at(path, f"has {len(groups)} groups ({titles})", "choose one with --model, --dataset, --agent")
    return _counted(groups[0], chosen, path)


def _counted(part: Rollouts, chosen: Chosen, path: str) -> _Run:
    """A run with what each of its rollouts counts, where they count at all."""
    column = contributed(part, _reward(part, chosen.reward, path))
    column = column.filled(0.0) if chosen.missing == "zero" else column
    if not np.isfinite(column.kept()).all():
        raise InputError.at(path, "a reward is not a finite number", "expected finite rewards")
    if chosen.metric == "pass_rate":
        column = Column(passed(column, PASS).astype(float), column.given)
    if not column.given.any():
        raise InputError.at(path, "no rollout has a reward", "expected a pilot with rewards")
    return _Run(part, column, path)


def _reward(part: Rollouts, wanted: str | None, path: str) -> str:
    keys = sorted(part.rewards)
    if wanted is not None:
        if wanted not in keys:
            raise UnknownName.of(f"reward in {path}", wanted, keys)
        return wanted
    if part.usual_reward or not keys:
        return part.usual_reward or "reward"
    if len(keys) > 1:
        raise InputError.at(path, f"has several rewards ({', '.join(keys)})", "choose one with --reward KEY")
    return keys[0]


def _alone(run: _Run, cluster: str | None, correlation: float | None) -> StudyInputs:
    by = run.rollouts.by_task
    r = 0.0 if correlation is None else correlation
    of_task = clusters(run.rollouts, cluster) if cluster else None
    divided = split(run.column, by, of_task)
    means = task_mean(run.column, by)
    there = None if of_task is None else of_task[means.given]
    if isinstance(divided, Split):
        pair, parts = assumed_pair(divided, r), divided
    elif divided.why == NO_REPEATS and (there is None or len(np.unique(there)) > 1):
        pair, parts = PairVariance(2 * (1 - r) * spread_of(means.kept(), there), 0.0, 0.0, divided=False), None
    else:
        many = "two tasks or more" if cluster is None else "two clusters or more"
        raise InputError.at(
            run.path,
            plain_why(ONE_CLUSTER if divided.why == NO_REPEATS else divided.why),
            f"expected a pilot of {many}",
        )
    clustered = None if cluster is None or there is None else _clustered(cluster, means.kept(), there)
    notes = [*_stopped([run]), *_assumed(correlation)]
    source = f"a pilot, {_sized([run], clustered)}"
    known = pilot_of_run(run.column, by, r, of_task)
    return StudyInputs(source, pair, parts, r, *_size([run]), *_range([run]), notes, clustered, known)


def _both(first: _Run, second: _Run, chosen: Chosen, *, paired: bool) -> StudyInputs:
    common = by_id(first.rollouts, second.rollouts)
    if not common.alignment.common:
        raise InputError.at(second.path, f"no task in common with {first.path}", "expected pilots on the same tasks")
    run_one, run_two = runs = [_counted(common.first, chosen, first.path), _counted(common.second, chosen, second.path)]
    of_task, notes = _clusters(common, chosen.cluster)
    pair = pair_variance(run_two.column, run_one.column, run_two.rollouts.by_task, run_one.rollouts.by_task, of_task)
    if isinstance(pair, Unsplit):
        many = "two tasks in common or more" if of_task is None else "two clusters in common or more"
        raise InputError(f"{first.path} and {second.path}: {plain_why(pair.why)}; expected {many}")
    parts = [split(run.column, run.rollouts.by_task, of_task) for run in runs]
    between = [part.tasks for part in parts if isinstance(part, Split)]
    together = sum(between) if len(between) == 2 else None
    means = [task_mean(run.column, run.rollouts.by_task) for run in runs]
    if not paired:
        apart = sum(_spread(side, of_task) for side in means) if together is None else together
        pair = PairVariance(apart, pair.first, pair.second, pair.divided)
    alike = math.sqrt(math.prod(between)) if together is not None else 0.0
    r = None if together is None or not alike or not paired else (together - pair.tasks) / (2 * alike)
    clustered = None
    if chosen.cluster is not None and of_task is not None:
        there = means[0].given & means[1].given
        clustered = _clustered(chosen.cluster, (means[1].values - means[0].values)[there], of_task[there])
    source = f"two pilots, {_sized(runs, clustered)}"
    known = pilot_of_pair(
        run_two.column, run_one.column, run_two.rollouts.by_task, run_one.rollouts.by_task, of_task, paired=paired
    )
    return StudyInputs(source, pair, None, r, *_size(runs), *_range(runs), [*_stopped(runs), *notes], clustered, known)


def _clusters(common: Common, key: str | None) -> tuple[Ints | None, list[str]]:
    """The cluster of each common task, [T], and what is to be said of them."""
    if key is None:
        return None, []
    code, note = units(common, key)
    return code, [note] if note else []


def _clustered(key: str, values: Floats, of_task: Ints) -> Clustered:
    plain = spread_of(values)
    effect = spread_of(values, of_task) / plain if plain else None
    return Clustered(key, Clusters.of(of_task), len(np.unique(of_task)), effect)


def _spread(means: Column, of_task: Ints | None) -> float:
    return spread_of(means.kept(), None if of_task is None else of_task[means.given])


def _size(runs: Sequence[_Run]) -> tuple[int, int, float | None]:
    """Tasks, samples per task of the run that has fewer, and the cost of a rollout."""
    counts = [run.rollouts.by_task.count(run.column.given) for run in runs]
    tasks = int(np.all([count > 0 for count in counts], axis=0).sum())
    samples = min(round(float(count[count > 0].mean())) for count in counts)
    spent = [run.rollouts.columns["cost_usd"].kept() for run in runs if "cost_usd" in run.rollouts.columns]
    known = [float(cost.mean()) for cost in spent if len(cost) and np.isfinite(cost).all()]
    cost = sum(known) / len(known) if known else None
    return tasks, max(samples, 1), cost if cost and cost > 0 else None


def _range(runs: Sequence[_Run]) -> tuple[float | None, bool]:
    kept = np.concatenate([run.column.kept() for run in runs])
    unit = bool(((kept >= 0) & (kept <= 1)).all())
    return (1.0 if unit else None), unit and bool(((kept == 0) | (kept == 1)).all())


def _sized(runs: Sequence[_Run], clustered: Clustered | None) -> str:
    tasks, samples, _ = _size(runs)
    names = " and ".join(run.path for run in runs)
    shared = " in common" if len(runs) > 1 else ""
    within = "" if clustered is None else f" in {counted(clustered.count, 'cluster')} by {clustered.key}"
    return f"{names}: {counted(tasks, 'task')}{shared}{within} with about {counted(samples, 'sample')} each"


def _stopped(runs: Sequence[_Run]) -> list[str]:
    """Notes on pilots that a stopping rule stopped: their values are biased."""
    return [
        f"{run.path}: {stop.fact}: its rate and variances are from those tasks only, and {stop.bias}"
        for run in runs
        if (stop := run.rollouts.stop)
    ]


def _assumed(correlation: float | None) -> list[str]:
    if correlation is not None:
        return []
    return [
        "the correlation of the runs over tasks is not known: it is assumed to be 0, which needs the most tasks; "
        "give two pilots, or --correlation R. Ranges assume that this correlation is right"
    ]
